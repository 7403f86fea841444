#!/usr/bin/env bash
# Ours and the peers' on the same inputs, in turn, one core each; every comparison checks its answer first.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python tools/make_corpus.py "$work/corpus" >/dev/null
taskset -c 0 .venv/bin/python tools/bench_transform.py build/darkroom "$work/corpus/pictures" "$work"
taskset -c 0 .venv-parity/bin/python tools/bench_unet.py build/darkroom "$work"
