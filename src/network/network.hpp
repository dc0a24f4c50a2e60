// What is behind the public handles of networks.
#ifndef FALTUNG_SRC_NETWORK_NETWORK_HPP_
#define FALTUNG_SRC_NETWORK_NETWORK_HPP_

#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "faltung/network.hpp"
#include "src/network/device_runs.hpp"
#include "src/network/schedule.hpp"
#include "src/network/survey.hpp"

namespace faltung {

// The CPU's arenas of a network's plans for all sizes: one for each thread that ran at the same time, as
// large as the largest that it ran needed. Thread-safe.
class Arenas {
 public:
  struct Arena {
    network::Bytes memory;
    std::size_t bytes = 0;
  };
  // For the time of a run: the smallest free one that has room, or a new one in the place of one that has
  // not.
  Arena take(std::size_t bytes);
  void give_back(Arena arena);  // allocates nothing

 private:
  std::mutex mutex_;
  std::vector<Arena> free_;
};

class NetworkPlanImpl {
 public:
  // names: of the outputs, as the file has them; passes leave one value of several that are the same.
  NetworkPlanImpl(network::Schedule schedule, EngineImpl& engine, const std::shared_ptr<Device>& device,
                  const std::vector<std::string>& names = {},
                  std::shared_ptr<Arenas> arenas = std::make_shared<Arenas>());

  const network::Schedule& schedule() const { return schedule_; }
  const std::vector<NetworkTensor>& inputs() const { return inputs_; }
  const std::vector<NetworkTensor>& outputs() const { return outputs_; }
  void run(std::span<const void* const> inputs, std::span<void* const> outputs,
           const NetworkRunOptions& options) const;
  // before: as Schedule::run has it, with the arena. On a GPU each step is done when the next begins.
  using Watch = FunctionRef<void(std::size_t step, std::byte* arena)>;
  void watch(std::span<const void* const> inputs, std::span<void* const> outputs, Watch before) const;
  NetworkReport report() const;
  // Milliseconds of each step, the least of so many runs.
  std::vector<double> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs,
                                 int runs) const;
  Device& device() const { return *device_; }

 private:
  class Arena;  // one of them, for the time of a run
  void check(std::span<const void* const> inputs, std::span<void* const> outputs) const;

  network::Schedule schedule_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<const network::DeviceRuns> on_device_;  // a GPU's
  std::vector<NetworkTensor> inputs_, outputs_;
  std::shared_ptr<Arenas> arenas_;
};

class NetworkImpl {
 public:
  NetworkImpl(EngineImpl& engine, const std::string& file, const NetworkRequest& request);
  NetworkImpl(EngineImpl& engine, network::Graph graph, const NetworkRequest& request);

  const std::vector<NetworkTensor>& inputs() const { return inputs_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const NetworkRequest& request() const { return request_; }
  // As the file has it, for the reference.
  const network::Graph& original() const { return original_; }
  std::shared_ptr<const NetworkPlanImpl> plan(const std::vector<network::Shape>& shapes);
  // What that will ask of a GPU, which need not be here. Throws Error(unsupported) for a CPU.
  network::Survey survey(const std::vector<network::Shape>& shapes);

 private:
  struct Kept {
    std::vector<network::Shape> shapes;
    std::shared_ptr<const NetworkPlanImpl> plan;
  };

  std::shared_ptr<const Parallel> planners();
  network::Graph passed(const std::vector<network::Shape>& shapes, const Parallel& planners);

  EngineImpl& engine_;
  NetworkRequest request_;
  network::Graph original_, graph_;
  std::vector<NetworkTensor> inputs_;
  std::map<std::string, std::string> metadata_;
  network::Weights weights_;
  std::shared_ptr<Arenas> arenas_ = std::make_shared<Arenas>();
  std::mutex mutex_;
  std::list<Kept> plans_;  // the most recently used first
};

struct NetworkInternals {
  static NetworkImpl& impl(Network& network) { return *network.impl_; }
  static const NetworkPlanImpl& impl(const NetworkPlan& plan) { return *plan.impl_; }
};

}  // namespace faltung

#endif  // FALTUNG_SRC_NETWORK_NETWORK_HPP_
