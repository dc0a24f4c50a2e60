// A block's tile of a matrix product: BS x BV results, each thread TS x (VN * VW) of them, from tiles of BK
// steps of the sum in local memory. One side of the tile is walked by scalars (S), the other by vectors (V).
//
// COMPACT is for devices whose private arrays lie in memory anyway (CPUs): loops over results stay loops.
//
// The host defines COMPACT, BS, BV, BK, TS, VN, VW; THREADS is (BS / TS) * (BV / (VN * VW)). A row of either
// operand in local memory starts on a multiple of VW floats.
#pragma once
#include "kernels/gpu/vector.h"

#if COMPACT
#define F_UNROLL_STEPS F_NO_UNROLL
#define F_UNROLL_RESULTS F_NO_UNROLL
#else
#define F_UNROLL_STEPS F_UNROLL
#define F_UNROLL_RESULTS F_UNROLL
#endif

// The distance of two steps' rows in local memory, where the host or the kernel wants them further apart.
#ifndef PITCH_S
#define PITCH_S BS
#endif
#ifndef PITCH_V
#define PITCH_V BV
#endif

#define F_TV (BV / (VN * VW))  // threads along the vector side
// Where a thread is along each side. 32 threads make a square rather than a row where they can: they read
// fewer different words of both operands.
#if F_TV % 8 == 0 && BS / TS % 4 == 0
#define F_THREAD_S(thread) ((thread) / (F_TV * 4) * 4 + (thread) % 32 / 8)
#define F_THREAD_V(thread) ((thread) / 32 % (F_TV / 8) * 8 + (thread) % 8)
#else
#define F_THREAD_S(thread) ((thread) / F_TV)
#define F_THREAD_V(thread) ((thread) % F_TV)
#endif
// The first of a thread's scalar positions; its others follow. The first of its vectors' positions; the
// others are F_TV * VW apart, so that neighbouring threads read neighbouring vectors.
#define F_SCALAR_BEGIN(thread) (F_THREAD_S(thread) * TS)
#define F_VECTOR_POSITION(thread, v) ((v)*F_TV * VW + F_THREAD_V(thread) * VW)

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
#if TS % VW == 0 && !COMPACT
  F_LOCAL const F_VECTOR* of_vectors = (F_LOCAL const F_VECTOR*)scalars + F_THREAD_S(thread) * (TS / VW);
#else
  F_LOCAL const float* s = scalars + F_SCALAR_BEGIN(thread);
#endif
  F_LOCAL const F_VECTOR* v = vectors + F_THREAD_V(thread);
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
    for (int j = 0; j < VN; ++j) b[j] = v[k * (PITCH_V / VW) + j * F_TV];
#if TS % VW == 0 && !COMPACT
    F_VECTOR a[TS / VW];
    F_UNROLL
    for (int i = 0; i < TS / VW; ++i) a[i] = of_vectors[k * (PITCH_S / VW) + i];
#define F_SCALAR(i) F_LANE(a[(i) / VW], (i) % VW)
#else
#define F_SCALAR(i) s[k * PITCH_S + (i)]
#endif
    F_UNROLL
    for (int i = 0; i < TS; ++i) {
      const float scalar = F_SCALAR(i);
      F_UNROLL
      for (int j = 0; j < VN; ++j) t[i][j] += scalar * b[j];
    }
  }
  F_UNROLL
  for (int i = 0; i < TS; ++i) {
    F_UNROLL
    for (int j = 0; j < VN; ++j) sums[i][j] = t[i][j];
  }
}
