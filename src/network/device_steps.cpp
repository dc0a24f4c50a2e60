#include "src/network/device_steps.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/algorithms/pool.hpp"

namespace faltung::network {
namespace {

using gpu::Constants;
using i64 = std::int64_t;

std::vector<faltung::Step> taps_steps(const TapsCall& call, const DeviceSlots& slots,
                                      DeviceConstants& constants, const DeviceInfo& device) {
  const Slot table = constants.add(call.index), weight = constants.add(call.weight);
  const RowsExtent& e = call.extent;
  const int v = neighbours(e.inner, is_half(call.from) || is_half(call.to));
  const i64 units = e.outer * call.out * e.inner / v;
  const bool wide = is_wide(std::max(units * v, e.outer * e.length * e.inner));
  return {launch("taps",
                 gpu::source(device, "taps", "taps.cl", "taps",
                             {{"THREADS", std::to_string(kDeviceThreads)},
                              {"TAPS", std::to_string(call.taps)},
                              {"FROM_TYPE", name(call.from)},
                              {"TO_TYPE", name(call.to)},
                              {"V", std::to_string(v)},
                              {"WIDE", wide ? "1" : "0"}}),
                 gpu::one_dimension(units, kDeviceThreads),
                 {in(slots.reads[0]), in(table), in(weight), out(slots.write), value(units), value(e.length),
                  value(call.out), value(e.inner / v)})};
}

std::vector<faltung::Step> best_steps(const BestCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  constexpr int kThreads = 64;  // each has much to do
  const RowsExtent& e = call.extent;
  Constants own = {{"THREADS", std::to_string(kThreads)},
                   {"FROM_TYPE", name(call.from)},
                   {"SIGN", call.kind == BestKind::largest ? "1.0f" : "-1.0f"},
                   {"V", "1"},
                   {"WIDE", is_wide(e.outer * e.length * e.inner) ? "1" : "0"}};
  if (call.of_equal == OfEqual::last) own.push_back({"OF_EQUAL_last", "1"});
  return {launch(
      "best", gpu::source(device, "best", "best.cl", "best", own),
      gpu::one_dimension(e.outer * e.inner, kThreads),
      {in(slots.reads[0]), out(slots.write), value(e.outer * e.inner), value(e.length), value(e.inner)})};
}

std::vector<faltung::Step> product_steps(const ProductCall& call, const DeviceSlots& slots,
                                         DeviceConstants& constants, const DeviceInfo& device) {
  std::vector<i64> begins;
  for (std::size_t i = 0; i < call.a.size(); ++i) begins.insert(begins.end(), {call.a[i], call.b[i]});
  const Slot table = constants.add(begins);
  const i64 batch = static_cast<i64>(call.a.size());
  // Four at a time: a thread has so many sums.
  const int v = std::min(4, neighbours(call.n, false));
  const i64 units = batch * call.m * call.n / v;
  const i64 last_a = *std::ranges::max_element(call.a) + call.m * call.k,
            last_b = *std::ranges::max_element(call.b) + call.k * call.n;
  const bool wide = is_wide(std::max({units * v, last_a, last_b}));
  return {launch("product",
                 gpu::source(device, "product", "product.cl", "product",
                             {{"THREADS", std::to_string(kDeviceThreads)},
                              {"A_TYPE", name(call.a_element)},
                              {"B_TYPE", name(call.b_element)},
                              {"TO_TYPE", name(call.y_element)},
                              {"V", std::to_string(v)},
                              {"WIDE", wide ? "1" : "0"}}),
                 gpu::one_dimension(units, kDeviceThreads),
                 {in(slots.reads[0]), in(slots.reads[1]), in(table), out(slots.write), value(units),
                  value(call.m), value(call.n), value(call.k)})};
}

std::vector<faltung::Step> pool_steps(const PoolWork& work, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  return {pool_step(work.problem, slots.reads[0], slots.write, work.pitches, device)};
}

// ---- what they move

double bytes_of(const ConvolutionWork&) { return 0; }  // its plan knows
double bytes_of(const StripsWork&) { return 0; }       // the CPU's
double bytes_of(const ScaledWork&) { return 0; }       // likewise
double bytes_of(const PoolWork& w) {
  return static_cast<double>(bytes(w.problem, Tensor::x) + bytes(w.problem, Tensor::y));
}
double bytes_of(const MapCall& c) {
  const auto moved = [&](const MapOperand& o) {
    double count = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(c.rank); ++d)
      count *= o.strides[d] == 0 ? 1.0 : static_cast<double>(c.sizes[d]);
    return count * static_cast<double>(size_of(o.element));
  };
  double all = moved(c.output);
  for (const MapOperand& o : c.inputs) all += moved(o);
  return all;
}
double bytes_of(const RowsExtent& e, std::size_t size) {
  return static_cast<double>(e.outer * e.length * e.inner) * static_cast<double>(size);
}
double bytes_of(const RowsCall& c) {
  const double from = bytes_of(c.extent, size_of(c.from));
  return reduces(c.op) ? from : from + bytes_of(c.extent, size_of(c.to));
}
double bytes_of(const TapsCall& c) {
  return bytes_of(c.extent, size_of(c.from)) +
         bytes_of({c.extent.outer, c.out, c.extent.inner}, size_of(c.to));
}
double bytes_of(const PickCall& c) {
  return 2 * static_cast<double>(c.results()) * static_cast<double>(c.bytes);
}
double bytes_of(const BestCall& c) { return bytes_of(c.extent, size_of(c.from)); }
double bytes_of(const ProductCall& c) {
  // By its arithmetic rather: some operations a byte.
  constexpr double kOperations = 2;
  return static_cast<double>(c.a.size()) * static_cast<double>(c.m * c.n * c.k) / kOperations;
}
double bytes_of(const GateCall& c) {
  return static_cast<double>(c.images * c.pixels * c.channels) *
         static_cast<double>(size_of(c.x) + size_of(c.y));
}
double bytes_of(const LayerCall& c) {
  return static_cast<double>(c.results * c.terms) * static_cast<double>(size_of(c.weight));
}
double bytes_of(const AttentionCall& c) {
  constexpr double kOperations = 60;  // of both products, a byte
  return 4.0 * static_cast<double>(c.batches * c.heads * c.depth) * static_cast<double>(c.queries) *
         static_cast<double>(c.keys) / kOperations;
}

double bytes_of(const NormalizeCall& c) { return bytes_of(c.map); }
double bytes_of(const MomentsCall& c) {
  return static_cast<double>(c.images * c.channels * c.pixels) * static_cast<double>(size_of(c.x));
}

}  // namespace

