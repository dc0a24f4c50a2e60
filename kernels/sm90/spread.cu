// x's gradient of a 1x1 filter with strides out of that of the pixels which it takes: kStep columns apart, and rows
// `down` apart, of `h` rows of the result; what lies between is zero.
//
// kBytes an element. A thread has a word of what is read, of which `in_row` are a row of the `rows` taken. NCHW: kTaken
// columns. NHWC: 16 bytes of a pixel, of which `in_pixel` are one; the result has `w` columns.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kWord = kNchw ? kTaken * kStep * kBytes : 16, kRead = kNchw ? kTaken * kBytes : 16;

extern "C" __global__ void __launch_bounds__(256)
    spread(const Word<kRead>* __restrict__ from, Word<kWord>* __restrict__ to, int words, int in_row, int rows,
           int down, int h, int w, int in_pixel) {
  let_next_kernel_begin();
  const int i = blockIdx.x * 256 + threadIdx.x;
  const int line = i / in_row, image = line / rows, row = (line - image * rows) * down, at = i - line * in_row;
  wait_for_previous_kernel();
  if (i >= words) return;
  const Word<kRead> read = __ldcs(from + i);
  const long long first = static_cast<long long>(image) * h + row;
  if constexpr (kNchw) {
    union {
      Word<kRead> all;
      Word<kBytes> e[kTaken];
    } v;
    v.all = read;
    union {
      Word<kWord> all;
      Word<kBytes> e[kTaken * kStep];
    } spaced;
    spaced.all = Word<kWord>{};
#pragma unroll
    for (int j = 0; j < kTaken; ++j) spaced.e[j * kStep] = v.e[j];
    Word<kWord>* const target = to + first * in_row + at;
    *target = spaced.all;
    for (int a = 1; a < down && row + a < h; ++a) target[static_cast<long long>(a) * in_row] = Word<kWord>{};
  } else {
    const int pixel = at / in_pixel, column = pixel * kStep;
    Word<kRead>* const target =
        reinterpret_cast<Word<kRead>*>(to) + (first * w + column) * in_pixel + (at - pixel * in_pixel);
    for (int a = 0; a < down && row + a < h; ++a) {
      for (int b = 0; b < kStep && column + b < w; ++b) {
        target[(static_cast<long long>(a) * w + b) * in_pixel] = a + b == 0 ? read : Word<kRead>{};
      }
    }
  }
}
