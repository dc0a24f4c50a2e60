#include "src/algorithms/depthwise_gpu_tile.hpp"

#include <algorithm>
#include <cmath>

#include "src/algorithms/pass_time.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::depthwise {
namespace {

using i64 = std::int64_t;

// Along one dimension: the places of the other tensor that a tile reads, from where it lies there.
struct Reach {
  i64 low, high;  // the first and the last
  i64 middle;     // so many places lie above or below the tile itself
};

i64 floor_divide(i64 a, i64 b) { return a >= 0 ? a / b : -ceil_div(-a, b); }

Reach reach(Direction direction, i64 tile, i64 taps, i64 stride, i64 dilation, i64 pad) {
  if (direction == Direction::backward_data) {
    return {floor_divide(pad - (taps - 1) * dilation, stride), floor_divide(tile - 1 + pad, stride),
            tile / stride};
  }
  return {-pad, (tile - 1) * stride + (taps - 1) * dilation - pad, tile * stride};
}

// The largest power of two that divides all of these, and is at most `most`.
int common_vector(i64 a, i64 b, i64 most) {
  int v = 1;
  while (2 * v <= most && a % (2 * v) == 0 && b % (2 * v) == 0) v *= 2;
  return v;
}

// The smallest power of two that is not below `columns`, at most `most`.
int halo_vector(i64 columns, int most) {
  int v = 1;
  while (v < columns && v < most) v *= 2;
  return v;
}

int side_by_side(const Problem& p, const Tile& t, i64 bytes_a_channel) {
  constexpr i64 kMostBytes = 24576;
  const i64 vectors = p.layout == Layout::nhwc ? p.c / t.channels : 1;
  for (int n = 16; n > 1; n /= 2) {
    const i64 idle = round_up(vectors, n) - vectors;
    if (idle * 8 <= vectors && n * t.channels * bytes_a_channel <= kMostBytes) return n;
  }
  return 1;
}

i64 words(i64 elements, DType dtype) { return ceil_div(elements * size_of(dtype), i64{4}); }

}  // namespace

