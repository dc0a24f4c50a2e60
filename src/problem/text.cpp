#include "src/problem/text.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace faltung {

bool matches(std::string_view pattern, std::string_view text) {
  // Greedy with one point to return to: the last * seen.
  std::size_t p = 0, t = 0, star = std::string_view::npos, star_t = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_t = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_t;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last.back();
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  text = text.substr(0, 64);  // no name is longer, and the time grows with it
  const auto best = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return edit_distance(text, a) < edit_distance(text, b);
  });
  return best == candidates.end() ? "" : *best;
}

std::string join_or(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string suggestion(std::string_view text, const std::vector<std::string>& candidates) {
  const std::string best = nearest(text, candidates);
  const std::size_t most = std::max<std::size_t>(1, std::min(text.size(), best.size()) / 2);
  const bool near = !best.empty() && edit_distance(text.substr(0, 64), best) <= most;
  return near ? "the nearest is " + best : "there is " + join_or(candidates);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

namespace {

// Bytes of the UTF-8 character at the beginning of text, which is not empty; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t bytes = lead < 0x80   ? 1
                            : lead < 0xc2 ? 0
                            : lead < 0xe0 ? 2
                            : lead < 0xf0 ? 3
                            : lead < 0xf5 ? 4
                                          : 0;
  if (bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, half of a pair of UTF-16, or beyond the last one.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90)) return 0;
  return bytes;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  return first < 0x20 || first == 0x7f ||
         (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0);  // the second set of them
}

}  // namespace

std::string printable(std::string_view text, std::size_t most_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const bool is_shown = bytes > 0 && !is_control(text.substr(0, bytes));
    const std::string_view shown = is_shown ? text.substr(0, bytes) : "?";
    if (out.size() + shown.size() > most_bytes) return out + "...";
    out += shown;
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out;
}

}  // namespace faltung
