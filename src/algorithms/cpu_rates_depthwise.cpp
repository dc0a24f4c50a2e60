// What depthwise kernels take: timed on small problems, and reckoned from that for others.
#include "src/algorithms/cpu_rates_depthwise.hpp"

#include <algorithm>
#include <vector>

#include "src/algorithms/fastest_ns.hpp"
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

// Of the fastest of a few runs on one core, its data in the second-level cache.
double time_run(const DepthwisePass& pass) {
  const Problem& p = pass.problem;
  const std::vector<float> in(static_cast<std::size_t>(p.c * p.h * p.w)),
      packed(depthwise_packed_bytes(pass) / sizeof(float));
  std::vector<float> out(in.size());
  std::vector<std::byte> scratch(depthwise_scratch_bytes(pass));
  const DepthwiseTensors tensors{in.data(), out.data(), packed.data(), nullptr, nullptr};
  return fastest_ns(3, [&] { depthwise_run(pass, tensors, scratch.data(), 0, 1); });
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
  double vectors = 0, steps = 0;
  each_slide_pair(pass, [&](double some, double each, DepthwiseTaps) { vectors += some, steps = each; });
  return {time_run(pass) / vectors, steps};
}

// Of a plane of so many rows and columns that is turned to pixels, or back, with half of the one multiply-add
// between for each vector.
double time_turn(i64 size) {
  Problem p;
  p.layout = Layout::nchw;
  p.c = p.k = p.groups = kDepthwiseGroup, p.h = p.w = size, p.r = p.s = 1;
  return time_run(make_depthwise_pass(p, DepthwiseWay::turned)) / (2 * kDepthwiseGroup);
}

// Of a step's input where neighbouring output channels do not lie on neighbouring input channels: lanes are
// loaded one by one and pass through memory, in so many cycles beside the arithmetic.
double gather_ns(const DepthwisePass& pass) {
  constexpr double kThroughMemory = 20, kLane = 2;
  if (pass.problem.layout != Layout::nhwc || pass.multiplier == 1) return 0;
  const auto lanes = static_cast<double>(std::min<i64>(brgemm_lanes(), pass.out_channels));
  return (kThroughMemory + kLane * lanes) * cycle_ns();
}

double turned_ns(const DepthwisePass& pass) {
  double image = 0;  // as pixels
  for (const DepthwisePass& group : pass.turned) {
    const bool whole = group.out_channels == kDepthwiseGroup;
    image += depthwise_ns(group) * static_cast<double>(whole ? pass.out_channels / kDepthwiseGroup : 1);
  }
  const double in = static_cast<double>(pass.in_h * pass.in_w),
               out = static_cast<double>(pass.out_h * pass.out_w);
  const TileTime turn = depthwise_turn_time();
  const double planes = static_cast<double>(pass.out_channels);
  const double turns = planes * (turn.of(in) + turn.of(out)), images = static_cast<double>(pass.problem.n);
  const double pixel_bytes = sizeof(float) * (in + out);
  if (kDepthwiseGroup * pixel_bytes <= static_cast<double>(cpu_caches().level1))
    return images * (image + turns);
  // Pixels that the first-level cache does not hold come from the second-level one, behind what is fetched.
  return images * (kMemoryBesideOthers * (image + turns) + planes * pixel_bytes * near_byte_ns());
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
  constexpr i64 kFew = 7, kMany = 14;
  constexpr double kFewFloats = kFew * kFew, kManyFloats = kMany * kMany;
  const double few = time_turn(kFew), many = time_turn(kMany);
  const double step = std::max((many - few) / (kManyFloats - kFewFloats), 0.5 * few / kFewFloats);
  times[kDepthwiseTurn] = {step, std::max(0.0, few - kFewFloats * step)};
  return times;
}

double depthwise_ns(const DepthwisePass& pass) {
  if (!pass.turned.empty()) return turned_ns(pass);
  const double gather = gather_ns(pass);
  double ns = 0;
  each_slide_pair(pass, [&](double vectors, double steps, DepthwiseTaps taps) {
    ns += vectors * (depthwise_time(pass.problem.layout, taps).of(steps) + steps * gather);
  });
  return ns;
}

}  // namespace faltung
