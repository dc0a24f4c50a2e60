// Every tensor of a network beside a run in double precision.
#ifndef FALTUNG_SRC_NETWORK_VERIFY_HPP_
#define FALTUNG_SRC_NETWORK_VERIFY_HPP_

#include <string>
#include <vector>

#include "src/network/network.hpp"

namespace faltung::network {

// One tensor that both runs make. Errors are relative to the tensor's largest element.
struct TensorError {
  std::string name, step;
  Shape shape;
  double worst = 0, rms = 0;
  bool is_output = false;
  bool finite = true;  // false: NaN or Inf on one side alone
};

// Of the actual elements; nothing of them is a name.
TensorError compare(const Array& expected, const Array& actual);

struct Verified {
  std::vector<TensorError> tensors;  // in the order of the steps
  std::vector<Array> outputs;        // the network's, in double precision
  // Names of tensors that have elements beyond the network's 16 bits, and were not kept in f32: inputs, and
  // results in the order of the file.
  std::vector<std::string> beyond;
};
// The reference is the file's own graph, before any pass.
Verified verify(NetworkImpl& network, const NetworkPlanImpl& plan, std::span<const void* const> inputs);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_VERIFY_HPP_
