#!/usr/bin/env bash
# Installs what a target needs, and only that: Debian packages by name, a Python environment from a hash-pinned lock.
# usage: setup.sh build|acceptance|test|parity|notebooks|ray|cuda      Idempotent: a second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/build/progress.sh
trap 'printf "setup: %s ended at line %d: %s\n" "$0" "$LINENO" "$BASH_COMMAND" >&2' ERR
kind=${1:-build}
logs=build/setup
readonly system=${SYSTEM_ROOT:-} # Of the files that are looked for; tests name another one.

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# What requirements/apt.txt would bring, asked of a machine that is no Debian 12 or 13. Not ccache, without which a build is only
# slower, nor certificates, which lie elsewhere on each system: `darkroom doctor` asks for them.
missing_by_hand() {
  local tool module names=/usr/share/unicode/emoji/emoji-test.txt font=/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf
  for tool in g++ cmake ninja make git pkg-config python3; do
    command -v "$tool" >/dev/null || printf '%s ' "$tool"
  done
  # Without ensurepip, which some distributions package apart, an environment has no pip.
  "$(find_python || printf python3)" -c 'import venv, ensurepip' 2>/dev/null || printf 'python3-venv '
  for module in fmt nlohmann_json libcurl openssl libcares libidn2 libxxhash libjpeg libpng libwebp libwebpdemux libhwy CLI11 tomlplusplus gtest gmock; do
    pkg-config --exists "$module" 2>/dev/null || printf '%s.pc ' "$module"
  done
  "$(find_python || printf python3)" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
    2>/dev/null || printf 'python3-dev '
  [ -e "$system/usr/include/boost/beast.hpp" ] || printf 'boost/beast.hpp '
  # Where the corpus tool looks for them.
  [ -e "$system$names" ] || printf '%s ' "$names"
  [ -e tools/corpus/NotoColorEmoji.ttf ] || [ -e "$system$font" ] || printf '%s ' "$font"
}

check_machine() {
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "the wheels of torch and pyarrow are pinned for Linux on x86-64, and only that is tested; this machine: $(uname -s) on $(uname -m)"
  local release missing
  # shellcheck disable=SC1090,SC1091
  release=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}") || release=unknown
  case $release in
    'debian 12' | 'debian 13') known_debian=$release ;;
    *)
      known_debian=
      missing=$(missing_by_hand)
      [ -z "$missing" ] ||
        fail "packages are known for Debian 12 and 13 only; this is $release. Install these by hand (NAME.pc: the library's headers; a path: a file that must lie there) and run" \
          "this again: $missing"
      say "this is $release, which nobody tests; everything that was looked for is there"
      ;;
  esac
}

missing_packages() { # missing_packages LIST...: of the Debian packages that these files name.
  local package
  while read -r package; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || printf '%s\n' "$package"
  done < <(cat "$@")
}

# install_packages LABEL LOG PACKAGE...: as the root that the caller's as_root makes of us. Waits for another apt, as a machine's own after
# its start.
install_packages() {
  follow "$1" last_line "$2" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=300 -y --no-install-recommends "${@:3}"
}

install_apt_packages() {
  local missing as_root=() sizes
  mapfile -t missing < <(missing_packages requirements/apt.txt)
  if [ ${#missing[@]} -eq 0 ]; then
    say "Debian packages are there"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "missing: ${missing[*]}. As root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  if [ ${#as_root[@]} -gt 0 ]; then
    sudo -v || fail "sudo is needed for apt-get install ${missing[*]}"
  fi
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed: check the package sources"
  sizes=$(LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
    grep -E '^(Need to get|After this operation)' | tr '\n' ' ') || true
  say "with what they need: ${sizes:-no sizes known}"
  install_packages "setup: Debian packages" "$logs/apt.log" "${missing[@]}" || {
    tail -n 20 "$logs/apt.log" >&2
    fail "apt-get install failed; by hand: apt-get install ${missing[*]}"
  }
}

# What some checks want: a real S3 server, a real browser. Without them they are skipped and say so, so nothing here ends the setup.
# And the compiler that builds the sanitizers' programs faster, where Debian has the one that was tried (cmake/sanitizer_toolchain.cmake).
install_test_packages() {
  local missing as_root=() lists=(requirements/apt_test.txt)
  [ "$kind-$known_debian" != 'test-debian 12' ] || lists+=(requirements/apt_sanitizers.txt)
  mapfile -t missing < <(missing_packages "${lists[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  "${as_root[@]}" apt-get update -qq || say "apt-get update failed; the lists of before are used"
  say "installing ${missing[*]} (up to 370 MB) for the checks on a real S3 server, in a real browser, on a real Prometheus and under mpirun, and the sanitizers"
  install_packages "setup: packages of the tests" "$logs/apt_test.log" "${missing[@]}" ||
    say "they could not be installed ($logs/apt_test.log); those checks will be skipped, and g++ builds for the sanitizers"
}

# The first Python among the versions that the locks hold wheels for.
find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# A lock's sizes: megabytes to download, megabytes on disk.
sizes_of() {
  case $1 in
    requirements/build.txt) printf '620 1500\n' ;;
    requirements/readers.txt) printf '230 800\n' ;;
    requirements/clients.txt) printf '80 340\n' ;;
    requirements/notebooks.txt) printf '25 150\n' ;;
    requirements/ray.txt) printf '190 700\n' ;;
    requirements/cuda.txt) printf '1900 2800\n' ;;
    *) printf '3100 7500\n' ;;
  esac
}

