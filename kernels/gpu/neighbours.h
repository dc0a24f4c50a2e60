// What CUDA and HIP say in the same words: loads and stores of two, four or eight neighbours at once, at an
// address that is a multiple of their size. Both bring vectors of these names; load8_u16 and store8_u16 are
// theirs.
#pragma once

F_DEVICE void load4_f32(const float* p, float* v) {
  const float4 t = *(const float4*)p;
  v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
}
F_DEVICE void store4_f32(float* p, const float* v) { *(float4*)p = make_float4(v[0], v[1], v[2], v[3]); }
F_DEVICE void store4_local(float* p, const float* v) { store4_f32(p, v); }
F_DEVICE void load4_u16(const u16* p, u16* v) {
  const ushort4 t = *(const ushort4*)p;
  v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
}
F_DEVICE void store4_u16(u16* p, const u16* v) { *(ushort4*)p = make_ushort4(v[0], v[1], v[2], v[3]); }
F_DEVICE void load4_f16(const u16* p, float* v) {
  u16 bits[4];
  load4_u16(p, bits);
  F_UNROLL
  for (int i = 0; i < 4; ++i) v[i] = load_f16(bits, i);
}
F_DEVICE void store4_f16(u16* p, const float* v) {
  u16 bits[4];
  F_UNROLL
  for (int i = 0; i < 4; ++i) store_f16(bits, i, v[i]);
  store4_u16(p, bits);
}
F_DEVICE void load2_u32(const u32* p, u32* v) {
  const uint2 t = *(const uint2*)p;
  v[0] = t.x, v[1] = t.y;
}
F_DEVICE void load4_u32(const u32* p, u32* v) {
  const uint4 t = *(const uint4*)p;
  v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
}
F_DEVICE void store2_u32(u32* p, const u32* v) { *(uint2*)p = make_uint2(v[0], v[1]); }
F_DEVICE void store4_u32(u32* p, const u32* v) { *(uint4*)p = make_uint4(v[0], v[1], v[2], v[3]); }
F_DEVICE void load8_f16(const u16* p, float* v) {
  F_ALIGNED16 u16 bits[8];
  load8_u16(p, bits);
  F_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = load_f16(bits, i);
}
F_DEVICE void store8_f16(u16* p, const float* v) {
  F_ALIGNED16 u16 bits[8];
  F_UNROLL
  for (int i = 0; i < 8; ++i) store_f16(bits, i, v[i]);
  store8_u16(p, bits);
}
