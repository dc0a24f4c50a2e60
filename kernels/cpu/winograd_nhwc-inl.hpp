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

struct TileIndex {
  std::int64_t n, row, column;
};
HWY_INLINE TileIndex tile_index(const WinogradShape& s, std::int64_t tile) {
  const std::int64_t row = tile / s.tiles_w;
  return {row / s.tiles_h, row % s.tiles_h, tile % s.tiles_w};
}

// A whole transform of one vector: pixel(i, j) gives the tile's inputs.
template <int m, class Pixel>
HWY_INLINE void input_vector(const Pixel& pixel, float* v, std::int64_t position_stride) {
  constexpr int a = m + 2;
  V columns[a][a];  // [column][row], transformed along the rows
  for (int j = 0; j < a; ++j) {
    for (int i = 0; i < a; ++i) columns[j][i] = pixel(i, j);
    transform_b<m>(columns[j]);
  }
  for (int i = 0; i < a; ++i) {
    V row[a];
    for (int j = 0; j < a; ++j) row[j] = columns[j][i];
    transform_b<m>(row);
    for (int j = 0; j < a; ++j) hn::StoreU(row[j], Tag(), v + (i * a + j) * position_stride);
  }
}

template <int m, class Type>
void input_nhwc(const WinogradShape& s, const WinogradInput& in) {
  using T = typename Type::Element;
  constexpr int a = m + 2;
  const std::int64_t pixel_stride = s.x_channels, row_stride = s.w * s.x_channels;
  for (std::int64_t t = 0; t < in.tiles; ++t) {
    const TileIndex tile = tile_index(s, in.first_tile + t);
    const std::int64_t h0 = tile.row * m - s.pad_top, w0 = tile.column * m - s.pad_left;
    // Where the tile lies in the image; padding is zero and not read.
    const std::int64_t i0 = std::max<std::int64_t>(0, -h0), i1 = std::min<std::int64_t>(a, s.h - h0);
    const std::int64_t j0 = std::max<std::int64_t>(0, -w0), j1 = std::min<std::int64_t>(a, s.w - w0);
    const T* x =
        static_cast<const T*>(in.x) + (tile.n * s.h * s.w + h0 * s.w + w0) * s.x_channels + in.first_channel;
    float* v = in.v + t * in.row_stride;
    const bool inside = i0 == 0 && j0 == 0 && i1 == a && j1 == a;
    for (std::int64_t c = 0; c < in.channels; c += kLanes) {
      const std::int64_t left = in.channels - c;
      if (inside && left >= kLanes) {
        input_vector<m>([&](int i, int j)
                            HWY_ATTR { return load(Type(), x + i * row_stride + j * pixel_stride + c); },
                        v + c, in.position_stride);
      } else {
        input_vector<m>(
            [&](int i, int j) HWY_ATTR {
              return i >= i0 && i < i1 && j >= j0 && j < j1
                         ? load_first(Type(), x + i * row_stride + j * pixel_stride + c, left)
                         : hn::Zero(Tag());
            },
            v + c, in.position_stride);
      }
    }
  }
}

// The transform of one vector back: out(i, j, value) takes the tile's outputs.
template <int m, class Out>
HWY_INLINE void output_vector(const float* from, std::int64_t position_stride, const Out& out) {
  constexpr int a = m + 2;
  V columns[a][a];  // [column][row]
  for (int j = 0; j < a; ++j) {
    for (int i = 0; i < a; ++i) columns[j][i] = hn::LoadU(Tag(), from + (i * a + j) * position_stride);
    transform_a<m>(columns[j]);
  }
  for (int i = 0; i < m; ++i) {
    V row[a];
    for (int j = 0; j < a; ++j) row[j] = columns[j][i];
    transform_a<m>(row);
    for (int j = 0; j < m; ++j) out(i, j, row[j]);
  }
}

template <int m, class Type>
void output_nhwc(const WinogradShape& s, const WinogradOutput& o) {
  using T = typename Type::Element;
  for (std::int64_t t = 0; t < o.tiles; ++t) {
    const TileIndex tile = tile_index(s, o.first_tile + t);
    const std::int64_t rows = std::min<std::int64_t>(m, s.p - tile.row * m);
    const std::int64_t columns = std::min<std::int64_t>(m, s.q - tile.column * m);
    const std::int64_t start =
        ((tile.n * s.p + tile.row * m) * s.q + tile.column * m) * s.y_channels + o.first_channel;
    for (std::int64_t c = 0; c < o.channels; c += kLanes) {
      const std::int64_t left = o.channels - c;
      V bias = hn::Zero(Tag());
      if (o.bias != nullptr) {
        bias = load_first(Type(), static_cast<const T*>(o.bias) + o.first_channel + c, left);
      }
      output_vector<m>(o.m + t * o.row_stride + c, o.position_stride, [&](int i, int j, V value) HWY_ATTR {
        if (i >= rows || j >= columns) return;
        const std::int64_t at = start + (i * s.q + j) * s.y_channels + c;
        value = hn::Add(value, bias);
        if (o.residual != nullptr) {
          value = hn::Add(value, load_first(Type(), static_cast<const T*>(o.residual) + at, left));
        }
        value = activate(value, o.activation, o.slope);
        store_first(Type(), value, static_cast<T*>(o.y) + at, left);
      });
    }
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
