// Resize and Upsample: of which elements of an axis each element of the result is made.
#ifndef FALTUNG_SRC_NETWORK_RESIZE_HPP_
#define FALTUNG_SRC_NETWORK_RESIZE_HPP_

#include <vector>

#include "src/network/operator.hpp"

namespace faltung::network {

// An axis of the result: element i is the sum over t < taps of weight[i * taps + t] times the input's element
// index[i * taps + t]. With one tap all weights are 1.
struct Taps {
  std::int64_t in = 0, out = 0;
  std::int64_t taps = 1;
  std::vector<std::int64_t> index;
  std::vector<double> weight;
  bool identity() const;
};

// One a dimension: the operator is separable.
std::vector<Taps> resize_taps(const Site& site);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_RESIZE_HPP_
