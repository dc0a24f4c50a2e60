// Whether the machine is as fast as it can be just now. On one that others use, a processor may be another's
// hardware thread, or another process's, and memory be read by others, for seconds: whatever is timed then
// takes up to twice its time.
#ifndef FALTUNG_TOOLS_PACE_HPP_
#define FALTUNG_TOOLS_PACE_HPP_

#include <functional>
#include <memory>
#include <vector>

#include "kernels/cpu/ceilings.hpp"

namespace faltung::tools {

// rate: how fast a fixed piece of work is done now, any unit; fastest: what is known that it can be.
struct Gauge {
  std::function<double()> rate;
  double fastest;
  double patience_ms = 0;  // left; Pace sets it

  bool is_kept();
};

class Pace {
 public:
  // patience_ms: how long all waiting for a gauge may take together. Each has its own: memory may stay slow
  // for minutes, and to wait for it must not cost what is left for processors.
  Pace(std::vector<Gauge> gauges, double patience_ms);

  bool is_kept();
  // Waits until what was behind at the last look no longer is; false where its patience ends before.
  bool regain();
  // Of what had to be done again: it counts as waiting.
  void lost(double ms) { gauges_[behind_].patience_ms -= ms; }

 private:
  std::vector<Gauge> gauges_;
  std::size_t behind_ = 0;  // at the last look
};

// Of multiply-adds and of copies by all these workers at once. copies: whose memory is a quarter of a GiB.
Pace pace_of(std::shared_ptr<const Parallel> workers, const Ceilings& ceilings, double patience_ms,
             std::shared_ptr<Copies> copies = std::make_shared<Copies>());

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_PACE_HPP_
