// A depthwise convolution as products with diagonal matrices, on an NVIDIA GPU's matrix units: pixels stay as
// they lie in memory, and a product has 256 multiply-adds that count.
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
namespace depthwise_diagonal_gpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kOctet = 8;  // channels of a warp
constexpr i64 kMostTaps = 7;

bool is_weights(const Problem& p) { return p.direction == Direction::backward_weights; }
i64 pairs(const Problem& p) { return ceil_div(p.s, i64{2}); }  // products that a row of the filter takes

// A block's places, 16 of a row for each of its warps of a channel.
struct Tile {
  int rows, columns, images, channels;
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, columns, images);
    name.key("ch", channels);
  }
  i64 sixteens() const { return ceil_div(i64{images} * columns, 16); }
  i64 octets() const { return channels / kOctet; }
  int threads() const { return static_cast<int>(32 * octets() * sixteens()); }
  i64 patch_rows(const Problem& p) const { return (rows - 1) * p.stride_h + p.r; }
  i64 patch_columns(const Problem& p) const { return round_up((columns - 1) * p.stride_w + p.s, p.stride_w); }
  // The patch, and the gradient's pixels (later the sums), or the filters and two rows of results.
  i64 local_bytes(const Problem& p) const {
    const i64 pixel = (octets() | 1) * 16, row = sixteens() * 16;
    const i64 patch = images * patch_rows(p) * patch_columns(p) * pixel;
    if (is_weights(p)) return std::max(patch + rows * row * pixel, sixteens() * channels * p.r * p.s * 4);
    return patch + channels * p.r * p.s * 2 + 2 * row * pixel;
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
constexpr TileTable<Tile> kTable("depthwise_diagonal_gpu", kTiles);
constexpr int kMostPatchRows = 34;  // all is unrolled
constexpr int kMostThreads = 512;
constexpr i64 kMostBytes = 99 << 10;  // that every chip since Ampere has

TensorShape tiled_shape(const Problem& p) { return is_weights(p) ? conv_shape(p) : result_shape(p); }
i64 chunks(const Problem& p, const Tile& t) { return ceil_div(p.c, i64{t.channels}); }
// Of each chunk of channels, how many patches there are.
i64 patches(const Problem& p, const Tile& t) {
  const TensorShape all = tiled_shape(p);
  return ceil_div(all.n, i64{t.images}) * ceil_div(all.h, i64{t.rows}) * ceil_div(all.w, i64{t.columns});
}

// Of a thread: the filter's and rows of sums, or all taps' sums and the gradient's rows; and those for
// addresses and what is read.
i64 registers(const Problem& p, const Tile& t) {
  const i64 held = ceil_div(p.r, p.stride_h);
  if (!is_weights(p)) return 40 + p.r * p.s + held * 4;
  return 32 + p.r * pairs(p) * 9 / 2 + held * 2 + (t.sixteens() > 2 ? 16 : 0);
}

constexpr i64 kUnitRegisters = 65536;
i64 block_registers(const Problem& p, const Tile& t) { return t.threads() * round_up(registers(p, t), 8); }

// How many blocks a multiprocessor has room for.
int resident(const Problem& p, const Tile& t) {
  constexpr i64 kUnitBytes = 227 << 10, kReserved = 1 << 10, kMost = 12;
  const i64 by_bytes = kUnitBytes / (t.local_bytes(p) + kReserved);
  const i64 by_registers = kUnitRegisters / block_registers(p, t);
  return static_cast<int>(std::clamp<i64>(std::min(by_bytes, by_registers), 1, kMost));
}

// backward_weights: among so many blocks the patches are shared, as many as there is room for at once.
i64 splits(const Problem& p, const Tile& t, const DeviceInfo& device) {
  const i64 room = std::max<i64>(1, i64{std::max(1, device.units)} * resident(p, t) / chunks(p, t));
  return ceil_div(patches(p, t), ceil_div(patches(p, t), room));
}

// Few channels lie idle; the fewest are for tensors that have no other.
bool suits(i64 channels, const Problem& p) { return (round_up(p.c, channels) - p.c) * 8 <= p.c; }
bool serves(const Problem& p, const Tile& t) {
  const TensorShape all = tiled_shape(p);
  constexpr int kFewest = kChannels[std::size(kChannels) - 1];
  const bool is_suited = t.channels == kFewest
                             ? std::none_of(std::begin(kChannels), std::end(kChannels) - 1,
                                            [&](int channels) { return suits(channels, p); })
                             : suits(t.channels, p);
  const bool larger = t.columns >= all.w + 16 || t.rows >= 2 * all.h || t.images > all.n ||
                      (t.images > 1 && t.columns < all.w);
  // More of a gradient's channels were 6 to 15 % slower on an H200.
  constexpr int kMostOfWeights = 48;
  if (is_weights(p) && t.channels > kMostOfWeights) return false;
  return is_suited && !larger && t.patch_rows(p) <= kMostPatchRows && t.local_bytes(p) <= kMostBytes &&
         t.threads() <= kMostThreads && block_registers(p, t) <= kUnitRegisters &&
         patches(p, t) * chunks(p, t) < i64{1} << 30;
}

// Cycles are of one multiprocessor, bytes a ms its share. Both models were fitted to what tiles took on an
// H200, 32 images of EfficientNet-B2 and ConvNeXt-T: 8 and 4 % from it in the mean.
constexpr double kCyclesPerMs = 1.65e6;

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
  const i64 units = std::max(1, device.units), warps = t.octets() * t.sixteens();
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

double predicted_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (is_weights(p)) return weights_ms(p, t, device);
  constexpr double kLaunchMs = 0.00197, kBytesPerMs = 6.28e7, kPiece = 20, kBroken = 8, kBeside = 0.2,
                   kProduct = 0.67, kRow = 18.3, kHidden = 4.7, kWait = 241, kProductWait = 4;
  const double piece = kPiece + (t.channels * size_of(p.dtype) % 128 == 0 ? 0 : kBroken);  // of a line
  const double units = std::max(1, device.units), room = resident(p, t);
  const double blocks = static_cast<double>(patches(p, t) * chunks(p, t)) / units;
  const i64 warps = t.octets() * t.sixteens();
  const double hidden = 1 + kHidden / (room * static_cast<double>(warps));
  // A block's rows come one after the other.
  const double wait =
      static_cast<double>(t.patch_rows(p)) * (kWait + static_cast<double>(p.r * pairs(p)) * kProductWait);
  const double all[] = {blocks * block_cycles(p, t, warps, kProduct, kRow, hidden) / kCyclesPerMs,
                        std::max(1.0, blocks / room) * wait / kCyclesPerMs,
                        moved_bytes(p, t, piece) / (kBytesPerMs * units)};
  const double longest = *std::max_element(std::begin(all), std::end(all));
  return kLaunchMs + longest + kBeside * (std::accumulate(std::begin(all), std::end(all), 0.0) - longest);
}

