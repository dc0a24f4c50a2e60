// Every tiling worth trying for a problem.
#include <algorithm>
#include <set>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

constexpr i64 kMultiprocessors = 132;
// Clusters of 4 and 8 lie within a part of the chip each, and so many blocks of them fit at once: sums are
// split no further.
constexpr i64 kClustered = 120;

class Lister {
 public:
  explicit Lister(const Problem& problem)
      : p_(problem),
        k_block_(best_k_block(padded_channels(problem), 128 / size_of(problem.dtype))),
        pool_(problem.epilogue.pool.kind != PoolKind::none),
        few_(!pool_ &&
             problem.n * problem.p() * problem.q() * problem.k <= kMultiprocessors / 2 * 128 * 128) {}

  std::vector<Tiling> list() {
    for (const bool cooperative : {false, true}) {
      for (const int m_blocks : {1, 2}) {
        Tiling t;
        t.cooperative = cooperative;
        weights_on_m(t, 64 * m_blocks * (cooperative ? 2 : 1), 256 / m_blocks);
        pixels_on_m(t, m_blocks);
      }
    }
    for (const Tiling& t : fetch::tilings(p_)) all_.push_back(t);
    for (const Tiling& t : shift::tilings(p_)) all_.push_back(t);
    return std::move(all_);
  }

 private:
  // m channels, at most `limit` pixels.
  void weights_on_m(Tiling t, int m, int limit) {
    t.channels = m;
    if (m >= 2 * p_.k && m != 64) return;
    for (const int width : {8, 16, 32}) patches(t, width, limit / width);
    t.im2col = true;
    for (const int pixels : {256, 192, 160, 128, 96, 64}) {
      t.width = pixels, t.height = 1;
      if (pixels > limit) continue;
      // Of the odd sizes those whose few tiles leave hardly a multiprocessor idle.
      const i64 waves = ceil_div(tiles(t, p_), kMultiprocessors);
      if (pixels % 64 != 0 && (waves > 3 || 20 * tiles(t, p_) < 19 * waves * kMultiprocessors)) continue;
      add(t);
      if (pixels % 64 == 0) add_planes(t);
    }
    // Whole images of NCHW.
    const int image = static_cast<int>(std::min<i64>(p_.p() * p_.q(), limit + 1));
    for (int pixels = image; pixels <= limit; pixels += image) {
      t.width = round_up(pixels, 8);
      if (t.width >= 48 && t.width <= limit && fetch::whole_images(t, p_)) add_buffered(t);
    }
  }

  // Halo patches of at most so many rows, with weights on M.
  void patches(Tiling t, int width, int most) {
    std::set<int> heights = {most, even_height(most), even_height(std::max(4, most / 2))};
    if (p_.dtype == DType::f32) heights.insert({most / 2, most * 3 / 4});
    // Some are for split sums alone: low ones, and the lowest whose blocks fit at once.
    std::set<int> low;
    t.width = width;
    if (t.cooperative && few_ && width < 32) {
      low.insert(64 / width);
      for (const int split : {4, 8}) {
        t.height = 64 / width;
        while (t.height < most && tiles(t, p_) * split > kClustered) ++t.height;
        low.insert(t.height);
      }
      for (const int h : heights) low.erase(h);
      heights.insert(low.begin(), low.end());
    }
    if (pool_) {
      std::set<int> rounded;
      for (const int h : heights) {
        rounded.insert(pool_window(p_) == 3 ? std::min((most - 1) / 2 * 2 + 1, h / 2 * 2 + 1)
                                            : std::min(most / 4 * 4, round_up(h, 4)));
      }
      heights = rounded;
    }
    for (const int h : heights) {
      if (h * 8 < 32) continue;
      t.height = h;
      patch(t, low.count(h) > 0);
    }
  }

  // The ways to bring and store it.
  void patch(Tiling t, bool split_alone) {
    add(t, split_alone);
    t.turned = p_.dtype == DType::f32 && p_.layout == Layout::nchw;
    for (t.raws = 3; t.turned && t.raws >= 0; --t.raws) add(t, split_alone);
    t.raws = 0, t.turned = false;
    t.direct = p_.dtype == DType::f32 && p_.layout == Layout::nhwc && t.pixels() >= 192;
    if (t.direct) add(t);
    turned_patch(t, split_alone);
  }

  // 16-bit patches of NCHW that warps turn, which they read themselves or from buffers: where a step before
  // the kernel weighs, or the copy engine does not take rows as they are. With strides a pixel serves fewer
  // taps, and shared memory moves more for it than the step does. Windows of one are fetched.
  void turned_patch(Tiling t, bool split_alone) {
    const bool strided = p_.stride_h != 1 || p_.stride_w != 1;
    t.direct = false;
    t.turned = p_.dtype != DType::f32 && p_.layout == Layout::nchw && p_.r * p_.s > 1 && p_.c >= 16 &&
               (few_ || (!strided && p_.w % 8 != 0));
    for (const int raws : {0, 2}) {
      t.raws = raws;
      if (t.turned) add(t, split_alone);
    }
  }

