// An algorithm that has one kernel, without a free choice: its config is a word.
#ifndef FALTUNG_SRC_ALGORITHMS_SOLE_KERNEL_HPP_
#define FALTUNG_SRC_ALGORITHMS_SOLE_KERNEL_HPP_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/config_name.hpp"

namespace faltung {

class SoleKernel : public Algorithm {
 protected:
  SoleKernel(About about, std::string_view word) : Algorithm(std::move(about)), config_{word} {}

 private:
  // All of a candidate but its config and its maker.
  virtual Candidate kernel(const Problem& problem, const Target& target) const = 0;

  Candidate named(const Problem& problem, const Target& target) const {
    Candidate c = kernel(problem, target);
    c.config = config_name(config_);
    c.maker = maker();
    return c;
  }
  Maker maker() const {
    return [this](const Problem& problem, const Target& target) { return named(problem, target); };
  }

  std::vector<Candidate> list(const Problem& problem, const Target& target) const final {
    return {named(problem, target)};
  }
  Maker parse(const std::string& config, Direction) const final {
    TileTable<SoleConfig>(name(), std::span(&config_, 1)).parse(config);
    return maker();
  }

  SoleConfig config_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_SOLE_KERNEL_HPP_
