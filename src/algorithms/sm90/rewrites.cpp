#include "src/algorithms/sm90/rewrites.hpp"

#include <algorithm>

#include "src/algorithms/sm90/tiling.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung::sm90 {

// What the shared rewrites admit, and what pays here.
bool folds(const Problem& p) {
  return !is_volume(p) && p.c <= 8 && p.c * p.s <= 64 && rewrites::fold_rows.applies(p);
}
Problem folded(const Problem& p) { return rewrites::fold_rows(p).inner; }

bool deepens(const Problem& p) {
  if (p.c > 8 || !rewrites::space_to_depth.applies(planes_apart(p))) return false;
  const Problem inner = deepened(p);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // pixels that the step before the kernel counts
  return inner.c <= 64 && inner.n * inner.d * inner.h * inner.w <= kMost;
}
Problem deepened(const Problem& p) {
  const Problem of_planes = rewrites::space_to_depth(planes_apart(p)).inner;
  if (!is_volume(p)) return of_planes;
  Problem q = p;
  q.c = of_planes.c, q.h = of_planes.h, q.w = of_planes.w, q.r = of_planes.r, q.s = of_planes.s;
  q.stride_h = q.stride_w = 1;
  q.pad_top = q.pad_bottom = q.pad_left = q.pad_right = 0;
  return q;
}

bool thins(const Problem& p) {
  if (p.layout != Layout::nchw || pads(p) || p.p() * p.q() == 1) return false;
  if (!is_volume(p)) return rewrites::thin.applies(p);
  return p.t == 1 && p.r == 1 && p.s == 1 && p.stride_w > 1 && p.pad_front == 0 && p.pad_back == 0;
}
Problem thinned(const Problem& p) { return thin(p).inner; }

Rewrite thin(const Problem& p) {
  if (!is_volume(p)) return rewrites::thin(p);
  Problem q = planes_below(p);
  q.h = p.z() * p.p(), q.w = p.q();
  q.epilogue = p.epilogue;
  Rewrite r = unchanged(q);
  r.x.outer_size[kAxisH] = p.d * p.h, r.x.outer_size[kAxisW] = p.w;
  r.x.digits[kAxisH] = {{p.p(), kAxisH, p.stride_h}, {p.z(), kAxisH, p.stride_d * p.h}};
  r.x.digits[kAxisW] = {{q.w, kAxisW, p.stride_w}};
  return r;
}

bool spreads(const Problem& p) {
  if (p.direction != Direction::backward_data || is_volume(p) || pads(p) || has_pitch(p)) return false;
  if (p.training != Training::none || !rewrites::thin.applies(p)) return false;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // words that the step behind the kernel counts
  if (p.n * p.h * p.w * p.c > kMost) return false;
  if (p.layout == Layout::nhwc) return p.c * size_of(p.dtype) % 16 == 0;
  return (p.stride_w == 1 || p.stride_w == 2 || p.stride_w == 4) && p.w % p.stride_w == 0;
}
Problem unspread(const Problem& p) { return rewrites::thin(p).inner; }

bool joins_columns(const Problem& p) {
  constexpr std::int64_t kMostImages = 8;  // of each pixels are left out by a launch of its own
  const bool row = p.h == 1 && p.r == 1 && p.stride_h == 1 && p.pad_top == 0 && p.pad_bottom == 0;
  const std::int64_t pixels = (p.q() + p.s / p.stride_w - 1) * p.stride_w;
  return p.layout == Layout::nchw && row && p.c > 8 && p.c * size_of(p.dtype) % 16 == 0 &&
         p.n <= kMostImages && p.s % p.stride_w == 0 && p.pad_left + p.w <= pixels;
}

bool deepens_gradient(const Problem& p) {
  if (p.direction != Direction::backward_data || !is_plain(p) || p.groups > 1) return false;
  if (has_pitch(p) || p.training != Training::none || !rewrites::space_to_depth.applies(p)) return false;
  if (p.c > 8) return joins_columns(p);
  const Problem inner = deepened_gradient(p).inner;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // pixels that the step behind the kernel counts
  return inner.c <= 64 && p.n * (inner.h + 1) * (inner.w + 1) <= kMost;
}
Rewrite deepened_gradient(const Problem& p) {
  Rewrite r = pad_channels(rewrites::space_to_depth(p), 16 / size_of(p.dtype));
  r.inner.layout = Layout::nhwc;
  return r;
}

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

Problem planes_apart(const Problem& p) {
  if (!is_volume(p)) return p;
  Problem all = p;
  all.dimensions = 2;
  all.n *= p.d, all.k *= p.t;
  all.d = all.t = all.stride_d = all.dilation_d = 1;
  all.pad_front = all.pad_back = 0;
  return all;
}

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
