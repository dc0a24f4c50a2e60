// Where each buffer of a network lies in its arena: boxes, as long as they live and as high as they are
// large.
#ifndef FALTUNG_SRC_NETWORK_MEMORY_PLAN_HPP_
#define FALTUNG_SRC_NETWORK_MEMORY_PLAN_HPP_

#include <cstddef>
#include <vector>

namespace faltung::network {

struct Box {
  std::size_t bytes = 0;
  int first = 0, last = 0;  // the steps in which it is used, and all between
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  // by box
  std::size_t bytes = 0;             // of the arena
  std::size_t bound = 0;             // no plan of these boxes takes less: the most that lives at once
};

// By step: the bytes of all boxes that live then.
std::vector<std::size_t> lives_at(const std::vector<Box>& boxes);

// Offsets are multiples of 64 bytes. The smaller of two plans: the largest boxes first, and the boxes of the
// fullest steps first, each in the tightest gap among those that live at the same time; what then lies on top
// is tried earlier in the order, for as long as that is quick.
MemoryPlan plan_memory(const std::vector<Box>& boxes);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_MEMORY_PLAN_HPP_
