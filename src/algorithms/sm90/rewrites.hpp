// A problem as another one, whose input a step before the kernel makes.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_REWRITES_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_REWRITES_HPP_

#include <vector>

#include "src/problem/rewrite.hpp"

namespace faltung::sm90 {

// Few channels: a row of the filter's window as the channels of one pixel, an R x S filter as an R x 1 one.
bool folds(const Problem& problem);
Problem folded(const Problem& problem);
// Few channels and a stride: blocks of stride x stride pixels as the channels of one pixel (space-to-depth),
// a filter with strides as a smaller one without.
bool deepens(const Problem& problem);
Problem deepened(const Problem& problem);
// NCHW, a 1x1 filter with strides: of the input only the pixels that they take are turned.
bool thins(const Problem& problem);
Problem thinned(const Problem& problem);
// The thinned problem, of planes_below's tensors.
Rewrite thin(const Problem& problem);

// backward_data of a 1x1 filter with strides as that without, of the pixels which it takes; the others are
// zero.
bool spreads(const Problem& given);
Problem unspread(const Problem& given);
// backward_data of few channels and a stride as one without: x's gradient and the filter by blocks of stride
// x stride pixels as the channels of one, which are padded to whole chunks of 16 bytes; NHWC.
bool deepens_gradient(const Problem& given);
Rewrite deepened_gradient(const Problem& given);
// Among them images of one row of NCHW, of many channels, which are turned in any case: the pixels of a block
// are neighbours, and as pixels x's gradient and the filter lie as they would without blocks.
bool joins_columns(const Problem& given);

// How copies see a volume: its planes one below the other, and so the filter's.
Problem planes_below(const Problem& problem);
// Or as images, and the filter's as filters. In NCHW those of a channel are neighbours.
Problem planes_apart(const Problem& problem);

// How many groups it may pay to have as one: of so few channels each that products would have little to do.
std::vector<int> merges(const Problem& problem);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_REWRITES_HPP_
