#include "src/algorithms/sm90/phases.hpp"

#include <algorithm>

#include "src/algorithms/sm90/fitted.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/training.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/slide.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

i64 positions(const Problem& p) {
  return std::min(p.stride_d, p.d) * std::min(p.stride_h, p.h) * std::min(p.stride_w, p.w);
}

// One dimension of the engine's view: no phase has more taps or results.
struct Extent {
  i64 taps = 1, spacing = 1, count = 1;
  explicit Extent(const std::vector<Slide>& slides) {
    for (const Slide& s : slides) {
      taps = std::max(taps, s.taps), count = std::max(count, s.count);
      if (s.taps > 1) spacing = s.spacing;
    }
  }
};

Phase phase_of(const Problem& p, const Slide& d, const Slide& h, const Slide& w) {
  Phase phase{};
  phase.taps = d.taps > 0 ? narrow(h.taps * w.taps) : 0, phase.columns = narrow(w.taps);
  phase.tap = narrow((d.tap * p.r + h.tap) * p.s + w.tap);
  phase.tap_down = narrow(h.tap_step * p.s), phase.tap_across = narrow(w.tap_step);
  phase.top = narrow(h.origin), phase.left = narrow(w.origin);
  phase.p = narrow(h.count), phase.q = narrow(w.count);
  phase.h = narrow(h.first), phase.w = narrow(w.first), phase.d = narrow(d.first);
  phase.depth = {narrow(p.z()), narrow(d.count), narrow(-d.origin), 1};
  phase.depths = narrow(d.taps), phase.tap_deep = narrow(d.tap_step * p.r * p.s);
  return phase;
}

// A phase as a forward problem of its own.
Problem alone(const Problem& engine, const Phase& phase) {
  Problem p = engine;
  const bool sums = phase.taps > 0;
  p.s = sums ? phase.columns : 1, p.r = sums ? phase.taps / phase.columns : 1;
  p.t = sums ? phase.depths : 1;
  if (is_volume(p)) p.pad_back = phase.depth.out - (p.d - (p.t - 1) * p.dilation_d);
  p.pad_bottom = phase.p - (p.h - (p.r - 1) * p.dilation_h),
  p.pad_right = phase.q - (p.w - (p.s - 1) * p.dilation_w);
  return p;
}

}  // namespace

Asked as_asked(const Problem& given) {
  Asked asked{given};
  Problem& p = asked.problem;
  if (is_transposed(given)) p = convolution_of(given), p.epilogue = given.epilogue;
  const bool fills = p.stride_w > 1 && p.s == p.stride_w && p.dilation_w == 1 && p.pad_left == 0 &&
                     p.pad_right == 0 && p.w % p.s == 0;
  if (p.direction != Direction::backward_data || p.layout != Layout::nhwc || p.groups > 1 || !fills)
    return asked;
  asked.repeats = p.s;
  p.c *= p.s, p.w /= p.s;
  p.s = p.stride_w = 1;
  return asked;
}

bool has_phases(const Problem& p) {
  return p.direction == Direction::backward_data && (strides(p) || p.stride_d != 1);
}

std::string without_phases(const Problem& p) {
  if (!has_phases(p)) return "it has no strides";
  if (positions(p) < 2 || positions(p) > kMostPhases)
    return "backward_data of strides with 2 to " + std::to_string(kMostPhases) + " positions";
  return "";
}

Phases phases_of(const Problem& p) {
  const auto rows = backward_slides(p.p(), p.h, p.r, p.stride_h, p.dilation_h, p.pad_top);
  const auto columns = backward_slides(p.q(), p.w, p.s, p.stride_w, p.dilation_w, p.pad_left);
  const auto planes = backward_slides(p.z(), p.d, p.t, p.stride_d, p.dilation_d, p.pad_front);
  const Extent deep(planes), down(rows), across(columns);
  Phases phases;
  Problem& e = phases.engine = p;
  e.direction = Direction::forward, e.layout = Layout::nhwc;
  e.c = p.k, e.k = p.c, e.d = p.z(), e.h = p.p(), e.w = p.q();
  e.t = deep.taps, e.r = down.taps, e.s = across.taps;
  e.stride_d = e.stride_h = e.stride_w = 1;
  e.dilation_d = deep.spacing, e.dilation_h = down.spacing, e.dilation_w = across.spacing;
  e.pad_front = e.pad_top = e.pad_left = 0;
  e.pad_back = deep.count - (e.d - (e.t - 1) * e.dilation_d);
  e.pad_bottom = down.count - (e.h - (e.r - 1) * e.dilation_h);
  e.pad_right = across.count - (e.w - (e.s - 1) * e.dilation_w);
  for (const Slide& d : planes) {
    for (const Slide& h : rows) {
      for (const Slide& w : columns) phases.of.push_back(phase_of(p, d, h, w));
    }
  }
  std::stable_sort(phases.of.begin(), phases.of.end(),
                   [](const Phase& a, const Phase& b) { return a.taps * a.depths > b.taps * b.depths; });
  return phases;
}

bool turns_tensors(const Problem& p) { return has_phases(p) && p.layout == Layout::nchw; }

bool reads_whole_gradient(const Problem& p) {
  return p.pad_front <= (p.t - 1) * p.dilation_d && p.pad_back <= (p.t - 1) * p.dilation_d &&
         p.pad_top <= (p.r - 1) * p.dilation_h && p.pad_bottom <= (p.r - 1) * p.dilation_h &&
         p.pad_left <= (p.s - 1) * p.dilation_w && p.pad_right <= (p.s - 1) * p.dilation_w;
}