  void pixels_on_m(Tiling t, int m_blocks) {
    const int m = 64 * m_blocks * (t.cooperative ? 2 : 1), limit = 256 / m_blocks;
    t.pixels_on_m = true;
    std::set<int> columns = {64, 128, 160, 192, 256};
    if (p_.k < 64) columns = {static_cast<int>((p_.k + 7) / 8 * 8)};
    for (const int n : columns) {
      if (n > limit || n >= 2 * std::max<i64>(p_.k, 32)) continue;
      t.channels = n;
      t.im2col = false;
      t.width = 8, t.height = m / 8;
      add(t);
      t.im2col = true;
      t.width = m;
      add(t);
      add_planes(t);
    }
    if (m_blocks == 2 && p_.k > 128) {  // more sums than elsewhere
      t.channels = 160;
      for (t.staged = 1; t.cooperative && t.staged <= 2; ++t.staged) add(t);
      t.staged = 0;
      if (!t.cooperative) add_planes(t);
    }
  }

  void add_planes(Tiling t) {
    t.planes = true;
    if (p_.layout == Layout::nchw) add(t);
  }

  // With the whole sum in a block, and where there are few tiles with the sum over the channels split.
  void add(Tiling t, bool split_alone = false) {
    if (t.im2col) t.height = 1;
    if (!split_alone) add_buffered(t);
    if (!t.cooperative || t.planes || t.direct || t.staged > 0) return;
    for (t.split = 2; t.split <= 8; t.split *= 2) {
      const i64 share = ceil_div(ceil_div(padded_channels(p_), k_block_), t.split);
      if (blocks(t, p_) <= (t.split == 2 ? kMultiprocessors : kClustered) && t.raws <= share) add_buffered(t);
    }
  }

  // As many buffers as fit, in steps that matter; and the weights resident where they fit.
  void add_buffered(Tiling t) {
    t.k_block = t.planes || turns_16_bits(t, p_) ? 64 : t.turned ? 32 : k_block_;
    // Half as many channels leave room for buffers of their rows.
    const auto fits = [&](Tiling u) { return u.stages = 3, u.slots = 2, unfit(u, p_).empty(); };
    if (turns_16_bits(t, p_) && t.raws > 0 && !fits(t)) t.k_block = 32;
    if (t.im2col) {
      t.height = 1;
      for (t.slots = 8; t.slots >= 2; --t.slots) {
        t.stages = t.slots;
        if (unfit(t, p_).empty()) break;
      }
      keep(t);
    } else {
      const bool one_block = ceil_div(padded_channels(p_), t.k_block) <= t.split;  // of channels
      for (t.slots = t.split > 1 && one_block ? 1 : 2; t.slots <= (t.turned || t.split > 1 ? 2 : 3);
           ++t.slots) {
        for (t.stages = t.slots < 3 ? 12 : 8; t.stages >= 2; --t.stages) {
          if (unfit(t, p_).empty()) break;
        }
        if (t.stages < (t.slots < 3 ? 3 : 5)) continue;
        keep(t);
        // Also with less shared memory, which leaves more to the loads of the warps that turn.
        if (turns_16_bits(t, p_) && t.raws == 0) {
          while (t.stages > 3 && shared_bytes(t, p_) > kSharedSteps[1]) --t.stages;
          keep(t);
        }
        if (t.split > 1) break;
      }
    }
    if (ceil_div(p_.k, t.channels) <= 4 && t.split == 1) {
      t.resident = true;
      t.stages = 0;
      for (t.slots = t.im2col ? 6 : 3; t.slots >= 1; --t.slots) {
        if (unfit(t, p_).empty()) break;
      }
      if (t.slots >= (t.im2col ? 3 : 1)) keep(t);
    }
  }

  void keep(const Tiling& t) {
    if (unfit(t, p_).empty() && names_.insert(to_string(t)).second) all_.push_back(t);
  }

  // At most so many rows that divide the image evenly.
  int even_height(int limit) const {
    const i64 parts = ceil_div(p_.p(), limit);
    return static_cast<int>(ceil_div(p_.p(), parts));
  }

  const Problem& p_;
  int k_block_;
  bool pool_, few_;  // few: tiles
  std::vector<Tiling> all_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<Tiling> tilings(const Problem& p) { return Lister(p).list(); }

}  // namespace faltung::sm90
