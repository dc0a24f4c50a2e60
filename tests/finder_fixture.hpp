// An engine with a store of its own, and a small problem for it.
#ifndef FALTUNG_TESTS_FINDER_FIXTURE_HPP_
#define FALTUNG_TESTS_FINDER_FIXTURE_HPP_

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "faltung/faltung.hpp"

namespace faltung {

class FinderFixture : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() /
        ("faltung-finder-" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
    engine_ = std::make_unique<Engine>(directory_.string());
    request_.threads = 1;
    request_.budget_ms = 200;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
  std::unique_ptr<Engine> engine_;
  Request request_;
  Problem problem_ = parse_problem("fwd:n1c8h12w12k16r3s3:pad1:f32:nhwc");
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_FINDER_FIXTURE_HPP_
