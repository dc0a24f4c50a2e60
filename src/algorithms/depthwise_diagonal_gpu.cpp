// A depthwise convolution as products with diagonal matrices, on an NVIDIA GPU's matrix units: pixels stay as
// they lie in memory, and a product has 256 multiply-adds that count.
#include <array>
#include <cmath>
#include <iterator>

#include "src/algorithms/patch_tiles.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace depthwise_diagonal_gpu {
namespace {

using namespace patch_tiles;

i64 pairs(const Problem& p) { return ceil_div(p.s, i64{2}); }  // products that a row of the filter takes

// Products for 16 places of a row of eight channels.
i64 products(const Problem& p) {
  const bool down = is_weights(p) && p.s % 2 == 1 && p.r > 1;  // of taps in pairs below each other
  return down ? p.r * (pairs(p) - 1) + (p.r + 1) / 2 : p.r * pairs(p);
}

// A warp has 16 places of a row and eight channels.
struct Tile {
  int rows, columns, images, channels, cluster;
  static constexpr int kMostResident = 12;
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, columns, images);
    name.key("ch", channels);
    name.optional("cl", 1, cluster);
  }
  i64 sixteens() const { return ceil_div(i64{images} * columns, 16); }
  i64 octets() const { return channels / kOctet; }
  i64 warps() const { return octets() * sixteens(); }
  int threads(const Problem&) const { return static_cast<int>(32 * warps()); }
  i64 patch_rows(const Problem& p) const { return (rows - 1) * p.stride_h + p.r; }
  i64 patch_columns(const Problem& p) const { return round_up((columns - 1) * p.stride_w + p.s, p.stride_w); }
  // The patch, and the gradient's pixels (later the sums) and what a cluster's blocks send, or the filters
  // and four rows of results.
  i64 local_bytes(const Problem& p) const {
    const i64 pixel = (octets() | 1) * 16, row = sixteens() * 16, filters = channels * p.r * p.s;
    const i64 patch = images * patch_rows(p) * patch_columns(p) * pixel;
    if (!is_weights(p)) return patch + filters * 2 + 4 * row * pixel;
    const i64 own = std::max(patch + rows * row * pixel, sixteens() * filters * 4);
    return cluster == 1 ? own : round_up(own, i64{128}) + round_up(filters * 4, i64{16 * cluster}) + 8;
  }
  // The filter's and rows of sums, or all taps' sums and the gradient's rows; and those for addresses and
  // what is read.
  i64 registers(const Problem& p) const {
    const i64 held = ceil_div(p.r, p.stride_h);
    if (!is_weights(p)) return 40 + p.r * p.s + held * 4;
    return 48 + products(p) * 4 + held * 2 + (sixteens() > 2 ? 16 : 0);
  }
  bool serves(const Problem& p, const DeviceInfo& device) const;
  bool asks_ahead(const Problem& p, const DeviceInfo& device) const;
  gpu::Constants constants(const Problem& p, const DeviceInfo& device) const {
    if (is_weights(p)) return {{"CLUSTER", std::to_string(cluster)}};
    return {{"PAD_TOP", std::to_string(p.pad_top)},
            {"PAD_LEFT", std::to_string(p.pad_left)},
            {"ASKS_AHEAD", asks_ahead(p, device) ? "1" : "0"}};
  }
};

struct Shape {
  int rows, columns, images;
};
constexpr Shape kShapes[] = {{14, 16, 1}, {7, 16, 1}, {8, 16, 1}, {28, 16, 1}, {14, 32, 1},
                             {7, 32, 1},  {7, 56, 1}, {7, 8, 2},  {7, 8, 4},   {4, 16, 1}};
constexpr int kChannels[] = {96, 64, 48, 32, 16};
constexpr int kClusters[] = {1, 8, 16}, kMostPortable = 8;
constexpr auto kTiles = [] {
  constexpr std::size_t kShapeTiles = std::size(kChannels) * std::size(kClusters);
  std::array<Tile, std::size(kShapes) * kShapeTiles> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Shape& shape = kShapes[i / kShapeTiles];
    all[i] = {shape.rows, shape.columns, shape.images,
              kChannels[i / std::size(kClusters) % std::size(kChannels)],
              kClusters[i % std::size(kClusters)]};
  }
  return all;
}();

// Few channels lie idle; the fewest are for tensors that have no other.
bool suits(i64 channels, const Problem& p) { return (round_up(p.c, channels) - p.c) * 8 <= p.c; }
bool Tile::serves(const Problem& p, const DeviceInfo& device) const {
  constexpr int kFewest = kChannels[std::size(kChannels) - 1], kMostPatchRows = 34, kMostThreads = 512;
  const bool is_suited = channels == kFewest ? std::none_of(std::begin(kChannels), std::end(kChannels) - 1,
                                                            [&](int more) { return suits(more, p); })
                                             : suits(channels, p);
  // More of a gradient's channels were 6 to 15 % slower on an H200.
  constexpr int kMostOfWeights = 48;
  if (is_weights(p) && channels > kMostOfWeights) return false;
  // Large clusters have to find room on the multiprocessors that lie together.
  if (cluster > 1 && (!is_weights(p) || !device.has("sm_90"))) return false;
  if (cluster > kMostPortable && resident(p, *this) < 2) return false;
  return is_suited && patch_rows(p) <= kMostPatchRows &&  // all is unrolled
         fits(p, *this, 2 * places(p).rows) && threads(p) <= kMostThreads &&
         block_registers(p, *this) <= kUnitRegisters;
}

