#include "kernels/cpu/stage.hpp"

#include <cstring>

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/affine-inl.hpp"
#include "kernels/cpu/vec-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

template <DType kType>
HWY_INLINE const char* at(const void* data, i64 i) {
  return static_cast<const char*>(data) + i * size_of(kType);
}

HWY_INLINE void zero(float* to, i64 count) {
  const FloatTag d;
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) hn::StoreU(hn::Zero(d), d, to + i);
  if (i < count) store_part<DType::f32>(hn::Zero(d), to + i, static_cast<int>(count - i));
}

template <DType kType>
HWY_INLINE void copy(const void* from, float* to, i64 count) {
  const FloatTag d;
  i64 i = 0;
  for (; i + 4 * kFloatLanes <= count; i += 4 * kFloatLanes) {
    const FloatVec v0 = load_vec<kType>(at<kType>(from, i));
    const FloatVec v1 = load_vec<kType>(at<kType>(from, i + kFloatLanes));
    const FloatVec v2 = load_vec<kType>(at<kType>(from, i + 2 * kFloatLanes));
    const FloatVec v3 = load_vec<kType>(at<kType>(from, i + 3 * kFloatLanes));
    hn::StoreU(v0, d, to + i), hn::StoreU(v1, d, to + i + kFloatLanes);
    hn::StoreU(v2, d, to + i + 2 * kFloatLanes), hn::StoreU(v3, d, to + i + 3 * kFloatLanes);
  }
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    hn::StoreU(load_vec<kType>(at<kType>(from, i)), d, to + i);
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_part<DType::f32>(load_part<kType>(at<kType>(from, i), rest), to + i, rest);
  }
}

// Every second element; those between the last two gathered are read, none after the last.
template <DType kType>
HWY_INLINE void gather(const void* from, i64 step, float* to, i64 count) {
  i64 i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (step == 2) {
    const FloatTag d;
    for (; i + kFloatLanes < count; i += kFloatLanes) {
      const FloatVec low = load_vec<kType>(at<kType>(from, 2 * i));
      const FloatVec high = load_vec<kType>(at<kType>(from, 2 * i + kFloatLanes));
      hn::StoreU(hn::ConcatEven(d, high, low), d, to + i);
    }
  }
#endif
  for (; i < count; ++i) to[i] = load_element(kType, from, i * step);
}

template <DType kType>
void pixels(const StageCall& call, i64 from_pixel, i64 to_row, i64 to_pixel) {
  const i64 left = HWY_MIN(HWY_MAX(-call.column0, i64{0}), call.columns);
  const i64 right = HWY_MAX(HWY_MIN(call.columns, call.width - call.column0), left);  // end of what is inside
  for (i64 i = 0; i < call.rows; ++i) {
    float* const to = call.to + i * to_row;
    const i64 row = call.row0 + i;
    const bool inside = row >= 0 && row < call.height;
    const i64 begin = inside ? left : 0, end = inside ? right : 0;
    const char* const from = at<kType>(call.from, row * call.from_row_stride + call.column0 * from_pixel);
    if (to_pixel == call.channels) {
      zero(to, begin * to_pixel);
      if (from_pixel == call.channels) {
        copy<kType>(from + begin * from_pixel * size_of(kType), to + begin * to_pixel,
                    (end - begin) * to_pixel);
      } else {
        for (i64 j = begin; j < end; ++j)
          copy<kType>(at<kType>(from, j * from_pixel), to + j * to_pixel, call.channels);
      }
      zero(to + end * to_pixel, (call.columns - end) * to_pixel);
    } else {
      for (i64 j = 0; j < begin; ++j) zero(to + j * to_pixel, call.channels);
      for (i64 j = begin; j < end; ++j)
        copy<kType>(at<kType>(from, j * from_pixel), to + j * to_pixel, call.channels);
      for (i64 j = end; j < call.columns; ++j) zero(to + j * to_pixel, call.channels);
    }
    // In the first-level cache still.
    for (i64 j = begin; call.affine && j < end; ++j)
      affine_run<kType, DType::f32, false>(to + j * to_pixel, call.affine, to + j * to_pixel, call.channels);
  }
}

// Elements column0 + phase + j * step of one row of an image, j in [0, count).
template <DType kType>
HWY_INLINE void stage_row(const void* row, i64 width, i64 column0, i64 step, i64 count, float* to,
                          const InputAffine& affine) {
  // j is inside for 0 <= column0 + j * step < width.
  const i64 begin = HWY_MIN(column0 >= 0 ? 0 : (-column0 + step - 1) / step, count);
  const i64 end = HWY_MAX(HWY_MIN(count, column0 >= width ? 0 : (width - column0 + step - 1) / step), begin);
  zero(to, begin);
  const char* const from = at<kType>(row, column0 + begin * step);
  if (step == 1) {
    copy<kType>(from, to + begin, end - begin);
  } else {
    gather<kType>(from, step, to + begin, end - begin);
  }
  if (affine) affine_run<kType, DType::f32, true>(to + begin, affine, to + begin, end - begin);
  zero(to + end, count - end);
}

