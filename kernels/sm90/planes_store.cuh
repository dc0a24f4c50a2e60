// From a consumer's sums to planes of 32 bits, from registers: a thread's pixels are side by side, and those of the
// eight threads that have a channel lie in whole sectors. Part of planes_gemm.cu.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/planes_pixels.cuh"

static_assert(kStore == 4, "pixels side by side are aligned, and all of them are inside of a plane or none");

// In one instruction: of sums that lie apart in the registers compilers would store each by itself.
__device__ __forceinline__ void store_pixels_if(float* to, const float (&v)[kTogether], bool condition) {
  const int yes = condition;
  if constexpr (kTogether == 4) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.f32 [%0], {%1, %2, %3, %4};}" ::"l"(to), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(yes)
                 : "memory");
  } else {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; @p st.global.v2.f32 [%0], {%1, %2};}" ::"l"(to), "f"(v[0]),
                 "f"(v[1]), "r"(yes)
                 : "memory");
  }
}

// A few of a thread's channels at a time: what is added to them is on its way together.
__device__ __forceinline__ void store_sums(const Sums& sums, const Params& p, const Tile& t, int consumer, int thread) {
  constexpr int kEights = kN / 8, kAtOnce = 4;  // of channels, of which a thread has two each
  const int plane = p.p * p.q;
  const Place at = place_of(p, t.first + my_first_pixel(consumer) + planes::first_pixel(kMBlocks, thread));
  if (at.pixel >= plane || at.n * plane >= p.pixels) return;
  const int k0 = t.k + thread % 4 * 2;
  const long long first = (static_cast<long long>(at.n) * p.k + k0) * plane + at.pixel;
  float* const y = static_cast<float*>(p.y) + first;
  [[maybe_unused]] const float* const residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
  for (int i0 = 0; i0 < kEights; i0 += kAtOnce) {
    OfChannel bias[kAtOnce * 2] = {};
    unsigned added[kAtOnce * 2][kTogether] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce * 2 && i0 + i / 2 < kEights; ++i) {
      const int channel = (i0 + i / 2) * 8 + i % 2;
      bias[i] = load_bias(p, k0 + channel);
      if constexpr (kResidual)
        load_global_if<kTogether * 4>(residual + static_cast<long long>(channel) * plane, added[i], k0 + channel < p.k);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce * 2 && i0 + i / 2 < kEights; ++i) {
      const int channel = (i0 + i / 2) * 8 + i % 2;
      float out[kTogether];
#pragma unroll
      for (int pixel = 0; pixel < kTogether; ++pixel) {
        const float sum = sums[pixel / 2][0][(i0 + i / 2) * 4 + pixel % 2 * 2 + i % 2];
        out[pixel] = finish_value(sum, bias[i], __uint_as_float(added[i][pixel]), p.slope);
      }
      store_pixels_if(y + static_cast<long long>(channel) * plane, out, k0 + channel < p.k);
    }
  }
}
