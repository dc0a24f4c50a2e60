#include "src/algorithms/implicit_gemm_turns.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/epilogue.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite_plain.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

}  // namespace

bool PlaneTurns::serves(const Problem& p) {
  return p.layout == Layout::nchw && p.dtype == DType::f32 && p.direction != Direction::backward_weights &&
         is_plain(p) && !has_pitch(p);
}

PlaneTurns::PlaneTurns(const Problem& p) : inner_(rewrites::change_layout(p).inner) {
  const bool reads_x = walks_over_x(p);
  const TensorShape read = reads_x ? x_shape(p) : conv_shape(p);
  // Pixels a page apart would push each other out of the first-level cache.
  const i64 pitch = read.c % 512 == 0 ? read.c + 16 : read.c;
  if (pitch != read.c) (reads_x ? inner_.x_pitch : inner_.y_pitch) = pitch;
  in_ = turn(reads_x ? Place::x : Place::y, read, pitch, true);
  const TensorShape result = result_shape(p);
  out_ = turn(result_place(p), result, result.c, false);
  if (p.epilogue.residual) residual_ = turn(Place::residual, result, result.c, true);
}

PlaneTurns::Turn PlaneTurns::turn(Place outer, const TensorShape& shape, i64 pitch, bool to_pixels) {
  Turn t{outer, {Place::workspace, bytes_}};
  const i64 pixels = shape.h * shape.w, planes = shape.c * pixels, rows = pitch * pixels;
  bytes_ += aligned(static_cast<std::size_t>(shape.n * rows) * sizeof(float));
  t.images = shape.n;
  t.rows = to_pixels ? shape.c : pixels, t.columns = to_pixels ? pixels : shape.c;
  t.from_row = to_pixels ? pixels : pitch, t.from_image = to_pixels ? planes : rows;
  t.to_row = to_pixels ? pitch : pixels, t.to_image = to_pixels ? rows : planes;
  return t;
}

// A task reads some lines of each row one after the other, and writes rows of the result.
void PlaneTurns::Turn::run(const Parallel& parallel, const float* from, float* to) const {
  constexpr i64 kRows = 512, kColumns = 64;
  const i64 row_parts = ceil_div(rows, kRows), column_parts = ceil_div(columns, kColumns);
  parallel.each(images * row_parts * column_parts, [&](i64 task, int) {
    const i64 image = task / (row_parts * column_parts), row = task / column_parts % row_parts * kRows;
    const i64 column = task % column_parts * kColumns;
    transpose_to_float(DType::f32, from + image * from_image + row * from_row + column, from_row,
                       std::min(kRows, rows - row), std::min(kColumns, columns - column),
                       to + image * to_image + column * to_row + row, to_row);
  });
}

// Each line of a plane is far from the one that is touched next, on either way. The rate is one core's on a
// quiet machine; all share the memory, and where it is busy nothing hides what turns wait for.
double PlaneTurns::ns() const {
  constexpr double kLineFloats = 16, kShared = 3.2;
  const double line = fetch_time(Staging::runs).step + kLineFloats * staging_time(Staging::runs).step;
  return kShared * line * static_cast<double>(bytes_) / (kLineFloats * sizeof(float));
}

Recipe PlaneTurns::around(Recipe recipe) const {
  const auto step = [](const char* name, const Turn& t, bool to_pixels) {
    const Slot from = to_pixels ? Slot(t.outer) : t.inner, to = to_pixels ? t.inner : Slot(t.outer);
    return call(name, {from.place}, {to.place}, [t, from, to](const Memory& m, const Parallel& parallel) {
      t.run(parallel, reinterpret_cast<const float*>(m.at(from)), reinterpret_cast<float*>(m.at(to)));
    });
  };
  std::vector<Step> steps;
  steps.push_back(step("turn to pixels", in_, true));
  if (residual_) steps.push_back(step("turn residual to pixels", *residual_, true));
  for (Step& inner : recipe.steps) {
    inner.rewire(Place::workspace, {Place::workspace, bytes_});
    inner.rewire(in_.outer, in_.inner);
    inner.rewire(out_.outer, out_.inner);
    if (residual_) inner.rewire(Place::residual, residual_->inner);
    steps.push_back(std::move(inner));
  }
  steps.push_back(step("turn to planes", out_, false));
  recipe.steps = std::move(steps);
  recipe.workspace_bytes += bytes_;
  return recipe;
}

}  // namespace faltung
