// What the parsers of problem text share: a cursor over `<letters><number>` and errors of one line.
#ifndef FALTUNG_SRC_PROBLEM_CURSOR_HPP_
#define FALTUNG_SRC_PROBLEM_CURSOR_HPP_

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"

namespace faltung {

inline std::string quote(std::string_view text) { return std::string(1, '\'') += printable(text) += '\''; }

[[noreturn]] inline void bad_problem(std::string_view text, const std::string& message) {
  throw Error(Status::bad_problem, "problem " + quote(text) + ": " + message);
}

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads a field of a problem's text from its front.
class Cursor {
 public:
  Cursor(std::string_view whole, std::string_view field) : whole_(whole), field_(field), rest_(field) {}

  bool done() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  bool skip(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  // The prefix, if a number follows it.
  bool skip_before_number(std::string_view prefix) {
    if (rest_.size() <= prefix.size() || !rest_.starts_with(prefix)) return false;
    const char next = rest_[prefix.size()];
    if (!is_digit(next) && next != '-') return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a number that is out of range");
    if (error != std::errc()) fail("no number where one belongs, before " + quote(rest_));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  void finish() const {
    if (!done()) fail(quote(rest_) + " after its end");
  }

  [[noreturn]] void fail(const std::string& what) const {
    bad_problem(whole_, "field " + quote(field_) + " has " + what);
  }

 private:
  std::string_view whole_, field_, rest_;
};

// The notations; see parse.cpp for how they are told apart.
Problem parse_canonical(std::string_view text);
std::vector<Problem> parse_miopen(std::string_view text);
Problem parse_benchdnn(std::string_view text);
Problem parse_onednn_verbose(std::string_view text);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_CURSOR_HPP_
