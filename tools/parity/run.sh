#!/usr/bin/env bash
# Live comparison with the reference packages at pinned versions: every tools/parity/*_parity.py, one after the other.
set -uo pipefail
cd "$(dirname "$0")/../.."
passed=0
failed=0
for script in tools/parity/*_parity.py; do
  printf 'parity: %s\n' "$(basename "$script" .py)"
  if HF_HUB_OFFLINE=1 .venv-parity/bin/python "$script"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
