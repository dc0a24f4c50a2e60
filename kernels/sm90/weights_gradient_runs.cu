// weights_gradient_lines.cu for NCHW where rows of x are multiples of 16 bytes, and rows of the output's gradient, which
// may be narrower, are not: these come as runs of their planes (weights_gradient_runs.h), with the pixels of other rows
// around them, which are read as zeros.
//
// The host defines F_LATE, by how many pixels each channel's plane lies further on in the map than the one before, beside
// what weights_gradient_lines.cu asks for. The map of the output's gradient is {run, channels together, those, images}.
#include "kernels/sm90/weights_gradient_lines_base.cuh"

constexpr int kLate = F_LATE;
static_assert(!kTurns, "NCHW");

#include "kernels/sm90/weights_gradient_run.cuh"

constexpr int kTogether = channels_together(kConfig, kLate);

__device__ __forceinline__ void produce_dy(const TensorMap& map, const Params& p, const Work& work, int row_pixels,
                                           unsigned stages, Barriers& barriers) {
  Ring<kLines> stage;
  Pixel first = first_pixel(p, work.first);
  for (int tile = work.first; tile < work.end; ++tile) {
    const int rows = rows_of(p, first);
#pragma unroll 1
    for (int row = first.h; row < first.h + rows; ++row) {
      const unsigned full = smem_address(&barriers.dy_full[stage.place]), to = stages + stage.place * kLineBytes;
      barrier_wait(smem_address(&barriers.dy_empty[stage.place]), stage.parity ^ 1);
      barrier_expect(full, kLineBytes);
      load_4d(to, &map, full, box_start(kConfig, row, row_pixels, first.w), 0, work.k / kTogether, first.n);
      stage.advance();
    }
    first = next_pixel(p, first);
  }
}

#include "kernels/sm90/weights_gradient_prepare.cuh"

#include "kernels/sm90/weights_gradient_lines_multiply.cuh"

__device__ __forceinline__ void consume(Sums& sums, const Params& p, const Work& work, int row_pixels,
                                        unsigned x_stages, unsigned dy_stages, Barriers& barriers, int consumer) {
  Ring<kStages> x_stage;
  Ring<kLines> dy_stage;
  Line line(consumer, row_pixels);
  const bool leader = threadIdx.x % 32 == 0;
  // Where the next row begins, once it is there.
  const auto wait_for_row = [&](int row) {
    barrier_wait(smem_address(&barriers.dy_full[dy_stage.place]), dy_stage.parity);
    return dy_stages + dy_stage.place * kLineBytes + row_shift(kConfig, row, row_pixels) * kElement;
  };
  Pixel first = first_pixel(p, work.first);
  line.begin_tile(first.w);
  unsigned a[2][4];
  unsigned dy = 0;
  if (!kTwoParts && work.first < work.end) {
    dy = wait_for_row(first.h);
    line.load(a[0], dy, 0);
  }
  for (int tile = work.first; tile < work.end; ++tile) {
    const int rows = rows_of(p, first);
    const Pixel next = next_pixel(p, first);
    barrier_wait(smem_address(&barriers.x_full[x_stage.place]), x_stage.parity);
    unsigned x = x_stages + x_stage.place * kStageStride;
    for (int row = 0; row < rows; ++row) {
      const unsigned empty = smem_address(&barriers.dy_empty[dy_stage.place]);
      if constexpr (kTwoParts) {
        Sums of_row;
        multiply_parts(of_row, line, wait_for_row(first.h + row), x);
        dy_stage.advance();
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) sums[i] += of_row[i];
      } else {
        multiply(sums, a, line, dy, x, [&] {
          dy_stage.advance();
          if (row + 1 < rows) {
            dy = wait_for_row(first.h + row + 1);
          } else if (tile + 1 < work.end) {
            line.begin_tile(next.w);
            dy = wait_for_row(next.h);
          }
          return dy;
        });
      }
      if (leader) barrier_arrive(empty);
      x += kConfig.stride_h * kPlanesBytes;
    }
    if (leader) barrier_arrive(smem_address(&barriers.x_empty[x_stage.place]));
    x_stage.advance();
    first = next;
    if (kTwoParts) line.begin_tile(first.w);
  }
}

#include "kernels/sm90/weights_gradient_lines_sums.cuh"

// row_pixels: of dy.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    weights_gradient_runs(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap dy_map,
                          const __grid_constant__ Params p, int row_pixels) {
  extern __shared__ unsigned char memory[];
  const unsigned x_stages = (smem_address(memory) + 1023) / 1024 * 1024,
                 dy_stages = x_stages + kStages * kStageStride;
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
    if (helper == 0) produce_x(x_map, p, work, x_stages, barriers);
    if (helper == 32) produce_dy(dy_map, p, work, row_pixels, dy_stages, barriers);
    if (kPrepares && helper >= 64) prepare(work, x_stages, barriers, helper / 32 - 2, helper % 32);
  } else {
    if constexpr (kConsumers == 3) registers_up<144>();
    Sums sums;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    consume(sums, p, work, row_pixels, x_stages, dy_stages, barriers, consumer);
    finish(sums, p, work, x_stages, consumer);
  }
}
