// A network's runs on a GPU: an arena for each stream, and what touches nothing but the arena as graphs.
#ifndef FALTUNG_SRC_NETWORK_DEVICE_RUNS_HPP_
#define FALTUNG_SRC_NETWORK_DEVICE_RUNS_HPP_

#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "src/network/device_program.hpp"

namespace faltung::network {

class DeviceRuns {
 public:
  DeviceRuns(const Schedule& schedule, EngineImpl& engine, const std::shared_ptr<Device>& device);

  Device& device() const { return program_.device(); }
  // Submits a run, and waits for nothing. arena: the caller's, or null. Allocates nothing, unless a stream
  // brings no arena and is a second one, that has none yet.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, void* stream,
           std::byte* arena) const;
  // Step by step, each waited for. before: as Schedule::run has it, with the arena.
  void watch(std::span<const void* const> inputs, std::span<void* const> outputs,
             FunctionRef<void(std::size_t, std::byte*)> before) const;
  // Milliseconds of each step, the least of so many times.
  std::vector<double> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs,
                                 int times) const;

 private:
  // Steps [first, last); recorded where they are the same in every run on the arena.
  struct Part {
    std::size_t first, last;
    std::unique_ptr<Recording> recording;
  };
  struct Arena {
    faltung::Buffer memory;
    std::vector<Part> parts;
    std::mutex mutex;  // while a run is being submitted
    bool taken = false;
    void* stream = nullptr;
    std::byte* begin() const;
  };

  std::unique_ptr<Arena> make_arena() const;
  Arena& arena_of(void* stream) const;
  void check(std::span<const void* const> inputs, std::span<void* const> outputs) const;

  const Schedule& schedule_;
  DeviceProgram program_;
  std::vector<std::string> inputs_, outputs_;  // as messages call them: a run is to make no text
  mutable std::mutex mutex_;
  mutable std::list<std::unique_ptr<Arena>> arenas_;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_DEVICE_RUNS_HPP_
