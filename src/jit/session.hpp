// From device code as text and constants to a loaded kernel, compiled once.
#ifndef FALTUNG_SRC_JIT_SESSION_HPP_
#define FALTUNG_SRC_JIT_SESSION_HPP_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/store/store.hpp"

namespace faltung::jit {

// The kind of the records that compiled code is.
inline constexpr const char* kCode = "kernel";

// What a kernel is compiled from. As data: making one compiles nothing, and copies no source.
struct Source {
  std::string name;   // as the registry knows the kernel, for messages
  std::string text;   // constants, and lines that #include the library's device code
  std::string entry;  // the kernel's function
  std::vector<std::string> options;
  // As in KernelSource.
  int block_threads = 0, shared_bytes = 0;

  // With the whole translation unit.
  KernelSource whole() const;
  // Hexadecimal digits that differ once anything of what is compiled does.
  std::string digest() const;
};

// A kernel that was built, and what the compiler says of it.
struct Program {
  std::shared_ptr<Kernel> kernel;
  std::string entry;
  double compile_ms = 0;           // 0: it was compiled before
  double compiled_before_ms = -1;  // what it took then; -1 if it was not, or nobody knows
  KernelResources resources;
};

// Builds kernels for one device through one store. Thread-safe.
class Session {
 public:
  Session(Device& device, Store& store) : device_(device), store_(store) {}
  // Compiled on this device by this process before, else by an earlier one (the store's), else now. The
  // store's key is the device's for code (its architecture and compiler) and the source's digest.
  Program build(const Source& source) const { return build(std::vector{&source}).front(); }
  // The same of several; those that are compiled now are compiled side by side. What another thread compiles
  // is waited for.
  std::vector<Program> build(const std::vector<const Source*>& sources) const;
  // Whether it need not be compiled.
  bool knows(const Source& source) const;
  // Puts the code into the store itself where it is known of what was shipped.
  void keep(const Source& source) const;
  Device& device() const { return device_; }

 private:
  std::string key(const Source& source) const;
  std::optional<Program> known(const Source& source, const std::string& key) const;
  Program compile(const Source& source, const std::string& key) const;  // unless it is known by now
  Program remember(Program program, const KernelSource& text, const std::string& key) const;
  Device& device_;
  Store& store_;
};

}  // namespace faltung::jit

#endif  // FALTUNG_SRC_JIT_SESSION_HPP_
