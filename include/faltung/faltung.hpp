// faltung: a convolution engine. The C++ interface; faltung.h is the C one. Letters and units are those of
// problem.hpp.
#ifndef FALTUNG_FALTUNG_HPP_
#define FALTUNG_FALTUNG_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "faltung/problem.hpp"

namespace faltung {

// --------------------------------------------------------------------------------------------- devices

struct DeviceDescription {
  std::string id;      // cpu, cuda:0, opencl:1: what Request::device names
  std::string kind;    // cpu or gpu
  std::string name;    // the model, as its maker calls it
  std::string driver;  // version, in words
  int units = 0;       // cores or multiprocessors
  std::size_t memory_bytes = 0;
  std::vector<std::string> features;  // of the instruction set: avx2, avx512_bf16, sm_90a, ...
};

// All devices of this machine; the CPU is the first. Wakes every driver.
FALTUNG_API std::vector<DeviceDescription> devices();

// ---------------------------------------------------------------------------------------------- running

// Calls body(0) ... body(count - 1), each once, possibly at the same time, and returns when all have
// returned.
using ParallelFor = std::function<void(int count, const std::function<void(int)>& body)>;

// Device pointers, aligned as allocations are: some kernels take multiples of 16 bytes alone, and say so.
// Which are read and which written follows from the direction:
//   forward           reads x, w (bias, residual); writes y
//   backward_data     reads y (the output's gradient), w; writes x (the input's gradient)
//   backward_weights  reads x, y (the output's gradient); writes w (the weights' gradient)
// Besides, stats and dbias write sums (fp32), drelu reads relu, affine reads scale and shift,
// and prelu reads slopes.
// What is only read may overlap; the result overlaps nothing, the residual and the workspace included: run
// refuses it.
// Elements are in the host's byte order: f32 is float; f16 is IEEE's binary16 (_Float16, half) and bf16 the
// upper half of a float (std::bfloat16_t, __bf16), both two bytes, for which std::uint16_t serves where the
// compiler has no such type. The bias has the problem's dtype, like all,
// but for BiasElement::f32.
struct Tensors {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  const void* relu = nullptr;   // of drelu: x as the forward direction read it, in the problem's dtype
  void* sums = nullptr;         // of stats and dbias: float
  const void* scale = nullptr;  // of affine, one of each input channel: float
  const void* shift = nullptr;
  const void* slopes = nullptr;  // of prelu, one of each output channel: float

  // What is only read may be const.
  static Tensors forward(const void* x, const void* w, void* y, const void* bias = nullptr,
                         const void* residual = nullptr) {
    return {const_cast<void*>(x), const_cast<void*>(w), y, bias, residual};
  }
  static Tensors backward_data(const void* y, const void* w, void* x) {
    return {x, const_cast<void*>(w), const_cast<void*>(y), nullptr, nullptr};
  }
  static Tensors backward_weights(const void* x, const void* y, void* w) {
    return {const_cast<void*>(x), w, const_cast<void*>(y), nullptr, nullptr};
  }
};

// Which kernels may be used without having been tried on the device first.
enum class TrustPolicy {
  tested,  // those that the test suite ran on the same instruction set: the CPU's
  all,     // all; nothing is refused either
  none,    // none
};

struct Request {
  std::string device = "cpu";
  int threads = 0;                                             // CPU; 0: every processor this process may use
  std::size_t workspace_limit = static_cast<std::size_t>(-1);  // bytes
  bool deterministic = true;                                   // the same bits from every run of a plan
  std::vector<std::string> only;  // kernel-name patterns (* and ?), or lists with commas; empty allows all
  std::vector<std::string> skip;  // kernel-name patterns never to use
  double budget_ms = 2000;        // of find

  // CPU: inputs, intermediate values and results below the smallest normal fp32 number may be taken as zero.
  // Where there are many, kernels are several times faster: docs/accuracy.md.
  bool flush_denormals = false;

