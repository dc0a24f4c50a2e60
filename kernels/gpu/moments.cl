// The mean, and one over the square root of the variance and epsilon, of groups of an image's channels: for every channel
// its group's.
//
// A thread sums what lies above its first element, and the squares of that: of numbers far from zero a plain sum of squares
// would keep nothing. Threads meet by their means and the squares about them; so do the chunks of an image, which other
// blocks have summed. Of PLANES (NCHW) a group is one run of memory, whose rows are V elements, and a block has a chunk of
// a group's; otherwise (NHWC) a row is a pixel, a thread has V of its channels, and a block `lanes` times V, of a chunk of
// the pixels. DIRECT: a chunk is all there is, and a block has all of its groups.
//
// The host defines THREADS; X_TYPE; PLANES and DIRECT as 0 or 1; FINISH, for what meets chunks; what elements.h asks for.
#include "kernels/gpu/elements.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define X_T JOINED(X_TYPE, _t)
#define READ JOINED(read_, X_TYPE)

#define FEW 16
// The sum over the block of every thread's v, in one order, in all of them; neither turn has a loop around a barrier.
#define SUM(v)                                                   \
  all_threads[F_THREAD()] = v;                                   \
  F_BARRIER();                                                   \
  if (F_THREAD() < FEW) {                                        \
    float few_sum = 0.0f;                                        \
    for (int p = F_THREAD(); p < THREADS; p += FEW) few_sum += all_threads[p]; \
    few_threads[F_THREAD()] = few_sum;                           \
  }                                                              \
  F_BARRIER();                                                   \
  v = 0.0f;                                                      \
  F_UNROLL                                                       \
  for (int p = 0; p < FEW; ++p) v += few_threads[p];

F_DEVICE float inverse_deviation(float variance, float epsilon) {
#ifdef __OPENCL_VERSION__
  return 1.0f / sqrt(variance + epsilon);
#else
  return 1.0f / sqrtf(variance + epsilon);
#endif
}
F_DEVICE index_t least(index_t a, index_t b) { return a < b ? a : b; }

#ifdef FINISH
// parts: of every chunk of an image its units' means, a unit a channel or a group; behind all of those the squares.
F_KERNEL(THREADS)
moments(F_INPUT(float, parts), F_OUTPUT(float, to), i64 images_in_all, i64 channels_of_image, i64 groups_of_image,
        i64 units_of_group, i64 chunks_of_image, i64 rows_of_image, i64 rows_of_chunk, i64 elements_of_row, float epsilon) {
  F_LOCAL_ARRAY(float, all_threads, THREADS);
  F_LOCAL_ARRAY(float, few_threads, FEW);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(float, parts);
  F_OPEN_OUTPUT(float, to);
  const index_t groups = (index_t)groups_of_image, units = (index_t)units_of_group, chunks = (index_t)chunks_of_image;
  const index_t image = (index_t)F_BLOCK(0) / groups, group = (index_t)F_BLOCK(0) - image * groups;
  const index_t next = groups * units, squares = (index_t)images_in_all * chunks * next;
  const index_t begin = image * chunks * next + group * units, rows = (index_t)rows_of_image, chunk = (index_t)rows_of_chunk;
  const float of_row = (float)elements_of_row, count = of_row * (float)rows * (float)units, shift = parts[begin];
  float mean = 0.0f, sum = 0.0f;
  for (index_t i = F_THREAD(); i < chunks * units; i += THREADS) {
    const index_t k = i / units, at = begin + k * next + i - k * units;
    mean += of_row * (float)(least(rows, (k + 1) * chunk) - k * chunk) * (parts[at] - shift);
  }
  SUM(mean)
  mean = shift + mean / count;
  for (index_t i = F_THREAD(); i < chunks * units; i += THREADS) {
    const index_t k = i / units, at = begin + k * next + i - k * units;
    const float d = parts[at] - mean;
    sum += of_row * (float)(least(rows, (k + 1) * chunk) - k * chunk) * d * d + parts[squares + at];
  }
  SUM(sum)
  const float inverse = inverse_deviation(sum / count, epsilon);
  const index_t channels = (index_t)channels_of_image, size = channels / groups, all = (index_t)images_in_all * channels;
  for (index_t c = F_THREAD(); c < size; c += THREADS) {
    to[image * channels + group * size + c] = mean;
    to[all + image * channels + group * size + c] = inverse;
  }
}

#elif PLANES
F_KERNEL(THREADS)
moments(F_INPUT(X_T, x), F_OUTPUT(float, to), i64 images_in_all, i64 channels_of_image, i64 groups_of_image,
        i64 elements_to_next_image, i64 chunks_of_group, i64 rows_of_group, i64 rows_of_chunk, float epsilon) {
  F_LOCAL_ARRAY(float, all_threads, THREADS);
  F_LOCAL_ARRAY(float, few_threads, FEW);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(X_T, x);
  F_OPEN_OUTPUT(float, to);
  const index_t groups = (index_t)groups_of_image, chunks = (index_t)chunks_of_group;
  const index_t unit = (index_t)F_BLOCK(0) / chunks, chunk = (index_t)F_BLOCK(0) - unit * chunks;
  const index_t image = unit / groups, group = unit - image * groups, rows = (index_t)rows_of_group;
  const index_t begin = chunk * (index_t)rows_of_chunk, end = least(rows, begin + (index_t)rows_of_chunk);
  const index_t channels = (index_t)channels_of_image, size = channels / groups;
  const index_t from = image * (index_t)elements_to_next_image + group * rows * V;
  float sums[V], squares[V];
  F_UNROLL
  for (int j = 0; j < V; ++j) sums[j] = squares[j] = 0.0f;
  const index_t mine = begin + F_THREAD();
  const float first = mine < end ? JOINED(get_, X_TYPE)(x, from + mine * V) : 0.0f;
  F_UNROLL_TWICE
  for (index_t row = mine; row < end; row += THREADS) {
    float v[V];
    READ(x + from + row * V, v);
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      const float d = v[j] - first;
      sums[j] += d;
      squares[j] += d * d;
    }
  }
  F_UNROLL
  for (int j = 1; j < V; ++j) {
    sums[0] += sums[j];
    squares[0] += squares[j];
  }
  const float count = mine < end ? (float)((end - mine + THREADS - 1) / THREADS * V) : 0.0f;
  const float above = count > 0.0f ? sums[0] / count : 0.0f, own = first + above;
  const float about = squares[0] - sums[0] * above;
  if (F_THREAD() == 0) few_threads[0] = own;
  F_BARRIER();
  const float shift = few_threads[0], all = (float)((end - begin) * V);
  F_BARRIER();
  float mean = count * (own - shift);
  SUM(mean)
  mean = shift + mean / all;
  float sum = (about > 0.0f ? about : 0.0f) + count * (own - mean) * (own - mean);
  SUM(sum)
