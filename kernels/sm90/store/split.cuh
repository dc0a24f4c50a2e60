// Where the blocks of a cluster share the sum over channels: of a tile's sums each adds up those that some of a block's
// warps have, of all blocks, always in the order of their ranks. A warp puts its own into the shared memory of the block
// that adds them up, in the place of the operands and as its threads have them.
#pragma once
#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kVectors = kMBlocks * kNBlocks * kN / 8;   // of four sums, of a thread
constexpr int kWarpsEach = 8 / kSplit;                   // whose sums a block adds up
constexpr int kFromEach = kWarpsEach * kVectors * 32;    // vectors that it has of every block
constexpr int kSumBytes = kSplit * kFromEach * 16;
static_assert(kSharers == 2 && 8 % kSplit == 0, "every block adds up as many warps' sums");
static_assert(kSumBytes + 8 <= operand_bytes(kConfig), "the sums take the place of the operands");

// Values that lie together and aligned in the output, at most.
constexpr int kTogether = kNchw ? (kStore < 4 ? kStore : 4) : kConfig.whole_sectors ? 4 : 1;

// sums_of(vector, values): this thread's; put(consumer, thread, vector, values): what they are of all blocks, for any
// thread's.
template <class SumsOf, class Put>
__device__ __forceinline__ void add_up(unsigned memory, int consumer, int thread, const SumsOf& sums_of, const Put& put) {
  const unsigned rank = cluster_rank(), all_there = memory + kSumBytes;
  named_sync(1, 256);  // both have read their operands
  if (consumer == 0 && thread == 0) {
    barrier_init(all_there, 1);
    barrier_init_fence();
    barrier_expect(all_there, kSumBytes);
  }
  cluster_meets();
  const int warp = consumer * 4 + thread / 32, owner = warp / kWarpsEach;
  const unsigned mine = rank * kFromEach + warp % kWarpsEach * kVectors * 32 + thread % 32;
  const unsigned there = in_cluster(memory + mine * 16, owner), counted = in_cluster(all_there, owner);
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    float v[4];
    sums_of(vector, v);
    store_async(there + vector * 512, v[0], v[1], v[2], v[3], counted);
  }
  barrier_wait(all_there, 0);
#pragma unroll 2
  for (int i = consumer * 128 + thread; i < kFromEach; i += 256) {
    unsigned of[kSplit][4];
#pragma unroll
    for (int from = 0; from < kSplit; ++from) load_shared_128(memory + (from * kFromEach + i) * 16, of[from]);
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = __uint_as_float(of[0][j]);
#pragma unroll
      for (int from = 1; from < kSplit; ++from) v[j] += __uint_as_float(of[from][j]);
    }
    const int whose = static_cast<int>(rank) * kWarpsEach + i / (kVectors * 32);
    put(whose / 4, whose % 4 * 32 + i % 32, i / 32 % kVectors, v);
  }
}

// Values side by side in the output, from a channel's pixel of the tile on.
template <int kCount>
__device__ __forceinline__ void put_values(const Params& p, const Tile& t, int k, int pixel, const float (&v)[kCount]) {
  constexpr int kRunLength = kCount < kTogether ? kCount : kTogether;
#pragma unroll
  for (int first = 0; first < kCount; first += kRunLength) {
    const int channel = k + (kNchw ? 0 : first);
    const long long to = locate_output(p, t, channel, pixel + (kNchw ? first : 0), false);
    if (to < 0) continue;
    float out[kRunLength];
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      out[j] = finish_value(v[first + j], of_channel(p.bias, p.slopes, kNchw ? channel : channel + j),
                            kResidual ? load_element(p.residual, to + j) : 0.0f, p.slope);
    }
    store_elements(p.y, to, out);
  }
}

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned memory, unsigned, unsigned, int consumer,
                                                int thread) {
    constexpr int kOfColumns = kN / 8;  // vectors
    add_up(
        memory, consumer, thread,
        [&](int vector, float (&v)[4]) {
#pragma unroll
          for (int j = 0; j < 4; ++j)
            v[j] = sums[vector / kOfColumns / kNBlocks][vector / kOfColumns % kNBlocks][vector % kOfColumns * 4 + j];
        },
        [&](int consumer, int thread, int vector, const float (&v)[4]) {
          const int block = vector / kOfColumns, nb = block % kNBlocks, i = vector % kOfColumns;
          const int column = (kPixelsOnM ? nb * kN + i * 8 : pixel_of(nb, i)) + thread % 4 * 2;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row =
                (consumer * kMBlocks + block / kNBlocks) * 64 + thread / 32 * 16 + half * 8 + thread % 32 / 4;
            put_pair(p, t, row, column, v[half * 2], v[half * 2 + 1]);
          }
        });
  }

 private:
  // Of neighbouring columns.
  static __device__ __forceinline__ void put_pair(const Params& p, const Tile& t, int row, int column, float first,
                                                  float second) {
    const int k = t.k + (kPixelsOnM ? column : row), pixel = kPixelsOnM ? row : column;
    if constexpr (kPixelsOnM != kNchw) {
      const float both[2] = {first, second};
      put_values(p, t, k, pixel, both);
    } else {
      const float one[1] = {first}, other[1] = {second};
      put_values(p, t, k, pixel, one);
      put_values(p, t, k + (kPixelsOnM ? 1 : 0), pixel + (kPixelsOnM ? 0 : 1), other);
    }
  }
};
