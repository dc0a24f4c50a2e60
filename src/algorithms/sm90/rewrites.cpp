#include "src/algorithms/sm90/rewrites.hpp"

#include "src/algorithms/sm90/tiling.hpp"
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

}  // namespace faltung::sm90
