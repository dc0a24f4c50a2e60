// A folder that is gone when its object is. Throws Error(bad_file) where none can be made.
#ifndef FALTUNG_SRC_PROBLEM_TEMPORARY_FOLDER_HPP_
#define FALTUNG_SRC_PROBLEM_TEMPORARY_FOLDER_HPP_

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "faltung/faltung.hpp"
#include "src/problem/environment.hpp"

namespace faltung {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::string named = environment("TMPDIR");
    path_ = (named.empty() ? "/tmp" : named) + "/faltung-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      throw Error(Status::bad_file, "cannot write " + path_ + ": " + std::strerror(errno) +
                                        "; TMPDIR may name a folder with room");
    }
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

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_TEMPORARY_FOLDER_HPP_
