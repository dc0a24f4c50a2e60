// A folder that is gone when its object is. Throws Error(bad_file) where none can be made.
#ifndef FALTUNG_TOOLS_TEMPORARY_FOLDER_HPP_
#define FALTUNG_TOOLS_TEMPORARY_FOLDER_HPP_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "faltung/faltung.hpp"

namespace faltung::tools {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path parent = std::filesystem::temp_directory_path();
    path_ = (parent / "faltung-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw Error(Status::bad_file, "no folder can be made in " + parent.string() + "; TMPDIR names another");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_TEMPORARY_FOLDER_HPP_
