// One dimension of a convolution, as what is computed slides along it.
#ifndef FALTUNG_SRC_PROBLEM_SLIDE_HPP_
#define FALTUNG_SRC_PROBLEM_SLIDE_HPP_

#include <cstdint>
#include <vector>

namespace faltung {

// Output t of count, stored at first + t · step, is the sum over its taps i of
//   weight[tap + i · tap_step] · input[t · stride + origin + i · spacing]
// where inputs outside [0, size) are zero. A forward convolution is one such sum in each dimension; a strided
// backward_data is as many as the stride, one for each remainder of the output's index.
struct Slide {
  std::int64_t count, first, step;
  std::int64_t taps, tap, tap_step;
  std::int64_t stride, origin, spacing;
  std::int64_t size;
};

std::vector<Slide> forward_slides(std::int64_t in, std::int64_t out, std::int64_t filter, std::int64_t stride,
                                  std::int64_t dilation, std::int64_t pad);
// in is the gradient that is read (of the convolution's output), out the one that is written.
std::vector<Slide> backward_slides(std::int64_t in, std::int64_t out, std::int64_t filter,
                                   std::int64_t stride, std::int64_t dilation, std::int64_t pad);

// Of all outputs' taps those that meet the input.
double taps_inside(const Slide& slide);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_SLIDE_HPP_
