// A launch bound to a device: its kernel loaded, its arguments laid out. What a run adds are addresses.
#ifndef FALTUNG_SRC_PLAN_BOUND_LAUNCH_HPP_
#define FALTUNG_SRC_PLAN_BOUND_LAUNCH_HPP_

#include <memory>
#include <mutex>
#include <vector>

#include "src/plan/step.hpp"

namespace faltung {

class BoundLaunch {
 public:
  // program: what the launch's source was built to. Throws Error(unsupported) where the copy engine cannot
  // see a tensor as the launch asks.
  BoundLaunch(const Launch& launch, jit::Program program, const Device& device);
  BoundLaunch(const Launch& launch, const jit::Session& session)
      : BoundLaunch(launch, session.build(launch.source), session.device()) {}
  // The arguments of one run.
  struct Arguments {
    // CUDA's limits, and room for alignment.
    static constexpr std::size_t kMostBytes = 4096 + 512, kMost = 16;
    alignas(TensorMap) std::byte bytes[kMostBytes];
    Argument arguments[kMost];
  };

  // Both allocate nothing, from many threads at once.
  void fill(Device& device, const Memory& memory, Arguments& arguments) const;
  void launch(Device& device, const Arguments& arguments, const Stream& stream) const;
  void run(Device& device, const Memory& memory, const Stream& stream) const {
    Arguments arguments;
    fill(device, memory, arguments);
    launch(device, arguments, stream);
  }
  const jit::Program& program() const { return program_; }

 private:
  // An argument's bytes in the image of all.
  struct Part {
    std::size_t begin, bytes;
    bool is_address;
  };
  // An address in the image.
  struct Patch {
    std::size_t at;
    Slot slot;
  };
  // An int in the image that says whether what lies at a place is at rest.
  struct Rest {
    std::size_t at;
    Place of;
  };
  // A tensor map in the image, and those that were made of it for the last addresses.
  struct Map {
    static constexpr int kKept = 16;
    Map(std::size_t at, const MapShape& shape, Slot slot) : at(at), shape(shape), slot(slot) {}
    const TensorMap& of(Device& device, const void* address);
    std::size_t at;
    MapShape shape;
    Slot slot;
    int next = 0;
    const void* addresses[kKept] = {};
    TensorMap maps[kKept];
  };

  std::size_t reserve(std::size_t bytes, std::size_t alignment, bool is_address);

  jit::Program program_;
  LaunchShape shape_;
  std::vector<std::byte> image_;
  std::vector<Part> parts_;
  std::vector<Patch> patches_;
  std::vector<Rest> rests_;
  std::vector<std::unique_ptr<Map>> maps_;
  mutable std::mutex mutex_;  // of what the maps keep
};

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_BOUND_LAUNCH_HPP_
