// Batch norm in training with the activation that follows it, on channels-last tensors; _vectors.cu stands before it. blockIdx.y is the
// chunk of rows. Every parameter has 8 bytes.

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

// save: mean, 1/std, factor and shift, each of `channels`. partial: chunks x channels x (mean, m2).
extern "C" __global__ void __launch_bounds__(kThreads, 2) statistics(
    const Vector* x, const float* weight, const float* bias, float* running_mean, float* running_var, Int* batches, float* save,
    float2* partial, unsigned* counters, Int rows, Int channels, Int chunk_rows, Int across, double momentum, double eps) {
  follow_previous();
  __shared__ float shared[kThreads * 2 * kVector];
  __shared__ float2 totals[kThreads];
  const Place p(rows, chunk_rows, across, blockIdx.y);
  const Int stride = channels / kVector;
  const int lanes = (int)across, width = lanes * kVector, parts = kThreads / width;
  measure(x, p, stride, lanes, shared, totals);
  const int begin = blockIdx.x * width, c = threadIdx.x % width, part = threadIdx.x / width, chunks = part < parts ? (int)gridDim.y : 0;
  if (part == 0) partial[blockIdx.y * channels + begin + c] = totals[c];
  if (!is_last(&counters[blockIdx.x], gridDim.y)) return;
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
  follow_previous();
  const Place p(rows, chunk_rows, across, blockIdx.y);
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
  follow_previous();
  __shared__ float shared[kThreads * 2 * kVector];
  __shared__ float2 totals[kThreads];
  const Place p(rows, chunk_rows, across, blockIdx.y);
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
  if (!is_last(&counters[blockIdx.x], gridDim.y)) return;
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
  follow_previous();
  const Place p(rows, chunk_rows, across, blockIdx.y);
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
