// 32-bit weights as the matrix units take them: rounded to 10 bits of mantissa, and with kParts 2 what
// rounding took away after all of them. from and to may be the same.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/tf32.cuh"

extern "C" __global__ void __launch_bounds__(256)
    split_tf32(const unsigned* from, unsigned* to, long long elements) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    unsigned rest;
    to[i] = round_tf32(from[i], rest);
    if (kParts == 2) to[elements + i] = rest;
  }
}
