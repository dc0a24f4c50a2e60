// Where an element lies. The host defines WIDE, 1 where a tensor has 2^30 elements or more.
#pragma once

#if WIDE
typedef i64 index_t;
#else
typedef int index_t;
#endif
