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
#include <array>

#include "kernels/cpu/winograd_nhwc-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {

// Tiles rounded up to whole vectors, and one more: a segment's last vector may reach that far.
HWY_INLINE std::int64_t pitch(std::int64_t tiles) { return (tiles + 2 * kLanes - 1) / kLanes * kLanes; }

// What the scratch holds, for the input: a channel's tiles after the first transform, [row][column][tile];
// for the output: a channel's rows of y, [row][tile * m + column].
template <int m>
std::int64_t scratch_size(std::int64_t tiles) {
  return (m + 2) * (m + 2) * pitch(tiles);
}

// Where the inputs of kLanes tiles side by side lie in a row of the image of w elements, from w0 on: the same
// in all rows, so that what lies outside is found once.
template <int m, DType kType>
class RowWindow {
 public:
  using T = Element<kType>;

  RowWindow(std::int64_t w0, std::int64_t w) : w0_(w0), w_(w) {
    for (int i = 0; i < kParts; ++i) {
      const std::int64_t first = w0 + start(i);
      const auto clip = [](std::int64_t n) {
        return static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, kLanes));
      };
      inside_[i] = hn::AndNot(hn::FirstN(Tag(), clip(-first)), hn::FirstN(Tag(), clip(w - first)));
    }
  }

  // Input j of each tile, a tile a lane.
  HWY_INLINE void split(const T* row, V (&d)[m + 2]) const {
    [[maybe_unused]] const Tag tag;
#if HWY_TARGET == HWY_SCALAR
    for (int j = 0; j < m + 2; ++j) d[j] = load_window<kType>(row, w0_ + j, w_);
#else
    if constexpr (m == 2) {
      const V v0 = part(row, 0), v1 = part(row, 1), next0 = part(row, 2), next1 = part(row, 3);
      d[0] = hn::ConcatEven(tag, v1, v0);
      d[1] = hn::ConcatOdd(tag, v1, v0);
      d[2] = hn::ConcatEven(tag, next1, next0);
      d[3] = hn::ConcatOdd(tag, next1, next0);
    } else {
      const V v0 = part(row, 0), v1 = part(row, 1), v2 = part(row, 2), v3 = part(row, 3);
      const V even0 = hn::ConcatEven(tag, v1, v0), odd0 = hn::ConcatOdd(tag, v1, v0);
      const V even1 = hn::ConcatEven(tag, v3, v2), odd1 = hn::ConcatOdd(tag, v3, v2);
      d[0] = hn::ConcatEven(tag, even1, even0);
      d[1] = hn::ConcatEven(tag, odd1, odd0);
      d[2] = hn::ConcatOdd(tag, even1, even0);
      d[3] = hn::ConcatOdd(tag, odd1, odd0);
      // The last two are the next tile's first two.
      static constexpr auto kNext = [] {
        std::array<std::int32_t, kLanes> lane{};
        for (int i = 0; i < kLanes; ++i) lane[static_cast<std::size_t>(i)] = (i + 1) % kLanes;
        return lane;
      }();
      const auto last = hn::Not(hn::FirstN(tag, kLanes - 1));
      const auto next = hn::SetTableIndices(tag, kNext.data());
      const auto after = [&](std::int64_t at) HWY_ATTR {
        return hn::Set(tag, at >= 0 && at < w_ ? load_element(kType, row, at) : 0.0f);
      };
      d[4] = hn::IfThenElse(last, after(w0_ + 4 * kLanes), hn::TableLookupLanes(d[0], next));
      d[5] = hn::IfThenElse(last, after(w0_ + 4 * kLanes + 1), hn::TableLookupLanes(d[1], next));
    }
#endif
  }

 private:
  static constexpr int kParts = 4;
  // m = 2 reads two vectors twice, 2 elements apart.
  static constexpr std::int64_t start(int i) { return m == 2 ? i % 2 * kLanes + i / 2 * 2 : i * kLanes; }

  HWY_INLINE V part(const T* row, int i) const {
    if constexpr (kType == DType::f32) {
      return load_masked(inside_[i], row + w0_ + start(i));
    } else {
      return load_window<kType>(row, w0_ + start(i), w_);
    }
  }

  std::int64_t w0_, w_;
  hn::Mask<Tag> inside_[kParts];
};

