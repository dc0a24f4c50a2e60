// The convolution as a matrix product on AMD's matrix units: MFMA of CDNA 2 and later, WMMA of RDNA 3 and 4;
// on RDNA 2, which has none, by products of two halves (dot2). Through OpenCL on NVIDIA's since Ampere
// (mma.sync).
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gathered_product.hpp"
#include "src/algorithms/implicit_gemm_matrix.hpp"
#include "src/algorithms/implicit_gemm_mma.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace implicit_gemm_matrix_gpu {
namespace {

using i64 = std::int64_t;

constexpr int kMostSplits = 64;
constexpr int kWideLocalBytes = 96 << 10;  // see nvidia_features.hpp
using matrix::kChunkBytes, matrix::Unit, matrix::unit_of;

constexpr Unit kUnits[] = {{"mfma", 64, 8, 2, 8, 32, 1, 72},
                           {"wmma", 32, 2, 0, 16, 0, 2, 40},
                           {"wmma12", 32, 4, 0, 8, 0, 1, 40},
                           {"dot2", 32, 2, 0, 32, 0, 6, 40, true},
                           {"mma_ptx", 32, 8, 4, 32, 64, 1, 40, false, 4}};

// A block's pixels and channels, its waves along each, and the chunks of a row of a tile of the sum.
struct Tile {
  int pixels, channels, waves_p, waves_c, chunks;
  gpu::AmdRegisters amd;  // none: not for AMD's
  int nvidia;             // registers of a thread
  double gflops;          // of a multiprocessor that such blocks fill, 16-bit
  int most_stages = 4;
  // Rows of 128 bytes take more local memory than NVIDIA's OpenCL says there is.
  bool is_wide() const { return chunks == 8; }
  int steps(DType dtype) const { return chunks * kChunkBytes / size_of(dtype); }
  int threads(const Unit& unit) const { return unit.wave * waves_p * waves_c; }
  int stage_bytes() const { return chunks * (pixels + channels) * kChunkBytes; }
  int local_bytes() const { return 2 * stage_bytes(); }
  int stages(const Unit& unit, const DeviceInfo& device) const {
    const int room = is_wide() ? kWideLocalBytes : static_cast<int>(device.local_bytes);
    return std::clamp(room / stage_bytes(), 2, std::min(unit.stages, most_stages));
  }
  // Pairs are multiplied out of registers, which with more results of a lane would not suffice.
  bool serves(const Unit& unit, const DeviceInfo& device) const {
    return (!unit.pairs || pixels * channels / threads(unit) <= 64) && (unit.is_nvidia() || amd.rdna > 0) &&
           (is_wide() ? device.has("wide_local") : matrix::fits(*this, unit, device));
  }
  template <class Name>
  void spell(Name& name) {
    name.key("bt", pixels, channels);
    name.key("wp", waves_p, waves_c);
    name.optional("ck", 4, chunks);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 2, 2, 4, {256, 160}, 255, 2990}, {128, 128, 4, 2, 4, {208, 112}, 168, 2160},
    {128, 64, 2, 2, 4, {232, 128}, 168, 2620},  {64, 128, 2, 2, 4, {232, 128}, 168, 2800},
    {64, 64, 2, 2, 4, {160, 96}, 128, 2400},    {64, 32, 2, 1, 4, {200, 96}, 128, 1800},
    {128, 64, 2, 1, 4, {}, 255, 2500},          {64, 128, 1, 2, 4, {}, 255, 2500},
    {128, 128, 2, 2, 8, {}, 255, 2990, 3},      {128, 128, 4, 2, 8, {}, 168, 2160, 3},
    {128, 64, 2, 2, 8, {}, 168, 2620, 3},       {64, 128, 2, 2, 8, {}, 168, 3000, 3},
    {64, 64, 2, 2, 8, {}, 128, 2580},
};
constexpr TileTable<Tile> kTable("implicit_gemm_matrix_gpu", kTiles, kMostSplits);
using Choice = TileChoice<Tile>;

i64 chunk(const Problem& p) { return kChunkBytes / size_of(p.dtype); }
// Whether the steps of a pixel are no whole chunks in memory.
bool gathers(const Problem& p) {
  return p.layout == Layout::nchw || gpu::gathered_product(p).in % chunk(p) != 0;
}
// Whether a filter's row is one tap, because a pixel's few channels would leave most of a chunk empty: it
// lies together in memory.
bool gathers_rows(const Problem& p) {
  constexpr i64 kMostRows = 32;  // a word has a bit for each
  return gathers(p) && p.layout == Layout::nhwc && p.direction == Direction::forward && p.groups == 1 &&
         p.s > 1 && p.dilation_w == 1 && p.c <= chunk(p) / 2 && p.r <= kMostRows;
}
// The problem whose constants and sizes the kernels are given, but for the sizes of the image and the result.
Problem with_taps(Problem p) {
  if (gathers_rows(p)) p.c *= std::exchange(p.s, 1);
  return p;
}
gpu::Sizes sizes(const Problem& p) {
  gpu::Sizes sizes = gpu::sizes(p);
  if (gathers_rows(p)) sizes.group_c = static_cast<std::int32_t>(p.s * p.c);
  return sizes;
}
i64 in_steps(const Problem& p) { return gpu::gathered_product(with_taps(p)).in; }
i64 in_chunks(const Problem& p) { return ceil_div(in_steps(p), chunk(p)); }
i64 out_pad(const Problem& p, const Tile& t) { return round_up(gpu::gathered_product(p).out, t.channels); }
i64 packed_elements(const Problem& p, i64 pad) {
  return p.groups * p.r * with_taps(p).s * in_chunks(p) * pad * chunk(p);
}

// Whether a lane's results leave it as whole chunks.
bool whole_runs(const Problem& p, const Unit& unit) {
  return unit.is_nvidia() && p.layout == Layout::nhwc && gpu::gathered_product(p).out % chunk(p) == 0;
}

// Of the sum, of the phase that has the most.
i64 tiles_of_sum(const Problem& p, const Tile& t) {
  const bool forward = p.direction == Direction::forward;
  const i64 taps = forward ? p.r * with_taps(p).s : ceil_div(p.r, p.stride_h) * ceil_div(p.s, p.stride_w);
  return taps * ceil_div(in_chunks(p), t.chunks);
}

i64 blocks_of(const Problem& p, const Tile& t) { return gpu::blocks_of(p, t.pixels, t.channels); }

std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  std::vector<Choice> choices;
  for (const int splits : gpu::splits_of(p, blocks_of(p, t), tiles_of_sum(p, t), device))
    choices.push_back({&t, splits});
  return choices;
}

