// What depthwise kernels take: timed on small problems, and reckoned from that for others.
#include "src/algorithms/cpu_rates_depthwise.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kTallFilter = 7;  // rows

// As the kernels choose among what they were compiled for.
DepthwiseTaps taps_of(const DepthwisePass& pass, const Slide& rows, const Slide& columns) {
  const auto adjacent = [](const Slide& s) { return s.spacing == 1 || s.taps == 1; };
  const bool odd = columns.taps == 3 || columns.taps == 5;
  bool known, tall = false;
  if (pass.problem.layout == Layout::nhwc) {
    known =
        pass.multiplier == 1 && adjacent(columns) && (columns.stride == 1 || (columns.stride == 2 && odd));
  } else {
    known = pass.planes() == 1 && adjacent(rows) && odd && rows.taps == columns.taps && rows.stride <= 2;
    tall = pass.planes() == 1 && rows.spacing == 1 && rows.stride == 1 && rows.taps >= kTallFilter;
  }
  return known ? DepthwiseTaps::known : tall ? DepthwiseTaps::tall : DepthwiseTaps::any;
}

// Vectors of outputs that are computed, those that go beyond an end among them.
double vectors_of(const DepthwisePass& pass, const Slide& rows, const Slide& columns) {
  const i64 lanes = brgemm_lanes(), n = pass.problem.n;
  if (pass.problem.layout == Layout::nhwc)
    return static_cast<double>(n * rows.count * columns.count * ceil_div(pass.out_channels, lanes));
  // A row is in one vector, or in pairs of them.
  const i64 row = columns.count <= lanes ? 1 : 2 * ceil_div(columns.count, 2 * lanes);
  return static_cast<double>(n * pass.out_channels * rows.count * row);
}

// Of the reduction, for a vector of outputs: padding is skipped in nhwc, in nchw it is staged as zeros.
double steps_of(const DepthwisePass& pass, const Slide& rows, const Slide& columns) {
  const double outputs = static_cast<double>(rows.count) * static_cast<double>(columns.count);
  const double taps = pass.problem.layout == Layout::nhwc ? taps_inside(rows) * taps_inside(columns) / outputs
                                                          : static_cast<double>(rows.taps * columns.taps);
  return taps * static_cast<double>(pass.planes());
}

// Visits what each pair of slides is: how many vectors, of how many steps each, by which code.
template <class Visit>
void each_slide_pair(const DepthwisePass& pass, const Visit& visit) {
  for (const Slide& rows : pass.rows) {
    for (const Slide& columns : pass.columns) {
      visit(vectors_of(pass, rows, columns), steps_of(pass, rows, columns), taps_of(pass, rows, columns));
    }
  }
}

struct VectorTime {
  double ns, steps;
};

// Of a vector of outputs with a filter of so many rows and columns.
VectorTime time_vector(Layout layout, i64 filter, i64 dilation) {
  Problem p;
  p.layout = layout;
  p.c = p.k = p.groups = 32, p.h = 14, p.w = 28, p.r = p.s = filter;
  p.dilation_h = p.dilation_w = dilation;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = (filter - 1) / 2 * dilation;
  const DepthwisePass pass = make_depthwise_pass(p);
  const std::vector<float> in(static_cast<std::size_t>(p.c * p.h * p.w)),
      packed(depthwise_packed_bytes(pass) / sizeof(float));
  std::vector<float> out(in.size());
  std::vector<std::byte> scratch(depthwise_scratch_bytes(pass));
  const DepthwiseTensors tensors{in.data(), out.data(), packed.data(), nullptr, nullptr};
  double best = INFINITY, vectors = 0, steps = 0;
  for (int run = 0; run < 4; ++run) {  // what else the machine does only adds to the fastest
    const auto begin = std::chrono::steady_clock::now();
    depthwise_run(pass, tensors, scratch.data(), 0, 1);
    best = std::min(
        best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  each_slide_pair(pass, [&](double some, double each, DepthwiseTaps) { vectors += some, steps = each; });
  return {best / vectors, steps};
}

// Of a step's input where neighbouring output channels do not lie on neighbouring input channels: lanes are
// loaded one by one and pass through memory, in so many cycles beside the arithmetic.
double gather_ns(const DepthwisePass& pass) {
  constexpr double kThroughMemory = 20, kLane = 2;
  if (pass.problem.layout != Layout::nhwc || pass.multiplier == 1) return 0;
  const auto lanes = static_cast<double>(std::min<i64>(brgemm_lanes(), pass.out_channels));
  return (kThroughMemory + kLane * lanes) * cycle_ns();
}

}  // namespace

std::array<TileTime, kDepthwiseKernels> measure_depthwise() {
  constexpr i64 kSmall = 3, kLarge = 5;
  std::array<TileTime, kDepthwiseKernels> times{};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    for (const DepthwiseTaps taps : {DepthwiseTaps::known, DepthwiseTaps::any, DepthwiseTaps::tall}) {
      const bool tall = taps == DepthwiseTaps::tall;
      if (tall && layout == Layout::nhwc) continue;
      const i64 dilation = taps == DepthwiseTaps::any ? 2 : 1, small = tall ? kTallFilter : kSmall;
      const VectorTime few = time_vector(layout, small, dilation),
                       many = time_vector(layout, tall ? small + 4 : kLarge, dilation);
      // At least half of what the smaller takes is its taps'.
      const double step = std::max((many.ns - few.ns) / (many.steps - few.steps), 0.5 * few.ns / few.steps);
      times[depthwise_kernel(layout, taps)] = {step, std::max(0.0, few.ns - few.steps * step)};
    }
  }
  return times;
}

double depthwise_ns(const DepthwisePass& pass) {
  const double gather = gather_ns(pass);
  double ns = 0;
  each_slide_pair(pass, [&](double vectors, double steps, DepthwiseTaps taps) {
    ns += vectors * (depthwise_time(pass.problem.layout, taps).of(steps) + steps * gather);
  });
  return ns;
}

}  // namespace faltung
