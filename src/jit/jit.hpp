// From a kernel's source file and constants to a loaded kernel, compiled once.
#ifndef FALTUNG_SRC_JIT_JIT_HPP_
#define FALTUNG_SRC_JIT_JIT_HPP_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung::jit {

struct EmbeddedFile {
  const char* path;
  const char* text;
};

// `constants` followed by the embedded file at path, with the embedded files that it includes in their
// places, each once: one self-contained translation unit.
std::string translation_unit(const std::string& constants, const std::string& path);

struct Built {
  std::shared_ptr<Kernel> kernel;
  double compile_ms = 0;           // 0: it was compiled before
  double compiled_before_ms = -1;  // what it took then; -1 if it was not, or nobody knows
};

// Compiled on this device by this process before, else by an earlier one (the store's), else now. The store's
// key is the device's (its architecture, driver and compiler), the options and the whole text.
Built build(Device& device, const KernelSource& source);

// One kernel that was built, and what the compiler says of it.
struct Compiled {
  std::string entry;
  double compile_ms = 0, compiled_before_ms = -1;  // as in Built
  KernelResources resources;
};

// While it lives, lines that this thread's builds have for the caller (a store that cannot be written) go to
// warn.
class Warnings {
 public:
  explicit Warnings(std::function<void(const std::string&)> warn);
  ~Warnings();
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

 private:
  std::function<void(const std::string&)> outer_;
};

// While it lives, what this thread builds; then it goes to the one outside it, if there is one.
class Collector {
 public:
  Collector();
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  std::vector<Compiled> kernels;

 private:
  Collector* outer_;
};

}  // namespace faltung::jit

#endif  // FALTUNG_SRC_JIT_JIT_HPP_
