// faltung: a convolution engine. The C++ interface; faltung.h is the C one.
//
// Letters are CUTLASS's: N C D H W batch and input channels, depth, height, width; K output channels; T R S
// the filter's depth, height and width; Z P Q the output's. Sizes are in elements, times in milliseconds,
// memory in bytes.
#ifndef FALTUNG_FALTUNG_HPP_
#define FALTUNG_FALTUNG_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define FALTUNG_API __attribute__((visibility("default")))

namespace faltung {

// ---------------------------------------------------------------------------------------------- errors

enum class Status {
  ok = 0,
  bad_problem,    // sizes, text or options that make no sense; the message says what would be right
  unsupported,    // nothing allowed can compute it; the message lists why each algorithm declined
  bad_file,       // a file that cannot be read, written or parsed
  out_of_memory,  // on the device or on the host
  device_error,   // the device or its driver failed
  internal,       // a defect of faltung's own
};

// Every failure is thrown as this. what() is one line: what was wrong, where, and what would be right.
class FALTUNG_API Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  Status status() const noexcept { return status_; }

 private:
  Status status_;
};

// --------------------------------------------------------------------------------------------- problem

enum class Direction { forward, backward_data, backward_weights };
enum class DType { f32, f16, bf16 };

// Memory order of x, y and the residual. The filter follows: nchw has it as K C/groups R S, nhwc as
// K R S C/groups (PyTorch's channels_last). In one and three dimensions the names are the same: nchw is NCW
// and NCDHW, nhwc is NWC and NDHWC.
enum class Layout { nchw, nhwc };

// What the forward direction computes.
//   plain       a convolution
//   transposed  the transpose of one, with the same filter, strides and padding ("deconvolution"): what a
//               convolution from y's shape to x's has as the gradient of its data. The filter is
//               C K/groups T R S, as ONNX and PyTorch have it.
enum class ConvolutionKind { plain, transposed };

// The accuracy that is promised; see docs/accuracy.md for the bounds.
//   f32       as good as an IEEE fp32 dot product, whatever unit computes it
//   tf32      operands may be rounded to 10 bits of mantissa, accumulation is fp32
//   f16 bf16  operands are the tensors' own 16-bit values, accumulation is fp32
//   fast      Winograd and the like allowed beyond the bound of f32, with a bound of their own
//   of_dtype  what the problem's dtype is called: f32, f16 or bf16
enum class Math { f32, tf32, f16, bf16, fast, of_dtype };

enum class Activation {
  none,
  relu,
  relu6,
  leaky_relu,
  sigmoid,
  silu,
  gelu,
  gelu_tanh,
  hardswish,
  hardsigmoid
};

// Where a residual comes in.
enum class ResidualOrder { before_activation, after_activation };

enum class PoolKind { none, max, average };

// Pooling of the convolution's output. Average divides by the number of elements inside the image
// (padding is not counted); a window lies at least partly inside.
struct Pool {
  PoolKind kind = PoolKind::none;
  std::int64_t size_h = 1, size_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  bool operator==(const Pool&) const = default;
};

// A bias's elements: of the problem's dtype, or fp32 beside tensors of 16 bits. What a rounded bias errs by
// is the same in all pixels, and averages over them keep it.
enum class BiasElement { as_tensors, f32 };

// What is done to the fp32 accumulator before it is stored, in this order (but see residual_order); forward
// only.
struct Epilogue {
  bool bias = false;      // one value an output channel
  bool residual = false;  // a tensor of the convolution's output shape (before pooling), added
  Activation activation = Activation::none;
  float slope = 0.01f;  // of leaky_relu, and of hardsigmoid: max(0, min(1, slope x + 0.5))
  Pool pool;
  ResidualOrder residual_order = ResidualOrder::before_activation;
  BiasElement bias_element = BiasElement::as_tensors;
  bool operator==(const Epilogue&) const = default;
  bool empty() const { return *this == Epilogue{}; }
};

// What training has around a convolution, one for each direction, beside its result.
//   stats   forward: the sums, and the sums of squares, of y's channels as y is stored, pooled and all: what
//           batch normalization makes its mean and variance of
//   drelu   backward_data: the gradient goes on through the ReLU that gave x: zero where x <= 0, not for NaN
//   dbias   backward_weights: the sums of y's gradient over each output channel, the bias's gradient
// The sums are fp32 whatever the dtype, and the same bits from every run.
enum class Training { none, stats, drelu, dbias };

