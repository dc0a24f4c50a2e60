// A block's tile of a matrix product: BS x BV results, each thread TS x (VN * VW) of them, from tiles of BK
// steps of the sum in local memory. One side of the tile is walked by scalars (S), the other by vectors (V).
//
// COMPACT is for devices whose private arrays lie in memory anyway (CPUs): loops over results stay loops.
//
// The host defines COMPACT, BS, BV, BK, TS, VN, VW; THREADS is (BS / TS) * (BV / (VN * VW)).
#pragma once
#include "kernels/gpu/vector.h"

#if COMPACT
#define F_UNROLL_STEPS F_NO_UNROLL
#define F_UNROLL_RESULTS F_NO_UNROLL
#else
#define F_UNROLL_STEPS F_UNROLL
#define F_UNROLL_RESULTS F_UNROLL
#endif

#define F_TV (BV / (VN * VW))  // threads along the vector side
// The first of a thread's scalar positions; its others follow. The first of its vectors' positions; the
// others are F_TV * VW apart, so that neighbouring threads read neighbouring vectors.
#define F_SCALAR_BEGIN(thread) ((thread) / F_TV * TS)
#define F_VECTOR_POSITION(thread, v) ((v)*F_TV * VW + (thread) % F_TV * VW)

F_DEVICE void clear_tile(F_VECTOR sums[TS][VN]) {
  F_UNROLL
  for (int i = 0; i < TS; ++i) {
    F_UNROLL
    for (int v = 0; v < VN; ++v) sums[i][v] = F_SPLAT(0.0f);
  }
}

// The sums are worked on in variables of this function's own: a compiler that keeps the caller's in memory
// across barriers would update them there at every step.
F_DEVICE void add_products(F_LOCAL const float* scalars, F_LOCAL const F_VECTOR* vectors, int thread,
                           F_VECTOR sums[TS][VN]) {
  F_LOCAL const float* s = scalars + F_SCALAR_BEGIN(thread);
  F_LOCAL const F_VECTOR* v = vectors + thread % F_TV;
  F_VECTOR t[TS][VN];
  F_UNROLL
  for (int i = 0; i < TS; ++i) {
    F_UNROLL
    for (int j = 0; j < VN; ++j) t[i][j] = sums[i][j];
  }
  F_UNROLL_STEPS
  for (int k = 0; k < BK; ++k) {
    F_VECTOR b[VN];
    F_UNROLL
    for (int j = 0; j < VN; ++j) b[j] = v[k * (BV / VW) + j * F_TV];
    F_UNROLL
    for (int i = 0; i < TS; ++i) {
      const float a = s[k * BS + i];
      F_UNROLL
      for (int j = 0; j < VN; ++j) t[i][j] += a * b[j];
    }
  }
  F_UNROLL
  for (int i = 0; i < TS; ++i) {
    F_UNROLL
    for (int j = 0; j < VN; ++j) sums[i][j] = t[i][j];
  }
}
