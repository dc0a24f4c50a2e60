// x's gradient of a 1x1 filter with strides out of that of the pixels which it takes: kAcross columns apart, and kDown
// rows; what lies between is zero.
//
// kBytes an element. NCHW: a thread writes a word of kTaken kAcross columns, `in_row` of which are a row of the result;
// words of less than 16 bytes are too many for that: of those it writes what is taken and the zeros below it.
// NHWC: a thread reads 16 bytes of a pixel, of which `in_pixel` are one, `in_row` a row that is taken, and writes the
// pixels beside and below it too. The result has h rows of w columns, of which `rows` are taken.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

constexpr bool kEveryRow = kNchw && kTaken * kAcross * kBytes == 16;
constexpr int kWord = kNchw ? kTaken * kAcross * kBytes : 16, kRead = kNchw ? kTaken * kBytes : 16;

// With zeros between.
__device__ __forceinline__ Word<kWord> spaced(const Word<kRead>& read) {
  union {
    Word<kRead> all;
    Word<kBytes> e[kTaken];
  } v;
  union {
    Word<kWord> all;
    Word<kBytes> e[kTaken * kAcross];
  } wide;
  v.all = read, wide.all = Word<kWord>{};
#pragma unroll
  for (int j = 0; j < kTaken; ++j) wide.e[j * kAcross] = v.e[j];
  return wide.all;
}

__device__ __forceinline__ void spread_planes(const Word<kRead>* from, Word<kWord>* to, int i, int in_row, int rows,
                                              int h) {
  const int line = i / in_row, image = line / h, row = line - image * h, at = i - line * in_row;
  wait_for_previous_kernel();
  Word<kWord> word{};
  if (row % kDown == 0)
    word = spaced(__ldcs(from + (static_cast<long long>(image) * rows + row / kDown) * in_row + at));
  to[i] = word;
}

__device__ __forceinline__ void spread_taken_rows(const Word<kRead>* from, Word<kWord>* to, int i, int in_row, int rows,
                                                  int h) {
  const int line = i / in_row, image = line / rows, row = (line - image * rows) * kDown, at = i - line * in_row;
  wait_for_previous_kernel();
  Word<kWord>* const target = to + (static_cast<long long>(image) * h + row) * in_row + at;
  *target = spaced(__ldcs(from + i));
#pragma unroll
  for (int a = 1; a < kDown; ++a) {
    if (row + a < h) target[static_cast<long long>(a) * in_row] = Word<kWord>{};
  }
}

__device__ __forceinline__ void spread_pixels(const Word<kRead>* from, Word<kRead>* to, int i, int in_row, int rows,
                                              int h, int w, int in_pixel) {
  const int line = i / in_row, image = line / rows, row = (line - image * rows) * kDown, at = i - line * in_row;
  const int pixel = at / in_pixel, column = pixel * kAcross;
  Word<kRead>* const target =
      to + ((static_cast<long long>(image) * h + row) * w + column) * in_pixel + (at - pixel * in_pixel);
  wait_for_previous_kernel();
  const Word<kRead> read = __ldcs(from + i);
#pragma unroll
  for (int a = 0; a < kDown; ++a) {
#pragma unroll
    for (int b = 0; b < kAcross; ++b) {
      if (row + a < h && column + b < w)
        target[(static_cast<long long>(a) * w + b) * in_pixel] = a + b == 0 ? read : Word<kRead>{};
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
    spread(const Word<kRead>* __restrict__ from, Word<kWord>* __restrict__ to, int words, int in_row, int rows, int h,
           int w, int in_pixel) {
  let_next_kernel_begin();
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= words) return;
  if constexpr (kEveryRow) {
    spread_planes(from, to, i, in_row, rows, h);
  } else if constexpr (kNchw) {
    spread_taken_rows(from, to, i, in_row, rows, h);
  } else {
    spread_pixels(from, reinterpret_cast<Word<kRead>*>(to), i, in_row, rows, h, w, in_pixel);
  }
}
