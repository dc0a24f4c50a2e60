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

namespace faltung {
namespace {

using i64 = std::int64_t;

// ------------------------------------------------------------------------------------------- accuracy

// What docs/accuracy.md derives for F(m, 3), from its matrices.
struct Amplification {
  // The most that a tile's intermediate values add up to, relative to the products' magnitude.
  double worst;
  // The root mean square of the same for inputs and taps that are independent and of mean zero.
  double typical;
  int roundings;  // of the transforms, on the way of one value
};

template <int m>
Amplification amplification(int roundings) {
  using W = WinogradMatrices<m>;
  constexpr int a = m + 2;
  double coarse = 0, sharp = 0, typical = 0;
  for (int o = 0; o < m; ++o) {
    double squares = 0;
    for (int i = 0; i < a; ++i) {
      double b = 0, g = 0;
      for (int l = 0; l < a; ++l) b += W::b[i][l] * W::b[i][l];
      for (int r = 0; r < 3; ++r) g += W::g[i][r] * W::g[i][r];
      squares += W::a[o][i] * W::a[o][i] * b * g;
    }
    typical = std::max(typical, squares);
    for (int r = 0; r < 3; ++r) {
      double rows = 0;
      for (int i = 0; i < a; ++i) {
        double b = 0;
        for (int l = 0; l < a; ++l) b += std::abs(W::b[i][l]);
        rows += std::abs(W::a[o][i] * W::g[i][r]) * b;
      }
      coarse = std::max(coarse, rows);
      for (int signs = 0; signs < 1 << a; ++signs) {
        double sum = 0;
        for (int i = 0; i < a; ++i) {
          double v = 0;
          for (int l = 0; l < a; ++l) v += (signs >> l & 1) != 0 ? W::b[i][l] : -W::b[i][l];
          sum += std::abs(W::a[o][i] * W::g[i][r] * v);
        }
        sharp = std::max(sharp, sum);
      }
    }
  }
  // The root mean square of normally distributed taps is 1.2533 times their mean magnitude.
  constexpr double kSpreadOfTaps = 1.2533;
  return {coarse * sharp, typical * kSpreadOfTaps / 9, roundings};
}

const Amplification& amplification(int m) {
  static const Amplification two = amplification<2>(8), four = amplification<4>(14);
  return m == 2 ? two : four;
}

i64 channels_summed(const Problem& p) {
  return (p.direction == Direction::backward_data ? p.k : p.c) / p.groups;
}

// Holds for any data.
double worst_growth(const Problem& p, int m) {
  const Amplification& w = amplification(m);
  return w.worst * static_cast<double>(channels_summed(p) + w.roundings);
}

// Eight standard deviations of independent roundings, each uniform within half a unit.
double typical_growth(const Problem& p, int m) {
  constexpr double kDeviations = 8;
  const Amplification& w = amplification(m);
  return kDeviations / std::sqrt(3.0) * w.typical *
         std::sqrt(static_cast<double>(channels_summed(p) + w.roundings));
}

bool admitted(const Problem& p, int m) {
  return p.math == Math::fast || typical_growth(p, m) <= admitted_growth(p);
}

// -------------------------------------------------------------------------------------------- configs

// F(m x m, 3 x 3) with blocks of that many tiles; 0: all tiles at once.
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

// A core's rates: what its vectors multiply and add at a clock of 2.6 GHz, and bytes from the last level of
// cache.
double core_gflops() { return 2.6 * 4 * brgemm_lanes(); }
constexpr double kCacheGbps = 12;

double predicted_ms(const Problem& p, const Choice& choice, int threads) {
  const WinogradShape s = shape_of(p, choice.m);
  const double positions = s.positions(), tiles = static_cast<double>(s.tiles());
  const double c = static_cast<double>(s.x_channels), k = static_cast<double>(s.y_channels);
  const double groups = static_cast<double>(p.groups), lanes = brgemm_lanes();
  const double whole_c = std::ceil(c / groups / lanes) * lanes * groups;
  const double whole_k = std::ceil(k / groups / lanes) * lanes * groups;
  const double products = positions * tiles * c / groups * (s.layout == Layout::nhwc ? whole_k : k);
  // The transforms: some six operations an element of V and M, loads and stores among them.
  const double transforms = positions * tiles * 6 * (s.layout == Layout::nhwc ? whole_c + whole_k : c + k);
  const double blocks = choice.block == 0 ? 1 : std::ceil(tiles / static_cast<double>(choice.block));
  const double u_bytes = 4 * positions * c * k / groups;
  const double work = (2 * products / 0.85 + 2 * transforms) / (core_gflops() * 1e6) / threads;
  const double filters = choice.block == 0 ? u_bytes / threads : u_bytes * std::ceil(blocks / threads);
  const double streams = u_bytes > (1 << 20) ? filters / (kCacheGbps * 1e6) : 0;
  const double memory = min_bytes(p) / 20e6;
  return std::max(work, streams) + memory;
}

// ------------------------------------------------------------------------------------------ algorithm

class WinogradCpu : public Algorithm {
 public:
  std::string_view name() const override { return "winograd_cpu"; }
  std::string_view description() const override {
    return "3x3 filters by F(2x2,3x3) or F(4x4,3x3): 2.25 or 4 times fewer multiplications";
  }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem& p, const Target&) const override {
    if (p.direction == Direction::backward_weights) {
      return Support::declined("it computes forward and backward_data, not backward_weights");
    }
    if (p.r != 3 || p.s != 3 || p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 ||
        p.dilation_w != 1) {
      std::string is = fmt::format("{}x{}", p.r, p.s);
      if (p.stride_h != 1 || p.stride_w != 1) is += fmt::format(" stride {}x{}", p.stride_h, p.stride_w);
      if (p.dilation_h != 1 || p.dilation_w != 1) {
        is += fmt::format(" dilation {}x{}", p.dilation_h, p.dilation_w);
      }
      return Support::declined("it needs a 3x3 filter with stride 1 and dilation 1; this is " + is);
    }
    if (!admitted(p, 2)) {
      return Support::declined(
          fmt::format("with {} channels its error may grow to {:.1f} roundings, and math={} admits {:.0f}; "
                      "math=fast allows it",
                      channels_summed(p), typical_growth(p, 2), faltung::name(p.math), admitted_growth(p)));
    }
    return Support::supported();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> all;
    const bool nchw = p.layout == Layout::nchw;
    for (const int m : {2, 4}) {
      if (!admitted(p, m)) continue;
      for (const i64 block : nchw ? std::vector<i64>{32, 64, 128, 0} : std::vector<i64>{14, 28, 56, 112, 0}) {
        const Choice choice{m, block};
        const WinogradShape shape = shape_of(p, m);
        if (block > shape.tiles() && block > (nchw ? 32 : 14)) continue;
        const WinogradDriver driver(shape, p.groups, block, target.threads);
        const std::size_t workspace = static_cast<std::size_t>(driver.workspace_floats()) * sizeof(float);
        constexpr std::size_t kMostShared = std::size_t{64} << 20;
        if (block == 0 && workspace > kMostShared) continue;
        all.push_back({text(choice), predicted_ms(p, choice, target.threads), "arithmetic", workspace});
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
                              driver->run(t, reinterpret_cast<const float*>(i.packed),
                                          reinterpret_cast<float*>(i.workspace), *i.stream.parallel);
                            }});
    return recipe;
  }

  Accuracy accuracy(const Problem& p, const std::string& config) const override {
    const int m = parse(config).m;
    return {p.math == Math::fast ? worst_growth(p, m) : typical_growth(p, m), m + 1, m + 1};
  }

  int integer_weight_unit(const Problem&, const std::string& config) const override {
    return parse(config).m == 2 ? 4 : 576;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_winograd_cpu() { return std::make_unique<WinogradCpu>(); }

}  // namespace faltung
