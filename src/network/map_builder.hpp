// Maps from shapes and strides: dimensions that are one in every operand are merged.
#ifndef FALTUNG_SRC_NETWORK_MAP_BUILDER_HPP_
#define FALTUNG_SRC_NETWORK_MAP_BUILDER_HPP_

#include <vector>

#include "kernels/cpu/map.hpp"
#include "src/network/tensor.hpp"

namespace faltung::network {

struct StridedOperand {
  Type type = Type::f32;
  Shape strides;
  std::int64_t offset = 0;  // elements
};

// Of a type that maps have; throws Error(unsupported) for others.
MapElement map_element(Type type, const std::string& where);

MapCall make_map(const Shape& sizes, const std::vector<StridedOperand>& inputs, const StridedOperand& output,
                 std::vector<MapInstruction> program, const std::string& where);
// A copy, which may walk the dimensions in any order: its rows are those along which the input is contiguous.
MapCall make_copy(const Shape& sizes, const StridedOperand& input, const StridedOperand& output,
                  const std::string& where);

// A copy in another order of its dimensions, in which a processor's parts of it are long: its rows are those
// along which the input is contiguous or, where its columns are, the most.
void arrange_rows(MapCall& copy);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_MAP_BUILDER_HPP_
