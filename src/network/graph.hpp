// A network as data: values, the nodes that make them, and constants. Passes turn one into another.
#ifndef FALTUNG_SRC_NETWORK_GRAPH_HPP_
#define FALTUNG_SRC_NETWORK_GRAPH_HPP_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/network/tensor.hpp"

namespace faltung::network {

using ValueId = int;
inline constexpr ValueId kNone = -1;  // an optional input that is not given

struct Value {
  std::string name;
  Type type = Type::unknown;
  // -1 for a size that is left open. None where even the number of dimensions is.
  std::optional<Shape> shape;
  std::vector<std::string> size_names;       // of an input's open sizes; empty texts for the others
  std::shared_ptr<const Constant> constant;  // its elements, where they are known
};

using Attribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                               std::vector<float>, std::vector<std::string>, std::shared_ptr<const Constant>>;

struct Node {
  std::string op, domain;
  std::string name;  // for messages: its own, else that of its first output
  std::map<std::string, Attribute, std::less<>> attributes;
  std::vector<ValueId> inputs, outputs;  // kNone where one is left out

  // An attribute, or what it is where it is not given. Throws Error(bad_file) for one of another kind.
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const;
  float number(std::string_view key, float otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  bool has(std::string_view key) const { return attributes.contains(key); }
  // "Conv 'backbone/conv1'"
  std::string title() const;
};

// Nodes stand in an order in which each one's inputs are made before it.
struct Graph {
  std::int64_t opset = 0;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;

  Value& at(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  const Value& at(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  ValueId add(Value value);
  // A value that is this constant; its name is for messages.
  ValueId add_constant(std::string name, const Array& array);
  // The constant's elements; none for kNone and what is not constant.
  std::optional<Array> constant(ValueId id) const;
  bool is_constant(ValueId id) const { return id != kNone && at(id).constant != nullptr; }
};

// By value: how many nodes read it (and as a network's output once more), and which node makes it (-1: none).
std::vector<int> count_uses(const Graph& graph);
std::vector<int> producers(const Graph& graph);
// Without the nodes whose outputs nobody reads.
Graph without_dead_nodes(Graph graph);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_GRAPH_HPP_
