#!/usr/bin/env bash
# Runs libFuzzer on the fuzz targets (tests/fuzz) with clang's AddressSanitizer and undefined-behaviour sanitizer.
# usage: fuzz.sh [SECONDS [TARGET...]]     SECONDS of each (default 60), of all targets unless some are named
# What is found to be new grows in build/fuzz/corpus/TARGET, what fails is build/fuzz/TARGET-crash-*; exits 1 when anything failed.
# Without clang it says so and exits 2: `make test` replays the targets with g++ all the same.
set -euo pipefail
cd "$(dirname "$0")/../.."
all=(probe picture footer record robots url json where request)
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
case $seconds in
'' | *[!0-9]*)
  echo "fuzz: SECONDS must be a number, got: $seconds" >&2
  exit 2
  ;;
esac
for target in "${targets[@]}"; do
  case " ${all[*]} " in
  *" $target "*) ;;
  *)
    echo "fuzz: no target is called $target; there are: ${all[*]}" >&2
    exit 2
    ;;
  esac
done
if ! command -v clang++ >/dev/null; then
  echo "fuzz: there is no clang++ (Debian package clang, which brings libFuzzer); 'make test' replays the targets with g++" >&2
  exit 2
fi

tools/build/build.sh fuzz "${targets[@]/#/fuzz_}"
failed=()
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  log=build/fuzz/$target.log
  mkdir -p "$corpus"
  # libarrow is built without the sanitizer: containers that cross its border look overflown.
  if ASAN_OPTIONS=detect_container_overflow=0 ARROW_DEFAULT_MEMORY_POOL=system "build/fuzz/fuzz_$target" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$target-" "$corpus" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf 'ok      %s: %s runs, %d inputs in %s\n' "$target" "$runs" "$(find "$corpus" -type f | wc -l)" "$corpus"
  else
    printf 'FAILED  %s: see %s\n' "$target" "$log"
    tail -n 15 "$log" >&2
    failed+=("$target")
  fi
done
[ ${#failed[@]} -eq 0 ]
