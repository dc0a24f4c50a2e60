#include "src/network/device_runs.hpp"

#include <algorithm>

#include "src/backend/stream_device.hpp"
#include "src/plan/recipe.hpp"

namespace faltung::network {

std::byte* DeviceRuns::Arena::begin() const { return static_cast<std::byte*>(memory.pointer); }

DeviceRuns::DeviceRuns(const Schedule& schedule, EngineImpl& engine, const std::shared_ptr<Device>& device)
    : schedule_(schedule), program_(schedule, engine, device) {
  const Graph& graph = schedule.graph();
  for (const ValueId id : graph.inputs) inputs_.push_back("input " + in_quotes(graph.at(id).name));
  for (const ValueId id : graph.outputs) outputs_.push_back("output " + in_quotes(graph.at(id).name));
  arenas_.push_back(make_arena());
}

// Its graphs are made of the longest rows of steps that know the caller's memory nothing of: whatever
// addresses a run brings, they are replayed.
std::unique_ptr<DeviceRuns::Arena> DeviceRuns::make_arena() const {
  auto arena = std::make_unique<Arena>();
  arena->memory = device().allocate(std::max<std::size_t>(1, schedule_.memory().bytes));
  const RunMemory memory{{}, {}, arena->begin()};
  const auto* const streams = dynamic_cast<const StreamDevice*>(&device());
  for (std::size_t s = 0; s < program_.size();) {
    std::size_t end = s;
    while (end < program_.size() && !program_.is_callers(end)) ++end;
    constexpr std::size_t kLeast = 2;  // steps that are worth a graph
    if (streams != nullptr && end - s >= kLeast) {
      // Once without recording, so that what happens at a kernel's first launch is behind.
      program_.submit(s, end, memory, {});
      device().synchronize({});
      arena->parts.push_back(
          {s, end, device().record([&](const Stream& stream) { program_.submit(s, end, memory, stream); })});
    } else {
      end = std::max(end, s + 1);
      arena->parts.push_back({s, end, nullptr});
    }
    s = end;
  }
  return arena;
}

DeviceRuns::Arena& DeviceRuns::arena_of(void* stream) const {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (arena->taken && arena->stream == stream) return *arena;
  }
  if (arenas_.front()->taken) arenas_.push_front(make_arena());
  Arena& arena = *arenas_.front();
  arena.taken = true, arena.stream = stream;
  return arena;
}

// Kernels move 16 bytes at a time.
void DeviceRuns::check(std::span<const void* const> inputs, std::span<void* const> outputs) const {
  constexpr std::uintptr_t kMultiple = 16;
  const auto look = [&](const void* address, const std::string& what) {
    device().check_address(address, what.c_str());
    if (reinterpret_cast<std::uintptr_t>(address) % kMultiple != 0)
      throw Error(Status::bad_problem, what + ": on a GPU its address must be a multiple of 16 bytes");
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) look(inputs[i], inputs_[i]);
  for (std::size_t i = 0; i < outputs.size(); ++i) look(outputs[i], outputs_[i]);
}

void DeviceRuns::run(std::span<const void* const> inputs, std::span<void* const> outputs, void* native,
                     std::byte* own) const {
  check(inputs, outputs);
  const Stream stream{nullptr, native};
  if (own != nullptr) return program_.submit(0, program_.size(), {inputs, outputs, own}, stream);
  Arena& arena = arena_of(native);
  const RunMemory memory{inputs, outputs, arena.begin()};
  const auto* const streams = dynamic_cast<const StreamDevice*>(&device());
  // What a caller records is a graph of the caller's own.
  const bool replays = streams != nullptr && !streams->is_capturing(stream);
  const std::lock_guard lock(arena.mutex);
  for (const Part& part : arena.parts) {
    auto* const graph = replays ? dynamic_cast<StreamGraph*>(part.recording.get()) : nullptr;
    if (graph != nullptr)
      graph->submit(stream);
    else
      program_.submit(part.first, part.last, memory, stream);
  }
}

void DeviceRuns::watch(std::span<const void* const> inputs, std::span<void* const> outputs,
                       FunctionRef<void(std::size_t, std::byte*)> before) const {
  check(inputs, outputs);
  Arena& arena = arena_of(nullptr);
  const std::lock_guard lock(arena.mutex);
  for (std::size_t s = 0; s < program_.size(); ++s) {
    before(s, arena.begin());
    program_.submit(s, s + 1, {inputs, outputs, arena.begin()}, {});
    device().synchronize({});
  }
  before(program_.size(), arena.begin());
}

std::vector<double> DeviceRuns::time_steps(std::span<const void* const> inputs,
                                           std::span<void* const> outputs, int times) const {
  check(inputs, outputs);
  Arena& arena = arena_of(nullptr);
  const std::lock_guard lock(arena.mutex);
  const RunMemory memory{inputs, outputs, arena.begin()};
  std::vector<double> all;
  for (std::size_t s = 0; s < program_.size(); ++s) {
    // On the numbers that it meets in a run: those of the steps before it.
    program_.submit(0, s, memory, {});
    device().synchronize({});
    constexpr int kTogether = 8;  // in one graph, so that its own edges count little
    std::unique_ptr<Recording> recording = device().record([&](const Stream& stream) {
      for (int i = 0; i < kTogether; ++i) program_.submit(s, s + 1, memory, stream);
    });
    double least = 0;
    for (int i = 0; i <= times; ++i) {  // the first is not counted
      const double ms = recording != nullptr
                            ? recording->time_ms() / kTogether
                            : device().time_ms({}, [&] { program_.submit(s, s + 1, memory, {}); });
      least = i < 2 ? ms : std::min(least, ms);
    }
    all.push_back(least);
  }
  return all;
}

}  // namespace faltung::network
