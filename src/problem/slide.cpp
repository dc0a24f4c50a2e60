#include "src/problem/slide.hpp"

#include <algorithm>
#include <numeric>

#include "src/problem/integers.hpp"

namespace faltung {

using i64 = std::int64_t;

std::vector<Slide> forward_slides(i64 in, i64 out, i64 filter, i64 stride, i64 dilation, i64 pad) {
  return {{out, 0, 1, filter, 0, 1, stride, -pad, dilation, in}};
}

std::vector<Slide> backward_slides(i64 in, i64 out, i64 filter, i64 stride, i64 dilation, i64 pad) {
  // Output o takes input (o + pad - dilation · r) / stride for every tap r for which that is an integer: with
  // one such r known, those that differ from it by multiples of tap_step.
  const i64 tap_step = stride / std::gcd(stride, dilation), spacing = dilation * tap_step / stride;
  std::vector<Slide> slides;
  for (i64 first = 0; first < std::min(stride, out); ++first) {
    Slide s{ceil_div(out - first, stride), first, stride, 0, 0, -tap_step, 1, 0, spacing, in};
    for (i64 r = 0; r < std::min(tap_step, filter); ++r) {
      if ((first + pad - dilation * r) % stride != 0) continue;
      s.taps = (filter - 1 - r) / tap_step + 1;
      s.tap = r + (s.taps - 1) * tap_step;  // from the last tap down, so that inputs go up
      s.origin = (first + pad - dilation * s.tap) / stride;
      break;
    }
    slides.push_back(s);
  }
  return slides;
}

}  // namespace faltung
