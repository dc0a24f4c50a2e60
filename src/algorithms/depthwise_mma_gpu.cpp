// A depthwise convolution as products of matrices, on an NVIDIA GPU's matrix units: of filters of many taps
// the multiply-adds take longer than memory elsewhere.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace depthwise_mma_gpu {
namespace {

using i64 = std::int64_t;

constexpr int kChunk = 8;                          // channels of 16 bytes
constexpr int kStrip = 8;                          // columns of a strip
constexpr int kStep = 16;                          // columns that a product reads
constexpr i64 kMostTaps = 31, kMostOfWeights = 8;  // across and down
constexpr int kThreads = 256;
constexpr i64 kMostBytes = 99 << 10;  // that every chip since Ampere has

bool is_weights(const Problem& p) { return p.direction == Direction::backward_weights; }

// So many products are a row of the filter's; so many of its rows are summed at a time.
i64 steps(const Problem& p) { return ceil_div(p.s + kStrip - 1, i64{kStep}); }
i64 tap_rows(const Problem& p) {
  constexpr i64 kAll = 9, kSome = 4;
  return p.r <= kAll ? p.r : kSome;
}

// A block's tile of results, or of the output's gradient, in strips of so many lines; 0 of a gradient's.
struct Tile {
  int rows, columns, images, lines, channels;
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
constexpr TileTable<Tile> kTable("depthwise_mma_gpu", kTiles);

// How a channel's plane lies in local memory, so that eight strips' rows are in as many banks' groups as may
// be: bytes of a row and of an image, and how many of eight share one.
struct Plane {
  i64 pitch, image, shared;
};
i64 shared_banks(const Problem&, const Tile& t, i64 pitch, i64 image) {
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
      const i64 shared = shared_banks(p, t, pitch, image);
      if (best.pitch == 0 || shared < best.shared || (shared == best.shared && image < best.image))
        best = {pitch, image, shared};
    }
  }
  return best;
}

// Planes and filters; or both patches' planes, the gradient's, and a row of zeros.
i64 local_bytes(const Problem& p, const Tile& t) {
  constexpr i64 kBetween = 64, kZeros = 16;
  const i64 chunks = t.channels / kChunk;
  const auto planes = [&](i64 bytes) { return chunks * (kChunk * t.images * bytes + kBetween); };
  if (!is_weights(p)) return planes(plane(p, t).image) + t.channels * p.r * p.s * 2;
  return 2 * (planes(t.patch_rows(p) * (t.eights() + 1) * 16) + kBetween) +
         planes(t.rows * (t.eights() | 1) * 16) + kZeros;
}

TensorShape tiled_shape(const Problem& p) { return is_weights(p) ? conv_shape(p) : result_shape(p); }
i64 tiles(const Problem& p, const Tile& t) {
  const TensorShape all = tiled_shape(p);
  return ceil_div(all.n, i64{t.images}) * ceil_div(all.h, i64{t.rows}) * ceil_div(all.w, i64{t.columns});
}
i64 chunks(const Problem& p, const Tile& t) { return ceil_div(p.c, i64{t.channels}); }

// Of a thread: the sums, the filter's, results that wait, and those for addresses and what is read; or what a
// patch's pixels take on their way.
i64 registers(const Problem& p, const Tile& t) {
  constexpr i64 kPixels = 72, kAddresses = 40, kOfImages = 8;
  const i64 images = t.images > 1 ? kOfImages : 0;
  if (is_weights(p)) return kPixels + images + kOfImages;
  const i64 results = t.sixteens() > 1 ? t.sixteens() * t.lines * 2 : 0;
  return std::max(kPixels, t.lines * 4 + tap_rows(p) * steps(p) * 2 + results + kAddresses) + images;
}

// How many blocks a multiprocessor has room for.
int resident(const Problem& p, const Tile& t) {
  constexpr i64 kUnitBytes = 227 << 10, kReserved = 1 << 10, kUnitRegisters = 65536, kMost = 6;
  const i64 by_bytes = kUnitBytes / (local_bytes(p, t) + kReserved);
  const i64 by_registers = kUnitRegisters / (kThreads * round_up(registers(p, t), 8));
  return static_cast<int>(std::clamp<i64>(std::min(by_bytes, by_registers), 1, kMost));
}

// backward_weights: among so many blocks the tiles are shared, as many as there is room for at once.
i64 splits(const Problem& p, const Tile& t, const DeviceInfo& device) {
  const i64 room = std::max<i64>(1, i64{std::max(1, device.units)} * resident(p, t) / chunks(p, t));
  return ceil_div(tiles(p, t), ceil_div(tiles(p, t), room));
}

