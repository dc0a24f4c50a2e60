// Squeeze-excite on a GPU (kernels/gpu/gate.cl): which channels and pixels a block takes.
#include <fmt/core.h>

#include <algorithm>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

constexpr i64 kMostLanes = 16;

}  // namespace

std::vector<faltung::Step> gate_steps(const GateCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  int v = neighbours(call.channels, is_half(call.x) || is_half(call.y));
  while (call.x_pitch % v != 0 || call.y_pitch % v != 0) v /= 2;
  const i64 units = call.channels / v, across = ceil_div(units, kMostLanes), lanes = ceil_div(units, across);
  // So many blocks that all units have several, each with some pixels a thread.
  constexpr i64 kBlocksOfUnit = 5, kLeast = 4;
  const i64 rows = kDeviceThreads / lanes;
  const i64 wanted = ceil_div(kBlocksOfUnit * std::max(1, device.units), call.images * across);
  const i64 parts = std::clamp<i64>(wanted, 1, ceil_div(call.pixels, kLeast * rows));
  const i64 pixels = ceil_div(call.pixels, parts);
  const bool wide = is_wide(call.images * call.pixels * std::max(call.x_pitch, call.y_pitch));

  gpu::Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                        {"BLOCKS", std::to_string(kBlocksOfUnit)},
                        {"MOST_LANES", std::to_string(kMostLanes)},
                        {"IMAGE_TYPE", name(call.x)},
                        {"SQUEEZED_TYPE", name(call.squeezed)},
                        {"WEIGHT_TYPE", name(call.weight)},
                        {"RESULT_TYPE", name(call.y)},
                        {"V", std::to_string(v)},
                        {"WIDE", wide ? "1" : "0"},
                        {"IMAGE", call.image_register == 0 ? "v0" : "v1"},
                        {"GATE", call.image_register == 0 ? "v1" : "v0"},
                        {"SECOND(x)", instruction_text(call.second, "x", "x", "x")}};
  if (call.first) {
    own.push_back({"HAS_LAYER", "1"});
    own.push_back({"MOST_HIDDEN", std::to_string(kMostGateHidden)});
    own.push_back({"FIRST(x)", instruction_text(*call.first, "x", "x", "x")});
  }
  const gpu::Constants chain = chain_constants(2, call.program, call.y);
  own.insert(own.end(), chain.begin(), chain.end());
  std::vector<StepArgument> arguments;
  for (const Slot& slot : slots.reads) arguments.push_back(in(slot));
  arguments.push_back(out(slots.write));
  for (const i64 number :
       {call.channels, call.hidden, call.pixels, pixels, lanes, call.x_pitch, call.y_pitch})
    arguments.push_back(value(number));
  return {launch("gate", gpu::source(device, "gate", "gate.cl", "gate", own),
                 gpu::grid(call.images, across, ceil_div(call.pixels, pixels), kDeviceThreads),
                 std::move(arguments))};
}

}  // namespace faltung::network
