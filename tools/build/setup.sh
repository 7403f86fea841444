#!/usr/bin/env bash
# Installs what a target needs, and only that: Debian packages by name, a Python environment from a hash-pinned lock.
# usage: setup.sh build|parity      Idempotent: a second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-build}

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

install_apt_packages() {
  command -v dpkg-query >/dev/null || fail "this is no Debian: install by hand what requirements/apt.txt lists"
  local missing=()
  while read -r package; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done <requirements/apt.txt
  if [ ${#missing[@]} -eq 0 ]; then
    say "Debian packages are there"
    return
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "missing: ${missing[*]}. As root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed: check the package sources"
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get install failed; by hand: apt-get install ${missing[*]}"
}

# One environment per lock; the stamp is the lock's own digest, so a changed lock is installed anew.
install_environment() {
  local folder=$1 lock=$2 stamp
  stamp=$(sha256sum "$lock" | cut -d' ' -f1)
  if [ "$(cat "$folder/.lock-stamp" 2>/dev/null)" = "$stamp" ]; then
    say "$folder is up to date"
    return
  fi
  say "installing $lock into $folder"
  local python=python3
  for candidate in python3.11 /usr/bin/python3.11; do
    if command -v "$candidate" >/dev/null; then
      python=$candidate
      break
    fi
  done
  "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "the wheels are pinned for Python 3.11, found $("$python" --version): install python3.11"
  "$python" -m venv "$folder" || fail "cannot make $folder: apt-get install python3-venv"
  "$folder/bin/python" -m pip install --quiet --no-deps --require-hashes --disable-pip-version-check -r "$lock" ||
    fail "pip could not install $lock: is the package index reachable?"
  printf '%s' "$stamp" >"$folder/.lock-stamp"
}

install_apt_packages
install_environment .venv requirements/build.txt
if [ "$kind" = parity ]; then
  install_environment .venv-parity requirements/parity.txt
fi
