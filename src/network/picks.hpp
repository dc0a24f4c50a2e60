// Elements that are picked along axes: padding, tiling, gathering, nearest resizing.
#ifndef FALTUNG_SRC_NETWORK_PICKS_HPP_
#define FALTUNG_SRC_NETWORK_PICKS_HPP_

#include <functional>
#include <vector>

#include "src/network/lowering.hpp"

namespace faltung::network {

// Where a dimension lies in memory, and all of them: those of images by the layout.
std::size_t memory_axis(std::size_t axis, const Shape& shape, Layout layout);
Shape memory_shape(const Shape& shape, Layout layout);

// Of a tensor as it lies in memory; tables: of each dimension, empty where it stays as it is; not all of them
// are.
struct Picked {
  Shape shape;
  std::vector<std::vector<std::int32_t>> tables;  // -1: it is `fill`
  std::size_t bytes = 4;                          // of an element
  std::uint64_t fill = 0;
};
// Two neighbouring dimensions a step. result: where the last step is to write.
void lower_picked(Lowering& lowering, const Node& node, Picked picked, Ref from,
                  const std::function<Ref()>& result, Layout layout);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_PICKS_HPP_
