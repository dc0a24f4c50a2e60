#include "src/backend/runtime_compiler.hpp"

#include <chrono>
#include <memory>
#include <type_traits>

#include <dlfcn.h>

namespace faltung {
namespace {

// What the library wrote, without the end that C's strings have.
std::string trimmed(std::string log) {
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

}  // namespace

bool RuntimeCompiler::bind(void* library, const std::string& prefix, const std::string& code_function) {
  bool complete = true;
  const auto find = [&](auto& function, const std::string& name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name.c_str()));
    complete = complete && function != nullptr;
  };
  find(get_version, prefix + "Version");
  find(error_string, prefix + "GetErrorString");
  find(create, prefix + "CreateProgram");
  find(destroy, prefix + "DestroyProgram");
  find(build, prefix + "CompileProgram");
  find(log_size, prefix + "GetProgramLogSize");
  find(log, prefix + "GetProgramLog");
  find(code_size, code_function + "Size");
  find(code, code_function);
  return complete;
}

std::string RuntimeCompiler::version() const {
  int major = 0, minor = 0;
  get_version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

Binary RuntimeCompiler::compile(const KernelSource& source, const std::string& architecture,
                                std::vector<std::string> options) const {
  const auto begin = std::chrono::steady_clock::now();
  void* program = nullptr;
  const auto destroyed = [this](void** made) {
    if (*made != nullptr) destroy(made);
  };
  const std::unique_ptr<void*, decltype(destroyed)> owner(&program, destroyed);
  const auto read_log = [&] {
    std::string text;
    std::size_t size = 0;
    if (program != nullptr && log_size(program, &size) == 0 && size > 1) {
      text.resize(size);
      log(program, text.data());
    }
    return trimmed(text);
  };
  const auto check = [&](int result, const char* what) {
    if (result == 0) return;
    std::string given;
    for (const std::string& option : source.options) given += " " + option;
    const std::string said = read_log();
    throw Error(Status::device_error, name + " " + version() + " cannot " + what + " kernel " + source.name +
                                          " for " + architecture + ": " + error_string(result) +
                                          (given.empty() ? "" : "; options" + given) +
                                          (said.empty() ? "" : "; log: " + said));
  };
  check(create(&program, source.text.c_str(), (source.entry + ending).c_str(), 0, nullptr, nullptr), "read");
  options.insert(options.end(), source.options.begin(), source.options.end());
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  check(build(program, static_cast<int>(texts.size()), texts.data()), "compile");
  Binary binary;
  binary.log = read_log();
  std::size_t size = 0;
  check(code_size(program, &size), "give the code of");
  binary.code.resize(size);
  check(code(program, binary.code.data()), "give the code of");
  binary.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return binary;
}

}  // namespace faltung
