#!/usr/bin/env bash
# aarch64.sh [JOBS]: the library and the command for aarch64 by Debian's cross compiler, and tests of the CPU under QEMU's user mode, a
# sample of them (tests/sampling.hpp); in build-aarch64. The packages of `./dev aarch64`, root and a network for the first time,
# else exit code 77. The worker is left out: an emulated process cannot start another without the system's help.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
sysroot=$PWD/build-aarch64/sysroot
export FALTUNG_SYSROOT=$sysroot

leave_out() {
  echo "aarch64.sh: $*: left out"
  exit 77
}
command -v aarch64-linux-gnu-g++ >/dev/null || leave_out "no aarch64-linux-gnu-g++"
command -v qemu-aarch64-static >/dev/null || leave_out "no qemu-aarch64-static"

# Debian's packages for aarch64, unpacked and not installed: nothing of them runs.
if [ ! -e "$sysroot/usr/include/vulkan/vulkan_core.h" ]; then
  command -v debootstrap >/dev/null || leave_out "no debootstrap"
  rm -rf "$sysroot" && mkdir -p build-aarch64
  include=libc6-dev,libstdc++-12-dev,libhwy-dev,libfmt-dev,libcli11-dev,nlohmann-json3-dev,libprotozero-dev,libzstd-dev,libvulkan-dev,libgtest-dev,libgmock-dev
  debootstrap --arch=arm64 --foreign --variant=minbase --include=$include bookworm build-aarch64/packages \
    >build-aarch64/debootstrap.log 2>&1 || leave_out "debootstrap failed: $(tail -1 build-aarch64/debootstrap.log)"
  mkdir "$sysroot"
  for package in build-aarch64/packages/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  rm -rf --one-file-system build-aarch64/packages
fi

echo "== building for aarch64"
tests=(registry_test computing_tests unit_tests)
computing='Conformance.*:Nonfinite*:ErrorBound.*:ErrorOverBound.*:Winograd*:FloatModes.*:DenormalValues.*:Elements.*:F16.*:F32.*:Rounding.*:Each.*:Parallel.*:Share.*'
unit='CApi.*:BadText*:Benchdnn*:Canonical*:MIOpen*:OnednnVerbose*:Words.*:Workloads.*:Sha256.*:StoreExport.*:StoreTest.*:StoreWriters.*'
cmake --preset aarch64 -DFALTUNG_UNITY=ON >/dev/null  # it is built from nothing, and seldom
cmake --build --preset aarch64 --parallel "$jobs" --target faltung_shared faltung_command "${tests[@]}"

run() { qemu-aarch64-static -L "$sysroot" "$@"; }
FALTUNG_STORE=$(mktemp -d)
export FALTUNG_STORE FALTUNG_TEST_SAMPLE=${FALTUNG_TEST_SAMPLE:-0.02}
trap 'rm -rf "$FALTUNG_STORE"' EXIT
failed=()
for test in "${tests[@]}"; do
  echo "== $test"
  # Emulation keeps no limit on memory: what is tested under one is left out.
  run "build-aarch64/tests/$test" --gtest_brief=1 --gtest_filter="Registry*:*/Registry.*:$computing:*/${computing//:/:*/}:$unit:*/${unit//:/:*/}-Parallel.WhereFewThreadsStartTheyTakeTurns" || failed+=("$test")
done
echo "== the command"
run build-aarch64/tools/faltung --version
run build-aarch64/tools/faltung verify fwd:n1c16h9w8k24r3s3:pad1:relu --in-process --threads 2 || failed+=(verify)
if ((${#failed[@]})); then
  echo "aarch64.sh: failed: ${failed[*]}" >&2
  exit 1
fi