// So many channels after the one that is copied are fetched meanwhile, whose patch is of so many bytes: by
// itself a processor looks no further than its instructions in flight, which copy some rows.
HWY_INLINE i64 channels_ahead(i64 patch_bytes) {
  constexpr i64 kAhead = 2048, kMost = 8;
  return HWY_MIN(kMost, kAhead / HWY_MAX(patch_bytes, i64{1}) + 1);
}

HWY_INLINE void fetch(const char* from, i64 bytes) {
  constexpr i64 kLine = 64;
  for (i64 i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, 3);
}

template <DType kType>
void planes(const StageCall& call, i64 from_channel, const PhaseStrides& to) {
  const i64 left = HWY_MAX(call.column0, i64{0});
  const i64 row_bytes = (HWY_MIN(call.column0 + call.columns, call.width) - left) * size_of(kType);
  const i64 ahead = channels_ahead(call.rows * row_bytes);
  // A phase may hold a row less than the first, or a column: they are written, too.
  const i64 rows = (call.rows + to.step_h - 1) / to.step_h * to.step_h;
  for (i64 c = 0; c < call.channels; ++c) {
    const InputAffine affine = call.affine.from(c);
    for (i64 i = 0; i < rows; ++i) {
      if (i % to.step_h >= to.phases_h) continue;
      const i64 row = call.row0 + i;
      const char* const from = at<kType>(call.from, c * from_channel + row * call.from_row_stride);
      if (c + ahead < call.channels && row >= 0 && row < call.height)
        fetch(at<kType>(from, ahead * from_channel + left), row_bytes);
      float* const to_row =
          call.to + c * to.channel + i % to.step_h * to.phases_w * to.phase + i / to.step_h * to.row;
      for (i64 phase = 0; phase < to.phases_w; ++phase) {
        float* const out = to_row + phase * to.phase;
        if (i >= call.rows || row < 0 || row >= call.height) {
          zero(out, to.row);
        } else {
          stage_row<kType>(from, call.width, call.column0 + phase, to.step_w, to.row, out, affine);
        }
      }
    }
  }
}

}  // namespace

void Tiles(const TileStageCall& call, i64 width, i64 tile_floats) {
  const FloatTag d;
  // A few tiles at once: neighbouring lines of the input are read together.
  constexpr i64 kTogether = 8;
  const i64 tiles = (call.columns + width - 1) / width;
  for (i64 tile0 = 0; tile0 < tiles; tile0 += kTogether) {
    const i64 tile1 = HWY_MIN(tiles, tile0 + kTogether);
    for (i64 c = 0; c < call.channels; ++c) {
      const float* const from = call.from + c * call.from_channel;
      float* to = call.to + tile0 * tile_floats + c * width;
      for (i64 tile = tile0; tile < tile1; ++tile, to += tile_floats) {
        const i64 count = HWY_MIN(width, call.columns - tile * width);
        if (count == width) {
          for (i64 i = 0; i < width; i += kFloatLanes)
            hn::StoreU(hn::LoadU(d, from + tile * width + i), d, to + i);
        } else {
          copy<DType::f32>(from + tile * width, to, count);
          zero(to + count, width - count);
        }
      }
    }
  }
}

void Pixels(const StageCall& call, i64 from_pixel, i64 to_row, i64 to_pixel) {
  with_dtype(call.dtype, [&](auto type) { pixels<type>(call, from_pixel, to_row, to_pixel); });
}

void Planes(const StageCall& call, i64 from_channel, const PhaseStrides& to) {
  with_dtype(call.dtype, [&](auto type) { planes<type>(call, from_channel, to); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(Pixels);
HWY_EXPORT(Planes);
HWY_EXPORT(Tiles);

void stage_pixels(const StageCall& call, std::int64_t from_pixel, std::int64_t to_row,
                  std::int64_t to_pixel) {
  HWY_DYNAMIC_DISPATCH(Pixels)(call, from_pixel, to_row, to_pixel);
}
void stage_planes(const StageCall& call, std::int64_t from_channel, const PhaseStrides& to) {
  HWY_DYNAMIC_DISPATCH(Planes)(call, from_channel, to);
}
void stage_tiles(const TileStageCall& call, std::int64_t width, std::int64_t tile_floats) {
  HWY_DYNAMIC_DISPATCH(Tiles)(call, width, tile_floats);
}

}  // namespace faltung
#endif  // HWY_ONCE
