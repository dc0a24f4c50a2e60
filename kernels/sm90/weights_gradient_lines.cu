// The gradient of the weights on Hopper's matrix units, a row of pixels at a time; horizontal stride 1.
//
//   dw[k][c][r][s] = sum over n, p, j of dy[n][k][p][j - s dilation + pad] x[n][c][p stride + r - pad][j].
//
// A block computes 64 output channels by some input channels by all taps, at most 3 x 3. x lies in shared memory as
// [row][channel][width] (wgmma's K-major B): the channels of as many neighbouring rows as the filter has make one
// instruction's columns. NCHW lies so, but the bulk copy engine takes starts at a multiple of 16 bytes alone; so x stays
// where it is, and dy is what is shifted: its rows come one by one and are read into registers (wgmma's A) at whatever
// pixel a tap needs. Each column of taps has a warpgroup of its own; two warps bring the operands.
//
// 32-bit elements are rounded to tf32 as they are loaded; or, with kConfig.parts 2, taken as a high and a low part,
// high x high + high x low + low x high, and a row's sums, which the matrix units cut, are added up by themselves. Of
// NHWC x is turned. Two more warps (weights_gradient_prepare.cuh) turn it and write the low parts.
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h) and mma(sums, a, b, accumulate).
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#include "kernels/sm90/weights_gradient_lines_tile.cuh"

using Sums = float[kColumns / 2];

struct Barriers {
  unsigned long long x_full[kStages], x_empty[kStages];
  unsigned long long dy_full[kLines], dy_empty[kLines];
  unsigned long long raw_full[kRaws], raw_empty[kRaws];  // NHWC: rows of x before they are turned
  unsigned long long landed[kStages];           // NCHW in two parts: the high ones are there
};
static_assert(sizeof(Barriers) <= barrier_bytes(kConfig), "room for the barriers");

// Of a tile's rows those that dy has.
__device__ __forceinline__ int rows_of(const Params& p, const Pixel& first) {
  return kConfig.height < p.p - first.h ? kConfig.height : p.p - first.h;
}

__device__ __forceinline__ void produce_x(const TensorMap& map, const Params& p, const Work& work, unsigned stages,
                                          unsigned raws, Barriers& barriers) {
  Ring<kStages> stage;
  Ring<kRaws> raw;
  for (int tile = work.first; tile < work.end; ++tile) {
    const Pixel first = first_pixel(p, tile);
    const int h = first.h * kConfig.stride_h - p.pad_top;
    if constexpr (kTurns) {
      for (int row = 0; row < kPatchHeight; ++row) {
        const unsigned full = smem_address(&barriers.raw_full[raw.place]), to = raws + raw.place * kPlanesBytes;
        barrier_wait(smem_address(&barriers.raw_empty[raw.place]), raw.parity ^ 1);
        barrier_expect(full, kPlanesBytes);
        for (int c = 0; c < kChannels; c += 32)
          load_4d(to + c * kRow, &map, full, work.c + c, first.w, h + row, first.n);
        raw.advance();
      }
    } else {
      const unsigned full = smem_address(kPrepares ? &barriers.landed[stage.place] : &barriers.x_full[stage.place]);
      barrier_wait(smem_address(&barriers.x_empty[stage.place]), stage.parity ^ 1);
      barrier_expect(full, kPatchBytes);
      load_4d(stages + stage.place * kStageStride, &map, full, first.w, work.c, h, first.n);
      stage.advance();
    }
  }
}

__device__ __forceinline__ void produce_dy(const TensorMap& map, const Params& p, const Work& work, unsigned stages,
                                           Barriers& barriers) {
  Ring<kLines> stage;
  for (int tile = work.first; tile < work.end; ++tile) {
    const Pixel first = first_pixel(p, tile);
    const int rows = rows_of(p, first);
    for (int row = 0; row < rows; ++row) {
      const unsigned full = smem_address(&barriers.dy_full[stage.place]), to = stages + stage.place * kLineBytes;
      barrier_wait(smem_address(&barriers.dy_empty[stage.place]), stage.parity ^ 1);
      if constexpr (kTurns) {
        barrier_expect(full, 2 * kLinePixels * 128);
        for (int half = 0; half < 2; ++half)
          load_4d(to + half * kHalfLine, &map, full, work.k + half * 32, first.w - kLead, first.h + row, first.n);
      } else {
        barrier_expect(full, kLineBytes);
        load_4d(to, &map, full, first.w - kLead, work.k, first.h + row, first.n);
      }
      stage.advance();
    }
  }
}

#include "kernels/sm90/weights_gradient_line.cuh"
#include "kernels/sm90/weights_gradient_prepare.cuh"

// What is left of a number when the matrix units have cut it to tf32's 10 bits of mantissa.
__device__ __forceinline__ unsigned low_part(unsigned v) {
  return __float_as_uint(__uint_as_float(v) - __uint_as_float(v & 0xffffe000u));
}

// The products of a row of pixels, in two parts.
__device__ __forceinline__ void multiply_parts(Sums& sums, const Line& line, unsigned dy, unsigned x) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    unsigned a[4];
    line.load(a, dy, step);
    const unsigned low[4] = {low_part(a[0]), low_part(a[1]), low_part(a[2]), low_part(a[3])};
    const unsigned long long b = descriptor<kRow>(x + step * 32, 0, 8 * kRow);
    mma_fence();
    mma(sums, a, b, step > 0);
    mma(sums, a, b + (kPatchStride >> 4), 1);
    mma(sums, low, b, 1);
    mma_commit();
    mma_wait<0>();
  }
}

