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
  int v, threads;
  i64 lanes;    // of a block, of NHWC: V channels each
  i64 columns;  // blocks beside each other, of NHWC: columns of lanes in an image
  i64 unit;     // channels that a block sums to one, of NHWC: a whole group's, or each alone
  i64 rows, chunk, chunks;
  bool direct;  // a block has all of its groups: nothing remains to be met
};

// So many blocks that all units have several.
constexpr i64 kBlocksOfUnit = 4;

i64 chunk_of(i64 rows, i64 blocks, const DeviceInfo& device) {
  return ceil_div(rows, ceil_div(kBlocksOfUnit * std::max(1, device.units), blocks));
}

Cut planes(const MomentsCall& c, const DeviceInfo& device) {
  constexpr i64 kLeastRows = 4;  // of a thread
  Cut cut{};
  const i64 length = c.channels / c.groups * c.pixels;
  cut.v = neighbours(std::gcd(length, c.pitch * c.pixels), is_half(c.x));
  cut.threads = kDeviceThreads, cut.lanes = cut.columns = cut.unit = 1, cut.rows = length / cut.v;
  const i64 most = std::max<i64>(1, cut.rows / (kLeastRows * cut.threads));  // chunks
  cut.chunk = std::max(ceil_div(cut.rows, most), chunk_of(cut.rows, c.images * c.groups, device));
  cut.chunks = ceil_div(cut.rows, cut.chunk), cut.direct = cut.chunks == 1;
  return cut;
}

Cut pixels(const MomentsCall& c, const DeviceInfo& device) {
  constexpr i64 kLeastLanes = 4, kMostLanes = 16, kMostOfGroups = 64;
  constexpr i64 kAhead = 4;         // rows that a thread reads at once
  constexpr i64 kDirect = 1 << 15;  // elements of a block
  Cut cut{};
  cut.v = neighbours(std::gcd(c.channels, c.pitch), is_half(c.x));
  cut.rows = c.pixels;
  const i64 size = c.channels / c.groups, vectors = c.channels / cut.v;
  // Lanes of whole groups.
  const i64 of_groups = std::lcm(size, i64{cut.v}) / cut.v;
  const bool is_whole = of_groups <= kMostOfGroups;
  cut.unit = is_whole ? size : 1;
  cut.lanes = std::min(vectors, round_up(kLeastLanes, of_groups));
  cut.direct = is_whole && cut.lanes * cut.v * c.pixels <= kDirect;
  if (cut.direct) {
    cut.threads = device.dialect == "cuda" ? 2 * kDeviceThreads : kDeviceThreads;
    cut.chunk = c.pixels;
  } else {
    cut.threads = kDeviceThreads;
    cut.lanes =
        std::min(vectors, is_whole ? of_groups * std::max<i64>(1, kMostLanes / of_groups) : kMostLanes);
    cut.chunk = round_up(chunk_of(c.pixels, c.images * ceil_div(vectors, cut.lanes), device),
                         kAhead * (cut.threads / cut.lanes));
  }
  cut.columns = ceil_div(vectors, cut.lanes), cut.chunks = ceil_div(cut.rows, cut.chunk);
  return cut;
}

Cut cut_of(const MomentsCall& c, const DeviceInfo& device) {
  return c.layout == Layout::nhwc ? pixels(c, device) : planes(c, device);
}

// Of a group.
i64 units_of(const MomentsCall& c, const Cut& cut) {
  return c.layout == Layout::nhwc ? c.channels / c.groups / cut.unit : 1;
}

// Means and squares about them, of every chunk's units.
std::size_t parts_bytes(const MomentsCall& c, const Cut& cut) {
  return static_cast<std::size_t>(2 * c.images * cut.chunks * c.groups * units_of(c, cut)) * sizeof(float);
}

faltung::Step finish(const MomentsCall& c, const Cut& cut, Slot parts, Slot to, const DeviceInfo& device) {
  constexpr int kThreads = 128;
  const i64 units = units_of(c, cut), elements_of_row = c.layout == Layout::nhwc ? cut.unit : i64{cut.v};
  return launch(
      "moments",
      gpu::source(device, "moments", "moments.cl", "moments",
                  {{"THREADS", std::to_string(kThreads)},
                   {"X_TYPE", "f32"},
                   {"FINISH", "1"},
                   {"V", "1"},
                   {"WIDE", is_wide(2 * c.images * cut.chunks * units * c.groups) ? "1" : "0"}}),
      gpu::grid(c.images * c.groups, 1, 1, kThreads),
      {in(parts), out(to), value(c.images), value(c.channels), value(c.groups), value(units),
       value(cut.chunks), value(cut.rows), value(cut.chunk), value(elements_of_row), value(c.epsilon)});
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
  std::vector<StepArgument> arguments{in(slots.reads[0]), out(cut.direct ? slots.write : slots.workspace)};
  for (const i64 number : {call.images, call.channels, nhwc ? cut.unit : call.groups,
                           nhwc ? call.pitch : image, cut.chunks, cut.rows, cut.chunk})
    arguments.push_back(value(number));
  arguments.push_back(value(call.epsilon));
  std::vector<faltung::Step> steps{
      launch("moments",
             gpu::source(device, "moments", "moments.cl", "moments",
                         {{"THREADS", std::to_string(cut.threads)},
                          {"X_TYPE", name(call.x)},
                          {"PLANES", nhwc ? "0" : "1"},
                          {"DIRECT", cut.direct ? "1" : "0"},
                          {"LANES", std::to_string(cut.lanes)},
                          {"V", std::to_string(cut.v)},
                          {"WIDE", is_wide(call.images * image) ? "1" : "0"}}),
             nhwc ? gpu::grid(call.images, cut.columns, cut.chunks, cut.threads)
                  : gpu::grid(call.images * call.groups * cut.chunks, 1, 1, cut.threads),
             std::move(arguments))};
  if (!cut.direct) steps.push_back(finish(call, cut, slots.workspace, slots.write, device));
  return steps;
}

}  // namespace faltung::network
