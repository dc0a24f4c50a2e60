// The convolution as a matrix product through local memory, its operands gathered on the way.
#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A block's tile and a thread's part of it. The vector side is the one whose results lie together in memory:
// pixels in nchw, channels in nhwc, the filter's columns in backward_weights.
struct Tile {
  int scalars, vectors, steps;  // BS, BV, BK
  int ts, vn, vw;
  bool wide;  // implicit_gemm_wide.cl: the block is one thread's
  gpu::AmdRegisters amd = {};
  int threads() const { return wide ? 1 : scalars / ts * (vectors / (vn * vw)); }
  std::string name() const {
    return fmt::format("{}{}x{}k{}_t{}x{}v{}", wide ? "w" : "b", scalars, vectors, steps, ts, vn * vw, vw);
  }
  // An upper bound over the directions and layouts.
  std::size_t local_bytes() const {
    const int pixels = std::max(scalars, vectors);
    const int floats = wide ? pixels * steps + scalars * vectors + 6 * pixels
                            : 2 * (scalars + vectors + 4) * steps + 2 * pixels;
    return std::size_t{4} * static_cast<std::size_t>(floats);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 16, 8, 2, 4, false, {130, 256}},
    {128, 128, 8, 8, 2, 4, false, {218, 217}},
    {64, 256, 16, 8, 2, 4, false, {130, 256}},
    {64, 256, 8, 8, 2, 4, false, {224, 222}},
    {64, 128, 8, 8, 2, 4, false, {225, 222}},
    {128, 64, 8, 8, 2, 4, false, {229, 227}},
    {256, 64, 8, 8, 2, 4, false, {229, 227}},
    {64, 64, 8, 8, 2, 4, false, {232, 231}},
    {64, 64, 16, 4, 1, 4, false, {170, 169}},
    {32, 64, 16, 4, 1, 4, false, {174, 174}},
    {16, 64, 16, 2, 1, 4, false, {133, 134}},
    {96, 64, 128, 12, 2, 16, true},
    {64, 64, 128, 8, 2, 16, true},
    {32, 32, 64, 8, 2, 8, true},
};

// Wide tiles are for processors whose threads own vector registers, and not for sums over pixels.
bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  if (t.wide &&
      (!device.has("runs_on_cpu") || device.has("lanes") || p.direction == Direction::backward_weights))
    return false;
  // There 16 steps of 64 results a thread take seconds to compile, and gain nothing.
  if (device.has("runs_on_cpu") && !t.wide && t.ts * t.vn * t.vw * t.steps > 512) return false;
  if (!t.wide && device.unit.is_amd &&
      device.unit.blocks(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())) == 0) {
    return false;
  }
  return t.threads() <= device.block_threads && t.local_bytes() <= device.local_bytes;
}

// How many blocks of a tile a unit has room for.
int resident_blocks(const Tile& t, const DeviceInfo& device) {
  const UnitLimits& unit = device.unit;
  if (t.wide || device.has("runs_on_cpu")) return 1;
  if (!unit.is_amd) return std::max(1, 512 / t.threads());  // of 128 registers a thread
  return std::max(1, unit.blocks(t.threads(), t.amd.on(unit), static_cast<int>(t.local_bytes())));
}

constexpr int kHelperThreads = 64;

// The product's shape, for one group (and one phase of backward_data).
struct Shape {
  i64 scalars, vectors, steps;
  i64 products;  // groups times phases
};

bool vectors_are_pixels(const Problem& p) { return p.layout == Layout::nchw; }

Shape shape_of(const Problem& p) {
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups;
  if (p.direction == Direction::backward_weights) {
    return {group_k, group_c * p.r * p.s, p.n * p.p() * p.q(), p.groups};
  }
  const bool forward = p.direction == Direction::forward;
  const i64 phases = forward ? 1 : p.stride_h * p.stride_w;
  const i64 pixels =
      forward ? p.n * p.p() * p.q() : p.n * ceil_div(p.h, p.stride_h) * ceil_div(p.w, p.stride_w);
  const i64 out = forward ? group_k : group_c, in = forward ? group_c : group_k;
  const bool v = vectors_are_pixels(p);
  return {v ? out : pixels, v ? pixels : out, in * p.r * p.s, p.groups * phases};
}

