// Squeeze and excite of channels-last tensors: the mean of every channel of an image, a layer that squeezes them, its ACTIVATION, a layer
// as wide as the tensor, and a sigmoid, or what PyTorch calls a hard one. Weights are of 16 bits as well, outputs x inputs.
constexpr int kLanes = 16, kMostSqueezed = 512;  // threads that share an output of the first layer

__device__ __forceinline__ float opened(float z, Int is_hard) {
  if (is_hard) return z != z ? z : fminf(fmaxf(z + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
  return __fdividef(1.0f, 1.0f + __expf(-z));  // 0 where the divisor is too large for it
}

__device__ __forceinline__ float bias_of(const unsigned short* bias, int i) { return bias == nullptr ? 0.0f : from_bits(bias[i]); }

// blockIdx.y is image x chunk. partial: images x chunks x channels. Channels are as many as `shared` holds, at most.
extern "C" __global__ void __launch_bounds__(kThreads, 2) gate(
    const Vector* x, const Vector* down, const unsigned short* down_bias, const unsigned short* up, const unsigned short* up_bias,
    unsigned short* y, float* partial, unsigned* counters, Int rows, Int channels, Int squeezed, Int chunks, Int chunk_rows, Int across,
    Int is_hard) {
  __shared__ float shared[kThreads * kVector];
  __shared__ float hidden[kMostSqueezed];
  const int image = (int)(blockIdx.y / chunks), all = (int)channels, vectors = all / kVector, small = (int)squeezed;
  const Place p(rows, chunk_rows, across, blockIdx.y % chunks);
  float sum[kVector] = {};
  each(x + image * rows * vectors + p.column / kVector, (p.begin + p.row) * vectors, p.count(), (Int)p.rows_a_step * vectors,
       [&](Int, const Vector& a) {
#pragma unroll
         for (int i = 0; i < kVector; ++i) sum[i] += from_bits(a.v[i]);
       });
  for (int i = 0; i < kVector; ++i) shared[threadIdx.x * kVector + i] = sum[i];
  __syncthreads();
  const int width = (int)across * kVector, parts = kThreads / width, which = threadIdx.x % width, part = threadIdx.x / width;
  float total = 0.0f;
  if (part < parts)
    for (int r = part; r < p.rows_a_step; r += parts) total += shared[r * width + which];
  total = add_parts(total, width, parts, shared);
  if (part == 0) partial[(Int)blockIdx.y * all + blockIdx.x * width + which] = total;
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
      for (int v = lane; v < vectors; v += kLanes) {
        const Vector a = down[s * vectors + v];
#pragma unroll
        for (int i = 0; i < kVector; ++i) dot = fmaf(from_bits(a.v[i]), shared[i * vectors + v], dot);
      }
    __shared__ float lanes[kThreads];
    lanes[threadIdx.x] = dot;
    __syncthreads();
    if (lane == 0 && s < small) {
      for (int k = 1; k < kLanes; ++k) dot += lanes[threadIdx.x + k];
      hidden[s] = activated(dot + bias_of(down_bias, s));
    }
    __syncthreads();
  }
  for (int c = threadIdx.x; c < all; c += kThreads) {
    float dot = bias_of(up_bias, c);
#pragma unroll 8
    for (int s = 0; s < small; ++s) dot = fmaf(from_bits(up[c * small + s]), hidden[s], dot);
    y[image * all + c] = to_bits(opened(dot, is_hard));
  }
}
