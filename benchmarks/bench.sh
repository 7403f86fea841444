#!/usr/bin/env bash
# Ours and the peers' on the same inputs, in turn, one core each (the packed U-Net: two threads); every comparison checks its answer
# first. OpenVINO is a peer of the last where PYTHONPATH leads to it.
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
.venv-parity/bin/python benchmarks/bench_packed_unet.py build/darkroom "$work"
