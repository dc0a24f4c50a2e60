// The functions used of the CUDA driver's library and the numbers they take, in declarations of our own: no
// CUDA header is needed to build.
#ifndef FALTUNG_SRC_BACKEND_CUDA_DRIVER_HPP_
#define FALTUNG_SRC_BACKEND_CUDA_DRIVER_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/backend/stream_device.hpp"

namespace faltung::cuda {

// CUdevice_attribute
inline constexpr int kThreadsOfBlock = 1, kSharedMemoryOfBlock = 8, kMultiprocessorCount = 16,
                     kL2CacheSize = 38, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76,
                     kPageableMemoryAccess = 88;
// CUpointer_attribute, and what it says of memory that is on a device
inline constexpr int kMemoryType = 2, kDeviceOrdinal = 9;
inline constexpr unsigned kDeviceMemory = 2;
// CUfunction_attribute
inline constexpr int kMaxDynamicSharedSize = 8, kNonPortableCluster = 14;
// CUlaunchAttributeID
inline constexpr int kClusterDimension = 4, kProgrammaticStreamSerialization = 6;

// CUlaunchAttribute and CUlaunchConfig
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int flag;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver : StreamFunctions {
  int (*init)(unsigned flags);
  int (*driver_get_version)(int* version);
  int (*get_error_name)(int result, const char** name);
  int (*get_error_string)(int result, const char** text);
  int (*device_get_count)(int* count);
  int (*device_get)(int* device, int ordinal);
  int (*device_get_name)(char* name, int size, int device);
  int (*device_total_mem)(std::size_t* bytes, int device);
  int (*device_get_attribute)(int* value, int attribute, int device);
  int (*primary_ctx_retain)(void** context, int device);
  int (*ctx_set_current)(void* context);
  int (*mem_alloc)(std::uint64_t* address, std::size_t bytes);
  int (*mem_free)(std::uint64_t address);
  // Of an address that is unknown to it the values are 0.
  int (*pointer_get_attributes)(unsigned count, const int* attributes, void** values, std::uint64_t address);
  int (*memcpy_to_device)(std::uint64_t to, const void* from, std::size_t bytes);
  int (*memcpy_to_host)(void* to, std::uint64_t from, std::size_t bytes);
  int (*memcpy_device_async)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);
  int (*module_load_data)(void** module, const void* image);
  int (*module_unload)(void* module);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*func_get_attribute)(int* value, int attribute, void* function);
  int (*func_set_attribute)(void* function, int attribute, int value);
  int (*blocks_of_multiprocessor)(int* blocks, void* function, int threads, std::size_t shared_bytes);
  int (*launch_kernel)(const LaunchConfig* config, void* function, void** arguments, void** extra);
  int (*graph_instantiate)(void** replay, void* graph, unsigned long long flags);
  // Null before CUDA 12.0.
  int (*tensor_map_encode_tiled)(void* map, int type, std::uint32_t rank, void* address,
                                 const std::uint64_t* sizes, const std::uint64_t* strides,
                                 const std::uint32_t* box, const std::uint32_t* steps, int interleave,
                                 int swizzle, int promotion, int fill);
  int (*tensor_map_encode_im2col)(void* map, int type, std::uint32_t rank, void* address,
                                  const std::uint64_t* sizes, const std::uint64_t* strides, const int* lower,
                                  const int* upper, std::uint32_t channels, std::uint32_t pixels,
                                  const std::uint32_t* steps, int interleave, int swizzle, int promotion,
                                  int fill);
};

// Null where there is no driver, or one too old to be used.
const Driver* driver();
// Throws what another answer than success says, after `what` was being done.
void check(int result, const std::string& what);
// e.g. 580.159.04; empty where the kernel module does not say.
std::string driver_release();

}  // namespace faltung::cuda

#endif  // FALTUNG_SRC_BACKEND_CUDA_DRIVER_HPP_
