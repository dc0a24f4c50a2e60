#include "src/emit/nki_schedule.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::nki {
namespace {

using i64 = std::int64_t;
constexpr i64 kTile = NkiCore::kPartitions, kBank = NkiCore::kMoving;
constexpr i64 kMost = 9999;  // that a config's name has digits for

i64 group_c(const Problem& p) { return p.c / p.groups; }
i64 group_k(const Problem& p) { return p.k / p.groups; }

// How many groups share a part.
i64 groups_of_part(const Problem& p) {
  if (p.groups == 1) return 1;
  return std::clamp<i64>(kTile / std::max(group_c(p), group_k(p)), 1, p.groups);
}

Schedule::Weights weights_of(const Problem& p) {
  if (is_depthwise(p) && p.k == p.c) return Schedule::Weights::depthwise;
  return groups_of_part(p) > 1 ? Schedule::Weights::grouped : Schedule::Weights::dense;
}

// The most of the convolution's rows or columns that so many of y need, and the same with the padding.
i64 window(i64 of_y, i64 stride, i64 size) { return (of_y - 1) * stride + size; }

struct Extent {
  i64 y, conv, pool_size, pool_stride;
  i64 windowed(i64 count) const { return window(count, pool_stride, pool_size); }
  i64 needed(i64 count) const { return std::min(conv, windowed(count)); }
  // How many of y need no more than this.
  i64 within(i64 most) const {
    return most >= conv ? y : most < pool_size ? 0 : std::min(y, (most - pool_size) / pool_stride + 1);
  }
  // As many in each part, or one less.
  i64 balanced(i64 count) const { return ceil_div(y, ceil_div(y, std::max<i64>(1, count))); }
};
Extent rows_of(const Problem& p) {
  const Pool& pool = p.epilogue.pool;
  return {p.y_h(), p.p(), pool.size_h, pool.stride_h};
}
Extent cols_of(const Problem& p) {
  const Pool& pool = p.epilogue.pool;
  return {p.y_w(), p.q(), pool.size_w, pool.stride_w};
}

i64 bytes_with(const Problem& p, const Schedule& s) {
  const i64 e = size_of(p.dtype), taps = p.r * p.s, images = s.choice.images;
  const bool depthwise = s.weights == Schedule::Weights::depthwise, nhwc = p.layout == Layout::nhwc;
  const bool average = p.epilogue.pool.kind == PoolKind::average;
  const i64 rows = s.choice.rows, cols = s.choice.cols, v = average ? 4 : e;
  i64 sum = s.x_buffers * s.c_tiles * images * s.rows_in * s.cols_in * e;
  sum += s.w_buffers * s.c_tiles * taps * s.choice.filters * e;
  sum += depthwise ? 2 * taps * 4 + kTile * e : 2 * kTile * taps * e;
  if (nhwc) sum += 2 * std::max(s.c_part, kTile) * e;
  if (p.epilogue.bias) sum += s.w_buffers * s.k_tiles * 4;
  if (p.epilogue.residual) sum += s.y_buffers * images * s.window_rows * s.window_cols * e;
  if (needs_scratch(p)) sum += Schedule::kScratchBuffers * kBank * 4;
  if (has_pool(p)) sum += s.y_buffers * images * s.window_rows * s.window_cols * v;
  if (average) sum += s.y_buffers * images * rows * cols * 4;
  return sum + s.y_buffers * images * rows * cols * e;
}

// The sizes that follow, with as many buffers as there is room for.
Schedule measured(const Problem& p, const Choice& choice, const NkiCore& core) {
  Schedule s;
  s.choice = choice;
  s.weights = weights_of(p);
  const i64 groups = groups_of_part(p);
  s.c_part = groups * group_c(p);
  s.k_groups = groups * group_k(p);
  s.c_tiles = ceil_div(s.c_part, kTile);
  s.k_tiles = ceil_div<i64>(choice.filters, kTile);
  s.conv_rows = rows_of(p).needed(choice.rows), s.conv_cols = cols_of(p).needed(choice.cols);
  s.window_rows = rows_of(p).windowed(choice.rows), s.window_cols = cols_of(p).windowed(choice.cols);
  s.rows_in = window(s.conv_rows, p.stride_h, (p.r - 1) * p.dilation_h + 1);
  s.cols_in = window(s.conv_cols, p.stride_w, (p.s - 1) * p.dilation_w + 1);
  const i64 fit = std::max<i64>(1, kBank / (choice.images * s.conv_cols));
  s.group_rows = ceil_div(s.conv_rows, ceil_div(s.conv_rows, fit));
  const bool one_part = p.groups == groups && choice.filters >= s.k_groups;
  for (const auto& [x, w, y] : {std::array{2, 2, 2}, {2, 1, 2}, {2, 1, 1}, {1, 1, 1}}) {
    s.x_buffers = x, s.w_buffers = one_part ? 1 : w, s.y_buffers = y;
    s.sbuf_bytes = bytes_with(p, s);
    if (s.sbuf_bytes <= core.sbuf_bytes) break;
  }
  return s;
}

bool fits(const Problem& p, const Choice& choice, const NkiCore& core) {
  return measured(p, choice, core).sbuf_bytes <= core.sbuf_bytes;
}

// Filters of a part, the most first.
std::vector<i64> filter_blocks(const Problem& p) {
  const i64 all = groups_of_part(p) * group_k(p);
  if (groups_of_part(p) > 1) return {all};  // the groups lie on a diagonal
  std::set<i64, std::greater<>> sizes = {std::min(all, kMost / kTile * kTile)};
  for (i64 parts = 2; parts <= 8; ++parts) sizes.insert(std::min(all, round_up(ceil_div(all, parts), kTile)));
  for (const i64 few :
       {i64{4096}, i64{2048}, i64{1024}, i64{512}, i64{256}, kTile, i64{64}, i64{32}, i64{16}}) {
    sizes.insert(std::min(all, few));
  }
  return {sizes.begin(), sizes.end()};
}

// Columns of y: as many as a row of a bank holds; or fewer.
std::vector<i64> widths(const Problem& p) {
  const Extent cols = cols_of(p);
  std::vector<i64> all;
  for (i64 most = kBank; most >= 32; most /= 2) {
    const i64 count = cols.balanced(cols.within(most));
    if (cols.within(most) > 0 && count <= kMost && (all.empty() || count < all.back())) all.push_back(count);
  }
  if (cols.needed(1) <= kBank && (all.empty() || all.back() > 1)) all.push_back(1);
  return all;
}

int as_int(i64 value) { return static_cast<int>(value); }

// The block that needs least.
std::vector<Choice> smallest(const Problem& p, const NkiCore& core) {
  for (const i64 width : widths(p)) {
    for (const i64 filters : filter_blocks(p)) {
      const Choice one{1, as_int(width), 1, as_int(filters)};
      if (fits(p, one, core)) return {one};
    }
  }
  return {};
}

// The block's own limits, which do not depend on SBUF.
std::string wrong(const Problem& p, const Choice& c) {
  const Extent rows = rows_of(p), cols = cols_of(p);
  if (c.rows < 1 || c.rows > rows.y) return fmt::format("its rows are {}, and y has {}", c.rows, rows.y);
  if (c.cols < 1 || c.cols > cols.y) return fmt::format("its columns are {}, and y has {}", c.cols, cols.y);
  if (c.images < 1 || c.images > p.n) return fmt::format("its images are {} of {}", c.images, p.n);
  const i64 all = groups_of_part(p) * group_k(p);
  if (c.filters < 1 || c.filters > all || (groups_of_part(p) > 1 && c.filters != all) ||
      (c.filters > kTile && c.filters < all && c.filters % kTile != 0)) {
    return fmt::format("its filters are {} of {}; they may be all, or a multiple of {}, or fewer", c.filters,
                       all, kTile);
  }
  const i64 bank = c.images * cols.needed(c.cols);
  if (bank > kBank) return fmt::format("a row of its images is {} sums, and a bank holds {}", bank, kBank);
  if (c.emptying == Emptying::both &&
      (needs_scratch(p) || p.epilogue.residual ||
       (p.epilogue.activation != Activation::none && p.epilogue.activation != Activation::relu))) {
    return "the vector engine alone has no instruction for this epilogue";
  }
  return "";
}

}  // namespace

