// The activation that a pass has put behind a convolution or product, as attributes of its node.
#ifndef FALTUNG_SRC_NETWORK_EPILOGUE_HPP_
#define FALTUNG_SRC_NETWORK_EPILOGUE_HPP_

#include <optional>

#include "src/network/graph.hpp"

namespace faltung::network {

struct FusedActivation {
  Activation kind = Activation::none;
  float slope = 0.01f;
};

// What the node's attributes say, and setting them.
FusedActivation read_activation(const Node& node);
void set_activation(Node& node, const FusedActivation& activation);
// In doubles.
double activate(const Node& node, double x);

// The activation that an operator is, where an epilogue has it.
std::optional<FusedActivation> as_activation(const Graph& graph, const Node& node);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_EPILOGUE_HPP_
