// A libamdhip64.so without hardware: its GPUs are chips that the emulator in tests/emulator executes. It has
// the functions that src/backend/hip_driver.hpp lists, as HIP 6 has them, and does what a driver does: work
// is done in the stream's order, a stream can be captured, and a kernel that goes where there is no memory
// ends the process.
//
// FAKE_HIP names the GPUs: chips with commas between, each with the name that it is to be called after a
// colon where that is another (gfx1030:gfx9999); gfx942 where it is not set.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/backend/unit_limits.hpp"
#include "src/problem/text.hpp"
#include "tests/emulator/machine.hpp"
#include "tests/fake_hip/chips.hpp"

namespace {

using faltung::emulator::CodeObject, faltung::emulator::Machine, faltung::emulator::Memory;
using Clock = std::chrono::steady_clock;

enum Result {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  no_binary = 209,
  not_found = 500,
  capture_invalid = 901
};

constexpr std::size_t kMemoryBytes = std::size_t{1} << 32;

struct Gpu {
  faltung::fake_hip::Chip chip;
  // A kernel that never ends runs as long as the process does.
  Machine machine{1, ~std::uint64_t{0}};
};

struct Allocation {
  std::size_t bytes;
  int gpu;
};

struct Module {
  std::string elf;
  int gpu;
  std::map<std::string, std::unique_ptr<struct Function>> functions;
};

struct Function {
  std::shared_ptr<CodeObject> code;
  int gpu;
};

// A launch with the values of its arguments, as a graph keeps it.
struct Launch {
  const Function* function;
  faltung::LaunchShape shape;
  std::vector<std::string> values;
};

struct Graph {
  std::vector<Launch> launches;
};

struct Stream {
  bool captures = false;
  Graph graph;
};

struct Event {
  Clock::time_point time;
};

// All that the library knows, behind one lock.
struct Runtime {
  std::mutex mutex;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::map<const std::byte*, Allocation> allocations;
  std::size_t allocated = 0;

  Runtime() {
    for (const faltung::fake_hip::Chip& chip : faltung::fake_hip::chips()) {
      gpus.push_back(std::make_unique<Gpu>());
      gpus.back()->chip = chip;
    }
  }
};

Runtime& runtime() {
  static Runtime& instance = *new Runtime;
  return instance;
}

thread_local int current = 0;

bool is_gpu(int gpu) { return gpu >= 0 && static_cast<std::size_t>(gpu) < runtime().gpus.size(); }

// Where an address lies in an allocation, with room for so many bytes; null where it does not.
const Allocation* find(const void* address, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto next = runtime().allocations.upper_bound(at);
  if (next == runtime().allocations.begin()) return nullptr;
  --next;
  const std::size_t offset = static_cast<std::size_t>(at - next->first);
  return offset < next->second.bytes && bytes <= next->second.bytes - offset ? &next->second : nullptr;
}

void run(const Launch& launch) {
  std::vector<faltung::Argument> arguments;
  for (const std::string& value : launch.values) arguments.emplace_back(value.data(), value.size(), false);
  try {
    runtime().gpus[static_cast<std::size_t>(launch.function->gpu)]->machine.run(*launch.function->code,
                                                                                launch.shape, arguments);
  } catch (const std::exception& fault) {  // as ROCm's driver ends a process whose kernel faulted
    std::fprintf(stderr, "Memory access fault by GPU node-1: %s\n", fault.what());
    std::abort();
  }
}

}  // namespace

