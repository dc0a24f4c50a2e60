// What an ONNX file says of itself beside the network.
#ifndef FALTUNG_SRC_NETWORK_ONNX_METADATA_HPP_
#define FALTUNG_SRC_NETWORK_ONNX_METADATA_HPP_

#include <map>
#include <string>

namespace faltung::network {

// The model's metadata_props: texts by their keys, the last of those that are given twice. Throws
// Error(bad_file) as read_onnx does.
std::map<std::string, std::string> read_onnx_metadata(const std::string& path);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ONNX_METADATA_HPP_
