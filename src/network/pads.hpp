// The operator Pad's arguments.
#ifndef FALTUNG_SRC_NETWORK_PADS_HPP_
#define FALTUNG_SRC_NETWORK_PADS_HPP_

#include <string>
#include <vector>

#include "src/network/operator.hpp"

namespace faltung::network {

// Before and after each dimension; what is negative takes away.
struct Pads {
  std::vector<std::int64_t> before, after;
};
Pads read_pads(const Site& site);

// Of which element of an axis of this size an index that may lie outside comes, by the operator's mode; -1:
// of none, it is the constant.
std::int64_t padded_from(std::int64_t index, std::int64_t size, const std::string& mode);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_PADS_HPP_
