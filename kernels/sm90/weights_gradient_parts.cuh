// Parts of a gradient of the weights, pairs of sums, as the kernels that add them up read them.
#pragma once

__device__ __forceinline__ void add(float2& sum, const float2& v) { sum.x += v.x, sum.y += v.y; }

// Every kStep-th part of a pair from `part` on: all asked for before the first of them is there. Beyond the last are zeros.
template <int kStep>
struct Batch {
  static constexpr int kParts = 8;
  float2 v[kParts];
  __device__ __forceinline__ Batch(const float2* from, long long pitch, int part, int count) {
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      v[i] = part + i * kStep < count ? from[(part + i * kStep) * pitch] : float2{0.0f, 0.0f};
  }
  __device__ __forceinline__ void add_to(float2& sum) const {
#pragma unroll
    for (const float2& one : v) add(sum, one);
  }
};

// Of the parts behind the first batch.
template <int kStep>
__device__ __forceinline__ void add_others(float2& sum, const float2* from, long long pitch, int part, int count) {
  constexpr int kNext = Batch<kStep>::kParts * kStep;
  for (part += kNext; part < count; part += kNext) Batch<kStep>(from, pitch, part, count).add_to(sum);
}
