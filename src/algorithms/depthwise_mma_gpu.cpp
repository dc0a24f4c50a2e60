// A depthwise convolution as products of matrices, on an NVIDIA GPU's matrix units: of filters of many taps
// the multiply-adds take longer than memory elsewhere.

#include "src/algorithms/patch_tiles.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace depthwise_mma_gpu {
namespace {

using namespace patch_tiles;

constexpr int kStrip = 8;  // columns of a strip
constexpr int kStep = 16;  // columns that a product reads
constexpr int kThreads = 256;

// So many products are a row of the filter's; so many of its rows are summed at a time.
i64 steps(const Problem& p) { return ceil_div(p.s + kStrip - 1, i64{kStep}); }
i64 tap_rows(const Problem& p) {
  constexpr i64 kAll = 9, kSome = 4;
  return p.r <= kAll ? p.r : kSome;
}

// In strips of so many lines; 0 of a tile of the gradient's.
struct Tile {
  int rows, columns, images, lines, channels;
  static constexpr int kMostResident = 6;
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, columns, images);
    name.optional("ln", 0, lines);
    name.optional("ch", 16, channels);
  }
  i64 eights() const { return columns / kStrip; }
  i64 bands() const { return rows / lines; }
  i64 strips() const { return eights() * bands() * images; }
  i64 sixteens() const { return ceil_div(strips(), i64{16}); }
  // Four at a time are read of a gradient's.
  i64 patch_rows(const Problem& p) const { return round_up(rows + p.r - 1, i64{is_weights(p) ? 4 : 1}); }
  int threads(const Problem&) const { return kThreads; }
  i64 local_bytes(const Problem& p) const;
  i64 registers(const Problem& p) const;
  bool serves(const Problem& p, const DeviceInfo&) const {
    return is_weights(p) == (lines == 0) && fits(p, *this, places(p).rows + 2 * lines + 7);
  }
  gpu::Constants constants(const Problem& p, const DeviceInfo&) const;
};

constexpr Tile results(int rows, int columns, int images, int lines, int channels = 16) {
  return {rows, columns, images, lines, channels};
}
constexpr Tile gradient(int rows, int columns, int images) { return {rows, columns, images, 0, 16}; }
// Those of 8 channels are for filters that leave no room for more.
constexpr Tile kTiles[] = {
    results(14, 56, 1, 7), results(28, 56, 1, 7), results(14, 56, 1, 7, 32), results(14, 56, 1, 7, 8),
    results(28, 32, 1, 4), results(28, 32, 1, 7), results(28, 32, 1, 4, 32), results(28, 32, 1, 7, 8),
    results(16, 32, 1, 4), results(14, 16, 1, 2), results(14, 16, 1, 2, 32), results(14, 16, 1, 2, 8),
    results(14, 16, 2, 7), results(16, 16, 2, 4), results(16, 16, 2, 4, 8),  results(7, 8, 2, 1, 32),
    results(7, 8, 4, 1),   results(8, 8, 4, 2),   results(8, 8, 4, 2, 8),    results(16, 64, 1, 4),
    results(8, 64, 1, 4),  gradient(14, 56, 1),   gradient(8, 56, 1),        gradient(14, 32, 1),
    gradient(14, 16, 1),   gradient(14, 16, 2),   gradient(16, 16, 1),       gradient(7, 8, 4)};

// How a channel's plane lies in local memory, so that eight strips' rows are in as many banks' groups as may
// be: bytes of a row and of an image, and how many of eight share one.
struct Plane {
  i64 pitch, image, shared;
};
i64 shared_banks(const Tile& t, i64 pitch, i64 image) {
  i64 most = 1;
  for (i64 first = 0; first < t.strips(); first += 8) {
    std::vector<i64> places[8];
    for (i64 strip = first; strip < std::min(first + 8, t.strips()); ++strip) {
      const i64 at = strip / (t.eights() * t.bands()) * image +
                     strip / t.eights() % t.bands() * t.lines * pitch + strip % t.eights() * 16;
      places[at / 16 % 8].push_back(at);
    }
    for (const auto& bank : places) most = std::max<i64>(most, static_cast<i64>(bank.size()));
  }
  return most;
}
Plane plane(const Problem& p, const Tile& t) {
  const i64 row = (t.eights() - 1) * kStrip * 2 + steps(p) * kStep * 2;
  Plane best{};
  for (i64 pitch = row; pitch <= row + 48; pitch += 16) {
    const i64 rows = t.patch_rows(p) * pitch;
    for (i64 image = rows; image <= rows + (t.images > 1 ? 112 : 0); image += 16) {
      const i64 shared = shared_banks(t, pitch, image);
      if (best.pitch == 0 || shared < best.shared || (shared == best.shared && image < best.image))
        best = {pitch, image, shared};
    }
  }
  return best;
}

// Planes and filters; or both patches' planes, the gradient's, and a row of zeros.
i64 Tile::local_bytes(const Problem& p) const {
  constexpr i64 kBetween = 64, kZeros = 16;
  const i64 octets = channels / kOctet;
  const auto planes = [&](i64 bytes) { return octets * (kOctet * images * bytes + kBetween); };
  if (!is_weights(p)) return planes(plane(p, *this).image) + channels * p.r * p.s * 2;
  return 2 * (planes(patch_rows(p) * (eights() + 1) * 16) + kBetween) + planes(rows * (eights() | 1) * 16) +
         kZeros;
}

// The sums, the filter's, results that wait, and those for addresses and what is read; or what a patch's
// pixels take on their way.
i64 Tile::registers(const Problem& p) const {
  constexpr i64 kPixels = 72, kAddresses = 40, kOfImages = 8;
  const i64 of_images = images > 1 ? kOfImages : 0;
  if (is_weights(p)) return kPixels + of_images + kOfImages;
  const i64 waiting = sixteens() > 1 ? sixteens() * lines * 2 : 0;
  return std::max(kPixels, lines * 4 + tap_rows(p) * steps(p) * 2 + waiting + kAddresses) + of_images;
}

