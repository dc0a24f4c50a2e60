// What the tests of all notations of a problem share.
#ifndef FALTUNG_TESTS_PARSE_CHECKS_HPP_
#define FALTUNG_TESTS_PARSE_CHECKS_HPP_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

inline std::string parse_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "(no error)";
}

inline std::string problem_error(const std::string& text) {
  return parse_error([&] { parse_problem(text); });
}

// text means what canonical says.
inline void expect_same(const std::string& text, const std::string& canonical) {
  try {
    EXPECT_EQ(to_string(parse_problem(text)), canonical) << text;
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}
// A text that is no problem: BadText.SaysWhatWasWrong in parse_test.cpp, of which each notation gives its
// own.
struct Bad {
  const char* text;
  const char* part;  // of the message
};

inline void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.text; }

class BadText : public testing::TestWithParam<Bad> {};

}  // namespace faltung

#endif  // FALTUNG_TESTS_PARSE_CHECKS_HPP_
