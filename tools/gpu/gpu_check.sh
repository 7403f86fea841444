#!/usr/bin/env bash
# Builds gpu-core on a GPU box and checks and measures it there. usage: gpu_check.sh STAGE... [--device D] [--preset P] [--out FOLDER]
#   build        configure and compile: plugin, gpu_bench, gpu_parity, plugin_test
#   parity       plugin_test (kernels against their CPU references), then gpu_parity (golden files and five training steps)
#   sanitize-memcheck, sanitize-racecheck, sanitize-initcheck, sanitize-synccheck
#                plugin_test's kernels under that tool of compute-sanitizer: accesses out of bounds, races in shared memory, reads of
#                memory that nobody wrote, barriers that not all threads reach
#   bench-256    training step at 256 px        bench-512    training step at 512 px
#   bench-sample a guided sampling step          bench-encode VAE encoder and text encoder
#   curves       losses of 200 steps in bfloat16 and float32, CSV in the output folder
#   all          the stages in this order
# Each stage ends within 9 minutes (it is stopped then), prints a dated Markdown table and keeps it in the output folder
# (default build/gpu-check). It needs the torch 2.11 wheel, nvcc of CUDA 13, g++, cmake, ninja or make, and the headers of fmt and
# nlohmann-json: DARKROOM_HEADERS names their folder where the system has none. PYTHON names the interpreter with the wheel.
# GPU_CHECK_BUILD names another build folder than build/gpu-core.
# With --device cpu --preset tiny the stages parity, bench-* and curves run anywhere.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly limit_seconds=540
readonly threads_on_gpu_boxes=8  # For weights and inputs, which the CPU draws.
readonly build_folder=${GPU_CHECK_BUILD:-build/gpu-core}
readonly stages_in_order="build parity sanitize-memcheck sanitize-racecheck sanitize-initcheck sanitize-synccheck bench-256 bench-512 bench-sample bench-encode curves"

device=auto
preset=sd2-base
out=build/gpu-check
stages=()

die() {
  printf 'gpu_check: %s\n' "$*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --device | --preset | --out)
      [ $# -gt 1 ] || die "$1 wants a value"
      case $1 in
        --device) device=$2 ;;
        --preset) preset=$2 ;;
        --out) out=$2 ;;
      esac
      shift 2
      ;;
    all)
      read -ra stages <<<"$stages_in_order"
      shift
      ;;
    *)
      [[ " $stages_in_order " == *" $1 "* ]] || die "there is no stage '$1'; stages: $stages_in_order all"
      stages+=("$1")
      shift
      ;;
  esac
done
[ ${#stages[@]} -gt 0 ] || die "name a stage: $stages_in_order all"
mkdir -p "$out"

need() { command -v "$1" >/dev/null || die "missing: $1 ($2)"; }

find_nvcc() {
  local nvcc
  for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc /usr/local/cuda-13*/bin/nvcc; do
    if [ -x "$nvcc" ] && "$nvcc" --version | grep -q 'release 13'; then
      printf '%s' "$nvcc"
      return
    fi
  done
  die "missing: nvcc of CUDA 13 (on the path or in /usr/local/cuda)"
}

# The folder of the torch package, found without importing it.
find_torch() {
  local python folder
  for python in "${PYTHON:-}" .venv/bin/python "$(command -v python3 || true)"; do
    if [ -z "$python" ] || ! command -v "$python" >/dev/null; then
      continue
    fi
    folder=$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')
    if [ -n "$folder" ] && grep -q "__version__ = '2\.11\." "$folder/version.py"; then
      printf '%s' "$folder"
      return
    fi
  done
  die "missing: the torch 2.11 wheel (set PYTHON to the interpreter that has it)"
}

# Names of the headers that the compiler finds nowhere.
check_headers() {
  local header flags=()
  [ -z "${DARKROOM_HEADERS:-}" ] || flags=(-isystem "$DARKROOM_HEADERS")
  for header in fmt/format.h nlohmann/json.hpp; do
    printf '#include <%s>\n' "$header" | g++ -std=c++20 -fsyntax-only "${flags[@]}" -x c++ - 2>/dev/null ||
      die "missing: the header $header (set DARKROOM_HEADERS to a folder that holds fmt/ and nlohmann/)"
  done
}

gpu_architectures() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '.[:space:]') || true
  printf '%s' "${found:+$found-real}"
}

