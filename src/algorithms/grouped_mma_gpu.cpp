// Groups too narrow for a tile of a matrix product, on an NVIDIA GPU's matrix units: bytes bind, nearly.
#include <cmath>
#include <numeric>

#include "src/algorithms/patch_tiles.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace grouped_mma_gpu {
namespace {

using namespace patch_tiles;

// Along one dimension: so many rows of what is read meet a place, a result of forward and `phases` results of
// backward_data; from a place to the next one there are so many. rest: of the padding's division by the
// stride.
struct Walk {
  i64 span, step, phases, rest;
};
Walk walk(const Problem& p, i64 taps, i64 stride, i64 pad) {
  if (p.direction != Direction::backward_data) return {taps, stride, 1, 0};
  const i64 rest = pad % stride;
  return {(taps - 1 - rest + stride) / stride + (rest > 0 ? 1 : 0), 1, stride, rest};
}
Walk down(const Problem& p) { return walk(p, p.r, p.stride_h, p.pad_top); }
Walk across(const Problem& p) { return walk(p, p.s, p.stride_w, p.pad_left); }

i64 group(const Problem& p) { return p.c / p.groups; }

// Of nchw: neighbours of a row that are loaded, and stored, at once.
bool in_planes(const Problem& p) { return p.layout == Layout::nchw; }
i64 load_run(const Problem& p) { return std::gcd(p.direction == Direction::forward ? p.w : p.q(), 4); }
i64 store_run(const Problem& p) { return std::gcd(p.direction == Direction::forward ? p.q() : p.w, 8); }

// What is read, of forward x, and what is written: elements of a plane.
i64 in_plane(const Problem& p) { return p.direction == Direction::forward ? p.h * p.w : p.p() * p.q(); }
i64 out_plane(const Problem& p) { return p.direction == Direction::forward ? p.p() * p.q() : p.h * p.w; }

// How planes of nchw come: by runs of pixels through registers, as pixels do, or as whole planes.
enum class Planes { runs, whole };
constexpr NameWord<Planes> kPlanes[] = {{Planes::runs, ""}, {Planes::whole, "whole"}};

// 16 places of a row for each four warps, 16 of the channels each.
struct Tile {
  int rows, columns, images;
  Planes planes = Planes::runs;
  static constexpr int channels = 64, kMostResident = 6;
  template <class Name>
  void spell(Name& name) {
    name.word(planes, kPlanes);
    name.key("tp", rows, columns, images);
  }
  bool whole() const { return planes == Planes::whole; }
  i64 sixteens() const { return ceil_div(i64{images} * columns, 16); }
  int threads(const Problem& p) const { return is_weights(p) ? 128 : 128 * static_cast<int>(sixteens()); }
  i64 patch_rows(const Problem& p) const { return (rows - 1) * down(p).step + down(p).span; }
  i64 patch_columns(const Problem& p) const { return (columns - 1) * across(p).step + across(p).span; }
  // The patch, and the gradient's pixels, or the filters and two rows of results, which in planes lie apart;
  // or filters that do, and planes as they are read and later written.
  i64 local_bytes(const Problem& p) const {
    const i64 filters = p.r * p.s * group(p), row = sixteens() * 16, apart = in_planes(p) ? 8 : 0;
    const i64 results = 2 * (row * across(p).phases + apart) * down(p).phases;
    i64 others = is_weights(p) ? rows * row : filters + results;
    if (whole()) {
      const bool are_apart = group(p) > kOctet && filters % kOctet == 0;
      others = filters + (are_apart ? kOctet : 0) + images * std::max(in_plane(p), out_plane(p));
    }
    return (images * patch_rows(p) * patch_columns(p) + others) * channels * 2;
  }
  // The filter's or its sums, a row's sums or the gradient's rows, and those for addresses and what is read.
  i64 registers(const Problem& p) const {
    const Walk d = down(p), a = across(p);
    const i64 eights = ceil_div(group(p), 8), held = ceil_div(d.span, d.step);
    if (is_weights(p)) return p.r * p.s * std::max<i64>(2, eights) * 4 + held * 4 + 64;
    const i64 stores =
        in_planes(p) ? ceil_div(columns * a.phases * images, store_run(p) * 2 * sixteens()) : 0;
    return p.r * p.s * 2 * eights + held * d.phases * a.phases * 8 + 56 + 2 * stores;
  }
  bool serves(const Problem& p, const DeviceInfo& device) const {
    constexpr int kMostPatchRows = 16;          // all is unrolled
    constexpr i64 kMostBytesOfTwo = 112 << 10;  // of Hopper's multiprocessor
    const Places all = places(p);
    if (whole() && (!in_planes(p) || is_weights(p) || rows < all.rows || columns < all.columns)) return false;
    const i64 most_bytes = whole() && device.has("sm_90") ? kMostBytesOfTwo : kMostBytes;
    return patch_rows(p) <= kMostPatchRows && fits(p, *this, 2 * all.rows, most_bytes) &&
           (!is_weights(p) || columns <= 32);
  }
  // Of two rounds of blocks and, in pixels, without strides; else what is asked for and brought later is read
  // twice.
  bool asks_ahead(const Problem& p, const DeviceInfo& device) const {
    constexpr i64 kMostRounds = 2;
    const i64 room = i64{std::max(1, device.units)} * resident(p, *this);
    return device.has("sm_90") && !is_weights(p) && whole() == in_planes(p) &&
           (whole() || down(p).step * across(p).step == 1) &&
           patches(p, *this) * chunks(p, *this) <= kMostRounds * room;
  }
  gpu::Constants constants(const Problem& p, const DeviceInfo& device) const {
    gpu::Constants all = {{"GROUP", std::to_string(group(p))},
                          {"PHASE_H", std::to_string(down(p).rest)},
                          {"PHASE_W", std::to_string(across(p).rest)}};
    if (!is_weights(p)) all.emplace_back("ASKS_AHEAD", asks_ahead(p, device) ? "1" : "0");
    if (whole()) {
      all.emplace_back("WHOLE", "1");
      all.emplace_back("IN_PLANE", std::to_string(in_plane(p)));
      all.emplace_back("OUT_PLANE", std::to_string(out_plane(p)));
    } else if (in_planes(p)) {
      all.emplace_back("LOAD_RUN", std::to_string(load_run(p)));
      all.emplace_back("STORE_RUN", std::to_string(store_run(p)));
    }
    return all;
  }
};

// Of tiles that are predicted alike the first is the better one.
constexpr auto kWhole = Planes::whole;
constexpr Tile kTiles[] = {{7, 16, 1},        {8, 16, 1},        {14, 16, 1},         {7, 8, 4},
                           {7, 8, 2},         {4, 8, 2},         {4, 16, 1},          {2, 16, 1},
                           {14, 32, 1},       {8, 32, 1},        {7, 32, 1},          {4, 32, 1},
                           {2, 32, 1},        {7, 8, 1},         {4, 8, 1},           {7, 56, 1},
                           {4, 56, 1},        {14, 56, 1},       {14, 16, 1, kWhole}, {7, 8, 4, kWhole},
                           {7, 8, 2, kWhole}, {7, 8, 1, kWhole}, {7, 16, 1, kWhole}};

// Both were fitted to what tiles of ResNeXt's groups took on an H200, 8 and 10 % from it in the mean; cycles
// are of one multiprocessor, bytes a ms its share.
double weights_ms(const Problem& p, const Tile& t, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLeastMs = 0.006, kProducts = 4.3, kRow = 118, kBytesPerMs = 2.92e7, kPartBytesPerMs = 9e6;
  const double units = std::max(1, device.units);
  const i64 parts = splits(p, t, device), turns = ceil_div(patches(p, t), parts);
  const auto taps = static_cast<double>(p.r * p.s * std::max<i64>(2, group(p) / 8));
  const double turn = static_cast<double>(t.sixteens()) * (static_cast<double>(t.rows) * taps * kProducts +
                                                           static_cast<double>(t.patch_rows(p)) * kRow);
  const double work = static_cast<double>(turns) * turn *
                      std::ceil(static_cast<double>(parts * chunks(p, t)) / units) / kCyclesPerMs;
  const double sums = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, parts)) / (kPartBytesPerMs * units);
  return std::max(kLeastMs,
                  std::max(work, min_bytes(p) / (kBytesPerMs * units * memory_beside_fitted(target))) + sums);
}

