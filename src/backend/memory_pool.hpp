// Device memory in large pieces, handed out in small ones and kept for the next request.
#ifndef FALTUNG_SRC_BACKEND_MEMORY_POOL_HPP_
#define FALTUNG_SRC_BACKEND_MEMORY_POOL_HPP_

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "src/backend/backend.hpp"

namespace faltung {

// What MemoryPool of faltung.hpp promises. Thread-safe: one lock around all of it, the device's own
// allocation among that.
class MemoryPoolImpl {
 public:
  MemoryPoolImpl(std::shared_ptr<Device> device, std::size_t limit)
      : device_(std::move(device)), limit_(limit) {}

  void* allocate(std::size_t bytes);
  void free(void* pointer);
  void copy_in(void* to, const void* from, std::size_t bytes);
  void copy_out(void* to, const void* from, std::size_t bytes);
  std::size_t trim();
  MemoryStats stats() const;

 private:
  // What one allocation of the device's is cut into. Blocks of few bytes and of many come from pieces of
  // their own, so that a small one does not hold on to a large one's place.
  struct Piece {
    Buffer buffer;
    bool small;
  };
  struct Block {
    std::size_t bytes;
    bool used;
    Piece* piece;
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::iterator take_from_device(std::size_t bytes, bool small);
  Blocks::iterator used_block(const void* pointer, std::size_t bytes, const char* what);
  std::size_t trim_locked();
  void keep_free(Blocks::iterator block);
  [[noreturn]] void fail(std::size_t bytes, const std::string& why) const;

  const std::shared_ptr<Device> device_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                         // used and free ones of all pieces
  std::set<std::pair<std::size_t, std::byte*>> free_[2];  // by size, of the large and of the small pieces
  std::map<std::byte*, std::unique_ptr<Piece>> pieces_;
  MemoryStats stats_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_MEMORY_POOL_HPP_
