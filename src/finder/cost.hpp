// The roofline: how fast a problem could be at best on a device, and what stands in the way.
#ifndef FALTUNG_SRC_FINDER_COST_HPP_
#define FALTUNG_SRC_FINDER_COST_HPP_

#include <string>

#include "src/backend/backend.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

struct Roofline {
  double arithmetic_ms = 0;  // the direct algorithm's operations at the device's rate for the math class
  double bytes_ms = 0;       // every byte that is needed crossing memory once, at the rate of a copy
  double ms() const { return arithmetic_ms > bytes_ms ? arithmetic_ms : bytes_ms; }
  // What binds a kernel that takes this long. Latency: it is far from both.
  std::string bound_by(double ms) const;
  // In percent; above 100 where an algorithm needs fewer operations than the direct one.
  double share(double measured_ms) const { return measured_ms > 0 ? 100 * ms() / measured_ms : 0; }
};

// The rate at which ceilings says this math class can be computed, 10^9 operations a second.
double arithmetic_ceiling(const Problem& problem, const Ceilings& ceilings);
Roofline roofline(const Problem& problem, const Ceilings& ceilings);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_COST_HPP_
