// Where the blocks of a cluster share the sum over channels: each puts its sums of the tile into its shared
// memory, in the place of the operands, then adds up a share of the tile from all of them, always in the
// order of their ranks, and stores it.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

// The tile lies in lines as the output has them.
constexpr int kLine = split_line(kConfig), kLines = split_lines(kConfig), kPitch = split_pitch(kConfig);
constexpr bool kAlong = split_along(kConfig);
// Values added at a time: as many as lie together and aligned in the output.
constexpr int kTogether = kNchw ? (kStore < 4 ? kStore : 4) : kConfig.whole_sectors ? 4 : 1;
constexpr int kShare = kLines / kSplit;
static_assert(kLines % kSplit == 0, "every block of a cluster adds up as many lines");
static_assert(kLine % 4 == 0, "lines of 16 bytes");
static_assert(split_bytes(kConfig) <= operand_bytes(kConfig), "the sums take the place of the operands");

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned memory, unsigned, unsigned, int consumer,
                                                int thread) {
    named_sync(1, 256);  // both have read their operands
    put_sums(sums, memory, consumer, thread);
    add_up(p, t, memory, consumer, thread);
  }

  // Of what all of the cluster's blocks have put there.
  static __device__ __forceinline__ void add_up(const Params& p, const Tile& t, unsigned memory, int consumer,
                                                int thread) {
    cluster_sync();
    const int first = static_cast<int>(cluster_rank()) * kShare;
#pragma unroll 2
    for (int i = consumer * 128 + thread; i < kShare * (kLine / kTogether); i += 256) {
      const int line = first + i / (kLine / kTogether), at = i % (kLine / kTogether) * kTogether;
      float v[kSplit][kTogether];
#pragma unroll
      for (int rank = 0; rank < kSplit; ++rank)
        load_cluster(memory + (line * kPitch + at) * 4, rank, v[rank]);
      const int k = t.k + (kNchw ? line : at);
      const long long to = locate_output(p, t, k, kNchw ? at : line, false);
      if (to < 0) continue;
      float out[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        float sum = v[0][j];
#pragma unroll
        for (int rank = 1; rank < kSplit; ++rank) sum += v[rank][j];
        out[j] = finish_value(sum, kBias ? bias_at(p.bias, kNchw ? k : k + j) : 0.0f,
                              kResidual ? load_element(p.residual, to + j) : 0.0f, p.slope);
      }
      store_elements(p.y, to, out);
    }
    cluster_sync();  // the others have read what is here
  }

 private:
  static __device__ __forceinline__ void put_sums(const Sums& sums, unsigned memory, int consumer,
                                                  int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (consumer * kMBlocks + mt) * 64 + warp * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
          for (int i = 0; i < kN / 8; ++i) {
            const int column = (kPixelsOnM ? nb * kN + i * 8 : pixel_of(nb, i)) + lane % 4 * 2;
            const float* s = &sums[mt][nb][i * 4 + half * 2];
            if constexpr (kAlong) {
              store_shared_64(memory + (row * kPitch + column) * 4, s[0], s[1]);
            } else {
              store_shared_32(memory + (column * kPitch + row) * 4, __float_as_uint(s[0]));
              store_shared_32(memory + ((column + 1) * kPitch + row) * 4, __float_as_uint(s[1]));
            }
          }
        }
      }
    }
  }
};
