// Group norm with the activation that follows it; _vectors.cu stands before it. Of channels-last tensors blockIdx.y is the chunk of rows of
// an image, one image after the other; of contiguous ones (planes) a group is one run of memory. save: factor and shift, each of images x
// channels. Every parameter has 8 bytes.

// What weight and bias are: nothing, f32 or of the tensor's dtype.
__device__ __forceinline__ float parameter(const void* from, Int kind, Int channel, float otherwise) {
  if (kind == 0) return otherwise;
  return kind == 1 ? ((const float*)from)[channel] : from_bits(((const unsigned short*)from)[channel]);
}

__device__ __forceinline__ void write_channel(float* save, Int all, Int at, Int channel, const void* weight, const void* bias, Int weights,
                                              Int biases, float2 mean_and_inverse) {
  const float factor = parameter(weight, weights, channel, 1.0f) * mean_and_inverse.y;
  save[at] = factor;
  save[all + at] = fmaf(-mean_and_inverse.x, factor, parameter(bias, biases, channel, 0.0f));
}

__device__ __forceinline__ int least(Int a, Int b) { return (int)(a < b ? a : b); }
__device__ __forceinline__ int most(Int a, Int b) { return (int)(a < b ? b : a); }

// partial: of every chunk of an image, and in it of every group of channels, (mean, m2) of the `slots` norm groups that it may have a
// part of.
extern "C" __global__ void __launch_bounds__(kThreads, 2) row_statistics(
    const Vector* x, const void* weight, const void* bias, float* save, float2* partial, unsigned* counters, Int images, Int rows,
    Int channels, Int groups, Int chunks, Int chunk_rows, Int across, Int slots, Int weights, Int biases, double eps) {
  follow_previous();
  __shared__ float shared[kThreads * 2 * kVector];
  __shared__ float2 moments[kThreads];
  const Int image = blockIdx.y / chunks, size = channels / groups;
  const Place p(rows, chunk_rows, across, blockIdx.y % chunks);
  const int lanes = (int)across, width = lanes * kVector, begin = blockIdx.x * width, first = begin / (int)size;
  measure(x + image * rows * (channels / kVector), p, channels / kVector, lanes, shared, moments);
  const Int line = gridDim.x * slots;  // of a chunk's partials
  if (threadIdx.x < slots) {
    const Int group = first + (Int)threadIdx.x;
    const int from = most(group * size - begin, 0), to = least((group + 1) * size - begin, width);
    float mean = 0.0f, m2 = 0.0f;
    for (int c = from; c < to; ++c) mean += moments[c].x - moments[from].x;
    mean = to > from ? moments[from].x + mean / (float)(to - from) : 0.0f;
    for (int c = from; c < to; ++c) {
      const float d = moments[c].x - mean;
      m2 += fmaf((float)(p.end - p.begin) * d, d, moments[c].y);
    }
    partial[blockIdx.y * line + blockIdx.x * slots + threadIdx.x] = make_float2(mean, m2);
  }
  if (!is_last(&counters[image], (unsigned)(gridDim.x * chunks))) return;
  partial += image * chunks * line;
  const int beside = least(groups, kThreads), parts = kThreads / beside, part = threadIdx.x / beside, all = (int)chunks;
  const int chunk = (int)chunk_rows, of_group = (int)size, next = (int)line;
  for (int tile = 0; tile < (int)groups; tile += beside) {
    const int group = tile + threadIdx.x % beside, left = group * of_group, right = left + of_group;  // channels
    const bool works = part < parts && group < (int)groups;
    const int stop = works ? (right - 1) / width : -1;
    float shift = 0.0f, mean = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {  // the sum of what is above the first mean, then of the squares about the mean
      float sum = 0.0f;
      for (int b = left / width; b <= stop; ++b) {
        const float2* at = partial + b * (int)slots + group - b * width / of_group;
        const int of_both = least(right, (b + 1) * width) - most(left, b * width);
        if (pass == 0 && b == left / width) shift = __ldcg(at).x;
#pragma unroll 2
        for (int k = part; k < all; k += parts) {
          const float n = (float)of_both * (float)least(rows - (Int)k * chunk, chunk);
          const float2 m = __ldcg(at + k * next);
          const float d = m.x - (pass == 0 ? shift : mean);
          sum += pass == 0 ? n * d : fmaf(n * d, d, m.y);
        }
      }
      sum = add_parts(sum, beside, parts, shared);
      __syncthreads();
      if (part == 0 && works) {
        mean = pass == 0 ? shift + sum / ((float)rows * (float)of_group) : mean;
        moments[threadIdx.x] = make_float2(mean, rsqrtf(sum / ((float)rows * (float)of_group) + (float)eps));
      }
      __syncthreads();
      mean = moments[threadIdx.x % beside].x;
    }
    const int end = least(tile + beside, groups) * of_group;
    for (int c = tile * of_group + threadIdx.x; c < end; c += kThreads)
      write_channel(save, images * channels, image * channels + c, c, weight, bias, weights, biases, moments[c / of_group - tile]);
    __syncthreads();
  }
}

