#!/usr/bin/env bash
# bench/known_devices.sh DEVICE...: tries on each device the kernels that its cost model chooses for the lists in
# workloads/, and writes the verdicts into share/known_devices.json, which is shipped: on such a device they are not
# tried again. Verdicts hold for the device code they were made with, so this belongs before a release. Run it in the
# repository's root, with the command built in build/ or named by FALTUNG; DTYPES="f16 f32" does fewer. Lists run side
# by side, one a processor (JOBS): most of the time is compiling.
set -euo pipefail
export FALTUNG=${FALTUNG:-build/tools/faltung}
if (($# == 0)); then
  echo "bench/known_devices.sh: name the devices, e.g. cuda:0; \`faltung devices\` lists them" >&2
  exit 2
fi
FALTUNG_STORE=$(mktemp -d)
export FALTUNG_STORE FALTUNG_KNOWN_DEVICES=none
trap 'rm -rf "$FALTUNG_STORE"' EXIT
"$FALTUNG" store import share/known_devices.json

# one DEVICE LAYOUT DTYPE LIST: a row that no kernel supports is no reason to stop.
one() {
  "$FALTUNG" bench --device "$1" --layout "$2" --dtype "$3" --suite "$4" --min-time 1us --repeat 1 >/dev/null 2>"$FALTUNG_STORE.$$" ||
    { echo "$*: $(tail -1 "$FALTUNG_STORE.$$")" >&2; }
  rm -f "$FALTUNG_STORE.$$"
}
export -f one
for device in "$@"; do
  for layout in nchw nhwc; do
    for dtype in ${DTYPES:-f32 f16 bf16}; do
      for list in workloads/*.csv; do printf '%s\0%s\0%s\0%s\0' "$device" $layout "$dtype" "$list"; done
    done
  done
done | xargs -0 -n 4 -P "${JOBS:-$(nproc)}" bash -c 'one "$@"' one
"$FALTUNG" store export share/known_devices.json --verdicts