  // Where these say nothing, the environment does: docs/settings.md.
  std::optional<TrustPolicy> trust;  // else $FALTUNG_TRUST, else tested
  double deadline_ms = 0;            // of a run on trial, at least; else $FALTUNG_DEADLINE, else 10 s
  std::string worker;  // the faltung command, which tries kernels; else $FALTUNG_WORKER, else found
};

// Weights packed into the order a plan's kernel reads them, once; immutable, shared between threads.
class PackedWeights;

// What the caller knows of the addresses that it hands over.
enum class Addresses {
  unknown,   // a GPU's driver is asked for each, so that a host pointer is refused
  on_device  // memory of the plan's device, as arrays say that know theirs: the driver is not asked
};

struct RunOptions {
  void* workspace = nullptr;               // at least Plan::workspace_bytes(weights are packed)
  const PackedWeights* weights = nullptr;  // from Plan::pack_weights; then Tensors::w is read only if
                                           // Plan::packed_weights_bytes() is 0
  ParallelFor parallel_for;                // CPU: in place of faltung's own threads
  void* stream = nullptr;                  // GPU: the caller's CUstream or cl_command_queue, in whose order
                                           // it runs; null: CUDA's default stream, OpenCL's one of faltung's
  Addresses addresses = Addresses::unknown;  // of the tensors and the workspace
  // GPU: the weights, packed or not, were written, and the host has waited for it, before whatever the device
  // may still have to do was submitted. Kernels may read them while those in front of them still run.
  bool weights_rest = false;
};

class PlanImpl;

// A chosen kernel, ready to run many times, from many threads at once if each brings its own workspace and
// result. On the CPU the plans of an engine that ask for as many threads share them: a run that finds them
// busy is computed by its calling thread alone, to the same bits. A plan serves the child of a fork, too.
class FALTUNG_API Plan {
 public:
  const Problem& problem() const;
  const std::string& kernel() const;  // e.g. implicit_gemm_cpu/rt14x2
  std::size_t workspace_bytes(bool weights_are_packed = false) const;
  std::size_t packed_weights_bytes() const;  // 0: the kernel reads the weights as they are
  // On options.stream, for which it does not wait, or by options.parallel_for; the rest of options is not
  // read. They serve every plan for the same filter on the device whose kernel is the same or reads that
  // order, whatever its batch and image, where packing does not depend on those: run says where it does.
  std::shared_ptr<const PackedWeights> pack_weights(const void* w, const RunOptions& options = {}) const;
  // Allocates nothing. On the CPU the result is there when it returns; on a GPU once the stream has come so
  // far. Throws Error(bad_problem) if a pointer that the problem needs is null, is one that the kernel cannot
  // use, or if the result or the workspace overlaps another.
  void run(const Tensors& tensors, const RunOptions& options) const;

  explicit Plan(std::shared_ptr<const PlanImpl> impl) : impl_(std::move(impl)) {}

 private:
  friend struct Internals;
  std::shared_ptr<const PlanImpl> impl_;
};

// ---------------------------------------------------------------------------------------------- choosing

// What became of a kernel.
enum class Outcome {
  not_measured,
  chosen,
  slower,
  pass,           // it was tried, and is right
  declined,       // it does not compute the problem, which says nothing against it
  skipped,        // by the request
  quarantined,    // it failed on this device before
  slow,           // it is right, and far behind what its cost model says
  wrong,          // its result is
  out_of_bounds,  // it wrote outside of its buffers
  hang,
  crash,
  compile_error,
  out_of_memory,  // this time
  too_large,      // it needs more memory than the device has
};
// In words: "not measured".
FALTUNG_API const char* name(Outcome outcome);

// What is known of one kernel on one problem.
struct Report {
  std::string kernel;  // the algorithm's name where all of it is meant
  Outcome outcome = Outcome::not_measured;
  std::string why;          // in words, where there is more to say
  double predicted_ms = 0;  // by the cost model; 0 if it declined
  double ms = 0;            // measured median; 0 if not measured
  double ms_min = 0, ms_max = 0;
  double error_over_bound = -1;  // worst element, in units of its bound; -1 if not verified
  double compile_ms = 0;
  std::size_t workspace_bytes = 0;
  double error_growth = 0;    // the bound on the error, in units of 2^-24 times the sum of |products|
  std::string bound_by;       // bytes, arithmetic or latency
  double ceiling_pct = 0;     // share of the roofline, from ms if measured, else predicted
  bool deterministic = true;  // the same bits from every run
  // Of f32: the root mean square error over random problems is at most so many times that of a chain of fp32
  // multiply-adds; 0 where nothing is stated.
  double rms_of_chain = 0;
};

struct Choice {
  std::string kernel;
  std::string source;           // lock, forced, store, model
  std::vector<Report> reports;  // best first; every algorithm has at least one
};

// Called before each trial of find: which of how many, and what is being tried.
using Progress = std::function<void(int done, int total, const std::string& kernel)>;

class EngineImpl;

// The store, the devices and the algorithms behind one handle. Thread-safe.
class FALTUNG_API Engine {
 public:
  // store: a directory, or a file that `faltung store export` wrote; empty for $FALTUNG_STORE, else
  // $XDG_CACHE_HOME/faltung, else ~/.cache/faltung. A read-only store that was exported with --lock is a
  // lock: a problem that it does not name is an error.
  explicit Engine(const std::string& store = "");
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  // The store's answer, else the cost model's. A GPU's kernel that was never tried on this device is tried in
  // another process first.
  Plan plan(const Problem& problem, const Request& request = {});
  // Called with one line for what a caller may want to know and need not act on: a kernel that was put into
  // quarantine and another that answers in its place, a store that cannot be written. Possibly from several
  // threads at once; nothing is said unless it is set.
  void on_warning(std::function<void(const std::string& line)> warn);
  // Measures within request.budget_ms, verifies what may win, and stores the result.
  Choice find(const Problem& problem, const Request& request = {}, const Progress& progress = {});
  // One report for each algorithm: chosen, slower by how much, or why not. Measures no kernel; the device's
  // ceilings, of which shares are told, it measures where the store has none, in some seconds.
  Choice explain(const Problem& problem, const Request& request = {});