// The matrix units' part of what bounds a tile of the sum, as AssemblyCounts has it: a wave's products beside
// what brings their operands, or all waves' traffic in local memory.
double matrix_share(const Tile& t, const Unit& unit, DType dtype) {
  constexpr double kSchedulers = 4, kBytesACycle = 128;
  const double rows = t.pixels / t.waves_p, columns = t.channels / t.waves_c;
  const double matrix =
      rows * columns / 256 * t.chunks * (dtype == DType::f32 ? unit.cycles_32 : unit.cycles_16);
  const double read = (rows + columns) * unit.copies,
               written = static_cast<double>(t.pixels + t.channels) / (t.waves_p * t.waves_c);
  const double local = kSchedulers * (read + written) * t.chunks * kChunkBytes / kBytesACycle;
  return matrix / std::max(matrix + unit.vector_cycles, local);
}

// On NVIDIA's: implicit_gemm_mma_gpu's model, whose tiles of the sum have eight chunks.
double predicted_nvidia_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0012, kLeastMs = 0.00048, kUnitGbps = 22, kExchangeGbps = 40;
  const Tile& t = *c.tile;
  const Unit& unit = *unit_of(device);
  const int units = std::max(1, device.units), threads = t.threads(unit);
  const int local = t.stages(unit, device) * t.stage_bytes() + device.unit.block_reserved;
  const int room = device.unit.known() ? std::max(1, device.unit.blocks(threads, t.nvidia, local)) : 1;
  const mma::Rounds rounds = {ceil_div(blocks_of(p, t) * c.splits, units),
                              room,
                              ceil_div(tiles_of_sum(p, t) * t.chunks, 8 * c.splits),
                              t.pixels * t.channels,
                              t.gflops,
                              kLeastMs,
                              gathers(p) ? 2.0 : 1.0};
  const double bytes_ms = min_bytes(p) / (kUnitGbps * units) * 1e-6;
  const double exchanged = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, c.splits));
  return kLaunchMs + std::max(rounds.ms(p.dtype), bytes_ms) + exchanged / (kExchangeGbps * units) * 1e-6;
}

