#include "src/network/rewriting.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace faltung::network {

Rewriting::Rewriting(Graph graph) : graph_(std::move(graph)), removed_(graph_.nodes.size()) { update(); }

Node* Rewriting::maker(ValueId id) {
  const int i = maker_index(id);
  return i < 0 ? nullptr : &node(i);
}

Node* Rewriting::maker(ValueId id, std::string_view op) {
  Node* const found = maker(id);
  return found != nullptr && found->domain.empty() && found->op == op ? found : nullptr;
}

int Rewriting::only_reader(ValueId id) const {
  const auto& readers = readers_[static_cast<std::size_t>(id)];
  return uses(id) == 1 && readers.size() == 1 ? readers.front() : -1;
}

std::optional<double> Rewriting::number(ValueId id) const {
  if (!graph_.is_constant(id) || elements(graph_.at(id).constant->shape) != 1) return std::nullopt;
  return graph_.constant(id)->data.at(0);
}

bool Rewriting::is_number(ValueId id, double value, double tolerance) const {
  const std::optional<double> found = number(id);
  return found && std::abs(*found - value) <= tolerance * std::abs(value);
}

void Rewriting::update() {
  removed_.resize(graph_.nodes.size());
  uses_.assign(graph_.values.size(), 0);
  makers_.assign(graph_.values.size(), -1);
  readers_.assign(graph_.values.size(), {});
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (removed_[i]) continue;
    for (const ValueId id : graph_.nodes[i].inputs) {
      if (id == kNone) continue;
      ++uses_[static_cast<std::size_t>(id)];
      readers_[static_cast<std::size_t>(id)].push_back(static_cast<int>(i));
    }
    for (const ValueId id : graph_.nodes[i].outputs) {
      if (id != kNone) makers_[static_cast<std::size_t>(id)] = static_cast<int>(i);
    }
  }
  for (const ValueId id : graph_.outputs) ++uses_[static_cast<std::size_t>(id)];
}

void Rewriting::replace(ValueId from, ValueId to) {
  for (Node& node : graph_.nodes) std::ranges::replace(node.inputs, from, to);
  std::ranges::replace(graph_.outputs, from, to);
  update();
}

void Rewriting::remove(int i) {
  removed_[static_cast<std::size_t>(i)] = true;
  update();
}

Graph Rewriting::finish() {
  std::vector<Node> kept;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!removed_[i]) kept.push_back(std::move(graph_.nodes[i]));
  }
  graph_.nodes = std::move(kept);
  return without_dead_nodes(std::move(graph_));
}

}  // namespace faltung::network