// In planes by so much longer; where a tile has not whole rows; and where strides make many rows of a high
// one. By its choices, of 42 tiles that were timed, rather than by its errors; whole ones by 20.
double turned(const Problem& p, const Tile& t) {
  constexpr double kTurned = 2.1, kNarrow = 1.2, kHigh = 1.3, kTurnedWhole = 1.35;
  if (t.whole()) return kTurnedWhole;
  const i64 width = p.direction == Direction::forward ? p.q() : p.w;
  const bool high = down(p).phases > 1 && t.rows > 8;
  return kTurned * (t.columns * across(p).phases < width ? kNarrow : 1) * (high ? kHigh : 1);
}

double results_ms(const Problem& p, const Tile& t, const Target& target) {
  constexpr double kLaunchMs = 0.00284, kBytesPerMs = 4.61e7, kBeside = 0.512, kProducts = 4.25,
                   kResults = 15, kBegin = 1740;
  const double units = std::max(1, target.device.units),
               count = static_cast<double>(patches(p, t) * chunks(p, t));
  const double blocks = count / (units * resident(p, t)), rounds = std::ceil(blocks);
  // Of 16 places by 16 channels; the last round's blocks are fewer.
  const double products = static_cast<double>(2 * p.r * p.s * std::max<i64>(8, group(p)) / 8) * kProducts;
  const double results = static_cast<double>(down(p).phases * across(p).phases) * kResults;
  const double work = count / units * static_cast<double>(t.rows * t.sixteens()) * (products + results) *
                      (blocks > 1 ? rounds / blocks : 1);
  const double ms = launch_ms(kLaunchMs,
                              {work / kCyclesPerMs, rounds * kBegin / kCyclesPerMs,
                               min_bytes(p) / (kBytesPerMs * units * memory_beside_fitted(target))},
                              kBeside);
  return in_planes(p) ? ms * turned(p, t) : ms;
}

