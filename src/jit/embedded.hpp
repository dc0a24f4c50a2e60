// The device code that this library carries as text.
#ifndef FALTUNG_SRC_JIT_EMBEDDED_HPP_
#define FALTUNG_SRC_JIT_EMBEDDED_HPP_

#include <string>
#include <vector>

namespace faltung::jit {

struct EmbeddedFile {
  const char* path;
  const char* text;
};

// text with each line `#include "path"` replaced by that embedded file, those that say `#pragma once` once.
std::string expanded(const std::string& text);
// The paths that text includes itself.
std::vector<std::string> included(const std::string& text);
// Digits that differ once anything of the file at path, or of what it includes, does.
const std::string& unit_digest(const std::string& path);

}  // namespace faltung::jit

#endif  // FALTUNG_SRC_JIT_EMBEDDED_HPP_
