#!/usr/bin/env bash
# Live comparison with the reference packages at pinned versions; each script prints its figures and exits 1 on a difference.
set -uo pipefail
cd "$(dirname "$0")/../.."
export HF_HUB_OFFLINE=1
python=.venv-parity/bin/python
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
passed=0
failed=0

compare() {
  local name=$1
  shift
  printf 'parity: %s\n' "$name"
  if "$python" "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'parity: %s differs\n' "$name"
  fi
}

.venv/bin/python tools/corpus/make_corpus.py "$corpus" --trouble-rate 0 >/dev/null || exit 1
model=models/tiny
tools/build/build.sh release resize_stream >/dev/null || exit 1
compare "resize against Pillow" tools/parity/resize_parity.py --program build/release/resize_stream
compare "transform against Pillow" tools/parity/image_parity.py --darkroom build/darkroom --images "$corpus/pictures"
compare "tokens against transformers and open_clip" tools/parity/token_parity.py --darkroom build/darkroom
compare "networks against diffusers and transformers" tools/parity/nn_parity.py
tools/build/build.sh release sampler_runs || exit 1
compare "samplers against diffusers" tools/parity/schedule_parity.py
compare "pictures against diffusers" tools/parity/sampler_parity.py --model "$model"
compare "training step against PyTorch" tools/parity/training_step_parity.py --model "$model"
compare "training run against PyTorch" tools/parity/training_run_parity.py
tools/build/build.sh release shard_files >/dev/null || exit 1
# The packages that read our dialects want other releases than the reference packages; torch is theirs all the same.
python=.venv-readers/bin/python
compare "output dialects by their packages" tools/parity/dialects_parity.py --darkroom build/darkroom --model "$model" \
  --images "$corpus/pictures" --torch .venv-parity/lib/python3*/site-packages
python=.venv/bin/python
compare "what the jobs write by pandas, DuckDB and datasets" tests/acceptance/acceptance.py --no-skips --results "$corpus/formats.json" formats
python=.venv-clients/bin/python
compare "the endpoint by its clients" tools/parity/clients_parity.py --darkroom build/darkroom --model "$model"
compare "files of deploy/ by the platforms' descriptions" tools/parity/deploy_parity.py
.venv/bin/python tests/integration/trace_test.py "$corpus/traces" >/dev/null || exit 1
compare "spans and dashboards by OpenTelemetry and Grafana" tools/parity/observation_parity.py "$corpus/traces"
python=.venv-readers/bin/python
compare "shards by other readers" tools/parity/shard_readers_parity.py --program build/release/shard_files
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
