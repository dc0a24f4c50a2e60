// Squeeze and excite of channels-last tensors: the mean of every channel of an image, a layer that squeezes them, its ACTIVATION, a layer
// as wide as the tensor, and a sigmoid, or what PyTorch calls a hard one, that scales the channels. Weights are of 16 bits as well,
// outputs x inputs. _vectors.cu stands before it; blockIdx.y is image x chunk.
constexpr int kLanes = 16, kMostSqueezed = 512, kMostWidth = 16 * kVector;  // kLanes: threads that share an output

__device__ __forceinline__ float opened(float z, Int is_hard) {
  if (is_hard) return z != z ? z : fminf(fmaxf(z + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
  return __fdividef(1.0f, 1.0f + __expf(-z));  // 0 where the divisor is too large for it
}

__device__ __forceinline__ float bias_of(const unsigned short* bias, int i) { return bias == nullptr ? 0.0f : from_bits(bias[i]); }

// The sum over so many neighbouring threads, a power of two, in one order; all of the block are here.
__device__ __forceinline__ float add_lanes(float v, int lanes) {
  for (int other = lanes / 2; other > 0; other /= 2) v += __shfl_xor_sync(0xffffffffu, v, other);
  return v;
}

// hidden: images x squeezed. partial: images x chunks x channels. Channels are as many as `shared` holds, at most.
extern "C" __global__ void __launch_bounds__(kThreads, 2) squeeze(
    const Vector* x, const Vector* down, const unsigned short* down_bias, float* hidden, float* partial, unsigned* counters, Int rows,
    Int channels, Int squeezed, Int chunks, Int chunk_rows, Int across) {
  __shared__ float shared[kThreads * kVector];
  const unsigned parts = (unsigned)chunks;
  const int image = (int)(blockIdx.y / parts), all = (int)channels, vectors = all / kVector, small = (int)squeezed;
  const Place p(rows, chunk_rows, across, blockIdx.y % parts);
  const int width = (int)across * kVector;
  follow_previous(down, squeezed * channels * (Int)sizeof(*down_bias));
  const float total = sum_of_rows(x + image * rows * vectors, p, vectors, width, shared);
  if ((int)threadIdx.x < width) partial[(Int)blockIdx.y * all + blockIdx.x * width + threadIdx.x] = total;
  if (!is_last(&counters[image], (unsigned)(gridDim.x * chunks))) return;
  partial += image * chunks * all;
  for (int c = threadIdx.x; c < all; c += kThreads) {
    float mean = 0.0f;
    for (int k = 0; k < (int)chunks; ++k) mean += __ldcg(&partial[k * all + c]);
    shared[c % kVector * vectors + c / kVector] = mean / (float)rows;  // so that a vector's neighbours lie in other banks
  }
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  for (int first = 0; first < small; first += kThreads / kLanes) {
    const int s = first + threadIdx.x / kLanes;
    float dot = 0.0f;
    if (s < small)
#pragma unroll 4
      for (int v = lane; v < vectors; v += kLanes) {
        const Vector a = down[s * vectors + v];
#pragma unroll
        for (int i = 0; i < kVector; ++i) dot = fmaf(from_bits(a.v[i]), shared[i * vectors + v], dot);
      }
    dot = add_lanes(dot, kLanes);
    if (lane == 0 && s < small) hidden[image * small + s] = activated(dot + bias_of(down_bias, s));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) excite(
    const Vector* x, const float* hidden, const unsigned short* up, const unsigned short* up_bias, Vector* y, Int rows, Int channels,
    Int squeezed, Int chunks, Int chunk_rows, Int across, Int is_hard) {
  __shared__ float inputs[kMostSqueezed];
  __shared__ float gates[kMostWidth];
  const unsigned parts = (unsigned)chunks;
  const int image = (int)(blockIdx.y / parts), vectors = (int)channels / kVector, small = (int)squeezed;
  const Place p(rows, chunk_rows, across, blockIdx.y % parts);
  follow_previous(up, squeezed * channels * (Int)sizeof(*up));
  for (int s = threadIdx.x; s < small; s += kThreads) inputs[s] = hidden[image * small + s];
  __syncthreads();
  const int width = (int)across * kVector;
  int lanes = kLanes;
  while (lanes * width > kThreads) lanes /= 2;
  const int lane = threadIdx.x % lanes, which = threadIdx.x / lanes, channel = blockIdx.x * width + which;
  float dot = 0.0f;
  if (which < width)
#pragma unroll 4
    for (int s = lane; s < small; s += lanes) dot = fmaf(from_bits(up[channel * small + s]), inputs[s], dot);
  dot = add_lanes(dot, lanes);
  if (lane == 0 && which < width) gates[which] = opened(dot + bias_of(up_bias, channel), is_hard);
  __syncthreads();
  float gate[kVector];
  for (int i = 0; i < kVector; ++i) gate[i] = gates[p.column - blockIdx.x * width + i];
  const Int begin = image * rows * vectors + p.column / kVector;
  each(x + begin, (p.begin + p.row) * vectors, p.count(), (Int)p.rows_a_step * vectors, [&](Int at, const Vector& a) {
    Vector scaled;
#pragma unroll
    for (int i = 0; i < kVector; ++i) scaled.v[i] = to_bits(from_bits(a.v[i]) * gate[i]);
    y[begin + at] = scaled;
  });
}
