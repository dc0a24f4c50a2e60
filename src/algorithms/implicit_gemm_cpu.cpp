// Implicit GEMM: the convolution as a product of matrices of which the larger is never built. The filter's
// taps are offsets into the input, and a register tile sums over all of them.

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/brgemm_amx.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "src/algorithms/implicit_gemm_bands.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_weights.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct NamedTile {
  std::string name;
  TileShape shape;
};

// Best first for problems large enough that a tile's shape alone matters.
std::vector<NamedTile> named_tiles() {
  std::vector<NamedTile> tiles;
  for (const int vectors : {2, 3, 4, 1}) {
    const int rows = brgemm_max_rows(vectors);
    tiles.push_back({"m" + std::to_string(rows) + "n" + std::to_string(vectors), {rows, vectors}});
  }
  return tiles;
}

// The config that stands for AMX's tile registers.
constexpr const char* kAmx = "amx32x32";

TileShape parse_tile(const std::string& config) {
  std::vector<std::string> names;
  for (const NamedTile& tile : named_tiles()) {
    if (tile.name == config) return tile.shape;
    names.push_back(tile.name);
  }
  names.push_back(kAmx);
  throw Error(Status::bad_problem,
              "implicit_gemm_cpu has no config '" + config + "'; the nearest is " + nearest(config, names));
}

using Parts = std::vector<std::shared_ptr<const ImplicitGemmPart>>;

bool fits_amx(const Problem& p) {
  return p.dtype == DType::bf16 && p.layout == Layout::nhwc && p.direction != Direction::backward_weights &&
         amx_usable();
}

// Whether config is AMX's; throws if it is and does not fit.
bool is_amx(const Problem& p, const std::string& config) {
  if (config != kAmx) return false;
  if (fits_amx(p)) return true;
  throw Error(
      Status::bad_problem,
      "implicit_gemm_cpu/amx32x32 needs fwd or bwd_d in bf16, nhwc and a processor with AMX; force another "
      "config for " +
          to_string(p));
}

Parts make_parts(const Problem& p, const std::string& config, const std::optional<PoolBands>& bands,
                 int threads) {
  const bool amx = is_amx(p, config);
  const TileShape tile = amx ? TileShape{} : parse_tile(config);
  if (bands) threads = 0;  // a band is one worker's
  Parts parts;
  for (const TapConvolution& convolution :
       bands ? std::vector<TapConvolution>{bands->convolution()} : tap_convolutions(p)) {
    if (amx) {
      parts.push_back(make_amx_tiles(p, convolution, threads));
      continue;
    }
    parts.push_back(p.layout == Layout::nhwc ? make_channel_lanes(p, convolution, tile, threads)
                                             : make_pixel_lanes(p, convolution, tile, threads));
  }
  return parts;
}

std::optional<PoolBands> make_bands(const Problem& p, int threads) {
  if (p.epilogue.pool.kind == PoolKind::none) return std::nullopt;
  return PoolBands::make(p, threads);
}

// A recipe's memory: each part's packed weights, the bias as floats, each worker's scratch.
struct Memory {
  std::vector<std::size_t> packed;  // where each part's begin
  std::size_t packed_bytes = 0, bias_bytes = 0, scratch_bytes = 0;
  std::size_t band = 0;  // where a band begins in a worker's scratch
  std::size_t workspace_bytes(int threads) const {
    return bias_bytes + scratch_bytes * static_cast<std::size_t>(threads);
  }
};

Memory lay_out(const Problem& p, const Parts& parts, const std::optional<PoolBands>& bands) {
  Memory memory;
  for (const auto& part : parts) {
    memory.packed.push_back(memory.packed_bytes);
    memory.packed_bytes += aligned(static_cast<std::size_t>(part->packed_floats()) * 4);
    memory.scratch_bytes = std::max(memory.scratch_bytes, aligned(part->scratch_bytes()));
  }
  if (bands) memory.band = memory.scratch_bytes, memory.scratch_bytes += aligned(bands->bytes());
  if (p.epilogue.bias && p.dtype != DType::f32)
    memory.bias_bytes = aligned(static_cast<std::size_t>(p.k) * 4);
  return memory;
}

