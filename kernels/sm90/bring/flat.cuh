// How a slot of flat tiles comes, a tap of a block of channels at a time: pixels as load_pixels brings them,
// if the copy engine does, and with them the weights, but where those stay.
#pragma once
#include "kernels/sm90/bring/ahead.cuh"
#include "kernels/sm90/bring/weights.cuh"

// load_pixels(slot, full, tile, block, tap); bytes: that it brings.
template <class LoadPixels>
__device__ __forceinline__ void produce_taps(const TensorMap& w_map, const Params& p, const Memory& m,
                                             Barriers& barriers, int bytes, LoadPixels load_pixels) {
  Ring<kSlots> slot;
  const Work work = work_of(p);
  int ahead = weights_ahead(p);
  if constexpr (kResident) {
    if (ahead == 0) keep_weights(w_map, p, m.stages, barriers);
  }
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const Span span = span_of(p, work, t);
#pragma unroll 1
    for (int block = span.first; block < span.end; ++block) {
#pragma unroll 1
      for (int tap = 0; tap < kTaps; ++tap) {
        const unsigned full = smem_address(&barriers.slot_full[slot.place]);
        barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
        const bool brings_weights = !kResident && --ahead < 0;
        barrier_expect(full, bytes + (brings_weights ? kStageBytes * kParts : 0));
        load_pixels(m.slots + slot.place * kSlotStride, full, t, block, tap);
        if (brings_weights) {
          load_weights(m.stages + slot.place * kStageStride, w_map, full, p, block, 0, tap, t.k);
        }
        slot.advance();
      }
    }
  }
}
