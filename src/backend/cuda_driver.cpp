#include "src/backend/cuda_driver.hpp"

#include <fstream>
#include <type_traits>

#include "faltung/faltung.hpp"

#include <dlfcn.h>

namespace faltung::cuda {

const Driver* driver() {
  static const Driver* const instance = []() -> const Driver* {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Driver d;
    bool complete = true;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const auto need = [&](auto& function, const char* name) { complete = bind(function, name) && complete; };
    need(d.init, "cuInit");
    need(d.driver_get_version, "cuDriverGetVersion");
    need(d.get_error_name, "cuGetErrorName");
    need(d.get_error_string, "cuGetErrorString");
    need(d.device_get_count, "cuDeviceGetCount");
    need(d.device_get, "cuDeviceGet");
    need(d.device_get_name, "cuDeviceGetName");
    need(d.device_total_mem, "cuDeviceTotalMem_v2");
    need(d.device_get_attribute, "cuDeviceGetAttribute");
    need(d.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
    need(d.ctx_set_current, "cuCtxSetCurrent");
    need(d.mem_alloc, "cuMemAlloc_v2");
    need(d.mem_free, "cuMemFree_v2");
    need(d.pointer_get_attributes, "cuPointerGetAttributes");
    need(d.memcpy_to_device, "cuMemcpyHtoD_v2");
    need(d.memcpy_to_host, "cuMemcpyDtoH_v2");
    need(d.memcpy_device_async, "cuMemcpyDtoDAsync_v2");
    need(d.module_load_data, "cuModuleLoadData");
    need(d.module_unload, "cuModuleUnload");
    need(d.module_get_function, "cuModuleGetFunction");
    need(d.func_get_attribute, "cuFuncGetAttribute");
    need(d.func_set_attribute, "cuFuncSetAttribute");
    need(d.blocks_of_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    need(d.launch_kernel, "cuLaunchKernelEx");
    need(d.event_create, "cuEventCreate");
    need(d.event_destroy, "cuEventDestroy_v2");
    need(d.event_record, "cuEventRecord");
    need(d.event_synchronize, "cuEventSynchronize");
    need(d.event_elapsed, "cuEventElapsedTime");
    need(d.stream_create, "cuStreamCreate");
    need(d.stream_destroy, "cuStreamDestroy_v2");
    need(d.stream_synchronize, "cuStreamSynchronize");
    need(d.stream_is_capturing, "cuStreamIsCapturing");
    need(d.stream_begin_capture, "cuStreamBeginCapture_v2");
    need(d.stream_end_capture, "cuStreamEndCapture");
    need(d.graph_instantiate, "cuGraphInstantiateWithFlags");
    need(d.graph_launch, "cuGraphLaunch");
    need(d.graph_exec_destroy, "cuGraphExecDestroy");
    need(d.graph_destroy, "cuGraphDestroy");
    bind(d.tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
    bind(d.tensor_map_encode_im2col, "cuTensorMapEncodeIm2col");
    return complete && d.init(0) == 0 ? &d : nullptr;
  }();
  return instance;
}

void check(int result, const std::string& what) {
  if (result == 0) return;
  const char* name = nullptr;
  const char* text = nullptr;
  driver()->get_error_name(result, &name);
  driver()->get_error_string(result, &text);
  constexpr int kOutOfMemory = 2;
  // An illegal address, a launch that failed, a device that fell off its bus: the driver answers every later
  // call of this process with the same.
  constexpr int kDeviceUnavailable = 46, kFirstFatal = 700, kLastFatal = 719;
  const bool lost = result == kDeviceUnavailable || (result >= kFirstFatal && result <= kLastFatal);
  throw Error(result == kOutOfMemory ? Status::out_of_memory : Status::device_error,
              what + ": " + (name != nullptr ? name : std::to_string(result)) + ", " +
                  (text != nullptr ? text : "no description") +
                  (lost ? "; the device is lost to this process, a new one may use it again" : ""));
}

std::string driver_release() {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    const bool number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace faltung::cuda
