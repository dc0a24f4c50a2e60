// Warps that make ready for the matrix units what the copy engine has put into slots of pixels, where they
// lie.
#pragma once
#include "kernels/sm90/pipeline.cuh"

constexpr int kPrepareWarps = prepare_warps(kConfig);
// What the consumers' sums leave.
constexpr int kScaleRegisters = threads(kConfig) == 512 && kConfig.tile.sums() <= 112 ? 64 : 56;
constexpr int kBringRegisters = kConfig.affine ? kScaleRegisters : kParts == 2 && kSplit > 1 ? 48 : 40;

#include "kernels/sm90/bring/affine.cuh"
#include "kernels/sm90/bring/split.cuh"

// Pixels: where those of a slot lie (affine.cuh).
template <class Pixels>
__device__ __forceinline__ void make_ready(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  if constexpr (!kConfig.affine) {
    split_slots(p, m.slots, barriers, thread);
  } else if constexpr (kConfig.affine_pads) {
    scale_slots<Pixels>(p, m.slots, barriers, thread);
  } else {
    scale_slots<AllPixels>(p, m.slots, barriers, thread);
  }
}
