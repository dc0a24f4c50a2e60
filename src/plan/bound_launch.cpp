#include "src/plan/bound_launch.hpp"

#include <algorithm>
#include <cstring>

namespace faltung {

std::size_t BoundLaunch::reserve(std::size_t bytes, std::size_t alignment, bool is_address) {
  const std::size_t begin = (image_.size() + alignment - 1) / alignment * alignment;
  image_.resize(begin + bytes);
  parts_.push_back({begin, bytes, is_address});
  return begin;
}

BoundLaunch::BoundLaunch(const Launch& launch, jit::Program program, const Device& device)
    : program_(std::move(program)), shape_(launch.shape) {
  shape_.shared_bytes = static_cast<unsigned>(launch.source.shared_bytes);
  for (const StepArgument& argument : launch.arguments) {
    const bool is_address = argument.kind == StepArgument::Kind::address;
    const std::size_t alignment = is_address              ? alignof(void*)
                                  : argument.maps.empty() ? 16
                                                          : alignof(TensorMap);
    const std::size_t begin = reserve(argument.bytes.size(), alignment, is_address);
    std::copy(argument.bytes.begin(), argument.bytes.end(),
              image_.begin() + static_cast<std::ptrdiff_t>(begin));
    for (const auto& [at, address] : argument.addresses) patches_.push_back({begin + at, address.slot});
    for (const auto& [at, slot] : argument.rests) rests_.push_back({begin + at, slot.place});
    for (const StepArgument::Map& map : argument.maps) {
      maps_.push_back(std::make_unique<Map>(begin + map.at, map.shape, map.address.slot));
      // What the copy engine cannot address shows here, not in a run.
      device.encode(map.shape, reinterpret_cast<void*>(std::uintptr_t{1} << 20));
    }
  }
  if (parts_.size() > Arguments::kMost || image_.size() > Arguments::kMostBytes) {
    throw Error(Status::internal, "kernel " + program_.entry + " has " + std::to_string(parts_.size()) +
                                      " arguments of " + std::to_string(image_.size()) + " bytes");
  }
}

const TensorMap& BoundLaunch::Map::of(Device& device, const void* address) {
  for (int i = 0; i < kKept; ++i) {
    if (addresses[i] == address) return maps[i];
  }
  const int slot_of_oldest = next;
  next = (next + 1) % kKept;
  maps[slot_of_oldest] = device.encode(shape, address);
  addresses[slot_of_oldest] = address;
  return maps[slot_of_oldest];
}

void BoundLaunch::fill(Device& device, const Memory& memory, Arguments& to) const {
  std::memcpy(to.bytes, image_.data(), image_.size());
  for (const Patch& patch : patches_) {
    const std::byte* const address = memory.at(patch.slot);
    std::memcpy(to.bytes + patch.at, &address, sizeof address);
  }
  for (const Rest& rest : rests_) {
    const bool is_weights = rest.of == Place::w || rest.of == Place::packed;
    const int rests = memory.weights_rest && is_weights ? 1 : 0;
    std::memcpy(to.bytes + rest.at, &rests, sizeof rests);
  }
  if (!maps_.empty()) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Map>& map : maps_)
      std::memcpy(to.bytes + map->at, &map->of(device, memory.at(map->slot)), sizeof(TensorMap));
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    to.arguments[i] = {to.bytes + parts_[i].begin, parts_[i].bytes, parts_[i].is_address};
  }
}

void BoundLaunch::launch(Device& device, const Arguments& arguments, const Stream& stream) const {
  device.launch(*program_.kernel, shape_, std::span<const Argument>(arguments.arguments, parts_.size()),
                stream);
}

}  // namespace faltung
