#include "src/problem/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace faltung {
namespace {

using testing::ElementsAre;

TEST(Matches, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**", "anything"));
  EXPECT_TRUE(matches("winograd*", "winograd_cpu/f4x4"));
  EXPECT_TRUE(matches("*/f?x?", "winograd_cpu/f4x4"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_TRUE(matches("*aab", "aaaab"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_FALSE(matches("winograd", "winograd_cpu"));
  EXPECT_FALSE(matches("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(matches("?*a", "a"));
}

// The definition, in exponential time.
bool matches_slowly(std::string_view p, std::string_view t) {
  if (p.empty()) return t.empty();
  if (p[0] == '*') return matches_slowly(p.substr(1), t) || (!t.empty() && matches_slowly(p, t.substr(1)));
  return !t.empty() && (p[0] == '?' || p[0] == t[0]) && matches_slowly(p.substr(1), t.substr(1));
}

TEST(Matches, IsItsDefinition) {
  std::mt19937 random(1);
  const auto word = [&](std::string_view letters) {
    std::string out;
    for (unsigned n = random() % 8; n > 0; --n) out += letters[random() % letters.size()];
    return out;
  };
  int matched = 0;
  for (int i = 0; i < 100000; ++i) {
    const std::string pattern = word("ab*?"), text = word("ab");
    matched += matches(pattern, text) ? 1 : 0;
    ASSERT_EQ(matches(pattern, text), matches_slowly(pattern, text)) << pattern << " " << text;
  }
  EXPECT_GT(matched, 5000);
}

TEST(Nearest, ByEditDistance) {
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("winogard_cpu", {"direct_cpu", "winograd_cpu"}), "winograd_cpu");
  EXPECT_EQ(nearest("nwhc", {"nchw", "nhwc"}), "nhwc");  // a swap counts once
  EXPECT_EQ(nearest("", {"long", "a"}), "a");
  EXPECT_EQ(nearest("kitten", {"mitten", "sitting"}), "mitten");
}

TEST(Nearest, SuggestsWhatMayHaveBeenMeantOrAllThereIs) {
  EXPECT_EQ(suggestion("winogard_cpu", {"direct_cpu", "winograd_cpu"}), "the nearest is winograd_cpu");
  EXPECT_EQ(suggestion("f32", {"f16", "bf16", "f31"}), "the nearest is f31");
  EXPECT_EQ(suggestion("int8", {"f32", "f16", "bf16"}), "there is f32, f16 or bf16");
  EXPECT_EQ(suggestion("", {"long"}), "there is long");
}

TEST(Words, JoinSplitTrim) {
  EXPECT_EQ(join_or({}), "");
  EXPECT_EQ(join_or({"a"}), "a");
  EXPECT_EQ(join_or({"a", "b"}), "a or b");
  EXPECT_EQ(join_or({"a", "b", "c"}), "a, b or c");
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Printable, IsUtf8WithoutControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2J\tb\x7f"), "a?[2J?b?");
  EXPECT_EQ(printable("Fältchen × 图 😀"), "Fältchen × 图 😀");
  EXPECT_EQ(printable("\x80 \xc3 \xe5\x9b \xff"), "? ? ?? ?");
  EXPECT_EQ(printable("\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80"),
            "?? ??? ??? ????");                             // longer, halves, beyond
  EXPECT_EQ(printable("\xc2\x9b\xc2\xa0|"), "?\xc2\xa0|");  // another escape
  EXPECT_EQ(printable("图图图", 9), "图图图");
  EXPECT_EQ(printable("图图图", 8), "图图...");  // no part of one
  EXPECT_EQ(printable(std::string(201, 'x')), std::string(200, 'x') + "...");
}

}  // namespace
}  // namespace faltung
