// Batch norm in training with the activation that follows it, on channels-last tensors of rows x channels. A block has `across` vectors
// of 8 channels beside each other and as many rows as its threads hold; blockIdx.x is the group of channels, blockIdx.y the chunk of
// rows. Sums are combined in one order, whatever block comes last: results are the same bits in every run.
// IS_BF16 (else f16) and ACTIVATION (0 none, 1 ReLU, 2 SiLU) are given. Every parameter has 8 bytes.
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

__device__ __forceinline__ float activated(float z) {
#if ACTIVATION == 1
  return z > 0.0f || z != z ? z : 0.0f;
#elif ACTIVATION == 2
  return z / (1.0f + __expf(-z));
#else
  return z;
#endif
}
// The gradient at z, which the activation was given as T has it.
__device__ __forceinline__ float behind(float dy, float z) {
#if ACTIVATION == 1
  return from_bits(to_bits(z)) <= 0.0f ? 0.0f : dy;
#elif ACTIVATION == 2
  const float s = 1.0f / (1.0f + __expf(-z));
  return dy * s * (1.0f + z * (1.0f - s));
#else
  return dy;
#endif
}

struct Place {
  int column, row, rows_a_step;
  Int begin, end;  // rows of the chunk
  bool works;
  __device__ Place(Int rows, Int chunk_rows, Int across) {
    const int lane = threadIdx.x % (int)across;
    row = threadIdx.x / (int)across;
    rows_a_step = kThreads / (int)across;
    column = ((int)blockIdx.x * (int)across + lane) * kVector;
    works = row < rows_a_step;
    begin = blockIdx.y * chunk_rows;
    end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  }
};

// Whether this block is the last of its group of channels; what the others wrote is then seen.
__device__ bool is_last(unsigned* counters) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(&counters[blockIdx.x], gridDim.y - 1) == gridDim.y - 1;
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

// save: mean, 1/std, factor and shift, each of `channels`. partial: chunks x channels x (mean, m2).
extern "C" __global__ void __launch_bounds__(kThreads, 2) statistics(
    const Vector* x, const float* weight, const float* bias, float* running_mean, float* running_var, Int* batches, float* save,
    float2* partial, unsigned* counters, Int rows, Int channels, Int chunk_rows, Int across, double momentum, double eps) {
  __shared__ float shared[kThreads * 2 * kVector];
  __shared__ float2 totals[kThreads];
  const Place p(rows, chunk_rows, across);
  const Int stride = channels / kVector;
  float shift[kVector] = {}, s1[kVector] = {}, s2[kVector] = {};  // of what is left above the chunk's first row
  if (p.works && p.begin < p.end) {
    const Vector* at = x + p.column / kVector;
    const Vector first = at[p.begin * stride];
    for (int i = 0; i < kVector; ++i) shift[i] = from_bits(first.v[i]);
#pragma unroll 4
    for (Int r = p.begin + p.row; r < p.end; r += p.rows_a_step) {
      const Vector a = at[r * stride];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float d = from_bits(a.v[i]) - shift[i];
        s1[i] += d;
        s2[i] = fmaf(d, d, s2[i]);
      }
    }
  }
  const int lanes = (int)across, width = lanes * kVector, parts = kThreads / width;
  add_rows(s1, s2, lanes, p.rows_a_step, p.works, shared, totals);
  if ((int)threadIdx.x < lanes && p.begin < p.end) {  // the threads of the first row have their channels' shift
    const float n = (float)(p.end - p.begin);
    for (int i = 0; i < kVector; ++i) {
      const float2 t = totals[threadIdx.x * kVector + i];
      const float mean = t.x / n;
      partial[blockIdx.y * channels + p.column + i] = make_float2(shift[i] + mean, fmaxf(t.y - t.x * mean, 0.0f));
    }
  }
  if (!is_last(counters)) return;
  const int begin = blockIdx.x * width, c = threadIdx.x % width, part = threadIdx.x / width, chunks = part < parts ? (int)gridDim.y : 0;
  float sum = 0.0f;
#pragma unroll 8
  for (int k = part; k < chunks; k += parts) {
    const Int from = k * chunk_rows, to = from + chunk_rows < rows ? from + chunk_rows : rows;
    sum = fmaf((float)(to - from), __ldcg(&partial[k * channels + begin + c]).x, sum);
  }
  const float mean = add_parts(sum, width, parts, shared) / (float)rows;
  sum = 0.0f;
