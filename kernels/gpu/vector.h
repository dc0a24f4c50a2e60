// F_VECTOR: VW floats at once. The host defines VW: 2, 4, 8 or 16.
#pragma once

#if defined(__OPENCL_VERSION__) || defined(__HIP__)
#ifdef __HIP__
typedef float F_VECTOR __attribute__((ext_vector_type(VW)));
#else
#define F_JOIN_(a, b) a##b
#define F_JOIN(a, b) F_JOIN_(a, b)
typedef F_JOIN(float, VW) F_VECTOR;
#endif
#define F_SPLAT(x) ((F_VECTOR)(x))
#define F_LANE(vector, i) (((float*)&(vector))[i])
#else
struct __align__(VW >= 4 ? 16 : 8) F_VECTOR {
  float v[VW];
};
F_DEVICE F_VECTOR F_SPLAT(float x) {
  F_VECTOR out;
  F_UNROLL
  for (int i = 0; i < VW; ++i) out.v[i] = x;
  return out;
}
F_DEVICE F_VECTOR operator*(float a, const F_VECTOR& b) {
  F_VECTOR out;
  F_UNROLL
  for (int i = 0; i < VW; ++i) out.v[i] = a * b.v[i];
  return out;
}
F_DEVICE F_VECTOR& operator+=(F_VECTOR& a, const F_VECTOR& b) {
  F_UNROLL
  for (int i = 0; i < VW; ++i) a.v[i] += b.v[i];
  return a;
}
#define F_LANE(vector, i) ((vector).v[i])
#endif
