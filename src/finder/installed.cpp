#include "src/finder/installed.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace faltung {

std::string installed_file(std::initializer_list<const char*> places) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> folders;
  Dl_info library;
  if (::dladdr(reinterpret_cast<const void*>(&installed_file), &library) != 0 &&
      library.dli_fname != nullptr) {
    const fs::path file = fs::canonical(library.dli_fname, error);
    if (!error) folders.push_back(file.parent_path());
  }
  // Of Linux; where there is none, beside the library is all there is.
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(self.parent_path());
  for (const fs::path& folder : folders) {
    for (const char* place : places) {
      const fs::path file = fs::weakly_canonical(folder / place, error);
      if (!error && fs::is_regular_file(file, error)) return file.string();
    }
  }
  return "";
}

}  // namespace faltung
