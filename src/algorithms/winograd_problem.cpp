#include "src/algorithms/winograd_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "kernels/cpu/winograd.hpp"

namespace faltung {
namespace {

// What docs/error_bounds.md derives for F(m, 3), from its matrices.
struct Amplification {
  // The most that a tile's intermediate values add up to, relative to the products' magnitude.
  double worst;
  // The root mean square of the same for inputs and taps that are independent and of mean zero.
  double typical;
};

template <int m>
Amplification amplification() {
  using W = WinogradMatrices<m>;
  constexpr int a = m + 2;
  double worst = 0, typical = 0;
  for (int o = 0; o < m; ++o) {
    double squares = 0, sums[3] = {};
    for (int i = 0; i < a; ++i) {
      double b_sum = 0, b_square = 0, g_square = 0;
      for (int l = 0; l < a; ++l) b_sum += std::abs(W::b[i][l]), b_square += W::b[i][l] * W::b[i][l];
      for (int r = 0; r < 3; ++r) {
        g_square += W::g[i][r] * W::g[i][r];
        sums[r] += std::abs(W::a[o][i] * W::g[i][r]) * b_sum;
      }
      squares += W::a[o][i] * W::a[o][i] * b_square * g_square;
    }
    worst = std::max({worst, sums[0], sums[1], sums[2]});
    typical = std::max(typical, squares);
  }
  // The root mean square of normally distributed taps is 1.2533 times their mean magnitude.
  constexpr double kSpreadOfTaps = 1.2533;
  return {worst * worst, typical * kSpreadOfTaps / 9};
}

const Amplification& amplification(int m) {
  static const Amplification two = amplification<2>(), four = amplification<4>();
  return m == 2 ? two : four;
}

std::int64_t channels_summed(const Problem& p) {
  return (p.direction == Direction::backward_data ? p.k : p.c) / p.groups;
}

// The mean square of the share of a dimension's three taps that meet the input, over the outputs that any
// meets.
double taps_met(std::int64_t in, std::int64_t out, std::int64_t pad) {
  std::int64_t reached = 0;
  double squares = 0;
  const std::int64_t inside0 = std::clamp<std::int64_t>(pad, 0, out);
  const std::int64_t inside1 = std::clamp<std::int64_t>(in - 2 + pad, inside0, out);
  const auto edge = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = std::max<std::int64_t>(begin, 0); o < end; ++o) {
      const std::int64_t first = std::max<std::int64_t>(o - pad, 0), last = std::min(o - pad + 3, in);
      if (last <= first) continue;
      const double share = static_cast<double>(last - first) / 3;
      squares += share * share, ++reached;
    }
  };
  edge(pad - 2, inside0), edge(inside1, std::min(out, in + pad));
  const std::int64_t inside = inside1 - inside0;
  return reached + inside == 0
             ? 1
             : (squares + static_cast<double>(inside)) / static_cast<double>(reached + inside);
}

// How much less a chain errs at the image's edges, where it skips taps and the transforms do not.
double edges(const Problem& p) {
  if (p.direction == Direction::backward_data)
    return 1 / std::sqrt(taps_met(p.p(), p.h, 2 - p.pad_top) * taps_met(p.q(), p.w, 2 - p.pad_left));
  return 1 / std::sqrt(taps_met(p.h, p.p(), p.pad_top) * taps_met(p.w, p.q(), p.pad_left));
}

// The roundings beside the sum weigh more the fewer channels there are, and the more of the image is its
// edge. On large images F(2x2) errs 2.0 times as much as a chain at one channel, 1.2 at four, 0.7 at 32;
// F(4x4) 2.3 at 16, 1.9 at 64, 1.7 from 256 on. One filter's errors vary by a fifth: a few do not average
// them out.
double rms_of_chain(const Problem& p, int m) {
  struct Row {
    double edges;           // up to these,
    std::int64_t channels;  // from so many channels on
  };
  static constexpr std::array<Row, 2> kOfTwo = {{{1.5, 4}, {2.3, 16}}}, kOfFour = {{{1.06, 64}, {1.25, 256}}};
  constexpr double kOfFewer = 8;
  constexpr std::int64_t kFewestFilters = 16;
  const std::int64_t filters = p.direction == Direction::backward_data ? p.c : p.k;
  if (m == 4 && filters < kFewestFilters) return kOfFewer;
  for (const Row& row : m == 2 ? kOfTwo : kOfFour) {
    if (edges(p) <= row.edges) return channels_summed(p) < row.channels ? kOfFewer : Accuracy::kAsFp32;
  }
  return kOfFewer;
}

}  // namespace

double winograd_worst_growth(const Problem& p, int m, WinogradRoundings roundings) {
  return amplification(m).worst * static_cast<double>(channels_summed(p) + roundings.of(m));
}

// Eight standard deviations of independent roundings, each uniform within half a unit.
double winograd_typical_growth(const Problem& p, int m, WinogradRoundings roundings) {
  constexpr double kDeviations = 8;
  return kDeviations / std::sqrt(3.0) * amplification(m).typical *
         std::sqrt(static_cast<double>(channels_summed(p) + roundings.of(m)));
}

bool winograd_admitted(const Problem& p, int m, WinogradRoundings roundings) {
  if (p.math == Math::fast) return true;
  return rms_of_chain(p, m) <= Accuracy::kAsFp32 &&
         winograd_typical_growth(p, m, roundings) <= admitted_growth(p);
}

Accuracy winograd_accuracy(const Problem& p, int m, WinogradRoundings roundings) {
  const double growth = p.math == Math::fast ? winograd_worst_growth(p, m, roundings)
                                             : winograd_typical_growth(p, m, roundings);
  Accuracy accuracy{growth, m + 1, m + 1};
  // F(2x2) divides by 2 alone; F(4x4) by powers of 11 and 3, and multiplies with as many bits.
  accuracy.exact_on_integers = m == 2;
  accuracy.rms_of_chain = rms_of_chain(p, m);
  return accuracy;
}

Support winograd_serves(const Problem& p, WinogradRoundings roundings) {
  if (p.direction == Direction::backward_weights) {
    return Support::declined("it computes forward and backward_data, not backward_weights");
  }
  if (p.r != 3 || p.s != 3 || p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 || p.dilation_w != 1) {
    std::string is = fmt::format("{}x{}", p.r, p.s);
    if (p.stride_h != 1 || p.stride_w != 1) is += fmt::format(" stride {}x{}", p.stride_h, p.stride_w);
    if (p.dilation_h != 1 || p.dilation_w != 1) {
      is += fmt::format(" dilation {}x{}", p.dilation_h, p.dilation_w);
    }
    return Support::declined("it needs a 3x3 filter with stride 1 and dilation 1; this is " + is);
  }
  if (winograd_admitted(p, 2, roundings)) return Support::supported();
  if (rms_of_chain(p, 2) > Accuracy::kAsFp32) {
    return Support::declined(fmt::format(
        "with {} channels, on images of this size, it errs more than {:.0f} times as much as a chain of fp32 "
        "multiply-adds; math=fast allows it",
        channels_summed(p), Accuracy::kAsFp32));
  }
  return Support::declined(fmt::format(
      "with {} channels its error may grow to {:.1f} roundings, and math={} admits {:.0f}; "
      "math=fast allows it",
      channels_summed(p), winograd_typical_growth(p, 2, roundings), name(p.math), admitted_growth(p)));
}

}  // namespace faltung
