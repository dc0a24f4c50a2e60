// The pipeline of implicit_gemm: buffers of pixels (slots) and of weights (stages) in shared memory, the
// barriers that say which are full and which empty, and the consumers' products of what they hold.
#pragma once
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/tile.cuh"

constexpr bool kPrepares = kConfig.prepares();
constexpr int kRowSlots = kConfig.tile.row_slots;

// The last three are there, and counted in layout.h, where somebody waits for them.
struct Barriers {
  unsigned long long slot_full[kSlots], slot_empty[kSlots];
  unsigned long long stage_full[kStages], stage_empty[kStages];
  unsigned long long residual_full[kConsumers * kAreas];
  unsigned long long slot_ready[kSlots];
  unsigned long long raw_full[kRowSlots > 0 ? kRowSlots : 1], raw_empty[kRowSlots > 0 ? kRowSlots : 1];
};

// Addresses in shared memory.
struct Memory {
  unsigned slots, stages, staging, raws, channel_sums;
};

constexpr int kPixelPitch =
    kFlat ? 8 * kRow : kStrideH * patch_width(kConfig) * kRow;  // from 8 pixels to the next 8
constexpr int kPlanesBox = 64 * kRow;                           // planes, fetch: 64 channels by 64 pixels
constexpr bool kRowsAreChannels = kBring == Bring::planes || kBring == Bring::fetch;

// Of rows of so many bytes, which are swizzled alike.
template <int kBytes = kRow>
__device__ __forceinline__ unsigned long long descriptor(unsigned low, int pitch) {
  constexpr unsigned kSwizzle = kBytes == 128 ? 1u : kBytes == 64 ? 2u : 3u;
  const unsigned high = static_cast<unsigned>(pitch >> 4) | kSwizzle << 30;
  return static_cast<unsigned long long>(high) << 32 | low;
}

// Step `step` of 32 bytes (where rows are channels, of 16 rows) of a row of the pixels' block `block`, on the
// M side or on the N side, there from the block's half `half` on. Where rows are channels 8 of them make 1024 bytes, and the next 64 pixels lie a
// box further.
__device__ __forceinline__ unsigned long long pixels_on_m(unsigned pixels, int block, int step) {
  constexpr int kBlock = kFlat ? 64 * kRow : 8 * kPixelPitch;
  if constexpr (kRowsAreChannels) {
    return descriptor((pixels + block * kBlock + step * 2048) >> 4, 1024);
  } else {
    return descriptor((pixels + block * kBlock + step * 32) >> 4, kPixelPitch);
  }
}
__device__ __forceinline__ unsigned long long pixels_on_n(unsigned pixels, int block, int half, int step) {
  constexpr int kBlock = kFlat ? kN * kRow : 8 * kRow, kHalf = kColumns / 8 * kPixelPitch;
  if constexpr (kRowsAreChannels) {
    // In a cluster addresses have higher bits.
    const unsigned place = kSplit > 1 ? (pixels + step * 2048) >> 4 & 0x3fff : (pixels + step * 2048) >> 4;
    return descriptor(place | (kPlanesBox >> 4) << 16, 1024);
  } else {
    return descriptor((pixels + block * kBlock + half * kHalf + step * 32) >> 4, kPixelPitch);
  }
}
constexpr int kGroupSteps = kRow / 32 / kTileGroups;
// Of the filter as it is: 64 output channels, by kKBlock input channels.
constexpr int kFilterBox = kKBlock * 128;
__device__ __forceinline__ unsigned long long weights_of(unsigned weights, int row, int step) {
  if constexpr (kFilterAsItIs) {
    const unsigned place = (weights + row / 64 * kFilterBox + step * 2048) >> 4 & 0x3fff;
    const unsigned high = 1024 >> 4 | 1u << 30;  // swizzled by 128 bytes, whatever the pixels' rows are
    return static_cast<unsigned long long>(high) << 32 | place | (kFilterBox >> 4) << 16;
  }
  // A row has the steps of its group.
  const unsigned place = weights + row * kWeightRow + step % kGroupSteps * 32;
  return descriptor<kWeightRow>(place >> 4, 8 * kWeightRow);
}

// The operands of one step of a consumer's block of 64 rows by kN columns, or of a half of those.
struct Operands {
  unsigned long long a, b;
};
__device__ __forceinline__ Operands operands_of(unsigned weights, unsigned pixels, int mt, int nb, int half,
                                                int step) {
  if constexpr (kPixelsOnM) {
    return {pixels_on_m(pixels, mt, step), weights_of(weights, nb * kN + half * kColumns, step)};
  } else {
    return {weights_of(weights, mt * 64, step), pixels_on_n(pixels, nb, half, step)};
  }
}
// From an operand's high part to its low part.
constexpr int kToLowA = (kPixelsOnM ? kPartStride : kStagePartStride) >> 4,
              kToLowB = (kPixelsOnM ? kStagePartStride : kPartStride) >> 4;

using Sums = float[kMBlocks][kNBlocks][kN / 2];
__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int block = 0; block < kMBlocks * kNBlocks; ++block) {
#pragma unroll
    for (float& sum : sums[block / kNBlocks][block % kNBlocks]) sum = 0.0f;
  }
}