 private:
  friend struct Internals;
  std::unique_ptr<EngineImpl> impl_;
};

// ------------------------------------------------------------------------------------------------ memory

// Of a MemoryPool, in bytes where nothing else is said.
struct MemoryStats {
  std::size_t in_use = 0;    // in blocks that are handed out, each rounded up to a multiple of 256
  std::size_t reserved = 0;  // taken from the device: in use, and kept for the next request
  std::size_t peak_in_use = 0, peak_reserved = 0;
  std::size_t blocks = 0;              // how many are handed out
  std::size_t allocations = 0;         // calls of allocate that succeeded
  std::size_t device_allocations = 0;  // of them, those for which memory was taken from the device
};

class MemoryPoolImpl;

// Device memory for callers that have no allocator of their own: taken from the device in large pieces, and
// kept when it is freed. Thread-safe. What is freed may be handed out again at once: free it when the work on
// it is done, or use what comes next in the same stream alone.
class FALTUNG_API MemoryPool {
 public:
  // limit: of what is taken from the device, in bytes. Throws Error(bad_problem) if there is no such device.
  explicit MemoryPool(const std::string& device = "cpu", std::size_t limit = static_cast<std::size_t>(-1));
  // All memory goes back to the device, blocks that are in use too.
  ~MemoryPool();
  // Aligned to 64 bytes; the contents are anything. Throws Error(out_of_memory) where the limit or the device
  // has no room, what is kept having been given back.
  void* allocate(std::size_t bytes);
  // Throws Error(bad_problem) for a pointer that allocate did not return, or that was freed; null does
  // nothing.
  void free(void* pointer);
  // From and to the host; return when it is done. The device's bytes must lie in one block that is in use.
  // They come after what ran with a null stream. They do not wait for other work: before a copy, wait for
  // an OpenCL queue of your own (clFinish), and for a CUDA stream that is non-blocking
  // (cudaStreamSynchronize), as PyTorch's are; CUDA's blocking streams wait by themselves.
  void copy_in(void* to, const void* from, std::size_t bytes);
  void copy_out(void* to, const void* from, std::size_t bytes);
  // Gives back to the device the pieces of which no part is in use; how many bytes those were.
  std::size_t trim();
  MemoryStats stats() const;

 private:
  std::unique_ptr<MemoryPoolImpl> impl_;
};

// An OpenCL program's own buffer (a cl_mem) as a device pointer for Tensors and RunOptions: one may add to
// it. It holds the buffer while it lives. CUDA's pointers are device pointers as they are. Throws
// Error(bad_problem) where the device is not OpenCL's.
FALTUNG_API std::shared_ptr<void> adopt(const std::string& device, void* cl_mem);

FALTUNG_API std::string version();

}  // namespace faltung

#endif  // FALTUNG_FALTUNG_HPP_
