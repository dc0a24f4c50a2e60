// The sums of each channel's results, and of their squares, as a by-product: of what is stored, in fp32, to the same bits
// in every run.
//
// Once a tile is stored its results are still in the consumer's registers, as they were stored. A thread adds up
// what it has of a channel; the lanes that have others of its pixels meet by shuffles; and what a warp has of a channel is
// added, always by the same lane, to its word in shared memory. All tiles of a block have the same channels (the host
// sees to that), so that a block's last tile leaves as many sums as its first: they are its part, and
// sum_channels.cu adds up the blocks' parts.
#pragma once
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

// The pixels of a tile that there are.
struct Inside {
  int rows, columns;  // flat: all of them, in one row
  __device__ __forceinline__ Inside(const Params& p, const Tile& t) {
    if constexpr (kBring == Bring::planes) {
      rows = 1, columns = p.p * p.q - t.first;
    } else if constexpr (kFlat) {
      rows = 1, columns = p.pixels - t.first < p.step ? p.pixels - t.first : p.step;
    } else {
      rows = p.p - t.h, columns = p.q - t.w;
    }
  }
  static constexpr int kWidth = kFlat ? kTilePixels : kTileWidth, kHeight = kFlat ? 1 : kTileHeight;
  __device__ __forceinline__ bool whole() const { return rows >= kHeight && columns >= kWidth; }
  __device__ __forceinline__ bool has(int pixel) const {
    return kFlat ? pixel < columns : pixel / kWidth < rows && pixel % kWidth < columns;
  }
};

class ChannelSums {
 public:
  // memory: of the consumer's, in shared memory.
  __device__ __forceinline__ ChannelSums(unsigned memory, int consumer, int thread)
      : memory_(memory), consumer_(consumer), thread_(thread) {
    if constexpr (kStats) {
      for (int i = thread; i < kWords; i += 128) store_shared_32(memory_ + i * 4, 0);
      named_sync(3 + consumer, 128);
    }
  }

  // sums: a tile's results.
  __device__ __forceinline__ void add(const Sums& sums, const Params& p, const Tile& t) const {
    const Inside inside(p, t);
    if (inside.whole()) {
      add<true>(sums, inside);
    } else {
      add<false>(sums, inside);
    }
  }

  // Of all tiles.
  __device__ __forceinline__ void store(const Params& p) const {
    named_sync(3 + consumer_, 128);
    const int k0 = my_first_channel(locate(p, static_cast<int>(blockIdx.x)), consumer_);
    const int part = static_cast<int>(blockIdx.x) / p.k_tiles * kPartsOfBlock + consumer_ % kPartsOfBlock;
    for (int i = thread_; i < 2 * kMyChannels; i += 128) {
      const int square = i / kMyChannels, channel = i % kMyChannels;
      if (k0 + channel >= p.k) continue;
      float sum = 0.0f;
#pragma unroll
      for (int row = 0; row < kRows; ++row) sum += load(word(square, row, channel));
      p.channel_sums[(static_cast<long long>(part) * 2 + square) * p.k + k0 + channel] = sum;
    }
  }

 private:
  static constexpr int kRows = channel_sum_rows(kConfig), kWords = channel_sum_bytes(kConfig) / 4;
  static constexpr int kPartsOfBlock = channel_sum_parts(kConfig.tile);

  __device__ __forceinline__ unsigned word(int square, int row, int channel) const {
    return memory_ + ((square * kRows + row) * kMyChannels + channel) * 4;
  }
  static __device__ __forceinline__ float load(unsigned address) { return __uint_as_float(load_word<4>(address)); }

  template <bool kWhole>
  __device__ __forceinline__ void add(const Sums& sums, const Inside& inside) const {
    if constexpr (kPixelsOnM) {
      add_columns<kWhole>(sums, inside);
    } else {
      add_rows<kWhole>(sums, inside);
    }
  }

  // A channel is a row: of a block of 64 a thread has two, and three other lanes have pixels of theirs.
  template <bool kWhole>
  __device__ __forceinline__ void add_rows(const Sums& sums, const Inside& inside) const {
    const int warp = thread_ / 32, lane = thread_ % 32;
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
      float of[4] = {};
#pragma unroll
      for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
        for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned pair = stored(&sums[mt][nb][i * 4 + half * 2]);
            const int pixel = pixel_of(nb, i) + lane % 4 * 2;
            if (kWhole || inside.has(pixel)) add_result(&of[half * 2], low(pair));
            if (kWhole || inside.has(pixel + 1)) add_result(&of[half * 2], high(pair));
          }
        }
      }
      const float sum = meet<1, 2>(of, lane);
      add_to(word(lane >> 1 & 1, 0, mt * 64 + warp * 16 + (lane & 1) * 8 + lane / 4), sum);
    }
  }

  // A channel is a column: of every eight a thread has two, and seven other lanes have pixels of theirs.
  template <bool kWhole>
  __device__ __forceinline__ void add_columns(const Sums& sums, const Inside& inside) const {
    const int warp = thread_ / 32, lane = thread_ % 32;
    bool there[kMBlocks][2];
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        there[mt][half] =
            kWhole || inside.has(my_first_pixel(consumer_) + mt * 64 + warp * 16 + half * 8 + lane / 4);
    }
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
        float of[4] = {};
#pragma unroll
        for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned pair = there[mt][half] ? stored(&sums[mt][nb][i * 4 + half * 2]) : 0;
            add_result(&of[0], low(pair));
            add_result(&of[2], high(pair));
          }
        }
        float sum = meet<4, 8>(of, lane);
        sum += __shfl_xor_sync(~0u, sum, 16);
        if (lane < 16) add_to(word(lane >> 3 & 1, warp, nb * kN + i * 8 + lane % 4 * 2 + (lane >> 2 & 1)), sum);
      }
    }
  }

  // Two results, where keep_stored() left them.
  static __device__ __forceinline__ unsigned stored(const float* sums) { return __float_as_uint(sums[0]); }

  // To a channel's sum and its squares'.
  static __device__ __forceinline__ void add_result(float* of, float result) {
    of[0] += result;
    of[1] = fmaf(result, result, of[1]);
  }

  // Two channels' sums and squares, added up over four lanes that differ in two bits: the first says whose a lane has
  // then, the second which.
  template <int kChannelBit, int kSquareBit>
  static __device__ __forceinline__ float meet(const float (&of)[4], int lane) {
    const bool second = (lane & kChannelBit) != 0, square = (lane & kSquareBit) != 0;
    float mine[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      mine[i] = (second ? of[2 + i] : of[i]) + __shfl_xor_sync(~0u, second ? of[i] : of[2 + i], kChannelBit);
    return (square ? mine[1] : mine[0]) + __shfl_xor_sync(~0u, square ? mine[0] : mine[1], kSquareBit);
  }

  static __device__ __forceinline__ void add_to(unsigned address, float sum) {
    store_shared_32(address, __float_as_uint(load(address) + sum));
  }

  unsigned memory_;
  int consumer_, thread_;
};