extern "C" {

int hipInit(unsigned) { return runtime().gpus.empty() ? no_device : success; }
int hipRuntimeGetVersion(int* version) { return *version = 6'02'41134, success; }
const char* hipGetErrorName(int result) {
  switch (result) {
    case out_of_memory:
      return "hipErrorOutOfMemory";
    case invalid_image:
      return "hipErrorInvalidImage";
    case no_binary:
      return "hipErrorNoBinaryForGpu";
    case not_found:
      return "hipErrorNotFound";
    default:
      return "hipErrorInvalidValue";
  }
}
const char* hipGetErrorString(int result) {
  return result == out_of_memory ? "out of memory" : "an error of the test's driver";
}
int hipGetDeviceCount(int* count) {
  *count = static_cast<int>(runtime().gpus.size());
  return *count == 0 ? no_device : success;
}
int hipSetDevice(int gpu) { return is_gpu(gpu) ? current = gpu, success : invalid_device; }
int hipDeviceGetName(char* name, int size, int gpu) {
  if (!is_gpu(gpu)) return invalid_device;
  std::snprintf(name, static_cast<std::size_t>(size), "AMD Emulated %d", gpu);
  return success;
}
int hipDeviceTotalMem(std::size_t* bytes, int gpu) {
  return is_gpu(gpu) ? *bytes = kMemoryBytes, success : invalid_device;
}
// FAKE_HIP_LOCAL_BYTES: what a block may take of local memory.
int local_bytes_of_block() {
  const char* const given = std::getenv("FAKE_HIP_LOCAL_BYTES");
  return given == nullptr ? 64 << 10 : std::atoi(given);
}
int hipDeviceGetAttribute(int* value, int attribute, int gpu) {
  if (!is_gpu(gpu)) return invalid_device;
  constexpr int kL2CacheBytes = 19, kThreads = 56, kUnits = 63, kPageable = 65, kLocalBytes = 74;
  switch (attribute) {
    case kL2CacheBytes:
      return *value = 4 << 20, success;
    case kThreads:
      return *value = 1024, success;
    case kUnits:
      return *value = 2, success;
    case kPageable:
      return *value = 0, success;
    case kLocalBytes:
      return *value = local_bytes_of_block(), success;
    default:
      return invalid_value;
  }
}
int hipGetDevicePropertiesR0600(void* properties, int gpu) {
  if (!is_gpu(gpu)) return invalid_device;
  constexpr std::size_t kBytes = 1472, kArchitecture = 1160;
  std::memset(properties, 0x11, kBytes);
  std::strcpy(static_cast<char*>(properties) + kArchitecture,
              runtime().gpus[static_cast<std::size_t>(gpu)]->chip.called.c_str());
  return success;
}

int hipMalloc(void** address, std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  if (bytes == 0 || bytes > kMemoryBytes - runtime().allocated) return out_of_memory;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
  if (memory == nullptr) return out_of_memory;
  runtime().gpus[static_cast<std::size_t>(current)]->machine.memory().add(
      memory, bytes, Memory::Content::defined, "an allocation of " + std::to_string(bytes) + " bytes");
  runtime().allocations[memory] = {bytes, current};
  runtime().allocated += bytes;
  return *address = memory, success;
}
int hipFree(void* address) {
  if (address == nullptr) return success;
  const std::lock_guard lock(runtime().mutex);
  const auto found = runtime().allocations.find(static_cast<std::byte*>(address));
  if (found == runtime().allocations.end()) return invalid_value;
  runtime().gpus[static_cast<std::size_t>(found->second.gpu)]->machine.memory().remove(address);
  runtime().allocated -= found->second.bytes;
  runtime().allocations.erase(found);
  std::free(address);
  return success;
}
int hipPointerGetAttribute(void* value, int attribute, void* address) {
  constexpr int kMemoryType = 2, kDeviceOrdinal = 9, kOnDevice = 2;
  const std::lock_guard lock(runtime().mutex);
  const Allocation* const allocation = find(address, 0);
  if (allocation == nullptr || (attribute != kMemoryType && attribute != kDeviceOrdinal))
    return invalid_value;
  return *static_cast<int*>(value) = attribute == kMemoryType ? kOnDevice : allocation->gpu, success;
}
int hipMemcpyHtoD(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  if (find(to, bytes) == nullptr) return invalid_value;
  return std::memcpy(to, from, bytes), success;
}
int hipMemcpyDtoH(void* to, void* from, std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  if (find(from, bytes) == nullptr) return invalid_value;
  return std::memcpy(to, from, bytes), success;
}

int hipModuleLoadData(void** module, const void* image) {
  const auto* const bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "\177ELF", 4) != 0) return invalid_image;
  std::uint64_t sections = 0;
  std::uint16_t size = 0, count = 0;
  std::memcpy(&sections, bytes + 40, sizeof sections);
  std::memcpy(&size, bytes + 58, sizeof size);
  std::memcpy(&count, bytes + 60, sizeof count);
  *module = new Module{std::string(bytes, sections + std::size_t{size} * count), current, {}};
  return success;
}
int hipModuleUnload(void* module) { return delete static_cast<Module*>(module), success; }
int hipModuleGetFunction(void** function, void* handle, const char* name) {
  const std::lock_guard lock(runtime().mutex);
  auto& module = *static_cast<Module*>(handle);
  std::unique_ptr<Function>& made = module.functions[name];
  if (made == nullptr) {
    const std::string& chip = runtime().gpus[static_cast<std::size_t>(module.gpu)]->chip.chip;
    try {
      made = std::make_unique<Function>(
          Function{faltung::emulator::load_code_object(module.elf, chip, name), module.gpu});
    } catch (const faltung::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return error.status() == faltung::Status::bad_problem ? not_found : no_binary;
    }
  }
  return *function = made.get(), success;
}
int hipFuncGetAttribute(int* value, int attribute, void* function) {
  const CodeObject& code = *static_cast<Function*>(function)->code;
  constexpr int kThreads = 0, kLocalBytes = 1, kPrivateBytes = 3, kRegisters = 4;
  switch (attribute) {
    case kThreads:
      return *value = 1024, success;
    case kLocalBytes:
      return *value = code.local_bytes, success;
    case kPrivateBytes:
      return *value = code.private_bytes, success;
    case kRegisters:
      return *value = code.vector_registers, success;
    default:
      return invalid_value;
  }
}
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                       std::size_t shared_bytes) {
  const CodeObject& code = *static_cast<Function*>(function)->code;
  *blocks = faltung::unit_limits(code.chip).blocks(threads, code.vector_registers,
                                                   code.local_bytes + static_cast<int>(shared_bytes));
  return success;
}
int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                          void** values, void**) {
  const auto* const f = static_cast<Function*>(function);
  if (f->code->local_bytes + static_cast<int>(shared_bytes) > local_bytes_of_block()) return invalid_value;
  Launch launch{f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, {}};
  std::size_t next = 0;
  for (const faltung::emulator::ArgumentPlace& place : f->code->arguments) {
    if (place.kind.starts_with("hidden_")) continue;
    launch.values.emplace_back(static_cast<const char*>(values[next++]), place.bytes);
  }
  const std::lock_guard lock(runtime().mutex);
  auto* const s = static_cast<Stream*>(stream);
  if (s != nullptr && s->captures)
    s->graph.launches.push_back(std::move(launch));
  else
    run(launch);
  return success;
}

