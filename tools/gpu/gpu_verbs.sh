#!/usr/bin/env bash
# Runs the verbs of a packed program (pack_program.py) on a GPU box and checks and measures them there.
# usage: gpu_verbs.sh STAGE... --program TREE [--device cuda:0|cpu] [--out FOLDER] [--scratch FOLDER] [--small]
#   doctor    what `doctor` sees
#   kernels   plugin_test and gpu_parity of the tree
#   process   the CPU's latents and text states against the GPU's, in three types; which of them have the same bits
#   train     the CPU's steps against the GPU's; recorded or not, again, after kill -9: the same bits
#   sample    the CPU's pictures against the GPU's, with four samplers and in three types
#   ranks     2 and 4 ranks against one, all on this GPU
#   lost      a rank that is killed, one that is stopped: the run goes on by itself, with the same bits
#   serve     pictures of `serve` against those of `sample`; a stop while it paints
#   scale     sd2-base at full size through process, train, sample and serve: pictures a second, memory
#   save      sd2-base at full size: a checkpoint in the background, and a start from it (after `scale`)
#   all       the stages in this order
# Each stage has a limit of its own (it is stopped then), prints a dated Markdown table and keeps it in the output folder (default
# build/gpu-verbs) with what the verbs said. It needs a Python with the torch 2.11 wheel, pyarrow, NumPy and Pillow: PYTHON, default
# python3. With --device cpu every stage runs anywhere, on small networks and for few steps, as --small has it on a GPU, too.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly stages_in_order="doctor kernels process train sample ranks lost serve scale save"
declare -rA limits=([doctor]=120 [kernels]=120 [process]=120 [train]=180 [sample]=90 [ranks]=120 [lost]=120 [serve]=90 [scale]=240 [save]=180)
readonly seconds_to_end=10

python=${PYTHON:-python3}
program=""
device=cuda:0
out=build/gpu-verbs
scratch=${TMPDIR:-/tmp}/gpu-verbs
small=()
stages=()

die() {
  printf 'gpu_verbs: %s\n' "$*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --program | --device | --out | --scratch)
      [ $# -gt 1 ] || die "$1 wants a value"
      case $1 in
        --program) program=$2 ;;
        --device) device=$2 ;;
        --out) out=$2 ;;
        --scratch) scratch=$2 ;;
      esac
      shift 2
      ;;
    --small)
      small=(--small)
      shift
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
[ -x "$program/bin/darkroom" ] || die "--program names no unpacked tree of pack_program.py: '$program'"
program=$(cd "$program" && pwd)
mkdir -p "$out" "$scratch"

flags=(--program "$program" --device "$device" --out "$out" --scratch "$scratch" "${small[@]}")

hardware() {
  if [ "$device" != cpu ] && command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader | head -1
  else
    grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs
  fi
}

# The large model takes a processor most of a minute, which the other stages do not need.
if [[ " ${stages[*]} " == *" scale "* ]]; then
  "$python" tools/gpu/gpu_verbs.py model "${flags[@]}" >"$out/model.log" 2>&1 &
fi

failed=()
for stage in "${stages[@]}"; do
  start=$SECONDS
  printf 'gpu_verbs: %s\n' "$stage" >&2
  if { printf '\n## %s\n%s; %s; device %s\n\n' "$stage" "$(date -u +%Y-%m-%d)" "$(hardware)" "$device" &&
    timeout --kill-after "$seconds_to_end" "${limits[$stage]}" \
      "$python" tools/gpu/gpu_verbs.py "$stage" "${flags[@]}"; } |
    tee "$out/$stage.md"; then
    printf 'gpu_verbs: %s took %d s\n' "$stage" $((SECONDS - start)) >&2
  else
    failed+=("$stage")
    printf 'gpu_verbs: %s failed after %d s\n' "$stage" $((SECONDS - start)) >&2
  fi
done
wait
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
