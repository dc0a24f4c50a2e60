// A convolution of stride 1 and dilation 1 as the correlation of one tensor ("in") with a filter into another
// ("out"): backward_data is that of y's gradient with the filter turned around.
//
// The host defines what sides.h asks for.
#pragma once
#include "kernels/gpu/sides.h"

#ifdef DIRECTION_fwd
#define PAD_TOP z.pad_top
#define PAD_LEFT z.pad_left
#define FILTER_OFFSET(group, out, in, r, s) F_OFFSET((group)*z.group_k + (out), in, r, s, z.group_c, R, S)
#endif

#ifdef DIRECTION_bwd_d
#define PAD_TOP (R - 1 - z.pad_top)
#define PAD_LEFT (S - 1 - z.pad_left)
#define FILTER_OFFSET(group, out, in, r, s) \
  F_OFFSET((group)*z.group_k + (in), out, R - 1 - (r), S - 1 - (s), z.group_c, R, S)
#endif

#ifdef LAYOUT_nchw
#define IN_ROW_STRIDE ((index_t)IN_W)
#define IN_COLUMN_STRIDE ((index_t)1)
#define IN_CHANNEL_STRIDE ((index_t)IN_H * IN_W)
#else
#define IN_ROW_STRIDE ((index_t)IN_W * IN_C)
#define IN_COLUMN_STRIDE ((index_t)IN_C)
#define IN_CHANNEL_STRIDE ((index_t)1)
#endif

#ifdef DIRECTION_fwd
#define F_FINISH(sum, channel, offset) F_EPILOGUE(sum, channel, offset)
#else
#define F_FINISH(sum, channel, offset) (sum)
#endif
