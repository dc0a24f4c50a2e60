#include "src/network/operator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace faltung::network {
namespace {

std::string full_name(const Node& node) {
  return node.domain.empty() ? node.op : node.domain + "." + node.op;
}

constexpr std::span<const Operator> (*kFamilies[])() = {
    elementwise_operators, shape_operators,       join_operators,    resize_operators,    reduce_operators,
    normalize_operators,   convolution_operators, product_operators, recurrent_operators,
};

// The first version whose definitions are those of the table.
constexpr std::int64_t kOldestOpset = 7;

}  // namespace

const Operand& Site::in(std::size_t i) const {
  if (!has(i)) fail(fmt::format("its input {} is missing", i));
  return *inputs_[i];
}

std::vector<double> Site::numbers(std::size_t i) const {
  const Operand& operand = in(i);
  const double* const data = operand.data;
  if (data == nullptr && elements(operand.shape) > 0)
    decline(fmt::format("its input {} must be known before the network runs", i));
  return {data, data + elements(operand.shape)};
}

std::vector<std::int64_t> Site::integers(std::size_t i) const {
  std::vector<std::int64_t> whole;
  constexpr double kMost = 0x1p62;  // what is beyond stands for the end of an axis
  for (const double v : numbers(i)) {
    whole.push_back(std::isnan(v) ? 0 : static_cast<std::int64_t>(std::clamp(v, -kMost, kMost)));
  }
  return whole;
}

std::optional<std::vector<std::int64_t>> Site::integers(std::string_view attribute, std::size_t i) const {
  if (auto given = node_.integers(attribute)) return given;
  if (has(i)) return integers(i);
  return std::nullopt;
}

std::size_t Site::axis(std::int64_t axis, std::int64_t rank) const {
  if (axis < -rank || axis >= rank) fail(fmt::format("axis {} of a tensor of {} dimensions", axis, rank));
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

std::vector<std::size_t> Site::axes(const std::vector<std::int64_t>& given, std::int64_t rank) const {
  std::vector<std::size_t> all;
  for (const std::int64_t a : given) {
    all.push_back(axis(a, rank));
    require(std::count(all.begin(), all.end(), all.back()) == 1, "an axis is given twice");
  }
  return all;
}

void Site::fail(const std::string& what) const { throw Error(Status::bad_file, node_.title() + ": " + what); }
void Site::decline(const std::string& what) const {
  throw Error(Status::unsupported, node_.title() + ": " + what);
}

const Operator* find_operator(const Node& node) {
  static const auto rows = [] {
    std::unordered_map<std::string_view, const Operator*> all;
    for (const Operator* row : all_operators()) all.emplace(row->name, row);
    return all;
  }();
  const auto found = rows.find(full_name(node));
  return found == rows.end() ? nullptr : found->second;
}

std::vector<const Operator*> all_operators() {
  std::vector<const Operator*> all;
  for (const auto family : kFamilies) {
    for (const Operator& row : family()) all.push_back(&row);
  }
  return all;
}

void check_operators(const Graph& graph) {
  if (graph.opset < kOldestOpset) {
    throw Error(Status::unsupported,
                fmt::format("the network is of opset {}, and the oldest that is known is {}; "
                            "export or convert it to a later one",
                            graph.opset, kOldestOpset));
  }
  for (const ValueId id : graph.inputs) {
    if (size_of(graph.at(id).type) == 0)
      throw Error(Status::unsupported,
                  "the input " + in_quotes(graph.at(id).name) + " is no tensor of numbers");
  }
  std::string missing;
  int count = 0;
  constexpr int kMost = 200;  // named; a file may have millions
  for (const Node& node : graph.nodes) {
    const Operator* row = find_operator(node);
    const int inputs = static_cast<int>(node.inputs.size());
    if (row == nullptr) {
      if (++count <= kMost) missing += (missing.empty() ? "" : ", ") + node.title();
    } else if (inputs < row->least || inputs > row->most) {
      throw Error(Status::bad_file, fmt::format("{} has {} inputs, and its operator takes {} to {}",
                                                node.title(), inputs, row->least, row->most));
    }
  }
  if (count == 0) return;
  if (count > kMost) missing += fmt::format(" and {} more", count - kMost);
  throw Error(Status::unsupported, fmt::format("{} nodes have operators that are not known (opset {}): {}",
                                               count, graph.opset, missing));
}

void Odometer::next() {
  for (std::size_t d = shape_.size(); d-- > 0;) {
    const bool wraps = ++index_[d] == shape_[d];
    const std::int64_t steps = wraps ? 1 - shape_[d] : 1;
    for (std::size_t t = 0; t < strides_.size(); ++t) offset_[t] += steps * strides_[t][d];
    if (!wraps) return;
    index_[d] = 0;
  }
}

Shape broadcast_strides(const Shape& from, const Shape& to) {
  const Shape own = contiguous_strides(from);
  Shape strides(to.size(), 0);
  const std::size_t missing = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[missing + i] = own[i];
  }
  return strides;
}

}  // namespace faltung::network
