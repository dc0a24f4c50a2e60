// What passes share: following values from node to node, and putting nodes in the place of others.
#ifndef FALTUNG_SRC_NETWORK_REWRITING_HPP_
#define FALTUNG_SRC_NETWORK_REWRITING_HPP_

#include <optional>
#include <string_view>
#include <vector>

#include "src/network/graph.hpp"

namespace faltung::network {

class Rewriting {
 public:
  explicit Rewriting(Graph graph);

  Graph& graph() { return graph_; }
  std::size_t size() const { return graph_.nodes.size(); }
  Node& node(int i) { return graph_.nodes[static_cast<std::size_t>(i)]; }

  // The node that makes a value; null where none does, or it was taken away.
  Node* maker(ValueId id);
  int maker_index(ValueId id) const { return id == kNone ? -1 : makers_[static_cast<std::size_t>(id)]; }
  // The maker, if it is one of this operator (of ONNX's own).
  Node* maker(ValueId id, std::string_view op);
  int uses(ValueId id) const { return uses_[static_cast<std::size_t>(id)]; }
  // The only node that reads a value, which is no output of the network; -1 where there is none or several.
  int only_reader(ValueId id) const;
  // A constant of one element, as a number.
  std::optional<double> number(ValueId id) const;
  bool is_number(ValueId id, double value, double tolerance = 1e-6) const;

  // The node's place is taken by another (or it keeps its place, changed): uses are counted anew.
  void update();
  // Everything that reads `from` reads `to`.
  void replace(ValueId from, ValueId to);
  void remove(int i);

  // Without the nodes that were removed and those that nobody needs any more.
  Graph finish();

 private:
  Graph graph_;
  std::vector<int> uses_, makers_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> removed_;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_REWRITING_HPP_