// The products of a row of pixels, whose first step's have been read. Each next step's are while those before are under
// way; behind the last one another row's, where next() says that it lies.
template <class Next>
__device__ __forceinline__ void multiply(Sums& sums, unsigned (&a)[2][4], const Line& line, unsigned dy, unsigned x,
                                         const Next& next) {
  static_assert(kSteps % 2 == 0, "which registers a step has is known");
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    mma_fence();
    mma(sums, a[step % 2], descriptor<kRow>(x + step * 32, 0, 8 * kRow), 1);
    mma_commit();
    if (step + 1 < kSteps) {
      line.load(a[(step + 1) % 2], dy, step + 1);
    } else {
      line.load(a[0], next(), 0);
    }
    mma_wait<0>();
  }
}

__device__ __forceinline__ void consume(Sums& sums, const Params& p, const Work& work, unsigned x_stages,
                                        unsigned dy_stages, Barriers& barriers, int consumer) {
  Ring<kStages> x_stage;
  Ring<kLines> dy_stage;
  const Line line(consumer);
  const bool leader = threadIdx.x % 32 == 0;
  const auto wait_for_row = [&] {
    barrier_wait(smem_address(&barriers.dy_full[dy_stage.place]), dy_stage.parity);
    return dy_stages + dy_stage.place * kLineBytes;
  };
  unsigned a[2][4];
  if (!kTwoParts && work.first < work.end) line.load(a[0], wait_for_row(), 0);
  for (int tile = work.first; tile < work.end; ++tile) {
    const int rows = rows_of(p, first_pixel(p, tile));
    barrier_wait(smem_address(&barriers.x_full[x_stage.place]), x_stage.parity);
    unsigned x = x_stages + x_stage.place * kStageStride;
    for (int row = 0; row < rows; ++row) {
      const unsigned dy = dy_stages + dy_stage.place * kLineBytes, empty = smem_address(&barriers.dy_empty[dy_stage.place]);
      if constexpr (kTwoParts) {
        wait_for_row();
        Sums of_row;
        multiply_parts(of_row, line, dy, x);
        dy_stage.advance();
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) sums[i] += of_row[i];
      } else {
        const bool another = row + 1 < rows || tile + 1 < work.end;
        multiply(sums, a, line, dy, x, [&] {
          dy_stage.advance();
          return another ? wait_for_row() : dy;
        });
      }
      if (leader) barrier_arrive(empty);
      x += kConfig.stride_h * kPlanesBytes;
    }
    if (leader) barrier_arrive(smem_address(&barriers.x_empty[x_stage.place]));
    x_stage.advance();
  }
}

template <class Visit>
__device__ __forceinline__ void for_each_pair(const Sums& sums, const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) visit(i, sums[i * 2], sums[i * 2 + 1]);
}

#include "kernels/sm90/weights_gradient_finish.cuh"

__device__ __forceinline__ void init_barriers(Barriers& barriers) {
  const auto init = [](unsigned long long& barrier, int arrivals) { barrier_init(smem_address(&barrier), arrivals); };
  for (int i = 0; i < kStages; ++i) {
    init(barriers.x_full[i], kPrepares ? kPrepareWarps : 1);
    init(barriers.x_empty[i], kConsumers * 4);
    init(barriers.landed[i], 1);
  }
  for (int i = 0; i < kLines; ++i) {
    init(barriers.dy_full[i], 1);
    init(barriers.dy_empty[i], kConsumers * 4);
  }
  for (int i = 0; i < kRaws; ++i) {
    init(barriers.raw_full[i], 1);
    init(barriers.raw_empty[i], kPrepareWarps);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    weights_gradient_lines(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap dy_map,
                          const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned x_stages = (smem_address(memory) + 1023) / 1024 * 1024,
                 dy_stages = x_stages + kStages * kStageStride,
                 raws = dy_stages + kLines * kLineBytes;
  Barriers& barriers =
      *reinterpret_cast<Barriers*>(memory + (x_stages + kBarriersAt - smem_address(memory)));
  if (threadIdx.x == 0) {
    init_barriers(barriers);
    init_join(x_stages);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&dy_map);
  }
  barriers_are_there<(kCluster > 1)>();
  let_next_kernel_begin();
  const Work work = divide_work(p);
  wait_for_previous_kernel();
  const int consumer = static_cast<int>(threadIdx.x) / 128;
  if (consumer == kConsumers) {
    if constexpr (kConsumers == 3) registers_down<80>();
    const int helper = threadIdx.x % 128;
    if (helper == 0) produce_x(x_map, p, work, x_stages, raws, barriers);
    if (helper == 32) produce_dy(dy_map, p, work, dy_stages, barriers);
    if (kPrepares && helper >= 64) prepare(work, x_stages, raws, barriers, helper / 32 - 2, helper % 32);
  } else {
    if constexpr (kConsumers == 3) registers_up<144>();
    Sums sums;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    consume(sums, p, work, x_stages, dy_stages, barriers, consumer);
    finish(sums, p, work, x_stages, consumer);
  }
}
