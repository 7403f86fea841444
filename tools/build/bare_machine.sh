#!/usr/bin/env bash
# The README's commands, `make install` and `make wheel` on machines that have nothing: empty Debian 12 and 13 roots made with
# debootstrap. usage, as root: bare_machine.sh bookworm|trixie root|user STAGE...   or: bare_machine.sh compare
#   bootstrap  the root, with this machine's package sources for that release, CA certificates and pip configuration
#   sources    this checkout as a tarball without .git; nothing is kept of an earlier one but what was built
#   build      `make build` (packages, Python environment, program)
#   demo       `make demo`
#   test       `make test`
#   installed  `make install`; then with the tree moved and the checkout hidden: doctor, sample, demo, completion, man page
#   wheel      `make wheel`; then the same in a new Python environment, its dependencies installed as docs/installing.md says
#   all        these in this order
# compare: the demo's image and latents shards of every root that ran the stage demo are the same bytes; there are roots of both releases.
# As `user` the commands run as one with sudo rights and no password, as `root` without sudo.
# A stage that is done is not run again, so the script goes on where it was cut; remove ROOT/stages/STAGE to run it again. Each
# prints its time, the root's size and the largest that it had meanwhile, as a look every few seconds saw it. Roots lie in BARE_MACHINE_ROOTS
# (default /var/tmp/darkroom-roots), about 9 GB each.
# BARE_MACHINE_CCACHE=FOLDER: compile through this compiler cache, so that four roots take a reasonable time. All may write to FOLDER
# then, and the lines of the stages say that the builds were not bare.
# While a stage runs, the root holds this machine's /proc, /dev, /dev/shm and /dev/pts. They are taken away at the end, also after a failure or
# Ctrl-C. After a SIGKILL look with `findmnt` before you remove a root: `rm -rf` would delete the devices of this machine.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly roots=${BARE_MACHINE_ROOTS:-/var/tmp/darkroom-roots}
readonly compiler_cache=${BARE_MACHINE_CCACHE:-}
readonly look_seconds=5 # Between looks at a root's size.
readonly demo_minutes=1 # Of the installed program's demo; `make demo` has its own length.

die() {
  printf 'bare_machine: %s\n' "$*" >&2
  exit 1
}

# This machine's Debian archives: URI and suite, of the other release.
package_sources() {
  local uri suite codename
  # shellcheck disable=SC1091
  codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' | sort -u |
    while read -r uri suite origin; do
      [ "$origin" != Debian ] || printf '%s %s\n' "$uri" "${suite/$codename/$release}"
    done
}

# Mounts once; `leave` takes away whatever was mounted, by whichever run.
enter() {
  local place
  show_checkout
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  if ! mountpoint -q "$root/dev"; then
    mount --bind /dev "$root/dev"
    mount --make-private "$root/dev" # What is mounted below it must not appear in this machine's /dev, too.
  fi
  for place in dev/shm dev/pts; do
    mountpoint -q "$root/$place" || mount --bind "/$place" "$root/$place"
  done
  if [ -n "$compiler_cache" ] && ! mountpoint -q "$root/var/ccache"; then
    mkdir -p "$compiler_cache" "$root/var/ccache"
    chmod -R a+rwX "$compiler_cache"
    mount --bind "$compiler_cache" "$root/var/ccache"
  fi
}

# The mounts go first: a root that is removed with this machine's /dev in it takes its devices along.
leave() {
  local place
  stop_watching
  for place in var/ccache dev/pts dev/shm dev proc; do
    ! mountpoint -q "$root/$place" || umount -l "$root/$place"
  done
  show_checkout
}

# What without_checkout hid, if it was killed.
show_checkout() {
  [ ! -d "$root$home/.hidden" ] || [ -e "$root$home/darkroom" ] || mv -T "$root$home/.hidden" "$root$home/darkroom"
}

# Megabytes of the root; files that vanish meanwhile are no error.
size_of_root() {
  local size
  size=$(du -sxm "$root" 2>/dev/null | cut -f1) || true
  printf '%s' "${size:-0}"
}

# Writes down the largest size that the root has while a stage runs.
watch_size() {
  local size peak=0
  while :; do
    size=$(size_of_root)
    if [ "$size" -gt "$peak" ]; then
      peak=$size
      printf '%s\n' "$peak" >"$root/stages.peak"
    fi
    sleep "$look_seconds"
  done
}

