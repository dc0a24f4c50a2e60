#include "src/backend/backend.hpp"

#include <algorithm>
#include <utility>

#include "src/backend/hip.hpp"
#include "src/backend/nki.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/backend/vulkan.hpp"
#include "src/problem/text.hpp"

namespace faltung {

KernelResources Device::resources(const Kernel&, const KernelSource&) const { return {}; }

TensorMap Device::encode(const MapShape&, const void*) const {
  throw Error(Status::unsupported, info().id + " has no bulk copy engine");
}

void Device::check_address(const void*, const char*) const {}

std::unique_ptr<Recording> Device::record(const std::function<void(const Stream&)>&) { return nullptr; }

bool Device::copy_within(void*, const void*, std::size_t, const Stream&) { return false; }

bool DeviceInfo::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

// The backends beside the CPU, one line each, in the order in which their devices are listed.
// clang-format off
#define FALTUNG_BACKENDS(each) \
  each(cuda) \
  each(hip) \
  each(opencl) \
  each(vulkan)
// clang-format on

#define FALTUNG_DECLARE(name) std::vector<std::shared_ptr<Device>> make_##name##_devices();
FALTUNG_BACKENDS(FALTUNG_DECLARE)
#undef FALTUNG_DECLARE

namespace {

const std::shared_ptr<Device>& cpu() {
  static const std::shared_ptr<Device> device = make_cpu_device();
  return device;
}

// A backend's devices, whose driver wakes when they are first asked for. Never destroyed: the drivers may be
// gone when the process ends.
template <std::vector<std::shared_ptr<Device>> (*kMake)()>
const std::vector<std::shared_ptr<Device>>& found() {
  static const auto& devices = *new std::vector<std::shared_ptr<Device>>(kMake());
  return devices;
}

}  // namespace

std::vector<std::shared_ptr<Device>> list_devices() {
  std::vector<std::shared_ptr<Device>> all{cpu()};
#define FALTUNG_LIST(name) \
  for (const std::shared_ptr<Device>& device : found<make_##name##_devices>()) all.push_back(device);
  FALTUNG_BACKENDS(FALTUNG_LIST)
#undef FALTUNG_LIST
  return all;
}

namespace {

// What a kind of device needs, where there is none of it.
std::string needs(const std::string& id, const std::vector<std::string>& there) {
  constexpr std::pair<const char*, const char*> kNeeds[] = {
      {"opencl:", "; OpenCL needs libOpenCL.so.1 and a driver's file in /etc/OpenCL/vendors"},
      {"cuda:", "; CUDA needs NVIDIA's driver, and NVRTC (pip install nvidia-cuda-nvrtc, or FALTUNG_NVRTC)"}};
  const auto lacks = [&](std::string_view kind) {
    const auto is_one = [kind](const std::string& one) { return one.starts_with(kind); };
    return is_one(id) && std::none_of(there.begin(), there.end(), is_one);
  };
  for (const auto& [kind, text] : kNeeds) {
    if (lacks(kind)) return text;
  }
  if (id.starts_with("hip:") && !hip_missing().empty()) return "; " + hip_missing();
  if (lacks("vulkan:")) return "; " + vulkan_missing();
  return "";
}

}  // namespace

std::shared_ptr<Device> find_device(const std::string& id) {
  // Without waking the drivers of the others.
  if (id == cpu()->info().id) return cpu();
#define FALTUNG_FIND(name)                                                         \
  if (id.starts_with(#name ":")) {                                                 \
    for (const std::shared_ptr<Device>& device : found<make_##name##_devices>()) { \
      if (device->info().id == id) return device;                                  \
    }                                                                              \
  }
  FALTUNG_BACKENDS(FALTUNG_FIND)
#undef FALTUNG_FIND
  // Never here: not listed.
  if (id.starts_with("nki:")) return make_nki_device(id);
  if (id.starts_with("nvrtc:")) return make_offline_compiler(id);
  std::vector<std::string> ids;
  for (const std::shared_ptr<Device>& device : list_devices()) ids.push_back(device->info().id);
  throw Error(Status::bad_problem, "no device '" + id + "' here; there is " + join_or(ids) + needs(id, ids));
}

}  // namespace faltung