std::string scalar_activation(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "nl.copy";
    case Activation::relu:
      return "nl.relu";
    case Activation::sigmoid:
      return "nl.sigmoid";
    case Activation::silu:
      return "nl.silu";
    case Activation::gelu:
      return "nl.gelu";
    case Activation::gelu_tanh:
      return "nl.gelu_apprx_tanh";
    default:
      return "";
  }
}

bool has_pool(const Problem& p) { return p.epilogue.pool.kind != PoolKind::none; }

bool is_padded(const Problem& p) {
  return p.pad_top > 0 || p.pad_bottom > 0 || p.pad_left > 0 || p.pad_right > 0;
}

bool needs_scratch(const Problem& p) {
  return scalar_activation(p.epilogue.activation).empty() ||
         (p.epilogue.residual && p.epilogue.activation != Activation::none);
}

std::string declined(const Problem& p, const NkiCore& core) {
  if (p.direction != Direction::forward) {
    return "gradients are not emitted, the forward direction is; with stride 1 a gradient of the data is the "
           "forward convolution of y's gradient with the filter turned by 180 degrees";
  }
  if (is_transposed(p)) {
    return "transposed convolutions are not emitted; the nearest is the forward convolution, of an image "
           "with "
           "zeros between its pixels";
  }
  if (p.dimensions == 3)
    return "three dimensions are not emitted; the nearest is d = t = 1, a plane at a time";
  if (has_pitch(p))
    return "slices of tensors are not emitted; the nearest is the problem without xpitch and ypitch";
  if (p.epilogue.residual_order == ResidualOrder::after_activation)
    return "a residual after the activation is not emitted; the nearest is one before it";
  const Activation a = p.epilogue.activation;
  if (scalar_activation(a).empty() && a != Activation::relu6 && a != Activation::leaky_relu &&
      a != Activation::hardswish) {
    return fmt::format("{} has no instruction on its engines that is known here; the nearest is relu or none",
                       name(a));
  }
  const Extent cols = cols_of(p);
  if (cols.needed(1) > kBank) {
    return fmt::format(
        "a pooling window takes {} columns at once, and a bank of PSUM holds {}; the nearest is "
        "a pool that is no wider, or none",
        cols.needed(1), kBank);
  }
  if (!smallest(p, core).empty()) return "";
  // Of all that does not fit, the weights are what grows with the channels.
  const Choice least{1, as_int(widths(p).back()), 1, as_int(filter_blocks(p).back())};
  const Schedule s = measured(p, least, core);
  return fmt::format(
      "{} filters of {}x{}x{} and the pixels of a row take {} KiB of each partition of SBUF, and there are "
      "{}; "
      "the nearest is about {} channels, whose results are added up",
      least.filters, group_c(p), p.r, p.s, ceil_div<i64>(s.sbuf_bytes, 1024), core.sbuf_bytes / 1024,
      std::max<i64>(1, group_c(p) * core.sbuf_bytes / s.sbuf_bytes / kTile) * kTile);
}

