#include "src/backend/hip_driver.hpp"

#include <cstring>
#include <type_traits>

#include "faltung/faltung.hpp"
#include "src/backend/library_search.hpp"

#include <dlfcn.h>

namespace faltung::hip {
namespace {

void* opened = nullptr;

std::string& missing_text() {
  static std::string text;
  return text;
}

void* open_hip() {
  if (const auto named = open_named("FALTUNG_HIP", missing_text())) return *named;
  void* const handle =
      open_library({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}, folders());
  if (handle == nullptr)
    missing_text() =
        "no libamdhip64.so.7, .6 or .5 on the loader's path, in ROCm's folder or among Python's packages; "
        "FALTUNG_HIP names another";
  return handle;
}

}  // namespace

std::vector<std::string> folders() {
  std::vector<std::string> all = toolkit_folders({"ROCM_PATH", "HIP_PATH", "CONDA_PREFIX"}, "/opt/rocm");
  for (const std::string& folder : python_folders({"_rocm_sdk_core/lib", "torch/lib"})) all.push_back(folder);
  return all;
}

const Driver* driver() {
  static const Driver* const instance = []() -> const Driver* {
    opened = open_hip();
    if (opened == nullptr) return nullptr;
    static Driver d;
    const char* lacks = nullptr;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
      return function != nullptr;
    };
    const auto need = [&](auto& function, const char* name) {
      if (!bind(function, name)) lacks = name;
    };
    need(d.init, "hipInit");
    need(d.runtime_get_version, "hipRuntimeGetVersion");
    need(d.get_error_name, "hipGetErrorName");
    need(d.get_error_string, "hipGetErrorString");
    need(d.get_device_count, "hipGetDeviceCount");
    need(d.set_device, "hipSetDevice");
    need(d.device_get_name, "hipDeviceGetName");
    need(d.device_total_mem, "hipDeviceTotalMem");
    need(d.device_get_attribute, "hipDeviceGetAttribute");
    d.properties_of_hip6 = bind(d.get_device_properties, "hipGetDevicePropertiesR0600");
    if (!d.properties_of_hip6) need(d.get_device_properties, "hipGetDeviceProperties");
    need(d.malloc, "hipMalloc");
    need(d.free, "hipFree");
    need(d.pointer_get_attribute, "hipPointerGetAttribute");
    need(d.memcpy_to_device, "hipMemcpyHtoD");
    need(d.memcpy_to_host, "hipMemcpyDtoH");
    need(d.module_load_data, "hipModuleLoadData");
    need(d.module_unload, "hipModuleUnload");
    need(d.module_get_function, "hipModuleGetFunction");
    need(d.func_get_attribute, "hipFuncGetAttribute");
    need(d.blocks_of_unit, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    need(d.launch_kernel, "hipModuleLaunchKernel");
    need(d.event_create, "hipEventCreateWithFlags");
    need(d.event_destroy, "hipEventDestroy");
    need(d.event_record, "hipEventRecord");
    need(d.event_synchronize, "hipEventSynchronize");
    need(d.event_elapsed, "hipEventElapsedTime");
    need(d.stream_create, "hipStreamCreateWithFlags");
    need(d.stream_destroy, "hipStreamDestroy");
    need(d.stream_synchronize, "hipStreamSynchronize");
    need(d.stream_is_capturing, "hipStreamIsCapturing");
    need(d.stream_begin_capture, "hipStreamBeginCapture");
    need(d.stream_end_capture, "hipStreamEndCapture");
    need(d.graph_instantiate, "hipGraphInstantiate");
    need(d.graph_launch, "hipGraphLaunch");
    need(d.graph_exec_destroy, "hipGraphExecDestroy");
    need(d.graph_destroy, "hipGraphDestroy");
    if (lacks != nullptr) {
      missing_text() = std::string("the libamdhip64 found has no ") + lacks + ": HIP 5.0 and later has";
      return nullptr;
    }
    int count = 0;
    const int result = d.init(0) != 0 ? d.init(0) : d.get_device_count(&count);
    if (result == 0 && count > 0) return &d;
    missing_text() = std::string("HIP's driver serves no GPU here (") + d.get_error_name(result) + ")";
    return nullptr;
  }();
  return instance;
}

const std::string& missing() { return missing_text(); }

void* library() { return opened; }

Release release() {
  int version = 0;
  driver()->runtime_get_version(&version);
  return {version / 10'000'000, version / 100'000 % 100, version % 100'000};
}

std::string to_string(const Release& r) {
  return std::to_string(r.major) + "." + std::to_string(r.minor) + "." + std::to_string(r.patch);
}

std::string architecture(int device) {
  // Where hipDeviceProp_t has gcnArchName, of 256 bytes; and more room than any release's struct takes.
  constexpr std::size_t kOfHip5 = 396, kOfHip6 = 1160, kName = 256;
  alignas(16) char properties[8192] = {};
  check(driver()->get_device_properties(properties, device), "asking a GPU for its properties");
  const char* const name = properties + (driver()->properties_of_hip6 ? kOfHip6 : kOfHip5);
  return std::string(name, strnlen(name, kName));
}

unsigned device_memory() { return release().major >= 6 ? 2 : 1; }

void check(int result, const std::string& what) {
  if (result == 0) return;
  const char* const name = driver()->get_error_name(result);
  const char* const text = driver()->get_error_string(result);
  constexpr int kOutOfMemory = 2;
  // An illegal address, a launch that failed: what comes after it fails as well.
  constexpr int kIllegalAddress = 700, kLaunchTimeOut = 702, kLaunchFailure = 719;
  const bool lost = result == kIllegalAddress || result == kLaunchTimeOut || result == kLaunchFailure;
  throw Error(result == kOutOfMemory ? Status::out_of_memory : Status::device_error,
              what + ": " + (name != nullptr ? name : std::to_string(result)) + ", " +
                  (text != nullptr ? text : "no description") +
                  (lost ? "; the device is lost to this process, a new one may use it again" : ""));
}

}  // namespace faltung::hip