double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  if (unit_of(device)->is_nvidia()) return predicted_nvidia_ms(p, c, device);
  constexpr double kLaunchMs = 0.002, kUnitGbps = 30;
  const Tile& t = *c.tile;
  const Unit& unit = *unit_of(device);
  const gpu::GatheredProduct g = gpu::gathered_product(p);
  // What is computed beyond the edges is lost, and so are units without a block.
  const double useful =
      static_cast<double>(g.pixels) * static_cast<double>(g.out) * static_cast<double>(in_steps(p)) /
      (static_cast<double>(round_up(g.pixels, t.pixels)) * static_cast<double>(out_pad(p, t)) *
       static_cast<double>(ceil_div(in_chunks(p), t.chunks) * t.steps(p.dtype)));
  const double of_unit = static_cast<double>(blocks_of(p, t) * c.splits) / std::max(1, device.units);
  const double busy =
      std::min(1.0, of_unit) * of_unit /
      std::max(1.0, static_cast<double>(ceil_div(blocks_of(p, t) * c.splits, std::max(1, device.units))));
  const double share =
      useful * matrix_share(t, unit, p.dtype) * std::max(busy, 1e-3) * (gathers(p) ? 0.5 : 1);
  const double sum_ms = matrix::product_ms(p, t, share, device);
  if (c.splits == 1) return sum_ms;
  const double exchanged = 2.0 * static_cast<double>(gpu::parts_bytes(p, c.splits));
  return sum_ms + kLaunchMs + exchanged / (kUnitGbps * device.units) * 1e-6;
}