// kLanes tiles' outputs of one row, side by side in memory.
template <int m>
HWY_INLINE void join_row(const V (&d)[m + 2], float* line) {
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

template <int m, DType kType>
void input_nchw(const WinogradShape& s, const WinogradInput& in) {
  using T = Element<kType>;
  constexpr int a = m + 2;
  const std::int64_t tile_pitch = pitch(in.tiles);
  const Stride<float> half_column(tile_pitch), v_row(a * in.position_stride);
  const Stride<const float> half_row(a * tile_pitch);
  const TileIndex first(s, in.first_tile);
  // Segments end before the last vector does: what they leave of it is transformed and multiplied, too.
  for (int i = 0; i < a * a && in.tiles % kLanes != 0; ++i) {
    hn::StoreU(hn::Zero(Tag()), Tag(), in.scratch + i * tile_pitch + in.tiles / kLanes * kLanes);
  }
  for (std::int64_t c = 0; c < in.channels; ++c) {
    const T* channel = static_cast<const T*>(in.x) + (in.first_channel + c) * s.h * s.w;
    TileIndex tile = first;
    int known = 0;  // of the segment's rows, those that the segment above has filled in
    for (std::int64_t t = 0, count; t < in.tiles; t += count, tile.advance(s, count)) {
      count = std::min(in.tiles - t, s.tiles_w - tile.column);
      const T* plane = channel + tile.n * s.x_channels * s.h * s.w;
      const std::int64_t h0 = tile.row * m - s.pad_top, w0 = tile.column * m - s.pad_left;
      // The last two rows of these tiles are the first two of those below.
      const bool below = count == s.tiles_w && tile.row + 1 < s.tiles_h && t + 2 * count <= in.tiles;
      // From the right, for the last vector may reach over the segment's end to where the rows below belong.
      for (std::int64_t v = (count - 1) / kLanes * kLanes; v >= 0; v -= kLanes) {
        const RowWindow<m, kType> window(w0 + v * m, s.w);
        for (int i = known; i < a; ++i) {
          float* to = in.scratch + i * a * tile_pitch + t + v;
          const std::int64_t h = h0 + i;
          V d[a];
          if (h >= 0 && h < s.h) {
            window.split(plane + h * s.w, d);
            transform_b<m>(d);
          } else {
            for (V& zero : d) zero = hn::Zero(Tag());
          }
          for (int j = 0; j < a; ++j) hn::StoreU(d[j], Tag(), half_column.at(to, j));
          if (i >= m && below) {
            to += count - m * a * tile_pitch;
            for (int j = 0; j < a; ++j) hn::StoreU(d[j], Tag(), half_column.at(to, j));
          }
        }
      }
      known = below ? 2 : 0;
    }
    for (std::int64_t t = 0; t < in.tiles; t += kLanes) {
      float* to = in.v + c * in.row_stride + t;
      const float* from = in.scratch + t;
      for (int j = 0; j < a; ++j) {
        V d[a];
        for (int i = 0; i < a; ++i) d[i] = hn::LoadU(Tag(), half_row.at(from, i));
        transform_b<m>(d);
        for (int i = 0; i < a; ++i) hn::StoreU(d[i], Tag(), v_row.at(to, i));
        from = half_row.next(from, tile_pitch);
        to = v_row.next(to, in.position_stride);
      }
    }
  }
}

// Pools the rows x columns finished outputs of a row of tiles, row_pitch apart, and stores them.
template <DType kType>
void store_pooled_rows(const WinogradOutput& o, const float* from, std::int64_t row_pitch, std::int64_t rows,
                       std::int64_t columns, Element<kType>* y, std::int64_t y_w) {
  const V share = hn::Set(Tag(), o.pool == PoolKind::average ? 0.25f : 1.0f);
  for (std::int64_t i = 0; i + 1 < rows; i += 2, from += 2 * row_pitch, y += y_w) {
    for (std::int64_t j = 0; j < columns / 2; j += kLanes) {
      V even, odd, even_below, odd_below;
      hn::LoadInterleaved2(Tag(), from + 2 * j, even, odd);
      hn::LoadInterleaved2(Tag(), from + row_pitch + 2 * j, even_below, odd_below);
      const V value = pool_two(o.pool, pool_two(o.pool, even, odd), pool_two(o.pool, even_below, odd_below));
      store_first<kType>(hn::Mul(value, share), y + j, columns / 2 - j);
    }
  }
}

template <int m, DType kType>
void output_nchw(const WinogradShape& s, const WinogradOutput& o) {
  using T = Element<kType>;
  constexpr int a = m + 2;
  const std::int64_t row_pitch = m * pitch(o.tiles);
  const Stride<const float> from_row(a * o.position_stride);
  const TileIndex first(s, o.first_tile);
  // The last segment's last vectors, of outputs and of windows, may reach beyond the last tiles.
  for (int i = 0; i < m; ++i) {
    float* const beyond = o.scratch + i * row_pitch + (o.tiles + kLanes - 1) / kLanes * kLanes * m;
    for (int v = 0; v < 2; ++v) hn::StoreU(hn::Zero(Tag()), Tag(), beyond + v * kLanes);
  }
  for (std::int64_t c = 0; c < o.channels; ++c) {
    for (std::int64_t t = 0; t < o.tiles; t += kLanes) {
      V row[a];
      output_vector<m>(o.m + c * o.row_stride + t, o.position_stride, from_row,
                       [&](int i, int j, V value) HWY_ATTR {
                         row[j] = value;
                         if (j == m - 1) join_row<m>(row, o.scratch + i * row_pitch + t * m);
                       });
    }
    const std::int64_t channel = o.first_channel + c;
    const V bias = hn::Set(Tag(), o.bias == nullptr ? 0.0f : load_element(kType, o.bias, channel));
    const V slope = a_of_channel(o.activation, o.slopes, channel);
    TileIndex tile = first;
    for (std::int64_t t = 0, count; t < o.tiles; t += count, tile.advance(s, count)) {
      count = std::min(o.tiles - t, s.tiles_w - tile.column);
      const std::int64_t columns = std::min(count * m, s.q - tile.column * m);
      const std::int64_t rows = std::min<std::int64_t>(m, s.p - tile.row * m);
      const std::int64_t plane = (tile.n * s.y_channels + channel) * s.p * s.q;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t at = plane + (tile.row * m + i) * s.q + tile.column * m;
        float* from = o.scratch + i * row_pitch + t * m;
        for (std::int64_t j = 0; j < columns; j += kLanes) {
          V value = hn::Add(hn::LoadU(Tag(), from + j), bias);
          V residual = hn::Zero(Tag());
          if (o.residual != nullptr)
            residual = load_first<kType>(static_cast<const T*>(o.residual) + at + j, columns - j);
          value = finished(o, value, residual, slope);
          if (o.pool != PoolKind::none) {
            store_first<DType::f32>(value, from + j, columns - j);
          } else {
            store_first<kType>(value, static_cast<T*>(o.y) + at + j, columns - j);
          }
        }
      }
      if (o.pool != PoolKind::none) {
        const std::int64_t y_h = s.p / 2, y_w = s.q / 2;
        const std::int64_t at =
            ((tile.n * s.y_channels + channel) * y_h + tile.row * m / 2) * y_w + tile.column * m / 2;
        store_pooled_rows<kType>(o, o.scratch + t * m, row_pitch, rows, columns, static_cast<T*>(o.y) + at,
                                 y_w);
      }
    }
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
