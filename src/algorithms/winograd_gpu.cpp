// Winograd's minimal filtering for 3x3 filters in one kernel: transforms and products of a block of tiles,
// with the sums in registers. The error bounds are derived in docs/accuracy.md.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/winograd_problem.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// docs/accuracy.md counts them.
constexpr WinogradRoundings kRoundings{11, 19};

// F(m x m, 3 x 3), a block's tile of the product, and a thread's part of it.
struct Tile {
  int m;
  int tiles, outs, ins;                // of a block: BT tiles, BK out channels, BC in channels at a time
  int positions, own_tiles, own_outs;  // of a thread: PP, TT, TK
  int parts, lookahead;                // PARTS, LOOKAHEAD
  double share;                        // of the lanes' rate that it reached, on an H200
  gpu::AmdRegisters amd = {};
  bool cpu = false;  // for processors that run a block's threads one after the other

  int a() const { return m + 2; }
  int out_threads() const { return outs / own_outs; }  // LK
  int threads() const { return a() * a() / positions * (tiles / own_tiles) * out_threads(); }
  int round() const { return std::clamp(ins / out_threads(), 1, own_outs); }
  std::size_t local_bytes() const {
    return std::size_t{4} *
           static_cast<std::size_t>(a() * a() * tiles * std::max(ins, out_threads() * round()));
  }
  std::string name() const { return fmt::format("f{}x{}_t{}k{}c{}", m, m, tiles, outs, ins); }
};

// The large ones fill the registers of an NVIDIA multiprocessor with one block. A thread of F(4x4) has no
// room for a patch of 36: two share one.
constexpr Tile kTiles[] = {
    {2, 32, 64, 8, 1, 8, 16, 1, 2, 0.6, {208, 224}}, {2, 16, 32, 8, 2, 4, 4, 1, 1, 0.33, {96, 104}},
    {4, 32, 32, 6, 3, 8, 4, 2, 1, 0.57, {192, 200}}, {4, 16, 64, 8, 3, 4, 8, 2, 0, 0.44, {176, 176}},
    {4, 16, 32, 8, 3, 4, 8, 2, 0, 0.29, {200, 208}}, {2, 8, 16, 16, 16, 8, 16, 1, 0, 0.6, {}, true},
    {4, 8, 16, 16, 36, 8, 16, 1, 0, 0.6, {}, true},
};

// A tile, and among how many blocks the sum over the in channels is shared.
struct Choice {
  const Tile* tile;
  i64 splits;
  std::string name() const { return tile->name() + (splits > 1 ? fmt::format("_s{}", splits) : ""); }
};

constexpr int kHelperThreads = 64;

// The tiles that need nearly all of 255 registers are for compilers of which it is known that they do not
// spill them.
bool has_registers(const Tile& t, const DeviceInfo& device) {
  if (device.unit.is_amd) {
    return device.unit.blocks(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())) > 0;
  }
  const int sums = t.positions * t.own_tiles * t.own_outs;
  return t.cpu || sums <= 64 || !device.has("opencl") || device.key.find("NVIDIA") != std::string::npos;
}

// The share of its usual pace that the device has waves for.
double pace(const Tile& t, const DeviceInfo& device) {
  if (!device.unit.is_amd) return 1;
  return gpu::pace(device.unit.waves(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())));
}

bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  return winograd_admitted(p, t.m, kRoundings) && t.threads() <= device.block_threads &&
         t.local_bytes() <= device.local_bytes && t.cpu == device.has("runs_on_cpu") &&
         has_registers(t, device);
}

// The convolution as the kernel sees it: backward_data is one of the gradient.
struct Shape {
  Shape(const Problem& p, const Tile& t) {
    const bool forward = p.direction == Direction::forward;
    const i64 h = forward ? p.p() : p.h, w = forward ? p.q() : p.w;
    ins = (forward ? p.c : p.k) / p.groups, outs = (forward ? p.k : p.c) / p.groups;
    tiles = p.n * ceil_div(h, t.m) * ceil_div(w, t.m);
    padded_ins = round_up(ins, t.ins);
    out_blocks = ceil_div(outs, t.outs);
    blocks = ceil_div(tiles, t.tiles) * p.groups * out_blocks;
    out_elements = (forward ? conv_shape(p) : x_shape(p)).elements();
    // Threads read ahead of what there is.
    packed_floats = (p.groups * out_blocks * padded_ins + 1) * t.a() * t.a() * t.outs;
  }
  i64 ins, outs, tiles, padded_ins, out_blocks, blocks, out_elements, packed_floats;

