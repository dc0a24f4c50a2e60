// The functions used of AMD's HIP library and the numbers they take, in declarations of our own: no header of
// ROCm's is needed to build. What they mean is the same in HIP 5, 6 and 7, unless it is said.
#ifndef FALTUNG_SRC_BACKEND_HIP_DRIVER_HPP_
#define FALTUNG_SRC_BACKEND_HIP_DRIVER_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "src/backend/stream_device.hpp"

namespace faltung::hip {

// hipDeviceAttribute_t
inline constexpr int kL2CacheBytes = 19, kThreadsOfBlock = 56, kUnitCount = 63, kPageableMemoryAccess = 65,
                     kLocalBytesOfBlock = 74;
// hipFunction_attribute
inline constexpr int kMostThreads = 0, kLocalBytes = 1, kPrivateBytes = 3, kRegisters = 4;
// hipPointer_attribute
inline constexpr int kMemoryType = 2, kDeviceOrdinal = 9;

struct Driver : StreamFunctions {
  int (*init)(unsigned flags);
  int (*runtime_get_version)(int* version);
  const char* (*get_error_name)(int result);
  const char* (*get_error_string)(int result);
  int (*get_device_count)(int* count);
  int (*set_device)(int device);
  int (*device_get_name)(char* name, int size, int device);
  int (*device_total_mem)(std::size_t* bytes, int device);
  int (*device_get_attribute)(int* value, int attribute, int device);
  // Fills a struct that grew with HIP 6, which has both; this is the one of a name of its own where there is.
  int (*get_device_properties)(void* properties, int device);
  bool properties_of_hip6 = false;
  int (*malloc)(void** address, std::size_t bytes);
  int (*free)(void* address);
  // Fails for an address that is unknown to it.
  int (*pointer_get_attribute)(void* value, int attribute, void* address);
  int (*memcpy_to_device)(void* to, const void* from, std::size_t bytes);
  int (*memcpy_to_host)(void* to, void* from, std::size_t bytes);
  int (*module_load_data)(void** module, const void* image);
  int (*module_unload)(void* module);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*func_get_attribute)(int* value, int attribute, void* function);
  int (*blocks_of_unit)(int* blocks, void* function, int threads, std::size_t shared_bytes);
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** values,
                       void** extra);
  int (*graph_instantiate)(void** replay, void* graph, void** error_node, char* log, std::size_t log_bytes);
};

// Null where there is no library or no GPU that it serves. FALTUNG_HIP names the library itself.
const Driver* driver();
// Why there is none.
const std::string& missing();
// What was opened, where driver() is not null.
void* library();
// Where ROCm and Python's packages put its libraries, beyond the loader's own path.
std::vector<std::string> folders();

struct Release {
  int major, minor, patch;
};
Release release();
std::string to_string(const Release& release);

// The chip and what is switched on in it, e.g. gfx942:sramecc+:xnack-.
std::string architecture(int device);
// What hipPointer_attribute's memory type is for memory on a device: HIP 6 counts otherwise than HIP 5.
unsigned device_memory();
// Throws what another answer than success says, after `what` was being done.
void check(int result, const std::string& what);

}  // namespace faltung::hip

#endif  // FALTUNG_SRC_BACKEND_HIP_DRIVER_HPP_