// Where blocks of the first rounds are most of them: a patch that is asked for and brought later is read
// twice.
bool Tile::asks_ahead(const Problem& p, const DeviceInfo& device) const {
  constexpr double kMostRounds = 2, kMostRoundsOfStrides = 1;  // more were slower on an H200
  const auto blocks = static_cast<double>(patches(p, *this) * chunks(p, *this));
  const double room = static_cast<double>(std::max(1, device.units)) * resident(p, *this);
  return device.has("sm_90") &&
         blocks <= room * (p.stride_h * p.stride_w > 1 ? kMostRoundsOfStrides : kMostRounds);
}

// Cycles are of one multiprocessor, bytes a ms its share. Both models were fitted to what tiles took on an
// H200, 32 images of EfficientNet-B2: 10 and 14 % from it in the mean.

// Of all patches: what is read, halos too, and what is written. Few channels of a pixel are pieces of lines.
double moved_bytes(const Problem& p, const Tile& t, double piece) {
  const i64 patch = t.patch_rows(p) * t.patch_columns(p) + i64{t.rows} * t.columns;
  return static_cast<double>(patches(p, t) * chunks(p, t) * t.images * patch * size_of(p.dtype)) *
         (t.channels + piece);
}

// Of a block, if each 16 places of a row take so long for eight channels; `warps` of a multiprocessor hide
// what each waits for.
double block_cycles(const Problem& p, const Tile& t, i64 warps, double product, double row, double hidden) {
  return static_cast<double>(t.rows * warps) * (static_cast<double>(products(p)) * product + row) * hidden;
}

double weights_ms(const Problem& p, const Tile& t, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.001878, kBytesPerMs = 5.414e7, kPiece = 12.2, kProduct = 1.168, kRow = 15.73,
                   kHidden = 0.9772, kPartsMs = 0.001205, kPartsAtOnce = 256, kTurnMs = 0.0005483,
                   kClusterMs = 0.0015, kLargeClusterMs = 0.00075;
  const i64 units = std::max(1, device.units), warps = t.warps();
  const i64 all = splits(p, t, device), turns = ceil_div(patches(p, t), all);
  const i64 blocks = ceil_div(all * chunks(p, t), units);
  const double hidden = 1 + kHidden / static_cast<double>(std::min<i64>(resident(p, t), blocks) * warps);
  // A block's warps are dealt to four schedulers.
  const double work = static_cast<double>(turns * blocks) *
                      block_cycles(p, t, round_up(warps, i64{4}), kProduct, kRow, hidden) / kCyclesPerMs;
  const double bytes =
      moved_bytes(p, t, kPiece) / (kBytesPerMs * static_cast<double>(units) * memory_beside_fitted(target));
  const double sum = t.cluster == 1 ? kPartsMs * std::ceil(static_cast<double>(all) / kPartsAtOnce)
                     : t.cluster <= kMostPortable ? kClusterMs
                                                  : kLargeClusterMs;
  return kLaunchMs + std::max(work, bytes) + sum + kTurnMs * static_cast<double>(turns);
}

double results_ms(const Problem& p, const Tile& t, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.001852, kBytesPerMs = 6.058e7, kPiece = 9.05, kBroken = 13.66,
                   kBeside = 0.187, kProduct = 0.643, kRow = 11.96, kHidden = 6.872, kWait = 303,
                   kProductWait = 4.55, kAskedMs = 0.00035;
  const double piece = kPiece + (t.channels * size_of(p.dtype) % 128 == 0 ? 0 : kBroken);  // of a line
  const double units = std::max(1, device.units), room = resident(p, t);
  const double blocks = static_cast<double>(patches(p, t) * chunks(p, t)) / units;
  const i64 warps = t.warps();
  const double hidden = 1 + kHidden / (room * static_cast<double>(warps));
  // A block's rows come one after the other.
  const double wait =
      static_cast<double>(t.patch_rows(p)) * (kWait + static_cast<double>(p.r * pairs(p)) * kProductWait);
  return launch_ms(kLaunchMs - (t.asks_ahead(p, device) ? kAskedMs : 0),
                   {blocks * block_cycles(p, t, warps, kProduct, kRow, hidden) / kCyclesPerMs,
                    std::max(1.0, blocks / room) * wait / kCyclesPerMs,
                    moved_bytes(p, t, piece) / (kBytesPerMs * units * memory_beside_fitted(target))},
                   kBeside);
}

class DepthwiseDiagonalGpu : public PatchTiles<Tile> {
 public:
  DepthwiseDiagonalGpu()
      : PatchTiles(
            "depthwise_diagonal", "depthwise",
            "each channel on its own, as products with diagonal matrices on the matrix units of NVIDIA's "
            "GPUs since Ampere",
            kTiles) {}

 private:
  Support takes(const Problem& p) const override {
    if (!is_depthwise(p) || p.k != p.c || p.c % kOctet != 0)
      return Support::declined("as many groups as channels, in and out, a multiple of 8");
    constexpr i64 kMostTaps = 7;
    const i64 stride = p.direction == Direction::backward_data ? 1 : 2;
    if (p.r > kMostTaps || p.s > kMostTaps || p.stride_h > stride || p.stride_w > stride ||
        p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined("filters have up to 7x7 taps, strides up to 2 (bwd_d: 1), no dilation");
    return Support::supported();
  }
  void add_zeros(const Problem&, Accuracy& accuracy) const override { accuracy.groups_as_one = kOctet; }
};

}  // namespace
}  // namespace depthwise_diagonal_gpu

std::unique_ptr<Algorithm> make_depthwise_diagonal_gpu() {
  return std::make_unique<depthwise_diagonal_gpu::DepthwiseDiagonalGpu>();
}

}  // namespace faltung
