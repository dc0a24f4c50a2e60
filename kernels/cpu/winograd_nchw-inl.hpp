// The transforms of winograd.hpp for nchw: vectors are of tiles.
//
// A block's tiles are cut into segments, the tiles of one row of tiles of one image. Where a tile's inputs or
// outputs meet memory, a segment is a run of rows of the image; between the two one-dimensional transforms
// the block's tiles lie one after the other, so that vectors cross segments.
#if defined(FALTUNG_KERNELS_CPU_WINOGRAD_NCHW_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_WINOGRAD_NCHW_INL_HPP_
#undef FALTUNG_KERNELS_CPU_WINOGRAD_NCHW_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_WINOGRAD_NCHW_INL_HPP_
#endif

#include <algorithm>

#include "kernels/cpu/winograd_nhwc-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {

// Tiles rounded up to whole vectors, and one more: a segment's last vector may reach that far.
HWY_INLINE std::int64_t pitch(std::int64_t tiles) { return (tiles + 2 * kLanes - 1) / kLanes * kLanes; }

// What the scratch holds: a row of the image with its padding and what a vector reads past it, and for the
// input the tiles after the first transform, [row][column][tile]; for the output the rows of y, [row][tile *
// m + column].
template <int m>
std::int64_t line_size(std::int64_t tiles) {
  return m * pitch(tiles) + 2 * kLanes;
}
template <int m>
std::int64_t scratch_size(std::int64_t tiles) {
  return line_size<m>(tiles) + (m + 2) * (m + 2) * pitch(tiles);
}

// The m + 2 inputs of kLanes tiles side by side, a tile a lane.
template <int m>
HWY_INLINE void split_line(const float* line, V (&d)[m + 2]) {
  const Tag tag;
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < m + 2; ++j) d[j] = hn::Set(tag, line[j]);
#else
  if constexpr (m == 2) {
    const V v0 = hn::LoadU(tag, line), v1 = hn::LoadU(tag, line + kLanes);
    const V w0 = hn::LoadU(tag, line + 2), w1 = hn::LoadU(tag, line + kLanes + 2);
    d[0] = hn::ConcatEven(tag, v1, v0);
    d[1] = hn::ConcatOdd(tag, v1, v0);
    d[2] = hn::ConcatEven(tag, w1, w0);
    d[3] = hn::ConcatOdd(tag, w1, w0);
  } else {
    const V v0 = hn::LoadU(tag, line), v1 = hn::LoadU(tag, line + kLanes);
    const V v2 = hn::LoadU(tag, line + 2 * kLanes), v3 = hn::LoadU(tag, line + 3 * kLanes);
    const V even0 = hn::ConcatEven(tag, v1, v0), odd0 = hn::ConcatOdd(tag, v1, v0);
    const V even1 = hn::ConcatEven(tag, v3, v2), odd1 = hn::ConcatOdd(tag, v3, v2);
    d[0] = hn::ConcatEven(tag, even1, even0);
    d[1] = hn::ConcatEven(tag, odd1, odd0);
    d[2] = hn::ConcatOdd(tag, even1, even0);
    d[3] = hn::ConcatOdd(tag, odd1, odd0);
    // The last two are the next tile's first two.
    const auto last = hn::Not(hn::FirstN(tag, kLanes - 1));
    const auto next = hn::SetTableIndices(tag, [] {
      static const struct Indices {
        std::int32_t lane[kLanes];
        Indices() {
          for (int i = 0; i < kLanes; ++i) lane[i] = (i + 1) % kLanes;
        }
      } indices;
      return indices.lane;
    }());
    d[4] = hn::IfThenElse(last, hn::Set(tag, line[4 * kLanes]), hn::TableLookupLanes(d[0], next));
    d[5] = hn::IfThenElse(last, hn::Set(tag, line[4 * kLanes + 1]), hn::TableLookupLanes(d[1], next));
  }
#endif
}

// kLanes tiles' outputs of one row, side by side in memory.
template <int m>
HWY_INLINE void join_line(const V (&d)[m + 2], float* line) {
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < m; ++j) line[j] = hn::GetLane(d[j]);
#else
  if constexpr (m == 2) {
    hn::StoreInterleaved2(d[0], d[1], Tag(), line);
  } else {
    hn::StoreInterleaved4(d[0], d[1], d[2], d[3], Tag(), line);
  }
#endif
}

// The row of x that some tiles of a row of tiles read, from their first input: x itself where it is in f32
// and lies inside the image with what vectors read past it, else a copy with the padding.
template <class Type>
HWY_INLINE const float* input_line(Type type, const typename Type::Element* row, std::int64_t w0,
                                   std::int64_t count, std::int64_t w, float* line) {
  const std::int64_t begin = std::clamp<std::int64_t>(0, w0, w0 + count), end = std::min(w, w0 + count);
  if constexpr (std::is_same_v<Type, F32>) {
    if (w0 >= 0 && w0 + count <= w) return row + w0;
  }
  std::int64_t i = 0;
  for (; i < begin - w0; ++i) line[i] = 0;
  std::int64_t left = end - begin;
  for (const auto* from = row + begin; left > 0; from += kLanes, left -= kLanes) {
    const V part = load_first(type, from, left);
    hn::StoreU(part, Tag(), line + i);
    i += std::min<std::int64_t>(kLanes, left);
  }
  for (; i < count; i += kLanes) hn::StoreU(hn::Zero(Tag()), Tag(), line + i);
  return line;
}

