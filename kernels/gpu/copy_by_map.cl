// A tensor of a rewritten problem out of the outer problem's, or back: each element's place in the outer tensor is
// affine in the digits of its indices (src/problem/rewrite.hpp).
//
// The host defines THREADS; BYTES of an element; WIDE, 1 where a tensor has 2^30 elements or more; GATHER or SCATTER;
// INNER_nchw or INNER_nhwc, how the inner tensor lies; DIAGONAL, 1 where a filter's elements between groups are zero;
// and DIGITS(D), a D(inner axis, outer axis, number) for each
// digit, in the axes' order n, c, h, w and the fastest of each first.
#define AXES 4
#define MOST_DIGITS 8

// As in src/algorithms/rewrite_steps.cpp.
typedef struct {
  i64 elements;
  i64 strides[AXES];
  int size[AXES], outer_size[AXES], start[AXES];
  int count[MOST_DIGITS], step[MOST_DIGITS];
  int diagonal_k, diagonal_c, diagonal_groups;
  int even;  // whole multiples of 8 bytes: rusticl does not count what a compiler would add at the end
} CopySizes;

#if BYTES == 4
typedef u32 element_t;
#else
typedef u16 element_t;
#endif
#if WIDE
typedef i64 index_t;
#else
typedef int index_t;
#endif

#define MOVE(inner, outer, number)                                        \
  outer_##outer += inner_##inner % z.count[number] * z.step[number]; \
  inner_##inner /= z.count[number];

F_KERNEL(THREADS)
copy_by_map(F_INPUT(element_t, from), F_OUTPUT(element_t, to), CopySizes z) {
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  const index_t count = (index_t)z.elements;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    index_t rest = i;
#ifdef INNER_nhwc
    int inner_c = (int)(rest % z.size[1]);
    rest /= z.size[1];
#endif
    int inner_w = (int)(rest % z.size[3]);
    rest /= z.size[3];
    int inner_h = (int)(rest % z.size[2]);
    rest /= z.size[2];
#ifdef INNER_nchw
    int inner_c = (int)(rest % z.size[1]);
    rest /= z.size[1];
#endif
    int inner_n = (int)rest;
#if DIAGONAL
    const bool within = inner_n / z.diagonal_k % z.diagonal_groups == inner_c / z.diagonal_c % z.diagonal_groups;
#else
    const bool within = true;
#endif
    int outer_n = z.start[0], outer_c = z.start[1], outer_h = z.start[2], outer_w = z.start[3];
    DIGITS(MOVE)
    // What is left of an index lies beyond the map.
    const bool inside = within && (inner_n | inner_c | inner_h | inner_w) == 0 && outer_n >= 0 && outer_n < z.outer_size[0] &&
                        outer_c >= 0 && outer_c < z.outer_size[1] && outer_h >= 0 && outer_h < z.outer_size[2] &&
                        outer_w >= 0 && outer_w < z.outer_size[3];
    const index_t there = (index_t)z.strides[0] * outer_n + (index_t)z.strides[1] * outer_c +
                          (index_t)z.strides[2] * outer_h + (index_t)z.strides[3] * outer_w;
#ifdef GATHER
    to[i] = inside ? from[there] : (element_t)0;
#else
    if (inside) to[there] = from[i];
#endif
  }
}
