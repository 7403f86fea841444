#!/usr/bin/env bash
# The whole test run: structure, format, unit and golden tests, integration tests on the program, sanitizers, CUDA plugin.
# Prints a line a step and, last, the counts of tests. Exits 1 when anything failed; every skip prints its reason.
set -uo pipefail
cd "$(dirname "$0")/../.."

passed=0
failed=0
skipped=0
failures=()

step() { printf 'test: %s\n' "$*"; }

# check NAME COMMAND...: one pass or failure; the command's output is shown only when it fails.
check() {
  local name=$1 log
  shift
  step "$name"
  log=$(mktemp)
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name")
    tail -n 60 "$log"
  fi
  rm -f "$log"
}

# gtest PROGRAM: adds a test program's own counts.
gtest() {
  local program=$1 report log
  [ -x "$program" ] || return 0
  report=$(mktemp)
  log=$(mktemp)
  if ! DARKROOM_SOURCE_DIR=$PWD GTEST_OUTPUT=json:$report "$program" >"$log" 2>&1; then
    grep -vE '^\[ (RUN|      OK) ' "$log" | tail -n 60
  fi
  local counts
  if counts=$(python3 tools/check/count_tests.py "$report" 2>/dev/null); then
    read -r ran bad without <<<"$counts"
    passed=$((passed + ran - bad - without))
    failed=$((failed + bad))
    skipped=$((skipped + without))
    [ "$without" -eq 0 ] || grep -A1 -E 'Skipped' "$log" | head -40
    [ "$bad" -eq 0 ] || failures+=("$(basename "$program")")
  else
    failed=$((failed + 1))
    failures+=("$(basename "$program") (ended without a report)")
    tail -n 40 "$log"
  fi
  rm -f "$report" "$log"
}

run_unit_tests() {
  local folder=$1 program
  for program in "$folder"/tests/*_test; do
    step "$(basename "$folder")/$(basename "$program")"
    gtest "$program"
  done
}

check "structure" tools/check/check_structure.py
check "format" tools/check/check_format.sh
step "building release (program, tests)"
tools/build/build.sh release all || exit 1
check "every test is built" tools/check/check_structure.py build/release
check "every public header compiles alone" tools/check/check_headers.py build/release

# The tests keep about half of the cores busy; the others compile the next preset meanwhile. What it says is said again below.
JOBS=$((($(nproc) + 1) / 2)) nice tools/build/build.sh asan-ubsan all >/dev/null 2>&1 &

run_unit_tests build/release

for script in tests/integration/*_test.py; do
  [ -e "$script" ] || continue
  check "integration/$(basename "$script" _test.py)" .venv/bin/python "$script"
done

wait
for preset in asan-ubsan tsan; do
  if tools/build/build.sh "$preset" all; then
    run_unit_tests "build/$preset"
  else
    failed=$((failed + 1))
    failures+=("build $preset")
  fi
done

if command -v nvcc >/dev/null && nvcc --version | grep -q 'release 13'; then
  check "CUDA plugin compiles and links" tools/build/build.sh cuda libdarkroom_cuda.so plugin_test
  if without=$(build/cuda/plugin_test | grep "^skip"); then
    head -n 1 <<<"$without"
    skipped=$((skipped + 1))
  else
    check "CUDA kernels against their references" build/cuda/plugin_test
  fi
else
  skipped=$((skipped + 1))
  step "skipped: CUDA plugin, because there is no nvcc of CUDA 13 here"
fi

if [ "$failed" -gt 0 ]; then
  printf 'test: failed: %s\n' "${failures[*]}"
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
