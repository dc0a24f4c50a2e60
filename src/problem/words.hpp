// The words of the canonical string that name an enumerator.
#ifndef FALTUNG_SRC_PROBLEM_WORDS_HPP_
#define FALTUNG_SRC_PROBLEM_WORDS_HPP_

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "src/problem/cursor.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Of the enumerators up to the last.
template <class Enum>
const std::vector<std::string>& names(Enum last) {
  static const std::vector<std::string> all = [last] {
    std::vector<std::string> out;
    for (int i = 0; i <= static_cast<int>(last); ++i) out.push_back(name(static_cast<Enum>(i)));
    return out;
  }();
  return all;
}

template <class Enum>
bool named(std::string_view text, Enum last, Enum& value) {
  const std::vector<std::string>& all = names(last);
  const auto found = std::find(all.begin(), all.end(), lower(text));
  if (found == all.end()) return false;
  value = static_cast<Enum>(found - all.begin());
  return true;
}

// What others call the layouts in one and three dimensions.
struct LayoutAlias {
  const char* name;
  Layout layout;
  int dimensions;
};
inline constexpr LayoutAlias kLayoutAliases[] = {{"ncw", Layout::nchw, 1},
                                                 {"nwc", Layout::nhwc, 1},
                                                 {"ncdhw", Layout::nchw, 3},
                                                 {"ndhwc", Layout::nhwc, 3}};

inline const char* dimensions_word(int dimensions) {
  constexpr const char* kWords[] = {"", "one dimension", "two dimensions", "three dimensions"};
  return kWords[dimensions];
}

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_WORDS_HPP_