// For implicit_gemm.cl: which taps of one dimension the pixels of a phase of backward_data have.
gpu::Constants tap_constants(const std::string& dimension, i64 stride, i64 dilation) {
  const i64 gcd = std::gcd(stride, dilation), step = stride / gcd;
  // Euclid's algorithm, extended: of dilation / gcd modulo step.
  i64 inverse = 0, next = 1 % step;
  for (i64 a = step, b = dilation / gcd % step; b != 0;) {
    const i64 quotient = a / b;
    inverse = std::exchange(next, inverse - quotient * next);
    a = std::exchange(b, a - quotient * b);
  }
  inverse = (inverse % step + step) % step;
  return {{"TAP_GCD_" + dimension, std::to_string(gcd)},
          {"TAP_STEP_" + dimension, std::to_string(step)},
          {"TAP_INVERSE_" + dimension, std::to_string(inverse)}};
}

// A tile, and among how many blocks a result's sum is shared; backward_weights decides that by itself.
struct Choice {
  const Tile* tile;
  i64 splits;
  std::string name() const { return tile->name() + (splits > 1 ? fmt::format("_s{}", splits) : ""); }
};

// How many parts the sum of backward_weights is split into: enough blocks for the device, none too short.
i64 splits_of(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (p.direction != Direction::backward_weights) return 1;
  const Shape s = shape_of(p);
  const i64 blocks = ceil_div(s.scalars, t.scalars) * ceil_div(s.vectors, t.vectors) * s.products;
  const i64 wanted = ceil_div(i64{device.units} * 2, blocks),
            longest = std::max<i64>(1, s.steps / (8 * t.steps));
  return std::clamp<i64>(std::min(wanted, longest), 1, std::max<i64>(1, 65535 / s.products));
}

i64 result_elements(const Problem& p) {
  return (p.direction == Direction::forward ? conv_shape(p) : x_shape(p)).elements();
}

// While units have little to do, and each block a sum that is worth the exchange. On CPUs, which gain
// nothing, one choice for the sake of the tests.
std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  std::vector<Choice> choices = {{&t, 1}};
  if (p.direction == Direction::backward_weights || t.wide) return choices;
  const Shape s = shape_of(p);
  const i64 blocks = ceil_div(s.scalars, t.scalars) * ceil_div(s.vectors, t.vectors) * s.products;
  for (const i64 splits : {2, 3, 4, 6, 8, 12, 16}) {
    if (s.products * splits > 65535) break;
    if (device.has("runs_on_cpu") ? splits > 2 || t.scalars > 16
                                  : blocks * splits > 8 * device.units || s.steps < 8 * t.steps * splits) {
      break;
    }
    choices.push_back({&t, splits});
  }
  return choices;
}

std::string launch_limit(const Problem& p, const Tile& t) {
  constexpr i64 kMost = 65535;
  const Shape s = shape_of(p);
  const bool x_is_vectors = p.direction == Direction::backward_weights || vectors_are_pixels(p);
  const i64 y = x_is_vectors ? ceil_div(s.scalars, t.scalars) : ceil_div(s.vectors, t.vectors);
  if (y <= kMost && s.products <= kMost) return "";
  return fmt::format("{} blocks of channels and {} groups or phases: at most {} are launched at once", y,
                     s.products, kMost);
}