class ImplicitGemmMatrixGpu : public Algorithm {
 public:
  ImplicitGemmMatrixGpu()
      : Algorithm({"implicit_gemm_matrix_gpu",
                   "a matrix product on the matrix units of AMD's GPUs (MFMA, WMMA), or by products of pairs "
                   "(dot2); through OpenCL on NVIDIA's since Ampere (mma.sync)",
                   "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const Unit* const unit = unit_of(target.device);
    if (unit == nullptr)
      return Support::declined(
          "needs an AMD GPU with matrix units, or with dot2, and a compiler that takes their builtins, or "
          "through OpenCL an NVIDIA GPU of compute capability 8.0 or higher");
    if (unit->is_nvidia() && (p.math == Math::f32 || (p.dtype == DType::f32 && p.math != Math::tf32))) {
      return Support::declined(
          "the matrix units take f16, bf16 and tf32 operands, less than f32 math promises");
    }
    if (unit->is_nvidia() && p.direction == Direction::backward_weights)
      return Support::declined("backward_weights on NVIDIA's matrix units is CUDA's alone");
    if (unit->pairs && p.dtype != DType::f16)
      return Support::declined("the chip has no matrix units, and multiplies pairs of f16 alone");
    if (unit->pairs && p.direction == Direction::backward_weights)
      return Support::declined("backward_weights needs matrix units, which the chip has not");
    if (p.dtype == DType::f32 && unit->gain_32 == 0)
      return Support::declined("the chip's matrix units take f16 and bf16, no f32");
    const Support product = gpu::fits_a_product(p);
    if (!product.yes) return product;
    // What a buffer instruction reaches.
    constexpr i64 kMostBytes = i64{1} << 31;
    const bool packs = p.direction != Direction::backward_weights;
    if (packs && std::none_of(std::begin(kTiles), std::end(kTiles),
                              [&](const Tile& t) { return t.serves(*unit, target.device); }))
      return gpu::no_tile_fits(target.device);
    const i64 bytes =
        std::max({bytes_of(p, x_shape(p)), bytes_of(p, conv_shape(p)),
                  packs ? packed_elements(p, out_pad(p, kTiles[0])) * size_of(p.dtype) : i64{0}});
    if (bytes >= kMostBytes)
      return Support::declined(
          fmt::format("a tensor of {} bytes: a buffer has at most {}", bytes, kMostBytes));
    return packs ? gpu::fits_a_grid(p, 32) : matrix::weights::supports(p, target.device);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    if (p.direction == Direction::backward_weights) return matrix::weights::list(p, target.device);
    std::vector<Candidate> all;
    for (const Tile& t : kTable) {
      if (!t.serves(*unit_of(target.device), target.device)) continue;
      for (const Choice& c : choices(p, t, target.device)) all.push_back(candidate_of(p, c, target.device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction direction) const override {
    return direction == Direction::backward_weights ? matrix::weights::parse(config)
                                                    : gpu::maker(candidate_of, kTable.parse(config));
  }

  static Candidate candidate_of(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    Candidate c = gpu::gathered_candidate(p, choice, predicted_ms(p, choice, device),
                                          packed_bytes(p, out_pad(p, *choice.tile)));
    c.registers = unit_of(device)->is_nvidia() ? choice.tile->nvidia : choice.tile->amd.on(device.unit);
    c.recipe = [p, choice, &device] { return recipe(p, choice, device); };
    c.maker = gpu::maker(candidate_of, choice);
    return c;
  }

  static std::size_t packed_bytes(const Problem& p, i64 pad) {
    return static_cast<std::size_t>(packed_elements(p, pad) * size_of(p.dtype));
  }

  static Recipe recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    const Unit& unit = *unit_of(device);
    const std::string kernel = "implicit_gemm_matrix_gpu/" + choice.name();
    const bool split = choice.splits > 1;
    const gpu::GatheredProduct g = gpu::gathered_product(p);
    const i64 pad = out_pad(p, tile);
    const auto n = [](i64 value) { return std::to_string(value); };
    const gpu::Constants own = {gpu::direction_constant(p),
                                {"COMPACT", "0"},
                                {std::string("MATRIX_") + unit.feature, "1"},
                                {"BP", n(tile.pixels)},
                                {"BC", n(tile.channels)},
                                {"WAVES_P", n(tile.waves_p)},
                                {"WAVES_C", n(tile.waves_c)},
                                {"CHUNKS", n(tile.chunks)},
                                {"EXACT", in_chunks(p) % tile.chunks == 0 ? "1" : "0"},
                                {"WHOLE", in_steps(p) % chunk(p) == 0 ? "1" : "0"},
                                {"GATHER", gathers(p) ? "1" : "0"},
                                {"ROWS", gathers_rows(p) ? "1" : "0"},
                                {"SPLIT", split ? "1" : "0"},
                                {"STAGES", n(tile.stages(unit, device))},
                                {"WHOLE_RUNS", whole_runs(p, unit) ? "1" : "0"},
                                {"THREADS", n(tile.threads(unit))}};
    constexpr int kPackThreads = 64;
    gpu::PackedWeights weights = {
        packed_bytes(p, pad),
        launch("pack weights",
               gpu::source(device, kernel, "pack_chunks.cl", "pack_chunks",
                           gpu::constants(
                               gpu::without_epilogue(with_taps(p)),
                               {gpu::direction_constant(p), {"COMPACT", "0"}, {"THREADS", n(kPackThreads)}})),
               gpu::one_dimension(packed_elements(p, pad), kPackThreads),
               {in(Place::w), out(Place::packed), gpu::number(pad), value(sizes(p))})};
    const gpu::GatheredLaunch launched = {pad, choice.splits,
                                          gpu::grid(ceil_div(g.pixels, tile.pixels), pad / tile.channels,
                                                    g.products * choice.splits, tile.threads(unit)),
                                          sizes(p)};
    Recipe recipe = gpu::gathered_recipe(
        p, kernel,
        gpu::source(device, kernel, "implicit_gemm_matrix.cl", "implicit_gemm_matrix",
                    gpu::constants(with_taps(split ? gpu::without_epilogue(p) : p), own)),
        launched, std::move(weights), device);
    if (!gathers(p) || whole_runs(p, unit)) recipe.alignment = kChunkBytes;
    return recipe;
  }
};

}  // namespace
}  // namespace implicit_gemm_matrix_gpu

const matrix::Unit* matrix::unit_of(const DeviceInfo& device) {
  for (const Unit& unit : implicit_gemm_matrix_gpu::kUnits) {
    if (device.has(unit.feature)) return &unit;
  }
  return nullptr;
}

std::unique_ptr<Algorithm> make_implicit_gemm_matrix_gpu() {
  return std::make_unique<implicit_gemm_matrix_gpu::ImplicitGemmMatrixGpu>();
}

}  // namespace faltung