watcher=
stop_watching() {
  if [ -n "$watcher" ]; then
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    watcher=
  fi
}

inside() { # inside COMMAND: as the stage's user, in the checkout.
  enter
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb ${JOBS:+JOBS=$JOBS} \
    ${compiler_cache:+CCACHE_DIR=/var/ccache CCACHE_UMASK=000 CCACHE_NOHASHDIR=1} \
    su "$account" -c "cd $home && { [ ! -d darkroom ] || cd darkroom; }; $1"
}

stage_bootstrap() {
  local uri suite
  command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
  read -r uri suite < <(package_sources | grep " $release\$") || die "this machine has no Debian package source to take $release from"
  rm -rf "$root/debootstrap"
  debootstrap --variant=minbase --include=ca-certificates,sudo "$release" "$root" "$uri"
  package_sources | while read -r uri suite; do printf 'deb %s %s main\n' "$uri" "$suite"; done >"$root/etc/apt/sources.list"
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  chroot "$root" update-ca-certificates >/dev/null
  if [ "$account" != root ]; then
    chroot "$root" id "$account" >/dev/null 2>&1 || chroot "$root" useradd --create-home --shell /bin/bash "$account"
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$account" >"$root/etc/sudoers.d/$account"
  fi
  # The README's first line.
  chroot "$root" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make git'
}

stage_sources() {
  local new=$root$home/.new old=$root$home/darkroom file
  rm -rf "$new"
  mkdir -p "$new" "$old"
  git archive HEAD | tar -xm -C "$new"
  (cd "$old" && find . \( -path ./build -o -path './.venv*' \) -prune -o ! -type d -print0) | while IFS= read -r -d '' file; do
    [ -e "$new/$file" ] || rm "$old/$file"
  done
  find "$old" -mindepth 1 \( -path "$old/build" -o -path "$old/.venv*" \) -prune -o -type d -empty -print0 | xargs -0r rmdir -p 2>/dev/null || true
  # What did not change keeps its time, so nothing is compiled for it; what did is newer than all that was built, whenever that was.
  (cd "$new" && find . ! -type d -print0) | while IFS= read -r -d '' file; do
    if cmp -s "$new/$file" "$old/$file"; then
      chmod --reference="$new/$file" "$old/$file"
    else
      mkdir -p "$(dirname "$old/$file")"
      mv -f "$new/$file" "$old/$file"
    fi
  done
  rm -rf "$new"
  git rev-parse HEAD >"$root/stages.commit"
  chroot "$root" chown -R "$account:" "$home/darkroom"
}

stage_build() { inside "make build"; }
stage_demo() { inside "make demo"; }
stage_test() { inside "make test"; }

# What a user of an installed program does, away from any checkout. $1: the program; $2: where its completions and man page lie.
# A line a command: `set -e` does not see what fails on the left of `&&`.
use_program() {
  inside "set -ex
    mkdir -p $home/away
    cd $home/away
    $1 --version
    $1 doctor
    $1 models init --preset tiny fresh
    test -e fresh/tokenizer/merges.txt
    rm -rf fresh
    $1 sample --model $2/darkroom/models/tiny --prompt 'red heart' --output heart.png --steps 2
    test -s heart.png
    rm heart.png
    test -s $2/bash-completion/completions/darkroom
    bash -n $2/bash-completion/completions/darkroom
    test -s $2/zsh/site-functions/_darkroom
    test -s $2/fish/vendor_completions.d/darkroom.fish
    zcat $2/man/man1/darkroom.1.gz >page
    grep -q '^.TH' page
    $1 demo --minutes $demo_minutes
    rm -rf demo-run"
}

# Runs a command while the checkout cannot be seen; `leave` brings it back when this script is stopped.
without_checkout() {
  local status=0
  mv -T "$root$home/darkroom" "$root$home/.hidden"
  "$@" || status=$?
  mv -T "$root$home/.hidden" "$root$home/darkroom"
  return "$status"
}

stage_installed() {
  inside "make install PREFIX=$home/first && rm -rf $home/moved && mv $home/first $home/moved"
  inside "tools/build/shared_libraries.py $home/moved/bin/darkroom --within $home/moved"
  without_checkout use_program "$home/moved/bin/darkroom" "$home/moved/share"
}