gpu::Constants Tile::constants(const Problem& p, const DeviceInfo&) const {
  if (is_weights(p)) return {};
  const auto n = [](i64 value) { return std::to_string(value); };
  const Plane own = plane(p, *this);
  return {{"BANDS", n(bands())},        {"BAND", n(lines)},         {"STEPS", n(steps(p))},
          {"TAP_ROWS", n(tap_rows(p))}, {"PITCH", n(own.pitch)},    {"IMAGE_BYTES", n(own.image)},
          {"PAD_TOP", n(p.pad_top)},    {"PAD_LEFT", n(p.pad_left)}};
}

// Cycles are of one multiprocessor, bytes a ms its share. Both models were fitted to what tiles took on an
// H200, 32 images of ConvNeXt-T and EfficientNet-B2: 8 and 9 % from it in the mean.
double weights_ms(const Problem& p, const Tile& t, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.0038, kTurnMs = 0.00156, kPartBytesPerMs = 2e7, kHidden = 0.67;
  constexpr double kProduct = 4.85, kPair = 0.39;
  const double units = std::max(1, device.units);
  const i64 parts = splits(p, t, device), turns = ceil_div(patches(p, t), parts);
  const auto products = static_cast<double>(t.channels * t.images * t.eights() * t.patch_rows(p) / 2);
  const auto pairs = static_cast<double>(
      t.images * (2 * t.patch_rows(p) * (t.eights() + 1) + t.rows * t.eights()) * 4 * t.channels / kOctet);
  const double work = static_cast<double>(turns * parts * chunks(p, t)) / units *
                      (kProduct * products + kPair * pairs) * (1 + kHidden / resident(p, t)) / kCyclesPerMs;
  const double sums = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, parts)) / (kPartBytesPerMs * units);
  const double ms = kLaunchMs + work + static_cast<double>(turns) * kTurnMs + sums;
  // Of smaller filters depthwise_gpu's tiles take 0.8 of what their model has.
  constexpr i64 kFewTaps = 36;
  return p.r * p.s < kFewTaps ? 1.3 * ms : ms;
}

double results_ms(const Problem& p, const Tile& t, const Target& target) {
  constexpr double kLaunchMs = 0.0026, kBytesPerMs = 3e7, kBeside = 0.65, kBegin = 1600, kHidden = 1.9;
  // Of products, reads of strips, a filter's row, and of a pair of columns that is turned and turned back.
  constexpr double kProduct = 1.05, kRead = 1.24, kFilterRow = 0.85, kTurn = 0.43, kTurnBack = 0.25;
  const double units = std::max(1, target.device.units), room = resident(p, t);
  const double blocks = static_cast<double>(patches(p, t) * chunks(p, t)) / units;
  const i64 rows_at_once = tap_rows(p), turns = ceil_div(p.r, rows_at_once);
  const auto products = static_cast<double>(t.lines * p.r);
  const auto reads = static_cast<double>(plane(p, t).shared * turns * (t.lines + rows_at_once - 1));
  const double of_channel = static_cast<double>(steps(p)) *
                            (static_cast<double>(t.sixteens()) * (kProduct * products + kRead * reads) +
                             kFilterRow * static_cast<double>(p.r));
  const auto of_chunk = [&](i64 rows, i64 eights) {
    return static_cast<double>(t.images * rows * eights * 4 * t.channels / kOctet);
  };
  const double block = t.channels * of_channel +
                       kTurn * of_chunk(t.patch_rows(p), t.eights() + 2 * steps(p) - 1) +
                       kTurnBack * of_chunk(t.rows, t.eights());
  // Of the blocks that a unit has room for, each hides what the others wait for.
  return launch_ms(kLaunchMs,
                   {blocks * block * (1 + kHidden / room) / kCyclesPerMs,
                    std::max(1.0, blocks / room) * kBegin / kCyclesPerMs,
                    min_bytes(p) / (kBytesPerMs * units * memory_beside_fitted(target))},
                   kBeside);
}

class DepthwiseMmaGpu : public PatchTiles<Tile> {
 public:
  DepthwiseMmaGpu()
      : PatchTiles("depthwise_mma", "depthwise",
                   "each channel on its own, on the matrix units of NVIDIA's GPUs since Ampere", kTiles) {}

 private:
  Support takes(const Problem& p) const override {
    if (!is_depthwise(p) || p.k != p.c || p.c % kOctet != 0)
      return Support::declined("as many groups as channels, in and out, a multiple of 8");
    constexpr i64 kMostTaps = 31, kMostOfWeights = 8;  // across and down
    const i64 most = is_weights(p) ? kMostOfWeights : kMostTaps;
    if (p.r > most || p.s > most || p.r == 1 || p.s == 1 || p.stride_h > 1 || p.stride_w > 1 ||
        p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined(
          "filters of up to 31x31 taps (bwd_w: 8x8) and more than a row or a column, neither stride nor "
          "dilation");
    if (p.epilogue.residual) return Support::declined("it adds no residual; depthwise_gpu does");
    return Support::supported();
  }
  void add_zeros(const Problem& p, Accuracy& accuracy) const override {
    accuracy.zeros_beside_w = static_cast<int>(steps(p) * kStep - p.s);
  }
};

}  // namespace
}  // namespace depthwise_mma_gpu

std::unique_ptr<Algorithm> make_depthwise_mma_gpu() {
  return std::make_unique<depthwise_mma_gpu::DepthwiseMmaGpu>();
}

}  // namespace faltung