struct Problem {
  Direction direction = Direction::forward;
  std::int64_t n = 1, c = 1, h = 1, w = 1;
  std::int64_t k = 1, r = 1, s = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t groups = 1;
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  Math math = Math::of_dtype;
  Epilogue epilogue;
  ConvolutionKind kind = ConvolutionKind::plain;
  // Spatial ones: 1 (w alone), 2 (h and w) or 3 (d, h and w). What a dimension that is not there would have
  // is left as it is here.
  int dimensions = 2;
  std::int64_t d = 1, t = 1;
  std::int64_t stride_d = 1, dilation_d = 1;
  std::int64_t pad_front = 0, pad_back = 0;
  // Of a transposed convolution: how much larger the output is than the least that its input comes from;
  // less than the stride.
  std::int64_t output_pad_d = 0, output_pad_h = 0, output_pad_w = 0;
  // Where x, or y and the residual, are a slice of a tensor of more channels: how many that has. It is the
  // distance of neighbouring pixels in nhwc, that of images in planes in nchw; the addresses are the slice's.
  // 0: c, or k. Of plain convolutions forward.
  std::int64_t x_pitch = 0, y_pitch = 0;
  Training training = Training::none;
  bool operator==(const Problem&) const = default;

  // The convolution's output size, before pooling.
  std::int64_t z() const { return output(d, t, stride_d, dilation_d, pad_front + pad_back, output_pad_d); }
  std::int64_t p() const { return output(h, r, stride_h, dilation_h, pad_top + pad_bottom, output_pad_h); }
  std::int64_t q() const { return output(w, s, stride_w, dilation_w, pad_left + pad_right, output_pad_w); }
  // The size of y: after pooling, if there is any.
  FALTUNG_API std::int64_t y_h() const;
  FALTUNG_API std::int64_t y_w() const;

 private:
  std::int64_t output(std::int64_t in, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                      std::int64_t padding, std::int64_t more) const {
    const std::int64_t extent = dilation * (filter - 1) + 1;
    if (kind == ConvolutionKind::transposed) return (in - 1) * stride + extent - padding + more;
    return (in + padding - extent) / stride + 1;
  }
};

// Reads the canonical string (docs/problem.md has its grammar), a `MIOpenDriver conv...` command line, a
// benchdnn problem string, or a line that oneDNN wrote under ONEDNN_VERBOSE.
// Throws Error(bad_problem) that names the offending part. The result is validated.
FALTUNG_API Problem parse_problem(std::string_view text);
// The canonical string; parse_problem(to_string(p)) == p.
FALTUNG_API std::string to_string(const Problem& problem);
// Throws Error(bad_problem) unless every size is positive, groups divide, the filter fits, nothing overflows.
FALTUNG_API void validate(const Problem& problem);

enum class Tensor { x, w, y, bias, residual, relu, sums };
// What the problem's tensor takes in memory: y after pooling, the residual before it. Of the sums 0 where the
// problem has none.
FALTUNG_API std::size_t bytes(const Problem& problem, Tensor tensor);
// Its sizes, whatever the layout: n c d h w of x, n k z p q of y and the residual, 1 k 1 1 1 of the bias,
// k c/groups t r s of the filter (c k/groups t r s of a transposed convolution's), x's of relu, 1 k 1 1 1 of
// dbias's sums and 2 k 1 1 1 of those of stats, all sums before all squares. 1 for each dimension that is not
// there.
FALTUNG_API std::array<std::int64_t, 5> sizes(const Problem& problem, Tensor tensor);

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
// Besides, stats and dbias write sums (fp32), and drelu reads relu.
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
  const void* relu = nullptr;  // of drelu: x as the forward direction read it, in the problem's dtype
  void* sums = nullptr;        // of stats and dbias: float

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
  std::vector<std::string> only;  // kernel-name patterns (* and ?); empty allows all
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
};

class PlanImpl;

// A chosen kernel, ready to run many times, from many threads at once if each brings its own workspace and
// result. On the CPU the plans of an engine that ask for as many threads share them: a run that finds them
// busy is computed by its calling thread alone, to the same bits. A plan serves the child of a fork, too.
class FALTUNG_API Plan {
 public:
  const Problem& problem() const;
  const std::string& kernel() const;  // e.g. implicit_gemm_cpu/m14n2_k64
  std::size_t workspace_bytes(bool weights_are_packed = false) const;
  std::size_t packed_weights_bytes() const;  // 0: the kernel reads the weights as they are
  // On options.stream, for which it does not wait, or by options.parallel_for; the rest of options is not
  // read. They serve every plan of the same kernel for the same filter on the device, whatever its batch and
  // image, where the kernel's packing does not depend on those: run says where it does.
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