  // As many of the asked splits as have in channels.
  i64 splits(const Choice& c) const {
    const i64 steps = padded_ins / c.tile->ins;
    return ceil_div(steps, ceil_div(steps, std::min(c.splits, steps)));
  }
  std::size_t workspace_bytes(const Choice& c) const {
    return c.splits > 1 ? static_cast<std::size_t>(splits(c) * out_elements) * sizeof(float) : 0;
  }
};

std::string launch_limit(const Problem& p, const Tile& t) {
  constexpr i64 kMost = 0x7fffffff;
  const Shape s(p, t);
  if (s.packed_floats > kMost) {
    return fmt::format("its transformed filter has {} elements: at most {} are indexed", s.packed_floats,
                       kMost);
  }
  if (s.blocks <= kMost) return "";
  return fmt::format("{} blocks: at most {} are launched at once", s.blocks, kMost);
}

// From the instructions of a block: multiply-adds, loads of their operands, transforms.
double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  const Tile& t = *c.tile;
  const Shape s(p, t);
  const double splits = static_cast<double>(s.splits(c));
  const double channels = std::ceil(static_cast<double>(s.padded_ins / t.ins) / splits) * t.ins;
  const double products = static_cast<double>(t.a() * t.a() * t.tiles * t.outs) * channels;
  const double loads = products * (1.0 / t.own_tiles + 1.0 / t.own_outs) / 4;
  const double patch = t.m == 2 ? 110 : 330, result = t.m == 2 ? 80 : 260;
  const double instructions = products + loads + patch * t.tiles * channels + result * t.tiles * t.outs;
  // 128 lanes at 1.5 GHz, or 16 at 2 GHz. llvmpipe has a work-item's sums in memory, 18 and 40 KB of them: it
  // took 55 to 90 times as long.
  const double rate = !device.has("runs_on_cpu") ? 192e6 : device.has("lanes") ? 32e6 / 80 : 32e6;
  const double lanes_per_ms = rate * t.share * pace(t, device);
  const double rounds = std::ceil(static_cast<double>(s.blocks) * splits / device.units);
  constexpr double kLaunchMs = 0.005, kBytesPerMs = 2e9;
  const double sum = c.splits > 1 ? kLaunchMs + static_cast<double>(s.workspace_bytes(c)) / kBytesPerMs : 0;
  return kLaunchMs + instructions * rounds / lanes_per_ms + sum;
}

class WinogradGpu : public Algorithm {
 public:
  std::string_view name() const override { return "winograd_gpu"; }
  std::string_view description() const override {
    return "3x3 filters by F(2x2,3x3) or F(4x4,3x3) in one kernel: 2.25 or 4 times fewer multiplications";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& p, const Target& target) const override {
    const Support size = gpu::fits(p), serves = winograd_serves(p, kRoundings);
    if (!size.yes) return size;
    if (!serves.yes) return serves;
    if (is_depthwise(p))
      return Support::declined("a depthwise group is a product with one row: nothing is shared");
    const std::vector<const Tile*> tiles = tiles_for(p, target.device.info());
    if (tiles.empty()) {
      return Support::declined(
          fmt::format("a block has {} threads and {} bytes of local memory, too few for any tile",
                      target.device.info().block_threads, target.device.info().local_bytes));
    }
    const std::string limit = launch_limit(p, *tiles.front());
    return limit.empty() ? Support::supported() : Support::declined(limit);
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    const DeviceInfo& device = target.device.info();
    for (const Tile* tile : tiles_for(p, device)) {
      if (!launch_limit(p, *tile).empty()) continue;
      std::vector<Choice> choices = {{tile, 1}};
      // Where the device has units without a block; for the sake of the tests, on CPUs always.
      const Shape s(p, *tile);
      const i64 wanted = tile->cpu ? 2 : device.units / s.blocks;
      const Choice split{tile, s.splits({tile, std::max<i64>(1, wanted)})};
      if (split.splits > 1 && tile->m == 2) choices.push_back(split);
      for (const Choice& c : choices) {
        configs.push_back({c.name(), predicted_ms(p, c, device), "arithmetic", s.workspace_bytes(c)});
      }
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    const Choice choice = parse(config);
    const Tile& tile = *choice.tile;
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, config);
    const bool split = choice.splits > 1, forward = p.direction == Direction::forward;
    // What the epilogue does not touch is the same for every one.
    Problem bare = p;
    bare.epilogue = Epilogue{};
    const jit::Built filter =
        gpu::build(device, kernel, "winograd_filter.cl", "winograd_filter", filter_constants(bare, tile));
    const jit::Built main =
        gpu::build(device, kernel, "winograd.cl", "winograd", constants(split ? bare : p, tile, split));
    const Shape s(p, tile);
    const auto splits = static_cast<std::int32_t>(s.splits(choice));
    LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(s.blocks);
    shape.grid[1] = static_cast<unsigned>(split ? splits : 1);
    shape.block[0] = static_cast<unsigned>(tile.threads());
    const gpu::Sizes z = gpu::sizes(p);
    const i64 elements = p.groups * s.out_blocks * s.padded_ins * tile.outs;
    Recipe recipe;
    recipe.compile_ms = filter.compile_ms + main.compile_ms;
    recipe.packed_bytes = aligned(static_cast<std::size_t>(s.packed_floats) * sizeof(float));
    recipe.workspace_bytes = s.workspace_bytes(choice);
    recipe.pack.push_back(
        {"filter transform", [&device, kernel = filter.kernel, z,
                              shape = gpu::one_dimension(elements, kHelperThreads)](const Invocation& i) {
           device.launch(*kernel, shape, {i.tensors.w, i.packed, z}, i.stream);
         }});
    recipe.steps.push_back(
        {"winograd", [&device, kernel = main.kernel, z, shape, split, forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           const void* in = forward ? t.x : t.y;
           void* out = split ? static_cast<void*>(i.workspace) : forward ? t.y : t.x;
           device.launch(*kernel, shape, {in, i.packed, out, t.bias, t.residual, z}, i.stream);
         }});
    if (split) gpu::add_finish_step(recipe, p, kernel, splits, device);
    return recipe;
  }

