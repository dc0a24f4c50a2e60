#!/usr/bin/env bash
# tests/gpu_devices.sh BUILD: the GPUs that faltung lists, one a line; OpenCL drivers for the CPU are none.
set -euo pipefail
"${1:?usage: tests/gpu_devices.sh BUILD}/tools/faltung" devices --json - | python3 -c '
import json, sys
for d in json.load(sys.stdin):
    if d["kind"] == "gpu" and "runs_on_cpu" not in d["features"]: print(d["device"])'
