#!/usr/bin/env bash
# Every C and C++ file is as clang-format 14 leaves it. With --fix, makes it so.
set -euo pipefail
cd "$(dirname "$0")/.."
find include src kernels tools bench tests examples python \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' \) -print0 |
  if [ "${1:-}" = --fix ]; then
    xargs -0 clang-format -i
  else
    xargs -0 clang-format --dry-run --Werror || { echo "run ./dev format" >&2; exit 1; }
  fi
