// Planes of channels (nchw) to pixels of channels (nhwc): images of `channels` planes of `plane` pixels each.
//
// A block turns 64 pixels of 128 bytes of channels through local memory: four neighbours at a time on the way in, 16
// bytes of a pixel on the way out. The channels are a multiple of 16 bytes. The host defines THREADS (256) and what
// convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define PIXELS 64
#define WORDS 32           // of a pixel
#define PITCH (WORDS + 1)  // so that pixels lie in different banks
#define ROWS (THREADS / (PIXELS / 4))
#ifdef DTYPE_f32
#define WORD_CHANNELS 1
typedef float4 four_t;
#else
#define WORD_CHANNELS 2
typedef ushort4 four_t;
#endif

F_DEVICE four_t load_four(const element_t* from, int count, bool aligned) {
  if (aligned && count >= 4) return *(const four_t*)from;
  four_t v = {};
  if (count > 0) v.x = from[0];
  if (count > 1) v.y = from[1];
  if (count > 2) v.z = from[2];
  if (count > 3) v.w = from[3];
  return v;
}

F_KERNEL(THREADS)
turn_planes(F_INPUT(element_t, from), F_OUTPUT(element_t, to), int images, int channels, int plane) {
  F_LOCAL_ARRAY(u32, words, PIXELS * PITCH);
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  const int thread = F_THREAD(), quad = thread % (PIXELS / 4) * 4, row = thread / (PIXELS / 4);
  const int first_pixel = F_BLOCK(0) * PIXELS, first_channel = F_BLOCK(1) * WORDS * WORD_CHANNELS;
  const bool aligned = (size_t)from % sizeof(four_t) == 0 && plane % 4 == 0;
  for (int image = F_BLOCK(2); image < images; image += F_BLOCKS(2)) {
    four_t v[WORDS / ROWS][WORD_CHANNELS];
    F_UNROLL
    for (int i = 0; i < WORDS / ROWS; ++i) {
      F_UNROLL
      for (int j = 0; j < WORD_CHANNELS; ++j) {
        const int channel = first_channel + (row + i * ROWS) * WORD_CHANNELS + j;
        const int count = channel < channels ? plane - first_pixel - quad : 0;
        v[i][j] = load_four(from + (((index_t)image * channels + channel) * plane + first_pixel + quad), count, aligned);
      }
    }
    F_UNROLL
    for (int i = 0; i < WORDS / ROWS; ++i) {
      u32* const at = words + quad * PITCH + row + i * ROWS;
#ifdef DTYPE_f32
      at[0] = F_BITS(v[i][0].x), at[PITCH] = F_BITS(v[i][0].y);
      at[2 * PITCH] = F_BITS(v[i][0].z), at[3 * PITCH] = F_BITS(v[i][0].w);
#else
      at[0] = v[i][0].x | (u32)v[i][1].x << 16, at[PITCH] = v[i][0].y | (u32)v[i][1].y << 16;
      at[2 * PITCH] = v[i][0].z | (u32)v[i][1].z << 16, at[3 * PITCH] = v[i][0].w | (u32)v[i][1].w << 16;
#endif
    }
    F_BARRIER();
    F_UNROLL
    for (int e = thread; e < PIXELS * 8; e += THREADS) {
      const int pixel = e / 8, word = e % 8 * 4, channel = first_channel + word * WORD_CHANNELS;
      const u32* const from_words = words + pixel * PITCH + word;
      if (first_pixel + pixel < plane && channel < channels) {
        *(uint4*)(to + (((index_t)image * plane + first_pixel + pixel) * channels + channel)) =
            make_uint4(from_words[0], from_words[1], from_words[2], from_words[3]);
      }
    }
    F_BARRIER();
  }
}