// Runs body(part, item) for all items of all parts.
template <class Count, class Body>
void for_items(const Parallel& parallel, const Parts& parts, const Count& count, const Body& body) {
  i64 total = 0;
  for (const auto& part : parts) total += count(*part);
  parallel.each(total, [&](i64 index, int worker) {
    std::size_t part = 0;
    while (index >= count(*parts[part])) index -= count(*parts[part]), ++part;
    body(part, index, worker);
  });
}

std::size_t workspace_bytes(const WeightsGradient& gradient, int threads) {
  return aligned(gradient.partial_bytes()) +
         aligned(gradient.scratch_bytes()) * static_cast<std::size_t>(threads);
}

Recipe weights_recipe(const Problem& p, TileShape tile, int threads) {
  const auto gradient = std::make_shared<const WeightsGradient>(p, tile, threads);
  Recipe recipe;
  recipe.workspace_bytes = workspace_bytes(*gradient, threads);
  const auto scratch = [gradient](const Invocation& invocation, int worker) {
    return invocation.workspace + aligned(gradient->partial_bytes()) +
           static_cast<std::size_t>(worker) * aligned(gradient->scratch_bytes());
  };
  recipe.steps.push_back({"implicit_gemm", [gradient, scratch](const Invocation& invocation) {
                            const Tensors& tensors = invocation.tensors;
                            float* const partial = reinterpret_cast<float*>(invocation.workspace);
                            invocation.stream.parallel->each(gradient->items(), [&](i64 item, int worker) {
                              gradient->run(item, tensors.x, tensors.y, tensors.w,
                                            scratch(invocation, worker), partial);
                            });
                          }});
  if (!gradient->has_partial_sums()) return recipe;
  recipe.steps.push_back({"reduce", [gradient, scratch](const Invocation& invocation) {
                            const float* const partial = reinterpret_cast<float*>(invocation.workspace);
                            invocation.stream.parallel->each(gradient->blocks(), [&](i64 block, int worker) {
                              gradient->reduce(block, invocation.tensors.w, scratch(invocation, worker),
                                               partial);
                            });
                          }});
  return recipe;
}