double predicted_ms(const Problem& p, const Choice& choice, const Device& on) {
  const DeviceInfo& device = on.info();
  const Tile& t = *choice.tile;
  const Shape s = shape_of(p);
  // What is computed beyond the edges, and the units that have no block, are lost.
  const i64 rows = ceil_div(s.scalars, t.scalars), columns = ceil_div(s.vectors, t.vectors);
  const i64 splits = p.direction == Direction::backward_weights ? splits_of(p, t, device) : choice.splits;
  const double useful = static_cast<double>(s.scalars) * static_cast<double>(s.vectors) /
                        (static_cast<double>(rows * t.scalars) * static_cast<double>(columns * t.vectors));
  const double blocks = static_cast<double>(rows * columns * s.products * splits);
  const bool own_units = t.wide || device.has("runs_on_cpu");
  // Blocks come in rounds of as many as are resident, and fewer waves hide less of what each waits for.
  const double of_unit = blocks / device.units, room = resident_blocks(t, device);
  const double side_by_side = std::min(room, std::ceil(of_unit)), rounds = of_unit / side_by_side;
  const UnitLimits& unit = device.unit;
  const double lanes = unit.is_amd ? unit.wave_threads * unit.schedulers : 32 * 4;
  const double busy = own_units ? std::min(1.0, of_unit)
                                : rounds / std::ceil(rounds) * gpu::pace(side_by_side * t.threads() / lanes);
  // Each product needs 1/ts of a vector and 1/(vn vw) of a scalar from local memory, and each step of a
  // tile a part of its rows from the memory beyond.
  const double reuse =
      1 / (1 + 2.0 / t.ts + 2.0 / (t.vn * t.vw) + 8.0 / t.scalars + 8.0 / t.vectors + 1.5 / t.steps);
  // A CPU runs a block's threads one after the other; sums over pixels are gathered on both sides.
  const bool weights = p.direction == Direction::backward_weights;
  const double share = t.wide ? 0.5 : own_units ? 0.1 : weights ? 0.4 : 1.5;
  const double sum_ms = gpu::arithmetic_ms(p, on, share * useful * busy * reuse);
  if (choice.splits == 1) return sum_ms;
  constexpr double kLaunchMs = 0.002, kUnitGbps = 30;
  return sum_ms + kLaunchMs +
         2.0 * sizeof(float) * static_cast<double>(splits * result_elements(p)) / (kUnitGbps * device.units) *
             1e-6;
}

class ImplicitGemmGpu : public Algorithm {
 public:
  std::string_view name() const override { return "implicit_gemm_gpu"; }
  std::string_view description() const override {
    return "a matrix product through local memory; the taps are gathered on the way";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& problem, const Target& target) const override {
    const Support size = gpu::fits(problem);
    if (!size.yes) return size;
    if (is_depthwise(problem)) {
      return Support::declined("a depthwise group is a product with one row: nothing is shared");
    }
    if (tiles(problem, target.device.info()).empty()) {
      return Support::declined(
          fmt::format("a block has {} threads and {} bytes of local memory, too few for any tile",
                      target.device.info().block_threads, target.device.info().local_bytes));
    }
    const std::string limit = launch_limit(problem, kTiles[9]);
    return limit.empty() ? Support::supported() : Support::declined(limit);
  }

