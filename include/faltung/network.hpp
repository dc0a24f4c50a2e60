// Whole networks: ONNX files, their convolutions faltung's plans, everything on one arena. docs/networks.md
// says what is known of ONNX and how a network is prepared.
#ifndef FALTUNG_NETWORK_HPP_
#define FALTUNG_NETWORK_HPP_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung {

// Of a network's inputs and outputs.
enum class Element { f32, boolean, i32, i64, f16, bf16 };
FALTUNG_API std::size_t bytes(Element element);

struct NetworkTensor {
  std::string name;
  Element element = Element::f32;
  std::vector<std::int64_t> sizes;  // -1 where it is open: Network::plan settles it
};

struct NetworkRequest {
  Request request;
  // Of convolutions and products: f32 or fast; on a GPU tf32, too, where elements are of f32. 16 bits have
  // their own accuracy, or fast.
  Math math = Math::f32;
  // A GPU's: of what lies between the network's inputs and outputs, which keep their own types, where the
  // model has f32. Sums are of f32 in any case.
  DType dtype = DType::f32;
  // With 16 bits: tensors of the file, by name, that are of f32 none the less, with the convolutions and
  // products that make or read them. `faltung network verify` names those that 16 bits do not hold. Of what a
  // step computes on the way to its result nothing need be said.
  std::vector<std::string> keep_f32;
  std::size_t plans = 16;  // kept for sizes that were asked for before; the least recently used goes first
};

// What one step of a plan is.
struct NetworkStepReport {
  std::string name, kernel;
  Layout layout = Layout::nchw;  // of its result
  std::size_t offset = 0;        // of its result in the arena; the largest number: it is the caller's memory
  std::size_t workspace_bytes = 0;
  std::string problem;      // of a convolution or product by constants, its canonical string
  double ms = 0;            // 0 if it was not timed
  double predicted_ms = 0;  // by the cost model, or as find measured it; 0 where nothing is known
  std::string note;         // what it has taken over and why no more, or why a value is turned; else empty
};

struct NetworkReport {
  std::vector<NetworkStepReport> steps;
  std::size_t arena_bytes = 0, arena_bound = 0;  // no arrangement of these buffers takes less than the bound
  int turned = 0;                                // values copied from one layout to the other
};

// Of a run on a GPU.
struct NetworkRunOptions {
  void* stream = nullptr;  // the caller's stream or queue; null: the device's own
  // Device memory of NetworkPlan::arena_bytes(), aligned to 64 bytes, that no other run uses before this one
  // is done; null: the plan's own, of which each stream that ran has one for as long as the plan lives: a
  // program of ever new streams brings its own.
  void* arena = nullptr;
};

class NetworkPlanImpl;
class NetworkImpl;

// A network for given sizes; immutable. Any number of threads may run it. On the CPU they take turns at the
// engine's threads at the same time, and each has an arena, which is kept for the network's next run, of
// these sizes or others.
//
// On a GPU runs are submitted to a stream and not waited for; each stream has an arena, in which its runs
// follow each other. On NVIDIA's, what lies between the first and the last steps is replayed as a graph that
// the plan keeps. A run may be recorded (CUDA's stream capture) itself: then it is launched step by step, and
// what was recorded is to be replayed in the order of the stream it was recorded from, unless it brings an
// arena of its own.
class FALTUNG_API NetworkPlan {
 public:
  const std::vector<NetworkTensor>& inputs() const;  // in the file's order, all sizes known
  const std::vector<NetworkTensor>& outputs() const;
  // Contiguous elements, one address an input and output in that order: a GPU's are device memory at
  // multiples of 16 bytes. Throws Error(bad_problem) for a null one. Allocates nothing but, on the
  // CPU, an arena where those that the network's runs have left are in use or too small; on a GPU, that of a
  // stream other than the first.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs,
           const NetworkRunOptions& options = {}) const;
  std::size_t arena_bytes() const;  // what a run takes beside inputs and outputs
  NetworkReport report() const;
  // The same with each step's time, the least of so many runs.
  NetworkReport report(std::span<const void* const> inputs, std::span<void* const> outputs, int runs) const;

  explicit NetworkPlan(std::shared_ptr<const NetworkPlanImpl> impl) : impl_(std::move(impl)) {}

 private:
  friend struct NetworkInternals;
  std::shared_ptr<const NetworkPlanImpl> impl_;
};

// A network from a file. Thread-safe.
class FALTUNG_API Network {
 public:
  // The engine must outlive it. Throws Error(bad_file) for what is no network or damaged, Error(unsupported)
  // with all nodes that are not known.
  Network(Engine& engine, const std::string& file, const NetworkRequest& request = {});
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;

  const std::vector<NetworkTensor>& inputs() const;
  // What the file says of itself beside the network (ONNX's metadata_props): a list of classes, say.
  const std::map<std::string, std::string>& metadata() const;
  // sizes: of each input, in their order. Known ones are answered from the plans that are kept.
  NetworkPlan plan(const std::vector<std::vector<std::int64_t>>& sizes);

 private:
  friend struct NetworkInternals;
  std::unique_ptr<NetworkImpl> impl_;
};

}  // namespace faltung

#endif  // FALTUNG_NETWORK_HPP_
