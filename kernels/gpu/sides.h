// The tensor that forward and backward_data gather from ("in": x, or y's gradient) and the one that they
// write ("out"), by their sizes. backward_weights has forward's. A pitch is of the tensor in memory, whose
// slice it is: as many channels, or more.
//
// The host defines DIRECTION_fwd, DIRECTION_bwd_d or DIRECTION_bwd_w, and what convolution.h asks for.
#pragma once
#include "kernels/gpu/convolution.h"

#ifndef DIRECTION_bwd_d
#define IN_C z.c
#define IN_PITCH z.x_pitch
#define IN_H z.h
#define IN_W z.w
#define IN_GROUP z.group_c
#define OUT_C z.k
#define OUT_PITCH z.y_pitch
#define OUT_H z.p
#define OUT_W z.q
#define OUT_GROUP z.group_k
#endif

#ifdef DIRECTION_bwd_d
#define IN_C z.k
#define IN_PITCH z.y_pitch
#define IN_H z.p
#define IN_W z.q
#define IN_GROUP z.group_k
#define OUT_C z.c
#define OUT_PITCH z.x_pitch
#define OUT_H z.h
#define OUT_W z.w
#define OUT_GROUP z.group_c
#endif