// What the matrix units wrote is read after here, not before.
template <int kCount>
__device__ __forceinline__ void pin(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

__device__ __forceinline__ void pin(Sums& sums) {
#pragma unroll
  for (int block = 0; block < kMBlocks * kNBlocks; ++block) pin(sums[block / kNBlocks][block % kNBlocks]);
}

// The products of one tap of one block of channels. With several groups a step is one's, and so is a block of columns.
template <class Sums>
__device__ __forceinline__ void multiply(Sums& sums, unsigned weights, unsigned pixels, int accumulate) {
#pragma unroll
  for (int step = 0; step < kRow / 32; ++step) {
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int nb = 0; nb < kNBlocks; ++nb) {
        if (kTileGroups > 1 && step / kGroupSteps != nb) continue;
        const Operands o = operands_of(weights, pixels, mt, nb, 0, step);
        mma(sums[mt][nb], o.a, o.b, step % kGroupSteps == 0 ? accumulate : 1);
      }
    }
  }
}

#include "kernels/sm90/sums_apart.cuh"

// Where a consumer is in the rings; its part of a tile's operands; what it frees once the products after are
// under way.
struct Consumer {
  Ring<kStages> stage;
  Ring<kSlots> slot;
  unsigned my_weights, my_pixels;
  bool leader;
  unsigned previous_slot, previous_stage;
  int accumulate;
  int taps, columns;  // of the tile's phase
  SumsApart apart;
};

// The products of one tap of one block of channels, of those that go on without a pause the first or the last one;
// free(): what the tap before read is free.
template <class Free>
__device__ __forceinline__ void multiply_tap(Sums& sums, Consumer& c, unsigned weights, unsigned pixels,
                                             bool first, bool last, const Free& free) {
  if constexpr (kSumsApart) {
    multiply_apart(sums, c.apart, weights, pixels, first, last, free);
  } else {
    mma_fence();
    multiply(sums, weights, pixels, c.accumulate);
    mma_commit();
    c.accumulate = 1;
    mma_wait<1>();
    free();
  }
}

__device__ __forceinline__ void wait_for_slot(Barriers& barriers, const Ring<kSlots>& slot) {
  // What warps bring is said to be there by them alone.
  constexpr bool kLoaded = kBring != Bring::turned && !(kBring == Bring::fetch && kResident);
  if constexpr (kLoaded) barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
  if constexpr (kPrepares) barrier_wait(smem_address(&barriers.slot_ready[slot.place]), slot.parity);
  // Here and not where they wrote: there it would wait for the loads that are under way as well.
  if constexpr (kBring == Bring::fetch || kConfig.turns_16_bits()) fence_async();
}

// The products of a block of channels where a slot is of one tap, and the stage of the same number, too.
__device__ __forceinline__ void sum_taps(Sums& sums, const Memory& m, Barriers& barriers, Consumer& c,
                                         int block, bool first_block) {
#pragma unroll 1
  for (int tap = 0; tap < kTaps; ++tap) {
    wait_for_slot(barriers, c.slot);
    const unsigned weights =
        m.stages + (kResident ? block * kTaps + tap : c.slot.place) * kStageStride + c.my_weights;
    multiply_tap(sums, c, weights, m.slots + c.slot.place * kSlotStride + c.my_pixels, true, true, [&] {
      if (c.leader && (!first_block || tap != 0)) barrier_arrive(c.previous_slot);
    });
    c.previous_slot = smem_address(&barriers.slot_empty[c.slot.place]);
    c.slot.advance();
  }
}

// Of one tap, the first pixel of a patch that it reads.
__device__ __forceinline__ unsigned view_of(unsigned pixels, int tap, int columns) {
  const int column = tap % columns * kDilationW;
  const int in_row = column % kStrideW * static_cast<int>(phase_width(kConfig)) + column / kStrideW;
  return pixels + (tap / columns * kDilationH * static_cast<int>(patch_width(kConfig)) + in_row) * kRow;
}

// The products of a block of channels where a slot is a patch, of which every tap has a view.
__device__ __forceinline__ void sum_patch(Sums& sums, const Memory& m, Barriers& barriers, Consumer& c,
                                          int block, bool first_block) {
  wait_for_slot(barriers, c.slot);
  const unsigned pixels = m.slots + c.slot.place * kSlotStride + c.my_pixels;
  if constexpr (kResident && !kSumsApart) {
    constexpr int kUnroll = kTaps <= 9 ? kTaps : 1;
    mma_fence();
#pragma unroll kUnroll
    for (int tap = 0; tap < kTaps; ++tap) {
      multiply(sums, m.stages + (block * kTaps + tap) * kStageStride + c.my_weights, view_of(pixels, tap, kS),
               c.accumulate);
      c.accumulate = 1;
    }
    mma_commit();
    mma_wait<1>();
    if (c.leader && !first_block) barrier_arrive(c.previous_slot);
  } else {
    const int taps = kPhased ? c.taps : kTaps, columns = kPhased ? c.columns : kS;
    constexpr int kTogether = taps_together(kConfig);
#pragma unroll 1
    for (int first = 0; first < taps; first += kTogether) {
#pragma unroll
      for (int tap = first; tap < first + kTogether; ++tap) {
        const unsigned view = view_of(pixels, tap, columns);
        if constexpr (!kResident)
          barrier_wait(smem_address(&barriers.stage_full[c.stage.place]), c.stage.parity);
        const unsigned stage = kResident ? block * kTaps + tap : c.stage.place;
        const unsigned weights = m.stages + stage * kStageStride + c.my_weights;
        multiply_tap(sums, c, weights, view, tap == first, tap + 1 == first + kTogether, [&] {
          if (!c.leader) return;
          if (!kResident && (!first_block || tap != 0)) barrier_arrive(c.previous_stage);
          if (tap == 0 && !first_block) barrier_arrive(c.previous_slot);
        });
        if constexpr (!kResident) {
          c.previous_stage = smem_address(&barriers.stage_empty[c.stage.place]);
          c.stage.advance();
        }
      }
    }
  }
  c.previous_slot = smem_address(&barriers.slot_empty[c.slot.place]);
  c.slot.advance();
}
