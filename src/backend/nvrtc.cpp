#include "src/backend/nvrtc.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "src/problem/text.hpp"

#include <dlfcn.h>

namespace faltung {

// What is used of the library, by its documented C interface.
struct Nvrtc::Functions {
  int (*version)(int* major, int* minor);
  const char* (*error_string)(int result);
  int (*create)(void** program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(void** program);
  int (*compile)(void* program, int options, const char* const* texts);
  int (*log_size)(void* program, std::size_t* size);
  int (*log)(void* program, char* log);
  int (*cubin_size)(void* program, std::size_t* size);
  int (*cubin)(void* program, char* code);
};

namespace {

namespace fs = std::filesystem;

const char* const kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// Where toolkits and Python's packages put the library, beyond the loader's own path.
std::vector<std::string> folders() {
  std::vector<std::string> found;
  const auto add = [&](const fs::path& folder) {
    std::error_code error;
    if (fs::is_directory(folder, error)) found.push_back(folder.string());
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}) {
    if (const char* home = std::getenv(variable)) {
      for (const char* lib : {"lib64", "lib"}) add(fs::path(home) / lib);
    }
  }
  for (const char* lib : {"lib64", "lib"}) add(fs::path("/usr/local/cuda") / lib);
  // site-packages beside every python3 on PATH, and the user's own.
  std::vector<fs::path> prefixes;
  if (const char* path = std::getenv("PATH")) {
    for (const std::string& folder : split(path, ':')) {
      std::error_code error;
      if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) {
        prefixes.push_back(fs::path(folder).parent_path());
      }
    }
  }
  if (const char* home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
  for (const fs::path& prefix : prefixes) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const char* package : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) {
          add(entry.path() / packages / package);
        }
      }
    }
  }
  return found;
}

struct Opened {
  void* handle = nullptr;
  std::string missing;
};

Opened open_library() {
  if (const char* named = std::getenv("FALTUNG_NVRTC")) {
    if (void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL)) return {handle, ""};
    return {nullptr, std::string("FALTUNG_NVRTC names ") + named + ", which cannot be opened: " + dlerror()};
  }
  for (const char* soname : kSonames) {
    if (void* handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL)) return {handle, ""};
  }
  const std::vector<std::string> where = folders();
  for (const std::string& folder : where) {
    for (const char* soname : kSonames) {
      if (void* handle = dlopen((folder + "/" + soname).c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, ""};
    }
  }
  return {nullptr,
          "no libnvrtc.so.13 or .12 on the loader's path, in a CUDA toolkit or among Python's packages; "
          "install one (e.g. pip install nvidia-cuda-nvrtc) or name it in FALTUNG_NVRTC"};
}

std::string& missing_text() {
  static std::string text;
  return text;
}

}  // namespace

const Nvrtc* Nvrtc::get() {
  static const Nvrtc* const instance = []() -> const Nvrtc* {
    const Opened opened = open_library();
    if (opened.handle == nullptr) {
      missing_text() = opened.missing;
      return nullptr;
    }
    static Functions functions;
    bool complete = true;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened.handle, name));
      complete = complete && function != nullptr;
    };
    bind(functions.version, "nvrtcVersion");
    bind(functions.error_string, "nvrtcGetErrorString");
    bind(functions.create, "nvrtcCreateProgram");
    bind(functions.destroy, "nvrtcDestroyProgram");
    bind(functions.compile, "nvrtcCompileProgram");
    bind(functions.log_size, "nvrtcGetProgramLogSize");
    bind(functions.log, "nvrtcGetProgramLog");
    bind(functions.cubin_size, "nvrtcGetCUBINSize");
    bind(functions.cubin, "nvrtcGetCUBIN");
    if (!complete) {
      missing_text() = "the libnvrtc found is too old: it has no nvrtcGetCUBIN (CUDA 11.1 and up has)";
      return nullptr;
    }
    static Nvrtc nvrtc;
    nvrtc.functions_ = &functions;
    int major = 0, minor = 0;
    functions.version(&major, &minor);
    nvrtc.version_ = std::to_string(major) + "." + std::to_string(minor);
    return &nvrtc;
  }();
  return instance;
}

const std::string& Nvrtc::missing() { return missing_text(); }

Binary Nvrtc::compile(const KernelSource& source, const std::string& architecture) const {
  const auto begin = std::chrono::steady_clock::now();
  void* program = nullptr;
  std::string given;
  for (const std::string& option : source.options) given += " " + option;
  const auto check = [&](int result, const char* what) {
    if (result == 0) return;
    std::string log;
    std::size_t size = 0;
    if (program != nullptr && functions_->log_size(program, &size) == 0 && size > 1) {
      log.resize(size);
      functions_->log(program, log.data());
      while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    }
    if (program != nullptr) functions_->destroy(&program);
    // NVRTC 13 dropped Volta, and says of it only that the option is not valid.
    if (architecture == "sm_70" && std::atoi(version_.c_str()) >= 13) {
      throw Error(Status::unsupported,
                  "NVRTC " + version_ + " compiles for sm_75 and later: a GPU of compute " +
                      "capability 7.0 needs NVRTC 12; FALTUNG_NVRTC names a libnvrtc.so.12");
    }
    throw Error(Status::device_error, "NVRTC " + version_ + " cannot " + what + " kernel " + source.name +
                                          " for " + architecture + ": " + functions_->error_string(result) +
                                          (given.empty() ? "" : "; options" + given) +
                                          (log.empty() ? "" : "; log: " + log));
  };
  check(
      functions_->create(&program, source.text.c_str(), (source.entry + ".cu").c_str(), 0, nullptr, nullptr),
      "read");
  std::vector<std::string> options = {"--gpu-architecture=" + architecture, "--std=c++17",
                                      "--ptxas-options=-v"};
  options.insert(options.end(), source.options.begin(), source.options.end());
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  check(functions_->compile(program, static_cast<int>(texts.size()), texts.data()), "compile");
  Binary binary;
  std::size_t size = 0;
  check(functions_->log_size(program, &size), "give the log of");
  binary.log.resize(size);
  if (size > 0) functions_->log(program, binary.log.data());
  while (!binary.log.empty() && binary.log.back() == '\0') binary.log.pop_back();
  check(functions_->cubin_size(program, &size), "give the code of");
  binary.code.resize(size);
  check(functions_->cubin(program, binary.code.data()), "give the code of");
  functions_->destroy(&program);
  binary.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return binary;
}

}  // namespace faltung
