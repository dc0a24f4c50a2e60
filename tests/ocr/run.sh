#!/usr/bin/env bash
# run.sh OCR PYTHON: tests/ocr/ocr_test.py of the program OCR by an interpreter that has rapidocr. Exit code 77, with a line,
# where it has not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if ! "$2" -c 'import rapidocr, onnxruntime' 2>/dev/null; then
  echo "tests/ocr/run.sh: left out: $2 has no rapidocr and onnxruntime; ./dev test fetches them from PyPI"
  exit 77
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$2" "$here/ocr_test.py" "$1"