int hipEventCreateWithFlags(void** event, unsigned) { return *event = new Event{}, success; }
int hipEventDestroy(void* event) { return delete static_cast<Event*>(event), success; }
int hipEventRecord(void* event, void*) { return static_cast<Event*>(event)->time = Clock::now(), success; }
int hipEventSynchronize(void*) { return success; }
int hipEventElapsedTime(float* ms, void* begin, void* end) {
  const auto passed = static_cast<Event*>(end)->time - static_cast<Event*>(begin)->time;
  return *ms = std::chrono::duration<float, std::milli>(passed).count(), success;
}
int hipStreamCreateWithFlags(void** stream, unsigned) { return *stream = new Stream, success; }
int hipStreamDestroy(void* stream) { return delete static_cast<Stream*>(stream), success; }
int hipStreamSynchronize(void* stream) {
  return stream != nullptr && static_cast<Stream*>(stream)->captures ? capture_invalid : success;
}
int hipStreamIsCapturing(void* stream, int* status) {
  return *status = stream != nullptr && static_cast<Stream*>(stream)->captures ? 1 : 0, success;
}
int hipStreamBeginCapture(void* stream, int) {
  if (stream == nullptr) return invalid_value;
  static_cast<Stream*>(stream)->captures = true;
  return success;
}
int hipStreamEndCapture(void* stream, void** graph) {
  auto& s = *static_cast<Stream*>(stream);
  if (!s.captures) return capture_invalid;
  *graph = new Graph(std::move(s.graph));
  s.graph = {}, s.captures = false;
  return success;
}
int hipGraphInstantiate(void** replay, void* graph, void**, char*, std::size_t) {
  return *replay = new Graph(*static_cast<Graph*>(graph)), success;
}
int hipGraphLaunch(void* replay, void*) {
  const std::lock_guard lock(runtime().mutex);
  for (const Launch& launch : static_cast<Graph*>(replay)->launches) run(launch);
  return success;
}
int hipGraphExecDestroy(void* replay) { return delete static_cast<Graph*>(replay), success; }
int hipGraphDestroy(void* graph) { return delete static_cast<Graph*>(graph), success; }

}  // extern "C"
