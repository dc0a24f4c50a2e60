// The reference of a network: every node in doubles, in order.
#ifndef FALTUNG_SRC_NETWORK_INTERPRETER_HPP_
#define FALTUNG_SRC_NETWORK_INTERPRETER_HPP_

#include <functional>
#include <optional>
#include <vector>

#include "src/network/graph.hpp"
#include "src/network/operator.hpp"

namespace faltung::network {

// A node's results. inputs: null for those that are left out; all others have their elements.
std::vector<Array> evaluate(const Node& node, std::int64_t opset, const std::vector<const Array*>& inputs);

// The results of the graph's outputs. inputs: one an input of the graph, in their order. seen: called with
// each value that a node makes, which is freed when nothing reads it any more; what is done to it there is
// read by the nodes behind.
std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& inputs,
                             const std::function<void(ValueId, Array&)>& seen = {});

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_INTERPRETER_HPP_
