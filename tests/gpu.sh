#!/usr/bin/env bash
# tests/gpu.sh BUILD [FILTER]: every test that needs a GPU, on each GPU that faltung lists (not on OpenCL drivers for
# the CPU, which `./dev test` has), and the memory checker on some where CUDA's is installed. BUILD is the build
# folder. FILTER (GoogleTest's, e.g. '*/implicit_gemm_sm90') leaves those tests alone of registry_gpu_test and
# adjoint_gpu_test that match it. The problems of both are parts, four a processor, one of which each runs at a time; a part's
# log is in BUILD/test_gpu; the other programs run beside them, one after the other. It is some ten minutes of 16 processors,
# which compile nearly all that time: FALTUNG_TEST_SEED draws other pairs of problem and kernel than the usual ones,
# FALTUNG_TEST_SAMPLE more or fewer (tests/sampling.hpp; here a third of the usual unless given). `./dev test-gpu [FILTER]` runs this.
set -euo pipefail
build=$(cd "${1:?usage: tests/gpu.sh BUILD [FILTER]}" && pwd)
only=${2:-}
logs=$build/test_gpu
rm -rf "$logs" && mkdir -p "$logs"
export FALTUNG_TEST_REQUIRE_GPU=1 FALTUNG_STORE=$logs/store FALTUNG_TEST_SAMPLE=${FALTUNG_TEST_SAMPLE:-0.33}
jobs=$(nproc)
export parts=$((4 * jobs))
failed=0

if [ -z "${FALTUNG_TEST_DEVICES:-}" ]; then
  FALTUNG_TEST_DEVICES=$("$(dirname "$0")/gpu_devices.sh" "$build" | paste -sd,)
fi
export FALTUNG_TEST_DEVICES
if [ -z "$FALTUNG_TEST_DEVICES" ]; then
  echo "tests/gpu.sh: faltung lists no GPU here: no driver was found (libcuda.so.1, or libOpenCL.so.1 and a vendor's file)" >&2
  exit 1
fi
echo "== on $FALTUNG_TEST_DEVICES, in $parts parts, $jobs at a time"

# say STATUS WHAT SECONDS
say() {
  if (($1 == 0)); then echo "ok      $2, $3 s"; else echo "FAILED  $2, $3 s" && failed=1; fi
}

# test_program NAME: one test program, whose output is shown if it fails.
test_program() {
  local name=$1 begin=$SECONDS status=0
  "$build/tests/$name" >"$logs/$name.log" 2>&1 || status=$?
  if ((status)); then grep -vE '^\[ +(RUN|OK) ' "$logs/$name.log" | tail -60; fi
  say $status "$name, $(grep -c '^\[       OK' "$logs/$name.log") tests" $((SECONDS - begin))
}

# one PROGRAM LOG PART COMMAND...: a part of the program under COMMAND (or nothing).
one() {
  local program=$1 log=$2 part=$3 tests=${only:-*}
  shift 3
  if ((part > 1)) && [ -z "$only" ]; then  # what has no parts is the first's alone
    tests='*Shapes*:*Epilogue*:*Dimension*:*Slices*:*Adjoint*'
  fi
  FALTUNG_TEST_PART=$part/$parts "$@" "$build/tests/$program" --gtest_filter="$tests" >"$log.$part.log" 2>&1
}
export -f one
export build only

# in_parts TITLE PROGRAM LOG COMMAND...: all parts.
in_parts() {
  local title=$1 program=$2 log=$logs/$3 begin=$SECONDS status=0
  shift 3
  seq "$parts" | xargs -P "$jobs" -I{} bash -c 'one "$@"' one "$program" "$log" {} "$@" || status=1
  if ((status)); then
    grep -hE 'Failure|faltung verify|disagree|FAILED|ERROR SUMMARY: [1-9]|Invalid|rror' "$log".*.log | grep -v 'SUMMARY: 0' | head -60
  fi
  say $status "$title, $(cat "$log".*.log | awk '/kernels verified/ { n += $1 } END { print n + 0 }') kernels" $((SECONDS - begin))
}

# programs: all but those that have parts.
programs() {
  local program
  case ,$FALTUNG_TEST_DEVICES in *,cuda:*) FALTUNG_TEST_REQUIRE_CUDA=1 test_program cuda_test ;; esac
  case ,$FALTUNG_TEST_DEVICES in *,opencl:*) test_program opencl_test ;; esac
  for program in "$build"/tests/*_gpu_test; do
    case $program in */registry_gpu_test | */adjoint_gpu_test) ;; *) test_program "$(basename "$program")" ;; esac
  done
  return $failed
}

if [ -z "$only" ]; then
  programs >"$logs/programs.txt" &
  beside=$!
fi
checker=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
case ,$FALTUNG_TEST_DEVICES in
  *,cuda:*)
    if [ -n "$checker" ]; then
      FALTUNG_TEST_DEVICES='cuda:*' FALTUNG_TEST_SAMPLE=0.05 in_parts "memory checker on a part" registry_gpu_test memcheck \
        "$checker" --tool memcheck --error-exitcode 9
    else
      echo "left out: the memory checker; compute-sanitizer, of the CUDA toolkit, is not installed"
    fi
    ;;
esac
in_parts "the three directions against each other" adjoint_gpu_test adjoint
in_parts "the registry" registry_gpu_test registry
if [ -z "$only" ]; then
  wait $beside || failed=1
  cat "$logs/programs.txt"
fi
exit $failed
