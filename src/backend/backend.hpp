// What a device can do for the rest: compile, load, launch, time, allocate, and nothing else.
//
// The CPU's kernels are compiled with the library, so it declines compile and runs plans' steps as functions
// on threads; a GPU's steps launch kernels on a stream. Both see the same Device and Stream.
#ifndef FALTUNG_SRC_BACKEND_BACKEND_HPP_
#define FALTUNG_SRC_BACKEND_BACKEND_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/backend/parallel.hpp"
#include "src/backend/tensor_map.hpp"
#include "src/backend/unit_limits.hpp"

namespace faltung {

// What a device reaches in one kind of arithmetic, measured on it, or 0 where unknown.
struct Rate {
  double gflops = 0;  // 10^9 operations a second
  double mhz = 0;  // the clock meanwhile, which falls with the power that they draw; 0 where it is not told
  auto operator<=>(const Rate&) const = default;
};

struct Ceilings {
  Rate f32, tf32, f16, bf16;
  double copy_gbps = 0;  // 10^9 bytes a second, read plus written; 0 where unknown
};

struct NamedRate {
  const char* name;
  Rate Ceilings::*rate;
  // Of its numbers, in records and in tables.
  std::string gflops_name() const { return std::string(name) + "_gflops"; }
  std::string mhz_name() const { return std::string(name) + "_mhz"; }
};
inline constexpr NamedRate kCeilingRates[] = {
    {"f32", &Ceilings::f32}, {"tf32", &Ceilings::tf32}, {"f16", &Ceilings::f16}, {"bf16", &Ceilings::bf16}};

struct DeviceInfo {
  std::string id;           // cpu, cuda:0, opencl:1
  std::string description;  // the model, as its maker calls it
  std::string kind;         // cpu or gpu
  std::string key;  // what kernels and timings depend on: microarchitecture and compiler or driver version
  // What compiled code depends on, where that is less than the key: devices and drivers that share it.
  std::string code_key;
  std::string driver;  // version, in words
  int units = 0;       // cores or multiprocessors
  std::size_t memory_bytes = 0;
  std::size_t cache_bytes = 0;        // the last level's
  std::size_t local_bytes = 0;        // GPU: what the threads of a block (work-group) can share
  int block_threads = 0;              // GPU: at most so many in a block
  std::string dialect;                // GPU: in which words kernels are compiled: kernels/gpu/<dialect>.h
  UnitLimits unit;                    // GPU: what a unit has room for, where the chip is known
  std::vector<std::string> features;  // of the instruction set (avx2, avx512_bf16, sm_90a, mma_sync, ...) and
                                      // of the compiler: what algorithms ask for
  bool has(const std::string& feature) const;
  const std::string& key_of_code() const { return code_key.empty() ? key : code_key; }
};

// Memory of a device, freed with the last owner.
struct Buffer {
  std::shared_ptr<void> owner;
  void* pointer = nullptr;
  std::size_t bytes = 0;
};

struct KernelSource {
  std::string name;   // as the registry knows it, for messages
  std::string text;   // one self-contained translation unit
  std::string entry;  // the kernel's function
  std::vector<std::string> options;
  // What it is launched with, where that is known: what the device can hold of it at once depends on it.
  int block_threads = 0;
  int shared_bytes = 0;  // of a block, beside those that the kernel declares
};

struct Binary {
  std::string code;
  std::string log;
  double compile_ms = 0;
};

// What a compiler made of a kernel; -1 where it does not say.
struct KernelResources {
  int registers = -1;               // of a thread; vector registers where there are scalar ones too
  int scalar_registers = -1;        // of a wave
  std::int64_t spilled_bytes = -1;  // of a thread's private memory that lies outside registers
  std::int64_t local_bytes = -1;    // of a block, declared in the kernel
  int block_threads = -1;           // that a block may have, or that the kernel requires
  int wave_threads = -1;            // in step; or what the driver wants a block's to be a multiple of
  int blocks = -1;                  // that one unit (multiprocessor) holds
  int waves = -1;                   // that one scheduler (SIMD) holds
  double occupancy = -1;            // those waves over the most that there can be: 0 to 1
  std::string limited_by;           // what allows no more waves: a Residence's words, or empty
};

class Kernel {
 public:
  virtual ~Kernel() = default;
};

struct LaunchShape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  unsigned cluster[3] = {1, 1, 1};  // blocks that share their memories; Hopper and later
  // The kernel may start while the one before it in the stream still runs: it waits for that one's results
  // itself, where it needs them.
  bool overlaps_previous = false;
};

// One argument of a kernel: a value, or an address in device memory, which is told by its being a pointer.
// Refers to the value given, which must live until the launch returns.
struct Argument {
  const void* value = nullptr;
  std::size_t bytes = 0;
  bool is_address = false;
  Argument() = default;
  Argument(const void* value, std::size_t bytes, bool is_address)
      : value(value), bytes(bytes), is_address(is_address) {}
  template <class T>
  Argument(const T& v) : value(&v), bytes(sizeof(T)), is_address(std::is_pointer_v<T>) {
    static_assert(std::is_trivially_copyable_v<T>);
  }
};

// Where a plan's steps run: the CPU's workers, or a GPU's stream or queue.
struct Stream {
  const Parallel* parallel = nullptr;
  void* native = nullptr;
};

// Work that a device recorded, to be submitted as a whole: a graph.
class Recording {
 public:
  virtual ~Recording() = default;
  // Submits it, waits for it, and says how many milliseconds it took on the device.
  virtual double time_ms() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // False of what only compiles.
  virtual bool runs() const { return true; }

  virtual Binary compile(const KernelSource& source) = 0;
  // The kernel may be launched with as many shared bytes as its source says.
  virtual std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) = 0;
  // Of a kernel that was made of this source.
  virtual KernelResources resources(const Kernel& kernel, const KernelSource& source) const;
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
                      const Stream& stream) = 0;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::initializer_list<Argument> arguments,
              const Stream& stream) {
    launch(kernel, shape, std::span<const Argument>(arguments.begin(), arguments.size()), stream);
  }
  // What a kernel takes for a tensor at this address. Throws Error(unsupported) that says which limit the
  // shape breaks, or that the device has no copy engine.
  virtual TensorMap encode(const MapShape& shape, const void* address) const;
  // Milliseconds that the work submitted by `work` to `stream` takes on the device.
  virtual double time_ms(const Stream& stream, const std::function<void()>& work) = 0;
  // What `work` submits to the stream that it is given, recorded and not run; null where the device cannot.
  // Free of the gaps between launches, which are longer than a short kernel.
  virtual std::unique_ptr<Recording> record(const std::function<void(const Stream&)>& work);
  virtual void synchronize(const Stream& stream) = 0;

  // Throws Error(bad_problem) if a kernel cannot use this address, as far as the driver tells; `what` names
  // it in the message. Costs well under a microsecond.
  virtual void check_address(const void* address, const char* what) const;

  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void copy_in(const Buffer& to, const void* from, std::size_t bytes) = 0;
  virtual void copy_out(void* to, const Buffer& from, std::size_t bytes) = 0;
  // Submits the driver's own copy between places of the device's memory, to measure kernels by; false where
  // it has none.
  virtual bool copy_within(void* to, const void* from, std::size_t bytes, const Stream& stream);
};

// All devices of this machine; the CPU is the first.
std::vector<std::shared_ptr<Device>> list_devices();
// The device of this id. Throws Error(bad_problem) that lists the ids there are.
std::shared_ptr<Device> find_device(const std::string& id);

std::shared_ptr<Device> make_cpu_device();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_BACKEND_HPP_
