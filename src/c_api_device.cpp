// The C interface: devices and their memory.
#include <vector>

#include "src/c_api.hpp"

using namespace faltung::c_api;

namespace {

// With texts that live as long as the process.
struct Described {
  faltung::DeviceDescription device;
  std::string features;
};
const std::vector<Described>& described() {
  static const std::vector<Described> all = [] {
    std::vector<Described> devices;
    for (faltung::DeviceDescription& device : faltung::devices()) {
      std::string features;
      for (const std::string& feature : device.features) features += (features.empty() ? "" : " ") + feature;
      devices.push_back({std::move(device), std::move(features)});
    }
    return devices;
  }();
  return all;
}

}  // namespace

int faltung_device_count(void) {
  int count = 0;
  guarded([&] { count = static_cast<int>(described().size()); });
  return count;
}

faltung_status faltung_device_get(int index, faltung_device* device) {
  return guarded([&] {
    need(device, "faltung_device_get: device");
    const std::vector<Described>& all = described();
    if (index < 0 || static_cast<std::size_t>(index) >= all.size()) {
      throw faltung::Error(faltung::Status::bad_problem, "faltung_device_get: index is " +
                                                             std::to_string(index) + "; there are " +
                                                             std::to_string(all.size()) + " devices");
    }
    const auto& [d, features] = all[static_cast<std::size_t>(index)];
    give({sizeof *device, d.id.c_str(), d.kind.c_str(), d.name.c_str(), d.driver.c_str(), features.c_str(),
          d.units, d.memory_bytes},
         device, "faltung_device_get: device");
  });
}

faltung_status faltung_memory_pool_create(const char* device, size_t limit, faltung_memory_pool** pool) {
  return guarded([&] {
    need(pool, "faltung_memory_pool_create: pool");
    *pool = nullptr;
    *pool = new faltung_memory_pool{faltung::MemoryPool(device == nullptr ? "cpu" : device, limit)};
  });
}

void faltung_memory_pool_destroy(faltung_memory_pool* pool) { delete pool; }

faltung_status faltung_memory_allocate(faltung_memory_pool* pool, size_t bytes, void** pointer) {
  return guarded([&] {
    need(pointer, "faltung_memory_allocate: pointer");
    *pointer = nullptr;
    need(pool, "faltung_memory_allocate: pool");
    *pointer = pool->pool.allocate(bytes);
  });
}

faltung_status faltung_memory_free(faltung_memory_pool* pool, void* pointer) {
  return guarded([&] {
    need(pool, "faltung_memory_free: pool");
    pool->pool.free(pointer);
  });
}

faltung_status faltung_memory_copy_in(faltung_memory_pool* pool, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    need(pool, "faltung_memory_copy_in: pool");
    if (bytes > 0) need(from, "faltung_memory_copy_in: from");
    pool->pool.copy_in(to, from, bytes);
  });
}

faltung_status faltung_memory_copy_out(faltung_memory_pool* pool, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    need(pool, "faltung_memory_copy_out: pool");
    if (bytes > 0) need(to, "faltung_memory_copy_out: to");
    pool->pool.copy_out(to, from, bytes);
  });
}

faltung_status faltung_memory_trim(faltung_memory_pool* pool, size_t* returned) {
  return guarded([&] {
    if (returned != nullptr) *returned = 0;
    need(pool, "faltung_memory_trim: pool");
    const size_t bytes = pool->pool.trim();
    if (returned != nullptr) *returned = bytes;
  });
}

faltung_status faltung_memory_stats(const faltung_memory_pool* pool, faltung_memory_statistics* statistics) {
  return guarded([&] {
    need(pool, "faltung_memory_stats: pool");
    need(statistics, "faltung_memory_stats: statistics");
    const faltung::MemoryStats s = pool->pool.stats();
    give({0, s.in_use, s.reserved, s.peak_in_use, s.peak_reserved, s.blocks, s.allocations,
          s.device_allocations},
         statistics, "faltung_memory_statistics");
  });
}

faltung_status faltung_adopt(const char* device, void* cl_mem, faltung_adopted** adopted) {
  return guarded([&] {
    need(adopted, "faltung_adopt: adopted");
    *adopted = nullptr;
    need(device, "faltung_adopt: device");
    *adopted = new faltung_adopted{faltung::adopt(device, cl_mem)};
  });
}

void* faltung_adopted_pointer(const faltung_adopted* adopted) {
  return adopted == nullptr ? nullptr : adopted->buffer.get();
}

void faltung_adopted_destroy(faltung_adopted* adopted) { delete adopted; }
