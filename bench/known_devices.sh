#!/usr/bin/env bash
# bench/known_devices.sh compile, then bench/known_devices.sh DEVICE...: makes share/known_devices.pack, which is
# shipped, in two phases. The first needs no GPU, but NVRTC: it compiles the kernels that the cost model chooses for the
# lists in workloads/, for common filters with common epilogues and for whole networks, into build/known_devices/. It writes those
# by bench/network_models.py, for which a python3 (or PYTHON) has ONNX and NumPy, else they are left out. The second tries all on
# each device and measures its ceilings: compiled code serves every GPU of its architecture (H100 and H200) under any
# driver, verdicts hold for one device and driver. Devices of one kind with commas between them (cuda:0,cuda:1) share that work. What the first phase left out, the second compiles. Code holds for
# the device code it was made of, so this belongs before a release. With FIND=500ms the second phase measures the lists'
# forward convolutions first, each so long: on that device `plan` takes what was fastest, elsewhere what the cost model says.
# Such measurements stay in the pack until FIND measures anew or ANEW=1 begins without them: do either where kernels changed.
#
# Run it in the repository's root, with the command built in build/ or named by FALTUNG. Of the problems, in the order of
# their value to callers, the first FIRST are taken: as many as keep the pack near 7 MB. JOBS of them are worked
# at side by side (as many as there are processors); WITHIN=60s begins none after so long: what was done by then is there.
# MATHS="f16 tf32" and DIRECTIONS="fwd" do less, and with FIND LISTS="workloads/resnet50.csv" measures that list alone. What
# phase one compiled before and is the same now is not compiled again (with ANEW=1 all is). With KEEP=FOLDER the store that is filled
# stays there, and a run that was cut off goes on: what it compiled and tried is in it, and `faltung store export` makes a pack of it. The verdicts that the pack has stay in it (with ANEW=1 they do not).
set -euo pipefail
FALTUNG=${FALTUNG:-build/tools/faltung} within=${WITHIN:-10000m} pack=${PACK:-share/known_devices.pack}
here=${FOLDER:-build/known_devices}
jobs=(); [ -z "${JOBS:-}" ] || jobs=(--jobs "$JOBS")
if (($# == 0)); then
  echo "bench/known_devices.sh: \`compile\`, or name the devices, e.g. cuda:0; \`faltung devices\` lists them" >&2
  exit 2
fi

# Filters of 1x1 to 7x7 with strides 1 and 2, on images that ask for small and large tiles.
common() {
  local filter stride size n c h pad
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
}
# asked MATH DIRECTION: whether MATHS and DIRECTIONS name them.
asked() {
  [[ " ${MATHS:-f16 bf16 tf32 f32} " == *" $1 "* && " ${DIRECTIONS:-fwd bwd_d bwd_w} " == *" $2 "* ]]
}
# problems_of MATH DIRECTION LISTS [EPILOGUE]: in both layouts.
problems_of() {
  local layout list math=(--dtype "$1") epilogue=() suites=()
  asked "$1" "$2" || return 0
  [ "$1" != tf32 ] || math=(--math tf32)
  [ "$2 ${4:-}" = "fwd " ] || epilogue=(--epilogue "${4:-none}") # a list may say one of its own, which no gradient has
  for list in $3; do suites+=(--suite "$list"); done
  for layout in nhwc nchw; do
    "$FALTUNG" prepare --problems --layout $layout "${math[@]}" --dir "$2" "${epilogue[@]}" "${suites[@]}" | tail -n +2
  done
}
# network_problems_of EPILOGUE PROBLEMS...: in f16 and NHWC, image by image and in batches.
network_problems_of() {
  local batch
  for batch in 32 1; do
    "$FALTUNG" prepare --problems --layout nhwc --dtype f16 --batch $batch --epilogue "$@" | tail -n +2
  done
}
# compiled_problems: what torch.compile(backend="faltung") asks of ConvNeXt-T of 32 images and a U-Net of 8, of which the networks
# below have nothing, or slices: NAME PROBLEM EPILOGUE.
compiled_problems() {
  local c h rows
  echo "convnext n32c3h224w224k96r4s4:st4 biasf32"
  while IFS=, read -r c h; do
    rows=$((32 * h * h))
    echo "convnext n32c${c}h${h}w${h}k${c}r7s7:pad3:g$c biasf32"
    echo "convnext n1c${c}h1w${rows}k$((4 * c))r1s1 biasf32:gelu"
    echo "convnext n1c$((4 * c))h1w${rows}k${c}r1s1 biasf32:residual"
    [ "$c" = 768 ] || echo "convnext n32c${c}h${h}w${h}k$((2 * c))r2s2:st2 biasf32"
  done <<<$'96,56\n192,28\n384,14\n768,7'
  echo "convnext n1c768h1w32k1000r1s1 biasf32"
  while IFS=, read -r c h; do
    echo "unet n8c$((c == 64 ? 3 : c / 2))h${h}w${h}k${c}r3s3:pad1 biasf32:relu"
    echo "unet n8c${c}h${h}w${h}k${c}r3s3:pad1 biasf32:relu"
    [ "$c" = 512 ] || echo "unet n8c$((2 * c))h${h}w${h}k${c}r3s3:pad1 biasf32:relu"
  done <<<$'64,256\n128,128\n256,64\n512,32'
  echo "unet n8c64h256w256k21r1s1 biasf32"
}
# What whole networks ask for: their bias is in f32, and what follows is behind the convolution.
network_problems() {
  local epilogue name problem
  asked f16 fwd || return 0
  for epilogue in biasf32,relu biasf32,residual,relu biasf32; do network_problems_of $epilogue --suite workloads/resnet50.csv; done
  network_problems_of biasf32,relu,maxpool3s2p1 fwd:n1c3h224w224k64r7s7:st2:pad3
  for epilogue in biasf32,silu biasf32 biasf32,residual; do network_problems_of $epilogue --suite workloads/efficientnet_b2.csv; done
  compiled_problems | while read -r name problem epilogue; do echo "$name,\"fwd:$problem:f16:nhwc:$epilogue\""; done
}
# batch_problems: other batches of the lists that people run most, in 16 bits.
batch_problems() {
  local layout batch
  asked f16 fwd || return 0
  for layout in nhwc nchw; do
    for batch in 2 16 64 128; do
      "$FALTUNG" prepare --problems --layout $layout --dtype f16 --batch $batch --suite workloads/resnet50.csv --suite workloads/efficientnet_b2.csv | tail -n +2
    done
  done
}
# networks: NAME OPTION... of those that are prepared in f16 with all that is no convolution, too.
networks() {
  local name n
  for n in 1 32; do
    for name in resnet50 mobilenet_v3_large; do echo "$name --size x=${n}x3x224x224"; done
    echo "efficientnet_b2 --size x=${n}x3x288x288"
  done
  for n in 1 8; do echo "unet_wide --size x=${n}x3x256x256"; done
  echo "realesrgan --size x=1x3x256x256"
  for n in 64 128; do echo "vae_decoder --size x=1x4x${n}x$n"; done
  for n in 1 2; do echo "sd_unet --size x=${n}x4x64x64 --size time=${n}x320 --size context=${n}x77x768"; done
}
# In the order of their value: inference in 16 bits (biasf32 is what networks ask for), then in 32, the other epilogues of
# common filters, what training meets first, then the rest of it; of epilogues the commonest first.
problems() {
  local math epilogue direction list common=$here/common.csv lists="workloads/*.csv $here/common.csv"
  echo name,problem
  for math in f16 bf16; do
    problems_of $math fwd "$lists"
    for epilogue in bias bias,relu biasf32,relu; do problems_of $math fwd "$common" $epilogue; done
  done
  network_problems
  batch_problems
  for math in f32 tf32; do problems_of $math fwd "$lists"; done
  for epilogue in bias,residual,relu biasf32,residual,relu bias,silu biasf32,silu bias,relu,maxpool2; do
    for math in f16 bf16; do problems_of $math fwd "$common" $epilogue; done
  done
  for list in workloads/resnet50.csv "$common" "$lists"; do
    for math in f16 bf16; do
      for direction in bwd_d bwd_w; do problems_of $math $direction "$list"; done
    done
  done
  for math in f32 tf32; do
    for epilogue in bias bias,relu; do problems_of $math fwd "$common" $epilogue; done
    for direction in bwd_d bwd_w; do problems_of $math $direction "$lists"; done
  done
}
# shared COMMAND LIST DEVICE[,DEVICE...]: COMMAND DEVICE PART for each device at once; of two every second problem of LIST is a part.
shared() {
  local devices i status=0 running=()
  IFS=, read -ra devices <<<"$3"
  for i in "${!devices[@]}"; do
    awk -v i="$i" -v n="${#devices[@]}" 'NR == 1 || NR % n == i' "$2" >"$here/part.$i.csv"
    "$1" "${devices[i]}" "$here/part.$i.csv" &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || status=1; done
  rm -f "$here"/part.*.csv
  return $status
}
# measure DEVICE LIST: what find takes of it.
measure() {
  "$FALTUNG" prepare --device "$1" --suite "$2" --kernels 8 "${jobs[@]}" || (($? == 1))
  "$FALTUNG" find --device "$1" --suite "$2" --budget "$FIND" >/dev/null
}
# measure_lists DEVICES: what find takes of the lists; what it compiles on the way is not kept.
measure_lists() {
  local math scratch
  { echo name,problem; for math in f16 tf32 f32; do problems_of $math fwd "${LISTS:-workloads/*.csv}"; done; } >"$here/measured.csv"
  scratch=$(mktemp -d)
  (
    export FALTUNG_STORE=$scratch
    shared measure "$here/measured.csv" "$1"
    "$FALTUNG" store export "$here/measured.json" trials
  )
  rm -rf "$scratch"
  "$FALTUNG" store import "$here/measured.json"
}
# prepare DEVICE LIST: what no kernel supports is no reason to stop; trials check.
prepare() {
  "$FALTUNG" prepare --device "$1" --suite "$2" --within "$within" "${jobs[@]}" "${@:3}" || (($? == 1))
}
# prepare_networks DEVICES [OPTION...]: those that phase one wrote. Of several devices each has its share.
prepare_networks() {
  local devices i name options status=0 running=()
  asked f16 fwd || return 0
  IFS=, read -ra devices <<<"$1"
  [ -d "$here/networks" ] || return 0
  truncate -s ">$((128 << 20))" "$here/networks/no.weights" # where it was not brought along
  for i in "${!devices[@]}"; do
    networks | awk -v i="$i" -v n="${#devices[@]}" 'NR % n == i' | while read -r name options; do
      # shellcheck disable=SC2086
      "$FALTUNG" network prepare "$here/networks/$name.onnx" $options --dtype f16 --device "${devices[i]}" --within "$within" "${jobs[@]}" "${@:2}" || (($? == 1))
    done &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || status=1; done
  return $status
}
# write_networks: into build/known_devices/networks, some KB each.
write_networks() {
  local names python=${PYTHON:-python3}
  names=$(networks | cut -d' ' -f1 | sort -u)
  rm -rf "$here/networks"
  if "$python" -c 'import numpy, onnx.helper' 2>/dev/null; then
    # shellcheck disable=SC2086
    "$python" bench/network_models.py --bare "$here/networks" $names
  else
    echo "bench/known_devices.sh: networks are left out: $python has not ONNX and NumPy; PYTHON may name one that has" >&2
  fi
}

mkdir -p "$here"
common >"$here/common.csv"
problems >"$here/all.csv"
head -n "$((${FIRST:-5273} + 1))" "$here/all.csv" >"$here/problems.csv"
code=$here/code.pack
FALTUNG_STORE=${KEEP:-$(mktemp -d)}
export FALTUNG_STORE FALTUNG_KNOWN_DEVICES=none
[ -n "${KEEP:-}" ] || trap 'rm -rf "$FALTUNG_STORE"' EXIT
if [ "$1" = compile ]; then
  if [ -z "${ANEW:-}" ] && [ -e "$code" ]; then FALTUNG_KNOWN_DEVICES=$code; fi
  prepare "nvrtc:${ARCHITECTURE:-sm_90a}" "$here/problems.csv" --keep-shipped
  write_networks
  prepare_networks "nvrtc:${ARCHITECTURE:-sm_90a}" --keep-shipped
  "$FALTUNG" store export "$code"
  exit
fi
if [ -z "${ANEW:-}" ] && [ -e "$pack" ] && [ -z "$(ls -A "$FALTUNG_STORE" 2>/dev/null)" ]; then
  "$FALTUNG" store import "$pack"
  "$FALTUNG" store clear kernel >/dev/null
fi
if [ -e "$code" ]; then FALTUNG_KNOWN_DEVICES=$code; fi
for devices in "$@"; do
  if [ -n "${FIND:-}" ]; then measure_lists "$devices"; fi
  shared prepare "$here/problems.csv" "$devices"
  prepare_networks "$devices"
done
if [ -e "$code" ]; then "$FALTUNG" store import "$code"; fi
"$FALTUNG" store clear lock >/dev/null
"$FALTUNG" store export "$pack"
ls -l "$pack"