bool serves(const Problem& p, const Tile& t) {
  const TensorShape all = tiled_shape(p);
  const bool larger = t.columns >= all.w + 16 || t.rows >= all.h + 2 * t.lines + 7 || t.images > all.n ||
                      (t.images > 1 && t.columns < all.w);
  return is_weights(p) == (t.lines == 0) && !larger && local_bytes(p, t) <= kMostBytes &&
         tiles(p, t) * chunks(p, t) < i64{1} << 30;
}

// Cycles are of one multiprocessor, bytes a ms its share. Both models were fitted to what tiles took on an
// H200, 32 images of ConvNeXt-T and EfficientNet-B2: 8 and 9 % from it in the mean.
constexpr double kCyclesPerMs = 1.65e6;

double weights_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0038, kTurnMs = 0.00156, kPartBytesPerMs = 2e7, kHidden = 0.67;
  constexpr double kProduct = 4.85, kPair = 0.39;
  const double units = std::max(1, device.units);
  const i64 parts = splits(p, t, device), turns = ceil_div(tiles(p, t), parts);
  const auto products = static_cast<double>(t.channels * t.images * t.eights() * t.patch_rows(p) / 2);
  const auto pairs = static_cast<double>(
      t.images * (2 * t.patch_rows(p) * (t.eights() + 1) + t.rows * t.eights()) * 4 * t.channels / kChunk);
  const double work = static_cast<double>(turns * parts * chunks(p, t)) / units *
                      (kProduct * products + kPair * pairs) * (1 + kHidden / resident(p, t)) / kCyclesPerMs;
  const double sums = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, parts)) / (kPartBytesPerMs * units);
  const double ms = kLaunchMs + work + static_cast<double>(turns) * kTurnMs + sums;
  // Of smaller filters depthwise_gpu's tiles take 0.8 of what their model has.
  constexpr i64 kFewTaps = 36;
  return p.r * p.s < kFewTaps ? 1.3 * ms : ms;
}

double predicted_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (is_weights(p)) return weights_ms(p, t, device);
  constexpr double kLaunchMs = 0.0026, kBytesPerMs = 3e7, kBeside = 0.65, kBegin = 1600, kHidden = 1.9;
  // Of products, reads of strips, a filter's row, and of a pair of columns that is turned and turned back.
  constexpr double kProduct = 1.05, kRead = 1.24, kFilterRow = 0.85, kTurn = 0.43, kTurnBack = 0.25;
  const double units = std::max(1, device.units), room = resident(p, t);
  const double blocks = static_cast<double>(tiles(p, t) * chunks(p, t)) / units;
  const i64 rows_at_once = tap_rows(p), turns = ceil_div(p.r, rows_at_once);
  const auto products = static_cast<double>(t.lines * p.r);
  const auto reads = static_cast<double>(plane(p, t).shared * turns * (t.lines + rows_at_once - 1));
  const double of_channel = static_cast<double>(steps(p)) *
                            (static_cast<double>(t.sixteens()) * (kProduct * products + kRead * reads) +
                             kFilterRow * static_cast<double>(p.r));
  const auto of_chunk = [&](i64 rows, i64 eights) {
    return static_cast<double>(t.images * rows * eights * 4 * t.channels / kChunk);
  };
  const double block = t.channels * of_channel +
                       kTurn * of_chunk(t.patch_rows(p), t.eights() + 2 * steps(p) - 1) +
                       kTurnBack * of_chunk(t.rows, t.eights());
  // Of the blocks that a unit has room for, each hides what the others wait for.
  const double all[] = {blocks * block * (1 + kHidden / room) / kCyclesPerMs,
                        std::max(1.0, blocks / room) * kBegin / kCyclesPerMs,
                        min_bytes(p) / (kBytesPerMs * units)};
  const double longest = *std::max_element(std::begin(all), std::end(all));
  return kLaunchMs + longest + kBeside * (std::accumulate(std::begin(all), std::end(all), 0.0) - longest);
}

