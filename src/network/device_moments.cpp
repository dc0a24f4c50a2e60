// The moments of groups of channels on a GPU (kernels/gpu/moments.cl): which blocks sum what.
#include <algorithm>
#include <numeric>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// How an image is cut: of NHWC a row is a pixel, else V elements of a group's run of memory.
struct Cut {
  int v;
  i64 lanes;  // of a block, of NHWC: V channels each
  i64 units;  // blocks beside each other: columns of lanes in an image, or groups
  i64 rows, chunk, chunks;
  bool direct;  // a block has all of its groups: nothing remains to be met
};

// So many blocks that all units have several, each with some rows a thread.
constexpr i64 kBlocksOfUnit = 4, kLeastRows = 4;

i64 chunk_of(i64 rows, i64 threads, i64 blocks, const DeviceInfo& device) {
  const i64 wanted = ceil_div(kBlocksOfUnit * std::max(1, device.units), blocks);
  return ceil_div(rows, std::clamp<i64>(wanted, 1, std::max<i64>(1, rows / (kLeastRows * threads))));
}

Cut planes(const MomentsCall& c, const DeviceInfo& device) {
  Cut cut{};
  const i64 length = c.channels / c.groups * c.pixels;
  cut.v = neighbours(std::gcd(length, c.pitch * c.pixels), is_half(c.x));
  cut.lanes = 1, cut.units = c.groups, cut.rows = length / cut.v;
  cut.chunk = chunk_of(cut.rows, kDeviceThreads, c.images * c.groups, device);
  cut.chunks = ceil_div(cut.rows, cut.chunk), cut.direct = cut.chunks == 1;
  return cut;
}

Cut pixels(const MomentsCall& c, const DeviceInfo& device) {
  constexpr i64 kMostLanes = 16, kDirect = 1 << 15;  // elements of a block that are read at once
  Cut cut{};
  cut.v = neighbours(std::gcd(c.channels, c.pitch), is_half(c.x));
  cut.rows = c.pixels;
  // Whole groups, where a block can have all of their pixels.
  const i64 of_groups = std::lcm(c.channels / c.groups, i64{cut.v}) / cut.v;
  cut.direct = of_groups <= kDeviceThreads && of_groups * cut.v * c.pixels <= kDirect;
  if (cut.direct) {
    cut.lanes = of_groups * std::max<i64>(1, std::min(kMostLanes, kDirect / (cut.v * c.pixels)) / of_groups);
    cut.units = ceil_div(c.channels / cut.v, cut.lanes);
    cut.chunk = c.pixels, cut.chunks = 1;
    return cut;
  }
  cut.units = ceil_div(c.channels / cut.v, kMostLanes), cut.lanes = ceil_div(c.channels / cut.v, cut.units);
  cut.chunk = chunk_of(c.pixels, kDeviceThreads / cut.lanes, c.images * cut.units, device);
  cut.chunks = ceil_div(cut.rows, cut.chunk);
  return cut;
}

Cut cut_of(const MomentsCall& c, const DeviceInfo& device) {
  return c.layout == Layout::nhwc ? pixels(c, device) : planes(c, device);
}

// Means and squares about them, of every chunk's units.
std::size_t parts_bytes(const MomentsCall& c, const Cut& cut) {
  const i64 units = c.layout == Layout::nhwc ? c.channels : c.groups;
  return static_cast<std::size_t>(2 * c.images * cut.chunks * units) * sizeof(float);
}

faltung::Step finish(const MomentsCall& c, const Cut& cut, Slot parts, Slot to, const DeviceInfo& device) {
  constexpr int kThreads = 128;
  const bool nhwc = c.layout == Layout::nhwc;
  const i64 units = nhwc ? c.channels / c.groups : 1;
  return launch("moments",
                gpu::source(device, "moments", "moments.cl", "moments",
                            {{"THREADS", std::to_string(kThreads)},
                             {"X_TYPE", "f32"},
                             {"FINISH", "1"},
                             {"V", "1"},
                             {"WIDE", is_wide(2 * c.images * cut.chunks * units * c.groups) ? "1" : "0"}}),
                gpu::grid(c.images * c.groups, 1, 1, kThreads),
                {in(parts), out(to), value(c.images), value(c.channels), value(c.groups), value(units),
                 value(cut.chunks), value(cut.rows), value(cut.chunk), value(nhwc ? i64{1} : i64{cut.v}),
                 value(c.epsilon)});
}

}  // namespace

std::size_t moments_workspace(const MomentsCall& call, const DeviceInfo& device) {
  const Cut cut = cut_of(call, device);
  return cut.direct ? 0 : parts_bytes(call, cut);
}

std::vector<faltung::Step> moments_steps(const MomentsCall& call, const DeviceSlots& slots,
                                         const DeviceInfo& device) {
  const Cut cut = cut_of(call, device);
  const bool nhwc = call.layout == Layout::nhwc;
  const i64 image = call.pitch * call.pixels;
  std::vector<StepArgument> arguments{in(slots.reads[0]), out(cut.direct ? slots.write : slots.workspace),
                                      value(call.images), value(call.channels),
                                      value(call.groups), value(nhwc ? call.pitch : image),
                                      value(cut.chunks),  value(cut.rows),
                                      value(cut.chunk)};
  if (nhwc) arguments.push_back(value(cut.lanes));
  arguments.push_back(value(call.epsilon));
  std::vector<faltung::Step> steps{
      launch("moments",
             gpu::source(device, "moments", "moments.cl", "moments",
                         {{"THREADS", std::to_string(kDeviceThreads)},
                          {"X_TYPE", name(call.x)},
                          {"PLANES", nhwc ? "0" : "1"},
                          {"DIRECT", cut.direct ? "1" : "0"},
                          {"V", std::to_string(cut.v)},
                          {"WIDE", is_wide(call.images * image) ? "1" : "0"}}),
             nhwc ? gpu::grid(call.images * cut.chunks, cut.units, 1, kDeviceThreads)
                  : gpu::grid(call.images * cut.units * cut.chunks, 1, 1, kDeviceThreads),
             std::move(arguments))};
  if (!cut.direct) steps.push_back(finish(call, cut, slots.workspace, slots.write, device));
  return steps;
}

}  // namespace faltung::network
