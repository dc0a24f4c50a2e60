// A libhiprtc.so that compiles with clang, as `faltung compilers --with clang-hip:gfx942` does, for the chips
// of tests/fake_hip/driver.cpp. FAKE_HIPRTC=aborts: it ends the process, as releases do that do not know a
// chip.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "faltung/faltung.hpp"
#include "src/backend/offline_compiler.hpp"
#include "tests/fake_hip/chips.hpp"

namespace {

enum Result { success = 0, invalid_input = 3, invalid_option = 5, compilation = 6 };

struct Program {
  faltung::KernelSource source;
  std::string log, code;
};

// For the chip that the driver calls by this name.
faltung::Device& compiler_of(const std::string& called) {
  static std::mutex mutex;
  static auto& made = *new std::map<std::string, std::shared_ptr<faltung::Device>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<faltung::Device>& one = made[called];
  if (one == nullptr) {
    std::string chip = called;
    for (const faltung::fake_hip::Chip& each : faltung::fake_hip::chips())
      if (each.called == called) chip = each.chip;
    one = faltung::make_offline_compiler("clang-hip:" + chip);
  }
  return *one;
}

int copy_out(const std::string& text, char* to) { return std::memcpy(to, text.data(), text.size()), success; }

}  // namespace

extern "C" {

int hiprtcVersion(int* major, int* minor) { return *major = 6, *minor = 2, success; }
const char* hiprtcGetErrorString(int result) {
  return result == compilation ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INVALID_INPUT";
}
int hiprtcCreateProgram(void** program, const char* source, const char* name, int headers, const char* const*,
                        const char* const*) {
  if (headers != 0) return invalid_input;
  auto* const made = new Program;
  made->source.name = name, made->source.text = source;
  return *program = made, success;
}
int hiprtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return *program = nullptr, success;
}
int hiprtcCompileProgram(void* program, int count, const char* const* options) {
  const char* const how = std::getenv("FAKE_HIPRTC");
  if (how != nullptr && std::string(how) == "aborts") std::abort();
  auto& p = *static_cast<Program*>(program);
  const std::string kArchitecture = "--offload-arch=";
  std::string chip;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (option.starts_with(kArchitecture))
      chip = option.substr(kArchitecture.size());
    else
      p.source.options.push_back(option);
  }
  if (chip.empty()) return invalid_option;
  try {
    const faltung::Binary binary = compiler_of(chip).compile(p.source);
    p.code = binary.code;
    return success;
  } catch (const faltung::Error& error) {
    p.log = error.what();
    return compilation;
  }
}
int hiprtcGetProgramLogSize(void* program, std::size_t* size) {
  return *size = static_cast<Program*>(program)->log.size() + 1, success;
}
int hiprtcGetProgramLog(void* program, char* log) {
  const std::string& text = static_cast<Program*>(program)->log;
  log[text.size()] = '\0';
  return copy_out(text, log);
}
int hiprtcGetCodeSize(void* program, std::size_t* size) {
  return *size = static_cast<Program*>(program)->code.size(), success;
}
int hiprtcGetCode(void* program, char* code) { return copy_out(static_cast<Program*>(program)->code, code); }

}  // extern "C"
