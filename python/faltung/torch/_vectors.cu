// What kernels of vectors of 16-bit floats share: activations, and sums over the rows of channels-last tensors of rows x channels. A
// block has `across` vectors of 8 channels beside each other and as many rows as its threads hold; blockIdx.x is the group of channels.
// Sums are combined in one order, whatever block comes last: results are the same bits in every run.
// IS_BF16 (else f16) and ACTIVATION (0 none, 1 ReLU, 2 SiLU) are given.
typedef long long Int;
constexpr int kThreads = 512, kVector = 8;
struct alignas(16) Vector {
  unsigned short v[kVector];
};

#ifdef __CUDACC_RTC__  // else a test has them
__device__ __forceinline__ float from_bits(unsigned short u) {
#if IS_BF16
  return __uint_as_float((unsigned)u << 16);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(u));
  return f;
#endif
}

__device__ __forceinline__ unsigned short to_bits(float f) {
  unsigned short u;
#if IS_BF16
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(u) : "f"(f));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(u) : "f"(f));
#endif
  return u;
}
#endif

// In every kernel before it reads or writes, since on Hopper and later they are launched so that they may overlap their neighbours: the
// next one may begin, as far as it reads nothing that this one writes, and from here on what the one before wrote is there. weights: which
// all blocks together bring nearer meanwhile, to a place that whatever writes them writes to, too.
__device__ __forceinline__ void follow_previous(const void* weights = nullptr, Int bytes = 0) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr Int kLine = 128;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const Int blocks = (Int)gridDim.x * gridDim.y, block = (Int)blockIdx.y * gridDim.x + blockIdx.x;
  for (Int at = (block * kThreads + threadIdx.x) * kLine; at < bytes; at += blocks * kThreads * kLine)
    asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)weights + at));
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ float activated(float z) {
#if ACTIVATION == 1
  return z > 0.0f || z != z ? z : 0.0f;
#elif ACTIVATION == 2
  return __fdividef(z, 1.0f + __expf(-z));  // 0 where the divisor is too large for it
#else
  return z;
#endif
}

constexpr int kAhead = 4;  // vectors that a thread has on their way

// use(at, from[at]) of `count` places from `at` on.
template <class Use>
__device__ __forceinline__ void each(const Vector* __restrict__ from, Int at, int count, Int step, Use use) {
  for (; count >= kAhead; count -= kAhead, at += kAhead * step) {
    Vector a[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) a[k] = from[at + k * step];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) use(at + k * step, a[k]);
  }
#pragma unroll 1
  for (; count > 0; --count, at += step) use(at, from[at]);
}

struct Place {
  int column, row, rows_a_step;
  Int begin, end;  // rows of the chunk
  bool works;
  __device__ Place(Int rows, Int chunk_rows, Int across, Int chunk) {
    const int lane = threadIdx.x % (int)across;
    row = threadIdx.x / (int)across;
    rows_a_step = kThreads / (int)across;
    column = ((int)blockIdx.x * (int)across + lane) * kVector;
    works = row < rows_a_step;
    begin = chunk * chunk_rows;
    end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  }
  // That a thread has.
  __device__ int count() const { return works ? ((int)(end - begin) - row + rows_a_step - 1) / rows_a_step : 0; }
};

// Whether this block is the last of so many that have the counter; what the others wrote is then seen.
__device__ bool is_last(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(counter, blocks - 1) == blocks - 1;
  __syncthreads();
  __threadfence();
  return last;
}

// The sums over the block's rows, of every channel: in totals[channel in the block], both.
__device__ __forceinline__ void add_rows(const float* s1, const float* s2, int lanes, int rows, bool works, float* shared,
                                         float2* totals) {
  if (works)
    for (int i = 0; i < kVector; ++i) {
      shared[(threadIdx.x * 2) * kVector + i] = s1[i];
      shared[(threadIdx.x * 2 + 1) * kVector + i] = s2[i];
    }
  __syncthreads();
  const int width = lanes * 2 * kVector, parts = kThreads / width, which = threadIdx.x % width, part = threadIdx.x / width;
  float sum = 0.0f;
  if (part < parts)
    for (int r = part; r < rows; r += parts) sum += shared[r * width + which];
  __syncthreads();
  if (part < parts) shared[threadIdx.x] = sum;
  __syncthreads();
  if (part == 0) {
    for (int k = 1; k < parts; ++k) sum += shared[threadIdx.x + k * width];
    float* to = (float*)&totals[which / (2 * kVector) * kVector + which % kVector];
    to[which / kVector % 2] = sum;
  }
  __syncthreads();
}

// The sum of v over the threads whose numbers differ by multiples of width, in one order; to those below width.
__device__ __forceinline__ float add_parts(float v, int width, int parts, float* shared) {
  __syncthreads();
  shared[threadIdx.x] = v;
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < parts; ++k) sum += shared[threadIdx.x % width + k * width];
  return sum;
}

// The mean and the sum of squares about it, of every channel of the block's over its chunk's rows: in moments[channel in the block].
__device__ __forceinline__ void measure(const Vector* __restrict__ x, const Place& p, Int stride, int lanes, float* shared,
                                        float2* moments) {
  float shift[kVector] = {}, s1[kVector] = {}, s2[kVector] = {};  // of what is left above the chunk's first row
  if (p.works && p.begin < p.end) {
    const Vector* at = x + p.column / kVector;
    const Vector first = at[p.begin * stride];
    for (int i = 0; i < kVector; ++i) shift[i] = from_bits(first.v[i]);
    each(at, (p.begin + p.row) * stride, p.count(), p.rows_a_step * stride, [&](Int, const Vector& a) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float d = from_bits(a.v[i]) - shift[i];
        s1[i] += d;
        s2[i] = fmaf(d, d, s2[i]);
      }
    });
  }
  add_rows(s1, s2, lanes, p.rows_a_step, p.works, shared, moments);
  if ((int)threadIdx.x < lanes && p.begin < p.end) {  // the threads of the first row have their channels' shift
    const float n = (float)(p.end - p.begin);
    for (int i = 0; i < kVector; ++i) {
      float2& m = moments[threadIdx.x * kVector + i];
      const float mean = m.x / n;
      m = make_float2(shift[i] + mean, fmaxf(m.y - m.x * mean, 0.0f));
    }
  }
  __syncthreads();
}

// The sum over the block's rows of one of its channels, blockIdx.x * width + threadIdx.x % width, to threads below width, which is
// 8 * across; of an image that begins at `from`. shared: kThreads * kVector.
__device__ __forceinline__ float sum_of_rows(const Vector* from, const Place& p, Int vectors, int width, float* shared) {
  const int parts = kThreads / width, which = threadIdx.x % width, part = threadIdx.x / width;
  float sum[kVector] = {};
  each(from + p.column / kVector, (p.begin + p.row) * vectors, p.count(), (Int)p.rows_a_step * vectors, [&](Int, const Vector& a) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] += from_bits(a.v[i]);
  });
  for (int i = 0; i < kVector; ++i) shared[threadIdx.x * kVector + i] = sum[i];
  __syncthreads();
  float total = 0.0f;
  if (part < parts)
    for (int r = part; r < p.rows_a_step; r += parts) total += shared[r * width + which];
  return add_parts(total, width, parts, shared);
}
