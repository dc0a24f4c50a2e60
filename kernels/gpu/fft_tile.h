// The Fourier transform of T values by one thread, T = 2^LOG_T, in radix 2; docs/accuracy.md counts its
// roundings.
//
// The host defines LOG_T (4 or 5) and COMPACT.
#pragma once

#define T (1 << LOG_T)
#define HALF (T / 2 + 1)  // a real transform's frequencies that are not another's conjugates

#if COMPACT
#define F_UNROLL_FFT F_NO_UNROLL
#else
#define F_UNROLL_FFT F_UNROLL
#endif

// exp(2 pi i k / 32)
F_TABLE(float, kCosines, 16) = {1.0f,          0.980785280f,  0.923879533f,  0.831469612f,
                                0.707106781f,  0.555570233f,  0.382683432f,  0.195090322f,
                                0.0f,          -0.195090322f, -0.382683432f, -0.555570233f,
                                -0.707106781f, -0.831469612f, -0.923879533f, -0.980785280f};
F_TABLE(float, kSines, 16) = {
    0.0f, 0.195090322f, 0.382683432f, 0.555570233f, 0.707106781f, 0.831469612f, 0.923879533f, 0.980785280f,
    1.0f, 0.980785280f, 0.923879533f, 0.831469612f, 0.707106781f, 0.555570233f, 0.382683432f, 0.195090322f};

F_DEVICE int reversed(int i) {
  return ((i & 1) << 4 | (i & 2) << 2 | (i & 4) | (i & 8) >> 2 | (i & 16) >> 4) >> (5 - LOG_T);
}

// In place; sign -1 is the transform, 1 the one back, which lacks its division by T.
F_DEVICE void transform(float* re, float* im, float sign) {
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    const int j = reversed(i);
    if (i < j) {
      const float r = re[i], m = im[i];
      re[i] = re[j], im[i] = im[j];
      re[j] = r, im[j] = m;
    }
  }
  F_UNROLL_FFT
  for (int stage = 0; stage < LOG_T; ++stage) {
    F_UNROLL_FFT
    for (int i = 0; i < T / 2; ++i) {
      const int width = 1 << stage, k = i & (width - 1), a = (i >> stage << (stage + 1)) + k, b = a + width;
      const float c = kCosines[k << (4 - stage)], s = sign * kSines[k << (4 - stage)];
      const float r = c * re[b] - s * im[b], m = c * im[b] + s * re[b];
      re[b] = re[a] - r, im[b] = im[a] - m;
      re[a] += r, im[a] += m;
    }
  }
}