#if DIRECT
  const float inverse = inverse_deviation(sum / all, epsilon);
  for (index_t c = F_THREAD(); c < size; c += THREADS) {
    to[image * channels + group * size + c] = mean;
    to[((index_t)images_in_all + image) * channels + group * size + c] = inverse;
  }
#else
  if (F_THREAD() == 0) {
    const index_t at = (image * chunks + chunk) * groups + group;
    to[at] = mean;
    to[(index_t)images_in_all * chunks * groups + at] = sum;
  }
#endif
}

#else
F_KERNEL(THREADS)
moments(F_INPUT(X_T, x), F_OUTPUT(float, to), i64 images_in_all, i64 channels_of_image, i64 groups_of_image, i64 x_pitch,
        i64 chunks_of_image, i64 rows_of_image, i64 rows_of_chunk, i64 lanes_of_block, float epsilon) {
  F_LOCAL_ARRAY(float, means, THREADS * V);
  F_LOCAL_ARRAY(float, abouts, THREADS * V);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(X_T, x);
  F_OPEN_OUTPUT(float, to);
  const index_t channels = (index_t)channels_of_image, chunks = (index_t)chunks_of_image, pitch = (index_t)x_pitch;
  const index_t image = (index_t)F_BLOCK(0) / chunks, chunk = (index_t)F_BLOCK(0) - image * chunks;
  const index_t pixels = (index_t)rows_of_image, begin = chunk * (index_t)rows_of_chunk;
  const index_t end = least(pixels, begin + (index_t)rows_of_chunk);
  const int t = F_THREAD(), lanes = (int)lanes_of_block, beside = THREADS / lanes, row = t / lanes, lane = t - row * lanes;
  const index_t left = (index_t)F_BLOCK(1) * lanes * V, channel = left + lane * V, mine = begin + row;
  const bool works = row < beside && channel < channels && mine < end;
  float first[V], sums[V], squares[V];
  F_UNROLL
  for (int j = 0; j < V; ++j) first[j] = sums[j] = squares[j] = 0.0f;
  if (works) READ(x + (image * pixels + mine) * pitch + channel, first);
  F_UNROLL_TWICE
  for (index_t p = works ? mine : end; p < end; p += beside) {
    float v[V];
    READ(x + (image * pixels + p) * pitch + channel, v);
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      const float d = v[j] - first[j];
      sums[j] += d;
      squares[j] += d * d;
    }
  }
  const float count = works ? (float)((end - mine + beside - 1) / beside) : 1.0f;
  F_UNROLL
  for (int j = 0; j < V; ++j) {
    const float above = sums[j] / count, about = squares[j] - sums[j] * above;
    means[t * V + j] = first[j] + above;
    abouts[t * V + j] = about > 0.0f ? about : 0.0f;
  }
  F_BARRIER();
  // Each of the block's channels: what its rows of threads have. Row 0 has a pixel.
  const int width = lanes * V, rows = (int)least((index_t)beside, end - begin);
  const float all = (float)(end - begin);
  for (int c = t; c < width && left + c < channels; c += THREADS) {
    const float shift = means[c];
    float mean = 0.0f, sum = 0.0f;
    for (int r = 1; r < rows; ++r) mean += (float)((end - begin - r + beside - 1) / beside) * (means[r * width + c] - shift);
    mean = shift + mean / all;
    for (int r = 0; r < rows; ++r) {
      const float d = means[r * width + c] - mean;
      sum += (float)((end - begin - r + beside - 1) / beside) * d * d + abouts[r * width + c];
    }
#if DIRECT
    means[c] = mean;
    abouts[c] = sum;
  }
  F_BARRIER();
  const int size = (int)(channels / (index_t)groups_of_image);
  for (int c = t; c < width && left + c < channels; c += THREADS) {
    const int of_group = c / size * size;
    const float shift = means[of_group];
    float mean = 0.0f, sum = 0.0f;
    for (int i = 1; i < size; ++i) mean += means[of_group + i] - shift;
    mean = shift + mean / (float)size;
    for (int i = 0; i < size; ++i) {
      const float d = means[of_group + i] - mean;
      sum += all * d * d + abouts[of_group + i];
    }
    to[image * channels + left + c] = mean;
    to[((index_t)images_in_all + image) * channels + left + c] = inverse_deviation(sum / (all * (float)size), epsilon);
  }
#else
    const index_t at = (image * chunks + chunk) * channels + left + c;
    to[at] = mean;
    to[(index_t)images_in_all * chunks * channels + at] = sum;
  }
#endif
}
#endif
