// An algorithm in the registry for as long as this lives: for tests that share a process with others.
#ifndef FALTUNG_SRC_ALGORITHMS_REGISTERED_HPP_
#define FALTUNG_SRC_ALGORITHMS_REGISTERED_HPP_

#include <memory>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

class Registered {
 public:
  explicit Registered(std::unique_ptr<Algorithm> algorithm);
  ~Registered();  // no plan and no candidate of it is used any more
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Algorithm* algorithm_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_REGISTERED_HPP_
