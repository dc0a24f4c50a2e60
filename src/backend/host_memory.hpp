// Memory on the CPU for what the library keeps: packed weights and networks' arenas.
#ifndef FALTUNG_SRC_BACKEND_HOST_MEMORY_HPP_
#define FALTUNG_SRC_BACKEND_HOST_MEMORY_HPP_

#include <cstddef>
#include <memory>
#include <mutex>

namespace faltung {

// Aligned to a cache line at least, and what is large to large pages, which it asks for: a processor follows
// weights that it reads once a run across pages of 4 KiB much more slowly. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> host_memory(std::size_t bytes);

// The same, with smaller pieces side by side in a few large pages, which are kept as long as any of these: a
// network's weights are many. For any number of threads.
class HostPool {
 public:
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte[]> pages_;  // kept by its pieces, too
  std::size_t used_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_HOST_MEMORY_HPP_
