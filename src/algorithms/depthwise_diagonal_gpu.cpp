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

// A warp has 16 places of a row and eight channels.
struct Tile {
  int rows, columns, images, channels;
  static constexpr int kMostResident = 12;
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, columns, images);
    name.key("ch", channels);
  }
  i64 sixteens() const { return ceil_div(i64{images} * columns, 16); }
  i64 octets() const { return channels / kOctet; }
  i64 warps() const { return octets() * sixteens(); }
  int threads(const Problem&) const { return static_cast<int>(32 * warps()); }
  i64 patch_rows(const Problem& p) const { return (rows - 1) * p.stride_h + p.r; }
  i64 patch_columns(const Problem& p) const { return round_up((columns - 1) * p.stride_w + p.s, p.stride_w); }
  // The patch, and the gradient's pixels (later the sums), or the filters and two rows of results.
  i64 local_bytes(const Problem& p) const {
    const i64 pixel = (octets() | 1) * 16, row = sixteens() * 16;
    const i64 patch = images * patch_rows(p) * patch_columns(p) * pixel;
    if (is_weights(p)) return std::max(patch + rows * row * pixel, sixteens() * channels * p.r * p.s * 4);
    return patch + channels * p.r * p.s * 2 + 2 * row * pixel;
  }
  // The filter's and rows of sums, or all taps' sums and the gradient's rows; and those for addresses and
  // what is read.
  i64 registers(const Problem& p) const {
    const i64 held = ceil_div(p.r, p.stride_h);
    if (!is_weights(p)) return 40 + p.r * p.s + held * 4;
    return 32 + p.r * pairs(p) * 9 / 2 + held * 2 + (sixteens() > 2 ? 16 : 0);
  }
  bool serves(const Problem& p) const;
  gpu::Constants constants(const Problem& p) const {
    if (is_weights(p)) return {};
    return {{"PAD_TOP", std::to_string(p.pad_top)}, {"PAD_LEFT", std::to_string(p.pad_left)}};
  }
};

struct Shape {
  int rows, columns, images;
};
constexpr Shape kShapes[] = {{14, 16, 1}, {7, 16, 1}, {8, 16, 1}, {28, 16, 1}, {14, 32, 1},
                             {7, 32, 1},  {7, 56, 1}, {7, 8, 2},  {7, 8, 4}};
constexpr int kChannels[] = {96, 64, 48, 32, 16};
constexpr auto kTiles = [] {
  std::array<Tile, std::size(kShapes) * std::size(kChannels)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Shape& shape = kShapes[i / std::size(kChannels)];
    all[i] = {shape.rows, shape.columns, shape.images, kChannels[i % std::size(kChannels)]};
  }
  return all;
}();

// Few channels lie idle; the fewest are for tensors that have no other.
bool suits(i64 channels, const Problem& p) { return (round_up(p.c, channels) - p.c) * 8 <= p.c; }
bool Tile::serves(const Problem& p) const {
  constexpr int kFewest = kChannels[std::size(kChannels) - 1], kMostPatchRows = 34, kMostThreads = 512;
  const bool is_suited = channels == kFewest ? std::none_of(std::begin(kChannels), std::end(kChannels) - 1,
                                                            [&](int more) { return suits(more, p); })
                                             : suits(channels, p);
  // More of a gradient's channels were 6 to 15 % slower on an H200.
  constexpr int kMostOfWeights = 48;
  if (is_weights(p) && channels > kMostOfWeights) return false;
  return is_suited && patch_rows(p) <= kMostPatchRows &&  // all is unrolled
         fits(p, *this, 2 * places(p).rows) && threads(p) <= kMostThreads &&
         block_registers(p, *this) <= kUnitRegisters;
}

// Cycles are of one multiprocessor, bytes a ms its share. Both models were fitted to what tiles took on an
// H200, 32 images of EfficientNet-B2 and ConvNeXt-T: 8 and 4 % from it in the mean.

// Of all patches: what is read, halos too, and what is written. Few channels of a pixel are pieces of lines.
double moved_bytes(const Problem& p, const Tile& t, double piece) {
  const i64 patch = t.patch_rows(p) * t.patch_columns(p) + i64{t.rows} * t.columns;
  return static_cast<double>(patches(p, t) * chunks(p, t) * t.images * patch * size_of(p.dtype)) *
         (t.channels + piece);
}

// Of a block, if each 16 places of a row take so long for eight channels; `warps` of a multiprocessor hide
// what each waits for.
double block_cycles(const Problem& p, const Tile& t, i64 warps, double product, double row, double hidden) {
  return static_cast<double>(t.rows * warps) * (static_cast<double>(p.r * pairs(p)) * product + row) * hidden;
}

double weights_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.003715, kBytesPerMs = 5.24e7, kPiece = 12.43, kProduct = 1.183, kRow = 8.223,
                   kHidden = 0.892, kPartsMs = 0.000728, kPartsAtOnce = 256, kTurnMs = 0.000841;
  const i64 units = std::max(1, device.units), warps = t.warps();
  const i64 parts = splits(p, t, device), turns = ceil_div(patches(p, t), parts);
  const i64 blocks = ceil_div(parts * chunks(p, t), units);
  const double hidden = 1 + kHidden / static_cast<double>(std::min<i64>(resident(p, t), blocks) * warps);
  // A block's warps are dealt to four schedulers.
  const double work = static_cast<double>(turns * blocks) *
                      block_cycles(p, t, round_up(warps, i64{4}), kProduct, kRow, hidden) / kCyclesPerMs;
  const double bytes = moved_bytes(p, t, kPiece) / (kBytesPerMs * static_cast<double>(units));
  return kLaunchMs + std::max(work, bytes) + kPartsMs * std::ceil(static_cast<double>(parts) / kPartsAtOnce) +
         kTurnMs * static_cast<double>(turns);
}

double results_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.00197, kBytesPerMs = 6.28e7, kPiece = 20, kBroken = 8, kBeside = 0.2,
                   kProduct = 0.67, kRow = 18.3, kHidden = 4.7, kWait = 241, kProductWait = 4;
  const double piece = kPiece + (t.channels * size_of(p.dtype) % 128 == 0 ? 0 : kBroken);  // of a line
  const double units = std::max(1, device.units), room = resident(p, t);
  const double blocks = static_cast<double>(patches(p, t) * chunks(p, t)) / units;
  const i64 warps = t.warps();
  const double hidden = 1 + kHidden / (room * static_cast<double>(warps));
  // A block's rows come one after the other.
  const double wait =
      static_cast<double>(t.patch_rows(p)) * (kWait + static_cast<double>(p.r * pairs(p)) * kProductWait);
  return launch_ms(
      kLaunchMs,
      {blocks * block_cycles(p, t, warps, kProduct, kRow, hidden) / kCyclesPerMs,
       std::max(1.0, blocks / room) * wait / kCyclesPerMs, moved_bytes(p, t, piece) / (kBytesPerMs * units)},
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
