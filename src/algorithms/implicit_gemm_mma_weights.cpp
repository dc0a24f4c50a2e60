// The gradient of the weights on the matrix units: output channels x columns of the filter, summed over
// pixels, of which each block takes a part; a second step adds the parts.
#include "src/algorithms/implicit_gemm_mma_weights.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::mma_weights {
namespace {

using i64 = std::int64_t;

constexpr int kStepBytes = 128;  // a tile of the sum has so many bytes of each channel
constexpr int kSumThreads = 64;
constexpr i64 kMostBlocks = 65535;

// A block's output channels and columns, its warps along each, and how many tiles of the sum it holds.
struct Tile {
  int rows, columns, warps_m, warps_n, stages;
  int blocks;     // of a multiprocessor, whose registers suffice for so many
  double gflops;  // of a multiprocessor that such blocks fill, 16-bit
  int threads() const { return 32 * warps_m * warps_n; }
  std::string name() const {
    return fmt::format("b{}x{}_w{}x{}_st{}", rows, columns, warps_m, warps_n, stages);
  }
  // Of a thread, at most.
  int registers() const { return std::min(255, 65536 / (blocks * threads()) / 8 * 8); }
  int local_bytes(DType dtype) const {
    const int element = info(dtype).bytes, steps = kStepBytes / element;
    return 2 * steps * 32 + columns * element / 16 * 32 + stages * kStepBytes * (rows + columns);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 2, 2, 3, 2, 2800}, {128, 128, 4, 2, 3, 1, 2100}, {64, 192, 2, 3, 3, 2, 2200},
    {64, 128, 2, 2, 3, 2, 1900},  {64, 64, 2, 2, 4, 3, 1500},
};

// A tile, whether planes are turned to pixels beforehand, and among how many blocks the sum over the pixels
// is shared.
struct Choice {
  const Tile* tile;
  bool turned;
  i64 splits;
  std::string name() const {
    return tile->name() + (turned ? "_t" : "") + (splits > 1 ? fmt::format("_s{}", splits) : "");
  }
};

i64 chunk(const Problem& p) { return 16 / info(p.dtype).bytes; }
bool gathers(const Problem& p, i64 channels) {
  return p.layout == Layout::nchw || channels / p.groups % chunk(p) != 0;
}
i64 columns(const Problem& p) { return p.r * p.s * ceil_div(p.c / p.groups, chunk(p)) * chunk(p); }
i64 steps(const Problem& p) { return ceil_div(p.n * p.p() * p.q(), kStepBytes / info(p.dtype).bytes); }
// Without the parts of the sum.
i64 blocks(const Problem& p, const Tile& t) {
  return ceil_div(p.k / p.groups, t.rows) * ceil_div(columns(p), t.columns) * p.groups;
}
std::size_t bytes(const Problem& p, const TensorShape& shape) {
  return static_cast<std::size_t>(bytes_of(p, shape));
}
// The parts of the sum; then x and y's gradient as pixels, if they are turned.
std::size_t parts_bytes(const Problem& p, i64 splits) {
  return aligned(sizeof(float) * static_cast<std::size_t>(splits * w_shape(p).elements()));
}
std::size_t workspace_bytes(const Problem& p, const Choice& c) {
  const std::size_t parts = parts_bytes(p, c.splits);
  return c.turned ? parts + aligned(bytes(p, x_shape(p))) + bytes(p, conv_shape(p)) : parts;
}
bool can_turn(const Problem& p) {
  return p.layout == Layout::nchw && p.c / p.groups % chunk(p) == 0 && p.k / p.groups % chunk(p) == 0;
}

// Into the local memory, of the blocks that the registers are meant for.
int fitting_blocks(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (!device.unit.known()) return 1;
  return std::clamp(device.unit.local_bytes / (t.local_bytes(p.dtype) + device.unit.block_reserved), 1,
                    t.blocks);
}

i64 resident_blocks(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (!device.unit.known()) return 1;
  const Residence residence = device.unit.residence(t.threads(), t.registers(), t.local_bytes(p.dtype));
  return std::max(1, residence.blocks);
}

// As many parts as fill the device once, twice and four times, each of some tiles.
std::vector<Choice> choices(const Problem& p, const Tile& t, bool turned, const DeviceInfo& device) {
  constexpr i64 kLeastSteps = 4;
  const i64 room = std::max(1, device.units) * resident_blocks(p, t, device);
  const i64 most = std::min(steps(p) / kLeastSteps, kMostBlocks / p.groups);
  std::vector<Choice> choices;
  for (const i64 rounds : {1, 2, 4}) {
    const i64 splits = std::clamp<i64>(rounds * room / blocks(p, t), 1, std::max<i64>(1, most));
    if (choices.empty() || choices.back().splits != splits) choices.push_back({&t, turned, splits});
  }
  return choices;
}

double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0035, kRoundMs = 0.0034, kStepMs = 0.0006, kUnitGbps = 22,
                   kExchangeGbps = 20;
  const Tile& t = *c.tile;
  const int units = std::max(1, device.units), element = info(p.dtype).bytes;
  const i64 resident = resident_blocks(p, t, device), of_unit = ceil_div(blocks(p, t) * c.splits, units);
  const double step_ms = 2.0 * t.rows * t.columns * static_cast<double>(kStepBytes / element) /
                         (t.gflops * (element == 2 ? 1 : 0.45)) * 1e-6;
  const double gathering = gathers(p, p.c) && !c.turned ? 2 : 1;
  const auto round_ms = [&](i64 count) {
    if (count == 0) return 0.0;
    return kRoundMs + static_cast<double>(ceil_div(steps(p), c.splits)) *
                          std::max(static_cast<double>(count) * step_ms, kStepMs) * gathering;
  };
  const double sum_ms =
      static_cast<double>(of_unit / resident) * round_ms(resident) + round_ms(of_unit % resident);
  const double exchanged = 2.0 * static_cast<double>(workspace_bytes(p, c));
  return kLaunchMs * (c.turned ? 2 : 1) + std::max(sum_ms, min_bytes(p) / (kUnitGbps * units) * 1e-6) +
         exchanged / (kExchangeGbps * units) * 1e-6;
}

