#include "src/network/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "src/plan/recipe.hpp"

namespace faltung::network {
namespace {

bool meet(const Box& a, const Box& b) { return a.first <= b.last && b.first <= a.last; }

// Puts the boxes down in this order.
class Packing {
 public:
  explicit Packing(const std::vector<Box>& boxes) : boxes_(boxes) { plan_.offsets.resize(boxes.size()); }

  void place(std::size_t box) {
    // Those that live at the same time, from below.
    std::vector<std::size_t> around;
    for (const std::size_t other : placed_) {
      if (meet(boxes_[box], boxes_[other])) around.push_back(other);
    }
    std::ranges::sort(around, {}, [&](std::size_t o) { return plan_.offsets[o]; });
    const std::size_t bytes = aligned(boxes_[box].bytes);
    std::size_t at = 0, best = static_cast<std::size_t>(-1), tightest = static_cast<std::size_t>(-1);
    for (const std::size_t other : around) {
      const std::size_t begin = plan_.offsets[other];
      if (begin >= at + bytes && begin - at < tightest) best = at, tightest = begin - at;
      at = std::max(at, begin + aligned(boxes_[other].bytes));
    }
    plan_.offsets[box] = best == static_cast<std::size_t>(-1) ? at : best;
    plan_.bytes = std::max(plan_.bytes, plan_.offsets[box] + bytes);
    placed_.push_back(box);
  }

  MemoryPlan plan_;

 private:
  const std::vector<Box>& boxes_;
  std::vector<std::size_t> placed_;
};

MemoryPlan pack(const std::vector<Box>& boxes, const std::vector<std::size_t>& order) {
  Packing packing(boxes);
  for (const std::size_t box : order) packing.place(box);
  return std::move(packing.plan_);
}

// While the arena is larger than it must be: what lies on top comes earlier, first by half of its place in
// the order, and goes where there was more room. Ends after so much work that nobody waits for it.
MemoryPlan improved(const std::vector<Box>& boxes, std::vector<std::size_t> order, std::size_t bound) {
  constexpr std::size_t kWork = 3'000'000, kFewestRounds = 4, kMostRounds = 200;  // pairs of boxes
  MemoryPlan best = pack(boxes, order);
  MemoryPlan plan = best;
  const std::size_t pairs = std::max<std::size_t>(1, boxes.size() * boxes.size());
  const std::size_t rounds = std::clamp(kWork / pairs, kFewestRounds, kMostRounds);
  for (std::size_t round = 0; round < rounds && best.bytes > bound; ++round) {
    const auto top = std::ranges::find_if(
        order, [&](std::size_t box) { return plan.offsets[box] + aligned(boxes[box].bytes) == plan.bytes; });
    const auto place = top - order.begin();
    std::rotate(order.begin() + (round % 3 == 2 ? 0 : place / 2), top, top + 1);
    plan = pack(boxes, order);
    if (plan.bytes < best.bytes) best = plan;
  }
  return best;
}

}  // namespace

std::vector<std::size_t> lives_at(const std::vector<Box>& boxes) {
  int steps = 0;
  for (const Box& box : boxes) steps = std::max(steps, box.last + 1);
  std::vector<std::size_t> lives(static_cast<std::size_t>(steps));
  for (const Box& box : boxes) {
    for (int s = box.first; s <= box.last; ++s) lives[static_cast<std::size_t>(s)] += aligned(box.bytes);
  }
  return lives;
}

MemoryPlan plan_memory(const std::vector<Box>& boxes) {
  const std::vector<std::size_t> lives = lives_at(boxes);
  std::vector<std::size_t> by_size(boxes.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::ranges::greater(), [&](std::size_t i) { return boxes[i].bytes; });

  std::vector<std::size_t> by_breadth;
  std::vector<int> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int s) { return lives[static_cast<std::size_t>(s)]; });
  std::vector<bool> done(boxes.size());
  for (const int step : order) {
    for (const std::size_t box : by_size) {
      if (done[box] || step < boxes[box].first || step > boxes[box].last) continue;
      done[box] = true;
      by_breadth.push_back(box);
    }
  }
  const std::size_t bound = lives.empty() ? 0 : *std::ranges::max_element(lives);
  MemoryPlan plan = improved(boxes, by_size, bound);
  if (plan.bytes > bound) {
    MemoryPlan other = improved(boxes, by_breadth, bound);
    if (other.bytes < plan.bytes) plan = std::move(other);
  }
  plan.bound = bound;
  return plan;
}

}  // namespace faltung::network
