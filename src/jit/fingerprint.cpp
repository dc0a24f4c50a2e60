#include "src/jit/fingerprint.hpp"

#include "src/jit/jit.hpp"
#include "src/store/sha256.hpp"

namespace faltung::jit {

extern const EmbeddedFile kEmbeddedFiles[];

const std::string& fingerprint() {
  static const std::string digits = [] {
    std::string all;
    for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
      all.append(file->path).append("\n").append(file->text).append("\n");
    }
    return sha256(all).substr(0, 12);
  }();
  return digits;
}

}  // namespace faltung::jit