Choice parse(const std::string& config) {
  std::string names;
  for (const Tile& tile : kTiles) {
    const std::string name = tile.name();
    if (config.starts_with(name)) {
      std::string_view rest = std::string_view(config).substr(name.size());
      const bool turned = rest.starts_with("_t");
      if (turned) rest.remove_prefix(2);
      i64 splits = 1;
      if (rest.starts_with("_s") && std::from_chars(rest.data() + 2, rest.data() + rest.size(), splits).ptr !=
                                        rest.data() + rest.size()) {
        splits = 0;
      }
      if (rest.empty() || (rest.starts_with("_s") && splits > 1 && splits <= kMostBlocks)) {
        return {&tile, turned, splits};
      }
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  throw Error(Status::bad_problem,
              "implicit_gemm_mma_gpu's backward_weights has the configs " + names +
                  fmt::format(", and each with _t (turned), _s<splits, 2 to {}> or both; not '{}'",
                              kMostBlocks, config));
}

// A tensor's planes to pixels, into the workspace.
Step turn(const std::string& name, const Problem& p, i64 channels, i64 plane, bool is_y, std::size_t at,
          const std::string& kernel, Device& device, Recipe& recipe) {
  constexpr i64 kThreads = 256, kPixels = 64, kBytes = 128;
  const jit::Built built = gpu::build(device, kernel, "turn_planes.cu", "turn_planes",
                                      gpu::constants(p, {{"THREADS", std::to_string(kThreads)}}));
  recipe.compile_ms += built.compile_ms;
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(ceil_div(plane, kPixels));
  shape.grid[1] = static_cast<unsigned>(ceil_div(channels, kBytes / info(p.dtype).bytes));
  shape.grid[2] = static_cast<unsigned>(std::min(p.n, kMostBlocks));
  shape.block[0] = kThreads;
  const auto i32 = [](i64 value) { return static_cast<std::int32_t>(value); };
  return {name, [&device, kernel = built.kernel, images = i32(p.n), count = i32(channels),
                 pixels = i32(plane), shape, is_y, at](const Invocation& i) {
            const void* const from = is_y ? i.tensors.y : i.tensors.x;
            device.launch(*kernel, shape, {from, i.workspace + at, images, count, pixels}, i.stream);
          }};
}

}  // namespace

Support supports(const Problem& p) {
  if (ceil_div(p.k / p.groups, 64) > kMostBlocks || p.groups > kMostBlocks) {
    return Support::declined(
        fmt::format("{} channels in {} groups: at most {} blocks of each are launched at once", p.k, p.groups,
                    kMostBlocks));
  }
  return Support::supported();
}

std::vector<Config> configs(const Problem& p, const DeviceInfo& device) {
  std::vector<Config> configs;
  for (const bool turned : {false, true}) {
    if (turned && !can_turn(p)) continue;
    const bool gathered = !turned && (gathers(p, p.c) || gathers(p, p.k));
    for (const Tile& t : kTiles) {
      // 64 x 64 results a warp leave no registers for what is gathered.
      if (gathered && t.rows * t.columns > 48 * 64 * t.warps_m * t.warps_n) continue;
      for (const Choice& c : choices(p, t, turned, device)) {
        configs.push_back({c.name(), predicted_ms(p, c, device), "arithmetic", workspace_bytes(p, c)});
      }
    }
  }
  std::stable_sort(configs.begin(), configs.end(),
                   [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
  return configs;
}

Recipe plan(const Problem& given, const std::string& config, Device& device) {
  const Choice choice = parse(config);
  if (choice.turned && !can_turn(given)) {
    throw Error(Status::bad_problem, "'" + config +
                                         "' turns planes of channels that are whole chunks of 16 bytes; " +
                                         to_string(given) + " has none");
  }
  // As the product sees it.
  Problem p = given;
  if (choice.turned) p.layout = Layout::nhwc;
  const Tile& tile = *choice.tile;
  const std::string kernel = "implicit_gemm_mma_gpu/" + config;
  const auto n = [](i64 value) { return std::to_string(value); };
  // Not where x is gathered while y is copied: that would spill.
  const bool dense = tile.registers() < 255 && (!gathers(p, p.c) || gathers(p, p.k));
  const jit::Built product =
      gpu::build(device, kernel, "implicit_gemm_mma_weights.cu", "implicit_gemm_mma_weights",
                 gpu::constants(p, {{"BM", n(tile.rows)},
                                    {"BN", n(tile.columns)},
                                    {"WARPS_M", n(tile.warps_m)},
                                    {"WARPS_N", n(tile.warps_n)},
                                    {"STAGES", n(tile.stages)},
                                    {"GATHER_X", gathers(p, p.c) ? "1" : "0"},
                                    {"GATHER_Y", gathers(p, p.k) ? "1" : "0"},
                                    {"MIN_BLOCKS", n(dense ? fitting_blocks(p, tile, device.info()) : 1)},
                                    {"THREADS", n(tile.threads())}}),
                 tile.local_bytes(p.dtype));
  const jit::Built sum = gpu::build(device, kernel, "sum_parts.cl", "sum_parts",
                                    gpu::constants(given, {{"THREADS", n(kSumThreads)}, {"REORDERS", "1"}}));
  const auto splits = static_cast<std::int32_t>(choice.splits);
  // From a pixel to the one a tile of the sum further on: images, rows, columns.
  const i64 step = kStepBytes / info(p.dtype).bytes;
  const auto i32 = [](i64 value) { return static_cast<std::int32_t>(value); };
  const std::int32_t next_n = i32(step / (p.p() * p.q())), next_p = i32(step / p.q() % p.p()),
                     next_q = i32(step % p.q());
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(ceil_div(columns(p), tile.columns));
  shape.grid[1] = static_cast<unsigned>(ceil_div(p.k / p.groups, tile.rows));
  shape.grid[2] = static_cast<unsigned>(p.groups * choice.splits);
  shape.block[0] = static_cast<unsigned>(tile.threads());
  shape.shared_bytes = static_cast<unsigned>(tile.local_bytes(p.dtype));
  const gpu::Sizes z = gpu::sizes(p);
  Recipe recipe;
  recipe.compile_ms = product.compile_ms + sum.compile_ms;
  recipe.workspace_bytes = workspace_bytes(p, choice);
  const std::size_t x_at = parts_bytes(p, choice.splits), y_at = x_at + aligned(bytes(p, x_shape(p)));
  const bool turned = choice.turned;
  if (turned) {
    recipe.steps.push_back(turn("turn x", given, p.c, p.h * p.w, false, x_at, kernel, device, recipe));
    recipe.steps.push_back(turn("turn y", given, p.k, p.p() * p.q(), true, y_at, kernel, device, recipe));
  }
  recipe.steps.push_back(
      {"product", [&device, kernel = product.kernel, z, splits, next_n, next_p, next_q, shape, turned, x_at,
                   y_at](const Invocation& i) {
         const void* const x = turned ? i.workspace + x_at : i.tensors.x;
         const void* const y = turned ? i.workspace + y_at : i.tensors.y;
         device.launch(*kernel, shape, {x, y, i.workspace, splits, next_n, next_p, next_q, z}, i.stream);
       }});
  recipe.steps.push_back({"sum of the parts", [&device, kernel = sum.kernel, z, splits,
                                               shape = gpu::one_dimension(w_shape(p).elements(),
                                                                          kSumThreads)](const Invocation& i) {
                            device.launch(*kernel, shape, {i.workspace, i.tensors.w, splits, z}, i.stream);
                          }});
  return recipe;
}

}  // namespace faltung::mma_weights
