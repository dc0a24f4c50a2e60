// A lock: a read-only store that says which kernel computes which problem, so that a team's numerics do not
// change under them. What is missing is an error and not a choice.
#ifndef FALTUNG_SRC_FINDER_LOCK_HPP_
#define FALTUNG_SRC_FINDER_LOCK_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/store/store.hpp"

namespace faltung {

// The kind of the records that make a read-only store a lock.
inline constexpr const char* kLock = "lock";

// Whether the store is one: it is read-only and has such records.
bool is_lock(const Store& store);
// The kernel that the lock names. Throws Error(unsupported), which says what to do, if it names none.
std::string locked_kernel(const Store& store, const Problem& problem, const DeviceInfo& device);

// What a lock of this store consists of: for each problem and device that find has measured the fastest right
// kernel, and what is known of the kernels' trustworthiness. admitted: may_differ for kernels, too, that do
// not give the same bits every time.
std::vector<Record> lock_records(const Store& store, Repeatable admitted = Repeatable::same_bits);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_LOCK_HPP_
