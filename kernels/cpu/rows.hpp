// Computations along one dimension of a tensor of three (outer, length, inner), in fp32: reductions,
// normalizations, softmax, weighted sums of elements, and elements by a table. The functions here compute on
// elements of f32; a GPU has kernels for the others.
#ifndef FALTUNG_KERNELS_CPU_ROWS_HPP_
#define FALTUNG_KERNELS_CPU_ROWS_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/map.hpp"

namespace faltung {

struct RowsExtent {
  std::int64_t outer = 1, length = 1, inner = 1;
};

enum class RowsOp : std::uint8_t {
  sum,
  mean,
  max,
  min,
  sum_of_squares,
  sum_of_sizes,
  product,
  // these give as many elements as they take
  softmax,
  log_softmax,
  standardize,  // the mean becomes 0, the variance 1
};
inline bool reduces(RowsOp op) { return op < RowsOp::softmax; }

// What is computed of rows that are standardized while they are near: a map whose last two inputs are a row's
// mean and the inverse of its deviation. Rows are outer dimensions of it.
struct RowsThen {
  MapCall map;  // of one row
  int x = 0;    // the input that is standardized, row behind row
  int rank = 0;
  std::array<std::int64_t, kMapRank> sizes{};
  // From row to row, in elements: of the inputs but for the last two, and of the output.
  std::vector<std::array<std::int64_t, kMapRank>> strides;
};

struct RowsCall {
  RowsOp op = RowsOp::sum;
  RowsExtent extent;
  float epsilon = 0;  // of standardize: added to the variance
  MapElement from = MapElement::f32, to = MapElement::f32;
  std::shared_ptr<const RowsThen> then = nullptr;  // of standardize, with extent.inner 1; or null
};

// Independent parts; in any order, on any thread. The result may be the input where it is as large.
std::int64_t rows_tasks(const RowsCall& call);
void rows_task(const RowsCall& call, const float* from, float* to, std::int64_t task);
// With call.then, of the inputs that its map has but for the last two: a task is a row.
void rows_then_task(const RowsCall& call, const std::byte* const* inputs, std::byte* to, std::int64_t task);

// Along the dimension, element i of `out` is the sum over t of weight[i * taps + t] times element
// index[i * taps + t].
struct TapsCall {
  RowsExtent extent;  // of the input
  std::int64_t out = 1, taps = 1;
  std::vector<std::int32_t> index;
  std::vector<float> weight;
  MapElement from = MapElement::f32, to = MapElement::f32;
};
// A task is one element of outer and out.
inline std::int64_t taps_tasks(const TapsCall& call) {
  return call.extent.outer * (call.extent.inner == 1 ? 1 : call.out);
}
void taps_task(const TapsCall& call, const float* from, float* to, std::int64_t task);

// Of an axis of `length` elements those that a result has: element i is element index[i]; -1: there is none.
struct PickedAxis {
  std::int64_t length = 1;
  std::vector<std::int32_t> index = {0};
  std::int64_t size() const { return static_cast<std::int64_t>(index.size()); }
};
// Elements of any kind, of 1, 2, 4 or 8 bytes, copied, along two neighbouring axes of four; where either has
// none it is `fill`.
struct PickCall {
  std::int64_t outer = 1;
  PickedAxis rows, columns;
  std::int64_t inner = 1;
  std::size_t bytes = 4;  // of an element
  std::uint64_t fill = 0;
  bool fills = false;  // whether an index is -1
  std::int64_t results() const { return outer * rows.size() * columns.size() * inner; }
};
std::int64_t pick_tasks(const PickCall& call);
void pick_task(const PickCall& call, const std::byte* from, std::byte* to, std::int64_t task);

// The index of the largest (or smallest) element along the dimension, as whole numbers of 64 bits.
enum class BestKind : std::uint8_t { largest, smallest };
enum class OfEqual : std::uint8_t { first, last };
struct BestCall {
  RowsExtent extent;
  BestKind kind = BestKind::largest;
  OfEqual of_equal = OfEqual::first;
  MapElement from = MapElement::f32;
};
inline std::int64_t best_tasks(const BestCall& call) { return call.extent.outer; }
void best_task(const BestCall& call, const float* from, std::int64_t* to, std::int64_t task);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_ROWS_HPP_
