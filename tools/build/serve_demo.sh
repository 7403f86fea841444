#!/usr/bin/env bash
# Serves the page with the shipped model and, where `make demo` has run, what it has trained beside it, its run and its datasets: one server,
# so that the page can put the two models side by side.
# usage: serve_demo.sh [PORT]      Ctrl-C ends it. PORT 0: any that is free. DEMO: the demo's folder; PROGRAM: the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
port=${1:-${PORT:-8080}}
program=${PROGRAM:-build/darkroom}
demo=${DEMO:-demo-run}

[[ $port =~ ^[0-9]+$ ]] && ((port <= 65535)) || {
  printf 'serve-demo: the port must be 0 to 65535, got: %s\n' "$port" >&2
  exit 2
}
[ -x "$program" ] || {
  printf 'serve-demo: there is no %s; run: make build\n' "$program" >&2
  exit 1
}

arguments=(tiny=models/tiny)
shown="the shipped model"
trained=$(find "$demo/run/checkpoints" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1) || trained=
if [ -n "$trained" ]; then
  arguments+=("trained=$trained")
  shown+=", what the demo trained ($trained)"
fi
if [ -f "$demo/run/run.json" ]; then
  arguments+=(--run "$demo/run")
  shown+=", its run"
fi
datasets=()
for part in images latents; do
  ! compgen -G "$demo/$part/*.parquet" >/dev/null || datasets+=("$demo/$part")
done
if [ ${#datasets[@]} -gt 0 ]; then
  arguments+=(--dataset "${datasets[@]}")
  shown+=", its datasets"
fi
printf 'serve-demo: the page will have %s\n' "$shown"
exec "$program" serve "${arguments[@]}" --port "$port"
