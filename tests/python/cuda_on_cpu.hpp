// What CUDA kernels of python/faltung/torch/*.cu use, on the CPU: a thread for each of a block's, one
// block after the other. Floats of 16 bits are bf16.
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __expf expf
#define __restrict__ __restrict

struct Three {
  int x, y, z;
};
struct float2 {
  float x, y;
};
static thread_local Three threadIdx;
static Three blockIdx, gridDim;
static std::barrier<>* all_threads;

static float2 make_float2(float x, float y) { return {x, y}; }
static float __fdividef(float a, float b) { return a / b; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static void __threadfence() {}
static void __syncthreads() { all_threads->arrive_and_wait(); }
template <class T>
static T __ldcg(const T* from) {
  return *from;
}
static unsigned atomicInc(unsigned* at, unsigned most) {
  const unsigned old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}

// All threads of a block are in it.
static float __shfl_xor_sync(unsigned, float v, int mask) {
  static float given[1024];
  given[threadIdx.x] = v;
  __syncthreads();
  const float other = given[threadIdx.x ^ mask];
  __syncthreads();
  return other;
}

static float from_bits(unsigned short u) {
  const unsigned wide = (unsigned)u << 16;
  float f;
  memcpy(&f, &wide, sizeof f);
  return f;
}
static unsigned short to_bits(float f) {
  unsigned wide;
  memcpy(&wide, &f, sizeof f);
  return f != f ? 0x7fc0 : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
}

template <class Kernel>
static void launch(int blocks_x, int blocks_y, int threads, Kernel kernel) {
  std::barrier<> barrier(threads);
  all_threads = &barrier;
  gridDim = {blocks_x, blocks_y, 1};
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([=] {
      threadIdx = {i, 0, 0};
      for (int block = 0; block < blocks_x * blocks_y; ++block) {
        __syncthreads();
        if (i == 0) blockIdx = {block % blocks_x, block / blocks_x, 0};
        __syncthreads();
        kernel();
      }
    });
  for (std::thread& thread : pool) thread.join();
}
