// The mean, and one over the square root of the variance and epsilon, of groups of an image's channels: for every channel
// its group's.
//
// Sums are of what lies above a first element, and of the squares of that: of numbers far from zero a plain sum of
// squares would keep nothing. What blocks have summed of an image's chunks meets by means and the squares about them. Of
// PLANES (NCHW) a group is one run of memory, whose rows are V elements, and a block has a chunk of a group's; otherwise
// (NHWC) a row is a pixel, a thread has V of its channels, and a block LANES times V, of a chunk of the pixels, and
// sums units of so many of its channels: whole groups, or else channels. DIRECT: a chunk is all there is, and a unit a
// group.
//
// The host defines THREADS; X_TYPE; PLANES and DIRECT as 0 or 1; LANES, of NHWC; FINISH, for what meets chunks; what
// elements.h asks for.
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
// parts: of every chunk of an image its units' means, a unit a group, or a channel; behind all of those the squares.
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
  float above = 0.0f, sum = 0.0f;
  F_NO_UNROLL
  for (index_t i = F_THREAD(); i < chunks * units; i += THREADS) {
    const index_t k = i / units, at = begin + k * next + i - k * units;
    const float n = of_row * (float)(least(rows, (k + 1) * chunk) - k * chunk), d = parts[at] - shift;
    above += n * d;
    sum += n * d * d + parts[squares + at];
  }
  SUM(above)
  SUM(sum)
  above = above / count;
  const float mean = shift + above, variance = sum / count - above * above;
  const float inverse = inverse_deviation(variance < 0.0f ? 0.0f : variance, epsilon);
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
#define AHEAD 4  // rows that a thread has on their way
#define BESIDE (THREADS / LANES)
#define WIDTH (LANES * V)
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
// Threads that share the sum of one channel's rows, and how many rows each has.
#define SHARES (WIDTH > THREADS ? 1 : LESSER(LESSER(THREADS / WIDTH, BESIDE), 16))
#define ROWS_OF_SHARE ((BESIDE + SHARES - 1) / SHARES)
// Behind the end the first row, which adds nothing.
#define READ_AHEAD()                                          \
  F_UNROLL                                                    \
  for (int k = 0; k < AHEAD; ++k) {                           \
    const index_t at = p + k * BESIDE;                        \
    READ(from + (at < end ? at : begin) * pitch, v[k]);       \
  }

// x's blocks are images, y's columns of lanes, z's chunks.
F_KERNEL(THREADS)
moments(F_INPUT(X_T, x), F_OUTPUT(float, to), i64 images_in_all, i64 channels_of_image, i64 channels_of_unit, i64 x_pitch,
        i64 chunks_of_image, i64 rows_of_image, i64 rows_of_chunk, float epsilon) {
  F_LOCAL_ARRAY(float, sums, THREADS * V);
  F_LOCAL_ARRAY(float, squares, THREADS * V);
  F_LOCAL_ARRAY(float, firsts, WIDTH);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(X_T, x);
  F_OPEN_OUTPUT(float, to);
  const index_t channels = (index_t)channels_of_image, pitch = (index_t)x_pitch, pixels = (index_t)rows_of_image;
  const index_t image = (index_t)F_BLOCK(0), chunk = (index_t)F_BLOCK(2), begin = chunk * (index_t)rows_of_chunk;
  const index_t end = least(pixels, begin + (index_t)rows_of_chunk);
  const int t = F_THREAD(), row = t / LANES, lane = t - row * LANES;
  const index_t left = (index_t)F_BLOCK(1) * WIDTH, channel = left + lane * V;
  const bool works = row < BESIDE && channel < channels;
  F_GLOBAL const X_T* const from = x + (image * pixels * pitch + channel);
  F_ALIGNED16 float first[V], sum[V], square[V];
  F_UNROLL
  for (int j = 0; j < V; ++j) first[j] = sum[j] = square[j] = 0.0f;
  float v[AHEAD][V];
  index_t p = works ? begin + row : end;
  if (p < end) {
    READ(from + begin * pitch, first);
    READ_AHEAD()
  }
  F_NO_UNROLL
  while (p < end) {
    F_UNROLL
    for (int k = 0; k < AHEAD; ++k) {
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        const float d = v[k][j] - first[j];
        sum[j] += d;
        square[j] += d * d;
      }
    }
    p += AHEAD * BESIDE;
    if (p < end) {
      READ_AHEAD()
    }
  }
#if V >= 4
  F_UNROLL
  for (int j = 0; j < V; j += 4) {
    store4_local(sums + t * V + j, sum + j);
    store4_local(squares + t * V + j, square + j);
    if (row == 0) store4_local(firsts + t * V + j, first + j);
  }
#else
  F_UNROLL
  for (int j = 0; j < V; ++j) {
    sums[t * V + j] = sum[j];
    squares[t * V + j] = square[j];
    if (row == 0) firsts[t * V + j] = first[j];
  }
#endif
  F_BARRIER();
  // Of a channel's rows every share in the place of its first one, then all of it in the first row's.
  F_NO_UNROLL
  for (int i = t; i < WIDTH * SHARES; i += THREADS) {
    float s = 0.0f, q = 0.0f;
    F_UNROLL
    for (int r = 0; r < ROWS_OF_SHARE; ++r) {
      const int at = r * WIDTH * SHARES + i;
      s += at < WIDTH * BESIDE ? sums[at] : 0.0f;
      q += at < WIDTH * BESIDE ? squares[at] : 0.0f;
    }
    sums[i] = s;
    squares[i] = q;
  }
  F_BARRIER();
  const float rows = (float)(end - begin);
  F_NO_UNROLL
  for (int c = t; c < WIDTH; c += THREADS) {
    float s = 0.0f, q = 0.0f;
    F_UNROLL
    for (int share = 0; share < SHARES; ++share) {
      s += sums[share * WIDTH + c];
      q += squares[share * WIDTH + c];
    }
    const float above = s / rows, about = q - s * above;
    sums[c] = firsts[c] + above;
    squares[c] = about < 0.0f ? 0.0f : about;
  }
  F_BARRIER();
  // Every channel sums its unit, whose channels' means are about as far from the first one's as from their own.
  const int size = (int)channels_of_unit;
  F_NO_UNROLL
  for (int c = t; c < WIDTH && left + c < channels; c += THREADS) {
    const int unit = c / size, begin_of_unit = unit * size;
    const float shift = sums[begin_of_unit];
    float s = 0.0f, q = 0.0f, inside = 0.0f;
    for (int i = begin_of_unit; i < begin_of_unit + size; ++i) {
      const float d = sums[i] - shift;
      s += d;
      q += d * d;
      inside += squares[i];
    }
    const float above = s / (float)size, mean = shift + above, between = q - s * above;
    const float about = inside + rows * (between < 0.0f ? 0.0f : between);
#if DIRECT
    to[image * channels + left + c] = mean;
    to[((index_t)images_in_all + image) * channels + left + c] = inverse_deviation(about / (rows * (float)size), epsilon);
#else
    const index_t units = channels / size, chunks = (index_t)chunks_of_image;
    if (c == begin_of_unit) {
      const index_t at = (image * chunks + chunk) * units + left / size + unit;
      to[at] = mean;
      to[(index_t)images_in_all * chunks * units + at] = about;
    }
#endif
  }
}
#endif
