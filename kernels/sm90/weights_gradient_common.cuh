// What the kernels of the weights' gradient share: what they know when they are compiled, and a block's share of the work.
#pragma once

#include "kernels/sm90/weights_gradient_config.h"

using namespace faltung::weights_gradient_sm90;

// The host's words for it.
__device__ constexpr Config config() {
  Config c;
  F_CONFIG
  return c;
}
constexpr Config kConfig = config();
constexpr int kStages = kConfig.stages, kCluster = kConfig.cluster, kChannels = kConfig.channels;
constexpr int kTapRows = kConfig.tap_rows, kTapColumns = kConfig.tap_columns;
constexpr int kRowTiles = divided(kConfig.r, kTapRows), kColumnTiles = divided(kConfig.s, kTapColumns);
constexpr int kConsumers = consumers(kConfig), kThreads = threads(kConfig);
constexpr int kColumns = columns(kConfig);  // of an instruction
constexpr int kRow = row_bytes(kConfig), kPatchStride = patch_stride(kConfig), kStageStride = stage_stride(kConfig);
constexpr int kPairs = sums(kConfig) / 2;  // of a thread's sums
constexpr int kPartPairs = part_pairs(kConfig);
static_assert(shared_bytes(kConfig) <= 232448, "shared memory");

// Of a cluster that adds up its sums (weights_gradient_finish.cuh), with the operands at `memory`.
struct JoinBarriers {
  unsigned read, joined;
};
__device__ __forceinline__ JoinBarriers join_barriers(unsigned memory) {
  return {memory + join_at(kConfig), memory + join_at(kConfig) + 8};
}

// Of a sum, from the block's first results.
struct Place {
  int k, r, s, c;
};

// The block's results, and its share of the pixels.
struct Work {
  int result;      // which of the blocks' results
  int k, c, r, s;  // the first of them; c: of all channels
  int k_end;
  int share;
  int first, end;  // pixel tiles
};

// Output channels go on first, of those that share dy input channels: neighbours are a pair.
__device__ __forceinline__ Work results_of(const Params& p, int result) {
  int rest = result;
  const auto take = [&](int count) {
    const int index = rest % count;
    rest /= count;
    return index;
  };
  Work w{};
  w.result = result;
  if constexpr (kConfig.pair == Pair::dy) w.c = take(p.c_tiles) * kConfig.c_blocks * kChannels;
  w.k = take(p.k_tiles) * kConfig.k_blocks * kOutChannels;
  if constexpr (kConfig.pair != Pair::dy) w.c = take(p.c_tiles) * kConfig.c_blocks * kChannels;
  w.k_end = p.k;
  if constexpr (kConfig.grouped()) {
    constexpr int kTogetherK = kConfig.merged * kConfig.group_k, kTogetherC = kConfig.merged * kConfig.group_c;
    const int groups = take(p.group_tiles);
    w.k += groups * kTogetherK, w.c += groups * kTogetherC;
    if ((groups + 1) * kTogetherK < p.k) w.k_end = (groups + 1) * kTogetherK;
  }
  w.r = take(kRowTiles) * kTapRows;
  w.s = take(kColumnTiles) * kTapColumns;
  return w;
}

// The blocks of a cluster that adds up its sums have different shares of the same results; then come the other results,
// so that blocks that run side by side read the same pixels.
__device__ __forceinline__ Work divide_work(const Params& p) {
  const int rest = static_cast<int>(blockIdx.x) / kCluster;
  Work w = results_of(p, rest % p.results);
  w.share = rest / p.results * kCluster + static_cast<int>(blockIdx.x) % kCluster;
  w.first = static_cast<int>(static_cast<long long>(w.share) * p.pixel_tiles / p.shares);
  w.end = static_cast<int>(static_cast<long long>(w.share + 1) * p.pixel_tiles / p.shares);
  return w;
}

struct Pixel {
  int n, h, w;  // the first of a tile
};
__device__ __forceinline__ Pixel first_pixel(const Params& p, int tile) {
  return {tile / (p.tiles_w * p.tiles_h) * kConfig.images, tile / p.tiles_w % p.tiles_h * kConfig.height,
          tile % p.tiles_w * kConfig.width};
}

// The next tile's: without a division, which takes a thread longer than the copy engine's instruction.
__device__ __forceinline__ Pixel next_pixel(const Params& p, Pixel at) {
  at.w += kConfig.width;
  if (at.w < p.tiles_w * kConfig.width) return at;
  at.w = 0, at.h += kConfig.height;
  if (at.h < p.tiles_h * kConfig.height) return at;
  at.h = 0, at.n += kConfig.images;
  return at;
}

// An operand of wgmma whose rows of kBytes are swizzled alike: `lead` from such a row's end to what goes on in the next
// ones, `pitch` from eight rows to the next eight.
template <int kBytes>
__device__ __forceinline__ unsigned long long descriptor(unsigned address, int lead, int pitch) {
  constexpr unsigned kSwizzle = kBytes == 128 ? 1u : kBytes == 64 ? 2u : 3u;
  const unsigned low = (address >> 4 & 0x3fff) | static_cast<unsigned>(lead >> 4) << 16;
  const unsigned high = static_cast<unsigned>(pitch >> 4) | kSwizzle << 30;
  return static_cast<unsigned long long>(high) << 32 | low;
}
