// What an algorithm meets beyond an element's own products: the pixels of its tile, and what lies under zeros
// that it adds to the filter.
#ifndef FALTUNG_SRC_FINDER_SURROUNDINGS_HPP_
#define FALTUNG_SRC_FINDER_SURROUNDINGS_HPP_

#include <cstddef>
#include <optional>
#include <vector>

#include "src/problem/reference.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {

// A problem over other data, of whose results the magnitude says something of the given problem's.
struct Surroundings {
  Problem problem;
  std::vector<std::byte> data;     // of the tensor that the taps walk over: x, or the output's gradient
  std::vector<std::byte> weights;  // empty: the given ones

  // given: of the problem whose surroundings these are.
  double magnitude(const Tensors& given, const Position& at) const;
};

// What a value that is not finite counts as.
enum class NotFinite { zero, infinite };

// Of algorithms on tiles: each element is the largest within the spread of it, and the padding is part of the
// image. A result that is finite met finite values alone: its error is relative to these. None of infinite
// ones where all are finite.
std::optional<Surroundings> tile_of(const Problem& problem, const Tensors& tensors, const Accuracy& accuracy,
                                    NotFinite counts_as);

// Of algorithms that add zeros to the filter: the magnitude is infinite where these, or the filter's own
// weights, meet an input that is not finite, else zero. None where every input is finite.
std::optional<Surroundings> met_by_zeros(const Problem& problem, const Tensors& tensors,
                                         const Accuracy& accuracy);

// Of algorithms whose zeros meet a channel: whether one of its values is not finite, and which channel an
// element is of.
class MetChannels {
 public:
  MetChannels(const Problem& problem, const Tensors& tensors);
  bool is_finite(const Position& of_result) const;

 private:
  Problem problem_;  // not transposed
  std::vector<bool> finite_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SURROUNDINGS_HPP_
