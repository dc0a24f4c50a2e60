#include "src/algorithms/winograd_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "kernels/cpu/winograd.hpp"

namespace faltung {
namespace {

// What docs/accuracy.md derives for F(m, 3), from its matrices.
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

// The roundings beside the sum weigh more the fewer channels there are, and the fewer of the nine taps meet a
// pixel: a chain skips the others, the transforms do not. F(2x2) errs 1.1 times as much as a chain at 5
// channels, 2.0 at one; on images of one or two pixels 2.1 at 8, 1.8 at 32. F(4x4) errs 3.3 times as much at
// 4, 2.0 at 32, 1.8 at 64, 1.6 from 256 on, and a fifth more on images of eight.
double rms_of_chain(const Problem& p, int m) {
  constexpr double kOfFewer = 8;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const bool data = p.direction == Direction::backward_data;
  const std::int64_t side = std::min(data ? p.y_h() : p.h, data ? p.y_w() : p.w);
  // Images of at least so many pixels a side want at least so many channels.
  struct Least {
    std::int64_t side, channels;
  };
  static constexpr std::array<Least, 3> kOfF2 = {{{8, 2}, {3, 4}, {0, 32}}};
  static constexpr std::array<Least, 3> kOfF4 = {{{8, 64}, {4, 256}, {0, kNone}}};
  const auto& all = m == 2 ? kOfF2 : kOfF4;
  const auto least = std::find_if(all.begin(), all.end() - 1, [&](const Least& l) { return side >= l.side; });
  return channels_summed(p) < least->channels ? kOfFewer : Accuracy::kAsFp32;
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
