// An elementwise chain of an image in NHWC and its gate, a number a channel: SECOND(bias + weights times the hidden layer),
// which a block computes for its channels first. Squeeze-excite: the hidden layer is FIRST(bias + weights times the
// averages), which every block computes for itself (HAS_LAYER), or was computed before.
//
// A block takes `lanes` times V channels (grid dimension 1), of a part of the pixels (2) of an image (0). Weights lie with
// the layer's inputs together for FIRST, with its results together for SECOND. The host defines THREADS; BLOCKS, how many
// a unit has at once; MOST_LANES, and MOST_HIDDEN with HAS_LAYER; IMAGE_TYPE, SQUEEZED_TYPE, WEIGHT_TYPE, RESULT_TYPE;
// FIRST(x) and SECOND(x) in the words of chain.h; CHAIN and RESULT, of the floats IMAGE and GATE; and what elements.h asks
// for.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/chain.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

#define PARTS 16  // threads that share a sum of the hidden layer
#define LINE (PARTS + 1)

F_DENSE_KERNEL(THREADS, BLOCKS)
gate(F_INPUT(JOINED(IMAGE_TYPE, _t), x), F_INPUT(JOINED(SQUEEZED_TYPE, _t), squeezed),
#ifdef HAS_LAYER
     F_INPUT(JOINED(WEIGHT_TYPE, _t), first_weights), F_INPUT(float, first_bias),
#endif
     F_INPUT(JOINED(WEIGHT_TYPE, _t), weights), F_INPUT(float, bias), F_OUTPUT(JOINED(RESULT_TYPE, _t), y), i64 channels_of_image,
     i64 size_of_hidden, i64 pixels_of_image, i64 pixels_of_part, i64 lanes_of_block, i64 x_pitch, i64 y_pitch) {
  F_LOCAL_ARRAY(float, sums, THREADS * V);
  F_LOCAL_ARRAY(float, gates, MOST_LANES * V);
#ifdef HAS_LAYER
  F_LOCAL_ARRAY(float, parts, MOST_HIDDEN * LINE);
  F_LOCAL_ARRAY(float, hidden, MOST_HIDDEN);
#endif
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(JOINED(IMAGE_TYPE, _t), x);
  F_OPEN_INPUT(JOINED(SQUEEZED_TYPE, _t), squeezed);
  F_OPEN_INPUT(JOINED(WEIGHT_TYPE, _t), weights);
  F_OPEN_INPUT(float, bias);
  F_OPEN_OUTPUT(JOINED(RESULT_TYPE, _t), y);
  const index_t channels = (index_t)channels_of_image, image = (index_t)F_BLOCK(0);
  const int size = (int)size_of_hidden, lanes = (int)lanes_of_block, t = F_THREAD();

#ifdef HAS_LAYER
  F_OPEN_INPUT(JOINED(WEIGHT_TYPE, _t), first_weights);
  F_OPEN_INPUT(float, first_bias);
  for (int h = t / PARTS; h < size; h += THREADS / PARTS) {
    float sum = 0.0f;
    for (index_t c = (t % PARTS) * V; c < channels; c += PARTS * V) {
      float w[V], mean[V];
      JOINED(read_, WEIGHT_TYPE)(first_weights + h * channels + c, w);
      JOINED(read_, SQUEEZED_TYPE)(squeezed + image * channels + c, mean);
      F_UNROLL
      for (int j = 0; j < V; ++j) sum += w[j] * mean[j];
    }
    parts[h * LINE + t % PARTS] = sum;
  }
  F_BARRIER();
  for (int h = t; h < size; h += THREADS) {
    float sum = first_bias[h];
    F_UNROLL
    for (int p = 0; p < PARTS; ++p) sum += parts[h * LINE + p];
    hidden[h] = FIRST(sum);
  }
  F_BARRIER();
#define HIDDEN(h) hidden[h]
#else
#define HIDDEN(h) JOINED(get_, SQUEEZED_TYPE)(squeezed, image * size + (h))
#endif

  // Each row of threads has every so-manieth term of the block's channels.
  const int row = t / lanes, lane = t - row * lanes, rows = THREADS / lanes;
  const index_t begin = (index_t)F_BLOCK(1) * lanes * V, channel = begin + lane * V;
  const bool there = row < rows && channel < channels;
  float own[V];
  F_UNROLL
  for (int j = 0; j < V; ++j) own[j] = 0.0f;
  for (int h = there ? row : size; h < size; h += rows) {
    const float from = HIDDEN(h);
    float w[V];
    JOINED(read_, WEIGHT_TYPE)(weights + h * channels + channel, w);
    F_UNROLL
    for (int j = 0; j < V; ++j) own[j] += from * w[j];
  }
  F_UNROLL
  for (int j = 0; j < V; ++j) sums[t * V + j] = own[j];
  F_BARRIER();
  for (int i = t; i < lanes * V && begin + i < channels; i += THREADS) {
    float sum = bias[begin + i];
    for (int r = 0; r < rows; ++r) sum += sums[r * lanes * V + i];
    gates[i] = SECOND(sum);
  }
  F_BARRIER();

  const index_t pixels = (index_t)pixels_of_image, first = (index_t)F_BLOCK(2) * (index_t)pixels_of_part;
  const index_t end = first + (index_t)pixels_of_part < pixels ? first + (index_t)pixels_of_part : pixels;
  for (index_t p = there ? first + row : end; p < end; p += rows) {
    float all[V], results[V];
    JOINED(read_, IMAGE_TYPE)(x + (image * pixels + p) * (index_t)x_pitch + channel, all);
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      const float IMAGE = all[j], GATE = gates[lane * V + j];
      CHAIN
      results[j] = RESULT;
    }
    JOINED(write_, RESULT_TYPE)(y + (image * pixels + p) * (index_t)y_pitch + channel, results);
  }
}