stage_build() {
  need g++ "a C++20 compiler"
  need cmake "3.25 or newer"
  local nvcc torch generator architectures
  nvcc=$(find_nvcc)
  torch=$(find_torch)
  check_headers
  if command -v ninja >/dev/null; then
    generator=Ninja
  else
    need make "or ninja"
    generator="Unix Makefiles"
  fi
  architectures=$(gpu_architectures)
  cmake -S . -B "$build_folder" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DDARKROOM_GPU_CORE=ON -DDARKROOM_CUDA=ON \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DDARKROOM_TORCH_ROOT="$torch" -DDARKROOM_HEADERS="${DARKROOM_HEADERS:-}" \
    -DDARKROOM_CUDA_ARCHITECTURES="${architectures:-80-real;90-real;100}" >"$out/configure.log" 2>&1 || {
    tail -n 20 "$out/configure.log" >&2
    die "configuring failed, the whole log is $out/configure.log"
  }
  cmake --build "$build_folder" --parallel "${JOBS:-$(nproc)}" --target darkroom_cuda gpu_bench gpu_parity plugin_test \
    >"$out/compile.log" 2>&1 || {
    # A compiler that was killed says neither.
    { grep -E 'error|undefined' -A5 "$out/compile.log" || tail -n 20 "$out/compile.log"; } | head -60 >&2 || true
    die "compiling failed, the whole log is $out/compile.log"
  }
  printf '| built | with |\n|---|---|\n| gpu-core | %s, %s, torch %s |\n' \
    "$(g++ --version | head -1)" "$("$nvcc" --version | grep -o 'release [0-9.]*')" \
    "$(grep -o "'[^']*'" "$torch/version.py" | head -1 | tr -d "'")"
}

program() {
  [ -x "$build_folder/$1" ] || die "missing: $build_folder/$1 (run the stage build first)"
  printf '%s' "$build_folder/$1"
}

stage_parity() {
  if [ "$device" != cpu ]; then
    "$(program plugin_test)" | tee "$out/plugin_test.log" | grep -vE '^pass' || true
    tail -n 1 "$out/plugin_test.log" | grep -qE '^[1-9][0-9]* passed, 0 failed, 0 skipped' || die "plugin_test failed or skipped; see $out/plugin_test.log"
  fi
  "$(program gpu_parity)" check --device "$device" --source .
}

# sanitize TOOL: torch's allocator hands out parts of large blocks, again and again, so a place behind a tensor's end would be valid
# memory, and what another tensor left there written memory. Without its cache each tensor is an allocation of CUDA's own.
sanitize() {
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || true)
  [ -n "$sanitizer" ] || sanitizer=$(dirname "$(find_nvcc)")/compute-sanitizer
  [ -x "$sanitizer" ] || die "missing: compute-sanitizer (part of the CUDA toolkit)"
  # The checks of the runtime provoke errors on purpose, and record graphs, which want the cache.
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$1" --error-exitcode 1 "$(program plugin_test)" kernel >"$out/$1.log" 2>&1 || {
    tail -n 30 "$out/$1.log" >&2
    die "$1 found something, or a check failed; the whole log is $out/$1.log"
  }
  grep -qE '^[1-9][0-9]* passed, 0 failed, 0 skipped' "$out/$1.log" || die "$1 saw no kernel; see $out/$1.log"
  printf '| compute-sanitizer | |\n|---|---|\n| %s | %s |\n' "$1" "$(grep -E '(ERROR|RACECHECK) SUMMARY' "$out/$1.log" | tail -1 | sed 's/=* *//')"
}
stage_sanitize_memcheck() { sanitize memcheck; }
stage_sanitize_racecheck() { sanitize racecheck; }
stage_sanitize_initcheck() { sanitize initcheck; }
stage_sanitize_synccheck() { sanitize synccheck; }

failed_benches=0

# bench NAME RESOLUTION BATCH REPEATS DTYPE GRAPH: one row from gpu_bench's figures; a bench that fails is a row that says so, and fails the
# stage at its end.
bench() {
  local figures threads=$threads_on_gpu_boxes
  [ "$device" != cpu ] || threads=1
  if ! figures=$("$(program gpu_bench)" "$1" --preset "$preset" --device "$device" --resolution "$2" --batch-size "$3" --repeats "$4" \
    --dtype "$5" --graph "$6" --threads "$threads" 2>"$out/bench.err"); then
    printf '| %s | %s | %s | %s | %s | failed: %s | | | | |\n' "$1" "$2" "$3" "$5" "$6" "$(tail -n 1 "$out/bench.err" | cut -c 1-160)"
    failed_benches=$((failed_benches + 1))
    return
  fi
  printf '%s\n' "$figures" >>"$out/figures.jsonl"
  python3 - "$figures" <<'PYTHON'
import json, sys
f = json.loads(sys.argv[1])
ms = f["ms"]
phases = " / ".join(f"{ms[p]:.4g}" for p in ("forward", "backward", "update") if p in ms)
memory = f.get("peak_device_memory_bytes", f["peak_memory_bytes"]) / 2**30
graph = "on" if f["graph"] else "off"
print(f"| {f['unit']} | {f['resolution']} | {f['batch_size']} | {f['dtype']} | {graph} | {f['per_second']:.4g} | "
      f"{ms['min']:.4g} / {ms['median']:.4g} / {ms['max']:.4g} | {phases} | {f['tflops']:.4g} of {f['gemm_tflops']:.4g} = {f['gemm_share']:.1%} | {memory:.3g} |")
PYTHON
}

