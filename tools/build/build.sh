#!/usr/bin/env bash
# Configures (once) and builds targets of a preset. usage: build.sh PRESET TARGET...
# JOBS: how many compilers run at a time; default: one per core, and no more than 2 GB of free memory each allow.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/build/progress.sh
trap 'printf "build: %s ended at line %d: %s\n" "$0" "$LINENO" "$BASH_COMMAND" >&2' ERR
preset=$1
shift
folder=build/$preset

# A build folder knows its source tree and its Python environment by their paths: another one is configured anew.
configured_for="$PWD $(cat .venv/.lock-stamp 2>/dev/null || true)"
fresh=()
if [ -f "$folder/CMakeCache.txt" ] && [ "$(cat "$folder/configured_for" 2>/dev/null)" != "$configured_for" ]; then
  fresh=(--fresh)
fi
if [ ! -f "$folder/build.ninja" ] || [ ${#fresh[@]} -gt 0 ]; then
  mkdir -p "$folder"
  follow "build: configuring $preset" last_line "$folder/configure.log" cmake --preset "$preset" "${fresh[@]}" || {
    cat "$folder/configure.log" >&2
    exit 1
  }
  printf '%s' "$configured_for" >"$folder/configured_for"
fi

jobs=$(count_jobs)
printf 'build: compiling %s (%s), %d at a time\n' "$preset" "$*" "$jobs"
log=$folder/compile.log
if ! follow "build: compiling $preset" ninja_steps "$log" ninja -C "$folder" -j "$jobs" "$@"; then
  # The log may name no error: a compiler that was killed says nothing.
  { grep -E 'error|FAILED|undefined|Killed' -A5 "$log" || tail -n 20 "$log"; } | head -100 >&2 || true
  printf 'build: failed, the whole log is %s\n' "$log" >&2
  exit 1
fi
if [ "$preset" = release ] && [ -x "$folder/darkroom" ]; then
  ln -sfn release/darkroom build/darkroom
  printf 'build: build/darkroom is ready\n'
fi
