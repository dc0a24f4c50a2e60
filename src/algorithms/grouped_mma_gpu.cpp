// Groups too narrow for a tile of a matrix product, on an NVIDIA GPU's matrix units: bytes bind, nearly.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace grouped_mma_gpu {
namespace {

using i64 = std::int64_t;

constexpr int kChannels = 64;  // of a block, 16 of each of four warps

bool is_weights(const Problem& p) { return p.direction == Direction::backward_weights; }

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

// The results' places.
struct Places {
  i64 rows, columns;
};
Places places(const Problem& p) {
  if (p.direction != Direction::backward_data) return {p.p(), p.q()};
  return {ceil_div(p.h, p.stride_h), ceil_div(p.w, p.stride_w)};
}

// A block's places, 16 of a row for each four warps.
struct Tile {
  int rows, columns, images;
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, columns, images);
  }
  i64 sixteens() const { return ceil_div(i64{images} * columns, 16); }
  int threads(const Problem& p) const { return is_weights(p) ? 128 : 128 * static_cast<int>(sixteens()); }
  i64 patch_rows(const Problem& p) const { return (rows - 1) * down(p).step + down(p).span; }
  i64 patch_columns(const Problem& p) const { return (columns - 1) * across(p).step + across(p).span; }
  // The patch, and the gradient's pixels, or the filters and two rows of results.
  i64 local_bytes(const Problem& p) const {
    const i64 filters = p.r * p.s * (p.c / p.groups), row = sixteens() * 16;
    const i64 others = is_weights(p) ? rows * row : filters + 2 * row * down(p).phases * across(p).phases;
    return (images * patch_rows(p) * patch_columns(p) + others) * kChannels * 2;
  }
};

i64 group(const Problem& p) { return p.c / p.groups; }

// Of tiles that are predicted alike the first is the better one.
constexpr Tile kTiles[] = {{7, 16, 1}, {8, 16, 1}, {14, 16, 1}, {7, 8, 4},  {7, 8, 2},  {4, 8, 2},
                           {4, 16, 1}, {2, 16, 1}, {14, 32, 1}, {8, 32, 1}, {7, 32, 1}, {4, 32, 1},
                           {2, 32, 1}, {7, 8, 1},  {4, 8, 1},   {7, 56, 1}, {4, 56, 1}, {14, 56, 1}};
constexpr TileTable<Tile> kTable("grouped_mma_gpu", kTiles);
constexpr int kMostPatchRows = 16;    // all is unrolled
constexpr i64 kMostBytes = 99 << 10;  // that every chip since Ampere has

// Of each 64 channels, how many patches there are.
i64 patches(const Problem& p, const Tile& t) {
  const Places all = places(p);
  return ceil_div(p.n, i64{t.images}) * ceil_div(all.rows, i64{t.rows}) *
         ceil_div(all.columns, i64{t.columns});
}
i64 chunks(const Problem& p) { return ceil_div(p.c, i64{kChannels}); }

// Of a thread: the filter's or its sums, a row's sums or the gradient's rows, and those for addresses and
// what is read.
i64 registers(const Problem& p) {
  const Walk d = down(p), a = across(p);
  const i64 eights = ceil_div(group(p), 8), held = ceil_div(d.span, d.step);
  if (is_weights(p)) return p.r * p.s * std::max<i64>(2, eights) * 4 + held * 4 + 64;
  return p.r * p.s * 2 * eights + held * d.phases * a.phases * 8 + 56;
}

// How many blocks a multiprocessor has room for.
int resident(const Problem& p, const Tile& t) {
  constexpr i64 kUnitBytes = 227 << 10, kReserved = 1 << 10, kUnitRegisters = 65536, kMost = 6;
  const i64 by_bytes = kUnitBytes / (t.local_bytes(p) + kReserved);
  const i64 by_registers = kUnitRegisters / (t.threads(p) * round_up(registers(p), 8));
  return static_cast<int>(std::clamp<i64>(std::min(by_bytes, by_registers), 1, kMost));
}