bench_header() {
  printf '| a second of | px | batch | dtype | graph | rate | ms min / median / max | forward / backward / update ms | TFLOP/s of GEMM peak | peak GiB |\n'
  printf '|---|---|---|---|---|---|---|---|---|---|\n'
}

# bench_table: the table of those rows on the standard input that begin with cpu or gpu as the device does; the rest of a row is for bench.
# Sizes are the full model's on a GPU, and small ones for a dry run on the CPU.
bench_table() {
  local kind=gpu rows row words
  [ "$device" != cpu ] || kind=cpu
  mapfile -t rows
  bench_header
  for row in "${rows[@]}"; do
    read -ra words <<<"$row"
    [ "${words[0]}" != "$kind" ] || bench "${words[@]:1}"
  done
}

stage_bench_256() {
  bench_table <<'ROWS'
cpu train-step 0 4 2 float32 off
cpu train-step 0 4 2 bfloat16 off
gpu train-step 256 128 20 bfloat16 off
gpu train-step 256 128 20 bfloat16 on
gpu train-step 256 256 20 bfloat16 on
ROWS
}

stage_bench_512() {
  bench_table <<'ROWS'
cpu train-step 0 2 2 float32 off
gpu train-step 512 32 20 bfloat16 off
gpu train-step 512 32 20 bfloat16 on
gpu train-step 512 64 20 bfloat16 on
ROWS
}

stage_bench_sample() {
  bench_table <<'ROWS'
cpu sample 0 1 4 float32 off
gpu sample 512 1 40 bfloat16 off
gpu sample 512 1 40 bfloat16 on
gpu sample 512 16 20 bfloat16 on
ROWS
}

stage_bench_encode() {
  bench_table <<'ROWS'
cpu encode 0 2 2 float32 off
cpu encode-text 0 2 2 float32 off
gpu encode 512 32 20 bfloat16 on
gpu encode 256 128 20 bfloat16 on
gpu encode-text 0 256 20 bfloat16 on
ROWS
}

# The full model's curves would not fit the stage in float32; the preset quickstart is the same network at a quarter of the size.
stage_curves() {
  local curve_preset=quickstart batch=32 steps=200
  if [ "$device" = cpu ]; then
    curve_preset=$preset batch=4 steps=20
  fi
  "$(program gpu_parity)" curves --device "$device" --preset "$curve_preset" --batch-size "$batch" --steps "$steps" --output "$out/curves.csv"
  python3 - "$out/curves.csv" <<'PYTHON'
import csv, sys
rows = [tuple(map(float, r)) for r in list(csv.reader(open(sys.argv[1])))[1:]]
part = max(1, len(rows) // 4)
print("| steps | mean loss, float32 | mean loss, bfloat16 | difference |\n|---|---|---|---|")
for first in range(0, len(rows), part):
    some = rows[first:first + part]
    wide, narrow = (sum(r[i] for r in some) / len(some) for i in (1, 2))
    print(f"| {int(some[0][0])} to {int(some[-1][0])} | {wide:.5f} | {narrow:.5f} | {narrow / wide - 1:+.2%} |")
PYTHON
}

hardware() {
  if [ "$device" != cpu ] && command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader | head -1
  else
    grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs
  fi
}

if [ "${GPU_CHECK_STAGE:-}" = inner ]; then
  "stage_${stages[0]//-/_}"
  exit $((failed_benches > 0))
fi

failed=()
for stage in "${stages[@]}"; do
  start=$SECONDS
  printf 'gpu_check: %s\n' "$stage" >&2
  if { printf '\n## %s\n%s; %s; preset %s, device %s\n\n' "$stage" "$(date -u +%Y-%m-%d)" "$(hardware)" "$preset" "$device" &&
    GPU_CHECK_STAGE=inner timeout "$limit_seconds" bash tools/gpu/gpu_check.sh "$stage" --device "$device" --preset "$preset" --out "$out"; } |
    tee "$out/$stage.md"; then
    printf 'gpu_check: %s took %d s\n' "$stage" $((SECONDS - start)) >&2
  else
    failed+=("$stage")
    printf 'gpu_check: %s failed after %d s\n' "$stage" $((SECONDS - start)) >&2
    [ "$stage" != build ] || break
  fi
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
