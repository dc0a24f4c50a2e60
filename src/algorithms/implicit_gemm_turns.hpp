// A problem in nchw computed as one in nhwc: planes are turned to pixels before, and the result's pixels to
// planes after. Where a tile has many steps that costs little, and planes of few pixels, or with strides,
// fill the lanes better so.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TURNS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TURNS_HPP_

#include <cstddef>
#include <optional>

#include "src/plan/recipe.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

class PlaneTurns {
 public:
  // Whether a problem may be computed so. Its filter is read as it lies.
  static bool serves(const Problem& problem);
  // One that it serves.
  explicit PlaneTurns(const Problem& problem);

  // In nhwc; of the filter's layout nothing is meant.
  const Problem& inner() const { return inner_; }
  // At the workspace's beginning.
  std::size_t bytes() const { return bytes_; }
  // By the cost model, on one core.
  double ns() const;
  // The inner problem's recipe, with the turns before and after its steps.
  Recipe around(Recipe inner) const;

 private:
  // Between a tensor of the outer problem and the inner one's in the workspace: of each image a matrix is
  // transposed, whose rows and columns are so many floats apart.
  struct Turn {
    Place outer = Place::x;
    Slot inner = Place::workspace;
    std::int64_t images = 0, rows = 0, columns = 0;
    std::int64_t from_row = 0, from_image = 0, to_row = 0, to_image = 0;

    void run(const Parallel& parallel, const float* from, float* to) const;
  };
  // The inner tensor's pixels are so many floats apart.
  Turn turn(Place outer, const TensorShape& shape, std::int64_t pitch, bool to_pixels);

  Problem inner_;
  std::size_t bytes_ = 0;
  Turn in_, out_;
  std::optional<Turn> residual_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TURNS_HPP_
