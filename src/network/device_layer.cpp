// Layers of few rows on a GPU (kernels/gpu/layer.cl): how many threads share a result.
#include <algorithm>
#include <bit>

#include "src/network/device_steps.hpp"

namespace faltung::network {

using i64 = std::int64_t;

std::vector<faltung::Step> layer_steps(const LayerCall& call, const DeviceSlots& slots,
                                       const DeviceInfo& device) {
  // As many lanes as rows at least, so that a block has a thread for each of its sums.
  constexpr i64 kLeastLanes = 8, kMostLanes = 32, kMostAhead = 8;  // of runs: 64 floats
  static_assert(kLeastLanes >= kMostLayerRows);
  const int v = neighbours(call.terms, is_half(call.x) || is_half(call.weight));
  const i64 runs = (call.terms + v - 1) / v;
  const i64 lanes =
      std::clamp(static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(runs))), kLeastLanes, kMostLanes);
  const i64 ahead = std::min(kMostAhead, (runs + lanes - 1) / lanes), results = kDeviceThreads / lanes;
  const bool wide = is_wide(std::max({call.results * call.terms, call.rows * call.terms}));
  const gpu::Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                              {"LANES", std::to_string(lanes)},
                              {"ROWS", std::to_string(call.rows)},
                              {"AHEAD", std::to_string(ahead)},
                              {"FROM_TYPE", name(call.x)},
                              {"WEIGHT_TYPE", name(call.weight)},
                              {"TO_TYPE", name(call.y)},
                              {"V", std::to_string(v)},
                              {"WIDE", wide ? "1" : "0"},
                              {"ACTIVATED(x)", instruction_text(call.activation, "x", "x", "x")}};
  return {launch("layer", gpu::source(device, "layer", "layer.cl", "layer", own),
                 gpu::grid((call.results + results - 1) / results, 1, 1, kDeviceThreads),
                 {in(slots.reads[0]), in(slots.reads[1]), in(slots.reads[2]), out(slots.write),
                  value(call.terms), value(call.results)})};
}

}  // namespace faltung::network
