#include "kernels/cpu/depthwise.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cpu/with_dtype.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// The first input that any tap of any slide needs, and one past the last of the first `steps` outputs.
Range inputs(const std::vector<Slide>& slides, i64 steps) {
  Range needed{0, 1};
  bool any = false;
  for (const Slide& s : slides) {
    if (s.taps == 0) continue;
    const i64 end = (std::min(steps, s.count) - 1) * s.stride + s.origin + (s.taps - 1) * s.spacing + 1;
    needed = any ? Range{std::min(needed.begin, s.origin), std::max(needed.end, end)} : Range{s.origin, end};
    any = true;
  }
  return needed;
}

DepthwiseStage make_stage(const DepthwisePass& pass) {
  // Both scratches together should leave some of a 32 to 48 KB first-level cache to what streams through.
  constexpr i64 kFloats = 8192;
  constexpr i64 kSlack = 256;  // what the widest vectors may touch beyond the end
  constexpr i64 kBlock = 7;    // rows that the kernels compute at a time, at most
  const i64 steps = pass.rows.front().count, stride = pass.rows.front().stride;
  DepthwiseStage stage;
  const Range columns = inputs(pass.columns, pass.columns.front().count);
  stage.left = columns.begin, stage.columns = columns.end - columns.begin;
  stage.phases = pass.columns.front().stride;
  stage.phase = round_up(stage.columns, 16 * stage.phases) / stage.phases;
  stage.pitch = stage.phase * stage.phases;
  const Range one = inputs(pass.rows, 1);
  const i64 reach = one.end - one.begin, out_pitch = pass.out_w;
  const i64 fit =
      (kFloats - reach * stage.pitch * pass.planes()) / (stride * stage.pitch * pass.planes() + out_pitch);
  const i64 strips = ceil_div(steps, std::max<i64>(kBlock, fit));
  stage.strip = strips == 1 ? steps : round_up(ceil_div(steps, strips), 4);
  const Range rows = inputs(pass.rows, stage.strip);
  stage.top = rows.begin, stage.rows = rows.end - rows.begin;
  stage.plane = (stage.rows + (kBlock - 1) * stride) * stage.pitch;
  stage.in_size = stage.plane * pass.planes() + kSlack;
  stage.out_size = stage.strip * out_pitch + kSlack;
  for (const Slide& s : pass.columns) {
    for (i64 j = 0; j < s.taps; ++j) {
      const i64 at = s.origin + j * s.spacing - stage.left;
      stage.offsets.push_back(at % stage.phases * stage.phase + at / stage.phases);
    }
  }
  return stage;
}

// The filter of one channel in and one out has the same order in both layouts.
std::vector<i64> packed_order(const DepthwisePass& pass) {
  const Problem& p = pass.problem;
  std::vector<i64> order;
  for (const Slide& rows : pass.rows) {
    for (const Slide& columns : pass.columns) {
      for (i64 plane = 0; plane < pass.planes(); ++plane) {
        for (i64 i = 0; i < rows.taps; ++i) {
          for (i64 j = 0; j < columns.taps; ++j) {
            order.push_back((plane * p.r + rows.tap + i * rows.tap_step) * p.s + columns.tap +
                            j * columns.tap_step);
          }
        }
      }
    }
  }
  return order;
}

// The passes of groups of channels, as pixels.
std::vector<DepthwisePass> turned_passes(const Problem& p) {
  std::vector<DepthwisePass> passes;
  for (const i64 channels : {std::min(p.c, kDepthwiseGroup), p.c % kDepthwiseGroup}) {
    if (channels == 0 || (!passes.empty() && channels == passes.front().in_channels)) continue;
    Problem group = p;
    group.layout = Layout::nhwc, group.dtype = DType::f32;
    group.n = 1, group.c = group.k = group.groups = channels;
    group.epilogue = {}, group.affine = Affine::none;
    passes.push_back(make_depthwise_pass(group));
  }
  return passes;
}

}  // namespace

