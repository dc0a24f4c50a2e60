#include "src/network/device_program.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/network/device_steps.hpp"

namespace faltung::network {
namespace {

using DevicePlace = faltung::Place;

// Where the caller's memory stands in a launch; the arena is the workspace, constants are packed.
constexpr DevicePlace kCallers[] = {DevicePlace::x, DevicePlace::y, DevicePlace::w, DevicePlace::bias,
                                    DevicePlace::residual};

}  // namespace

DeviceProgram::DeviceProgram(const Schedule& schedule, EngineImpl& engine, std::shared_ptr<Device> device)
    : device_(std::move(device)) {
  DeviceConstants constants;
  for (const Schedule::Constant& constant : schedule.constants())
    constants_at_.push_back(constants.add(constant.data.get(), constant.bytes).offset);
  std::vector<Launch> launches;
  std::vector<std::size_t> step_of;
  std::string lacking;
  for (const NetworkStep& step : schedule.steps()) {
    try {
      steps_.push_back(place(step, constants, launches));
      step_of.resize(launches.size(), steps_.size() - 1);
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      lacking += (lacking.empty() ? "" : "; ") + step.name + ": " + error.what();
    }
  }
  if (!lacking.empty()) throw Error(Status::unsupported, device_->info().id + " cannot run " + lacking);
  std::vector<const jit::Source*> sources;
  for (const Launch& launch : launches) sources.push_back(&launch.source);
  std::vector<jit::Program> programs = jit::Session(*device_, engine.store()).build(sources);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    steps_[step_of[i]].launches.push_back(
        std::make_unique<const BoundLaunch>(launches[i], std::move(programs[i]), *device_));
  }
  constants_ = device_->allocate(std::max<std::size_t>(1, constants.bytes().size()));
  device_->copy_in(constants_, constants.bytes().data(), constants.bytes().size());
}

// The step without its launches, which are added to the others.
DeviceProgram::Bound DeviceProgram::place(const NetworkStep& step, DeviceConstants& constants,
                                          std::vector<Launch>& launches) const {
  Bound bound{&step, {}, {}};
  const auto slot = [&](const Place& place) -> Slot {
    if (place.in == Place::In::arena) return {DevicePlace::workspace, place.offset};
    if (place.in == Place::In::constant)
      return {DevicePlace::packed, constants_at_[place.index] + place.offset};
    for (const Callers& known : bound.callers) {
      if (known.from.in == place.in && known.from.index == place.index) return {known.place, place.offset};
    }
    if (bound.callers.size() == std::size(kCallers)) {
      throw Error(Status::unsupported, fmt::format("it reads more than {} of the network's inputs at once",
                                                   std::size(kCallers) - 1));
    }
    bound.callers.push_back({kCallers[bound.callers.size()], place});
    return {bound.callers.back().place, place.offset};
  };
  DeviceSlots slots{{}, slot(step.write), slot(step.workspace)};
  for (const Place& place : step.reads) slots.reads.push_back(slot(place));
  if (std::holds_alternative<ConvolutionWork>(step.work)) return bound;
  for (const faltung::Step& launched : device_steps(step.work, slots, constants, device_->info())) {
    Launch launch = std::get<Launch>(launched.work);
    launch.shape.overlaps_previous = device_->info().has("sm_90");  // they all follow (kernels/gpu/cuda.h)
    launches.push_back(std::move(launch));
  }
  return bound;
}

std::byte* DeviceProgram::address(const Place& place, const RunMemory& memory) const {
  switch (place.in) {
    case Place::In::arena:
      return memory.arena + place.offset;
    case Place::In::constant:
      return static_cast<std::byte*>(constants_.pointer) + constants_at_[place.index] + place.offset;
    case Place::In::input:
      return static_cast<std::byte*>(const_cast<void*>(memory.inputs[place.index])) + place.offset;
    case Place::In::output:
      return static_cast<std::byte*>(memory.outputs[place.index]) + place.offset;
  }
  return nullptr;
}

void DeviceProgram::run_convolution(const NetworkStep& step, const RunMemory& memory,
                                    const Stream& stream) const {
  const auto& work = std::get<ConvolutionWork>(step.work);
  const Problem& p = work.plan->problem();
  RunOptions options;
  options.workspace = memory.arena + step.workspace.offset;
  options.weights = work.packed.get();
  options.stream = stream.native;
  options.weights_rest = true;  // since the network was loaded
  const std::byte* const from = address(step.reads[0], memory);
  std::byte* const to = address(step.write, memory);
  const std::byte* const residual = p.epilogue.residual ? address(step.reads[1], memory) : nullptr;
  work.plan->run(work.tensors(from, residual, to), options);
}

void DeviceProgram::submit(std::size_t first, std::size_t last, const RunMemory& memory,
                           const Stream& stream) const {
  Memory places;
  places[DevicePlace::workspace] = memory.arena;
  places[DevicePlace::packed] = static_cast<std::byte*>(constants_.pointer);
  for (std::size_t s = first; s < last; ++s) {
    const Bound& bound = steps_[s];
    if (std::holds_alternative<ConvolutionWork>(bound.step->work)) {
      run_convolution(*bound.step, memory, stream);
      continue;
    }
    for (const Callers& callers : bound.callers) {
      Place begin = callers.from;
      begin.offset = 0;
      places[callers.place] = address(begin, memory);
    }
    for (const auto& launch : bound.launches) launch->run(*device_, places, stream);
  }
}

}  // namespace faltung::network
