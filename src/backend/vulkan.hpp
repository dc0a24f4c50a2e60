// Any GPU with a driver for Vulkan 1.2, through the loader's library, and clspv, both opened at run time.
#ifndef FALTUNG_SRC_BACKEND_VULKAN_HPP_
#define FALTUNG_SRC_BACKEND_VULKAN_HPP_

#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// None without clspv: the driver is then not even opened.
std::vector<std::shared_ptr<Device>> make_vulkan_devices();
// What there was not. Asked only where there are none.
std::string vulkan_missing();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_VULKAN_HPP_