// backward_weights: among so many blocks the patches are shared, as many as there is room for at once.
i64 splits(const Problem& p, const Tile& t, const DeviceInfo& device) {
  const i64 room = std::max<i64>(1, i64{std::max(1, device.units)} * resident(p, t) / chunks(p));
  return ceil_div(patches(p, t), ceil_div(patches(p, t), room));
}

i64 blocks(const Problem& p, const Tile& t, const DeviceInfo& device) {
  return chunks(p) * (is_weights(p) ? splits(p, t, device) : patches(p, t));
}

bool serves(const Problem& p, const Tile& t) {
  const Places all = places(p);
  const bool larger = t.columns >= all.columns + 16 || t.rows >= 2 * all.rows || t.images > p.n ||
                      (t.images > 1 && t.columns < all.columns);
  return t.patch_rows(p) <= kMostPatchRows && t.local_bytes(p) <= kMostBytes && !larger &&
         (!is_weights(p) || t.columns <= 32) && patches(p, t) * chunks(p) < i64{1} << 30;
}

// Both were fitted to what tiles of ResNeXt's groups took on an H200, 8 and 10 % from it in the mean; cycles
// are of one multiprocessor, bytes a ms its share.
constexpr double kCyclesPerMs = 1.65e6;

double weights_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLeastMs = 0.006, kProducts = 4.3, kRow = 118, kBytesPerMs = 2.92e7, kPartBytesPerMs = 9e6;
  const double units = std::max(1, device.units);
  const i64 parts = splits(p, t, device), turns = ceil_div(patches(p, t), parts);
  const auto taps = static_cast<double>(p.r * p.s * std::max<i64>(2, group(p) / 8));
  const double turn = static_cast<double>(t.sixteens()) * (static_cast<double>(t.rows) * taps * kProducts +
                                                           static_cast<double>(t.patch_rows(p)) * kRow);
  const double work = static_cast<double>(turns) * turn *
                      std::ceil(static_cast<double>(parts * chunks(p)) / units) / kCyclesPerMs;
  const double sums = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, parts)) / (kPartBytesPerMs * units);
  return std::max(kLeastMs, std::max(work, min_bytes(p) / (kBytesPerMs * units)) + sums);
}

double predicted_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (is_weights(p)) return weights_ms(p, t, device);
  constexpr double kLaunchMs = 0.00284, kBytesPerMs = 4.61e7, kBeside = 0.512, kProducts = 4.25,
                   kResults = 15, kBegin = 1740;
  const double units = std::max(1, device.units), count = static_cast<double>(patches(p, t) * chunks(p));
  const double blocks = count / (units * resident(p, t)), rounds = std::ceil(blocks);
  // Of 16 places by 16 channels; the last round's blocks are fewer.
  const double products = static_cast<double>(2 * p.r * p.s * std::max<i64>(8, group(p)) / 8) * kProducts;
  const double results = static_cast<double>(down(p).phases * across(p).phases) * kResults;
  const double work = count / units * static_cast<double>(t.rows * t.sixteens()) * (products + results) *
                      (blocks > 1 ? rounds / blocks : 1);
  const double all[] = {work / kCyclesPerMs, rounds * kBegin / kCyclesPerMs,
                        min_bytes(p) / (kBytesPerMs * units)};
  const double longest = *std::max_element(std::begin(all), std::end(all));
  return kLaunchMs + longest + kBeside * (std::accumulate(std::begin(all), std::end(all), 0.0) - longest);
}

