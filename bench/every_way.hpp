// A row of a list in each direction, math and layout.
#ifndef FALTUNG_BENCH_EVERY_WAY_HPP_
#define FALTUNG_BENCH_EVERY_WAY_HPP_

#include <vector>

#include "src/problem/problem.hpp"

namespace faltung {

inline std::vector<Problem> in_every_way(const Problem& row) {
  std::vector<Problem> all;
  for (const Direction direction :
       {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
    for (const Math math : {Math::f32, Math::tf32, Math::f16, Math::bf16}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        Problem p = row;
        p.direction = direction, p.math = math, p.layout = layout;
        p.dtype = math == Math::f16 ? DType::f16 : math == Math::bf16 ? DType::bf16 : DType::f32;
        if (direction != Direction::forward) p.epilogue = Epilogue{};
        all.push_back(p);
      }
    }
  }
  return all;
}

}  // namespace faltung

#endif  // FALTUNG_BENCH_EVERY_WAY_HPP_
