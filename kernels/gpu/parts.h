// What a kernel stores: results, or where blocks share a sum (SPLIT 1) parts of it as floats, which another
// kernel adds.
//
// The host defines SPLIT and what convolution.h asks for.
#pragma once
#include "kernels/gpu/convolution.h"

#if SPLIT
typedef float result_t;
#define STORE_RESULT(p, i, v) ((p)[i] = (v))
#else
typedef element_t result_t;
#define STORE_RESULT(p, i, v) F_STORE(p, i, v)
#endif
// A sum of forward or backward_data as it is stored: of output channel k, at `at`.
#if defined(DIRECTION_fwd) && !SPLIT
#define AFTER(sum, k, at) F_EPILOGUE(sum, k, at)
#else
#define AFTER(sum, k, at) (sum)
#endif
