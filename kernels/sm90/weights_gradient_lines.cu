#include "kernels/sm90/weights_gradient_lines_base.cuh"  // which says what is computed, and how

__device__ __forceinline__ void produce_dy(const TensorMap& map, const Params& p, const Work& work, unsigned stages,
                                           Barriers& barriers) {
  Ring<kLines> stage;
  for (int tile = work.first; tile < work.end; ++tile) {
    const Pixel first = first_pixel(p, tile);
    const int rows = rows_of(p, first);
#pragma unroll 1
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

#include "kernels/sm90/weights_gradient_lines_multiply.cuh"

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

#include "kernels/sm90/weights_gradient_lines_sums.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    weights_gradient_lines(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap dy_map,
                          const __grid_constant__ Params p) {
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
    if (helper == 32) produce_dy(dy_map, p, work, dy_stages, barriers);
    if (kPrepares && helper >= 64) prepare(work, x_stages, barriers, helper / 32 - 2, helper % 32);
  } else {
    if constexpr (kConsumers == 3) registers_up<144>();
    Sums sums;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    consume(sums, p, work, x_stages, dy_stages, barriers, consumer);
    finish(sums, p, work, x_stages, consumer);
  }
}
