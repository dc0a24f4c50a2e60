// Where the blocks of a cluster share the sum over channels: each puts its sums of the tile into its shared
// memory, then adds up a share of the tile from all of them, in the order of their ranks, and stores it. Part
// of implicit_gemm.cu.
#pragma once

// The tile lies in lines as the output has them: of pixels (NCHW), or of channels.
constexpr int kLine = F_NCHW ? kTilePixels : kTileChannels, kLines = F_NCHW ? kTileChannels : kTilePixels;
constexpr bool kAlong = F_SWAP ? !F_NCHW : F_NCHW;  // a thread's pairs of sums lie along the lines
// In words: the eight rows of a matrix of sums begin in other banks.
constexpr int kPitch = kLine + (kAlong ? 8 : 4);
// Values added at a time: as many as lie together and aligned in the output.
constexpr int kTogether = F_NCHW ? (F_V < 4 ? F_V : 4) : F_PLAIN ? 1 : 4;
constexpr int kShare = kLines / F_SPLIT;
static_assert(kLines % F_SPLIT == 0, "every block of a cluster adds up as many lines");
static_assert(kLine % 4 == 0, "lines of 16 bytes");
static_assert(kLines * kPitch * 4 <= F_SLOTS * kSlotStride + F_STAGES * kStageStride + F_RAWS * kRawStride,
              "the sums take the place of the operands");

__device__ __forceinline__ void put_sums(const Sums& sums, unsigned memory, int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (consumer * F_MT + mt) * 64 + warp * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int nb = 0; nb < F_NB; ++nb) {
#pragma unroll
        for (int i = 0; i < F_N / 8; ++i) {
          const int column = (F_SWAP || F_IM2COL ? nb * F_N + i * 8 : (i * F_NB + nb) * 8) + lane % 4 * 2;
          const float* s = &sums[mt][nb][i * 4 + half * 2];
          if (kAlong) {
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

__device__ __forceinline__ void finish_split(Sums& sums, const Params& p, const Tile& t, unsigned memory,
                                             int consumer, int thread) {
  named_sync(1, 256);  // both have read their operands
  put_sums(sums, memory, consumer, thread);
  cluster_sync();
  const int first = static_cast<int>(cluster_rank()) * kShare;
#pragma unroll 2
  for (int i = consumer * 128 + thread; i < kShare * (kLine / kTogether); i += 256) {
    const int line = first + i / (kLine / kTogether), at = i % (kLine / kTogether) * kTogether;
    float v[F_SPLIT][kTogether];
#pragma unroll
    for (int rank = 0; rank < F_SPLIT; ++rank) load_cluster(memory + (line * kPitch + at) * 4, rank, v[rank]);
    const int k = t.k + (F_NCHW ? line : at);
    const long long to = locate_output(p, t, k, F_NCHW ? at : line, false);
    if (to < 0) continue;
    float out[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      float sum = v[0][j];
#pragma unroll
      for (int rank = 1; rank < F_SPLIT; ++rank) sum += v[rank][j];
      out[j] = finish_value(sum, F_BIAS ? load_element(p.bias, F_NCHW ? k : k + j) : 0.0f,
                            F_RESIDUAL ? load_element(p.residual, to + j) : 0.0f, p.slope);
    }
    store_elements(p.y, to, out);
  }
  cluster_sync();  // the others have read what is here
}