class ImplicitGemmCpu : public Algorithm {
 public:
  std::string_view name() const override { return "implicit_gemm_cpu"; }
  std::string_view description() const override {
    return "matrix product over the filter's taps, without building the matrix";
  }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem&, const Target&) const override { return Support::supported(); }
  bool fuses_pool(const Problem& p, const std::string&) const override {
    return make_bands(p, 0).has_value();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    std::vector<std::string> names;
    for (const NamedTile& tile : named_tiles()) names.push_back(tile.name);
    if (fits_amx(p)) names.push_back(kAmx);
    for (const std::string& name : names) {
      constexpr std::size_t kMostScratch = std::size_t{4} << 20;  // of a worker; what implicit GEMM promises
      double cycles = 0;
      Config config;
      config.name = name;
      if (p.direction == Direction::backward_weights) {
        const WeightsGradient gradient(p, parse_tile(name), target.threads);
        cycles = gradient.cycles();
        config.workspace_bytes = workspace_bytes(gradient, target.threads);
      } else {
        const std::optional<PoolBands> bands = make_bands(p, target.threads);
        const Parts parts = make_parts(p, name, bands, target.threads);
        const Memory memory = lay_out(p, parts, bands);
        if (name == kAmx && memory.scratch_bytes > kMostScratch) continue;
        for (const auto& part : parts) cycles += part->cycles();
        if (bands) cycles *= static_cast<double>(bands->count());
        config.workspace_bytes = memory.workspace_bytes(target.threads);
      }
      // At a clock and a rate of memory that are usual: only the ratio matters.
      const double arithmetic = cycles / 2.5e6 / target.threads, bytes = min_bytes(p) / 15e6;
      config.predicted_ms = std::max(arithmetic, bytes) + 0.002;
      config.bound_by = arithmetic > bytes ? "arithmetic" : "bytes";
      configs.push_back(config);
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    if (p.direction == Direction::backward_weights && !is_amx(p, config)) {
      return weights_recipe(p, parse_tile(config), target.threads);
    }
    const std::optional<PoolBands> bands = make_bands(p, target.threads);
    const Parts parts = make_parts(p, config, bands, target.threads);
    const Memory memory = lay_out(p, parts, bands);
    Recipe recipe;
    recipe.packed_bytes = memory.packed_bytes;
    recipe.workspace_bytes = memory.workspace_bytes(target.threads);
    recipe.pack.push_back({"pack", [parts, memory](const Invocation& invocation) {
                             for_items(
                                 *invocation.stream.parallel, parts,
                                 [](const ImplicitGemmPart& part) { return part.pack_items(); },
                                 [&](std::size_t part, i64 item, int) {
                                   std::byte* to = invocation.packed + memory.packed[part];
                                   parts[part]->pack(item, invocation.tensors.w,
                                                     reinterpret_cast<float*>(to));
                                 });
                           }});
    if (bands) {
      recipe.steps.push_back({"implicit_gemm and pool",
                              [=](const Invocation& i) { run_bands(p, *bands, *parts.front(), memory, i); }});
      return recipe;
    }
    recipe.steps.push_back(
        {"implicit_gemm", [p, parts, memory](const Invocation& i) { run(p, parts, memory, i); }});
    return recipe;
  }

 private:
  // The tensors of a run, with the bias as floats.
  static PartCall make_call(const Problem& p, const Invocation& invocation) {
    const Tensors& tensors = invocation.tensors;
    PartCall shared;
    shared.in = p.direction == Direction::forward ? tensors.x : tensors.y;
    shared.out = p.direction == Direction::forward ? tensors.y : tensors.x;
    if (p.epilogue.residual) shared.residual = tensors.residual;
    if (p.epilogue.bias) {
      shared.bias = static_cast<const float*>(tensors.bias);
      if (p.dtype != DType::f32) {
        float* const bias = reinterpret_cast<float*>(invocation.workspace);
        convert_to_float(p.dtype, tensors.bias, bias, p.k);
        shared.bias = bias;
      }
    }
    return shared;
  }

  static void run(const Problem& p, const Parts& parts, const Memory& memory, const Invocation& invocation) {
    const PartCall shared = make_call(p, invocation);
    std::byte* const scratch = invocation.workspace + memory.bias_bytes;
    for_items(
        *invocation.stream.parallel, parts, [](const ImplicitGemmPart& part) { return part.items(); },
        [&](std::size_t part, i64 item, int worker) {
          PartCall call = shared;
          call.packed = reinterpret_cast<const float*>(invocation.packed + memory.packed[part]);
          call.scratch = scratch + static_cast<std::size_t>(worker) * memory.scratch_bytes;
          parts[part]->run(item, call);
        });
  }

  static void run_bands(const Problem& p, const PoolBands& bands, const ImplicitGemmPart& part,
                        const Memory& memory, const Invocation& invocation) {
    const PartCall shared = make_call(p, invocation);
    const TensorShape x = x_shape(p), conv = conv_shape(p);
    const std::int64_t bytes = size_of(p.dtype);
    std::byte* const scratch = invocation.workspace + memory.bias_bytes;
    invocation.stream.parallel->each(bands.count(), [&](std::int64_t index, int worker) {
      const Band band = bands.band(index);
      PartCall call = shared;
      call.in = static_cast<const std::byte*>(shared.in) + x.offset(band.image, 0, 0, 0) * bytes;
      if (shared.residual != nullptr) {
        call.residual = static_cast<const std::byte*>(shared.residual) +
                        conv.offset(band.image, 0, band.conv_row, 0) * bytes;
      }
      call.packed = reinterpret_cast<const float*>(invocation.packed);
      call.scratch = scratch + static_cast<std::size_t>(worker) * memory.scratch_bytes;
      call.out = call.scratch + memory.band;
      call.first_row = band.conv_row;
      for (std::int64_t item = 0; item < part.items(); ++item) part.run(item, call);
      bands.pool(band, call.out, shared.out);
    });
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_cpu() { return std::make_unique<ImplicitGemmCpu>(); }

}  // namespace faltung
