// 1x1 filters of stride 1 over 32-bit NCHW as it is, on Hopper's matrix units.
//
// Of 32 bits wgmma takes operands in shared memory with the channels side by side alone; in planes pixels are. But its
// first operand may be in registers, where each thread puts what it reads: so pixels are on the M side. The copy engine
// brings boxes of 32 channels by 32 pixels and rounds them on the way; consumers read them (planes_pixels.h) while
// the products before are under way. The weights are the second operand, as in implicit_gemm.cu, whose schedules, rings
// and parameters these are.
//
// Tiles are of boxes over all images: of a plane only the last box has pixels that there are none of.
//
// The host writes before this file kConfig, activate() and mma(), whose first operand is in registers.
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/planes_pixels.cuh"
#include "kernels/sm90/planes_store.cuh"
#include "kernels/sm90/tf32.cuh"

static_assert(kF32 && kPixelsOnM && kTileGroups == 1 && kSplit == 1);

// A warp waits at products whose first operand is in registers until the ones before them are through; so the next
// step's is read before. Of a block of channels each step has registers of its own, of which so many are taken from then.
constexpr int kSteps = kRow / 32, kUnderWay = kSteps - 2;

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  produce_taps(w_map, p, m, barriers, kSlotBytes, [&](unsigned slot, unsigned full, const Tile& t, int block, int) {
    Place at = place_of(p, t.first);
    for (int i = 0; i < kTilePixels / kBox; ++i) {
      load_3d(slot + i * kBoxBytes, &x_map, full, at.pixel, t.c + block * kKBlock, at.n);
      at.pixel += kBox;
      if (at.pixel >= p.p * p.q) at = {at.n + 1, 0};
    }
  });
}

__device__ __forceinline__ void free_slot(unsigned empty) {
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// The products of all channels of a tile, of which the last ones are under way then. A slot is free once every warp has
// said so; the result is the barrier of the last one, of which none has.
template <class Sums>
__device__ __forceinline__ unsigned sum_blocks(Sums& sums, const Params& p, const Memory& m, Barriers& barriers,
                                           Ring<kSlots>& slot, const Pixels& at, unsigned my_boxes) {
  Fragment a[kSteps];
  unsigned previous = 0;
  const auto wait_for_boxes = [&] {
    barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
    return m.slots + slot.place * kSlotStride + my_boxes;
  };
  unsigned boxes = wait_for_boxes();
  a[0].load(at, boxes, 0);
#pragma unroll 1
  for (int block = 0; block < p.c_blocks; ++block) {
    const unsigned weights = m.stages + (kResident ? block : slot.place) * kStageStride,
                   empty = smem_address(&barriers.slot_empty[slot.place]);
    slot.advance();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        a[step + 1].load(at, boxes, step + 1);
      } else if (block + 1 < p.c_blocks) {
        boxes = wait_for_boxes();
        a[0].load(at, boxes, 0);
      }
      mma_fence();
#pragma unroll
      for (int mt = 0; mt < kMBlocks; ++mt)
        mma(sums[mt][0], First(a[step], mt).a, weights_of(weights, 0, step), step > 0 || block > 0);
      mma_commit();
      mma_wait<kUnderWay>();
      if (step == kUnderWay - 1 && block > 0) free_slot(previous);
    }
    previous = empty;
  }
  return previous;
}

// The same of high and low parts, nearly in fp32: a block's products are summed apart, in two halves of the columns, and
// then added (sums_apart.cuh). The next block's pixels are read meanwhile.
template <class SumsApart>
__device__ __forceinline__ unsigned sum_blocks_apart(Sums& sums, SumsApart& apart, const Params& p, const Memory& m,
                                                     Barriers& barriers, Ring<kSlots>& slot, const Pixels& at,
                                                     unsigned my_boxes) {
  Fragment read[kSteps];
  clear(sums);
  unsigned empty = 0;
  const auto read_block = [&] {
    barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
    const unsigned boxes = m.slots + slot.place * kSlotStride + my_boxes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) read[step].load(at, boxes, step);
  };
  read_block();
