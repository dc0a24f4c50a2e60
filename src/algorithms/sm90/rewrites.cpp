#include "src/algorithms/sm90/rewrites.hpp"

#include "src/algorithms/sm90/tiling.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung::sm90 {

// What the shared rewrites admit, and what pays here.
bool folds(const Problem& p) {
  return !is_volume(p) && p.c <= 8 && p.c * p.s <= 64 && rewrites::fold_rows.applies(p);
}
Problem folded(const Problem& p) { return rewrites::fold_rows(p).inner; }

bool deepens(const Problem& p) {
  if (is_volume(p) || p.c > 8 || !rewrites::space_to_depth.applies(p)) return false;
  const Problem inner = deepened(p);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // pixels that the step before the kernel counts
  return inner.c <= 64 && inner.n * inner.h * inner.w <= kMost;
}
Problem deepened(const Problem& p) { return rewrites::space_to_depth(p).inner; }

bool thins(const Problem& p) {
  return p.layout == Layout::nchw && !is_volume(p) && !pads(p) && p.p() * p.q() > 1 &&
         rewrites::thin.applies(p);
}
Problem thinned(const Problem& p) { return rewrites::thin(p).inner; }

Problem planes_below(const Problem& p) {
  if (!is_volume(p)) return p;
  Problem all;
  all.direction = p.direction;
  all.n = p.n, all.c = p.c, all.h = p.d * p.h, all.w = p.w;
  all.k = p.k, all.r = p.t * p.r, all.s = p.s;
  all.pad_bottom = all.r - 1, all.pad_right = all.s - 1;  // however small it is
  all.dtype = p.dtype, all.layout = p.layout, all.math = p.math;
  return all;
}

}  // namespace faltung::sm90
