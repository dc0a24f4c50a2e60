// One tensor turned to NHWC. The host defines kBytes, kLoadPixels, kStep and kDeep.
#include "kernels/sm90/to_nhwc.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    to_nhwc(const __grid_constant__ faltung::sm90::Turned tensor) {
  __shared__ __align__(16) unsigned shared[kSharedWords];
  let_next_kernel_begin();
  turn<kLoadPixels, kStep, kDeep>(shared, blockIdx.x, tensor);
}
