// Winograd's minimal filtering for 3x3 filters: F(2x2, 3x3) and F(4x4, 3x3) in fp32, natively in both
// layouts. The error bounds are derived in docs/accuracy.md.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include <fmt/core.h>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/winograd_driver.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/winograd_problem.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// docs/accuracy.md counts them.
constexpr WinogradRoundings kRoundings{8, 14};

// -------------------------------------------------------------------------------------------- configs

// F(m x m, 3 x 3) with blocks of at most that many tiles; 0: all tiles at once.
struct Choice {
  int m;
  i64 block;
};

std::string text(const Choice& c) {
  return fmt::format("f{}x{}_{}", c.m, c.m, c.block == 0 ? "all" : fmt::format("t{}", c.block));
}

Choice parse(const std::string& config) {
  Choice c{};
  const std::string_view rest(config);
  if (rest.starts_with("f2x2_") || rest.starts_with("f4x4_")) {
    c.m = rest[1] - '0';
    const std::string_view block = rest.substr(5);
    if (block == "all") return c;
    const char* end = block.data() + block.size();
    if (block.starts_with("t") && std::from_chars(block.data() + 1, end, c.block).ptr == end && c.block > 0 &&
        c.block <= 4096) {
      return c;
    }
  }
  throw Error(Status::bad_problem,
              "winograd_cpu's configs are named f<2x2 or 4x4>_t<tiles in a block, 1 to "
              "4096> or f<2x2 or 4x4>_all, e.g. f4x4_t28; not '" +
                  config + "'");
}

WinogradShape shape_of(const Problem& p, int m) {
  WinogradShape s;
  s.m = m;
  s.dtype = p.dtype;
  s.layout = p.layout;
  s.n = p.n;
  s.h = p.h, s.w = p.w, s.p = p.p(), s.q = p.q();
  s.pad_top = p.pad_top, s.pad_left = p.pad_left;
  s.x_channels = p.c, s.y_channels = p.k;
  if (p.direction == Direction::backward_data) {
    std::swap(s.h, s.p), std::swap(s.w, s.q), std::swap(s.x_channels, s.y_channels);
    s.pad_top = 2 - p.pad_top, s.pad_left = 2 - p.pad_left;
  }
  s.tiles_h = (s.p + m - 1) / m, s.tiles_w = (s.q + m - 1) / m;
  return s;
}

// ----------------------------------------------------------------------------------------------- cost

// Of one core, as measured on a server of 2023 with AVX-512; only the ratios to other algorithms' matter.
constexpr double kClock = 2.5e6;         // cycles a millisecond
constexpr double kProductsShare = 0.88;  // of what the multiply-adds alone would take, in blocks in level 2
constexpr double kBytesPerCycle = 5;     // from the last level of cache
constexpr double kMemoryBytesPerMs = 20e6;  // of all cores
constexpr double kLevel2BytesPerCycle = 64;
constexpr double kLevel2 = 1.75 * (1 << 20);
constexpr double kLastLevel = 16 * (1 << 20);  // what a core has of it, at best

// Cycles for a vector of V or M: loads, arithmetic and stores of both one-dimensional transforms.
struct TransformCycles {
  double input, output;
};
TransformCycles transform_cycles(Layout layout, int m) {
  if (layout == Layout::nhwc) return m == 2 ? TransformCycles{6, 3} : TransformCycles{5.5, 3.3};
  return m == 2 ? TransformCycles{9, 4.5} : TransformCycles{9, 7};
}

double predicted_ms(const Problem& p, const Choice& choice, int threads, const WinogradDriver& driver) {
  const WinogradShape s = shape_of(p, choice.m);
  const double lanes = brgemm_lanes(), positions = s.positions(), groups = static_cast<double>(p.groups);
  const bool nhwc = s.layout == Layout::nhwc, shared = choice.block == 0;
  const double tiles = static_cast<double>(driver.block());
  const double c = static_cast<double>(s.x_channels) / groups, k = static_cast<double>(s.y_channels) / groups;
  const auto whole = [&](double count) { return std::ceil(count / lanes); };

  // One block of one group. Vectors are of channels or of tiles.
  const double c_vectors = nhwc ? whole(c) * tiles : c * whole(tiles);
  const double k_vectors = nhwc ? whole(k) * tiles : k * whole(tiles);
  const TransformCycles transform = transform_cycles(s.layout, choice.m);
  double cycles = positions * k_vectors * c / 2 / kProductsShare;
  cycles += positions * (c_vectors * transform.input + k_vectors * transform.output);
  // U comes from level 2, or from farther where that is too small for it beside V and M; reading ahead hides
  // half of this unless it comes from memory. V and M that do not fit are written and read twice.
  const double u_bytes = 4 * positions * c * k, v_bytes = 4 * positions * lanes * (c_vectors + k_vectors);
  const double per_worker = 4 * static_cast<double>(driver.workspace_floats()) / (shared ? 1 : threads);
  cycles += u_bytes / kLevel2BytesPerCycle;
  if (u_bytes + per_worker > kLevel2) {
    cycles += u_bytes / kBytesPerCycle / (u_bytes > kLastLevel || shared ? 1 : 2);
  }
  constexpr double kBeside = 1 << 20;  // what fits beside everything else; twice that does not fit at all
  const double misses = std::clamp(per_worker / kBeside - 1, 0.0, 1.0);
  cycles += 3 * v_bytes / kBytesPerCycle * (shared && misses > 0 ? 1 : misses);

  const double blocks = shared ? 1 : std::ceil(static_cast<double>(s.tiles()) / tiles);
  const double rounds = shared ? groups / threads : std::ceil(blocks * groups / threads);
  return cycles * rounds / kClock + min_bytes(p) / kMemoryBytesPerMs / 2;
}