class GroupedMmaGpu : public PatchTiles<Tile> {
 public:
  GroupedMmaGpu()
      : PatchTiles("grouped_mma", "grouped",
                   "groups of 2 to 32 channels on the matrix units of NVIDIA's GPUs since Ampere", kTiles) {}

 private:
  Support takes(const Problem& p) const override {
    const i64 width = group(p);
    if (p.groups == 1 || p.k != p.c || width < 2 || width > 32 || (width & (width - 1)) != 0 || p.c % 16 != 0)
      return Support::declined(
          "groups have 2, 4, 8, 16 or 32 channels, in and out, and are a multiple of 16 channels together");
    if (p.r * p.s > 9 || p.stride_h > 2 || p.stride_w > 2 || p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined("filters have up to 9 taps, strides up to 2, no dilation");
    return Support::supported();
  }
  // Of the weights' gradient each block would wait for both tensors' patches in turn: slower than turned
  // ones.
  bool takes_planes(const Problem& p) const override { return !is_weights(p); }
  void add_zeros(const Problem& p, Accuracy& accuracy) const override {
    accuracy.groups_as_one = static_cast<int>(std::max<i64>(kOctet, group(p)) / group(p));
  }
};

}  // namespace
}  // namespace grouped_mma_gpu

std::unique_ptr<Algorithm> make_grouped_mma_gpu() {
  return std::make_unique<grouped_mma_gpu::GroupedMmaGpu>();
}

}  // namespace faltung
