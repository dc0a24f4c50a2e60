// Forward convolution on Hopper's matrix units; input in the form that bring/ takes, output in either layout.
//
// A tile of the output is some channels by some pixels. Its products run over blocks of kKBlock input
// channels and, within a block, over the filter's taps. Some warps bring the operands in, mostly by the bulk
// copy engine; two consumer warpgroups multiply (pipeline.cuh), either a tile each in turn (ping-pong: one's
// epilogue hides behind the other's products) or half a tile each. The operand on the M side of wgmma is the
// weights, or the pixels.
//
// 32-bit tensors take the same way. The matrix units read 19 of an element's 32 bits. With one part the copy
// engine rounds on its way, or whoever reads and turns a patch. With two more warps prepare each slot of
// pixels: they round what is there and write what rounding took away (the low parts) to a second buffer, and
// high x high + high x low + low x high makes nearly an fp32 product, whose sums are rounded now and then
// (sums_apart.cuh). The weights come prepared: K rows of high parts, then K of low ones.
//
// 16-bit pixels may go through a scale and a shift of their channels: warps do that where they lie, too
// (bring/affine.cuh).
//
// A cluster of kSplit blocks may compute one tile: each sums over its share of the channel blocks, then each
// adds up its share of the tile (store/split.cuh).
//
// The host (src/algorithms/sm90/source.cpp) writes before this file kConfig, mma(), activate(), and includes
// one file of bring/, which defines
//   produce(x_map, w_map, params, memory, barriers)  what the first warps do,
//   prefetch_pixels(x_map, params)                   what one of them asks into the cache before x may be read
//                                                    (bring/ahead.cuh),
//   prepare(params, memory, barriers, thread)        what the last kPrepareWarps warps of those do that do
//   not
//                                                    consume, where pixels must be made ready,
//   kBringRegisters                                  registers of a thread of theirs,
// and one of store/, which defines Results:
//   finish(sums, …)    a consumer's sums to the output,
//   kBringsResidual    whether load_residual() must come before a tile's products; a tile before, where a
//                      consumer has two areas.
#include "kernels/sm90/channel_sums.cuh"
#include "kernels/sm90/pipeline.cuh"

// Where each consumer takes every second tile: past what another tile takes of the rings.
__device__ __forceinline__ void pass_over(const Params& p, Consumer& c, int tile) {
  c.slot.advance(kFlat ? blocks_of(p, tile) * kTaps : blocks_of(p, tile));
  c.stage.advance(fills_of(p, tile));
}

struct Outputs {
  TensorMap y[kPhases], residual;
};

template <class Results>
__device__ __forceinline__ void consume(const Outputs& outputs, const Params& p, const Memory& m,
                                        Barriers& barriers, int consumer) {
  const int thread = threadIdx.x % 128;
  Consumer c;
  c.leader = thread == 0;
  Ring<kAreas> area;
  const int first = kCooperative ? 0 : consumer, step = kCooperative ? 1 : kConsumers;
  if constexpr (!kCooperative) {
    if (consumer == 1) {
      named_arrive(1, 256);  // the other one goes first
      pass_over(p, c, static_cast<int>(blockIdx.x));
    }
  }
  if constexpr (kResident) barrier_wait(smem_address(&barriers.stage_full[0]), 0);
  [[maybe_unused]] ChannelSums channel_sums(m.channel_sums, consumer, thread);
  const Work work = work_of(p);
  c.taps = c.columns = 0;
  c.my_weights = kCooperative && !kPixelsOnM ? consumer * 64 * kMBlocks * kRow : 0;
  c.my_pixels = kCooperative && kPixelsOnM ? consumer * kMBlocks * (kFlat ? 64 * kRow : 8 * kPixelPitch) : 0;
  const auto staging_of = [&](int place) { return m.staging + place * kStagingBytes; };
  const auto residual_full = [&](int place) {
    return smem_address(&barriers.residual_full[consumer * kAreas + place]);
  };
  const auto bring_residual = [&](int tile, int place) {
    if constexpr (Results::kBringsResidual) {
      if (c.leader && tile < p.tiles)
        Results::load_residual(outputs.residual, locate(p, tile), staging_of(place), residual_full(place), consumer);
    }
  };
  const int first_tile = work.first_tile + first * static_cast<int>(gridDim.x);
  if constexpr (kAreas > 1) bring_residual(first_tile, 0);
  if constexpr (kBias && !kPhased) {
    if (first_tile < p.tiles) touch_bias(p, locate(p, first_tile).k, thread);
  }
  for (int tile = first_tile; tile < p.tiles; tile += step * gridDim.x) {
    const Tile t = locate(p, tile);
    if constexpr (kPhased) c.taps = p.phases[t.phase].taps, c.columns = p.phases[t.phase].columns;
    const bool sums_something = !kPhased || c.taps > 0;
    if constexpr (kAreas == 1) bring_residual(tile, 0);
    if constexpr (!kCooperative) named_sync(1 + consumer, 256);
    Sums sums;
    c.accumulate = 0;
    // Where results are kept in registers of theirs: left as they are, these would make the compiler let products wait.
    if constexpr (kSumsApart || kPhased || kStats) {
      clear(sums);
      c.accumulate = 1;
    }
    c.previous_slot = c.previous_stage = 0;
    const Span span = span_of(p, work, t);
    for (int block = span.first; sums_something && block < span.end; ++block) {
      if constexpr (kFlat) {
        sum_taps(sums, m, barriers, c, block, block == span.first);
      } else {
        sum_patch(sums, m, barriers, c, block, block == span.first);
      }
    }
    if constexpr (!kCooperative) {
      named_arrive(2 - consumer, 256);
      pass_over(p, c, tile + static_cast<int>(gridDim.x));
    }
    mma_wait<0>();
    // Or what follows reads them before, where no tap does anything.
    if constexpr (kPhased) pin(sums);
    if (c.leader && sums_something) {
      barrier_arrive(c.previous_slot);
      if constexpr (!kFlat && !kResident) barrier_arrive(c.previous_stage);
    }
    // Where the tile before lay, which has been stored by now.
    if constexpr (kAreas > 1) bring_residual(tile + step * gridDim.x, area.place ^ 1);
    const unsigned memory = kSplit > 1 ? m.slots : staging_of(area.place);
    Results::finish(sums, outputs.y[t.phase], p, t, memory, residual_full(area.place), area.parity, consumer,
                    thread);
    if constexpr (kStats) channel_sums.add(sums, p, t);
    area.advance();
  }
  if constexpr (kStats) channel_sums.store(p);
}

