#include "src/network/graph.hpp"

#include <algorithm>
#include <utility>

namespace faltung::network {
namespace {

// The attribute as T; null where it is not given.
template <class T>
const T* find(const Node& node, std::string_view key) {
  const auto found = node.attributes.find(key);
  if (found == node.attributes.end()) return nullptr;
  if (const T* value = std::get_if<T>(&found->second)) return value;
  throw Error(Status::bad_file, node.title() + ": the attribute " + in_quotes(key) +
                                    " is of another kind than " + "its operator has it");
}

}  // namespace

std::int64_t Node::integer(std::string_view key, std::int64_t otherwise) const {
  const auto* value = find<std::int64_t>(*this, key);
  return value == nullptr ? otherwise : *value;
}

float Node::number(std::string_view key, float otherwise) const {
  const auto* value = find<float>(*this, key);
  return value == nullptr ? otherwise : *value;
}

std::string Node::text(std::string_view key, std::string_view otherwise) const {
  const auto* value = find<std::string>(*this, key);
  return value == nullptr ? std::string(otherwise) : *value;
}

std::optional<std::vector<std::int64_t>> Node::integers(std::string_view key) const {
  const auto* value = find<std::vector<std::int64_t>>(*this, key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::string Node::title() const {
  return (domain.empty() ? "" : printable(domain) + ".") + printable(op) + " " + in_quotes(name);
}

ValueId Graph::add(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_constant(std::string name, const Array& array) {
  Value value;
  value.name = std::move(name);
  value.type = array.type;
  value.shape = array.shape;
  value.constant = std::make_shared<const Constant>(encode(array));
  return add(std::move(value));
}

std::optional<Array> Graph::constant(ValueId id) const {
  if (!is_constant(id)) return std::nullopt;
  return decode(*at(id).constant);
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.values.size());
  const auto use = [&](ValueId id) {
    if (id != kNone) ++uses[static_cast<std::size_t>(id)];
  };
  for (const Node& node : graph.nodes) std::ranges::for_each(node.inputs, use);
  std::ranges::for_each(graph.outputs, use);
  return uses;
}

std::vector<int> producers(const Graph& graph) {
  std::vector<int> makers(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNone) makers[static_cast<std::size_t>(id)] = static_cast<int>(i);
    }
  }
  return makers;
}

Graph without_dead_nodes(Graph graph) {
  std::vector<bool> wanted(graph.values.size());
  const auto want = [&](ValueId id) {
    if (id != kNone) wanted[static_cast<std::size_t>(id)] = true;
  };
  std::ranges::for_each(graph.outputs, want);
  std::vector<bool> alive(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    alive[i] = std::ranges::any_of(
        node.outputs, [&](ValueId id) { return id != kNone && wanted[static_cast<std::size_t>(id)]; });
    if (alive[i]) std::ranges::for_each(node.inputs, want);
  }
  std::vector<Node> kept;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (alive[i]) kept.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(kept);
  return graph;
}

}  // namespace faltung::network
