#include "src/algorithms/sm90/rewrites.hpp"

#include <algorithm>

#include "src/algorithms/sm90/tiling.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung::sm90 {

// What the shared rewrites admit, and what pays here.
bool folds(const Problem& p) { return p.c <= 8 && p.c * p.s <= 64 && rewrites::fold_rows.applies(p); }
Problem folded(const Problem& p) { return rewrites::fold_rows(p).inner; }

bool deepens(const Problem& p) {
  if (p.c > 8 || !rewrites::space_to_depth.applies(p)) return false;
  const Problem inner = deepened(p);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // pixels that the step before the kernel counts
  return inner.c <= 64 && inner.n * inner.h * inner.w <= kMost;
}
Problem deepened(const Problem& p) { return rewrites::space_to_depth(p).inner; }

bool thins(const Problem& p) {
  return p.layout == Layout::nchw && !pads(p) && p.p() * p.q() > 1 && rewrites::thin.applies(p);
}
Problem thinned(const Problem& p) { return rewrites::thin(p).inner; }

// The least by which a group's channels are whole products of 32 bytes, for tiles of several groups; for
// tiles of one also 64 results, and whole rows of 128 bytes; or all of them.
std::vector<int> merges(const Problem& p) {
  if (p.groups == 1) return {1};
  constexpr std::int64_t kMost = 128;  // channels: more would be zeros for the most part
  const std::int64_t c = p.c / p.groups, k = p.k / p.groups, element = size_of(p.dtype);
  std::vector<int> all;
  const auto add = [&](std::int64_t bytes, std::int64_t results) {
    for (std::int64_t m = 1; m <= p.groups && (m == 1 || m * std::max(c, k) <= kMost); ++m) {
      const bool whole = m * c * element % bytes == 0 && m * k % results == 0;
      if (p.groups % m != 0 || !(whole || m == p.groups)) continue;
      if (all.empty() || all.back() != m) all.push_back(static_cast<int>(m));
      return;
    }
  };
  add(32, 8);
  add(32, 64);
  add(128, 64);
  return all;
}

}  // namespace faltung::sm90
