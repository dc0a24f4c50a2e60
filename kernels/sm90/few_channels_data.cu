// The gradient of few input channels with a stride, 16-bit tensors, on Hopper's matrix units. As blocks of
// x's gradient as large as the stride it is a convolution of stride 1 from the output's gradient to 16
// channels at most, by a filter of few rows. A product of 16 columns would leave the matrix units idle: so a
// row of the output's gradient is multiplied by all rows of the filter at once, 16 columns each, which are
// shares of as many rows of blocks. With the next row of the gradient each column of sums has moved on to
// where the row before it was, and the first one's are complete.
//
// The copy engine brings rows of the gradient, pixels of 64 channels; of NCHW channels of pixels, which two
// warps turn. The filter, as it lies in memory, is put into shared memory as a block begins. Two consumers
// have 64 blocks of a row each.
//
// The host defines F_CONFIG (statements that fill in a Config c, few_channels_config.h) and mma(sums, a, b,
// accumulate).
#include "kernels/sm90/few_channels_tile.cuh"

constexpr int kColumnsOfAll = data_columns(kConfig), kReach = reach_w(kConfig), kDown = reach_h(kConfig);
constexpr int kThreads = data_threads(kConfig), kRowBytes = row_pixels(kConfig) * 128;
constexpr int kRawRows = raw_rows(kConfig), kRawPitch = row_pixels(kConfig) * 2;
constexpr int kLine = line_elements(kConfig), kLines = lines(kConfig), kPitch = line_pitch(kConfig);
constexpr bool kBf16 = kConfig.element == Element::bf16;
static_assert(data_shared_bytes(kConfig) <= 232448, "shared memory");
static_assert(!kConfig.nchw || (kRawPitch / 16) % 2 == 1,
              "eight rows that are read at once begin in different banks");

using Sums = float[kColumnsOfAll / 2];

struct Raws {
  unsigned long long full[kRawRows > 0 ? kRawRows : 1], empty[kRawRows > 0 ? kRawRows : 1];
};

// Of a tile: the first row of the gradient that it reads, and how many.
struct Rows {
  int first, count;
};
__device__ __forceinline__ Rows rows_of(const Params& p, const Tile& tile) {
  const int left = p.end - tile.h, rows = left < kConfig.height ? left : kConfig.height;
  return {tile.h - (kDown - 1), rows + kDown - 1};
}
__device__ __forceinline__ Tile data_tile(const Params& p, int tile) {
  const int row = tile / p.tiles_w;
  return {row / p.tiles_h, p.first + row % p.tiles_h * kConfig.height, tile % p.tiles_w * kDataWidth};
}
template <class Visit>
__device__ __forceinline__ void each_row(const Params& p, const Work& work, const Visit& visit) {
  for (int i = work.first; i < p.tiles; i += work.step) {
    const Tile tile = data_tile(p, i);
    const Rows rows = rows_of(p, tile);
#pragma unroll 1
    for (int row = 0; row < rows.count; ++row) visit(tile, rows.first + row);
  }
}

template <int kSlots>
__device__ __forceinline__ void produce(const TensorMap& dy_map, const Params& p, const Work& work,
                                        unsigned rows, unsigned long long (&full)[kSlots],
                                        unsigned long long (&empty)[kSlots]) {
  Ring<kSlots> slot;
  each_row(p, work, [&](const Tile& tile, int row) {
    const unsigned there = smem_address(&full[slot.place]), to = rows + slot.place * row_stride(kConfig);
    barrier_wait(smem_address(&empty[slot.place]), slot.parity ^ 1);
    barrier_expect(there, kRowBytes);
    if constexpr (kConfig.nchw) {
      load_4d(to, &dy_map, there, tile.w + row_begin(kConfig), 0, row, tile.n);
    } else {
      load_4d(to, &dy_map, there, 0, tile.w + row_begin(kConfig), row, tile.n);
    }
    slot.advance();
  });
}

