#include "tools/op_runs.hpp"

#include <algorithm>
#include <random>

namespace faltung::tools {
namespace {

std::size_t bytes_of_array(network::Type type, const network::Shape& shape) {
  return static_cast<std::size_t>(network::elements(shape)) * network::size_of(type);
}

}  // namespace

std::size_t sets_beyond_cache(const DeviceInfo& device, std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  constexpr std::size_t kMostSets = 1024;
  const std::size_t wanted = std::min(2 * device.cache_bytes, kMost);
  return std::clamp<std::size_t>((wanted + bytes - 1) / bytes, 2, kMostSets);
}

double OpTimer::time_once() {
  if (recording_) return recording_->time_ms() / runs_at_once_;
  const double ms = device_.time_ms({}, [&] { run_({}); });
  constexpr int kMost = 256;
  constexpr double kShort = 0.5, kTogether = 1;  // ms
  // The first run loads the kernel.
  if (++singles_ == 2 && ms < kShort && device_.info().kind == "gpu") {
    const int runs = std::min(kMost, static_cast<int>(kTogether / std::max(ms, 1e-3)) + 1);
    recording_ = device_.record([&](const Stream& stream) {
      for (int i = 0; i < runs; ++i) run_(stream);
    });
    if (recording_) runs_at_once_ = runs;
  }
  return ms;
}

OpRuns::OpRuns(const NetworkPlanImpl& plan, const std::vector<network::Array>& inputs) : plan_(plan) {
  std::vector<network::Constant> data;
  std::size_t set_bytes = 0;
  for (const network::Array& input : inputs) {
    data.push_back(network::encode(input));
    set_bytes += bytes_of_array(data.back().type, data.back().shape);
  }
  const NetworkTensor& y = plan.outputs()[0];
  result_bytes_ = static_cast<std::size_t>(network::elements(y.sizes)) * bytes(y.element);
  set_bytes += result_bytes_;
  const std::vector<std::byte> poison(result_bytes_, std::byte{0xff});  // NaN
  for (std::size_t i = sets_beyond_cache(device().info(), set_bytes); i > 0; --i) {
    Set& set = sets_.emplace_back();
    for (const network::Constant& input : data)
      set.reads.push_back(copy(input.data, bytes_of_array(input.type, input.shape)));
    set.writes.push_back(copy(poison.data(), result_bytes_));
  }
  // Its own, even of nothing: none is made while runs are recorded.
  options_.arena = copy(nullptr, std::max<std::size_t>(1, plan.schedule().memory().bytes));
}

network::Array OpRuns::result() {
  plan_.run(sets_[0].reads, sets_[0].writes, options_);
  device().synchronize({});
  std::vector<std::byte> bytes(result_bytes_);
  device().copy_out(bytes.data(), {nullptr, sets_[0].writes[0], result_bytes_}, result_bytes_);
  const network::Graph& graph = plan_.schedule().graph();
  const network::Value& value = graph.at(graph.outputs[0]);
  return network::decode({value.type, *value.shape, nullptr, bytes.data()});
}

void OpRuns::run_next(const Stream& stream) {
  const Set& set = sets_[turn_++ % sets_.size()];
  NetworkRunOptions options = options_;
  options.stream = stream.native;
  plan_.run(set.reads, set.writes, options);
}

void* OpRuns::copy(const void* from, std::size_t bytes) {
  buffers_.push_back(device().allocate(bytes));
  if (from != nullptr) device().copy_in(buffers_.back(), from, bytes);
  return buffers_.back().pointer;
}

DriverCopies::DriverCopies(Device& device, std::size_t bytes) : device_(device), bytes_(bytes) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> drawn((bytes + 7) / 8);
  std::ranges::generate(drawn, random);
  for (std::size_t i = sets_beyond_cache(device.info(), 2 * bytes); i > 0; --i) {
    const Set& set = sets_.emplace_back(device.allocate(bytes), device.allocate(bytes));
    device.copy_in(set.from, drawn.data(), bytes);
    device.copy_in(set.to, drawn.data(), bytes);
  }
}

bool DriverCopies::run_next(const Stream& stream) {
  const Set& set = sets_[turn_++ % sets_.size()];
  return device_.copy_within(set.to.pointer, set.from.pointer, bytes_, stream);
}

}  // namespace faltung::tools
