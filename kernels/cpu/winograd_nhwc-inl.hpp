// The transforms of winograd.hpp for nhwc: vectors are of channels.
#if defined(FALTUNG_KERNELS_CPU_WINOGRAD_NHWC_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_WINOGRAD_NHWC_INL_HPP_
#undef FALTUNG_KERNELS_CPU_WINOGRAD_NHWC_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_WINOGRAD_NHWC_INL_HPP_
#endif

#include <algorithm>

#include "kernels/cpu/winograd_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {

// Where a tile is; ++ goes to the next number.
struct TileIndex {
  std::int64_t n, row, column;
  HWY_INLINE TileIndex(const WinogradShape& s, std::int64_t tile)
      : n(tile / s.tiles_w / s.tiles_h), row(tile / s.tiles_w % s.tiles_h), column(tile % s.tiles_w) {}
  HWY_INLINE void advance(const WinogradShape& s, std::int64_t tiles_of_row) {
    column += tiles_of_row;
    if (column < s.tiles_w) return;
    column = 0;
    if (++row < s.tiles_h) return;
    row = 0;
    ++n;
  }
};

// One vector of a tile from x to V.
template <int m, DType kType>
HWY_INLINE void input_vector(const Element<kType>* x, std::int64_t row_stride,
                             const Stride<const Element<kType>>& pixel, float* v,
                             std::int64_t position_stride, const Stride<float>& v_row) {
  constexpr int a = m + 2;
  V half[a][a];
  for (int i = 0; i < a; ++i) {
    for (int j = 0; j < a; ++j) half[i][j] = load_vec<kType>(pixel.at(x, j));
    transform_b<m>(half[i]);
    x = pixel.next(x, row_stride);
  }
  for (int j = 0; j < a; ++j) {
    V column[a];
    for (int i = 0; i < a; ++i) column[i] = half[i][j];
    transform_b<m>(column);
    for (int i = 0; i < a; ++i) hn::StoreU(column[i], Tag(), v_row.at(v, i));
    v = v_row.next(v, position_stride);
  }
}

// The part of a tile that lies inside the image.
struct Inside {
  std::int64_t row0, row1, column0, column1;
};

// That part of one vector of a tile, into a tile whose other pixels are zero.
template <int a, DType kType>
HWY_INLINE void copy_inside(const Element<kType>* x, std::int64_t row_stride, std::int64_t pixel_stride,
                            const Inside& inside, std::int64_t channels, float* patch) {
  for (std::int64_t i = inside.row0; i < inside.row1; ++i) {
    for (std::int64_t j = inside.column0; j < inside.column1; ++j) {
      const V pixel = load_first<kType>(x + i * row_stride + j * pixel_stride, channels);
      hn::Store(pixel, Tag(), patch + (i * a + j) * kLanes);
    }
  }
}

template <int m, DType kType>
void input_nhwc(const WinogradShape& s, const WinogradInput& in) {
  using T = Element<kType>;
  constexpr int a = m + 2;
  const std::int64_t row_stride = s.w * s.x_channels, position = in.position_stride;
  const Stride<const T> pixel(s.x_channels);
  const Stride<const float> patch_pixel(kLanes);
  const Stride<float> v_row(a * position);
  HWY_ALIGN float patch[a * a * kLanes];
  TileIndex tile(s, in.first_tile);
  for (std::int64_t t = 0; t < in.tiles; ++t, tile.advance(s, 1)) {
    const std::int64_t h0 = tile.row * m - s.pad_top, w0 = tile.column * m - s.pad_left;
    const T* image = static_cast<const T*>(in.x) + tile.n * s.h * row_stride + in.first_channel;
    const T* x = image + h0 * row_stride + w0 * s.x_channels;
    float* v = in.v + t * in.row_stride;
    const Inside inside{std::max<std::int64_t>(0, -h0), std::min<std::int64_t>(a, s.h - h0),
                        std::max<std::int64_t>(0, -w0), std::min<std::int64_t>(a, s.w - w0)};
    std::int64_t c = 0;
    if (inside.row0 == 0 && inside.row1 == a && inside.column0 == 0 && inside.column1 == a) {
      for (; c + kLanes <= in.channels; c += kLanes) {
        input_vector<m, kType>(x + c, row_stride, pixel, v + c, position, v_row);
      }
    }
    if (c < in.channels) std::memset(patch, 0, sizeof patch);
    for (; c < in.channels; c += kLanes) {
      copy_inside<a, kType>(x + c, row_stride, s.x_channels, inside, in.channels - c, patch);
      input_vector<m, DType::f32>(patch, a * kLanes, patch_pixel, v + c, position, v_row);
    }
  }
}

