#!/usr/bin/env bash
# Fails when a C++ source, tracked or not, is not formatted as .clang-format says; `make format` mends it.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' | sort -u)
present=()
for file in "${files[@]}"; do
  [ ! -f "$file" ] || present+=("$file")
done
if [ ${#present[@]} -eq 0 ]; then
  echo "format: no source was found, so nothing was checked" >&2
  exit 1
fi
# The pinned one of `make setup` first: another version formats otherwise.
formatter=.venv/bin/clang-format
[ -x "$formatter" ] || formatter=clang-format
"$formatter" --dry-run --Werror "${present[@]}" || {
  echo "format: run 'make format'" >&2
  exit 1
}
echo "format: ${#present[@]} files are formatted"
