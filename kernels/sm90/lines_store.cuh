// From a consumer's sums to 32-bit NCHW, from registers: a thread's pixels are side by side, and those of the eight
// threads that have a channel make whole lines. For lines_gemm.cu.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/lines_pixels.cuh"

// So many pixels in one instruction: of sums that lie apart in the registers compilers would store each by itself.
template <int kCount>
__device__ __forceinline__ void store_pixels_if(float* to, const float (&v)[kCount], bool condition) {
  const int yes = condition;
  if constexpr (kCount == 4) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.f32 [%0], {%1, %2, %3, %4};}" ::"l"(to), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(yes)
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; @p st.global.v2.f32 [%0], {%1, %2};}" ::"l"(to), "f"(v[0]),
                 "f"(v[1]), "r"(yes)
                 : "memory");
  } else {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.f32 [%0], %1;}" ::"l"(to), "f"(v[0]), "r"(yes)
                 : "memory");
  }
}

// Which of a row's pixels a thread stores. Those that it has, where four side by side are aligned. Where pairs alone are it
// stores each by itself; so that the threads that have a row store pairs side by side, not every second one, each exchanges
// one of its two with the thread half of them further. Then it has pair number `first` and the one kAcross further.
constexpr bool kExchanges = kStore < kRun;
struct Share {
  int column;  // the first one, of its consumer's
  bool upper;
  __device__ __forceinline__ Share(int column, int thread) : column(column) {
    const int run = thread % 32 / 4 % kAcross;
    upper = run >= kAcross / 2;
    if constexpr (kExchanges) this->column += run % (kAcross / 2) * 4 + (upper ? 2 : 0) - run * kRun;
  }
  // From the first one to number `pixel`.
  static __device__ __forceinline__ constexpr int offset(int pixel) {
    return kExchanges ? pixel / 2 * 2 * kAcross + pixel % 2 : pixel;
  }
  __device__ __forceinline__ void exchange(float (&v)[kRun]) const {
    if constexpr (!kExchanges) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float mine = upper ? v[2 + i] : v[i], other = upper ? v[i] : v[2 + i];
      const float theirs = __shfl_xor_sync(0xffffffffu, other, kAcross * 2);
      v[i] = upper ? theirs : mine, v[2 + i] = upper ? mine : theirs;
    }
  }
};

// consumer_row: the consumer's first one of the tile.
__device__ __forceinline__ void finish_sums(const RowSums& sums, const Params& p, const Tile& t, unsigned, int,
                                            int consumer_row, int thread) {
  constexpr int kEights = kN / 8, kRuns = kRun / kStore;
  const lines::Pixel at = lines::first_pixel(kConfig.tile, thread);
  const Share share(at.column, thread);
  const int h = t.h + consumer_row + at.row, w = t.w + share.column, k0 = t.k + thread % 4 * 2;
  const long long plane = static_cast<long long>(p.p) * p.q;
  const long long first = (static_cast<long long>(t.n) * p.k + k0) * plane + static_cast<long long>(h) * p.q + w;
  float* const y = static_cast<float*>(p.y) + first;
  [[maybe_unused]] const float* const residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int channel = i * 8 + j;
      const OfChannel bias = load_bias(p, k0 + channel);
#pragma unroll
      for (int row = 0; row < kRowsAThread; ++row) {
        float v[kRun];
#pragma unroll
        for (int pixel = 0; pixel < kRun; ++pixel) v[pixel] = sums[pixel / 2][row][i * 4 + pixel % 2 * 2 + j];
        share.exchange(v);
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
          const int offset = Share::offset(run * kStore);
          const bool inside = k0 + channel < p.k && h + row < p.p && w + offset < p.q;
          const long long place = channel * plane + row * p.q + offset;
          unsigned added[kStore] = {};
          if constexpr (kResidual) load_global_if<kStore * 4>(residual + place, added, inside);
          float out[kStore];
#pragma unroll
          for (int l = 0; l < kStore; ++l)
            out[l] = finish_value(v[run * kStore + l], bias, __uint_as_float(added[l]), p.slope);
          store_pixels_if(y + place, out, inside);
        }
      }
    }
  }
}
