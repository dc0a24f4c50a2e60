// The gradient of the weights on Hopper's matrix units, 1x1 filters of NCHW whose planes the copy engine does not take: of
// a multiple of 4 pixels, not of 8. As weights_gradient.cu has it of planes, but warps bring them, 8 bytes a load, which
// write to shared memory themselves, several tiles ahead.
//
// A tile is so many pixels of all images' side by side. A thread has four of them, of every kDown-th channel.
#include "kernels/sm90/weights_gradient_products.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kAcross = kConfig.width / 4, kFetchers = kFetchWarps * 32, kDown = kFetchers / kAcross;
static_assert(kFetchers % kAcross == 0 && kDown % 8 == 0, "a thread's channels have the same place in the swizzle");

// Of one operand, so many blocks of 64 channels: what of it a thread brings, and where from.
template <int kBlocks>
struct Operand {
  const unsigned char* from;  // of the first channel and image
  long long image;            // bytes
  long long hop;              // from a channel of the thread's to the next
  int channels;               // from its first on

  __device__ __forceinline__ Operand(const void* tensor, int plane, int all, int first)
      : from(static_cast<const unsigned char*>(tensor) + static_cast<long long>(first) * plane * 8),
        image(static_cast<long long>(all) * plane * 8), hop(8ll * kDown * plane), channels(all - first) {}

  __device__ __forceinline__ void load(unsigned to, int n, int chunk, bool inside) const {
    const unsigned char* at = from + n * image + chunk * 8;
    const int left = inside ? channels : 0;
#pragma unroll
    for (int i = 0; i < kBlocks * 64 / kDown; ++i) {
      load_async<8>(to + i * kDown * 128, at, i * kDown < left);
      // One address, not one a load: the compiler would keep them all in registers.
      asm volatile("add.s64 %0, %0, %1;" : "+l"(at) : "l"(hop));
    }
  }
};

__device__ __forceinline__ void fetch(const Params& p, const Work& work, unsigned stages, Barriers& barriers,
                                      int thread) {
  const int across = thread % kAcross, first = thread / kAcross;
  const Operand<kConfig.k_blocks> dy(p.dy, p.plane, p.k, work.k + first);
  const Operand<kConfig.c_blocks> x(p.x, p.plane, p.c, work.c + first);
  const int box = across / 16, in_row = across % 16;
  const unsigned place = first * 128 + ((in_row / 2 ^ first % 8) << 4) + in_row % 2 * 8;
  const unsigned dy_place = box * kConfig.k_blocks * kPlanesBox + place,
                 x_place = kConfig.k_blocks * kGradientBytes + box * kConfig.c_blocks * kPlanesBox + place;
  int chunk = work.first * kAcross + across;
  int n = chunk / p.plane;
  chunk -= n * p.plane;

  // A tile is said to be there once the loads of all but the last so many are.
  constexpr int kAhead = kStages - 1;
  Ring<kStages> stage, loaded;
  const auto arrive = [&] {
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(smem_address(&barriers.full[loaded.place]));
    loaded.advance();
  };
  for (int tile = work.first; tile < work.end; ++tile) {
    barrier_wait(smem_address(&barriers.empty[stage.place]), stage.parity ^ 1);
    const unsigned to = stages + stage.place * kStageStride;
    const bool inside = n < p.images;
    dy.load(to + dy_place, n, chunk, inside);
    x.load(to + x_place, n, chunk, inside);
    load_async_commit();
    stage.advance();
    for (chunk += kAcross; chunk >= p.plane; chunk -= p.plane) ++n;
    if (tile - work.first >= kAhead - 1) {
      load_async_wait<kAhead - 1>();
      arrive();
    }
  }
  load_async_wait<0>();
  while (loaded.place != stage.place || loaded.parity != stage.parity) arrive();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) weights_gradient_fetch(const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned stages = stages_in(memory);
  Barriers& barriers = barriers_in(memory, stages);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(smem_address(&barriers.full[i]), kFetchWarps);
      barrier_init(smem_address(&barriers.empty[i]), kConsumers);
    }
    init_join(stages);
    barrier_init_fence();
  }
  barriers_are_there<(kCluster > 1)>();
  let_next_kernel_begin();
  const Work work = divide_work(p);
  wait_for_previous_kernel();
  const int consumer = static_cast<int>(threadIdx.x) / 128;
  if (consumer >= kConsumers) {
    fetch(p, work, stages, barriers, threadIdx.x - kConsumers * 128);
  } else {
    Sums sums;
    consume(sums, work, stages, barriers, consumer);
    finish(sums, p, work, stages, consumer);
  }
}