Slot DeviceConstants::add(const void* data, std::size_t bytes) {
  const std::size_t begin = aligned(bytes_.size());
  bytes_.resize(begin + bytes);
  if (bytes > 0) std::memcpy(bytes_.data() + begin, data, bytes);
  return {faltung::Place::packed, begin};
}

const char* name(MapElement element) {
  switch (element) {
    case MapElement::f32:
      return "f32";
    case MapElement::boolean:
      return "boolean";
    case MapElement::i32:
      return "i32";
    case MapElement::i64:
      return "i64";
    case MapElement::f16:
      return "f16";
    case MapElement::bf16:
      return "bf16";
  }
  return "";
}

StepArgument numbers(const std::vector<i64>& values, bool wide) {
  StepArgument argument{StepArgument::Kind::value, {}, {}, {}};
  const auto append = [&](auto number) {
    const auto* const from = reinterpret_cast<const std::byte*>(&number);
    argument.bytes.insert(argument.bytes.end(), from, from + sizeof number);
  };
  for (const i64 value : values) wide ? append(value) : append(static_cast<std::int32_t>(value));
  return argument;
}

void append_divisor(std::vector<i64>& values, i64 size) {
  constexpr i64 kMost = i64{1} << 31;
  if (size >= kMost)
    return static_cast<void>(values.insert(values.end(), {size, 0, 0}));  // of wide ones, which divide
  const auto shift = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size) - 1));
  const std::uint64_t power = std::uint64_t{1} << (31 + shift), divisor = static_cast<std::uint64_t>(size);
  values.insert(values.end(), {size, static_cast<i64>((power + divisor - 1) / divisor), shift});
}

