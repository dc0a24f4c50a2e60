// Operators along axes: what they run over.
#ifndef FALTUNG_SRC_NETWORK_REDUCTION_HPP_
#define FALTUNG_SRC_NETWORK_REDUCTION_HPP_

#include <vector>

#include "src/network/operator.hpp"

namespace faltung::network {

// A tensor as three dimensions, of which the middle one is run over.
struct Extent {
  std::int64_t outer = 1, length = 1, inner = 1;
};
// The dimensions [begin, end) of a shape as the middle one.
Extent extent(const Shape& shape, std::size_t begin, std::size_t end);

// The dimensions that a Reduce… or Global…Pool runs over, in order.
std::vector<std::size_t> reduced_axes(const Site& site);
// Of Softmax and LogSoftmax: before opset 13 all dimensions from the axis on are one.
Extent softmax_extent(const Site& site);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_REDUCTION_HPP_
