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

// partial: images x chunks x groups of channels beside each other x squeezed, what each block's means come to in the layer that squeezes.
extern "C" __global__ void __launch_bounds__(kThreads, 2) squeeze(const Vector* x, const Vector* down, float* partial, Int rows,
                                                                  Int channels, Int squeezed, Int chunks, Int chunk_rows, Int across) {
  __shared__ float shared[kThreads * kVector];
  const unsigned parts = (unsigned)chunks;
  const int beside = (int)across, width = beside * kVector, vectors = (int)channels / kVector, small = (int)squeezed;
  const Int image = blockIdx.y / parts;
  const Place p(rows, chunk_rows, across, blockIdx.y % parts);
  follow_previous(down, squeezed * channels * (Int)sizeof(unsigned short));
  const float mean = sum_of_rows(x + image * rows * vectors, p, vectors, width, shared) / (float)rows;
  __syncthreads();
  if ((int)threadIdx.x < width) shared[threadIdx.x % kVector * beside + threadIdx.x / kVector] = mean;  // a vector's neighbours: other banks
  __syncthreads();
  partial += ((Int)blockIdx.y * gridDim.x + blockIdx.x) * small;
  const int lane = threadIdx.x % kLanes;
#pragma unroll 4
  for (int first = 0; first < small; first += kThreads / kLanes) {
    const int s = first + threadIdx.x / kLanes;
    float dot = 0.0f;
    if (s < small && lane < beside) {
      const Vector a = down[s * vectors + (int)blockIdx.x * beside + lane];
#pragma unroll
      for (int i = 0; i < kVector; ++i) dot = fmaf(from_bits(a.v[i]), shared[i * beside + lane], dot);
    }
    dot = add_lanes(dot, kLanes);
    if (lane == 0 && s < small) partial[s] = dot;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) excite(
    const Vector* x, const float* partial, const unsigned short* down_bias, const unsigned short* up, const unsigned short* up_bias,
    Vector* y, Int rows, Int channels, Int squeezed, Int chunks, Int chunk_rows, Int across, Int is_hard) {
  __shared__ float sums[kThreads];
  __shared__ float inputs[kMostSqueezed];
  __shared__ float gates[kMostWidth];
  const unsigned parts = (unsigned)chunks;
  const int vectors = (int)channels / kVector, small = (int)squeezed, blocks = (int)(parts * gridDim.x);  // of an image
  const Int image = blockIdx.y / parts;
  const Place p(rows, chunk_rows, across, blockIdx.y % parts);
  const int groups = kThreads / small < blocks ? kThreads / small : blocks;  // of threads that add some of the blocks' parts
  const int group = threadIdx.x / small, mine = threadIdx.x % small;
  follow_previous(up, squeezed * channels * (Int)sizeof(*up));
  partial += image * blocks * small;
  float sum = 0.0f;
  if (group < groups)
#pragma unroll 4
    for (int k = group; k < blocks; k += groups) sum += partial[k * small + mine];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if ((int)threadIdx.x < small) {
    for (int k = 1; k < groups; ++k) sum += sums[k * small + threadIdx.x];
    inputs[threadIdx.x] = activated(sum + bias_of(down_bias, threadIdx.x));
  }
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
