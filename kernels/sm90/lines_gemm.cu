// Filters of up to three rows and columns, stride 1, over 32-bit NCHW as it is, on Hopper's matrix units.
//
// Of 32 bits wgmma takes operands in shared memory with the channels side by side alone; in NCHW pixels are. But its
// first operand may be in registers, so pixels are on the M side, and nothing is turned (planes_gemm.cu does so for 1x1
// filters). The copy engine brings halo patches, some channels at a time, and rounds them. A thread reads four pixels of
// a row with what its neighbours have beside them (lines_pixels.cuh): all horizontal taps are of what it read, and all
// vertical ones of the rows of the output that are the thread's.
//
// Consumers take a tile each, with buffers of their own, and weights that stay (ping-pong; neither waits for the other),
// or share tiles, whose buffers hold the weights too, or these stay.
//
// The host writes before this file kConfig, activate(), mma(), whose first operand is in registers, and includes
// lines_store.cuh or lines_split.cuh, which define
//   finish_sums(sums, …)  a consumer's sums to the output.
#include "kernels/sm90/bring/weights.cuh"
#include "kernels/sm90/lines_pixels.cuh"

constexpr int kFilterRows = kConfig.r, kInputRows = kRowsAThread + kFilterRows - 1;
constexpr int kOwners = kCooperative ? 1 : kConsumers;  // of buffers
constexpr int kMySlots = kSlots / kOwners;
// Consumers that share tiles do not end them at the same time: the second begins so many blocks of channels later.
constexpr bool kStaggers = kCooperative && kSplit == 1;
constexpr int kAhead = kSlots > 2 ? 2 : 1;
constexpr int kReads = kKBlock / 8 * kInputRows;  // of a block of channels
static_assert(kF32 && kPixelsOnM && kTileGroups == 1 && kDilationH == 1);
static_assert(kParts == 2 || kReads % 2 == 0, "which of two operands a row has is known");
static_assert(kTileHeight == lines::consumer_rows(kConfig.tile) * kSharers);

// The weights of a block of channels, of as many as a row of them has: those that stay of several blocks of pixels.
constexpr int kWeightBlock = kWeightRow / kElement, kBlocksARow = kWeightBlock / kKBlock;
__device__ __forceinline__ void load_block(const TensorMap& w_map, const Params& p, unsigned stages, unsigned full,
                                           int block, int k) {
#pragma unroll 1
  for (int tap = 0; tap < kTaps; ++tap) {
    const unsigned to = stages + tap * kStageStride;
    load_3d(to, &w_map, full, block * kWeightBlock, tap, k);
    if constexpr (kParts == 2) load_3d(to + kStagePartStride, &w_map, full, block * kWeightBlock, tap, p.k + k);
  }
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers, int owner) {
  if (kResident && owner == 0) {
    const Tile t = locate(p, static_cast<int>(blockIdx.x));  // every tile of this block has the same channels
#pragma unroll 1
    for (int block = 0; block < kStages / kTaps; ++block) {
      const unsigned full = smem_address(&barriers.stage_full[block]);
      barrier_expect(full, kTaps * kStageBytes * kParts);
      load_block(w_map, p, m.stages + block * kTaps * kStageStride, full, block, t.k);
    }
  }
  Ring<kMySlots> slot;
  const Work work = work_of(p);
  for (int tile = static_cast<int>(work.first_tile + owner * gridDim.x); tile < p.tiles;
       tile += static_cast<int>(kOwners * gridDim.x)) {
    const Tile t = locate(p, tile);
#pragma unroll 1
    for (int block = work.first; block < work.end; ++block) {
      const int place = owner * kMySlots + slot.place;
      const unsigned full = smem_address(&barriers.slot_full[place]);
      barrier_wait(smem_address(&barriers.slot_empty[place]), slot.parity ^ 1);
      barrier_expect(full, kSlotBytes + (kResident ? 0 : kTaps * kStageBytes * kParts));
      load_4d(m.slots + place * kSlotStride, &x_map, full, t.w - lines::chunks_before(kLeft) * kRun,
              t.c + block * kKBlock, t.h - p.pad_top, t.n);
      if constexpr (!kResident) load_block(w_map, p, m.stages + place * kTaps * kStageStride, full, block, t.k);
      slot.advance();
    }
  }
}

