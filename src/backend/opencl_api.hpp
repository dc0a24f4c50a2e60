// The functions used of OpenCL and the numbers they take, in declarations of our own after the specification:
// no header and no library of OpenCL is needed to build.
#ifndef FALTUNG_SRC_BACKEND_OPENCL_API_HPP_
#define FALTUNG_SRC_BACKEND_OPENCL_API_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace faltung::opencl {

using Int = std::int32_t;
using Uint = std::uint32_t;
using Bitfield = std::uint64_t;
// Handles are pointers to what only the driver knows.
using Platform = struct PlatformOpaque*;
using DeviceId = struct DeviceOpaque*;
using Context = struct ContextOpaque*;
using Queue = struct QueueOpaque*;
using Mem = struct MemOpaque*;
using Program = struct ProgramOpaque*;
using KernelHandle = struct KernelOpaque*;
using Event = struct EventOpaque*;

inline constexpr Int kSuccess = 0, kMemObjectAllocationFailure = -4, kOutOfResources = -5,
                     kOutOfHostMemory = -6, kBuildProgramFailure = -11;
inline constexpr Bitfield kTypeCpu = 1 << 1, kTypeAll = 0xFFFFFFFF;
inline constexpr Bitfield kMemReadWrite = 1 << 0, kQueueProfiling = 1 << 1;
inline constexpr Uint kTrue = 1;
// clGetPlatformInfo, clGetDeviceInfo
inline constexpr Uint kPlatformVersion = 0x0901, kPlatformName = 0x0902;
inline constexpr Uint kDeviceType = 0x1000, kDeviceUnits = 0x1002, kDeviceMaxGroup = 0x1004,
                      kDeviceMaxAllocation = 0x1010, kDeviceCacheBytes = 0x101E, kDeviceMemory = 0x101F,
                      kDeviceLocalBytes = 0x1023, kDeviceCompiler = 0x1028, kDeviceName = 0x102B,
                      kDeviceDriver = 0x102D, kDeviceVersion = 0x102F, kDeviceExtensions = 0x1030;
// of NVIDIA's: the compute capability
inline constexpr Uint kDeviceMajorNv = 0x4000, kDeviceMinorNv = 0x4001;
// the others' queries
inline constexpr Uint kQueueContext = 0x1090, kQueueProperties = 0x1093;
inline constexpr Uint kMemSize = 0x1102, kMemContext = 0x1106;
inline constexpr Uint kProgramBinarySizes = 0x1165, kProgramBinaries = 0x1166, kProgramBuildLog = 0x1183;
inline constexpr Uint kKernelGroupSize = 0x11B0, kKernelLocalBytes = 0x11B2, kKernelGroupMultiple = 0x11B3,
                      kKernelPrivateBytes = 0x11B4;
inline constexpr Uint kProfilingStart = 0x1282, kProfilingEnd = 0x1283;

using Notify = void (*)(void*);

struct Api {
  Int (*get_platforms)(Uint room, Platform* platforms, Uint* count);
  Int (*get_platform_info)(Platform, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Int (*get_devices)(Platform, Bitfield type, Uint room, DeviceId* devices, Uint* count);
  Int (*get_device_info)(DeviceId, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Context (*create_context)(const std::intptr_t* properties, Uint count, const DeviceId*,
                            void (*notify)(const char*, const void*, std::size_t, void*), void*, Int* error);
  Int (*release_context)(Context);
  Queue (*create_queue)(Context, DeviceId, Bitfield properties, Int* error);
  Int (*release_queue)(Queue);
  Int (*get_queue_info)(Queue, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Mem (*create_buffer)(Context, Bitfield flags, std::size_t bytes, void* host, Int* error);
  Int (*retain_mem)(Mem);
  Int (*release_mem)(Mem);
  Int (*get_mem_info)(Mem, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Program (*create_program)(Context, Uint count, const char** texts, const std::size_t* lengths, Int* error);
  Program (*create_program_from_binary)(Context, Uint count, const DeviceId*, const std::size_t* lengths,
                                        const unsigned char** binaries, Int* status, Int* error);
  Int (*build_program)(Program, Uint count, const DeviceId*, const char* options,
                       void (*notify)(Program, void*), void*);
  Int (*get_program_info)(Program, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Int (*get_build_info)(Program, DeviceId, Uint what, std::size_t room, void* value, std::size_t* bytes);
  Int (*release_program)(Program);
  KernelHandle (*create_kernel)(Program, const char* name, Int* error);
  Int (*release_kernel)(KernelHandle);
  Int (*set_kernel_argument)(KernelHandle, Uint index, std::size_t bytes, const void* value);
  Int (*get_kernel_group_info)(KernelHandle, DeviceId, Uint what, std::size_t room, void* value,
                               std::size_t* bytes);
  Int (*enqueue_kernel)(Queue, KernelHandle, Uint dimensions, const std::size_t* offset,
                        const std::size_t* global, const std::size_t* local, Uint waits, const Event*,
                        Event* event);
  Int (*enqueue_read)(Queue, Mem, Uint blocking, std::size_t offset, std::size_t bytes, void* to, Uint waits,
                      const Event*, Event* event);
  Int (*enqueue_write)(Queue, Mem, Uint blocking, std::size_t offset, std::size_t bytes, const void* from,
                       Uint waits, const Event*, Event* event);
  Int (*enqueue_copy)(Queue, Mem from, Mem to, std::size_t from_offset, std::size_t to_offset,
                      std::size_t bytes, Uint waits, const Event*, Event* event);
  Int (*enqueue_marker)(Queue, Uint waits, const Event*, Event* event);
  Int (*finish)(Queue);
  Int (*flush)(Queue);
  Int (*release_event)(Event);
  Int (*get_event_profile)(Event, Uint what, std::size_t room, void* value, std::size_t* bytes);
};

// Null where there is no libOpenCL.so.1, or one older than OpenCL 1.2.
const Api* api();
// The environment variable that lists drivers, as it was before the loader read it: some loaders cut it at
// its colons, in place, and a child process would then find the first driver alone. Null if it was not set,
// or no loader was opened.
const char* given_filenames();
inline constexpr const char* kFilenames = "OCL_ICD_FILENAMES";
// An error code's name in the specification, e.g. CL_OUT_OF_RESOURCES.
std::string error_name(Int code);
// Throws what an error's code says, after `what` was being done.
[[noreturn]] void fail(Int code, const std::string& what);
// Where the code is no success. what: a text, or what makes one then, for a launch is to allocate nothing.
template <class What>
void check(Int code, const What& what) {
  if (code == kSuccess) return;
  if constexpr (std::is_invocable_v<What>)
    fail(code, what());
  else
    fail(code, what);
}

// Every query of OpenCL has this form: how many bytes, then the bytes.
template <class Get, class... Object>
std::string text_of(Get get, Object... object) {
  std::size_t bytes = 0;
  if (get(object..., 0, nullptr, &bytes) != kSuccess) return "";
  std::string text(bytes, '\0');
  if (bytes == 0 || get(object..., bytes, text.data(), nullptr) != kSuccess) return "";
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace faltung::opencl

#endif  // FALTUNG_SRC_BACKEND_OPENCL_API_HPP_
