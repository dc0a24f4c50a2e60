// FFT convolution: overlapping tiles of T x T pixels, transformed, multiplied with the filter's frequencies
// as a matrix product over channels for each frequency, and transformed back. The work does not grow with the
// filter.
#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/fft_problem.hpp"
#include "src/algorithms/matrix_product.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {
namespace fft_gpu {
namespace {

using i64 = std::int64_t;

// Of T x T pixels.
struct Size {
  int side;  // a power of two
  int log() const { return std::countr_zero(static_cast<unsigned>(side)); }
  template <class Name>
  void spell(Name& name) {
    name.key("ft", side);
  }
};
constexpr Size kSizes[] = {{16}, {32}};
constexpr TileTable<Size> kTable("fft_gpu", kSizes);

// What the frequencies of a batch of tiles may take; on CPUs, to stay in a cache.
constexpr i64 kBatchBytes = 256 << 20, kBatchBytesOnCpu = 4 << 20;
constexpr i64 kMost = 0x3fffffff;  // elements of a matrix

// The product's tile: one that compiles quickly, and serves few channels too.
const gpu::ProductTile* product_tile(const DeviceInfo& device) {
  for (const gpu::ProductTile& tile : gpu::kProductTiles) {
    if (tile.scalars <= (device.has("runs_on_cpu") ? 16 : 64) && gpu::serves(tile, device)) return &tile;
  }
  return nullptr;
}

// A problem cut into tiles. backward_data is forward on the gradient with the filter turned around.
struct Tiles {
  Tiles(const Problem& p, Size size, const DeviceInfo& device)
      : problem(p), edge(size), product(*product_tile(device)) {
    const Problem forward = forward_form(p).inner;
    const i64 t = edge.side;
    ins = forward.c, outs = forward.k;
    frequencies = t * (t / 2 + 1);
    all = p.n * ceil_div(forward.p(), t - p.r + 1) * ceil_div(forward.q(), t - p.s + 1);
    const i64 bytes = device.has("runs_on_cpu") ? kBatchBytesOnCpu : kBatchBytes;
    const i64 fit = bytes / (frequencies * 2 * (ins + outs) * 4);
    batch = std::min(all, std::max<i64>(product.vectors, fit / product.vectors * product.vectors));
    pitch = round_up(batch, product.vectors), filter_pitch = round_up(2 * outs, product.scalars);
  }
  int tiles_a_block() const { return edge.side == 16 ? 8 : 4; }
  int threads() const { return tiles_a_block() * edge.side; }
  std::size_t local_bytes() const { return static_cast<std::size_t>(8 * tiles_a_block() * frequencies); }
  i64 input_floats() const { return frequencies * 2 * ins * pitch; }
  i64 result_floats() const { return frequencies * 2 * outs * pitch; }
  i64 filter_floats() const { return frequencies * 2 * ins * filter_pitch; }
  std::size_t result_at() const { return aligned(static_cast<std::size_t>(input_floats()) * 4); }
  std::size_t workspace_bytes() const {
    return result_at() + aligned(static_cast<std::size_t>(result_floats()) * 4);
  }
  std::size_t packed_bytes() const { return aligned(static_cast<std::size_t>(filter_floats()) * 4); }