// The second operand: of a block of channels one tap's, 8 channels number `step`.
__device__ __forceinline__ unsigned long long tap_of(unsigned weights, int tap, int step) {
  return descriptor<kWeightRow>((weights + tap * kStageStride + step * 32) >> 4, 8 * kWeightRow);
}

// The products of a row of the patch, of 8 channels, with the rows of the filter that it has: those of some of the
// filter's columns.
template <int kInput, int kFrom, int kTo>
__device__ __forceinline__ void multiply_row(RowSums& sums, const Operand& operand, unsigned weights, int step) {
  constexpr int kFirst = kInput < kFilterRows ? 0 : kInput - kFilterRows + 1;  // of the output's rows
  constexpr int kEnd = kInput < kRowsAThread ? kInput + 1 : kRowsAThread;
#pragma unroll
  for (int s = kFrom; s < kTo; ++s) {
#pragma unroll
    for (int row = kFirst; row < kEnd; ++row) {
      const unsigned long long b = tap_of(weights, (kInput - row) * kS + s, step);
#pragma unroll
      for (int block = 0; block < 2; ++block) mma(sums[block][row], operand.a[0][s][block], b, 1);
    }
  }
  mma_commit();
}

// The same of high and low parts, nearly in fp32, of a block of 64 pixels: summed apart (sums_apart.cuh).
using RowApart = float[kRowSums];
template <int kInput>
__device__ __forceinline__ void multiply_row_apart(RowApart& apart, const Operand& operand, int block, unsigned weights,
                                                   int step) {
  static_assert(kRowsAThread == 1, "registers");
  mma_fence();
#pragma unroll
  for (int s = 0; s < kS; ++s) {
    const unsigned long long b = tap_of(weights, kInput * kS + s, step);
    mma(apart, operand.a[kParts - 1][s][block], b, s > 0);
    mma(apart, operand.a[0][s][block], b + kToLowB, 1);
  }
#pragma unroll
  for (int s = 0; s < kS; ++s)
    mma(apart, operand.a[0][s][block], tap_of(weights, kInput * kS + s, step), 1);
  mma_commit();
}
__device__ __forceinline__ void add_apart_to(float (&sums)[kRowSums], RowApart& apart) {
  mma_wait<0>();
  pin(apart);
#pragma unroll
  for (int i = 0; i < kRowSums; ++i) sums[i] += apart[i];
}

// Where a consumer is in its buffers.
struct Place {
  Ring<kMySlots> slot;
  Pixels at;
  unsigned slots, stages, patch, previous;
  int first_slot;
  bool begins;  // the other consumer, which shares its tiles, waits for this one
};

__device__ __forceinline__ void wait_for_patch(Barriers& barriers, Place& place) {
  barrier_wait(smem_address(&barriers.slot_full[place.first_slot + place.slot.place]), place.slot.parity);
  place.patch = place.slots + place.slot.place * kSlotStride;
}

// What a thread reads of row number kAt of a block of channels; behind the last one of the next block's first, if there
// is another.
template <int kAt>
__device__ __forceinline__ Read read_row(Barriers& barriers, Place& place, bool another) {
  Read read;
  if (kAt < kReads) {
    read.load(place.at, place.patch, kAt / kInputRows, kAt % kInputRows);
  } else {
    if (another) wait_for_patch(barriers, place);
    read.load(place.at, place.patch, 0, 0);
  }
  return read;
}