class DepthwiseMmaGpu : public Algorithm {
 public:
  DepthwiseMmaGpu()
      : Algorithm({"depthwise_mma_gpu",
                   "each channel on its own, on the matrix units of NVIDIA's GPUs since Ampere", "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    if (device.dialect != "cuda" || !device.has("mma_sync"))
      return Support::declined("mma.sync is CUDA's, of compute capability 8.0 or higher");
    if (p.dtype == DType::f32 || p.layout != Layout::nhwc)
      return Support::declined("tensors are f16 or bf16, in nhwc");
    if (!is_depthwise(p) || p.k != p.c || p.c % kChunk != 0)
      return Support::declined("as many groups as channels, in and out, a multiple of 8");
    const i64 most = is_weights(p) ? kMostOfWeights : kMostTaps;
    if (p.r > most || p.s > most || p.r == 1 || p.s == 1 || p.stride_h > 1 || p.stride_w > 1 ||
        p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined(
          "filters of up to 31x31 taps (bwd_w: 8x8) and more than a row or a column, neither stride nor "
          "dilation");
    if (p.epilogue.residual) return Support::declined("it adds no residual; depthwise_gpu does");
    if (std::none_of(kTable.begin(), kTable.end(), [&](const Tile& t) { return serves(p, t); }))
      return Support::declined("no tile serves so small an image");
    return gpu::fits(p);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& t : kTable) {
      if (serves(p, t)) all.push_back(candidate_of(p, t, target.device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }
  static Maker maker(const Tile& t) {
    return [t](const Problem& p, const Target& target) {
      if (serves(p, t)) return candidate_of(p, t, target.device);
      throw Error(Status::bad_problem, "depthwise_mma_gpu/" + config_name(t) + " does not compute " +
                                           to_string(p) + ": its tile is too large for the image");
    };
  }

  static Candidate candidate_of(const Problem& p, const Tile& t, const DeviceInfo& device) {
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    c.cost = {predicted_ms(p, t, device), Bound::bytes};
    c.maker = maker(t);
    if (is_weights(p)) {
      c.accuracy.zeros_meet = ZerosMeet::channel;  // patches reach beyond the result's gradient
      c.workspace_bytes = gpu::shared_sum_bytes(p, splits(p, t, device));
      c.recipe = [p, t, &device] { return weights_recipe(p, t, device); };
    } else {
      c.accuracy.zeros_beside_w = static_cast<int>(steps(p) * kStep - p.s);
      c.recipe = [p, t, &device] { return recipe(p, t, device); };
    }
    return c;
  }

  static std::string kernel(const Tile& t) { return "depthwise_mma_gpu/" + config_name(t); }

  static gpu::Constants constants(const Problem& p, const Tile& t) {
    const auto n = [](i64 value) { return std::to_string(value); };
    gpu::Constants all = {gpu::direction_constant(p), {"CHANNELS", n(t.channels)},
                          {"COLUMNS", n(t.eights())}, {"IMAGES", n(t.images)},
                          {"THREADS", n(kThreads)},   {"BLOCKS", n(resident(p, t))}};
    if (is_weights(p)) {
      all.emplace_back("ROWS", n(t.rows));
      return all;
    }
    const Plane own = plane(p, t);
    all.insert(all.end(), {{"BANDS", n(t.bands())},
                           {"BAND", n(t.lines)},
                           {"STEPS", n(steps(p))},
                           {"TAP_ROWS", n(tap_rows(p))},
                           {"PITCH", n(own.pitch)},
                           {"IMAGE_BYTES", n(own.image)},
                           {"PAD_TOP", n(p.pad_top)},
                           {"PAD_LEFT", n(p.pad_left)}});
    return all;
  }

  static jit::Source source(const Problem& p, const Tile& t, const std::string& entry,
                            const gpu::Constants& own, const DeviceInfo& device) {
    return gpu::source(device, kernel(t), entry + ".cu", entry, gpu::constants(p, own),
                       static_cast<int>(local_bytes(p, t)));
  }

  static LaunchShape shape(i64 blocks, const DeviceInfo& device) {
    LaunchShape shape = gpu::grid(blocks, 1, 1, kThreads);
    shape.overlaps_previous = device.has("sm_90");
    return shape;
  }

  static Recipe recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    Recipe recipe;
    recipe.alignment = 16;
    recipe.steps.push_back(launch("depthwise", source(p, t, "depthwise_mma", constants(p, t), device),
                                  shape(tiles(p, t) * chunks(p, t), device),
                                  {in(gpu::gathered_place(p)), in(Place::w), out(result_place(p)),
                                   in(Place::bias), in(Place::residual), value(gpu::sizes(p))}));
    return recipe;
  }

  static Recipe weights_recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const i64 parts = splits(p, t, device);
    gpu::Constants own = constants(p, t);
    own.emplace_back("SPLIT", parts > 1 ? "1" : "0");
    Recipe recipe;
    recipe.alignment = 16;
    recipe.workspace_bytes = gpu::shared_sum_bytes(p, parts);
    recipe.steps.push_back(launch("depthwise", source(p, t, "depthwise_mma_weights", own, device),
                                  shape(parts * chunks(p, t), device),
                                  {in(Place::x), in(Place::y), out(gpu::shared_sum(p, parts)),
                                   gpu::number(parts), value(gpu::sizes(p))}));
    if (parts > 1) recipe.steps.push_back(gpu::sum_many_parts_step(p, kernel(t), parts, device));
    return recipe;
  }
};

}  // namespace
}  // namespace depthwise_mma_gpu

std::unique_ptr<Algorithm> make_depthwise_mma_gpu() {
  return std::make_unique<depthwise_mma_gpu::DepthwiseMmaGpu>();
}

}  // namespace faltung
