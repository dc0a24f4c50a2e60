#include "src/network/onnx_metadata.hpp"

#include <fmt/core.h>

#include "src/network/onnx_fields.hpp"
#include "src/store/mapped_file.hpp"

namespace faltung::network {

std::map<std::string, std::string> read_onnx_metadata(const std::string& path) try {
  const MappedFile file = map_file(path);
  std::map<std::string, std::string> all;
  for (Fields model({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}); model.next();) {
    if (model.id() != 14) continue;
    std::string key;
    std::string_view value;
    for (Fields entry(model.bytes()); entry.next();) {
      if (entry.id() == 1)
        key = entry.bytes();
      else if (entry.id() == 2)
        value = entry.bytes();
    }
    all[key] = value;
  }
  return all;
} catch (const protozero::exception& error) {
  throw Error(Status::bad_file, fmt::format("{}: not an ONNX file, or cut short ({})", path, error.what()));
}

}  // namespace faltung::network