// ------------------------------------------------------------------------------------------ algorithm

class WinogradCpu : public Algorithm {
 public:
  std::string_view name() const override { return "winograd_cpu"; }
  std::string_view description() const override {
    return "3x3 filters by F(2x2,3x3) or F(4x4,3x3): 2.25 or 4 times fewer multiplications";
  }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem& p, const Target&) const override { return winograd_serves(p, kRoundings); }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> all;
    const bool nchw = p.layout == Layout::nchw;
    for (const int m : {2, 4}) {
      if (!winograd_admitted(p, m, kRoundings)) continue;
      i64 before = 0;
      for (const i64 block : nchw ? std::vector<i64>{32, 64, 128, 0} : std::vector<i64>{14, 28, 56, 112, 0}) {
        const Choice choice{m, block};
        const WinogradDriver driver(shape_of(p, m), p.groups, block, target.threads);
        if (block != 0 && driver.block() == before) continue;  // fewer tiles than either asks for
        before = driver.block();
        const std::size_t workspace = static_cast<std::size_t>(driver.workspace_floats()) * sizeof(float);
        constexpr std::size_t kMostShared = std::size_t{64} << 20;
        if (block == 0 && workspace > kMostShared) continue;
        all.push_back(
            {text(choice), predicted_ms(p, choice, target.threads, driver), "arithmetic", workspace});
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return all;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    const Choice choice = parse(config);
    const auto driver =
        std::make_shared<const WinogradDriver>(shape_of(p, choice.m), p.groups, choice.block, target.threads);
    const bool backward = p.direction == Direction::backward_data;
    Recipe recipe;
    recipe.packed_bytes = static_cast<std::size_t>(driver->packed_floats()) * sizeof(float);
    recipe.workspace_bytes = static_cast<std::size_t>(driver->workspace_floats()) * sizeof(float);
    recipe.pack.push_back({"filter transform", [=](const Invocation& i) {
                             driver->pack(i.tensors.w, backward, reinterpret_cast<float*>(i.packed),
                                          *i.stream.parallel);
                           }});
    recipe.steps.push_back({"winograd", [=, epilogue = p.epilogue](const Invocation& i) {
                              WinogradTensors t;
                              t.x = backward ? i.tensors.y : i.tensors.x;
                              t.y = backward ? i.tensors.x : i.tensors.y;
                              t.bias = epilogue.bias ? i.tensors.bias : nullptr;
                              t.residual = epilogue.residual ? i.tensors.residual : nullptr;
                              t.activation = epilogue.activation;
                              t.slope = epilogue.slope;
                              t.pool = epilogue.pool.kind;
                              driver->run(t, reinterpret_cast<const float*>(i.packed),
                                          reinterpret_cast<float*>(i.workspace), *i.stream.parallel);
                            }});
    return recipe;
  }

  // A tile holds whole windows of 2x2 at stride 2.
  bool fuses_pool(const Problem& p, const std::string&) const override {
    const Pool& pool = p.epilogue.pool;
    return pool.size_h == 2 && pool.size_w == 2 && pool.stride_h == 2 && pool.stride_w == 2 &&
           pool.pad_top == 0 && pool.pad_bottom == 0 && pool.pad_left == 0 && pool.pad_right == 0;
  }

  Accuracy accuracy(const Problem& p, const std::string& config) const override {
    return winograd_accuracy(p, parse(config).m, kRoundings);
  }

  int integer_weight_unit(const Problem&, const std::string& config) const override {
    return winograd_weight_unit(parse(config).m);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_winograd_cpu() { return std::make_unique<WinogradCpu>(); }

}  // namespace faltung
