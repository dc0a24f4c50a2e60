// Inputs for a problem, and what the right result for them is.
#ifndef FALTUNG_SRC_FINDER_ORACLE_HPP_
#define FALTUNG_SRC_FINDER_ORACLE_HPP_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "src/backend/parallel.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {

enum class Data {
  small_integers,  // every product and sum is exact in fp32, so that the result must match to the bit
  random,          // uniform in [-1, 1]
};

struct Finding {
  double error_over_bound = 0;  // of the worst element; at most 1 for a right result
  std::int64_t checked = 0;     // elements
  std::string worst;            // where, what was expected and what was there
  bool right() const { return error_over_bound <= 1; }
};

class Oracle {
 public:
  // weight_unit: small-integer weights are multiples of it; see Algorithm::integer_weight_unit.
  // Elements are all checked where that takes at most max_products products; otherwise corners and a seeded
  // sample.
  Oracle(const Problem& problem, Data data, std::uint64_t seed, int weight_unit = 1,
         double max_products = 3e8);
  // The caller's own data, which must outlive this; its results are checked against the bound.
  Oracle(const Problem& problem, const Tensors& tensors, std::uint64_t seed, double max_products = 3e8);

  const Problem& problem() const { return problem_; }
  // Host memory. The pointer of what the direction writes is null.
  const Tensors& tensors() const { return tensors_; }
  std::int64_t result_bytes() const;
  // result: host memory in the result's layout.
  Finding check(const void* result, const Accuracy& accuracy, const Parallel& parallel) const;

 private:
  using Answers = std::vector<Expected>;

  void choose_elements(double max_products, std::uint64_t seed);
  const Answers& answers(const Accuracy& accuracy, const Parallel& parallel) const;

  Problem problem_;
  Data data_;
  std::vector<std::byte> x_, w_, y_, bias_, residual_;
  Tensors tensors_;
  std::vector<Position> elements_;
  mutable std::map<std::tuple<int, int, int>, Answers> answers_;  // by spread
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_ORACLE_HPP_
