// What every epilogue does with a sum.
#pragma once

__device__ __forceinline__ float finish_value(float sum, float bias, float residual, float slope) {
  float x = sum;
  if (F_BIAS) x += bias;
  if (F_RESIDUAL) x += residual;
  return F_ACTIVATION(x, slope);
}

__device__ __forceinline__ float pooled(float a, float b, float c, float d) {
#if F_POOL == 1
  // A NaN stays.
  float m = a;
  m = b > m || b != b ? b : m;
  m = m != m ? m : (c > m || c != c ? c : m);
  m = m != m ? m : (d > m || d != d ? d : m);
  return m;
#else
  return (a + b + c + d) * 0.25f;
#endif
}
