// A depthwise convolution of whole planes as products of matrices, on the matrix units of an NVIDIA GPU: in
// nchw a plane's rows are what a product reads, so that nothing is turned, and instructions are few beside
// the bytes.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace depthwise_planes_gpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kChunk = 8;  // columns that a product has results of, or reads
constexpr i64 kBand = 16;  // rows

// A block's warps: so many times 16 rows of so many planes, which lie together; of several all rows.
struct Tile {
  int bands, channels;
  template <class Name>
  void spell(Name& name) {
    name.key("wp", bands, channels);
  }
};
constexpr Tile kTiles[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {7, 1}, {8, 1},
                           {1, 2}, {1, 4}, {1, 8}, {2, 2}, {2, 4}, {4, 2}};
constexpr TileTable<Tile> kTable("depthwise_planes_gpu", kTiles);

// In rows and columns above and before a result, that it reads.
struct Reach {
  i64 above, before;
};
Reach reach(const Problem& p) {
  if (p.direction == Direction::forward) return {p.pad_top, p.pad_left};
  return {p.r - 1 - p.pad_top, p.s - 1 - p.pad_left};
}

i64 bands(const Problem& p) { return ceil_div(p.h, kBand); }
i64 rows(const Problem& p, const Tile& t) { return std::min(p.h, t.bands * kBand); }
i64 parts(const Problem& p, const Tile& t) { return ceil_div(p.h, rows(p, t)); }
int threads(const Tile& t) { return 32 * t.bands * t.channels; }
i64 chunks(const Problem& p) { return ceil_div(p.w, kChunk); }
i64 pairs(const Problem& p) { return (p.r + 1) / 2; }  // of rows of the filter
i64 local_bytes(const Problem& p, const Tile& t) {
  return t.channels * (t.bands * kBand + p.r) * (chunks(p) | 1) * 16;
}
i64 blocks(const Problem& p, const Tile& t) { return ceil_div(p.n * p.c, i64{t.channels}) * parts(p, t); }

// As compiled: the results that wait, the filter and what is read, what several planes' places take, and an
// activation.
i64 registers(const Problem& p, const Tile& t) {
  constexpr i64 kFewest = 56, kPlanes = 10, kActivation = 16;
  const i64 own = 24 + 7 * chunks(p) / 4 + 10 * pairs(p) + (t.channels > 1 ? kPlanes : 0) +
                  (p.epilogue.activation != Activation::none ? kActivation : 0);
  return std::max(kFewest, round_up(own, i64{8}));
}

// How many blocks a multiprocessor has room for: by memory, by threads, and by registers.
i64 resident(const Problem& p, const Tile& t) {
  constexpr i64 kUnitBytes = 227 << 10, kReserved = 1 << 10, kUnitThreads = 2048, kUnitRegisters = 65536;
  return std::max<i64>(1, std::min({kUnitBytes / (local_bytes(p, t) + kReserved), kUnitThreads / threads(t),
                                    kUnitRegisters / (threads(t) * registers(p, t))}));
}

bool serves(const Problem& p, const Tile& t) {
  constexpr i64 kMostBytes = 99 << 10, kFewestThreads = 64, kMostColumns = 128;
  if (t.bands > bands(p) || (t.channels > 1 && t.bands < bands(p))) return false;
  return p.w <= kMostColumns && local_bytes(p, t) <= kMostBytes && threads(t) >= kFewestThreads &&
         threads(t) >= p.w / std::gcd(p.w, kChunk) && t.channels <= p.n * p.c && blocks(p, t) < i64{1} << 30;
}