std::optional<Fit> fit(const Tile& t, const Problem& p, const DeviceInfo& device) {
  if (t.kind == Kind::lines || p.k != p.c || !is_depthwise(p)) return {};
  const Direction direction = p.direction;
  const bool nhwc = p.layout == Layout::nhwc, on_cpu = device.has("runs_on_cpu");
  const bool weights = direction == Direction::backward_weights;
  const i64 most_vector = 16 / size_of(p.dtype);
  // A vector is at most 16 bytes.
  if (nhwc ? p.c % t.channels != 0 || t.channels > most_vector : t.channels != 1) return {};
  // Narrow vectors are for channels that have no wider ones, and for many sums a channel.
  if (nhwc && t.channels * size_of(p.dtype) < 8 && p.c % (2 * t.channels) == 0 &&
      (t.channels == 1 || (!weights && p.r * p.s <= 25)))
    return {};
  // Of large filters the sums and rows of wide vectors leave too few registers.
  if (nhwc && !weights && t.kind == Kind::tile && t.channels > 2 && p.r * p.s > 25) return {};
  if (device.block_threads > 0 && device.block_threads < kTileThreads) return {};
  const bool backward = direction == Direction::backward_data;
  const i64 out_h = backward ? p.h : p.p(), out_w = backward ? p.w : p.q(), in_w = backward ? p.q() : p.w;
  // clspv makes a load of each word of a vector, and a store: where columns lie together those of
  // neighbouring threads should too. In an H200's Vulkan driver two columns of f32 took 0.18 ms where eight
  // took 0.46, and what is in registers had to be less.
  const bool by_words = device.has("vulkan") && !nhwc && !weights;
  constexpr i64 kMostBytesByWords = 8, kMostRegistersByWords = 70, kTapsByWords = 25;
  if (by_words && t.columns * size_of(p.dtype) > kMostBytesByWords) return {};
  // No tile is far larger than the image, and a backward one is a whole number of strides.
  if ((t.rows > 1 && t.rows >= 2 * out_h) || (t.columns > 1 && t.columns >= 2 * out_w)) return {};
  const bool walks = t.kind == Kind::walk;
  if (walks && (p.stride_h != 1 || p.dilation_h != 1)) return {};
  if (backward && (t.rows % p.stride_h != 0 || t.columns % p.stride_w != 0)) return {};

  Fit f{};
  f.tile = t;
  f.tap_groups = 1;
  f.exact = (walks || out_h % t.rows == 0) && out_w % t.columns == 0;
  // All is unrolled: a large program takes long to compile, and CPUs gain nothing by it.
  const i64 most_products = on_cpu ? 96 : 1600;
  const i64 at_once = walks ? 1 : t.rows, row_pixels = i64{t.columns} * t.channels;
  const i64 pixels = at_once * row_pixels, row_products = pixels * p.s;
  if (row_products > most_products) return {};
  if (weights) {
    constexpr i64 kMostSums = 80;
    const i64 row_sums = p.s * t.channels;
    const i64 most = std::min(std::max(kMostSums / row_sums, i64{1}), most_products / row_products);
    f.tap_groups = ceil_div(p.r, std::min(most, p.r));
    f.tap_rows = static_cast<int>(ceil_div(p.r, f.tap_groups));
  } else {
    if (walks && row_products * p.r > most_products) return {};
    f.tap_rows = static_cast<int>(row_products * p.r <= most_products ? p.r : 1);
  }
  const Reach down = reach(direction, t.rows, f.tap_rows, p.stride_h, p.dilation_h, p.pad_top);
  const Reach across = reach(direction, t.columns, p.s, p.stride_w, p.dilation_w, p.pad_left);
  f.rows = static_cast<int>(down.high - down.low + 1);
  i64 row_words = 0;
  if (nhwc) {
    f.left = f.right = f.middle = f.stored = 1;
    f.row_loads = static_cast<int>(across.high - across.low + 1);
    f.out_loads = t.columns;
    f.row_elements = f.row_loads * t.channels;
    row_words = f.row_loads * words(t.channels, p.dtype);
  } else {
    f.middle = common_vector(in_w, across.middle, most_vector);
    f.stored = common_vector(out_w, t.columns, most_vector);
    const i64 before = std::max<i64>(0, -across.low),
              after = std::max<i64>(0, across.high + 1 - across.middle);
    f.left = halo_vector(before, f.middle), f.right = halo_vector(after, f.middle);
    const i64 lefts = ceil_div(before, f.left), rights = ceil_div(after, f.right);
    f.row_loads = static_cast<int>(lefts + across.middle / f.middle + rights);
    f.out_loads = t.columns / f.stored;
    f.row_elements = static_cast<int>(lefts * f.left + across.middle + rights * f.right);
    row_words = lefts * words(f.left, p.dtype) + across.middle / f.middle * words(f.middle, p.dtype) +
                rights * words(f.right, p.dtype);
    // With words or less of a row a thread does better with one column or two.
    if (t.columns > 2 && f.middle * size_of(p.dtype) < 8 && p.s <= 7) return {};
  }
  // What is in registers at once: sums, a row as floats, and rows as they lie in memory.
  constexpr i64 kUsualRegisters = 150, kMostRegisters = 190;
  i64 fixed = f.row_elements, read_ahead = 0;
  if (weights) {
    // Of the gradient, the rows of a tile, or those that a row of x meets and the next one.
    const i64 rows = walks ? f.tap_rows + 1 : t.rows;
    fixed += f.tap_rows * p.s * t.channels + rows * words(row_pixels, p.dtype);
    read_ahead = walks ? 1 : f.rows;
  } else {
    fixed += walks ? p.r * row_pixels : pixels;
    read_ahead = walks ? 1 : std::min(2, f.rows);
  }
  f.ahead = static_cast<int>(std::clamp<i64>((kUsualRegisters - fixed) / row_words, 1, f.rows));
  if (fixed + read_ahead * row_words > kMostRegisters) return {};
  if (walks) f.ahead = fixed + 2 * row_words < 120 ? 2 : 1;
  f.registers = static_cast<int>(fixed + (weights && !walks ? f.rows : f.ahead) * row_words);
  if (by_words && p.r * p.s <= kTapsByWords && f.registers > kMostRegistersByWords) return {};

  f.side_by_side = nhwc ? side_by_side(p, t, weights ? 0 : f.tap_rows * p.s * i64{sizeof(float)}) : 1;
  f.tiles = p.n * ceil_div(out_h, t.rows) * ceil_div(out_w, t.columns);
  f.chunks = ceil_div(p.c, i64{f.side_by_side} * t.channels);
  constexpr i64 kMostThreads = i64{1} << 30;
  if (f.chunks > kMostThreads / kTileThreads || f.tiles > kMostThreads / kTileThreads / f.chunks * f.slices())
    return {};
  return f;
}

gpu::Constants constants(const Fit& f, const Problem& p) {
  const auto n = [](i64 v) { return std::to_string(v); };
  gpu::Constants all = {
      gpu::direction_constant(p),  {"THREADS", n(kTileThreads)}, {"TP", n(f.tile.rows)},
      {"TQ", n(f.tile.columns)},   {"CV", n(f.tile.channels)},   {"VB", n(f.side_by_side)},
      {"TAP_ROWS", n(f.tap_rows)}, {"PAD_TOP", n(p.pad_top)},    {"PAD_LEFT", n(p.pad_left)}};
  if (p.layout == Layout::nchw)
    all.insert(all.end(), {{"VL", n(f.left)}, {"VM", n(f.middle)}, {"VR", n(f.right)}, {"VO", n(f.stored)}});
  return all;
}