__device__ __forceinline__ void init_barriers(Barriers& barriers) {
  for (int i = 0; i < kSlots; ++i) {
    barrier_init(smem_address(&barriers.slot_full[i]), 1);
    barrier_init(smem_address(&barriers.slot_empty[i]), kSharers);
    if constexpr (kPrepares) barrier_init(smem_address(&barriers.slot_ready[i]), kPrepareWarps);
  }
  for (int i = 0; i < kStages; ++i) {
    barrier_init(smem_address(&barriers.stage_full[i]), 1);
    barrier_init(smem_address(&barriers.stage_empty[i]), kSharers);
  }
  for (int i = 0; i < kConsumers * kAreas; ++i) barrier_init(smem_address(&barriers.residual_full[i]), 1);
  for (int i = 0; i < kRowSlots; ++i) {
    barrier_init(smem_address(&barriers.raw_full[i]), kF32 || kConfig.rows_whole ? 1 : 32);
    barrier_init(smem_address(&barriers.raw_empty[i]), kPrepareWarps);
  }
  barrier_init_fence();
}

extern "C" __global__ void __launch_bounds__(threads(kConfig), 1)
    implicit_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
                  const __grid_constant__ Outputs outputs, const __grid_constant__ Params p) {
  constexpr int kRawBuffers = kRowSlots * raw_stride(kConfig);
  constexpr int kChannelSumBytes = kConsumers * channel_sum_bytes(kConfig);
  constexpr int kProducers = (threads(kConfig) - 256) / 32 - kPrepareWarps;  // warps
  constexpr int kConsumerRegisters = threads(kConfig) == 512 ? 256 - kBringRegisters : (504 - kBringRegisters) / 2;
  extern __shared__ unsigned char memory[];
  const unsigned base = (smem_address(memory) + 1023) / 1024 * 1024;
  const unsigned stages = base + kSlots * kSlotStride, staging = stages + kStages * kStageStride,
                 raws = staging + kConsumers * kAreas * kStagingBytes, sums = raws + kRawBuffers;
  Barriers& barriers = *reinterpret_cast<Barriers*>(memory + (sums + kChannelSumBytes - smem_address(memory)));
  if (threadIdx.x == 0) {
    init_barriers(barriers);
    prefetch_map(&x_map);
    prefetch_map(&w_map);
    prefetch_map(&outputs.y[0]);
  }
  __syncthreads();
  let_next_kernel_begin();
  if (threadIdx.x == 0) bring_weights_ahead(w_map, p, stages, barriers);
  if (threadIdx.x == 32) prefetch_weights(w_map, p);
  if (threadIdx.x == 64) prefetch_pixels(x_map, p);
  wait_for_previous_kernel();
  if (threadIdx.x < 128 || threadIdx.x >= 384) {
    registers_down<kBringRegisters>();
    const Memory m = {base, stages, staging, raws, sums};
    produce(x_map, w_map, p, m, barriers);
    if constexpr (kPrepares) {
      const int preparer = threadIdx.x - (threadIdx.x < 128 ? kProducers * 32 : 256 + kProducers * 32);
      if (preparer >= 0) prepare(p, m, barriers, preparer);
    }
  } else {
    registers_up<kConsumerRegisters>();
    const int consumer = threadIdx.x / 128 - 1;
    const Memory m = {base, stages, staging + consumer * kAreas * kStagingBytes, raws,
                      sums + consumer * channel_sum_bytes(kConfig)};
    consume<Results>(outputs, p, m, barriers, consumer);
    if (threadIdx.x % 128 == 0) store_wait_read();  // the block's memory must outlive what reads it
  }
}
