#include "src/backend/backend.hpp"

#include <algorithm>

#include "src/problem/text.hpp"

namespace faltung {

bool DeviceInfo::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

std::vector<std::shared_ptr<Device>> list_devices() {
  static const std::shared_ptr<Device> cpu = make_cpu_device();
  return {cpu};
}

std::shared_ptr<Device> find_device(const std::string& id) {
  std::vector<std::string> ids;
  for (const std::shared_ptr<Device>& device : list_devices()) {
    if (device->info().id == id) return device;
    ids.push_back(device->info().id);
  }
  throw Error(Status::bad_problem, "no device '" + id + "' here; there is " + join_or(ids));
}

}  // namespace faltung
