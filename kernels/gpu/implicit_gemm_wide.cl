// The same product for devices whose work-items have vector registers of their own (CPUs): one work-item a block,
// no barriers. A panel of gathered pixels is filled for STEPS steps of the sum and serves all of the block's
// channels; the sums between panels wait in local memory.
//
// The inner tile is TS x (VN * VW): channels x pixels in nchw, pixels x channels in nhwc, so that vectors lie
// together in memory in both.
//
// The host defines BP and BC (the block), STEPS, TS, VN, VW, THREADS (1), and what gathered_product.h asks for.
#include "kernels/gpu/gathered_product.h"
#include "kernels/gpu/vector.h"

#define WIDTH (VN * VW)
#ifdef LAYOUT_nchw
#define TILES_S (BC / TS)
#define TILES_V (BP / WIDTH)
#else
#define TILES_S (BP / TS)
#define TILES_V (BC / WIDTH)
#endif

F_KERNEL(THREADS)
implicit_gemm_wide(F_INPUT(element_t, in), F_INPUT(packed_t, packed), F_OUTPUT(element_t, out),
                   F_INPUT(element_t, bias), F_INPUT(element_t, residual), F_INPUT(float, slopes),
                   int out_pad, int splits, Sizes z) {
  F_LOCAL_ARRAY(F_VECTOR, panel, STEPS * BP / VW);
  F_LOCAL_ARRAY(F_VECTOR, sums, TILES_S * TILES_V * TS * VN);
  F_LOCAL_ARRAY(Pixel, places, BP);
  F_LOCAL_ARRAY(index_t, offsets, BP);
  F_LOCAL_ARRAY(int, is_run, BP / VW);  // whether a vector of pixels reads neighbours in memory
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(packed_t, packed);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  F_LOCAL float* const gathered = (F_LOCAL float*)panel;
  const int first_out = F_BLOCK(1) * BC;
  const int group = F_BLOCK(2) / (PHASES_H * PHASES_W);
  const int row_phase = F_BLOCK(2) / PHASES_W % PHASES_H, column_phase = F_BLOCK(2) % PHASES_W;
  F_GLOBAL const packed_t* const weights = packed + (index_t)group * TAPS * IN_GROUP * out_pad + first_out;
  for (int i = 0; i < BP; ++i) places[i] = pixel_at((index_t)F_BLOCK(0) * BP + i, row_phase, column_phase, z);
  for (int i = 0; i < TILES_S * TILES_V * TS * VN; ++i) sums[i] = F_SPLAT(0.0f);

  for (int tap = 0; tap < TAPS; ++tap) {
#ifdef DIRECTION_bwd_d
    if ((row_phase + z.pad_top - tap / S * DILATION_H) % STRIDE_H != 0 ||
        (column_phase + z.pad_left - tap % S * DILATION_W) % STRIDE_W != 0) {
      continue;
    }
#endif
    for (int i = 0; i < BP; ++i) offsets[i] = in_offset(places[i], tap, group * IN_GROUP, z);
#ifdef LAYOUT_nchw
    for (int j = 0; j < BP / VW; ++j) {
      int run = offsets[j * VW] >= 0;
      for (int i = 1; i < VW; ++i) run = run && offsets[j * VW + i] == offsets[j * VW] + i;
      is_run[j] = run;
    }
#endif
    for (int first = 0; first < IN_GROUP; first += STEPS) {
      const int steps = F_MIN(STEPS, IN_GROUP - first);
#ifdef LAYOUT_nchw
      for (int k = 0; k < steps; ++k) {
        F_GLOBAL const element_t* const plane = in + (index_t)(first + k) * IN_CHANNEL_STRIDE;
        for (int j = 0; j < BP / VW; ++j) {
          if (is_run[j]) {
            F_UNROLL
            for (int i = 0; i < VW; ++i) gathered[k * BP + j * VW + i] = F_LOAD(plane, offsets[j * VW] + i);
          } else {
            for (int i = 0; i < VW; ++i) {
              gathered[k * BP + j * VW + i] = offsets[j * VW + i] >= 0 ? F_LOAD(plane, offsets[j * VW + i]) : 0.0f;
            }
          }
        }
      }
#else
      for (int i = 0; i < BP; ++i) {
        for (int k = 0; k < steps; ++k) {
          gathered[i * STEPS + k] = offsets[i] >= 0 ? F_LOAD(in, offsets[i] + first + k) : 0.0f;
        }
      }
#endif
      F_GLOBAL const packed_t* const rows = weights + ((index_t)tap * IN_GROUP + first) * out_pad;
      for (int tile = 0; tile < TILES_S * TILES_V; ++tile) {
        const int s = tile / TILES_V * TS, v = tile % TILES_V;
        F_VECTOR t[TS][VN];
        F_UNROLL
        for (int i = 0; i < TS; ++i) {
          F_UNROLL
          for (int j = 0; j < VN; ++j) t[i][j] = sums[(tile * TS + i) * VN + j];
        }
        F_NO_UNROLL
        for (int k = 0; k < steps; ++k) {
          F_VECTOR b[VN];
          F_UNROLL
          for (int j = 0; j < VN; ++j) {
#ifdef LAYOUT_nchw
            b[j] = panel[k * (BP / VW) + v * VN + j];
#else
            b[j] = *(F_GLOBAL const F_VECTOR*)(rows + (index_t)k * out_pad + v * WIDTH + j * VW);
#endif
          }
          F_UNROLL
          for (int i = 0; i < TS; ++i) {
#ifdef LAYOUT_nchw
            const float a = rows[(index_t)k * out_pad + s + i];
#else
            const float a = gathered[(s + i) * STEPS + k];
#endif
            F_UNROLL
            for (int j = 0; j < VN; ++j) t[i][j] += a * b[j];
          }
        }
        F_UNROLL
        for (int i = 0; i < TS; ++i) {
          F_UNROLL
          for (int j = 0; j < VN; ++j) sums[(tile * TS + i) * VN + j] = t[i][j];
        }
      }
    }
  }

  F_LOCAL const float* const results = (F_LOCAL const float*)sums;
  for (int tile = 0; tile < TILES_S * TILES_V; ++tile) {
    const int s = tile / TILES_V * TS, v = tile % TILES_V * WIDTH;
    for (int i = 0; i < TS; ++i) {
      F_NO_UNROLL
      for (int j = 0; j < WIDTH; ++j) {
#ifdef LAYOUT_nchw
        const Pixel pixel = places[v + j];
        const int c = first_out + s + i;
#else
        const Pixel pixel = places[s + i];
        const int c = first_out + v + j;
#endif
        if (pixel.n < 0 || c >= OUT_GROUP) continue;
        const float sum = results[(tile * TS + i) * WIDTH + j];
        const int channel = group * OUT_GROUP + c;
        const index_t offset = F_OFFSET(pixel.n, channel, pixel.row, pixel.column, OUT_PITCH, OUT_H, OUT_W);
#ifdef DIRECTION_fwd
        F_STORE(out, offset, F_EPILOGUE(sum, channel, offset));
#else
        F_STORE(out, offset, sum);
#endif
      }
    }
  }
}
