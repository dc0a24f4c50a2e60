// Problems of one and three dimensions, and transposed ones, as plain ones: of two dimensions, and not
// transposed. So whoever computes those computes all of them.
#ifndef FALTUNG_SRC_PROBLEM_REWRITE_PLAIN_HPP_
#define FALTUNG_SRC_PROBLEM_REWRITE_PLAIN_HPP_

#include <vector>

#include "src/problem/rewrite.hpp"

namespace faltung {

// How the index maps of a rewrite count in a tensor.
enum class View {
  planes,  // pixels of each plane in one row, a row a depth: n c d h*w
  pixels,  // as it is: n c h w, for there is no depth
};
TensorShape viewed(const TensorShape& shape, View view);

// Whether a problem of three dimensions has a T x 1 x 1 filter that takes every pixel of a plane.
bool has_planes_of_one_tap(const Problem& problem);

struct PlainRewrite {
  Rewrite rewrite;
  View view;  // of the outer and of the inner tensors
};

// A problem that is not plain as others of the same kind of result that are one step closer to it; together
// they write all of the result. Their residual comes as their y does.
//   one dimension     with a height of 1
//   three dimensions  T x 1 x 1: the planes' pixels in one row, as it lies in memory. Others: images are the
//                     depths of the output, and the taps in depth are channels; a strided adjoint one for
//                     each remainder of the depth
//   transposed        with x and y exchanged, volumes before anything else; before an epilogue, of two
//                     dimensions, the phases of its backward_data, each a forward convolution with that
//                     epilogue
// Not to be called for a plain problem.
std::vector<PlainRewrite> toward_plain(const Problem& problem);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_REWRITE_PLAIN_HPP_
