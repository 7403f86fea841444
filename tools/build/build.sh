#!/usr/bin/env bash
# Configures (once) and builds targets of a preset. usage: build.sh PRESET TARGET...
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=$1
shift
folder=build/$preset
if [ ! -f "$folder/build.ninja" ]; then
  printf 'build: configuring %s\n' "$preset"
  mkdir -p "$folder"
  cmake --preset "$preset" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    exit 1
  }
fi
printf 'build: compiling %s (%s)\n' "$preset" "$*"
log=$folder/compile.log
if ! ninja -C "$folder" -j "${JOBS:-$(nproc)}" "$@" >"$log" 2>&1; then
  grep -E 'error|FAILED|undefined' -A5 "$log" | head -100 >&2
  printf 'build: failed, the whole log is %s\n' "$log" >&2
  exit 1
fi
if [ "$preset" = release ] && [ -x "$folder/darkroom" ]; then
  ln -sfn release/darkroom build/darkroom
  printf 'build: build/darkroom is ready\n'
fi
