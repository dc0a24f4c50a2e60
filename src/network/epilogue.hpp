// The activation that a pass has put behind a convolution or product, as attributes of its node.
#ifndef FALTUNG_SRC_NETWORK_EPILOGUE_HPP_
#define FALTUNG_SRC_NETWORK_EPILOGUE_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/network/graph.hpp"
#include "src/problem/problem.hpp"

namespace faltung::network {

struct FusedActivation {
  ActivationCall call;
  std::shared_ptr<const Constant> slopes;  // prelu's, f32, one of each channel
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
// In doubles: a channel's sum with the residual, if there is one, and activated.
class NodeEpilogue {
 public:
  explicit NodeEpilogue(const Node& node);
  double operator()(std::int64_t channel, double x, const double* residual) const;

 private:
  ActivationCall activation_;
  std::vector<double> slopes_;
  ResidualOrder order_;
};

// So many channels, along which axis of how many dimensions.
struct Channels {
  std::size_t axis, rank;
  std::int64_t count;
};
// The activation that an operator is, where an epilogue has it. channels: of what it reads.
std::optional<FusedActivation> as_activation(const Graph& graph, const Node& node, const Channels& channels);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_EPILOGUE_HPP_
