// Two tensors turned to NHWC by one launch, side by side. The host defines kBytes, and kLoadPixels, kStep and kDeep of
// the first one, kSecondLoadPixels, kSecondStep and kSecondDeep of the second one.
#include "kernels/sm90/to_nhwc.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    to_nhwc_both(const __grid_constant__ faltung::sm90::Turned first,
                 const __grid_constant__ faltung::sm90::Turned second) {
  __shared__ __align__(16) unsigned shared[kSharedWords];
  let_next_kernel_begin();
  const int block = static_cast<int>(blockIdx.x);
  if (block < first.blocks) {
    turn<kLoadPixels, kStep, kDeep>(shared, block, first);
  } else {
    turn<kSecondLoadPixels, kSecondStep, kSecondDeep>(shared, block - first.blocks, second);
  }
}
