// Nearly fp32 of two tf32 parts. The matrix units cut each sum that they write: over a long chain that errs
// far more than fp32's rounding does. So the products of one tap of one block of channels are summed apart,
// from zero, and then added to the sums, rounded to nearest. Of the products the small ones come first, those of
// low parts: of a small sum little is cut.
//
// Two sums apart take turns: while the matrix units make one, the other is added. At the end of a tap, or of a
// row of them, both are waited for: to the compiler a sum that is read while another is made in the next round of
// a loop is one that may still be in the making, and it would make all products wait. Part of pipeline.cuh.
#pragma once

constexpr bool kSumsApart = sums_apart(kConfig);
constexpr int kHalves = halves(kConfig), kTurns = kMBlocks * kNBlocks * kHalves;  // of a tap
using SumsApart = float[kSumsApart ? 2 : 1][kSumsApart ? kColumns / 2 : 1];
static_assert(!kSumsApart || kTurns % 2 == 0, "which of the two a turn has is known");

template <int kCount>
__device__ __forceinline__ void make_apart(float (&sums)[kCount], int turn, unsigned weights, unsigned pixels) {
  const int half = turn % kHalves, block = turn / kHalves, mt = block / kNBlocks, nb = block % kNBlocks;
#pragma unroll
  for (int step = 0; step < kRow / 32; ++step) {
    const Operands o = operands_of(weights, pixels, mt, nb, half, step);
    mma(sums, o.a + kToLowA, o.b, step > 0);
    mma(sums, o.a, o.b + kToLowB, 1);
  }
#pragma unroll
  for (int step = 0; step < kRow / 32; ++step) {
    const Operands o = operands_of(weights, pixels, mt, nb, half, step);
    mma(sums, o.a, o.b, 1);
  }
}

template <int kCount>
__device__ __forceinline__ void add_apart(Sums& sums, float (&apart)[kCount], int turn) {
  const int half = turn % kHalves, block = turn / kHalves;
  pin(apart);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[block / kNBlocks][block % kNBlocks][half * kCount + i] += apart[i];
}

// One tap of a row of them, whose turns go on from tap to tap; free(): what the tap before read is free.
template <class Free>
__device__ __forceinline__ void multiply_apart(Sums& sums, SumsApart& apart, unsigned weights, unsigned pixels,
                                               bool first, bool last, const Free& free) {
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    mma_fence();
    make_apart(apart[turn % 2], turn, weights, pixels);
    mma_commit();
    if (first && turn == 0) {
      free();
      continue;
    }
    mma_wait<1>();
    if (turn == 0) free();
    add_apart(sums, apart[(turn + 1) % 2], (turn + kTurns - 1) % kTurns);
  }
  if (!last) return;
  mma_wait<0>();
  add_apart(sums, apart[1], kTurns - 1);
}
