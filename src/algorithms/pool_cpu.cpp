#include "src/algorithms/pool_cpu.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct Window {
  i64 begin, end;
};

Window clip(i64 out, i64 stride, i64 pad, i64 size, i64 limit) {
  const i64 begin = out * stride - pad;
  return {std::max<i64>(begin, 0), std::min(begin + size, limit)};
}

// One row (n, c, y) of the result for nchw, or one row (n, y) of all channels for nhwc.
void pool_row(const Problem& p, const void* conv, void* y, i64 in, i64 c_begin, i64 c_end, i64 row) {
  const TensorShape from = conv_shape(p), to = y_shape(p);
  const Pool& pool = p.epilogue.pool;
  const Window rows = clip(row, pool.stride_h, pool.pad_top, pool.size_h, from.h);
  for (i64 column = 0; column < to.w; ++column) {
    const Window columns = clip(column, pool.stride_w, pool.pad_left, pool.size_w, from.w);
    for (i64 c = c_begin; c < c_end; ++c) {
      const bool is_max = pool.kind == PoolKind::max;
      float value = is_max ? -std::numeric_limits<float>::infinity() : 0;
      for (i64 i = rows.begin; i < rows.end; ++i) {
        for (i64 j = columns.begin; j < columns.end; ++j) {
          const float v = load_element(p.dtype, conv, from.offset(in, c, i, j));
          if (is_max) {
            value = std::isnan(v) || v > value ? v : value;  // a NaN stays
          } else {
            value += v;
          }
        }
      }
      if (!is_max) value /= static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
      store_element(p.dtype, y, to.offset(in, c, row, column), value);
    }
  }
}

}  // namespace

Recipe with_pool_step_cpu(const Problem& p, Recipe recipe) {
  const std::size_t offset = aligned(recipe.workspace_bytes);
  for (Step& step : recipe.steps) {
    step.run = [inner = std::move(step.run), offset](const Invocation& invocation) {
      Invocation redirected = invocation;
      redirected.tensors.y = invocation.workspace + offset;
      inner(redirected);
    };
  }
  recipe.workspace_bytes = offset + aligned(static_cast<std::size_t>(bytes_of(p, conv_shape(p))));
  recipe.steps.push_back({"pool", [p, offset](const Invocation& invocation) {
                            const TensorShape to = y_shape(p);
                            const void* conv = invocation.workspace + offset;
                            const i64 planes = p.layout == Layout::nchw ? to.c : 1, channels = to.c / planes;
                            invocation.stream.parallel->each(to.n * planes * to.h, [&](i64 index, int) {
                              const i64 plane = index / to.h % planes;
                              pool_row(p, conv, invocation.tensors.y, index / to.h / planes, plane * channels,
                                       (plane + 1) * channels, index % to.h);
                            });
                          }});
  return recipe;
}

}  // namespace faltung
