#!/usr/bin/env bash
# run.sh PACKAGES [PYTEST ARGUMENTS...]: the tests of the Python package on NumPy, with the package in the folder PACKAGES (a
# build's python/, or a wheel that is unpacked; "" for one that is installed). $PYTHON is the interpreter; without it the
# first that has NumPy and pytest. Exit code 77, with a line, where there is none.
set -euo pipefail
packages=${1?usage: tests/python/run.sh PACKAGES [PYTEST ARGUMENTS...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
for python in ${PYTHON:-/usr/bin/python3 python3}; do
  if ! "$python" -c 'import numpy, pytest' 2>/dev/null; then continue; fi
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  export FALTUNG_STORE=$scratch/store PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=${packages:+$packages:}$here
  "$python" -m pytest -q -p no:cacheprovider --rootdir "$here" "$@" "$here"/test_arrays.py "$here"/test_engine.py "$here"/test_network.py "$here"/test_docs.py "$here"/test_report.py "$here"/test_network_peer.py
  exit
done
echo "tests/python/run.sh: left out: no python3 with NumPy and pytest (Debian: python3-numpy python3-pytest)"
exit 77
