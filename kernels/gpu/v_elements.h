// V elements of the problem's type that lie together at a multiple of their size, to and from floats.
//
// After convolution.h. The host defines V: 1, 4, or of 16 bits 8.
#pragma once

#if V == 8
#define LOAD_V(p, i, v) F_LOAD8(p, i, v)
#define STORE_V(p, i, v) F_STORE8(p, i, v)
#elif V == 4
#define LOAD_V(p, i, v) F_LOAD4(p, i, v)
#define STORE_V(p, i, v) F_STORE4(p, i, v)
#else
#define LOAD_V(p, i, v) ((v)[0] = F_LOAD(p, i))
#define STORE_V(p, i, v) F_STORE(p, i, (v)[0])
#endif
