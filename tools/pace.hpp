// Whether the machine computes as fast as it can just now. On one that others use, a processor may be
// another's hardware thread, or another process's, for seconds: whatever is timed then takes up to twice its
// time.
#ifndef FALTUNG_TOOLS_PACE_HPP_
#define FALTUNG_TOOLS_PACE_HPP_

#include <functional>
#include <memory>

#include "src/backend/parallel.hpp"

namespace faltung::tools {

class Pace {
 public:
  // rate: how fast fixed arithmetic is done now, any unit; fastest: what is known that it can be.
  // patience_ms: how long all waiting may take together.
  Pace(std::function<double()> rate, double fastest, double patience_ms);

  bool is_kept();
  // Waits until it is; false where patience ends before.
  bool regain();
  // Of what had to be done again: it counts as waiting.
  void lost(double ms) { patience_ms_ -= ms; }

 private:
  std::function<double()> rate_;
  double fastest_, patience_ms_;
};

// Of multiply-adds on all these workers at once.
Pace pace_of(std::shared_ptr<const Parallel> workers, double f32_gflops, double patience_ms);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_PACE_HPP_
