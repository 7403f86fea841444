#!/usr/bin/env bash
# Ours and the peers' on the same inputs, in turn, one core each; every comparison checks its answer first.
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1
tools/build/setup.sh parity
tools/build/build.sh release darkroom image_bench text_bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
taskset -c 0 .venv-parity/bin/python benchmarks/bench_images.py --program build/release/image_bench
taskset -c 0 .venv-parity/bin/python benchmarks/bench_tokens.py --program build/release/text_bench
taskset -c 0 .venv-parity/bin/python benchmarks/bench_unet.py build/darkroom "$work"
