// Small helpers for names that people type.
#ifndef FALTUNG_SRC_PROBLEM_TEXT_HPP_
#define FALTUNG_SRC_PROBLEM_TEXT_HPP_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace faltung {

// Whether text matches pattern as a whole; * stands for any run of characters, ? for one.
bool matches(std::string_view pattern, std::string_view text);
// The candidate with the smallest edit distance to text; empty if there are none.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);
// "the nearest is a" where one is so near that it may have been meant, at most every second character being
// another; else "there is a, b or c".
std::string suggestion(std::string_view text, const std::vector<std::string>& candidates);
// "a, b or c"
std::string join_or(const std::vector<std::string>& words);
// Splits at every separator; empty parts are kept.
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// Foreign text as it can stand in a message: of at most so many bytes, with a ? for each control character
// and for what is no UTF-8, which a terminal might obey and Python refuses.
std::string printable(std::string_view text, std::size_t most_bytes = 200);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_TEXT_HPP_