  std::vector<Config> configs(const Problem& problem, const Target& target) const override {
    std::vector<Config> configs;
    const DeviceInfo& device = target.device.info();
    for (const Tile* tile : tiles(problem, device)) {
      if (!launch_limit(problem, *tile).empty()) continue;
      for (const Choice& choice : choices(problem, *tile, device)) {
        configs.push_back({choice.name(), predicted_ms(problem, choice, target.device), "arithmetic",
                           workspace_bytes(problem, choice, device)});
      }
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  int registers(const std::string& config, const DeviceInfo& device) const override {
    return device.unit.is_amd ? parse(config).tile->amd.on(device.unit) : -1;
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target& target) const override {
    const Choice choice = parse(config);
    if (problem.direction != Direction::backward_weights) return plan_pixels(problem, choice, target);
    if (choice.splits == 1) return plan_weights(problem, *choice.tile, target);
    throw Error(Status::bad_problem,
                "backward_weights has configs without _s, and splits by itself; not '" + config + "'");
  }

 private:
  static std::vector<const Tile*> tiles(const Problem& p, const DeviceInfo& device) {
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
      if (!tile.wide && config.starts_with(name + "_s")) {
        i64 splits = 0;
        const char *const begin = config.data() + name.size() + 2, *const end = config.data() + config.size();
        if (std::from_chars(begin, end, splits).ptr == end && splits > 1 && splits <= 64)
          return {&tile, splits};
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(Status::bad_problem, "implicit_gemm_gpu has the configs " + names +
                                         ", and those that begin with b with _s<splits, 2 to 64>; not '" +
                                         config + "'");
  }

  static std::size_t workspace_bytes(const Problem& p, const Choice& c, const DeviceInfo& device) {
    if (p.direction == Direction::backward_weights) {
      return static_cast<std::size_t>(splits_of(p, *c.tile, device) * w_shape(p).elements()) * sizeof(float);
    }
    return c.splits == 1 ? 0 : static_cast<std::size_t>(c.splits * result_elements(p)) * sizeof(float);
  }

  // FLAT where a tap's channels would leave most of a tile of the sum empty.
  gpu::Constants constants(const Problem& p, const Tile& t, const DeviceInfo& device,
                           bool split = false) const {
    const auto n = [](i64 v) { return std::to_string(v); };
    const bool pixels = vectors_are_pixels(p) && p.direction != Direction::backward_weights;
    const i64 in = (p.direction == Direction::forward ? p.c : p.k) / p.groups;
    const bool flat = in % t.steps != 0 && in < 2 * t.steps;
    const bool exact = !flat && in % t.steps == 0;
    // 64 results a thread fit in 128 registers where no tile of the sum needs guards.
    const bool dense = exact && t.ts * t.vn * t.vw == 64 && t.threads() >= 128;
    gpu::Constants own = {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                          {"BP", n(pixels ? t.vectors : t.scalars)},
                          {"BC", n(pixels ? t.scalars : t.vectors)},
                          {"VECTOR_PIXELS", pixels ? "1" : "0"},
                          {"FLAT", flat ? "1" : "0"},
                          {"EXACT", exact ? "1" : "0"},
                          {"SPLIT", split ? "1" : "0"},
                          {"MIN_BLOCKS", n(dense ? 512 / t.threads() : 1)},
                          {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                          {"BK", n(t.steps)},
                          {"TS", n(t.ts)},
                          {"VN", n(t.vn)},
                          {"VW", n(t.vw)},
                          {"THREADS", n(t.threads())},
                          {"STEPS", n(t.steps)}};
    if (p.direction == Direction::backward_data) {
      for (const auto& constants :
           {tap_constants("H", p.stride_h, p.dilation_h), tap_constants("W", p.stride_w, p.dilation_w)}) {
        own.insert(own.end(), constants.begin(), constants.end());
      }
    }
    return gpu::constants(p, own);
  }

  // What packs or sums is the same for every tile and epilogue.
  static gpu::Constants helper_constants(Problem p, const DeviceInfo& device) {
    p.epilogue = Epilogue{};
    return gpu::constants(p, {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                              {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                              {"THREADS", std::to_string(kHelperThreads)}});
  }

  Recipe plan_pixels(const Problem& p, const Choice& choice, const Target& target) const {
    const Tile& tile = *choice.tile;
    const bool split = choice.splits > 1;
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, choice.name());
    // The epilogue of a split sum is the last step's.
    Problem own = p;
    if (split) own.epilogue = Epilogue{};
    const gpu::Constants c = constants(own, tile, device.info(), split);
    const bool forward = p.direction == Direction::forward;
    const std::string file = tile.wide ? "implicit_gemm_wide" : "implicit_gemm";
    const jit::Built pack =
        gpu::build(device, kernel, "pack_weights.cl", "pack_weights", helper_constants(p, device.info()));
    const jit::Built main = gpu::build(device, kernel, file + ".cl", file, c);
    const Shape s = shape_of(p);
    const bool v = vectors_are_pixels(p);
    const i64 in = (forward ? p.c : p.k) / p.groups, out = (forward ? p.k : p.c) / p.groups;
    const i64 out_pad = ceil_div(out, v ? tile.scalars : tile.vectors) * (v ? tile.scalars : tile.vectors);
    const i64 packed = p.groups * p.r * p.s * in * out_pad;
    LaunchShape shape;
    const i64 row_blocks = ceil_div(s.scalars, tile.scalars),
              vector_blocks = ceil_div(s.vectors, tile.vectors);
    shape.grid[0] = static_cast<unsigned>(v ? vector_blocks : row_blocks);
    shape.grid[1] = static_cast<unsigned>(v ? row_blocks : vector_blocks);
    shape.grid[2] = static_cast<unsigned>(s.products * choice.splits);
    shape.block[0] = static_cast<unsigned>(tile.threads());
    const gpu::Sizes z = gpu::sizes(p);
    const auto pad = static_cast<std::int32_t>(out_pad);
    Recipe recipe;
    recipe.compile_ms = pack.compile_ms + main.compile_ms;
    // As floats where the kernel has COMPACT.
    const bool floats = p.dtype == DType::f32 || device.info().has("runs_on_cpu");
    recipe.packed_bytes = static_cast<std::size_t>(packed * (floats ? 4 : 2));
    recipe.pack.push_back(
        {"pack weights", [&device, kernel = pack.kernel, z, pad,
                          shape = gpu::one_dimension(packed, kHelperThreads)](const Invocation& i) {
           device.launch(*kernel, shape, {i.tensors.w, i.packed, pad, z}, i.stream);
         }});
    recipe.workspace_bytes = workspace_bytes(p, choice, device.info());
    const auto splits = static_cast<std::int32_t>(choice.splits);
    recipe.steps.push_back(
        {"product", [&device, kernel = main.kernel, z, pad, splits, shape, forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           const void* in = forward ? t.x : t.y;
           void* out = splits > 1 ? static_cast<void*>(i.workspace) : forward ? t.y : t.x;
           device.launch(*kernel, shape, {in, i.packed, out, t.bias, t.residual, pad, splits, z}, i.stream);
         }});
    if (split) gpu::add_finish_step(recipe, p, kernel, choice.splits, device);
    return recipe;
  }

  Recipe plan_weights(const Problem& p, const Tile& tile, const Target& target) const {
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, tile.name());
    const gpu::Constants c = constants(p, tile, device.info());
    const jit::Built product =
        gpu::build(device, kernel, "implicit_gemm_weights.cl", "implicit_gemm_weights", c);
    const jit::Built sum =
        gpu::build(device, kernel, "sum_parts.cl", "sum_parts", helper_constants(p, device.info()));
    const Shape s = shape_of(p);
    const auto splits = static_cast<std::int32_t>(splits_of(p, tile, device.info()));
    LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(ceil_div(s.vectors, tile.vectors));
    shape.grid[1] = static_cast<unsigned>(ceil_div(s.scalars, tile.scalars));
    shape.grid[2] = static_cast<unsigned>(s.products * splits);
    shape.block[0] = static_cast<unsigned>(tile.threads());
    const gpu::Sizes z = gpu::sizes(p);
    Recipe recipe;
    recipe.compile_ms = product.compile_ms + sum.compile_ms;
    recipe.workspace_bytes = workspace_bytes(p, {&tile, 1}, device.info());
    recipe.steps.push_back(
        {"product", [&device, kernel = product.kernel, z, splits, shape](const Invocation& i) {
           device.launch(*kernel, shape, {i.tensors.x, i.tensors.y, i.workspace, splits, z}, i.stream);
         }});
    recipe.steps.push_back(
        {"sum of the parts",
         [&device, kernel = sum.kernel, z, splits,
          shape = gpu::one_dimension(w_shape(p).elements(), kHelperThreads)](const Invocation& i) {
           device.launch(*kernel, shape, {i.workspace, i.tensors.w, splits, z}, i.stream);
         }});
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_gpu() { return std::make_unique<ImplicitGemmGpu>(); }

}  // namespace faltung
