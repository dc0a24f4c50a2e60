#include "src/backend/memory_pool.hpp"

#include <algorithm>
#include <iterator>

#include "src/problem/integers.hpp"

namespace faltung {
namespace {

constexpr std::size_t kUnit = 256;                             // every block is a multiple of it
constexpr std::size_t kMostSmall = std::size_t{1} << 20;       // beyond, a block is large
constexpr std::size_t kSmallPiece = std::size_t{4} << 20;      // what is taken for small blocks at a time
constexpr std::size_t kLargeUnit = std::size_t{2} << 20;       // what large pieces are multiples of
constexpr std::size_t kLeastLargeRest = std::size_t{1} << 20;  // less is not split off a large block

}  // namespace

void MemoryPoolImpl::fail(std::size_t bytes, const std::string& why) const {
  throw Error(Status::out_of_memory, "memory pool of " + device_->info().id + ": no " +
                                         std::to_string(bytes) + " bytes: " + why + "; " +
                                         std::to_string(stats_.in_use) + " bytes are in use in " +
                                         std::to_string(stats_.blocks) + " blocks, " +
                                         std::to_string(stats_.reserved - stats_.in_use) +
                                         " are kept between them: free some, or allow more");
}

void MemoryPoolImpl::keep_free(Blocks::iterator block) {
  block->second.used = false;
  free_[block->second.piece->small].emplace(block->second.bytes, block->first);
}

// A free block that is all of a new piece; what is kept is given back first where the limit or the device
// asks for it.
MemoryPoolImpl::Blocks::iterator MemoryPoolImpl::take_from_device(std::size_t bytes, bool small) {
  std::size_t piece_bytes = small ? kSmallPiece : round_up(bytes, kLargeUnit);
  const auto over = [&] { return piece_bytes > limit_ || stats_.reserved > limit_ - piece_bytes; };
  if (over()) trim_locked();
  if (over()) piece_bytes = bytes;  // no more than is asked for
  if (over()) fail(bytes, "the limit is " + std::to_string(limit_));
  auto piece = std::make_unique<Piece>();
  piece->small = small;
  try {
    piece->buffer = device_->allocate(piece_bytes);
  } catch (const Error& error) {
    if (error.status() != Status::out_of_memory) throw;
    trim_locked();
    piece_bytes = bytes;
    try {
      piece->buffer = device_->allocate(piece_bytes);
    } catch (const Error& again) {
      if (again.status() != Status::out_of_memory) throw;
      fail(bytes, again.what());
    }
  }
  auto* const begin = static_cast<std::byte*>(piece->buffer.pointer);
  stats_.reserved += piece_bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  ++stats_.device_allocations;
  const auto block = blocks_.emplace(begin, Block{piece_bytes, false, piece.get()}).first;
  pieces_.emplace(begin, std::move(piece));
  keep_free(block);
  return block;
}

void* MemoryPoolImpl::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_) fail(bytes, "the limit is " + std::to_string(limit_));
  if (bytes > ~std::size_t{0} - kLargeUnit)
    fail(bytes, "no device has so many");  // nor can they be rounded up
  bytes = round_up(std::max<std::size_t>(bytes, 1), kUnit);
  const bool small = bytes <= kMostSmall;
  std::set<std::pair<std::size_t, std::byte*>>& free = free_[small];
  const auto fitting = free.lower_bound({bytes, nullptr});
  const auto block = fitting != free.end() ? blocks_.find(fitting->second) : take_from_device(bytes, small);
  free.erase({block->second.bytes, block->first});
  if (block->second.bytes - bytes >= (small ? kUnit : kLeastLargeRest)) {
    const auto rest =
        blocks_.emplace(block->first + bytes, Block{block->second.bytes - bytes, false, block->second.piece});
    keep_free(rest.first);
    block->second.bytes = bytes;
  }
  block->second.used = true;
  stats_.in_use += block->second.bytes;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  ++stats_.blocks;
  ++stats_.allocations;
  return block->first;
}

void MemoryPoolImpl::free(void* pointer) {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(pointer));
  if (block == blocks_.end() || !block->second.used) {
    throw Error(Status::bad_problem,
                "memory pool of " + device_->info().id +
                    ": a pointer to be freed is none that allocate returned, or was freed before");
  }
  stats_.in_use -= block->second.bytes;
  --stats_.blocks;
  // One free block with its free neighbours in the same piece.
  const auto merge = [&](Blocks::iterator first, Blocks::iterator second) {
    first->second.bytes += second->second.bytes;
    blocks_.erase(second);
    return first;
  };
  const auto is_free_neighbour = [&](Blocks::iterator other) {
    return !other->second.used && other->second.piece == block->second.piece;
  };
  std::set<std::pair<std::size_t, std::byte*>>& free = free_[block->second.piece->small];
  if (const auto next = std::next(block); next != blocks_.end() && is_free_neighbour(next)) {
    free.erase({next->second.bytes, next->first});
    block = merge(block, next);
  }
  if (block != blocks_.begin() && is_free_neighbour(std::prev(block))) {
    const auto previous = std::prev(block);
    free.erase({previous->second.bytes, previous->first});
    block = merge(previous, block);
  }
  keep_free(block);
}

std::size_t MemoryPoolImpl::trim() {
  const std::lock_guard lock(mutex_);
  return trim_locked();
}

std::size_t MemoryPoolImpl::trim_locked() {
  std::size_t returned = 0;
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const auto block = blocks_.find(piece->first);
    if (block->second.used || block->second.bytes != piece->second->buffer.bytes) {
      ++piece;
      continue;
    }
    returned += block->second.bytes;
    free_[piece->second->small].erase({block->second.bytes, block->first});
    blocks_.erase(block);
    piece = pieces_.erase(piece);
  }
  stats_.reserved -= returned;
  return returned;
}

MemoryStats MemoryPoolImpl::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// The block in use that has all of these bytes.
MemoryPoolImpl::Blocks::iterator MemoryPoolImpl::used_block(const void* pointer, std::size_t bytes,
                                                            const char* what) {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(pointer));
  auto block = blocks_.upper_bound(begin);
  if (block != blocks_.begin()) {
    --block;
    const auto offset = static_cast<std::size_t>(begin - block->first);
    if (block->second.used && offset <= block->second.bytes && bytes <= block->second.bytes - offset)
      return block;
  }
  throw Error(Status::bad_problem, "memory pool of " + device_->info().id + ": " + what + " " +
                                       std::to_string(bytes) +
                                       " bytes: they do not lie in one block that is in use");
}

void MemoryPoolImpl::copy_in(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  {
    const std::lock_guard lock(mutex_);
    used_block(to, bytes, "copying in");
  }
  device_->copy_in({nullptr, to, bytes}, from, bytes);
}

void MemoryPoolImpl::copy_out(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  {
    const std::lock_guard lock(mutex_);
    used_block(from, bytes, "copying out");
  }
  device_->copy_out(to, {nullptr, const_cast<void*>(from), bytes}, bytes);
}

}  // namespace faltung
