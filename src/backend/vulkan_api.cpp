#include "src/backend/vulkan_api.hpp"

#include "faltung/faltung.hpp"

#include <dlfcn.h>

namespace faltung::vulkan {
namespace {

std::string& vulkan_missing_text() {
  static std::string text;
  return text;
}

}  // namespace

const Api* api() {
  static const Api* const instance = []() -> const Api* {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      vulkan_missing_text() = "no libvulkan.so.1 on the loader's path; Debian's libvulkan1 has it";
      return nullptr;
    }
    const auto find = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    const auto create =
        find == nullptr ? nullptr : reinterpret_cast<PFN_vkCreateInstance>(find(nullptr, "vkCreateInstance"));
    static Api functions;
    functions.instance = create == nullptr ? VK_NULL_HANDLE : new_instance(create);
    if (functions.instance == VK_NULL_HANDLE) {
      vulkan_missing_text() = "libvulkan.so.1 makes no instance of Vulkan 1.2: it found no driver";
      return nullptr;
    }
    // As the loader resolves all of an instance's functions, a device's among them.
#define FALTUNG_VULKAN_FIND(name) \
  functions.name = reinterpret_cast<PFN_vk##name>(find(functions.instance, "vk" #name));
    FALTUNG_VULKAN_FUNCTIONS(FALTUNG_VULKAN_FIND)
#undef FALTUNG_VULKAN_FIND
    functions.CreateInstance = create;
    return &functions;
  }();
  return instance;
}

VkInstance new_instance(PFN_vkCreateInstance create) {
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "faltung";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo wanted{};
  wanted.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  wanted.pApplicationInfo = &application;
  VkInstance instance = VK_NULL_HANDLE;
  return create(&wanted, nullptr, &instance) == VK_SUCCESS ? instance : VK_NULL_HANDLE;
}

Properties::Properties(VkPhysicalDevice physical) {
  driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
  VkPhysicalDeviceProperties2 both{};
  both.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  both.pNext = &driver;
  api()->GetPhysicalDeviceProperties2(physical, &both);
  device = both.properties;
}

const std::string& missing() { return vulkan_missing_text(); }

void check(VkResult result, const std::string& what) {
  if (result == VK_SUCCESS) return;
  const bool memory = result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
                      result == VK_ERROR_TOO_MANY_OBJECTS;  // each buffer is one
  throw Error(memory ? Status::out_of_memory : Status::device_error,
              what + ": Vulkan's error " + std::to_string(result) +
                  (memory                           ? ", out of memory"
                   : result == VK_ERROR_DEVICE_LOST ? ", the device is lost to this process"
                                                    : ""));
}

}  // namespace faltung::vulkan
