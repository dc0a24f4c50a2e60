#include "src/backend/clspv.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "src/backend/library_search.hpp"

#include <dlfcn.h>

namespace faltung {
namespace {

std::string& clspv_missing_text() {
  static std::string text;
  return text;
}

void* open_clspv() {
  if (const auto named = open_named("FALTUNG_CLSPV", clspv_missing_text())) return *named;
  void* const handle = open_library({"libclspv_core.so", "libclspv.so"}, {});
  if (handle == nullptr)
    clspv_missing_text() =
        "no libclspv_core.so on the loader's path; build clspv with CLSPV_SHARED_LIB and name it in "
        "FALTUNG_CLSPV";
  return handle;
}

}  // namespace

const Clspv* Clspv::get() {
  static const Clspv* const instance = []() -> const Clspv* {
    void* const library = open_clspv();
    if (library == nullptr) return nullptr;
    static Clspv clspv;
    void* const compile = dlsym(library, "clspvCompileFromSourcesString");
    Dl_info place{};
    if (compile == nullptr || dladdr(compile, &place) == 0) {
      clspv_missing_text() = "the libclspv found has no C interface";
      return nullptr;
    }
    clspv.compile_ = reinterpret_cast<decltype(clspv.compile_)>(compile);
    std::error_code error;
    clspv.identity_ = "clspv" + std::to_string(std::filesystem::file_size(place.dli_fname, error));
    return &clspv;
  }();
  return instance;
}

const std::string& Clspv::missing() { return clspv_missing_text(); }

Binary Clspv::compile(const KernelSource& source, unsigned push_constant_bytes) const {
  std::string options =
      "--cl-std=CL1.2 --spv-version=1.5 --long-vector -DF_CLSPV=1 --max-pushconstant-size=" +
      std::to_string(push_constant_bytes);
  for (const std::string& option : source.options) options += " " + option;
  const char* const text = source.text.c_str();
  const std::size_t bytes = source.text.size();
  char *code = nullptr, *log = nullptr;
  std::size_t code_bytes = 0;
  Binary binary;
  const std::lock_guard lock(mutex_);
  const auto begin = std::chrono::steady_clock::now();
  const int result = compile_(1, &bytes, &text, options.c_str(), &code, &code_bytes, &log);
  if (code != nullptr) binary.code.assign(code, code_bytes);
  if (log != nullptr) binary.log = log;
  std::free(code), std::free(log);  // made by malloc; the interface's own function for it is newer
  if (result != 0) {
    throw Error(Status::device_error, "clspv cannot compile kernel " + source.name + ": error " +
                                          std::to_string(result) + "; options " + options +
                                          "; log: " + binary.log);
  }
  binary.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return binary;
}

}  // namespace faltung