#pragma unroll 1
  for (int block = 0; block < p.c_blocks; ++block) {
    if (block > 0) free_slot(empty);
    const unsigned weights = m.stages + (kResident ? block : slot.place) * kStageStride;
    empty = smem_address(&barriers.slot_empty[slot.place]);
    slot.advance();
    unsigned high[kSteps][4], low[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps * 4; ++i)
      high[i / 4][i % 4] = round_tf32(First(read[i / 4], 0).a[i % 4], low[i / 4][i % 4]);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      mma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const unsigned long long b = weights_of(weights, half * kColumns, step);
        mma(apart[half], low[step], b, step > 0);
        mma(apart[half], high[step], b + kToLowB, 1);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        mma(apart[half], high[step], weights_of(weights, half * kColumns, step), 1);
      mma_commit();
    }
    if (block + 1 < p.c_blocks) read_block();
    mma_wait<1>();
    add_apart(sums, apart[0], 0);
    mma_wait<0>();
    add_apart(sums, apart[1], 1);
  }
  return empty;
}

__device__ __forceinline__ void consume(const Params& p, const Memory& m, Barriers& barriers, int consumer) {
  const int thread = threadIdx.x % 128;
  const Pixels at(thread);
  const unsigned my_boxes = my_first_pixel(consumer) / kBox * kBoxBytes;
  Ring<kSlots> slot;
  const int first = kCooperative ? 0 : consumer, step = kCooperative ? 1 : kConsumers;
  if constexpr (!kCooperative) {
    if (consumer == 1) {
      named_arrive(1, 256);  // the other one goes first
      slot.advance(p.c_blocks);
    }
  }
  if constexpr (kResident) barrier_wait(smem_address(&barriers.stage_full[0]), 0);
  for (int tile = static_cast<int>(blockIdx.x + first * gridDim.x); tile < p.tiles;
       tile += static_cast<int>(step * gridDim.x)) {
    if constexpr (!kCooperative) named_sync(1 + consumer, 256);
    Sums sums;
    unsigned last;
    if constexpr (kSumsApart) {
      SumsApart apart;
      last = sum_blocks_apart(sums, apart, p, m, barriers, slot, at, my_boxes);
    } else {
      last = sum_blocks(sums, p, m, barriers, slot, at, my_boxes);
    }
    if constexpr (!kCooperative) {
      named_arrive(2 - consumer, 256);
      slot.advance(p.c_blocks);  // past the other consumer's next tile
    }
    mma_wait<0>();
    pin(sums);
    free_slot(last);
    store_sums(sums, p, locate(p, tile), consumer, thread);
  }
}

extern "C" __global__ void __launch_bounds__(planes::kThreads, 1)
    planes_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
                const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned base = (smem_address(memory) + 1023) / 1024 * 1024, stages = base + kSlots * kSlotStride;
  Barriers& barriers =
      *reinterpret_cast<Barriers*>(memory + (stages + kStages * kStageStride - smem_address(memory)));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(smem_address(&barriers.slot_full[i]), 1);
      barrier_init(smem_address(&barriers.slot_empty[i]), kSharers * 4);
    }
    barrier_init(smem_address(&barriers.stage_full[0]), 1);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&w_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  if (threadIdx.x == 0) bring_weights_ahead(w_map, p, stages, barriers);
  if (threadIdx.x == 32) prefetch_weights(w_map, p);
  wait_for_previous_kernel();
  const Memory m = {base, stages, 0, 0};
  if (threadIdx.x < 128) {
    registers_down<40>();
    if (threadIdx.x == 0) produce(x_map, w_map, p, m, barriers);
  } else {
    registers_up<232>();
    consume(p, m, barriers, static_cast<int>(threadIdx.x) / 128 - 1);
  }
}