#pragma unroll 8
  for (int k = part; k < chunks; k += parts) {
    const Int from = k * chunk_rows, to = from + chunk_rows < rows ? from + chunk_rows : rows;
    const float2 b = __ldcg(&partial[k * channels + begin + c]);
    sum += fmaf((float)(to - from) * (b.x - mean), b.x - mean, b.y);
  }
  const float m2 = add_parts(sum, width, parts, shared);
  if (part == 0) {
    const float variance = m2 / (float)rows, inverse = rsqrtf(variance + (float)eps), m = (float)momentum;
    const int channel = begin + c;
    const float factor = (weight[channel]) * inverse;
    save[channel] = mean;
    save[channels + channel] = inverse;
    save[2 * channels + channel] = factor;
    save[3 * channels + channel] = fmaf(-mean, factor, bias[channel]);
    running_mean[channel] = (1.0f - m) * running_mean[channel] + m * mean;
    running_var[channel] = (1.0f - m) * running_var[channel] + m * (m2 / (float)(rows - 1));
    if (channel == 0) *batches += 1;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) normalize(const Vector* x, Vector* y, const float* save, Int rows,
                                                                    Int channels, Int chunk_rows, Int across) {
  const Place p(rows, chunk_rows, across);
  if (!p.works) return;
  float factor[kVector], shift[kVector];
  for (int i = 0; i < kVector; ++i) {
    factor[i] = save[2 * channels + p.column + i];
    shift[i] = save[3 * channels + p.column + i];
  }
  const Int stride = channels / kVector;
#pragma unroll 4
  for (Int r = p.begin + p.row; r < p.end; r += p.rows_a_step) {
    const Int at = r * stride + p.column / kVector;
    Vector a = x[at];
#pragma unroll
    for (int i = 0; i < kVector; ++i) a.v[i] = to_bits(activated(fmaf(from_bits(a.v[i]), factor[i], shift[i])));
    y[at] = a;
  }
}

// Of g, the gradient behind the activation: both sums that batch norm's gradient has. coefficients: of
// g, of x - mean, and alone, in the gradient of x.
extern "C" __global__ void __launch_bounds__(kThreads, 2) reduce(const Vector* dy, const Vector* x, const float* save,
                                                                 float* of_weight, float* of_bias, float* coefficients, float2* partial,
                                                                 unsigned* counters, Int rows, Int channels, Int chunk_rows,
                                                                 Int across) {
  __shared__ float shared[kThreads * 2 * kVector];
  __shared__ float2 totals[kThreads];
  const Place p(rows, chunk_rows, across);
  const Int stride = channels / kVector;
  float s1[kVector] = {}, s2[kVector] = {};
  if (p.works) {
    float mean[kVector], factor[kVector], shift[kVector];
    for (int i = 0; i < kVector; ++i) {
      mean[i] = save[p.column + i];
      factor[i] = save[2 * channels + p.column + i];
      shift[i] = save[3 * channels + p.column + i];
    }
#pragma unroll 2
    for (Int r = p.begin + p.row; r < p.end; r += p.rows_a_step) {
      const Int at = r * stride + p.column / kVector;
      const Vector a = x[at], b = dy[at];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float v = from_bits(a.v[i]), g = behind(from_bits(b.v[i]), fmaf(v, factor[i], shift[i]));
        s1[i] += g;
        s2[i] = fmaf(g, v - mean[i], s2[i]);
      }
    }
  }
  const int lanes = (int)across, width = lanes * kVector, parts = kThreads / width;
  add_rows(s1, s2, lanes, p.rows_a_step, p.works, shared, totals);
  const int begin = blockIdx.x * width, c = threadIdx.x % width, part = threadIdx.x / width, chunks = part < parts ? (int)gridDim.y : 0;
  if ((int)threadIdx.x < width) partial[blockIdx.y * channels + begin + c] = totals[c];
  if (!is_last(counters)) return;
  float2 own = make_float2(0.0f, 0.0f);
#pragma unroll 8
  for (int k = part; k < chunks; k += parts) {
    const float2 b = __ldcg(&partial[k * channels + begin + c]);
    own.x += b.x;
    own.y += b.y;
  }
  float2 sum;
  sum.x = add_parts(own.x, width, parts, shared);
  sum.y = add_parts(own.y, width, parts, shared);
  if (part == 0) {
    const int channel = begin + c;
    const float inverse = save[channels + channel], factor = save[2 * channels + channel];
    of_weight[channel] = sum.y * inverse;
    of_bias[channel] = sum.x;
    coefficients[channel] = -factor * inverse * inverse * sum.y / (float)rows;
    coefficients[channels + channel] = -factor * sum.x / (float)rows;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) apply(const Vector* dy, const Vector* x, Vector* dx, const float* save,
                                                                const float* coefficients, Int rows, Int channels, Int chunk_rows,
                                                                Int across) {
  const Place p(rows, chunk_rows, across);
  if (!p.works) return;
  float mean[kVector], factor[kVector], shift[kVector], of_x[kVector], alone[kVector];
  for (int i = 0; i < kVector; ++i) {
    mean[i] = save[p.column + i];
    factor[i] = save[2 * channels + p.column + i];
    shift[i] = save[3 * channels + p.column + i];
    of_x[i] = coefficients[p.column + i];
    alone[i] = coefficients[channels + p.column + i];
  }
  const Int stride = channels / kVector;
#pragma unroll 2
  for (Int r = p.begin + p.row; r < p.end; r += p.rows_a_step) {
    const Int at = r * stride + p.column / kVector;
    const Vector a = x[at], b = dy[at];
    Vector d;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float v = from_bits(a.v[i]), g = behind(from_bits(b.v[i]), fmaf(v, factor[i], shift[i]));
      d.v[i] = to_bits(fmaf(factor[i], g, fmaf(of_x[i], v - mean[i], alone[i])));
    }
    dx[at] = d;
  }
}