namespace {

// What the ReLU before gave comes as a residual does.
Problem gated(const Problem& asked, Problem engine) {
  engine.training = asked.training;
  engine.epilogue.residual = engine.epilogue.residual || asked.training == Training::drelu;
  return engine;
}

}  // namespace

Problem engine_problem(const Problem& p) {
  if (has_phases(p)) return phases_of(p).engine;
  if (!is_volume(p)) return gated(p, forward_form(without_training(p)).inner);
  if (p.direction == Direction::forward) return p;
  Problem e = p;
  e.direction = Direction::forward;
  e.c = p.k, e.d = p.z(), e.h = p.p(), e.w = p.q(), e.k = p.c;
  const auto turn = [](i64 extent, i64& before, i64& after) {
    before = extent - before, after = extent - after;
  };
  turn((p.t - 1) * p.dilation_d, e.pad_front, e.pad_back);
  turn((p.r - 1) * p.dilation_h, e.pad_top, e.pad_bottom);
  turn((p.s - 1) * p.dilation_w, e.pad_left, e.pad_right);
  return e;
}

Rewrite packed_weights_of(const Problem& asked) {
  Problem p = planes_below(without_training(asked));
  if (has_phases(p)) {
    p.h = p.p() + p.r - 1, p.w = p.q() + p.s - 1;
    p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
    p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = 0;
  }
  return forward_form(p);
}

std::string unfit(const Tiling& t, const Problem& asked, const Problem& p) {
  const i64 phases = has_phases(asked) ? positions(asked) : 1;
  if (t.phases != phases)
    return "its strides have " + std::to_string(phases) + " positions, the tiling " +
           std::to_string(t.phases);
  if (t.filter_as_it_is() && asked.direction != Direction::backward_data)
    return "wgmma takes the filter of a backward_data as it is";
  if (t.filter_as_it_is() && asked.groups > 1) return "the filter as it is has no groups";
  return unfit(t, p);
}

namespace {

std::vector<Tiling> tilings(const Problem& asked, const Problem& p, const Chip& chip, std::size_t most) {
  std::vector<Tiling> all;
  const bool phased = has_phases(asked);
  for (Tiling t : tilings(p, chip, most)) {
    if (phased) t.phases = narrow(positions(asked));
    Tiling as_it_is = t;
    as_it_is.filter = Filter::as_it_is;
    // Nothing has to be packed then.
    if (asked.direction == Direction::backward_data && unfit(as_it_is, asked, p).empty()) {
      all.push_back(as_it_is);
    } else if (!phased || unfit(t, asked, p).empty()) {  // of one phase it is listed because it fits
      all.push_back(t);
    }
  }
  return all;
}

}  // namespace

std::vector<Tiling> tilings(const Problem& asked, const Problem& p, const Chip& chip) {
  return tilings(asked, p, chip, kAllTilings);
}

bool has_tilings(const Problem& asked, const Problem& p, const Chip& chip) {
  return !tilings(asked, p, chip, 1).empty() || !tilings(asked, p, chip).empty();
}

PhaseOrder phase_order(const std::vector<Phase>& phases) {
  const Phase& a = phases.front();
  const bool alike = std::all_of(phases.begin(), phases.end(), [&](const Phase& b) {
    return a.taps == b.taps && a.depths == b.depths && a.p == b.p && a.q == b.q && a.depth.out == b.depth.out;
  });
  return alike ? PhaseOrder::in_turn : PhaseOrder::most_taps_first;
}

int count_tiles(std::vector<Phase>& phases, const Tiling& t, const Problem& engine) {
  i64 tiles = 0;
  for (Phase& phase : phases) {
    phase.first_tile = narrow(tiles);
    phase.tiles_w = narrow(ceil_div(phase.q, t.width)), phase.tiles_h = narrow(ceil_div(phase.p, t.height));
    tiles += ceil_div(engine.k, t.channels) * engine.n * phase.depth.out * phase.tiles_w * phase.tiles_h;
  }
  return narrow(tiles);
}

// Each phase as if alone, but for what a kernel's beginning costs.
Estimate estimate_phases(const Tiling& tiling, const Problem& asked, const Chip& chip) {
  const Phases phases = phases_of(asked);
  Tiling t = tiling;
  t.phases = 1;
  const double begin = fitted::kLaunch + fitted::kLatency / (fitted::kClock * chip.pace);
  Estimate all;
  all.ms = begin;
  for (const Phase& phase : phases.of) {
    const Problem p = alone(phases.engine, phase);
    if (phase.taps == 0) {
      all.ms += static_cast<double>(output_planes(p) * p.k * phase.p * phase.q * size_of(p.dtype)) /
                (fitted::steps::kZeros * chip.memory);
      continue;
    }
    const Estimate e = estimate(t, p, chip);
    all.ms += std::max(0.0, e.ms - begin);
    if (all.bound == Bound::unknown) all.bound = e.bound;
  }
  if (turns_tensors(asked)) {
    const auto bytes =
        static_cast<double>(bytes_of(asked, x_shape(asked)) + bytes_of(asked, conv_shape(asked)));
    all.ms += 2 * bytes / (fitted::steps::kTurn * chip.memory) + 3 * fitted::kLaunch;
  }
  return all;
}

}  // namespace faltung::sm90
