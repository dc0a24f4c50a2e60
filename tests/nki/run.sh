#!/usr/bin/env bash
# run.sh FALTUNG: emitted NKI kernels in the simulator, with the first Python that has NumPy ($PYTHON says which). Exit code 77, with a
# line, where there is none.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for python in ${PYTHON:-/usr/bin/python3 python3}; do
  if "$python" -c 'import numpy' 2>/dev/null; then exec "$python" "$here/nki_test.py" "$1"; fi
done
echo "tests/nki/run.sh: left out: no python3 with NumPy (Debian: python3-numpy)"
exit 77