__device__ __forceinline__ void free_slot(unsigned empty) {
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// The products of a block of channels, from one of its rows on. Of each the next one's pixels are read and brought into
// the other operand while they are under way; that one is free since the products of the row before are through.
template <int kAt = 0>
__device__ __forceinline__ void sum_rows(RowSums& sums, Operand& operand, Operand& other, Barriers& barriers, Place& place,
                                         unsigned weights, bool another) {
  constexpr int kInput = kAt % kInputRows, kStep = kAt / kInputRows;
  const Read read = read_row<kAt + 1>(barriers, place, another);
  mma_fence();
  multiply_row<kInput, 0, 1>(sums, operand, weights, kStep);
  mma_wait<1>();
  if (kAt == 0 && place.previous != 0) free_slot(place.previous);
  multiply_row<kInput, 1, kS>(sums, operand, weights, kStep);
  other = Operand{Columns(read, place.at)};
  if constexpr (kAt + 1 < kReads) sum_rows<kAt + 1>(sums, other, operand, barriers, place, weights, another);
}

// The same in parts.
template <int kAt = 0>
__device__ __forceinline__ void sum_rows_apart(RowSums& sums, Operand& operand, Barriers& barriers, Place& place,
                                               unsigned weights, bool another) {
  constexpr int kInput = kAt % kInputRows, kStep = kAt / kInputRows;
  RowApart apart;
  const Read read = read_row<kAt + 1>(barriers, place, another);
  multiply_row_apart<kInput>(apart, operand, 0, weights, kStep);
  add_apart_to(sums[0][0], apart);
  if (kAt == 0 && place.previous != 0) free_slot(place.previous);
  multiply_row_apart<kInput>(apart, operand, 1, weights, kStep);
  const Columns next(read, place.at);
  add_apart_to(sums[1][0], apart);
  operand = Operand{next};
  if constexpr (kAt + 1 < kReads) sum_rows_apart<kAt + 1>(sums, operand, barriers, place, weights, another);
}

// The products of all channels of a tile.
__device__ __forceinline__ void sum_blocks(RowSums& sums, const Work& work, Barriers& barriers, Place& place) {
  wait_for_patch(barriers, place);
  Operand operand{Columns(read_row<0>(barriers, place, true), place.at)};
  [[maybe_unused]] Operand other = operand;
  place.previous = 0;
#pragma unroll 1
  for (int block = work.first; block < work.end; ++block) {
    if (place.begins && block == work.first + kAhead) {
      named_arrive(2, 256);
      place.begins = false;
    }
    if (kResident && block % kBlocksARow == 0) barrier_wait(smem_address(&barriers.stage_full[block / kBlocksARow]), 0);
    const unsigned weights = place.stages + (kResident ? block / kBlocksARow : place.slot.place) * kTaps * kStageStride +
                             block % kBlocksARow * kRow,
                   empty = smem_address(&barriers.slot_empty[place.first_slot + place.slot.place]);
    place.slot.advance();
    if constexpr (kParts == 2) {
      sum_rows_apart(sums, operand, barriers, place, weights, block + 1 < work.end);
    } else {
      sum_rows(sums, operand, other, barriers, place, weights, block + 1 < work.end);
    }
    place.previous = empty;
  }
  mma_wait<0>();
  free_slot(place.previous);
  if (place.begins) named_arrive(2, 256);
  place.begins = false;
}

__device__ __forceinline__ void consume(const Params& p, const Memory& m, Barriers& barriers, int consumer) {
  const int thread = threadIdx.x % 128, owner = kCooperative ? 0 : consumer;
  const int row = kCooperative ? consumer * lines::consumer_rows(kConfig.tile) : 0;
  const int first = owner * kMySlots;
  Place place = {{}, Pixels(row, thread), m.slots + first * kSlotStride, m.stages, 0, 0, first,
                 kStaggers && consumer == 0};
  if (kStaggers && consumer == 1) named_sync(2, 256);
  const Work work = work_of(p);
  for (int tile = static_cast<int>(work.first_tile + owner * gridDim.x); tile < p.tiles;
       tile += static_cast<int>(kOwners * gridDim.x)) {
    RowSums sums;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int i = 0; i < kRowsAThread * kRowSums; ++i) sums[block][i / kRowSums][i % kRowSums] = 0.0f;
    }
    sum_blocks(sums, work, barriers, place);
#pragma unroll
    for (int i = 0; i < 2 * kRowsAThread; ++i) pin(sums[i % 2][i / 2]);
    finish_sums(sums, p, locate(p, tile), m.slots, consumer, row, thread);
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lines_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
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
    for (int i = 0; i < kStages / kTaps; ++i) barrier_init(smem_address(&barriers.stage_full[i]), 1);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&w_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  if (threadIdx.x == 64) prefetch_weights(w_map, p);
  wait_for_previous_kernel();
  const Memory m = {base, stages, 0, 0};
  if (threadIdx.x < 128) {
    registers_down<40>();
    const int owner = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0 && owner < kOwners) produce(x_map, w_map, p, m, barriers, owner);
  } else {
    registers_up<232>();
    consume(p, m, barriers, static_cast<int>(threadIdx.x) / 128 - 1);
  }
}
