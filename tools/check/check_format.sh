#!/usr/bin/env bash
# Fails when a C++ source is not formatted as .clang-format says; with --fix, as `make format` calls it, formats it. In a checkout it
# looks at what git knows or could know (tracked or not, but not ignored), in an unpacked archive at what lies in the folders of sources.
set -euo pipefail
cd "$(dirname "$0")/../.."

list_sources() {
  if [ -e .git ]; then
    git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh'
    return
  fi
  local folder
  for folder in apps benchmarks include python src tests; do
    [ ! -d "$folder" ] || find "$folder" -type f '(' -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' ')'
  done
}

sources=$(list_sources)  # Not read through a pipe, which would hide that git failed.
present=()
while IFS= read -r file; do
  [ ! -f "$file" ] || present+=("$file")
done < <(sort -u <<<"$sources")
if [ ${#present[@]} -eq 0 ]; then
  echo "format: no source was found, so nothing was checked" >&2
  exit 1
fi
# The pinned one of `make setup` first: another version formats otherwise.
formatter=.venv/bin/clang-format
[ -x "$formatter" ] || formatter=clang-format
mode=(--dry-run --Werror)
[ "${1:-}" != --fix ] || mode=(-i)
"$formatter" "${mode[@]}" "${present[@]}" || {
  echo "format: run 'make format'" >&2
  exit 1
}
echo "format: ${#present[@]} files are formatted"