  int registers(const std::string& config, const DeviceInfo& device) const override {
    return device.unit.is_amd ? parse(config).tile->amd.on(device.unit) : -1;
  }

  Accuracy accuracy(const Problem& p, const std::string& config) const override {
    return winograd_accuracy(p, parse(config).tile->m, kRoundings);
  }

  int integer_weight_unit(const Problem&, const std::string& config) const override {
    return winograd_weight_unit(parse(config).tile->m);
  }

 private:
  static std::vector<const Tile*> tiles_for(const Problem& p, const DeviceInfo& device) {
    std::vector<const Tile*> serving;
    for (const Tile& tile : kTiles) {
      if (serves(tile, p, device)) serving.push_back(&tile);
    }
    return serving;
  }

  static Choice parse(const std::string& config) {
    std::string names;
    for (const Tile& tile : kTiles) {
      const std::string name = tile.name();
      if (config == name) return {&tile, 1};
      if (config.starts_with(name + "_s")) {
        i64 splits = 0;
        const char *const begin = config.data() + name.size() + 2, *const end = config.data() + config.size();
        if (std::from_chars(begin, end, splits).ptr == end && splits > 1 && splits <= 65535)
          return {&tile, splits};
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(Status::bad_problem, "winograd_gpu has the configs " + names +
                                         ", and each with _s<splits, 2 to 65535>; not '" + config + "'");
  }

  static gpu::Constants filter_constants(const Problem& p, const Tile& t) {
    const auto n = [](int v) { return std::to_string(v); };
    return gpu::constants(p, {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                              {"M", n(t.m)},
                              {"BK", n(t.outs)},
                              {"BC", n(t.ins)},
                              {"LK", n(t.out_threads())},
                              {"THREADS", n(kHelperThreads)}});
  }

  static gpu::Constants constants(const Problem& p, const Tile& t, bool split) {
    const auto n = [](int v) { return std::to_string(v); };
    return gpu::constants(p, {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                              {"M", n(t.m)},
                              {"BT", n(t.tiles)},
                              {"BK", n(t.outs)},
                              {"BC", n(t.ins)},
                              {"PP", n(t.positions)},
                              {"TT", n(t.own_tiles)},
                              {"TK", n(t.own_outs)},
                              {"LK", n(t.out_threads())},
                              {"ROUND", n(t.round())},
                              {"PARTS", n(t.parts)},
                              {"LOOKAHEAD", n(t.lookahead)},
                              {"SPLIT", split ? "1" : "0"},
                              {"COMPACT", t.cpu ? "1" : "0"},
                              {"VW", "4"},
                              {"THREADS", n(t.threads())}});
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_winograd_gpu() { return std::make_unique<WinogradGpu>(); }

}  // namespace faltung
