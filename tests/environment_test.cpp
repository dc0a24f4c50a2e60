// Environment variables that name libraries and folders: what is set to nothing is not set.
#include "src/problem/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "src/backend/library_search.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kVariable = "FALTUNG_ENVIRONMENT_TEST";

class Environment : public testing::Test {
 protected:
  static void set(const std::string& value) { ASSERT_EQ(setenv(kVariable, value.c_str(), 1), 0); }
  void TearDown() override { unsetenv(kVariable); }
};

TEST_F(Environment, IsEmptyWhereNothingIsSet) {
  EXPECT_EQ(environment(kVariable), "");
  set("");
  EXPECT_EQ(environment(kVariable), "");
  set("a b");
  EXPECT_EQ(environment(kVariable), "a b");
}

TEST_F(Environment, NamesNoLibraryWhereEmpty) {
  std::string missing;
  EXPECT_FALSE(open_named(kVariable, missing).has_value());
  set("");  // which dlopen takes for the program itself
  EXPECT_FALSE(open_named(kVariable, missing).has_value());
  EXPECT_EQ(missing, "");
}

TEST_F(Environment, NamesALibrary) {
  std::string missing;
  set("libm.so.6");
  const std::optional<void*> opened = open_named(kVariable, missing);
  ASSERT_TRUE(opened.has_value());
  EXPECT_NE(*opened, nullptr) << missing;

  set("/nowhere/libm.so");
  const std::optional<void*> refused = open_named(kVariable, missing);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(*refused, nullptr);
  EXPECT_THAT(missing, HasSubstr("FALTUNG_ENVIRONMENT_TEST names /nowhere/libm.so, which cannot be opened"));
}

TEST_F(Environment, NamesNoToolkitWhereEmpty) {
  const Scratch toolkit;
  std::filesystem::create_directory(toolkit.path() + "/lib");
  // An empty place would be the current folder, which may have a lib.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(toolkit.path());
  set("");
  EXPECT_THAT(toolkit_folders({kVariable}, "/nowhere"), IsEmpty());
  std::filesystem::current_path(before);
  set(toolkit.path());
  EXPECT_THAT(toolkit_folders({kVariable}, "/nowhere"), Contains(toolkit.path() + "/lib"));
}

}  // namespace
}  // namespace faltung
