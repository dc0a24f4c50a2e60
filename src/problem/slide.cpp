#include "src/problem/slide.hpp"

#include <algorithm>
#include <numeric>

#include "src/problem/integers.hpp"

namespace faltung {

using i64 = std::int64_t;

std::vector<Slide> forward_slides(i64 in, i64 out, i64 filter, i64 stride, i64 dilation, i64 pad) {
  // From one output there is no way to a next one, so that nothing on it is staged. A problem cannot say
  // that: with a stride of 1 the same input has more outputs.
  return {{out, 0, 1, filter, 0, 1, out == 1 ? 1 : stride, -pad, dilation, in}};
}

std::vector<Slide> backward_slides(i64 in, i64 out, i64 filter, i64 stride, i64 dilation, i64 pad) {
  // Output o takes input (o + pad - dilation · r) / stride for every tap r for which that is an integer: with
  // one such r known, those that differ from it by multiples of tap_step.
  const i64 tap_step = stride / std::gcd(stride, dilation), spacing = dilation * tap_step / stride;
  std::vector<Slide> slides;
  for (i64 first = 0; first < std::min(stride, out); ++first)
    slides.push_back({ceil_div(out - first, stride), first, stride, 0, 0, -tap_step, 1, 0, spacing, in});
  for (i64 r = 0; r < std::min(tap_step, filter); ++r) {
    const i64 first = ((dilation * r - pad) % stride + stride) % stride;
    if (first >= out) continue;
    Slide& s = slides[static_cast<std::size_t>(first)];
    s.taps = (filter - 1 - r) / tap_step + 1;
    s.tap = r + (s.taps - 1) * tap_step;  // from the last tap down, so that inputs go up
    s.origin = (first + pad - dilation * s.tap) / stride;
  }
  return slides;
}

double taps_inside(const Slide& s) {
  const auto times = [](i64 first, i64 step, i64 count, i64 size) {  // that first + i * step is in [0, size)
    const i64 begin = first < 0 ? ceil_div(-first, step) : 0;
    const i64 end = first < size ? (size - 1 - first) / step + 1 : 0;
    return static_cast<double>(std::max<i64>(0, std::min(end, count) - begin));
  };
  double inside = 0;
  if (s.taps < s.count) {
    for (i64 i = 0; i < s.taps; ++i) inside += times(s.origin + i * s.spacing, s.stride, s.count, s.size);
  } else {
    for (i64 t = 0; t < s.count; ++t) inside += times(s.origin + t * s.stride, s.spacing, s.taps, s.size);
  }
  return inside;
}

}  // namespace faltung
