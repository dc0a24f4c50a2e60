#pragma once
// What is left of a number when the matrix units have cut it to tf32's 10 bits of mantissa.
__device__ __forceinline__ unsigned low_part(unsigned v) {
  return __float_as_uint(__uint_as_float(v) - __uint_as_float(v & 0xffffe000u));
}

// The products of a row of pixels, in two parts.
__device__ __forceinline__ void multiply_parts(Sums& sums, const Line& line, unsigned dy, unsigned x) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    unsigned a[4];
    line.load(a, dy, step);
    const unsigned low[4] = {low_part(a[0]), low_part(a[1]), low_part(a[2]), low_part(a[3])};
    const unsigned long long b = descriptor<kRow>(x + step * 32, 0, 8 * kRow);
    mma_fence();
    mma(sums, a, b, step > 0);
    mma(sums, a, b + (kPatchStride >> 4), 1);
    mma(sums, low, b, 1);
    mma_commit();
    mma_wait<0>();
  }
}

// The products of a row of pixels, whose first step's have been read. Each next step's are while those before are under
// way; behind the last one another row's, where next() says that it lies.
template <class Next>
__device__ __forceinline__ void multiply(Sums& sums, unsigned (&a)[2][4], const Line& line, unsigned dy, unsigned x,
                                         const Next& next) {
  static_assert(kSteps % 2 == 0, "which registers a step has is known");
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    mma_fence();
    mma(sums, a[step % 2], descriptor<kRow>(x + step * 32, 0, 8 * kRow), 1);
    mma_commit();
    if (step + 1 < kSteps) {
      line.load(a[(step + 1) % 2], dy, step + 1);
    } else {
      line.load(a[0], next(), 0);
    }
    mma_wait<0>();
  }
}
