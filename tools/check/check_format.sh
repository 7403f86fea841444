#!/usr/bin/env bash
# Fails when a C++ source is not formatted as .clang-format says; `make format` mends it.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | grep -v '/generated/')
clang-format --dry-run --Werror "${files[@]}" || {
  echo "format: run 'make format'" >&2
  exit 1
}
echo "format: ${#files[@]} files are formatted"