// From channels of pixels to pixels of channels: 8 x 8 of them a matrix, four at once.
template <int kSlots>
__device__ __forceinline__ void turn_rows(const Params& p, const Work& work, unsigned memory,
                                          Barriers& barriers, Raws& raws, int warp, int lane) {
  Ring<kStages> stage;
  Ring<kSlots> raw;
  each_row(p, work, [&](const Tile&, int) {
    barrier_wait(smem_address(&raws.full[raw.place]), raw.parity);
    barrier_wait(smem_address(&barriers.empty[stage.place]), stage.parity ^ 1);
    const unsigned from = memory + raws_at(kConfig) + raw.place * row_stride(kConfig);
    const unsigned to = memory + rows_at(kConfig) + stage.place * row_stride(kConfig);
    // Loads of several matrices before the first of them is stored: none waits for another.
    constexpr int kMatrices = row_pixels(kConfig) / 4, kTogether = 10;
    const int line = lane % 8;
    for (int first = warp; first < kMatrices; first += kTurnWarps * kTogether) {
      unsigned v[kTogether][4];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int i = first + j * kTurnWarps, octet = i % 2 * 4 + lane / 8;
        if (i < kMatrices)
          load_matrices_transposed(from + (octet * 8 + line) * kRawPitch + i / 2 * 16, v[j][0], v[j][1],
                                   v[j][2], v[j][3]);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int i = first + j * kTurnWarps, octet = i % 2 * 4 + lane / 8;
        if (i < kMatrices)
          store_matrices(to + (i / 2 * 8 + line) * 128 + (octet ^ line) * 16, v[j][0], v[j][1], v[j][2],
                         v[j][3]);
      }
    }
    fence_async();
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(smem_address(&barriers.full[stage.place]));
      barrier_arrive(smem_address(&raws.empty[raw.place]));
    }
    stage.advance(), raw.advance();
  });
}

// The filter, as the second operand: of each tap across rows of 64 output channels, one for each column.
__device__ __forceinline__ void put_weights(const Params& p, unsigned to) {
  constexpr int kFilter = filter_elements(kConfig), kAll = kReach * kColumnsOfAll * 8;
  const auto* const filters = static_cast<const unsigned short*>(p.w);
  for (int i = threadIdx.x; i < kAll; i += kThreads) {
    const int octet = i % 8, column = i / 8 % kColumnsOfAll, across = i / 8 / kColumnsOfAll;
    const int at = data_weight_of(kConfig, across, column);
    unsigned short e[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
      e[j] = at >= 0 && octet * 8 + j < p.k ? filters[(octet * 8 + j) * kFilter + at] : 0;
    unsigned v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = e[j * 2] | static_cast<unsigned>(e[j * 2 + 1]) << 16;
    store_shared_128(to + data_weights_place(kConfig, across, column, octet), v);
  }
}

// The 16 blocks of a warp whose sums are complete.
__device__ __forceinline__ void store(const float (&sums)[kBlockColumns / 2], const Params& p,
                                      const Tile& tile, int row, int block, unsigned staging, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int element = i / 2 * 8 + lane % 4 * 2, line = element / kLine, pixel = i % 2 * 8 + lane / 4;
    if (element < block_elements(kConfig))
      store_shared_32(staging + line * kPitch + (pixel * kLine + element % kLine) * 2,
                      pack_pair<kBf16>(sums[i * 2], sums[i * 2 + 1]));
  }
  __syncwarp();
  constexpr int kChunks = line_chunks(kConfig);
#pragma unroll
  for (int turn = 0; turn < divided(kLines * kChunks, 32); ++turn) {
    const int i = turn * 32 + lane, line = i / kChunks, chunk = i % kChunks;
    const int channel = kConfig.nchw ? line % kConfig.c : 0, a = kConfig.nchw ? line / kConfig.c : line;
    const int h = row * kConfig.stride_h + a - p.pad_top, within = block * kLine + chunk * 8;
    if (i >= kLines * kChunks || static_cast<unsigned>(h) >= static_cast<unsigned>(p.h) || within >= p.row)
      continue;
    const long long image = static_cast<long long>(tile.n) * patch_planes(kConfig) + channel;
    unsigned v[4];
    load_shared_128(staging + line * kPitch + chunk * 16, v);
    *reinterpret_cast<uint4*>(static_cast<unsigned short*>(p.y) + (image * p.h + h) * p.row + within) =
        uint4{v[0], v[1], v[2], v[3]};
  }
  __syncwarp();
}

