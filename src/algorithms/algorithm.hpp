// One way to compute a convolution on one kind of device.
//
// To add one: a host file <algorithm>_<target>.cpp with a subclass, its kernel file, and a line in
// registry.cpp. The finder, the tests, the benchmark, explain and doctor enumerate the registry and need no
// change.
#ifndef FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_
#define FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {

// Yes, or a reason in words that a user can act on.
struct Support {
  bool yes;
  std::string why;
  static Support supported() { return {true, ""}; }
  static Support declined(std::string why) { return {false, std::move(why)}; }
};

// Where a plan is to run.
struct Target {
  Device& device;
  int threads;  // CPU workers; 1 on a GPU
};

// The free choices of an algorithm for one problem. The name is stable and parses back: it is what is stored,
// forced, skipped and reported.
struct Config {
  std::string name;
  double predicted_ms = 0;
  std::string bound_by;  // bytes, arithmetic or latency
  std::size_t workspace_bytes = 0;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual std::string_view name() const = 0;         // <algorithm>_<target>, e.g. winograd_cpu
  virtual std::string_view description() const = 0;  // one line
  virtual std::string_view device_kind() const = 0;  // cpu or gpu

  // problem is valid. With a pool in it, answer for the convolution; see fuses_pool.
  virtual Support supports(const Problem& problem, const Target& target) const = 0;
  // Never empty for a supported problem; best first by the cost model.
  virtual std::vector<Config> configs(const Problem& problem, const Target& target) const = 0;
  // Throws Error(bad_problem) if config is no name of this algorithm's.
  virtual Recipe plan(const Problem& problem, const std::string& config, const Target& target) const = 0;
  // How far from exact its results may be.
  virtual Accuracy accuracy(const Problem& problem, const std::string& config) const;
  // What the weights of an exact test on small integers must be multiples of, for every intermediate value to
  // be an integer too (Winograd's filter transform divides).
  virtual int integer_weight_unit(const Problem& problem, const std::string& config) const;
  // The registers of a thread that the cost model reckons with on this device, at most; -1 where it does not
  // ask.
  virtual int registers(const std::string& config, const DeviceInfo& device) const;
  // Whether two runs give the same bits.
  virtual bool deterministic(const std::string& config) const;
  // Chosen only where nothing else supports the problem: the reference.
  virtual bool last_resort() const { return false; }
  // Whether it may be used on a device where it was never tried: the test suite ran it on the same
  // instruction set. A GPU's kernels meet drivers that nobody has seen.
  virtual bool starts_trusted() const { return device_kind() == "cpu"; }
  // Whether pooling happens in the kernel, for this problem. If not, make_recipe adds a step for it.
  virtual bool fuses_pool(const Problem& problem, const std::string& config) const;
};

// Every algorithm, in the order of their names.
const std::vector<std::unique_ptr<Algorithm>>& registry();
// Adds one to the registry of this process. For tests of what happens with kernels that are broken: call it
// before anything else of the library.
void add_to_registry(std::unique_ptr<Algorithm> algorithm);
// Throws Error(bad_problem) naming the nearest.
const Algorithm& find_algorithm(std::string_view name);

// `winograd_cpu/f4x4` → its algorithm and config.
struct KernelName {
  const Algorithm* algorithm;
  std::string config;
};
KernelName parse_kernel(std::string_view kernel);
std::string kernel_name(const Algorithm& algorithm, const std::string& config);

// The algorithm's plan, with a pooling step after it where the algorithm has none of its own.
Recipe make_recipe(const Algorithm& algorithm, const Problem& problem, const std::string& config,
                   const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_
