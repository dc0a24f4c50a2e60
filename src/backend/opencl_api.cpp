#include "src/backend/opencl_api.hpp"

#include <cstdlib>
#include <type_traits>

#include "faltung/faltung.hpp"

#include <dlfcn.h>

namespace faltung::opencl {

namespace {

// Never destroyed: processes are started while others end.
std::string*& filenames() {
  static std::string* value = nullptr;
  return value;
}

}  // namespace

const char* given_filenames() { return filenames() == nullptr ? nullptr : filenames()->c_str(); }

const Api* api() {
  static const Api* const instance = []() -> const Api* {
    if (const char* given = std::getenv(kFilenames)) filenames() = new std::string(given);
    void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Api functions;
    bool complete = true;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      complete = complete && function != nullptr;
    };
    bind(functions.get_platforms, "clGetPlatformIDs");
    bind(functions.get_platform_info, "clGetPlatformInfo");
    bind(functions.get_devices, "clGetDeviceIDs");
    bind(functions.get_device_info, "clGetDeviceInfo");
    bind(functions.create_context, "clCreateContext");
    bind(functions.release_context, "clReleaseContext");
    bind(functions.create_queue, "clCreateCommandQueue");
    bind(functions.release_queue, "clReleaseCommandQueue");
    bind(functions.get_queue_info, "clGetCommandQueueInfo");
    bind(functions.create_buffer, "clCreateBuffer");
    bind(functions.retain_mem, "clRetainMemObject");
    bind(functions.release_mem, "clReleaseMemObject");
    bind(functions.get_mem_info, "clGetMemObjectInfo");
    bind(functions.create_program, "clCreateProgramWithSource");
    bind(functions.create_program_from_binary, "clCreateProgramWithBinary");
    bind(functions.build_program, "clBuildProgram");
    bind(functions.get_program_info, "clGetProgramInfo");
    bind(functions.get_build_info, "clGetProgramBuildInfo");
    bind(functions.release_program, "clReleaseProgram");
    bind(functions.create_kernel, "clCreateKernel");
    bind(functions.release_kernel, "clReleaseKernel");
    bind(functions.set_kernel_argument, "clSetKernelArg");
    bind(functions.get_kernel_group_info, "clGetKernelWorkGroupInfo");
    bind(functions.enqueue_kernel, "clEnqueueNDRangeKernel");
    bind(functions.enqueue_read, "clEnqueueReadBuffer");
    bind(functions.enqueue_write, "clEnqueueWriteBuffer");
    bind(functions.enqueue_copy, "clEnqueueCopyBuffer");
    bind(functions.enqueue_marker, "clEnqueueMarkerWithWaitList");
    bind(functions.finish, "clFinish");
    bind(functions.flush, "clFlush");
    bind(functions.release_event, "clReleaseEvent");
    bind(functions.get_event_profile, "clGetEventProfilingInfo");
    return complete ? &functions : nullptr;
  }();
  return instance;
}

std::string error_name(Int code) {
  struct Named {
    Int code;
    const char* name;
  };
  constexpr Named kNames[] = {
      {-1, "DEVICE_NOT_FOUND"},
      {-2, "DEVICE_NOT_AVAILABLE"},
      {-3, "COMPILER_NOT_AVAILABLE"},
      {-4, "MEM_OBJECT_ALLOCATION_FAILURE"},
      {-5, "OUT_OF_RESOURCES"},
      {-6, "OUT_OF_HOST_MEMORY"},
      {-7, "PROFILING_INFO_NOT_AVAILABLE"},
      {-11, "BUILD_PROGRAM_FAILURE"},
      {-14, "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
      {-30, "INVALID_VALUE"},
      {-33, "INVALID_DEVICE"},
      {-34, "INVALID_CONTEXT"},
      {-36, "INVALID_COMMAND_QUEUE"},
      {-38, "INVALID_MEM_OBJECT"},
      {-42, "INVALID_BINARY"},
      {-43, "INVALID_BUILD_OPTIONS"},
      {-44, "INVALID_PROGRAM"},
      {-45, "INVALID_PROGRAM_EXECUTABLE"},
      {-46, "INVALID_KERNEL_NAME"},
      {-47, "INVALID_KERNEL_DEFINITION"},
      {-48, "INVALID_KERNEL"},
      {-49, "INVALID_ARG_INDEX"},
      {-50, "INVALID_ARG_VALUE"},
      {-51, "INVALID_ARG_SIZE"},
      {-52, "INVALID_KERNEL_ARGS"},
      {-53, "INVALID_WORK_DIMENSION"},
      {-54, "INVALID_WORK_GROUP_SIZE"},
      {-55, "INVALID_WORK_ITEM_SIZE"},
      {-58, "INVALID_EVENT"},
      {-59, "INVALID_OPERATION"},
      {-61, "INVALID_BUFFER_SIZE"},
      {-63, "INVALID_GLOBAL_WORK_SIZE"},
      {-1001, "PLATFORM_NOT_FOUND_KHR"},
      {-9999, "illegal memory access (NVIDIA)"},
  };
  for (const Named& named : kNames) {
    if (named.code == code) return named.code < -1001 ? named.name : std::string("CL_") + named.name;
  }
  return "error " + std::to_string(code);
}

void fail(Int code, const std::string& what) {
  const bool memory =
      code == kMemObjectAllocationFailure || code == kOutOfResources || code == kOutOfHostMemory;
  throw Error(memory ? Status::out_of_memory : Status::device_error, what + ": " + error_name(code));
}

}  // namespace faltung::opencl
