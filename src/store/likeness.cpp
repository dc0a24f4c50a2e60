#include "src/store/likeness.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace faltung {
namespace {

// The least hash in each of so many parts of all hashes: the share of parts that are the same in two sketches
// is that of the words that two texts have in common.
constexpr int kBits = 7;
using Sketch = std::array<std::uint32_t, 1 << kBits>;
constexpr std::uint32_t kNone = 0xffffffff;

Sketch sketch_of(const std::string& text) {
  Sketch sketch;
  sketch.fill(kNone);
  for (std::size_t at = 0; at + 16 <= text.size(); at += 16) {
    std::uint64_t word[2];
    std::memcpy(word, text.data() + at, sizeof word);
    if (word[0] == 0 && word[1] == 0) continue;  // what lies between the parts of all
    std::uint64_t hash = word[0] * 0x9e3779b97f4a7c15 ^ word[1] * 0xc2b2ae3d27d4eb4f;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
    std::uint32_t& least = sketch[hash >> (64 - kBits)];
    least = std::min(least, static_cast<std::uint32_t>(hash >> (32 - kBits)));
  }
  return sketch;
}

int in_common(const Sketch& a, const Sketch& b) {
  int common = 0;
  for (std::size_t i = 0; i < a.size(); ++i) common += a[i] == b[i] && a[i] != kNone;
  return common;
}

}  // namespace

std::vector<std::size_t> order_of_likeness(const std::vector<std::string>& texts) {
  std::vector<Sketch> sketches;
  std::vector<std::size_t> order, left;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sketches.push_back(sketch_of(texts[i]));
    left.push_back(i);
  }
  for (auto next = left.begin(); next != left.end();) {
    order.push_back(*next);
    left.erase(next);
    const Sketch& last = sketches[order.back()];
    int most = -1;
    next = left.end();
    for (auto one = left.begin(); one != left.end(); ++one) {
      if (const int common = in_common(last, sketches[*one]); common > most) most = common, next = one;
    }
  }
  return order;
}

}  // namespace faltung
