#include "src/backend/library_search.hpp"

#include <filesystem>

#include "src/problem/environment.hpp"
#include "src/problem/text.hpp"

#include <dlfcn.h>

namespace faltung {
namespace {

namespace fs = std::filesystem;

void add_folder(std::vector<std::string>& found, const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) found.push_back(folder.string());
}

}  // namespace

std::vector<std::string> toolkit_folders(const std::vector<std::string>& variables,
                                         const std::string& standard) {
  std::vector<fs::path> places;
  for (const std::string& variable : variables) {
    if (const std::string home = environment(variable.c_str()); !home.empty()) places.emplace_back(home);
  }
  places.emplace_back(standard);
  std::vector<std::string> found;
  for (const fs::path& place : places) {
    for (const char* lib : {"lib64", "lib"}) add_folder(found, place / lib);
  }
  return found;
}

std::vector<std::string> python_folders(const std::vector<std::string>& packages) {
  std::vector<fs::path> prefixes;
  for (const std::string& folder : split(environment("PATH"), ':')) {
    std::error_code error;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) {
      prefixes.push_back(fs::path(folder).parent_path());
    }
  }
  if (const std::string home = environment("HOME"); !home.empty())
    prefixes.push_back(fs::path(home) / ".local");
  std::vector<std::string> found;
  for (const fs::path& prefix : prefixes) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* site : {"site-packages", "dist-packages"}) {
        for (const std::string& package : packages) add_folder(found, entry.path() / site / package);
      }
    }
  }
  return found;
}

std::optional<void*> open_named(const char* variable, std::string& missing) {
  const std::string named = environment(variable);
  if (named.empty()) return std::nullopt;
  void* const handle = dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    missing = std::string(variable) + " names " + named + ", which cannot be opened: " + dlerror();
  return handle;
}

void* open_library(const std::vector<std::string>& names, const std::vector<std::string>& folders) {
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  for (const std::string& folder : folders) {
    for (const std::string& name : names) {
      if (void* handle = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  return nullptr;
}

}  // namespace faltung