class DepthwisePlanesGpu : public Algorithm {
 public:
  DepthwisePlanesGpu()
      : Algorithm({"depthwise_planes_gpu",
                   "each channel's whole plane on the matrix units of NVIDIA's GPUs since Ampere, nchw",
                   "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    if (device.dialect != "cuda" || !device.has("mma_sync"))
      return Support::declined("mma.sync is CUDA's, of compute capability 8.0 or higher");
    if (p.dtype == DType::f32) return Support::declined("tensors are f16 or bf16");
    if (p.layout != Layout::nchw || p.direction == Direction::backward_weights)
      return Support::declined("planes of nchw, forward and backward_data");
    if (!is_depthwise(p) || p.k != p.c) return Support::declined("as many groups as channels, in and out");
    constexpr i64 kMostTaps = 9;
    if (p.r > kMostTaps || p.s > kMostTaps || p.stride_h > 1 || p.stride_w > 1 || p.dilation_h > 1 ||
        p.dilation_w > 1)
      return Support::declined("filters of up to 9x9 taps, neither stride nor dilation");
    if (p.p() != p.h || p.q() != p.w || p.w % 2 != 0 || p.pad_top >= p.r || p.pad_left >= p.s)
      return Support::declined("planes of rows of an even number of pixels, results as large");
    if (p.epilogue.residual) return Support::declined("it adds no residual; depthwise_gpu does");
    if (std::none_of(kTable.begin(), kTable.end(), [&](const Tile& t) { return serves(p, t); }))
      return Support::declined("a block has no room for so large a plane");
    return gpu::fits(p);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& t : kTable) {
      if (serves(p, t)) all.push_back(candidate_of(p, t, target));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }

  static Maker maker(const Tile& t) {
    return [t](const Problem& p, const Target& target) {
      if (serves(p, t)) return candidate_of(p, t, target);
      throw Error(Status::bad_problem, kernel(t) + " does not compute " + to_string(p) +
                                           ": a block has no room for so many planes, or there are fewer");
    };
  }
  static std::string kernel(const Tile& t) { return "depthwise_planes_gpu/" + config_name(t); }

  // Cycles are of one multiprocessor, bytes a ms its share. Fitted to what tiles took on an H200, 32 images
  // of EfficientNet-B2 and ConvNeXt-T: 6 % from it in the mean.
  static double predicted_ms(const Problem& p, const Tile& t, const Target& target) {
    constexpr double kLaunchMs = 0.00245, kBytesPerMs = 3.39e7, kBeside = 0.02, kCyclesPerMs = 1.65e6;
    constexpr double kBlockMs = 0.00014;  // until a multiprocessor has begun another block
    constexpr double kMeet = 0.175;       // longer, where twice as many warps wait for each other
    constexpr double kOnce = 160, kResults = 3.6, kPair = 25.7;  // instructions of a warp: of eight columns
    const double units = std::max(1, target.device.units), warps = t.bands * t.channels;
    const double count = static_cast<double>(blocks(p, t)) / units;
    const double chunk = kResults + kPair * static_cast<double>(pairs(p));
    const double issue = count * warps * (kOnce + static_cast<double>(chunks(p)) * chunk) / 4 / kCyclesPerMs;
    const double bytes = min_bytes(p) / (kBytesPerMs * units * memory_beside_fitted(target));
    const double longest = std::max({issue, bytes, count * kBlockMs});
    const double work = longest + kBeside * (issue + bytes + count * kBlockMs - longest);
    return kLaunchMs + work * (1 + kMeet * std::log2(warps / 2));
  }

  static Candidate candidate_of(const Problem& p, const Tile& t, const Target& target) {
    const DeviceInfo& device = target.device;
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    const i64 before = reach(p).before, behind = p.s - 1 - before;
    c.accuracy.zeros_beside_w = static_cast<int>(2 * kChunk - 1 - std::min(before, behind));
    c.cost = {predicted_ms(p, t, target), Bound::bytes};
    c.recipe = [p, t, &device] { return recipe(p, t, device); };
    c.maker = maker(t);
    return c;
  }

  static Recipe recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const auto n = [](i64 value) { return std::to_string(value); };
    const gpu::Constants own = {gpu::direction_constant(p),
                                {"HEIGHT", n(p.h)},
                                {"ROWS", n(rows(p, t))},
                                {"COLUMNS", n(p.w)},
                                {"PIECE", n(std::gcd(p.w, kChunk))},
                                {"CHANNELS", n(t.channels)},
                                {"THREADS", n(threads(t))},
                                {"BLOCKS", n(resident(p, t))},
                                {"ABOVE", n(reach(p).above)},
                                {"BEFORE", n(reach(p).before)}};
    LaunchShape shape = gpu::grid(blocks(p, t), 1, 1, threads(t));
    shape.overlaps_previous = device.has("sm_90");
    Recipe recipe;
    recipe.alignment = 16;
    recipe.steps.push_back(
        launch("depthwise",
               gpu::source(device, kernel(t), "depthwise_planes.cu", "depthwise_planes",
                           gpu::constants(p, own), static_cast<int>(local_bytes(p, t))),
               shape,
               {in(gpu::gathered_place(p)), in(Place::w), out(result_place(p)), in(Place::bias),
                in(Place::residual), in(Place::slopes), value(gpu::sizes(p))}));
    return recipe;
  }
};

}  // namespace
}  // namespace depthwise_planes_gpu

std::unique_ptr<Algorithm> make_depthwise_planes_gpu() {
  return std::make_unique<depthwise_planes_gpu::DepthwisePlanesGpu>();
}

}  // namespace faltung