__device__ __forceinline__ void consume(const Params& p, const Work& work, unsigned memory,
                                        Barriers& barriers, int warp, int lane) {
  constexpr int kMoved = kBlockColumns / 2;  // a thread's sums of a row of blocks
  const unsigned staging = memory + lines_at(kConfig) + warp * rounded(kLines * kPitch, 16);
  Ring<kStages> stage;
  for (int i = work.first; i < p.tiles; i += work.step) {
    const Tile tile = data_tile(p, i);
    const Rows rows = rows_of(p, tile);
    Sums sums;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    pin(sums);
    float complete[kMoved];
    // Of a row of the tile's gradient the sums that the row before has completed.
    const auto put_out = [&](int row) {
      if (row >= kDown)
        store(complete, p, tile, tile.h + row - kDown, tile.w + warp * kColumns, staging, lane);
    };
    for (int row = 0; row < rows.count; ++row) {
      barrier_wait(smem_address(&barriers.full[stage.place]), stage.parity);
      const unsigned pixels = memory + rows_at(kConfig) + stage.place * row_stride(kConfig) +
                              (left_pixel(kConfig) - row_begin(kConfig) + warp / 4 * 64) * 128;
      mma_fence();
#pragma unroll
      for (int across = 0; across < kReach; ++across) {
#pragma unroll
        for (int step = 0; step < 4; ++step)
          mma(sums, descriptor(pixels + (kReach - 1 - across) * 128 + step * 32),
              descriptor(memory + across * kColumnsOfAll * 128 + step * 32), 1);
      }
      mma_commit();
      put_out(row);  // meanwhile
      mma_wait<0>();
      pin(sums);
      if (lane == 0) barrier_arrive(smem_address(&barriers.empty[stage.place]));
#pragma unroll
      for (int j = 0; j < kMoved; ++j) complete[j] = sums[j];
#pragma unroll
      for (int j = 0; j < kColumnsOfAll / 2; ++j)
        sums[j] = j + kMoved < kColumnsOfAll / 2 ? sums[j + kMoved] : 0.0f;
      pin(sums);
      stage.advance();
    }
    put_out(rows.count);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    few_channels_data(const __grid_constant__ TensorMap dy_map, const __grid_constant__ Params p) {
  extern __shared__ unsigned char shared[];
  const unsigned memory = (smem_address(shared) + 1023) / 1024 * 1024;
  unsigned char* const behind = shared + (memory - smem_address(shared)) + data_barriers_at(kConfig);
  Barriers& barriers = *reinterpret_cast<Barriers*>(behind);
  Raws& raws = *reinterpret_cast<Raws*>(behind + sizeof(Barriers));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(smem_address(&barriers.full[i]), kConfig.nchw ? kTurnWarps : 1);
      barrier_init(smem_address(&barriers.empty[i]), 8);
    }
    for (int i = 0; i < kRawRows; ++i) {
      barrier_init(smem_address(&raws.full[i]), 1);
      barrier_init(smem_address(&raws.empty[i]), kTurnWarps);
    }
    barrier_init_fence();
    prefetch_map(&dy_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  wait_for_previous_kernel();
  put_weights(p, memory);
  fence_async();
  __syncthreads();
  const Work work{0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp < 8) {
    consume(p, work, memory, barriers, warp, lane);
  } else if (warp == 8) {
    if (elected()) {
      if constexpr (kConfig.nchw) {
        produce(dy_map, p, work, memory + raws_at(kConfig), raws.full, raws.empty);
      } else {
        produce(dy_map, p, work, memory + rows_at(kConfig), barriers.full, barriers.empty);
      }
    }
  } else if constexpr (kConfig.nchw) {
    turn_rows<kRawRows>(p, work, memory, barriers, raws, warp - 9, lane);
  }
}
