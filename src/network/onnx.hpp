// ONNX's files: a protobuf message of nodes and constants, read by hand over protozero. docs/networks.md says
// which operators and versions are known beyond reading.
#ifndef FALTUNG_SRC_NETWORK_ONNX_HPP_
#define FALTUNG_SRC_NETWORK_ONNX_HPP_

#include <span>
#include <string>

#include "src/network/graph.hpp"

namespace faltung::network {

// The network of a file, whose constants stay mapped. Throws Error(bad_file), in one line, for what is no
// ONNX file, is damaged, has names that do not fit together, or needs data from outside of its folder; and
// Error(unsupported) for what ONNX allows and faltung has not (listed by check_operators, below the reader:
// here only what cannot be told as a graph at all).
Graph read_onnx(const std::string& path);

// The same from bytes in memory, which live as long as owner. folder: where data outside of the file may lie;
// empty allows none. Memory taken is bounded by the bytes given.
Graph read_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                const std::string& folder, const std::string& file);

struct NamedTensor {
  std::string name;
  Constant constant;
};
// A tensor in a file of its own, as ONNX's test data has them.
NamedTensor read_onnx_tensor(const std::string& path);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ONNX_HPP_
