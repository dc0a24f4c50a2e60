// What the package ships of devices that are known, as a store that an engine's or a worker's own falls back
// on.
#ifndef FALTUNG_SRC_FINDER_SHIPPED_HPP_
#define FALTUNG_SRC_FINDER_SHIPPED_HPP_

#include <memory>

#include "src/store/store.hpp"

namespace faltung {

// Null where nothing was shipped, or what was is damaged, which is said: then kernels are tried and compiled
// here. What is no such file at all, and a setting names it, is an error.
std::shared_ptr<const Store> open_shipped(const Store::Warn& warn);

// Compiled code, ceilings and timings out of it for what the store does not know; verdicts are asked for
// where they are judged (trust/verdicts.hpp).
void ship(Store& store, const std::shared_ptr<const Store>& shipped);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SHIPPED_HPP_
