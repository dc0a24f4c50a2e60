// A problem as another problem. A rewrite knows the inner problem and, for each of its tensors, of which
// element of the outer problem's tensors each of its elements comes; so that whoever has the inner problem
// computed has the outer one, with nothing but copies around it. Knows no device.
#ifndef FALTUNG_SRC_PROBLEM_REWRITE_HPP_
#define FALTUNG_SRC_PROBLEM_REWRITE_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"

namespace faltung {

enum class Operand { x, w, y };

// Of a tensor. A filter's are its k, c, r and s.
enum Axis : std::uint8_t { kAxisN, kAxisC, kAxisH, kAxisW };
inline constexpr int kAxes = 4;
using Index = std::array<std::int64_t, kAxes>;

// A part of an inner index: index % count, once the faster digits are divided off. It moves the outer index
// by `step` for each.
struct Digit {
  std::int64_t count;
  Axis to;
  std::int64_t step;
  bool operator==(const Digit&) const = default;
};

// A tensor within another's memory: element i is at offset + i · strides, in elements.
struct StridedView {
  std::int64_t offset;
  Index strides;
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return offset + n * strides[kAxisN] + c * strides[kAxisC] + h * strides[kAxisH] + w * strides[kAxisW];
  }
};

// Of a filter of several groups as one: what it has of an output channel of one of them and an input channel
// of another is zero. So many channels each of them has; k and c count `groups` of them in turn.
struct Diagonal {
  std::int64_t k = 1, c = 1, groups = 1;
  bool has(const Index& inner) const { return inner[kAxisN] / k % groups == inner[kAxisC] / c % groups; }
};

// Which element of an outer tensor each element of an inner one is: affine in the digits of its indices, and
// of a filter's perhaps those of a diagonal alone.
struct IndexMap {
  Operand of;                                    // the outer tensor
  Index size;                                    // of the inner tensor
  Index outer_size;                              // what lies outside is zero
  Index start = {};                              // where the inner tensor's first element lies
  std::array<std::vector<Digit>, kAxes> digits;  // of each inner axis, the fastest first
  Diagonal diagonal = {};

  // The element's place in the outer tensor. None: where it is read it is zero, where it is a result it is
  // dropped.
  std::optional<Index> operator()(const Index& inner) const;
  // What an inner index along one axis moves the outer one by; none beyond the digits.
  std::optional<Index> along(Axis axis, std::int64_t i) const;
  // The part of the inner tensor that begins at `first`, within the fastest digits, as it lies in the outer
  // tensor's memory.
  StridedView view(const TensorShape& outer, const Index& first = {}) const;
  // Whether the inner tensor, so laid out, is the outer one as it lies in memory: nothing has to be copied.
  bool is_in_place(const TensorShape& inner, const TensorShape& outer) const;
  // Whether nothing comes from the outer tensor.
  bool is_zero() const { return outer_size[kAxisN] == 0; }
};

struct Rewrite {
  Problem inner;
  IndexMap x, w, y;  // of the inner problem's tensors

  const IndexMap& map(Operand inner_tensor) const {
    return inner_tensor == Operand::x ? x : inner_tensor == Operand::w ? w : y;
  }
  // What the inner problem computes. The outer result's elements are those of the inner one that are mapped
  // to them, and zero where there is none; of several rewrites of one problem, each gives what is mapped to.
  const IndexMap& result() const;

  // The row and the column of the tensor that inner.x is taken from where the first result's first tap lies.
  // Negative: so much padding. Positive where inner.x begins beyond that tensor's edge, since problems have
  // no negative padding.
  std::int64_t first_row() const { return x.start[kAxisH] - inner.pad_top; }
  std::int64_t first_column() const { return x.start[kAxisW] - inner.pad_left; }
};

Operand result_operand(Direction direction);
TensorShape operand_shape(const Problem& problem, Operand operand);

// A way to rewrite problems.
struct RewriteRule {
  const char* name;
  std::string (*declines)(const Problem& problem);
  Rewrite (*make)(const Problem& problem);

  // Why not, in words; empty if it applies.
  std::string why_not(const Problem& problem) const;
  bool applies(const Problem& problem) const { return why_not(problem).empty(); }
  // Throws Error(bad_problem) where it does not apply.
  Rewrite operator()(const Problem& problem) const;
};
// How often this process asked whether a rule applies, for the test that a choice does not for each tile.
std::size_t rewrites_asked();

namespace rewrites {

// The S columns of a row of the filter's window as the channels of one pixel: an R x S filter becomes an R x
// 1 one without a stride across. Channels: [group][tap][channel].
extern const RewriteRule fold_rows;
// Each block of stride x stride pixels as the channels of one: a smaller filter of stride 1. Channels:
// [group][row][column][channel].
extern const RewriteRule space_to_depth;
// Of a 1x1 filter's input the pixels that its strides take, padding made part of the image.
extern const RewriteRule thin;
// A 1x1 filter of stride 1 as a product of matrices: an image of one row, in nhwc one for all images.
extern const RewriteRule flatten;
// The same numbers in the other layout.
extern const RewriteRule change_layout;
// backward_data of stride 1 as forward over y's gradient, with the filter turned around. inner.x is a part of
// y's gradient where the padding is larger than the dilated filter less one.
extern const RewriteRule data_as_forward;

inline const RewriteRule* const kAll[] = {&fold_rows, &space_to_depth, &thin,
                                          &flatten,   &change_layout,  &data_as_forward};

}  // namespace rewrites

// The problem itself.
Rewrite unchanged(const Problem& problem);
// What algorithms compute that know forward alone: the problem, or its data_as_forward.
Rewrite forward_form(const Problem& problem);
// backward_data with any stride as stride x stride dense forward convolutions of stride 1, each for the
// pixels of x's gradient at one position within a stride; together they write all of it. Where no tap reads
// y's gradient the inner filter is 1x1 and zero: x.is_zero().
std::vector<Rewrite> data_phases(const Problem& problem);
// The same, with the input's channels rounded up to a multiple of unit; new ones are zero. Not for groups.
Rewrite pad_channels(Rewrite rewrite, std::int64_t unit);
// The same, with every so many groups as one, by a filter that is zero but for its diagonal: all new products
// are with zeros. (0 · Inf is NaN: an input that is not finite harms the groups beside its own.) Throws
// Error(bad_problem) where together does not divide the groups.
Rewrite merge_groups(Rewrite rewrite, std::int64_t together);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_REWRITE_HPP_