DepthwisePass make_depthwise_pass(const Problem& p, DepthwiseWay way) {
  DepthwisePass pass;
  pass.problem = p;
  pass.multiplier = p.k / p.c;
  if (p.direction == Direction::forward) {
    pass.rows = forward_slides(p.h, p.p(), p.r, p.stride_h, p.dilation_h, p.pad_top);
    pass.columns = forward_slides(p.w, p.q(), p.s, p.stride_w, p.dilation_w, p.pad_left);
    pass.in_channels = p.c, pass.in_h = p.h, pass.in_w = p.w;
    pass.out_channels = p.k, pass.out_h = p.p(), pass.out_w = p.q();
  } else {
    pass.rows = backward_slides(p.p(), p.h, p.r, p.stride_h, p.dilation_h, p.pad_top);
    pass.columns = backward_slides(p.q(), p.w, p.s, p.stride_w, p.dilation_w, p.pad_left);
    pass.in_channels = p.k, pass.in_h = p.p(), pass.in_w = p.q();
    pass.out_channels = p.c, pass.out_h = p.h, pass.out_w = p.w;
  }
  pass.column_taps = 0;
  for (const Slide& columns : pass.columns) pass.column_taps += columns.taps;
  if (p.layout == Layout::nchw) pass.stage = make_stage(pass);
  pass.order = packed_order(pass);
  if (way == DepthwiseWay::turned) pass.turned = turned_passes(p);
  return pass;
}

// An odd number of pads: taps a page apart would share a few lines of the first-level cache.
i64 depthwise_padded_channels(const DepthwisePass& pass) {
  return (ceil_div(pass.out_channels, kDepthwiseGroup) | 1) * kDepthwiseGroup;
}

std::size_t depthwise_packed_bytes(const DepthwisePass& pass) {
  const Problem& p = pass.problem;
  const i64 channels = !pass.turned.empty()       ? round_up(pass.out_channels, kDepthwiseGroup)
                       : p.layout == Layout::nhwc ? depthwise_padded_channels(pass)
                                                  : pass.out_channels;
  // Every tap belongs to one slide.
  return static_cast<std::size_t>(channels * pass.planes() * p.r * p.s) * sizeof(float);
}

void depthwise_pack(const DepthwisePass& pass, const void* w, float* packed, int worker, int workers) {
  const Problem& p = pass.problem;
  const std::vector<i64>& order = pass.order;
  const i64 taps = static_cast<i64>(order.size()), filter = pass.planes() * p.r * p.s;
  with_dtype(p.dtype, [&](auto type) {
    const auto value = [&](i64 channel, i64 tap) { return load_element(type, w, channel * filter + tap); };
    if (p.layout == Layout::nchw) {
      const bool turned = !pass.turned.empty();
      constexpr i64 kGroup = kDepthwiseGroup;
      const i64 channels = turned ? round_up(pass.out_channels, kGroup) : pass.out_channels;
      const Range part = share(channels, worker, workers);
      for (i64 channel = part.begin; channel < part.end; ++channel) {
        const i64 first = turned ? channel / kGroup * kGroup * filter + channel % kGroup : channel * filter;
        for (i64 i = 0; i < taps; ++i) {
          packed[first + i * (turned ? kGroup : 1)] =
              channel < pass.out_channels ? value(channel, order[static_cast<std::size_t>(i)]) : 0;
        }
      }
      return;
    }
    // A tap of some channels at a time, which are whole lines where they are written.
    const i64 channels = depthwise_padded_channels(pass);
    const Range part = share(channels / kDepthwiseGroup, worker, workers);
    for (i64 first = part.begin * kDepthwiseGroup; first < part.end * kDepthwiseGroup;
         first += kDepthwiseGroup) {
      const i64 there = std::clamp<i64>(pass.out_channels - first, 0, kDepthwiseGroup);
      for (i64 i = 0; i < taps; ++i) {
        float* const to = packed + i * channels + first;
        const i64 tap = order[static_cast<std::size_t>(i)];
        for (i64 c = 0; c < there; ++c) to[c] = value(first + c, tap);
        std::fill(to + there, to + kDepthwiseGroup, 0.0f);
      }
    }
  });
}

std::size_t depthwise_scratch_bytes(const DepthwisePass& pass) {
  if (pass.problem.layout == Layout::nhwc) return 0;
  if (!pass.turned.empty()) return depthwise_turned_scratch_bytes(pass);
  return static_cast<std::size_t>(pass.stage.in_size + pass.stage.out_size) * sizeof(float);
}

void depthwise_run(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch, int worker,
                   int workers) {
  if (pass.problem.layout == Layout::nhwc) {
    depthwise_nhwc(pass, tensors, nullptr, worker, workers);
  } else if (!pass.turned.empty()) {
    depthwise_turned(pass, tensors, scratch, worker, workers);
  } else {
    depthwise_nchw(pass, tensors, scratch, worker, workers);
  }
}

}  // namespace faltung
