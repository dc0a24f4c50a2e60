#include "kernels/cpu/pool.hpp"

#include <algorithm>
#include <limits>

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

struct Window {
  i64 begin, end;
  i64 size() const { return end - begin; }
};

Window clip(i64 out, i64 stride, i64 pad, i64 size, i64 limit) {
  const i64 begin = out * stride - pad;
  return {std::max<i64>(begin, 0), std::min(begin + size, limit)};
}

// What a window's elements come to, lane by lane.
template <PoolKind kKind>
class Pooled {
 public:
  // Written out: a constructor of the compiler's own would not be for this instruction set.
  HWY_INLINE Pooled()
      : value_(hn::Set(FloatTag(), kKind == PoolKind::max ? -std::numeric_limits<float>::infinity() : 0.0f)) {
  }
  HWY_INLINE void add(V v) {
    if constexpr (kKind == PoolKind::max) {
      value_ = hn::IfThenElse(hn::Or(hn::IsNaN(v), hn::Gt(v, value_)), v, value_);  // a NaN stays
    } else {
      value_ = hn::Add(value_, v);
    }
  }
  HWY_INLINE V result(i64 count) const {
    if constexpr (kKind == PoolKind::max) return value_;
    return hn::Div(value_, hn::Set(FloatTag(), static_cast<float>(count)));
  }

 private:
  V value_;
};

// nhwc: lanes are channels.
template <DType kType, PoolKind kKind>
void nhwc_row(const Problem& p, const ConvRows& from, Element<kType>* y, i64 image, i64 row,
              PoolPitches pitches) {
  const Pool& pool = p.epilogue.pool;
  const i64 conv_h = p.p(), conv_w = p.q(), columns = p.y_w();
  const Window rows = clip(row, pool.stride_h, pool.pad_top, pool.size_h, conv_h);
  const auto* conv = static_cast<const Element<kType>*>(from.data) +
                     (image - from.image) * from.rows * conv_w * pitches.from;
  y += (image * p.y_h() + row) * columns * pitches.to;
  for (i64 q = 0; q < columns; ++q) {
    const Window window = clip(q, pool.stride_w, pool.pad_left, pool.size_w, conv_w);
    for (i64 k = 0; k < p.k; k += kFloatLanes) {
      const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, p.k - k));
      Pooled<kKind> pooled;
      for (i64 i = rows.begin; i < rows.end; ++i) {
        const auto* pixel = conv + ((i - from.row) * conv_w + window.begin) * pitches.from + k;
        for (i64 j = 0; j < window.size(); ++j, pixel += pitches.from) {
          pooled.add(lanes == kFloatLanes ? load_vec<kType>(pixel) : load_lanes<kType, true>(pixel, lanes));
        }
      }
      const V v = pooled.result(rows.size() * window.size());
      store_lanes<kType, true>(v, y + q * pitches.to + k, lanes);
    }
  }
}

// nchw: lanes are the columns whose windows lie inside; the others one at a time.
template <DType kType, PoolKind kKind>
void nchw_row(const Problem& p, const ConvRows& from, Element<kType>* y, i64 plane, i64 row) {
  const FloatTag d;
  const Pool& pool = p.epilogue.pool;
  const i64 conv_h = p.p(), conv_w = p.q(), columns = p.y_w();
  const Window rows = clip(row, pool.stride_h, pool.pad_top, pool.size_h, conv_h);
  const auto* conv =
      static_cast<const Element<kType>*>(from.data) + (plane - from.image * p.k) * from.rows * conv_w;
  y += (plane * p.y_h() + row) * columns;
  const i64 first = std::min(columns, (pool.pad_left + pool.stride_w - 1) / pool.stride_w);
  const i64 room = conv_w + pool.pad_left - pool.size_w;
  const i64 last = room < 0 ? first : std::clamp(room / pool.stride_w + 1, first, columns);
  const auto one = [&](i64 q) {
    const Window window = clip(q, pool.stride_w, pool.pad_left, pool.size_w, conv_w);
    Pooled<kKind> pooled;
    for (i64 i = rows.begin; i < rows.end; ++i) {
      for (i64 j = window.begin; j < window.end; ++j) {
        pooled.add(hn::Set(d, load_one<kType>(conv + (i - from.row) * conv_w + j)));
      }
    }
    store_one<kType>(hn::GetLane(pooled.result(rows.size() * window.size())), y + q);
  };
  for (i64 q = 0; q < first; ++q) one(q);
  for (i64 q = first; q < last; q += kFloatLanes) {
    const i64 lanes = std::min<i64>(kFloatLanes, last - q);
    Pooled<kKind> pooled;
    for (i64 i = rows.begin; i < rows.end; ++i) {
      for (i64 j = 0; j < pool.size_w; ++j) {
        pooled.add(load_columns<kType>(conv + (i - from.row) * conv_w, q * pool.stride_w - pool.pad_left + j,
                                       pool.stride_w, conv_w, lanes));
      }
    }
    const V v = pooled.result(rows.size() * pool.size_w);
    store_lanes<kType, true>(v, y + q, static_cast<std::size_t>(lanes));
  }
  for (i64 q = last; q < columns; ++q) one(q);
}

template <DType kType, PoolKind kKind>
void run_row(const Problem& p, const ConvRows& from, void* y, i64 row, PoolPitches pitches) {
  auto* to = static_cast<Element<kType>*>(y);
  if (p.layout == Layout::nhwc) {
    nhwc_row<kType, kKind>(p, from, to, row / p.y_h(), row % p.y_h(), pitches);
  } else {
    nchw_row<kType, kKind>(p, from, to, row / p.y_h(), row % p.y_h());
  }
}

template <DType kType>
void run_type(const Problem& p, const ConvRows& conv, void* y, i64 row, PoolPitches pitches) {
  if (p.epilogue.pool.kind == PoolKind::max) {
    run_row<kType, PoolKind::max>(p, conv, y, row, pitches);
  } else {
    run_row<kType, PoolKind::average>(p, conv, y, row, pitches);
  }
}

}  // namespace

void PoolRow(const Problem& p, const ConvRows& conv, void* y, i64 row, PoolPitches pitches) {
  with_dtype(p.dtype, [&](auto type) { run_type<type>(p, conv, y, row, pitches); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(PoolRow);

std::int64_t pool_rows(const Problem& p) { return p.n * p.y_h() * (p.layout == Layout::nchw ? p.k : 1); }

void pool_row(const Problem& problem, const ConvRows& conv, void* y, std::int64_t row, PoolPitches pitches) {
  HWY_DYNAMIC_DISPATCH(PoolRow)(problem, conv, y, row, pitches);
}

}  // namespace faltung
#endif  // HWY_ONCE
