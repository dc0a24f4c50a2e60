// The filter of merged groups, [k][taps][c], out of one whose groups are apart: zero but for its diagonal. Groups have
// group_k and group_c channels, k and c count `groups` of them in turn. kBytes an element; c is a multiple of 16 bytes.
//
// In the outer filter, of which step_... are the steps, `first` is the first tap and `group` lies from one group to the
// next.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;

extern "C" __global__ void __launch_bounds__(256)
    merge_groups(const Element* __restrict__ from, Element* __restrict__ to, int chunks, int c, int rows, int columns,
                 int group_k, int group_c, int groups, int first, int step_k, int step_c, int step_row,
                 int step_column, int group) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  constexpr int kChunk = 16 / kBytes;
  const int in_row = c / kChunk, taps = rows * columns;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += gridDim.x * blockDim.x) {
    const int line = i / in_row, c0 = (i - line * in_row) * kChunk, k = line / taps, tap = line - k * taps;
    const int row = tap / columns, column = tap - row * columns, of = k / group_k;
    const Element* const line_from =
        from + first + (k - of * group_k) * step_k + of * group + row * step_row + column * step_column;
    Chunk<Element> v;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      const int its = (c0 + j) / group_c;
      v.e[j] = its == of % groups ? line_from[(c0 + j - its * group_c) * step_c] : Element(0);
    }
    *reinterpret_cast<uint4*>(to + static_cast<long long>(i) * kChunk) = v.all;
  }
}