template <int m, class Type>
void input_nchw(const WinogradShape& s, const WinogradInput& in) {
  using T = typename Type::Element;
  constexpr int a = m + 2;
  const std::int64_t tile_pitch = pitch(in.tiles);
  float* const line_copy = in.scratch;
  float* const half = in.scratch + line_size<m>(in.tiles);
  for (std::int64_t c = 0; c < in.channels; ++c) {
    const T* channel = static_cast<const T*>(in.x) + (in.first_channel + c) * s.h * s.w;
    for (std::int64_t t = 0; t < in.tiles;) {
      const TileIndex tile = tile_index(s, in.first_tile + t);
      const std::int64_t count = std::min(in.tiles - t, s.tiles_w - tile.column);
      const T* plane = channel + tile.n * s.x_channels * s.h * s.w;
      const std::int64_t h0 = tile.row * m - s.pad_top, w0 = tile.column * m - s.pad_left;
      const std::int64_t vectors = (count + kLanes - 1) / kLanes;
      for (int i = 0; i < a; ++i) {
        float* to = half + i * a * tile_pitch + t;
        const std::int64_t h = h0 + i;
        if (h < 0 || h >= s.h) {
          for (int j = 0; j < a; ++j) {
            for (std::int64_t v = 0; v < vectors; ++v) {
              hn::StoreU(hn::Zero(Tag()), Tag(), to + j * tile_pitch + v * kLanes);
            }
          }
          continue;
        }
        const float* line = input_line(Type(), plane + h * s.w, w0, vectors * kLanes * m + 2, s.w, line_copy);
        for (std::int64_t v = 0; v < vectors; ++v) {
          V d[a];
          split_line<m>(line + v * kLanes * m, d);
          transform_b<m>(d);
          for (int j = 0; j < a; ++j) hn::StoreU(d[j], Tag(), to + j * tile_pitch + v * kLanes);
        }
      }
      t += count;
    }
    for (std::int64_t t = 0; t < in.tiles; t += kLanes) {
      float* to = in.v + c * in.row_stride + t;
      for (int j = 0; j < a; ++j) {
        V d[a];
        for (int i = 0; i < a; ++i) d[i] = hn::LoadU(Tag(), half + (i * a + j) * tile_pitch + t);
        transform_b<m>(d);
        for (int i = 0; i < a; ++i) hn::StoreU(d[i], Tag(), to + (i * a + j) * in.position_stride);
      }
    }
  }
}

template <int m, class Type>
void output_nchw(const WinogradShape& s, const WinogradOutput& o) {
  using T = typename Type::Element;
  constexpr int a = m + 2;
  const std::int64_t row_pitch = m * pitch(o.tiles);
  for (std::int64_t c = 0; c < o.channels; ++c) {
    for (std::int64_t t = 0; t < o.tiles; t += kLanes) {
      V rows[m][a];
      const float* from = o.m + c * o.row_stride + t;
      for (int j = 0; j < a; ++j) {
        V d[a];
        for (int i = 0; i < a; ++i) d[i] = hn::LoadU(Tag(), from + (i * a + j) * o.position_stride);
        transform_a<m>(d);
        for (int i = 0; i < m; ++i) rows[i][j] = d[i];
      }
      for (int i = 0; i < m; ++i) {
        transform_a<m>(rows[i]);
        join_line<m>(rows[i], o.scratch + i * row_pitch + t * m);
      }
    }
    const std::int64_t channel = o.first_channel + c;
    const V bias =
        o.bias == nullptr
            ? hn::Zero(Tag())
            : hn::Set(Tag(), hn::GetLane(load_first(Type(), static_cast<const T*>(o.bias) + channel, 1)));
    for (std::int64_t t = 0; t < o.tiles;) {
      const TileIndex tile = tile_index(s, o.first_tile + t);
      const std::int64_t count = std::min(o.tiles - t, s.tiles_w - tile.column);
      const std::int64_t columns = std::min(count * m, s.q - tile.column * m);
      const std::int64_t rows = std::min<std::int64_t>(m, s.p - tile.row * m);
      const std::int64_t plane = (tile.n * s.y_channels + channel) * s.p * s.q;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t at = plane + (tile.row * m + i) * s.q + tile.column * m;
        const float* from = o.scratch + i * row_pitch + t * m;
        for (std::int64_t j = 0; j < columns; j += kLanes) {
          V value = hn::Add(hn::LoadU(Tag(), from + j), bias);
          if (o.residual != nullptr) {
            value =
                hn::Add(value, load_first(Type(), static_cast<const T*>(o.residual) + at + j, columns - j));
          }
          value = activate(value, o.activation, o.slope);
          store_first(Type(), value, static_cast<T*>(o.y) + at + j, columns - j);
        }
      }
      t += count;
    }
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
