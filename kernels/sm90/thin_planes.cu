// Of planes (NCHW) the pixels that a 1x1 filter with strides takes, as planes: every kStep-th column, and of the rows
// those `down` apart. A row is a multiple of 16 bytes, a plane of `plane` such chunks; of it `rows` rows are taken.
//
// kBytes an element. A thread reads 16 bytes.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kElements = 16 / kBytes, kTaken = kElements / kStep;

extern "C" __global__ void __launch_bounds__(256)
    thin_planes(const uint4* __restrict__ from, Word<16 / kStep>* __restrict__ to, int chunks, int in_row, int rows,
                int down, int plane) {
  let_next_kernel_begin();
  const int i = blockIdx.x * 256 + threadIdx.x;
  const int line = i / in_row, image = line / rows;
  const long long at = static_cast<long long>(image) * plane + (line - image * rows) * down + (i - line * in_row);
  wait_for_previous_kernel();
  if (i >= chunks) return;
  union {
    uint4 all;
    Word<kBytes> e[kElements];
  } v;
  v.all = __ldcs(from + at);
  union {
    Word<16 / kStep> all;
    Word<kBytes> e[kTaken];
  } taken;
#pragma unroll
  for (int j = 0; j < kTaken; ++j) taken.e[j] = v.e[j * kStep];
  to[i] = taken.all;
}