class DepthwiseDiagonalGpu : public Algorithm {
 public:
  DepthwiseDiagonalGpu()
      : Algorithm(
            {"depthwise_diagonal_gpu",
             "each channel on its own, as products with diagonal matrices on the matrix units of NVIDIA's "
             "GPUs since Ampere",
             "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    if (device.dialect != "cuda" || !device.has("mma_sync"))
      return Support::declined("mma.sync is CUDA's, of compute capability 8.0 or higher");
    if (p.dtype == DType::f32 || p.layout != Layout::nhwc)
      return Support::declined("tensors are f16 or bf16, in nhwc");
    if (!is_depthwise(p) || p.k != p.c || p.c % kOctet != 0)
      return Support::declined("as many groups as channels, in and out, a multiple of 8");
    const i64 stride = p.direction == Direction::backward_data ? 1 : 2;
    if (p.r > kMostTaps || p.s > kMostTaps || p.stride_h > stride || p.stride_w > stride ||
        p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined("filters have up to 7x7 taps, strides up to 2 (bwd_d: 1), no dilation");
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
      throw Error(Status::bad_problem, "depthwise_diagonal_gpu/" + config_name(t) + " does not compute " +
                                           to_string(p) + ": its halo patch or its channels are too many");
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
    } else {
      c.accuracy.groups_as_one = static_cast<int>(kOctet);
    }
    c.recipe = [p, t, &device] {
      return is_weights(p) ? weights_recipe(p, t, device) : recipe(p, t, device);
    };
    return c;
  }

  static std::string kernel(const Tile& t) { return "depthwise_diagonal_gpu/" + config_name(t); }

  static jit::Source source(const Problem& p, const Tile& t, const std::string& entry, gpu::Constants more,
                            const DeviceInfo& device) {
    const auto n = [](i64 value) { return std::to_string(value); };
    more.insert(more.end(), {gpu::direction_constant(p),
                             {"CHANNELS", n(t.channels)},
                             {"COLUMNS", n(t.columns)},
                             {"ROWS", n(t.rows)},
                             {"IMAGES", n(t.images)},
                             {"THREADS", n(t.threads())},
                             {"BLOCKS", n(resident(p, t))}});
    return gpu::source(device, kernel(t), entry + ".cu", entry, gpu::constants(p, more),
                       static_cast<int>(t.local_bytes(p)));
  }

  static LaunchShape shape(i64 blocks, const Tile& t, const DeviceInfo& device) {
    LaunchShape shape = gpu::grid(blocks, 1, 1, t.threads());
    shape.overlaps_previous = device.has("sm_90");
    return shape;
  }

  static Recipe recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const gpu::Constants own = {{"PAD_TOP", std::to_string(p.pad_top)},
                                {"PAD_LEFT", std::to_string(p.pad_left)}};
    Recipe recipe;
    recipe.alignment = 16;
    recipe.steps.push_back(launch("depthwise", source(p, t, "depthwise_diagonal", own, device),
                                  shape(patches(p, t) * chunks(p, t), t, device),
                                  {in(gpu::gathered_place(p)), in(Place::w), out(result_place(p)),
                                   in(Place::bias), in(Place::residual), value(gpu::sizes(p))}));
    return recipe;
  }

  static Recipe weights_recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const i64 parts = splits(p, t, device);
    const gpu::Constants own = {{"SPLIT", parts > 1 ? "1" : "0"}};
    Recipe recipe;
    recipe.alignment = 16;
    recipe.workspace_bytes = gpu::shared_sum_bytes(p, parts);
    recipe.steps.push_back(launch("depthwise", source(p, t, "depthwise_diagonal_weights", own, device),
                                  shape(parts * chunks(p, t), t, device),
                                  {in(Place::x), in(Place::y), out(gpu::shared_sum(p, parts)),
                                   gpu::number(parts), value(gpu::sizes(p))}));
    if (parts > 1) recipe.steps.push_back(gpu::sum_many_parts_step(p, kernel(t), parts, device));
    return recipe;
  }
};

}  // namespace
}  // namespace depthwise_diagonal_gpu

std::unique_ptr<Algorithm> make_depthwise_diagonal_gpu() {
  return std::make_unique<depthwise_diagonal_gpu::DepthwiseDiagonalGpu>();
}

}  // namespace faltung
