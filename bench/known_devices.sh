#!/usr/bin/env bash
# bench/known_devices.sh DEVICE...: tries on each device the kernels that its cost model chooses for the lists in
# workloads/, and writes the verdicts into share/known_devices.json, which is shipped: on such a device they are not
# tried again. Verdicts hold for the device code they were made with, so this belongs before a release. Run it in the
# repository's root, with the command built in build/ or named by FALTUNG; DTYPES="f16 f32" does fewer.
set -euo pipefail
command=${FALTUNG:-build/tools/faltung}
if (($# == 0)); then
  echo "bench/known_devices.sh: name the devices, e.g. cuda:0; \`faltung devices\` lists them" >&2
  exit 2
fi
FALTUNG_STORE=$(mktemp -d)
export FALTUNG_STORE FALTUNG_KNOWN_DEVICES=none
trap 'rm -rf "$FALTUNG_STORE"' EXIT
"$command" store import share/known_devices.json
lists=()
for list in workloads/*.csv; do lists+=(--suite "$list"); done
for device in "$@"; do
  for layout in nchw nhwc; do
    for dtype in ${DTYPES:-f32 f16 bf16}; do
      # A row that no kernel supports is no reason to stop.
      "$command" bench --device "$device" --layout $layout --dtype "$dtype" "${lists[@]}" --min-time 1us --repeat 1 ||
        echo "$device $layout $dtype: see above" >&2
    done
  done
done
"$command" store export share/known_devices.json --verdicts