# What `make test` leaves on the disk of the checkout, in megabytes; measured on 2026-11-27, each with the compiler, clang 14 or g++ 12, that leaves more.
readonly test_megabytes='build/release 1350 build/asan-ubsan 2950 build/tsan 1000 .venv 1500 .venv-ray 700 .venv-notebooks 150 build/acceptance 300'

# Refuses before hours of compiling what the disk has no room for. A part that is there, even in part, needs that much less.
check_room() { # check_room FOLDER MEGABYTES...
  local needed=0 parts='' free there more
  while [ $# -gt 0 ]; do
    there=$(du -smD "$1" 2>/dev/null | cut -f1) || there=0
    more=$(($2 - ${there:-0}))
    if [ "$more" -gt 0 ]; then
      needed=$((needed + more))
      parts+="${parts:+, }$1 $more MB"
    fi
    shift 2
  done
  free=$(df --output=avail -m . | tail -n 1)
  [ "$free" -ge "$needed" ] ||
    fail "make test needs $needed MB more on this disk ($parts), and only $free MB are free; docs/installing.md says what a lesser target takes"
}

put_back() { # put_back FOLDER: as it was before this run.
  rm -rf "$1"
  [ ! -e "$1.before" ] || mv "$1.before" "$1"
}

# One environment per lock; the stamp is the lock's own digest, and a folder that has one is whole. A changed lock makes the
# environment anew: installed over the old one, packages that it no longer names would stay. So does a Python that does not find
# the packages, as after an upgrade of the system.
install_environment() {
  local folder=$1 lock=$2 stamp python download disk free
  stamp=$(sha256sum "$lock" | cut -d' ' -f1)
  if [ "$(cat "$folder/.lock-stamp" 2>/dev/null)" = "$stamp" ] && "$folder/bin/python" -c 'import numpy' 2>/dev/null; then
    rm -rf "$folder.before"
    say "$folder is up to date"
    return
  fi
  python=$(find_python) || fail "the wheels are pinned for Python 3.11, 3.12 and 3.13; found: $(python3 --version 2>&1 || echo none)"
  read -r download disk < <(sizes_of "$lock")
  free=$(df --output=avail -m . | tail -n 1)
  say "installing $lock into $folder with $("$python" --version): $download MB to download, $disk MB on disk"
  [ "$free" -ge "$disk" ] || fail "$folder needs $disk MB, and only $free MB are free on this disk"
  # The old environment comes back when the new one fails. Where a kill left one aside, it is the old one still, unless the new
  # one was whole already.
  if [ -e "$folder.before" ] && [ ! -e "$folder/.lock-stamp" ]; then
    rm -rf "$folder"
  elif [ -e "$folder" ]; then
    rm -rf "$folder.before"
    mv "$folder" "$folder.before"
  fi
  "$python" -m venv "$folder" >"$logs/venv.log" 2>&1 || {
    put_back "$folder"
    fail "cannot make $folder; apt-get install python3-venv? $(tail -n 3 "$logs/venv.log")"
  }
  follow "setup: $folder" last_line "$logs/pip.log" "$folder/bin/python" -m pip install --no-deps --require-hashes --no-cache-dir --no-compile \
    --disable-pip-version-check --progress-bar off -r "$lock" || {
    tail -n 5 "$logs/pip.log" >&2
    put_back "$folder"
    fail "pip could not install $lock, the whole log is $logs/pip.log: is the package index reachable?"
  }
  printf '%s' "$stamp" >"$folder/.lock-stamp"
  rm -rf "$folder.before"
}

# The compiler of the CUDA plugin; no package of Debian 12 or 13 has it.
check_cuda() {
  local found
  found=$(nvcc --version 2>/dev/null | grep -o 'release [0-9.]*' || echo none)
  case $found in
    'release 13.'*) ;;
    *) fail "the CUDA plugin needs the toolkit of CUDA 13, with nvcc on the PATH; found: $found (docs/installing.md)" ;;
  esac
}

mkdir -p "$logs"
if [ "$kind" = cuda ]; then
  check_cuda
fi
check_machine
if [ "$kind" = test ]; then
  # shellcheck disable=SC2086
  check_room $test_megabytes
fi
if [ -n "$known_debian" ]; then
  install_apt_packages
  tools/corpus/fetch_font.sh || say "the demo's pictures will be those of the installed font (docs/corpus.md)"
fi
install_environment .venv requirements/build.txt
if [[ $kind = @(test|acceptance) ]] && [ -n "$known_debian" ]; then
  install_test_packages
fi
if [ "$kind" = parity ]; then
  install_environment .venv-parity requirements/parity.txt
  install_environment .venv-readers requirements/readers.txt
  install_environment .venv-clients requirements/clients.txt
  install_environment .venv-ray requirements/ray.txt
fi
if [ "$kind" = notebooks ]; then
  install_environment .venv-notebooks requirements/notebooks.txt
fi
if [ "$kind" = ray ]; then
  install_environment .venv-ray requirements/ray.txt
fi
# `make test` runs the tests of these where they can be installed, and says so where they cannot.
if [ "$kind" = test ]; then
  (install_environment .venv-ray requirements/ray.txt) || say "Ray could not be installed; the tests of darkroom-ray will be skipped"
  (install_environment .venv-notebooks requirements/notebooks.txt) || say "the notebooks' kernel could not be installed; they will not be run"
fi
if [ "$kind" = cuda ]; then
  install_environment .venv-cuda requirements/cuda.txt
fi
