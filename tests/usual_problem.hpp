// A valid problem in which every size, each side's padding, a stride, a dilation and the groups tell each
// other apart.
#pragma once

#include "src/problem/problem.hpp"

namespace faltung {

inline Problem usual_problem() {
  Problem p;
  p.n = 2, p.c = 6, p.h = 14, p.w = 15, p.k = 8, p.r = 3, p.s = 5;
  p.stride_h = 2, p.pad_top = 1, p.pad_bottom = 2, p.pad_left = 2, p.pad_right = 1, p.dilation_w = 2,
  p.groups = 2;
  return p;
}

}  // namespace faltung