Schedule schedule(const Problem& p, const Choice& choice, const NkiCore& core) {
  if (const std::string why = wrong(p, choice); !why.empty()) {
    throw Error(Status::bad_problem, "this block does not fit " + to_string(p) + ": " + why);
  }
  Schedule s = measured(p, choice, core);
  if (s.sbuf_bytes > core.sbuf_bytes) {
    throw Error(
        Status::unsupported,
        fmt::format("this block takes {} bytes of each partition of SBUF, and there are {}; take fewer "
                    "rows or filters",
                    s.sbuf_bytes, core.sbuf_bytes));
  }
  return s;
}

std::vector<Choice> choices(const Problem& p, const NkiCore& core) {
  const Extent rows = rows_of(p);
  std::vector<Choice> all;
  const auto add = [&](i64 r, i64 width, i64 images, i64 filters) {
    if (r > kMost) return false;
    Choice c{as_int(r), as_int(width), as_int(images), as_int(filters)};
    if (!wrong(p, c).empty() || !fits(p, c, core)) return false;
    all.push_back(c);
    c.emptying = Emptying::both;
    if (wrong(p, c).empty()) all.push_back(c);
    return true;
  };
  const std::vector<i64> wide = widths(p);
  // Blocks of rows, doubled from what fills one bank; with as many filters as fit beside.
  for (std::size_t i = 0; i < wide.size() && all.empty(); ++i) {
    const i64 sums = cols_of(p).needed(wide[i]);
    const i64 plane = sums * rows.conv, one_bank = std::max<i64>(1, rows.within(kBank / sums));
    std::set<i64> heights;
    for (i64 r = one_bank; r < rows.y; r *= 2) heights.insert(rows.balanced(r));
    heights.insert(rows.y), heights.insert(1);
    for (const i64 filters : filter_blocks(p)) {
      if (wide[i] == p.y_w() && 2 * plane <= kBank && p.n > 1) {
        add(rows.y, wide[i], std::min(p.n, kBank / plane), filters);
      }
      for (const i64 r : heights) add(r, wide[i], 1, filters);
      if (!all.empty()) break;
    }
  }
  if (all.empty()) return smallest(p, core);
  // DMA wants to be asked for much at once: shorter blocks are for those who name them.
  const auto lies_together = [&](const Choice& c) {
    const bool whole = p.layout == Layout::nchw && !is_padded(p) && c.cols == p.y_w();
    return whole ? measured(p, c, core).rows_in * p.w * size_of(p.dtype) : 0;
  };
  i64 longest = 0;
  for (const Choice& c : all) longest = std::max(longest, lies_together(c));
  std::erase_if(
      all, [&](const Choice& c) { return lies_together(c) < std::min<i64>(longest, NkiCore::kDmaWanted); });
  return all;
}

}  // namespace faltung::nki
