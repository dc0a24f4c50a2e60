#!/usr/bin/env bash
# bench/known_devices.sh DEVICE...: tries on each device the kernels that its cost model chooses for the lists in
# workloads/ and for common filters with common epilogues, and writes verdicts, compiled code and ceilings into
# share/known_devices.pack, which is shipped: on such a device they are neither tried nor compiled again. They hold for
# the device code they were made with, so this belongs before a release. Run it in the repository's root, with the
# command built in build/ or named by FALTUNG; MATHS="f16 tf32" and DIRECTIONS="fwd" do fewer, and with SECONDS_LEFT=60
# it ends after so long, with what was done by then: what most callers ask for comes first. Rows run side by side, one a
# processor (JOBS): most of the time is compiling. What the pack has already stays in it, but with ANEW=1 nothing does:
# after a change of device code what was there is of no more use. Writing it takes 10 ms a record more.
set -euo pipefail
export FALTUNG=${FALTUNG:-build/tools/faltung}
if (($# == 0)); then
  echo "bench/known_devices.sh: name the devices, e.g. cuda:0; \`faltung devices\` lists them" >&2
  exit 2
fi
FALTUNG_STORE=$(mktemp -d)
export FALTUNG_STORE FALTUNG_KNOWN_DEVICES=none
pieces=$(mktemp -d)
trap 'rm -rf "$FALTUNG_STORE" "$pieces"' EXIT
if [ -z "${ANEW:-}" ] && [ -e share/known_devices.pack ]; then "$FALTUNG" store import share/known_devices.pack; fi

# one DEVICE LAYOUT MATH LIST DIRECTION EPILOGUE: a row that no kernel supports is no reason to stop; trials check.
one() {
  local left=$((DEADLINE - $(date +%s)))
  ((left > 0)) || return 0
  local math=(--dtype "$3")
  [ "$3" != tf32 ] || math=(--math tf32)
  timeout "$left" "$FALTUNG" bench --device "$1" --layout "$2" "${math[@]}" --suite "$4" --dir "$5" --epilogue "$6" --min-time 1us --repeat 1 --no-check >/dev/null 2>"$FALTUNG_STORE.$$" ||
    { echo "$*: $(tail -1 "$FALTUNG_STORE.$$")" >&2; }
  rm -f "$FALTUNG_STORE.$$"
}
export -f one
DEADLINE=$(($(date +%s) + ${SECONDS_LEFT:-86400}))
export DEADLINE
"$FALTUNG" devices >/dev/null # ceilings, while nothing else runs
# Filters of 1x1 to 7x7 with strides 1 and 2, on images that ask for small and large tiles.
common=$pieces/common
{
  echo name,n,c,h,w,k,r,s,stride_h,stride_w,pad_top,pad_bottom,pad_left,pad_right
  for filter in 1 3 5 7; do
    for stride in 1 2; do
      for size in 8,256,14 32,64,56 1,128,112 16,512,28; do
        IFS=, read -r n c h <<<"$size"
        pad=$((filter / 2))
        echo "common_${filter}x${filter}_s${stride}_n${n}_c${c},$n,$c,$h,$h,$c,$filter,$filter,$stride,$stride,$pad,$pad,$pad,$pad"
      done
    done
  done
} >"$common"
# piece FILE NAME: the list in pieces of six rows.
piece() {
  tail -n +2 "$1" | split -l 6 -a 3 --additional-suffix=.csv - "$pieces/$2_"
  sed -i "1i $(head -1 "$1")" "$pieces/$2"_*.csv
}
for list in workloads/*.csv; do piece "$list" "list_$(basename "$list" .csv)"; done
piece "$common" common
# tasks_of DEVICE MATH DIRECTION WHAT: WHAT is lists, or one of the epilogues behind common filters.
tasks_of() {
  local layout list
  [[ " ${MATHS:-f16 bf16 tf32 f32} " == *" $2 "* && " ${DIRECTIONS:-fwd bwd_d bwd_w} " == *" $3 "* ]] || return 0
  for layout in nhwc nchw; do
    if [ "$4" = lists ]; then
      for list in "$pieces"/*.csv; do printf '%s\0' "$1" $layout "$2" "$list" "$3" none; done
    else
      for list in "$pieces"/common_*.csv; do printf '%s\0' "$1" $layout "$2" "$list" "$3" "$4"; done
    fi
  done
}
# In the order of their value: inference in 16 bits (biasf32 is what networks ask for), then in 32, then training; of
# epilogues the commonest first.
tasks() {
  local math epilogue direction
  for math in f16 bf16; do
    tasks_of "$1" $math fwd lists
    for epilogue in bias bias,relu biasf32,relu; do tasks_of "$1" $math fwd $epilogue; done
  done
  for math in f32 tf32; do tasks_of "$1" $math fwd lists; done
  for math in bf16 f16; do
    for direction in bwd_d bwd_w; do tasks_of "$1" $math $direction lists; done
  done
  for epilogue in bias,residual,relu biasf32,residual,relu bias,silu biasf32,silu bias,relu,maxpool2; do
    for math in f16 bf16; do tasks_of "$1" $math fwd $epilogue; done
  done
  for math in f32 tf32; do
    for epilogue in bias bias,relu; do tasks_of "$1" $math fwd $epilogue; done
    for direction in bwd_d bwd_w; do tasks_of "$1" $math $direction lists; done
  done
}
for device in "$@"; do
  tasks "$device" | xargs -0 -n 6 -P "${JOBS:-$(nproc)}" bash -c 'one "$@"' one
done
for kind in trials lock; do "$FALTUNG" store clear $kind >/dev/null; done
"$FALTUNG" store export share/known_devices.pack
