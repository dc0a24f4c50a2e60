// A folder of a test's own, gone with it.
#ifndef FALTUNG_TESTS_SCRATCH_HPP_
#define FALTUNG_TESTS_SCRATCH_HPP_

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace faltung {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "faltung_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_SCRATCH_HPP_
