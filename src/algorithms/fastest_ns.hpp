// How long the fastest of a few runs took: what else the machine does only adds to them.
#ifndef FALTUNG_SRC_ALGORITHMS_FASTEST_NS_HPP_
#define FALTUNG_SRC_ALGORITHMS_FASTEST_NS_HPP_

#include <algorithm>
#include <chrono>
#include <cmath>

namespace faltung {

// Runs once more beforehand, to warm up.
template <class Work>
double fastest_ns(int runs, const Work& work) {
  double best = INFINITY;
  for (int run = 0; run <= runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) best = std::min(best, ns);
  }
  return best;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_FASTEST_NS_HPP_
