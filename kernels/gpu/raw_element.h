// An element that is moved as it is. The host defines BYTES of it: 1, 2, 4, 8 or 16.
#pragma once

#if BYTES == 1
typedef char element_t;
#elif BYTES == 2
typedef u16 element_t;
#elif BYTES == 4
typedef u32 element_t;
#elif BYTES == 8
typedef i64 element_t;
#else
typedef uint4 element_t;
#endif