i64 together_of(i64 count, i64 most, const DeviceInfo& device) {
  constexpr i64 kThreadsOfUnit = 2048;
  i64 together = 1;
  while (together < most && count >= 2 * together * kThreadsOfUnit * std::max(1, device.units)) together *= 2;
  return together;
}

i64 power_from(i64 value) {
  return static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(std::max<i64>(1, value))));
}

i64 elements_of(const MapCall& call) {
  i64 count = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(call.rank); ++d) count *= call.sizes[d];
  return count;
}

bool needs_wide_indices(const MapCall& call) {
  bool wide = is_wide(elements_of(call));
  const auto look = [&](const MapOperand& o) {
    i64 reach = std::abs(o.offset);
    for (std::size_t d = 0; d < static_cast<std::size_t>(call.rank); ++d)
      reach += (call.sizes[d] - 1) * std::abs(o.strides[d]);
    wide = wide || is_wide(reach);
  };
  for (const MapOperand& o : call.inputs) look(o);
  look(call.output);
  return wide;
}

int neighbours(i64 count, bool halves) {
  int v = halves ? 8 : 4;
  while (count % v != 0) v /= 2;
  return v;
}

std::vector<faltung::Step> device_steps(const Work& work, const DeviceSlots& slots,
                                        DeviceConstants& constants, const DeviceInfo& device) {
  if (const auto* w = std::get_if<PoolWork>(&work)) return pool_steps(*w, slots, device);
  if (const auto* c = std::get_if<MapCall>(&work)) return map_steps(*c, slots, device);
  if (const auto* c = std::get_if<RowsCall>(&work)) return rows_steps(*c, slots, device);
  if (const auto* c = std::get_if<TapsCall>(&work)) return taps_steps(*c, slots, constants, device);
  if (const auto* c = std::get_if<PickCall>(&work)) return pick_steps(*c, slots, constants, device);
  if (const auto* c = std::get_if<BestCall>(&work)) return best_steps(*c, slots, device);
  if (const auto* c = std::get_if<ProductCall>(&work)) return product_steps(*c, slots, constants, device);
  if (const auto* c = std::get_if<GateCall>(&work)) return gate_steps(*c, slots, device);
  if (const auto* c = std::get_if<LayerCall>(&work)) return layer_steps(*c, slots, device);
  if (const auto* c = std::get_if<AttentionCall>(&work)) return attention_steps(*c, slots, device);
  if (const auto* c = std::get_if<MomentsCall>(&work)) return moments_steps(*c, slots, device);
  if (const auto* c = std::get_if<NormalizeCall>(&work)) return normalize_steps(*c, slots, device);
  throw Error(Status::internal, "a convolution's plan has its own steps");
}

// As of tests/network_gpu_test.cpp and tests/network_steps_gpu_test.cpp on an H200, through CUDA and OpenCL:
// ONNX's node tests, random networks in f32, f16 and bf16; attention and moments through CUDA alone.
std::string unproven(const Work& work, const DeviceInfo& device) {
  const bool by_opencl =
      device.description.starts_with("NVIDIA") && !std::holds_alternative<MomentsCall>(work);
  const bool ran = device.dialect == "cuda" || by_opencl;
  const bool proven = ran || device.has("runs_on_cpu");
  return proven || std::holds_alternative<ConvolutionWork>(work) ? "" : "a network's kernels";
}

std::size_t device_workspace(const Work& work, const DeviceInfo& device) {
  if (const auto* const call = std::get_if<RowsCall>(&work)) return rows_workspace(*call, device);
  if (const auto* const call = std::get_if<MomentsCall>(&work)) return moments_workspace(*call, device);
  return 0;
}

double moving_cost_ms(double bytes, const DeviceInfo& device) {
  if (device.has("runs_on_cpu")) return 0.05 + bytes / (2e6 * std::max(1, device.units));
  constexpr double kLaunchMs = 0.002, kUnitBytesPerMs = 2e7;
  return kLaunchMs + bytes / (kUnitBytesPerMs * std::max(1, device.units));
}

double device_cost_ms(const Work& work, const DeviceInfo& device) {
  return std::visit([&](const auto& call) { return moving_cost_ms(bytes_of(call), device); }, work);
}

}  // namespace faltung::network
