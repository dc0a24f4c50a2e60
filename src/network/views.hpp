// Operators whose result is their input, seen with other strides.
#ifndef FALTUNG_SRC_NETWORK_VIEWS_HPP_
#define FALTUNG_SRC_NETWORK_VIEWS_HPP_

#include "src/network/operator.hpp"

namespace faltung::network {

// From this element of the input on, of which strides count elements; negative ones walk backwards. The shape
// has as many elements as the operator's result, and may tell its dimensions in parts.
struct View {
  Shape shape, strides;
  std::int64_t begin = 0;
};

View transpose_view(const Site& site);
View expand_view(const Site& site);
View slice_view(const Site& site);
View depth_to_space_view(const Site& site);
View depth_to_space_view(const Site& site, const Shape& strides);  // of the input
View space_to_depth_view(const Site& site);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_VIEWS_HPP_