class GroupedMmaGpu : public Algorithm {
 public:
  GroupedMmaGpu()
      : Algorithm({"grouped_mma_gpu",
                   "groups of 2 to 32 channels on the matrix units of NVIDIA's GPUs since Ampere", "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    if (device.dialect != "cuda" || !device.has("mma_sync"))
      return Support::declined("mma.sync is CUDA's, of compute capability 8.0 or higher");
    if (p.dtype == DType::f32 || p.layout != Layout::nhwc)
      return Support::declined("tensors are f16 or bf16, in nhwc");
    const i64 width = group(p);
    if (p.groups == 1 || p.k != p.c || width < 2 || width > 32 || (width & (width - 1)) != 0 || p.c % 16 != 0)
      return Support::declined(
          "groups have 2, 4, 8, 16 or 32 channels, in and out, and are a multiple of 16 channels together");
    if (p.r * p.s > 9 || p.stride_h > 2 || p.stride_w > 2 || p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined("filters have up to 9 taps, strides up to 2, no dilation");
    if (std::none_of(kTable.begin(), kTable.end(), [&](const Tile& t) { return serves(p, t); }))
      return Support::declined("no tile serves so small or so large an image");
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
      throw Error(Status::bad_problem, "grouped_mma_gpu/" + config_name(t) + " does not compute " +
                                           to_string(p) + ": its halo patch has other sizes");
    };
  }

  static Candidate candidate_of(const Problem& p, const Tile& t, const DeviceInfo& device) {
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    if (is_weights(p)) {
      c.accuracy.zeros_meet = ZerosMeet::channel;  // patches reach beyond the result's gradient
      c.workspace_bytes = gpu::shared_sum_bytes(p, splits(p, t, device));
    } else {
      c.accuracy.groups_as_one = static_cast<int>(std::max<i64>(8, group(p)) / group(p));
    }
    c.cost = {predicted_ms(p, t, device), Bound::bytes};
    c.maker = maker(t);
    c.recipe = [p, t, &device] {
      return is_weights(p) ? weights_recipe(p, t, device) : recipe(p, t, device);
    };
    return c;
  }

  static std::string kernel(const Tile& t) { return "grouped_mma_gpu/" + config_name(t); }

  static gpu::Constants constants(const Problem& p, const Tile& t) {
    const auto n = [](i64 value) { return std::to_string(value); };
    return {gpu::direction_constant(p),    {"GROUP", n(group(p))},       {"COLUMNS", n(t.columns)},
            {"ROWS", n(t.rows)},           {"IMAGES", n(t.images)},      {"THREADS", n(t.threads(p))},
            {"BLOCKS", n(resident(p, t))}, {"PHASE_H", n(down(p).rest)}, {"PHASE_W", n(across(p).rest)}};
  }

  static LaunchShape shape(const Problem& p, const Tile& t, const DeviceInfo& device) {
    LaunchShape shape = gpu::grid(blocks(p, t, device), 1, 1, t.threads(p));
    shape.overlaps_previous = device.has("sm_90");
    return shape;
  }

  static jit::Source source(const Problem& p, const Tile& t, const std::string& entry,
                            const gpu::Constants& own, const DeviceInfo& device) {
    return gpu::source(device, kernel(t), entry + ".cu", entry, gpu::constants(p, own),
                       static_cast<int>(t.local_bytes(p)));
  }

  static Recipe recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    Recipe recipe;
    recipe.alignment = 16;
    recipe.steps.push_back(launch("grouped", source(p, t, "grouped_mma", constants(p, t), device),
                                  shape(p, t, device),
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
    recipe.steps.push_back(launch("grouped", source(p, t, "grouped_mma_weights", own, device),
                                  shape(p, t, device),
                                  {in(Place::x), in(Place::y), out(gpu::shared_sum(p, parts)),
                                   gpu::number(parts), value(gpu::sizes(p))}));
    if (parts > 1) recipe.steps.push_back(gpu::sum_many_parts_step(p, kernel(t), parts, device));
    return recipe;
  }
};

}  // namespace
}  // namespace grouped_mma_gpu

std::unique_ptr<Algorithm> make_grouped_mma_gpu() {
  return std::make_unique<grouped_mma_gpu::GroupedMmaGpu>();
}

}  // namespace faltung