  Problem problem;
  Size edge;
  gpu::ProductTile product;
  i64 frequencies, ins, outs;
  i64 all, batch;           // tiles: of the problem, and in the workspace at a time
  i64 pitch, filter_pitch;  // of the matrices
};

// docs/error_bounds.md derives it: the transforms of the input, of the filter and back, and the product.
double growth(const Problem& p, Size size) {
  const double channels = static_cast<double>(forward_form(p).inner.c);
  return std::ldexp(3 * 8.6 * size.log() + std::sqrt(2.0) * (2 * channels + 1), size.log());
}

// A tile of which the filter leaves a quarter in each dimension.
bool fits(const Problem& p, Size size) { return std::max(p.r, p.s) * 4 <= 3 * size.side; }
bool admitted(const Problem& p, Size size) { return fits(p, size) && growth(p, size) <= admitted_growth(p); }

std::string limit(const Tiles& t, const DeviceInfo& device) {
  if (t.threads() > device.block_threads || t.local_bytes() > device.local_bytes) {
    return fmt::format("a block has {} threads and {} bytes of local memory, too few for a tile",
                       device.block_threads, device.local_bytes);
  }
  const i64 largest = std::max({t.input_floats(), t.result_floats(), t.filter_floats(), t.all});
  if (largest > kMost) return fmt::format("a matrix has {} elements: at most {} are indexed", largest, kMost);
  if (std::max(t.ins, t.outs) > 65535) return "at most 65535 channels are launched at once";
  return "";
}

double predicted_ms(const Tiles& t, const DeviceInfo& device) {
  const bool cpu = device.has("runs_on_cpu");
  const double tiles = static_cast<double>(t.all), ins = static_cast<double>(t.ins),
               outs = static_cast<double>(t.outs);
  const double frequencies = static_cast<double>(t.frequencies);
  const double products = 4 * frequencies * tiles * ins * outs;
  const double transforms = (ins + outs) * tiles * 2 * frequencies * 10 * t.edge.log();
  const double bytes = 2 * 4 * 2 * frequencies * tiles * (ins + outs);
  const double lanes_per_ms = device.units * (cpu ? 16e6 : 192e6),
               bytes_per_ms = device.units * (cpu ? 2e6 : 2e7);
  constexpr double kLaunchMs = 0.005;
  return 3 * kLaunchMs * static_cast<double>(ceil_div(t.all, t.batch)) +
         (products / (cpu ? 0.1 : 0.8) + transforms / (cpu ? 0.2 : 0.8)) / lanes_per_ms +
         (bytes + min_bytes(t.problem)) / bytes_per_ms;
}

class FftGpu : public Algorithm {
 public:
  FftGpu()
      : Algorithm({"fft_gpu",
                   "overlapping tiles multiplied by frequency; its work does not grow with the filter",
                   "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const Support fits = gpu::fits(p), serves = fft_serves(p, "gpu", 24);
    if (!fits.yes) return fits;
    if (!serves.yes) return serves;
    const DeviceInfo& device = target.device;
    if (product_tile(device) == nullptr)
      return Support::declined("a block has too few threads for any tile of the product");
    std::string why = fft_errs_too_much(p);
    for (const Size size : kTable) {
      if (!admitted(p, size)) continue;
      why = limit(Tiles(p, size, device), device);
      if (why.empty()) return Support::supported();
    }
    return Support::declined(why);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Size size : kTable) {
      const Tiles tiles(p, size, target.device);
      if (admitted(p, size) && limit(tiles, target.device).empty())
        all.push_back(candidate_of(tiles, target.device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }

  static Maker maker(const Size& size) {
    return [size](const Problem& p, const Target& target) {
      if (fits(p, size)) return candidate_of(Tiles(p, size, target.device), target.device);
      throw Error(Status::bad_problem, "fft_gpu/" + config_name(size) + " does not compute " + to_string(p) +
                                           ": the filter is at most 3/4 of a tile");
    };
  }

  static Candidate candidate_of(const Tiles& t, const DeviceInfo& device) {
    const int spread = t.edge.side - 1;
    Candidate c;
    c.config = config_name(t.edge);
    c.cost = {predicted_ms(t, device), Bound::bytes};
    c.workspace_bytes = t.workspace_bytes();
    c.packed_bytes = t.packed_bytes();
    c.accuracy = {growth(t.problem, t.edge), spread, spread, false};
    c.recipe = [t, &device] { return recipe(t, device); };
    c.maker = maker(t.edge);
    return c;
  }

  static Recipe recipe(const Tiles& t, const DeviceInfo& device) {
    const Problem& p = t.problem;
    const std::string kernel = "fft_gpu/" + config_name(t.edge);
    const Problem bare = gpu::without_epilogue(p);
    Problem floats = bare;
    floats.dtype = DType::f32;
    const jit::Source input = source("fft_input", bare, t, kernel, device),
                      output = source("fft_output", p, t, kernel, device),
                      product = gpu::product_source(device, kernel, floats, t.product,
                                                    gpu::ProductResult::matrix, gpu::VectorsAlong::pixels);
    const auto blocks = [&](i64 count, i64 channels) {
      return gpu::grid(ceil_div(count, t.tiles_a_block()), channels, 1, t.threads());
    };
    const gpu::Sizes z = gpu::sizes(p);
    gpu::Sizes each_frequency = z;
    each_frequency.groups = static_cast<std::int32_t>(t.frequencies);
    const Slot inputs = Place::workspace, results{Place::workspace, t.result_at()};
    Recipe recipe;
    recipe.workspace_bytes = t.workspace_bytes();
    recipe.packed_bytes = t.packed_bytes();
    recipe.packing = packing_of(p);
    recipe.pack.push_back(launch("transform filter", source("fft_filter", bare, t, kernel, device),
                                 blocks(t.outs, t.ins),
                                 {in(Place::w), out(Place::packed), gpu::number(t.filter_pitch), value(z)}));
    for (i64 first = 0; first < t.all; first += t.batch) {
      const i64 tiles = std::min(t.batch, t.all - first);
      recipe.steps.push_back(launch("transform tiles", input, blocks(tiles, t.ins),
                                    {in(gpu::gathered_place(p)), out(inputs), gpu::number(first),
                                     gpu::number(tiles), gpu::number(t.pitch), value(z)}));
      gpu::Product each{Place::packed,  inputs,  results,    2 * t.ins,
                        t.filter_pitch, t.pitch, 2 * t.outs, tiles};
      each.pitch_out = t.pitch;
      recipe.steps.push_back(gpu::product_step(product, t.product, each, each_frequency));
      recipe.steps.push_back(
          launch("transform back", output, blocks(tiles, t.outs),
                 {in(results), out(result_place(p)), in(Place::bias), in(Place::residual), in(Place::slopes),
                  gpu::number(first), gpu::number(tiles), gpu::number(t.pitch), value(z)}));
    }
    return recipe;
  }

  static jit::Source source(const char* entry, const Problem& p, const Tiles& t, const std::string& kernel,
                            const DeviceInfo& device) {
    return gpu::source(device, kernel, "fft.cl", entry,
                       gpu::constants(p, {gpu::direction_constant(p),
                                          {"LOG_T", std::to_string(t.edge.log())},
                                          {"TILES", std::to_string(t.tiles_a_block())},
                                          {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                                          {"THREADS", std::to_string(t.threads())}}));
  }
};

}  // namespace
}  // namespace fft_gpu

std::unique_ptr<Algorithm> make_fft_gpu() { return std::make_unique<fft_gpu::FftGpu>(); }

}  // namespace faltung
