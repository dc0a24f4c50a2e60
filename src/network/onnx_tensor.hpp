// ONNX's TensorProto: a constant, in the file itself or in one beside it.
#ifndef FALTUNG_SRC_NETWORK_ONNX_TENSOR_HPP_
#define FALTUNG_SRC_NETWORK_ONNX_TENSOR_HPP_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/network/onnx.hpp"
#include "src/store/mapped_file.hpp"

namespace faltung::network {

// Where a message's bytes lie, and where data outside of its file may.
class TensorSource {
 public:
  // folder: empty allows no data outside.
  TensorSource(std::shared_ptr<const void> owner, std::string folder)
      : owner_(std::move(owner)), folder_(std::move(folder)) {}

  NamedTensor read(std::string_view message);

 private:
  MappedFile& external_file(const std::string& location);

  std::shared_ptr<const void> owner_;
  std::string folder_;
  std::map<std::string, MappedFile> external_;  // by location, each mapped once
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ONNX_TENSOR_HPP_
