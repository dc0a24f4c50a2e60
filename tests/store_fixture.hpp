// A store in a directory of a test's own, whose warnings are kept.
#ifndef FALTUNG_TESTS_STORE_FIXTURE_HPP_
#define FALTUNG_TESTS_STORE_FIXTURE_HPP_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "src/store/store.hpp"

namespace faltung {

class StoreFixture : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/faltung_store_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(directory_);
  }

  Store open(const std::string& suffix = "") {
    return Store(directory_ + suffix, [this](const std::string& message) { warnings_.push_back(message); });
  }
  // Of everything in the store's directories.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) out.push_back(entry.path().string());
    }
    return out;
  }
  static std::string read(const std::string& file) {
    std::ostringstream out;
    out << std::ifstream(file, std::ios::binary).rdbuf();
    return out.str();
  }
  static void write(const std::string& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }

  std::string directory_;
  std::vector<std::string> warnings_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_STORE_FIXTURE_HPP_
