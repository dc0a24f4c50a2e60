// Inputs for a problem, and what the right result for them is.
#ifndef FALTUNG_SRC_FINDER_ORACLE_HPP_
#define FALTUNG_SRC_FINDER_ORACLE_HPP_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/parallel.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {

enum class Data {
  small_integers,  // every product and sum is exact in fp32, so that the result must match to the bit
  random,          // uniform in [-1, 1]
  any,             // a caller's, of which nothing is known: only the bound speaks of it
};

struct Finding {
  double error_over_bound = 0;  // of the worst element; at most 1 for a right result
  std::int64_t checked = 0;     // elements
  // Where, what was expected and what was there; or that too much is wrong by a little.
  std::string worst;
  // Of all that were checked: the root of the summed squares of their errors over that of their values.
  double l2_error = 0;
  // Of fp32 on random data, the root mean square error over that of a chain of fp32 multiply-adds; 0 where
  // there are too few elements, or an epilogue.
  double rms_of_chain = 0;
  bool too_coarse = false;  // that is more than the accuracy says, and than chance makes of one problem
  bool right() const { return error_over_bound <= 1 && !too_coarse; }
};

class Oracle {
 public:
  // Elements are all checked where that takes at most max_products products; otherwise corners and a seeded
  // sample. parallel: makes the data, which are the same without.
  Oracle(const Problem& problem, Data data, std::uint64_t seed, double max_products = 3e8,
         const Parallel* parallel = nullptr);
  // The caller's own tensors, which must outlive this, and what is known of their data.
  Oracle(const Problem& problem, const Tensors& tensors, std::uint64_t seed, double max_products = 3e8,
         Data data = Data::any);

  const Problem& problem() const { return problem_; }
  // Host memory. The pointer of what the direction writes is null.
  const Tensors& tensors() const { return tensors_; }
  std::int64_t result_bytes() const;
  // result: host memory in the result's layout.
  Finding check(const void* result, const Accuracy& accuracy, const Parallel& parallel) const;

 private:
  using Answers = std::vector<Expected>;

  void read_x();
  void choose_elements(double max_products, std::uint64_t seed);
  // Adds the root mean square error to a finding.
  void compare_with_chain(const void* result, const Accuracy& accuracy, const Parallel& parallel,
                          Finding& finding) const;
  const Answers& answers(const Accuracy& accuracy, const Parallel& parallel) const;

  Problem problem_;
  Data data_;
  std::unique_ptr<std::byte[]> x_, w_, y_, bias_, residual_, relu_, scale_, shift_, slopes_;
  Tensors tensors_;
  // Of one that reads x through a scale and shift: the convolution of what comes of it.
  Problem plain_;
  std::unique_ptr<std::byte[]> x_as_read_;
  Tensors seen_;
  std::vector<Position> elements_;
  mutable std::map<std::array<int, 10>, Answers> answers_;  // by what the accuracy says is met
  mutable std::vector<double> chain_errors_;                // of every so many-th element
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_ORACLE_HPP_