// From the last row to the first: what was read last may still be in the cache.
extern "C" __global__ void __launch_bounds__(kThreads, 2) row_normalize(const Vector* __restrict__ x, Vector* __restrict__ y,
                                                                        const float* save, Int images, Int rows, Int channels,
                                                                        Int chunks, Int chunk_rows, Int across) {
  follow_previous();
  const Int image = blockIdx.y / chunks, stride = channels / kVector;
  const Place p(rows, chunk_rows, across, blockIdx.y % chunks);
  if (!p.works) return;
  float factor[kVector], shift[kVector];
  for (int i = 0; i < kVector; ++i) {
    factor[i] = save[image * channels + p.column + i];
    shift[i] = save[(images + image) * channels + p.column + i];
  }
  each(x + image * rows * stride, (p.end - 1 - p.row) * stride + p.column / kVector, p.count(), -p.rows_a_step * stride,
       [&, to = y + image * rows * stride](Int at, Vector a) {
#pragma unroll
         for (int i = 0; i < kVector; ++i) a.v[i] = to_bits(activated(fmaf(from_bits(a.v[i]), factor[i], shift[i])));
         to[at] = a;
       });
}

// The sum over the block, in one order, to every thread.
__device__ __forceinline__ float total(float v, float* shared) {
  constexpr int kBeside = 16;
  v = add_parts(v, kBeside, kThreads / kBeside, shared);
  return add_parts(v, 1, kBeside, shared);
}

// A group's run has `length` vectors, in chunks; blockIdx.x is the run, blockIdx.y the chunk. partial: runs x chunks of (mean, m2).
extern "C" __global__ void __launch_bounds__(kThreads, 2) plane_statistics(
    const Vector* x, const void* weight, const void* bias, float* save, float2* partial, unsigned* counters, Int images, Int channels,
    Int groups, Int length, Int chunk_length, Int weights, Int biases, double eps) {
  follow_previous();
  __shared__ float shared[kThreads];
  const Int run = blockIdx.x, chunks = gridDim.y, begin = blockIdx.y * chunk_length, end = least(begin + chunk_length, length);
  const Vector* from = x + run * length;
  const float shift = from_bits(from[begin].v[0]);
  float s1[kVector] = {}, s2[kVector] = {};
  each(from, begin + threadIdx.x, (int)(end - begin - threadIdx.x + kThreads - 1) / kThreads, kThreads, [&](Int, const Vector& a) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float d = from_bits(a.v[i]) - shift;
      s1[i] += d;
      s2[i] = fmaf(d, d, s2[i]);
    }
  });
  for (int i = 1; i < kVector; ++i) {
    s1[0] += s1[i];
    s2[0] += s2[i];
  }
  const float t1 = total(s1[0], shared), t2 = total(s2[0], shared), mean_above = t1 / (float)((end - begin) * kVector);
  partial += run * chunks;
  if (threadIdx.x == 0) partial[blockIdx.y] = make_float2(shift + mean_above, fmaxf(t2 - t1 * mean_above, 0.0f));
  if (!is_last(&counters[run], (unsigned)chunks)) return;
  const float all = (float)(length * kVector), base = __ldcg(partial).x;
  float sum = 0.0f, mean = 0.0f;
  for (int pass = 0; pass < 2; ++pass) {
    sum = 0.0f;
    for (Int k = threadIdx.x; k < chunks; k += kThreads) {
      const float n = (float)((least((k + 1) * chunk_length, length) - k * chunk_length) * kVector);
      const float2 m = __ldcg(&partial[k]);
      const float d = m.x - (pass == 0 ? base : mean);
      sum += pass == 0 ? n * d : fmaf(n * d, d, m.y);
    }
    sum = total(sum, shared) / all;
    if (pass == 0) mean = base + sum;
  }
  const Int size = channels / groups, channel = run % groups * size;
  for (Int c = threadIdx.x; c < size; c += kThreads)
    write_channel(save, images * channels, run * size + c, channel + c, weight, bias, weights, biases,
                  make_float2(mean, rsqrtf(sum + (float)eps)));
}

// planes: images x channels, of `length` vectors each; a block has `chunk_length` of all vectors, whose number has 31 bits.
extern "C" __global__ void __launch_bounds__(kThreads, 2) plane_normalize(const Vector* __restrict__ x, Vector* __restrict__ y,
                                                                          const float* save, Int planes, Int length, Int chunk_length) {
  follow_previous();
  const int begin = (int)(blockIdx.x * chunk_length), end = least(begin + chunk_length, planes * length);
  const int last = end - 1 - (int)threadIdx.x;
  each(x, last, (last - begin + kThreads) / kThreads, -kThreads, [&](Int at, Vector a) {
    const unsigned plane = (unsigned)at / (unsigned)length;
    const float factor = save[plane], shift = save[planes + plane];
#pragma unroll
    for (int i = 0; i < kVector; ++i) a.v[i] = to_bits(activated(fmaf(from_bits(a.v[i]), factor, shift)));
    y[at] = a;
  });
}
