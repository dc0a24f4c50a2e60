// Where the tiles of implicit_gemm lie, in the input and in the output.
#pragma once
#include "kernels/sm90/constants.cuh"

constexpr int kPoolWidth = windows_within(kTileWidth, kWindow),
              kPoolHeight = windows_within(kTileHeight, kWindow);
// From a tile's first pixels to the next one's (windows of 3 overlap, and so do the tiles); and how far
// outside of the image the first tile begins.
constexpr int kStepWidth = kPools ? 2 * kPoolWidth : kTileWidth,
              kStepHeight = kPools ? 2 * kPoolHeight : kTileHeight;
constexpr int kBefore = kConfig.pool_pad;
constexpr int kMyChannels = my_channels(kConfig.tile), kMyPixels = my_pixels(kConfig.tile);  // a consumer's

// Tiles are taken from the last one back where there is no residual. In networks the kernel before mostly has one, or reads
// what this one reads: its last tiles' pixels are still in the cache, its first ones' are not.
constexpr bool kBackwards =
    !kResidual && !kPhased && (kBring == Bring::patch || kBring == Bring::im2col);

struct Tile {
  int k, c;     // first channel of the output, and of the input
  int n, h, w;  // image and first output pixel; flat: of the flattened pixels; volumes: planes are images
  int first;    // flat: the first of the flattened pixels; planes: of those of image n
  int phase;
  int volume, z;  // of plane n
};

__device__ __forceinline__ int phase_of(const Params& p, int tile) {
  if constexpr (kInTurn) return tile / p.k_tiles % kPhases;
  int phase = 0;
#pragma unroll
  for (int i = 1; i < kPhases; ++i) phase += tile >= p.phases[i].first_tile ? 1 : 0;
  return phase;
}
// Of a tile's filter.
__device__ __forceinline__ int taps_of(const Params& p, int phase) {
  return kPhased ? p.phases[phase].taps : kTaps;
}
__device__ __forceinline__ const Depth& depth_of(const Params& p, int phase) {
  return kPhased ? p.phases[phase].depth : p.depth;
}
__device__ __forceinline__ Tile locate(const Params& p, int tile) {
  Tile t;
  t.phase = 0;
  if constexpr (kBackwards) tile = p.tiles - 1 - tile;
  int tiles_w = p.tiles_w, tiles_h = p.tiles_h;
  if constexpr (kPhased) {
    t.phase = phase_of(p, tile);
    const Phase& phase = p.phases[t.phase];
    const int turn = p.k_tiles * kPhases;
    tile = kInTurn ? tile / turn * p.k_tiles + tile % p.k_tiles : tile - phase.first_tile;
    tiles_w = phase.tiles_w, tiles_h = phase.tiles_h;
  }
  t.k = tile % p.k_tiles * kTileChannels;
  t.c = kConfig.grouped ? t.k / p.group_k * p.group_c : 0;
  const int pixels = tile / p.k_tiles;
  if constexpr (kBring == Bring::planes) {
    t.n = pixels / p.tiles_w;
    t.first = (pixels - t.n * p.tiles_w) * kTilePixels;
    t.h = t.w = 0;
  } else if constexpr (kFlat) {
    t.first = pixels * (kBring == Bring::fetch || kWay == Way::images ? p.step : kTilePixels);
    t.n = t.first / (p.p * p.q);
    const int in_image = t.first - t.n * (p.p * p.q);
    t.h = in_image / p.q;
    t.w = in_image - t.h * p.q;
  } else {
    t.first = 0;
    t.w = pixels % tiles_w * kStepWidth - kBefore;
    t.h = pixels / tiles_w % tiles_h * kStepHeight - kBefore;
    t.n = pixels / (tiles_w * tiles_h);
  }
  const int planes = kVolume ? depth_of(p, t.phase).out : 1;  // of a volume
  t.volume = t.n / planes, t.z = t.n - t.volume * planes;
  return t;
}

// What is this block's: tiles, and of a tile the blocks of channels.
struct Work {
  int first_tile, first, end;
};
__device__ __forceinline__ Work work_of(const Params& p) {
  if constexpr (kSplit > 1) {
    const int rank = static_cast<int>(cluster_rank());
    return {static_cast<int>(blockIdx.x) / kSplit, rank * p.c_blocks / kSplit,
            (rank + 1) * p.c_blocks / kSplit};
  } else {
    return {static_cast<int>(blockIdx.x), 0, p.c_blocks};
  }
}

