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

// Where the node's residual comes in.
ResidualOrder read_residual_order(const Node& node);
void set_residual_order(Node& node, ResidualOrder order);
// What stands behind a node's sums.
struct Behind {
  bool bias, residual;
};
// As a problem of the dtype has it. Beside 16 bits the bias stays in f32: batch normalization made it of
// large numbers, and what it errs by is an image's as a whole, which no later average takes away.
Epilogue epilogue_of(const Node& node, DType dtype, Behind behind);

// What the node's attributes say, and setting them.
FusedActivation read_activation(const Node& node);
void set_activation(Node& node, const FusedActivation& activation);
// In doubles: the sum with the residual, if there is one, and activated.
double finish(const Node& node, double x, const double* residual);

// The activation that an operator is, where an epilogue has it.
std::optional<FusedActivation> as_activation(const Graph& graph, const Node& node);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_EPILOGUE_HPP_