i64 splits(const Fit& f, const DeviceInfo& device) {
  const i64 blocks = f.chunks * f.tap_groups, units = std::max(1, device.units);
  if (blocks >= 3 * units) return 1;
  constexpr i64 kWanted = 6, kMost = 1024;
  return std::clamp<i64>(ceil_div(kWanted * units, blocks), 1,
                         std::clamp<i64>(f.tiles / f.slices(), 1, kMost));
}

namespace {

// What a thread does for a tile.
struct Work {
  double products, loads, conversions, weights, results;
  double instructions(bool nhwc) const {
    // Of a load: its address and whether it is inside; of a result: the epilogue and its share of the store.
    constexpr double kLoad = 2.3, kPixelLoad = 1.6, kResult = 4, kOnce = 60;
    return products + loads * (kLoad + (nhwc ? kPixelLoad : 0)) + conversions + 0.5 * weights +
           results * kResult + kOnce;
  }
};

Work work_of(const Fit& f, const Problem& p) {
  const bool weights = p.direction == Direction::backward_weights, walks = f.tile.kind == Kind::walk;
  const double pixels = static_cast<double>(f.tile.rows) * f.tile.columns * f.tile.channels;
  const double taps = static_cast<double>(f.tap_rows * p.s);
  const double conversion = size_of(p.dtype) == 2 ? 1 : 0;
  double rows = f.rows;
  Work work{pixels * taps, 0, 0, taps, pixels};
  if (p.direction == Direction::backward_data) work.products /= static_cast<double>(p.stride_h * p.stride_w);
  if (walks) {
    rows = f.tile.rows + f.tap_rows - 1;
    work.products *= rows / f.tile.rows, work.weights *= rows;
  } else if (!weights && f.tap_rows < p.r) {
    rows = static_cast<double>(f.tile.rows * p.r);
    work.products *= static_cast<double>(p.r), work.weights *= static_cast<double>(p.r);
  }
  work.loads = rows * f.row_loads, work.conversions = rows * f.row_elements * conversion;
  if (!weights) return work;
  constexpr double kConvertedAgain = 0.7;  // of the gradient's rows, by each row of the filter
  work.loads += f.tile.rows * f.out_loads;
  work.conversions += pixels * conversion * f.tap_rows * kConvertedAgain;
  work.weights = work.results = 0;
  return work;
}

}  // namespace

// Fitted to what tiles took on an H200, 32 images of EfficientNet-B2 and ConvNeXt-T: 17 % from it in the
// mean.
double predicted_ms(const Fit& f, const Problem& p, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.003, kUnitGbps = 30.7, kUnitInstructionsPerMs = 128 * 1.7e6;
  constexpr double kFetchMs = 2.8e-6,
                   kSumMs = 124e-6;  // of an instruction that runs once; of adding up threads'
  const bool weights = p.direction == Direction::backward_weights, walks = f.tile.kind == Kind::walk;
  const Work work = work_of(f, p);
  // Of the blocks that a unit has room for, each hides what the others wait for.
  constexpr double kBeside = 35, kUnitRegisters = 65536, kMostBlocks = 10, kHidden = 2;
  const double blocks = std::min(
      std::floor(kUnitRegisters / (std::max(f.registers + kBeside, 40.0) * kTileThreads)), kMostBlocks);
  const double units = std::max(1, device.units);
  const double tiles = static_cast<double>(f.tiles * f.chunks * f.side_by_side * f.tap_groups);
  const double issue = work.instructions(p.layout == Layout::nhwc) * tiles /
                       (kUnitInstructionsPerMs * units) * (blocks + kHidden) / blocks;
  const double bytes = min_bytes(p) / (kUnitGbps * memory_beside_fitted(target)) * 1e-6 / units;
  const double threads =
      weights ? static_cast<double>(f.chunks * f.tap_groups * splits(f, device) * kTileThreads) : tiles;
  // Too few threads leave units without work.
  const double busy = std::min(1.0, threads / (units * kTileThreads * std::min(blocks, 5.0)));
  double code = work.products + 6 * work.loads + work.conversions + work.results;
  if (walks) code /= f.tile.rows;
  if (!weights && !walks && f.tap_rows < p.r) code /= static_cast<double>(p.r);
  const double sums = weights ? static_cast<double>(f.tap_rows * p.s * f.tile.channels) : 0;
  // Four channels' rows of five taps and more take longer than what is counted.
  const bool wide = !walks && !weights && p.layout == Layout::nhwc && f.tile.channels == 4 && p.s >= 5;
  // So do tiles that reach beyond the image, of large filters.
  const bool beyond = weights && !f.exact && has_large_filter(p);
  const double longer = beyond ? 1.35 : wide && size_of(p.dtype) == 2 ? 1.3 : 1;
  return kLaunchMs + longer * (std::max(bytes, issue) + 0.2 * std::min(bytes, issue)) / std::pow(busy, 0.7) +
         code * kFetchMs + sums * kSumMs;
}

}  // namespace faltung::depthwise
