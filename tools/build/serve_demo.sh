#!/usr/bin/env bash
# Serves the page with the shipped model, and beside it, one port further, the weights that `make demo` has trained, where they are.
# usage: serve_demo.sh [PORT]      Ctrl-C ends it. A server that does not start ends the other, and its exit code is the script's.
set -euo pipefail
cd "$(dirname "$0")/../.."
port=${1:-${PORT:-8080}}
program=${PROGRAM:-build/darkroom}

[[ $port =~ ^[0-9]+$ ]] && ((port >= 1 && port < 65535)) || {
  printf 'serve-demo: the port must be 1 to 65534, got: %s\n' "$port" >&2
  exit 2
}
[ -x "$program" ] || {
  printf 'serve-demo: there is no %s; run: make build\n' "$program" >&2
  exit 1
}

pids=()
stop() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true; }
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

serve() { # serve PORT MODEL WHAT
  printf 'serve-demo: %s will be at http://127.0.0.1:%s/\n' "$3" "$1"
  "$program" serve "$2" --port "$1" &
  pids+=($!)
}

serve "$port" models/tiny "the shipped model"
trained=$(find demo-run/run/checkpoints -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1) || trained=
if [ -n "$trained" ]; then
  serve $((port + 1)) "$trained" "what the demo trained ($trained)"
fi
wait -n || exit $?
