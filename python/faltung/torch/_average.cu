// The mean of every channel of an image, of channels-last tensors. _vectors.cu stands before it; blockIdx.y is image x chunk. partial:
// images x chunks x channels, and a counter for each image and each group of channels beside each other, where there are several chunks.
extern "C" __global__ void __launch_bounds__(kThreads, 2) average(const Vector* x, unsigned short* y, float* partial, unsigned* counters,
                                                                  Int rows, Int channels, Int chunks, Int chunk_rows, Int across) {
  __shared__ float shared[kThreads * kVector];
  const unsigned parts = (unsigned)chunks;
  const int width = (int)across * kVector, c = blockIdx.x * width + threadIdx.x;
  const Int image = blockIdx.y / parts, vectors = channels / kVector;
  const Place p(rows, chunk_rows, across, blockIdx.y % parts);
  follow_previous();
  float total = sum_of_rows(x + image * rows * vectors, p, vectors, width, shared);
  if (chunks > 1) {
    if ((int)threadIdx.x < width) partial[blockIdx.y * channels + c] = total;
    if (!is_last(&counters[image * gridDim.x + blockIdx.x], parts)) return;
    total = 0.0f;
    if ((int)threadIdx.x < width)
      for (Int k = 0; k < chunks; ++k) total += __ldcg(&partial[(image * chunks + k) * channels + c]);
  }
  if ((int)threadIdx.x < width) y[image * channels + c] = to_bits(total / (float)rows);
}