stage_wheel() {
  inside "make wheel && rm -rf $home/env && python3 -m venv $home/env && rm -rf $home/dist && cp -r dist $home/"
  without_checkout inside "cd $home && env/bin/pip install --quiet --no-deps --require-hashes -r dist/darkroom-*-cpu.txt &&
    env/bin/pip install --quiet --no-deps dist/darkroom-*.whl"
  package=$(inside "cd $home && env/bin/python -c 'import darkroom, pathlib; print(pathlib.Path(darkroom.__file__).parent)'")
  inside "tools/build/shared_libraries.py $package/bin/darkroom --within $home/env"
  without_checkout use_program "$home/env/bin/darkroom" "$package/share"
}

# A stage is done for the commit whose sources the root had meanwhile; bootstrap holds for all.
is_done() {
  [ -e "$root/stages/$1" ] || return 1
  [ "$1" = bootstrap ] || [ "$(sed -n 1p "$root/stages/$1")" = "$(git rev-parse HEAD)" ]
}

run_stage() {
  local started=$SECONDS size peak bareness='' title
  [ -z "$compiler_cache" ] || touch "$root/stages.cached"
  [ ! -e "$root/stages.cached" ] || bareness=' (not bare: compiled through a cache)'
  title="$release-$account $1$bareness"
  if is_done "$1"; then
    printf 'bare_machine: %s-%s %s is done\n' "$release" "$account" "$1$(sed -n 3p "$root/stages/$1")"
    return
  fi
  printf 'bare_machine: %s\n' "$title"
  mkdir -p "$root/stages"
  rm -f "$root/stages.peak"
  watch_size </dev/null >/dev/null 2>&1 & # Whoever reads what this script says waits for no sleep.
  watcher=$!
  "stage_$1"
  stop_watching
  size=$(size_of_root)
  peak=$(cat "$root/stages.peak" 2>/dev/null || echo 0)
  [ "$peak" -ge "$size" ] || peak=$size
  printf '%s\n%d s, %d MB, %d at most\n%s\n' "$(cat "$root/stages.commit" 2>/dev/null || echo none)" "$((SECONDS - started))" "$size" "$peak" "$bareness" \
    >"$root/stages/$1"
  printf 'bare_machine: %s took %d s, the root has %d MB and had %d at most\n' "$title" "$((SECONDS - started))" "$size" "$peak"
}

# The shards' digests of one root.
shards() { (cd "$1" && find images latents -name '*.parquet' -print0 | sort -z | xargs -0r sha256sum); }

# The root that a path under the roots lies in.
root_of() { printf '%s/%s' "$roots" "$(cut -d/ -f1 <<<"${1#"$roots"/}")"; }

compare() {
  local folder part release first='' count=0 releases=''
  for folder in "$roots"/*/root/darkroom/demo-run "$roots"/*/home/*/darkroom/demo-run; do
    [ -d "$folder" ] || continue
    [ "$(sed -n 1p "$(root_of "$folder")/stages/demo" 2>/dev/null)" = "$(git rev-parse HEAD)" ] || continue
    for part in images latents; do
      compgen -G "$folder/$part/*.parquet" >/dev/null || die "$folder/$part holds no shards"
    done
    count=$((count + 1))
    releases+=" $(basename "$(root_of "$folder")")"
    if [ -z "$first" ]; then
      first=$folder
    elif ! diff <(shards "$first") <(shards "$folder"); then
      die "the shards of $first and $folder differ"
    fi
  done
  [ "$count" -ge 2 ] || die "only $count roots ran the stage demo of this commit, nothing to compare"
  for release in bookworm trixie; do
    case $releases in
      *" $release-"*) ;;
      *) die "no root of $release ran the stage demo of this commit; there are:$releases" ;;
    esac
  done
  printf 'bare_machine: the image and latents shards of %d demos are the same bytes: %s\n' "$count" \
    "$(shards "$first" | sha256sum | cut -c1-16)"
}

[ "$(id -u)" -eq 0 ] || die "only root can make and enter a root"
if [ "${1:-}" = compare ]; then
  compare
  exit
fi
[ $# -ge 3 ] || die "usage: bare_machine.sh bookworm|trixie root|user STAGE..."
release=$1
case $2 in
  root) account=root home=/root ;;
  user) account=painter home=/home/painter ;;
  *) die "want root or user, got: $2" ;;
esac
root=$roots/$release-$account
shift 2
[ "$1" != all ] || set -- bootstrap sources build demo test installed wheel
mkdir -p "$root"
trap leave EXIT
for stage in "$@"; do
  declare -F "stage_$stage" >/dev/null || die "no such stage: $stage"
  run_stage "$stage"
done
