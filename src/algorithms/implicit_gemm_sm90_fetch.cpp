// Tilings of NCHW planes that warps bring: 1x1 filters, planes or strides that the copy engine does not take
// (kernels/sm90/fetch.cuh).
#include <algorithm>
#include <vector>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::fetch {
namespace {

using i64 = std::int64_t;

// Smaller planes would make many short copies.
constexpr i64 kSmallestPlane = 16;

i64 plane(const Problem& p) { return p.p() * p.q(); }

bool strides(const Problem& p) { return p.stride_h != 1 || p.stride_w != 1; }

// Every load of so many pixels, `step` elements each, is aligned, and reads within a plane.
bool loads(const Problem& p, int pixels) {
  const i64 elements = pixels * p.stride_w;
  if (!strides(p)) return p.h * p.w % elements == 0;
  return elements <= 8 && p.stride_w <= 2 && p.q() % pixels == 0 && p.w * p.stride_h % elements == 0 &&
         p.h * p.w % elements == 0 && p.q() * p.stride_w <= p.w;
}

}  // namespace

int pixels_a_load(const Problem& p) { return loads(p, 4) ? 4 : loads(p, 2) ? 2 : 1; }

bool whole_images(const Tiling& t, const Problem& p) {
  const bool contiguous = p.layout == Layout::nchw && p.dtype != DType::f32 && p.k % 8 == 0;
  if (!contiguous || plane(p) < kSmallestPlane || p.epilogue.pool.kind != PoolKind::none) return false;
  if (t.fetch) return plane(p) % 4 != 0 && plane(p) <= t.pixels();
  if (t.im2col) {
    const bool fits = round_up(t.pixels() / plane(p) * plane(p), 8) == t.pixels();
    return fits && plane(p) % 4 != 0 && !t.planes && !t.pixels_on_m && t.split == 1;
  }
  return !t.shift && t.width >= p.q() && t.height >= p.p() && p.q() % 8 != 0;
}

// A pair may reach beyond its channel, but not beyond the tensor.
bool odd_images(const Tiling& t, const Problem& p) {
  return t.fetch && whole_images(t, p) && !strides(p) && plane(p) % 2 == 1 && p.c % 2 == 0;
}

i64 step(const Tiling& t, const Problem& p) {
  return t.im2col && whole_images(t, p) ? t.pixels() / plane(p) * plane(p) : t.pixels();
}

std::string unfit(const Tiling& t, const Problem& p) {
  const bool pads = p.pad_top != 0 || p.pad_bottom != 0 || p.pad_left != 0 || p.pad_right != 0;
  if (p.layout != Layout::nchw || p.r != 1 || p.s != 1 || pads)
    return "planes are fetched for NCHW, 1x1 filters, no padding";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (t.k_block != 64 || t.pixels_on_m) return "planes are fetched by 64 channels, with the weights on M";
  return "";
}

std::vector<Tiling> tilings(const Problem& p) {
  constexpr i64 kMultiprocessors = 132, kClustered = 120;
  constexpr i64 kFewest = 16;  // channels that fill a quarter of a block
  std::vector<Tiling> all;
  Tiling t;
  t.im2col = t.fetch = true;
  t.height = 1;
  // Where the copy engine takes the planes as they are it brings them with less work.
  const bool copied = !strides(p) && p.h * p.w % 8 == 0 && p.c % 8 == 0;
  if (!fetch::unfit(t, p).empty() || copied || p.c < kFewest || p.h * p.w == 1) return all;
  const auto fill = [&](Tiling u) {
    int most = kSharedLimit;
    for (u.slots = 8; u.slots >= 2; --u.slots) {
      u.stages = u.resident ? 0 : u.slots;
      if (!sm90::unfit(u, p).empty() || shared_bytes(u, p) > most) continue;
      all.push_back(u);
      // Also with less shared memory, which leaves more to the loads.
      for (const int step : kSharedSteps)
        most = shared_bytes(u, p) <= most && most > kSharedSteps[1] ? step : most;
      if (shared_bytes(u, p) <= kSharedSteps[1]) return;
    }
  };
  for (const bool cooperative : {false, true}) {
    for (const int m_blocks : {1, 2}) {
      t.cooperative = cooperative;
      t.channels = 64 * m_blocks * (cooperative ? 2 : 1);
      if (t.channels >= 2 * p.k && t.channels > 64) continue;
      std::vector<int> whole;
      for (i64 images = 1; images * plane(p) <= 200 && plane(p) % 4 != 0; ++images) {
        const int width = static_cast<int>(round_up(images * plane(p), 8));
        if (width >= 48) whole.push_back(width);
      }
      const auto with_width = [&](int width) {
        t.width = width;
        if (width * m_blocks > 256) return;
        fill(t);
        if (ceil_div(p.k, t.channels) <= 4) {
          t.resident = true;
          fill(t);
          t.resident = false;
        }
        if (!cooperative) return;
        for (t.split = 2; t.split <= 8; t.split *= 2) {
          if (blocks(t, p) <= (t.split == 2 ? kMultiprocessors : kClustered)) fill(t);
        }
        t.split = 1;
      };
      for (const int width : whole) with_width(width);
      if (!whole.empty()) continue;
      for (const int width : {192, 160, 128, 96, 64}) {
        t.width = width;
        const i64 count = tiles(t, p), waves = ceil_div(count, kMultiprocessors);
        const bool even = 20 * count >= 19 * waves * kMultiprocessors;
        if (width % 64 == 0 || waves > 3 || even || width == 96) with_width(width);
      }
    }
  }
  return all;
}

}  // namespace faltung::sm90::fetch