// The taps in depth that a tile's planes have.
__device__ __forceinline__ Span depths_of(const Params& p, const Tile& t) {
  int more = 0;
  if constexpr (kFlat) {
    const int last = t.first + kTilePixels < p.pixels ? t.first + kTilePixels - 1 : p.pixels - 1;
    more = last / (p.p * p.q) - t.n;
  }
  const int taps = kPhased ? p.phases[t.phase].depths : kT;
  return taps_between(depth_of(p, t.phase), t.z, t.z + more, taps, kDilationD);
}

// The blocks of a tile's sum, or what of those is this block of threads': of volumes of all taps in depth.
__device__ __forceinline__ Span span_of(const Params& p, const Work& work, const Tile& t) {
  if constexpr (kVolume) {
    const Span depths = depths_of(p, t);
    const int first = depths.first * p.c_blocks, blocks = depths.end * p.c_blocks - first;
    if constexpr (kSplit == 1) return {first, first + blocks};
    const int rank = static_cast<int>(cluster_rank());
    return {first + rank * blocks / kSplit, first + (rank + 1) * blocks / kSplit};
  } else {
    return {work.first, work.end};
  }
}

// What one of them is of.
struct Block {
  int depth, channels;
};
__device__ __forceinline__ Block block_at(const Params& p, int block) {
  const int depth = kT > 1 ? block / p.c_blocks : 0;
  return {depth, block - depth * p.c_blocks};
}

// What a tile takes of the rings where no other block of threads has a share: blocks, and of those the taps.
__device__ __forceinline__ int blocks_of(const Params& p, int tile) {
  if (kPhased && p.phases[phase_of(p, tile)].taps == 0) return 0;
  if constexpr (!kVolume) return p.c_blocks;
  const Span depths = depths_of(p, locate(p, tile));
  return (depths.end - depths.first) * p.c_blocks;
}
__device__ __forceinline__ int fills_of(const Params& p, int tile) {
  return (kVolume ? blocks_of(p, tile) : p.c_blocks) * (kPhased ? taps_of(p, phase_of(p, tile)) : kTaps);
}

// A consumer's part of a tile: its first channel, and its first of the tile's pixels.
__device__ __forceinline__ int my_first_channel(const Tile& t, int consumer) {
  return t.k + (kCooperative && !kPixelsOnM ? consumer * kMyChannels : 0);
}
__device__ __forceinline__ int my_first_pixel(int consumer) {
  return kCooperative && kPixelsOnM ? consumer * kMyPixels : 0;
}

// Of the output behind a pool.
__device__ __forceinline__ int pooled_height(const Params& p) {
  return kPools ? (p.p + kConfig.pool_pad + kConfig.pool_end_h - kWindow) / 2 + 1 : p.p;
}
__device__ __forceinline__ int pooled_width(const Params& p) {
  return kPools ? (p.q + kConfig.pool_pad + kConfig.pool_end_w - kWindow) / 2 + 1 : p.q;
}
__device__ __forceinline__ int pooled_first(int pixel) { return (pixel + kBefore) / 2; }

// NCHW: pixels from a channel to the next one, of the convolution's output.
__device__ __forceinline__ int channel_pixels(const Params& p) {
  return kVolume ? p.depth.out * p.p * p.q : p.p * p.q;
}

// The index in y (or, unpooled, in the residual) of a channel's pixel of the tile; negative outside.
__device__ __forceinline__ long long locate_output(const Params& p, const Tile& t, int k, int pixel,
                                                   bool pool) {
  if (k >= p.k) return -1;
  if constexpr (kFlat) {
    const int flat = t.first + pixel;
    if (flat >= p.pixels || (kBring == Bring::fetch && pixel >= p.step)) return -1;
    if constexpr (kNchw) {
      const int image = channel_pixels(p), n = flat / image;
      return (static_cast<long long>(n) * p.k + k) * image + (flat - n * image);
    } else {
      return static_cast<long long>(flat) * p.y_pitch + k;
    }
  } else {
    const int width = pool ? kPoolWidth : kTileWidth;
    const int h = (pool ? pooled_first(t.h) : t.h) + pixel / width,
              w = (pool ? pooled_first(t.w) : t.w) + pixel % width;
    const int height = pool ? pooled_height(p) : p.p, columns = pool ? pooled_width(p) : p.q;
    if (h >= height || w >= columns) return -1;
    if constexpr (kNchw) {
      const long long channel = static_cast<long long>(t.volume) * p.k + k;
      return ((kVolume ? channel * p.depth.out + t.z : channel) * height + h) * columns + w;
    } else {
      return ((static_cast<long long>(t.n) * height + h) * columns + w) * p.y_pitch + k;
    }
  }
}

// Of the pixels of a block of wgmma's columns, group `i` of eight: the first one, in the tile.
__device__ __forceinline__ constexpr int pixel_of(int nb, int i) {
  return kFlat ? nb * kN + i * 8 : (i * kNBlocks + nb) * 8;
}
