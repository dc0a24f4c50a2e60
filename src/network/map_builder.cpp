#include "src/network/map_builder.hpp"

#include <algorithm>
#include <numeric>

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Dimensions in this order, those of size 1 left out, and those merged that are one in every operand.
struct Merged {
  Shape sizes;
  std::vector<Shape> strides;  // by operand
};

Merged merge(const Shape& sizes, const std::vector<const Shape*>& strides,
             const std::vector<std::size_t>& order) {
  Merged m;
  m.strides.resize(strides.size());
  for (const std::size_t d : order) {
    if (sizes[d] == 1) continue;
    bool joins = !m.sizes.empty();
    for (std::size_t i = 0; joins && i < strides.size(); ++i)
      joins = m.strides[i].back() == (*strides[i])[d] * sizes[d];
    if (joins) {
      m.sizes.back() *= sizes[d];
      for (std::size_t i = 0; i < strides.size(); ++i) m.strides[i].back() = (*strides[i])[d];
    } else {
      m.sizes.push_back(sizes[d]);
      for (std::size_t i = 0; i < strides.size(); ++i) m.strides[i].push_back((*strides[i])[d]);
    }
  }
  if (m.sizes.empty()) {
    m.sizes.push_back(1);
    for (Shape& s : m.strides) s.push_back(1);
  }
  return m;
}

MapCall make(const Shape& sizes, const std::vector<StridedOperand>& inputs, const StridedOperand& output,
             std::vector<MapInstruction> program, const std::vector<std::size_t>& order,
             const std::string& where) {
  std::vector<const Shape*> strides;
  for (const StridedOperand& input : inputs) strides.push_back(&input.strides);
  strides.push_back(&output.strides);
  const Merged m = merge(sizes, strides, order);
  if (m.sizes.size() > kMapRank)
    throw Error(Status::unsupported, where + ": it has too many dimensions, " + to_string(sizes));
  MapCall call;
  call.rank = static_cast<int>(m.sizes.size());
  std::ranges::copy(m.sizes, call.sizes.begin());
  const auto operand = [&](const StridedOperand& o, const Shape& merged) {
    MapOperand made{map_element(o.type, where), o.offset, {}};
    std::ranges::copy(merged, made.strides.begin());
    return made;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) call.inputs.push_back(operand(inputs[i], m.strides[i]));
  call.output = operand(output, m.strides.back());
  call.program = std::move(program);
  return call;
}

// By the result's strides, the largest first, so that it is written in order.
std::vector<std::size_t> in_order_of(const Shape& sizes, const StridedOperand& output) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) order.push_back(d);  // one of 0, too: then there are no elements
  }
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t d) { return std::abs(output.strides[d]); });
  return order;
}

}  // namespace

MapElement map_element(Type type, const std::string& where) {
  switch (type) {
    case Type::f32:
      return MapElement::f32;
    case Type::boolean:
      return MapElement::boolean;
    case Type::i32:
      return MapElement::i32;
    case Type::i64:
      return MapElement::i64;
    case Type::f16:
      return MapElement::f16;
    case Type::bf16:
      return MapElement::bf16;
    default:
      throw Error(Status::unsupported, where + ": nothing computes with elements of type " + name(type));
  }
}

MapCall make_map(const Shape& sizes, const std::vector<StridedOperand>& inputs, const StridedOperand& output,
                 std::vector<MapInstruction> program, const std::string& where) {
  return make(sizes, inputs, output, std::move(program), in_order_of(sizes, output), where);
}

MapCall make_copy(const Shape& sizes, const StridedOperand& input, const StridedOperand& output,
                  const std::string& where) {
  std::vector<std::size_t> order = in_order_of(sizes, output);
  // The rows: where the input's elements follow each other.
  const auto contiguous = std::ranges::find_if(order, [&](std::size_t d) { return input.strides[d] == 1; });
  if (contiguous != order.end() && *contiguous != order.back())
    std::rotate(contiguous, contiguous + 1, order.end() - 1);
  return make(sizes, {input}, output, {}, order, where);
}

void arrange_rows(MapCall& copy) {
  const int last = copy.rank - 1;
  const auto& strides = copy.inputs[0].strides;
  const auto at = [](int d) { return static_cast<std::size_t>(d); };
  int rows = -1;
  for (int d = 0; d < last; ++d) {
    const bool better =
        strides[at(last)] == 1 ? rows < 0 || copy.sizes[at(d)] >= copy.sizes[at(rows)] : strides[at(d)] == 1;
    if (better) rows = d;
  }
  if (rows < 0) return;
  const auto move = [&](auto& of) {
    std::rotate(of.begin() + rows, of.begin() + rows + 1, of.begin() + last);
  };
  move(copy.sizes), move(copy.inputs[0].strides), move(copy.output.strides);
}

}  // namespace faltung::network