// One vector of a tile from M: out(i, j, value) takes its outputs.
template <int m, class Out>
HWY_INLINE void output_vector(const float* from, std::int64_t position_stride,
                              const Stride<const float>& from_row, const Out& out) {
  constexpr int a = m + 2;
  V half[m][a];
  for (int j = 0; j < a; ++j) {
    V column[a];
    for (int i = 0; i < a; ++i) column[i] = hn::LoadU(Tag(), from_row.at(from, i));
    transform_a<m>(column);
    for (int i = 0; i < m; ++i) half[i][j] = column[i];
    from = from_row.next(from, position_stride);
  }
  for (int i = 0; i < m; ++i) {
    transform_a<m>(half[i]);
    for (int j = 0; j < m; ++j) out(i, j, half[i][j]);
  }
}

// Pools the rows x columns finished outputs of a tile in patch, and stores them.
template <int m, DType kType>
void store_pooled(const WinogradShape& s, const WinogradOutput& o, const TileIndex& tile, std::int64_t c,
                  std::int64_t rows, std::int64_t columns, const float* patch) {
  const std::int64_t y_h = s.p / 2, y_w = s.q / 2;
  const V share = hn::Set(Tag(), o.pool == PoolKind::average ? 0.25f : 1.0f);
  const auto element = [&](std::int64_t i, std::int64_t j)
                           HWY_ATTR { return hn::Load(Tag(), patch + (i * m + j) * kLanes); };
  for (std::int64_t i = 0; i + 1 < rows; i += 2) {
    for (std::int64_t j = 0; j + 1 < columns; j += 2) {
      const V upper = pool_two(o.pool, element(i, j), element(i, j + 1));
      const V lower = pool_two(o.pool, element(i + 1, j), element(i + 1, j + 1));
      const V value = hn::Mul(pool_two(o.pool, upper, lower), share);
      const std::int64_t row = (tile.row * m + i) / 2, column = (tile.column * m + j) / 2;
      const std::int64_t at = ((tile.n * y_h + row) * y_w + column) * s.y_channels + o.first_channel + c;
      store_first<kType>(value, static_cast<Element<kType>*>(o.y) + at, o.channels - c);
    }
  }
}

template <int m, DType kType>
void output_nhwc(const WinogradShape& s, const WinogradOutput& o) {
  using T = Element<kType>;
  constexpr int a = m + 2;
  const std::int64_t row_stride = s.q * s.y_channels;
  const Stride<const float> from_row(a * o.position_stride);
  const Stride<T> pixel(s.y_channels);
  const bool relu = o.activation.kind == Activation::relu;
  const bool pools = o.pool != PoolKind::none;
  const bool plain = !pools && o.residual == nullptr && (relu || o.activation.kind == Activation::none);
  HWY_ALIGN float patch[m * m * kLanes];
  TileIndex tile(s, o.first_tile);
  for (std::int64_t t = 0; t < o.tiles; ++t, tile.advance(s, 1)) {
    const std::int64_t rows = std::min<std::int64_t>(m, s.p - tile.row * m);
    const std::int64_t columns = std::min<std::int64_t>(m, s.q - tile.column * m);
    const std::int64_t start =
        (tile.n * s.p + tile.row * m) * row_stride + tile.column * m * s.y_channels + o.first_channel;
    const bool whole = plain && rows == m && columns == m;
    for (std::int64_t c = 0; c < o.channels; c += kLanes) {
      const std::int64_t left = o.channels - c;
      const float* from = o.m + t * o.row_stride + c;
      V bias = hn::Zero(Tag());
      if (o.bias != nullptr) {
        bias = load_first<kType>(static_cast<const T*>(o.bias) + o.first_channel + c, left);
      }
      const V a = a_of_channels(o.activation, o.slopes, o.first_channel + c, left);
      if (whole && left >= kLanes) {
        // As least as large as the accumulator, or NaN.
        const V floor = relu ? hn::Zero(Tag()) : hn::Set(Tag(), -HUGE_VALF);
        T* y = static_cast<T*>(o.y) + start + c;
        output_vector<m>(from, o.position_stride, from_row, [&](int, int j, V value) HWY_ATTR {
          value = hn::Add(value, bias);
          store_vec<kType>(hn::IfThenElse(hn::Lt(value, floor), floor, value), pixel.at(y, j));
          if (j == m - 1) y = pixel.next(y, row_stride);
        });
        continue;
      }
      output_vector<m>(from, o.position_stride, from_row, [&](int i, int j, V value) HWY_ATTR {
        hn::Store(value, Tag(), patch + (i * m + j) * kLanes);
      });
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          const std::int64_t at = start + i * row_stride + j * s.y_channels + c;
          V value = hn::Add(hn::Load(Tag(), patch + (i * m + j) * kLanes), bias);
          V residual = hn::Zero(Tag());
          if (o.residual != nullptr)
            residual = load_first<kType>(static_cast<const T*>(o.residual) + at, left);
          value = finished(o, value, residual, a);
          if (pools) {
            hn::Store(value, Tag(), patch + (i * m + j) * kLanes);
          } else {
            store_first<kType>(value, static_cast<T*>(o.y) + at, left);
          }
        }
      }
      if (pools) store_pooled<m, kType>(s, o, tile, c, rows, columns, patch);
    }
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
