#include "src/algorithms/implicit_gemm_weights.hpp"

#include <algorithm>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kBlockFloats = (320 << 10) / 4;  // of a block of weights: it stays in L2 with what is staged
constexpr i64 kStageFloats = (320 << 10) / 4;  // of each side's staged pixels

// Blocks of at most `most`, all of the same whole number of vectors.
EvenSplit vector_parts(i64 channels, i64 most, int lanes) {
  return EvenSplit(ceil_div(channels, lanes), std::max<i64>(1, most / lanes));
}

}  // namespace

WeightsGradient::WeightsGradient(const Problem& problem, TileShape tile, int threads)
    : p_(problem), tile_(tile) {
  Problem forward = is_transposed(problem) ? convolution_of(problem) : problem;
  forward.direction = Direction::forward;
  t_ = tap_convolutions(forward)[0];
  lanes_ = brgemm_lanes();
  const i64 taps = static_cast<i64>(t_.taps.size());
  const i64 k_vectors = ceil_div(t_.out_channels, lanes_);
  tile_.vectors = static_cast<int>(std::min<i64>(tile_.vectors, k_vectors));
  tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));

  // Channels that make each staged element worth its staging, within the block's size.
  i64 c_most = std::min<i64>(t_.in_channels, 8 * tile_.rows), k_most = std::min(k_vectors * lanes_, i64{128});
  k_most = std::max<i64>(k_most / (tile_.vectors * lanes_), 1) * tile_.vectors * lanes_;
  while (taps * c_most * k_most > kBlockFloats && c_most > tile_.rows) c_most = ceil_div(c_most, 2);
  while (taps * c_most * k_most > kBlockFloats && k_most > lanes_)
    k_most = ceil_div(k_most / lanes_, 2) * lanes_;
  const i64 row_floats = t_.extent_h() * (t_.extent_w() + 15 * t_.step_w);
  while (c_most > 1 && c_most * row_floats > kStageFloats) c_most = ceil_div(c_most, 2);
  c_parts_ = EvenSplit(t_.in_channels, c_most);
  k_parts_ = vector_parts(t_.out_channels, k_most, lanes_);
  k_stride_ = k_parts_.largest() * lanes_;
  tap_parts_ = EvenSplit(taps, std::max<i64>(1, kBlockFloats / (c_parts_.largest() * k_stride_)));

  const auto stage_floats = [&](i64 rows, i64 columns) {
    return c_parts_.largest() * ((rows - 1) * t_.step_h + t_.extent_h()) *
           ((columns - 1) * t_.step_w + t_.extent_w());
  };
  i64 columns = t_.columns;
  while (columns > 16 && (stage_floats(1, columns) > kStageFloats || columns * k_stride_ > kStageFloats)) {
    columns = ceil_div(columns, 2);
  }
  i64 rows = columns < t_.columns ? 1 : t_.rows;
  while (rows > 1 &&
         (stage_floats(rows, columns) > kStageFloats || rows * columns * k_stride_ > kStageFloats)) {
    rows = ceil_div(rows, 2);
  }
  columns_ = EvenSplit(t_.columns, columns), rows_ = EvenSplit(t_.rows, rows);
  pixel_parts_ = EvenSplit::in_parts(units(), blocks() < 4 * threads ? ceil_div(4 * threads, blocks()) : 1);
}

std::int64_t WeightsGradient::block_floats() const {
  return tap_parts_.largest() * c_parts_.largest() * k_stride_;
}
std::int64_t WeightsGradient::x_floats() const {
  return c_parts_.largest() * ((rows_.largest() - 1) * t_.step_h + t_.extent_h()) *
         ((columns_.largest() - 1) * t_.step_w + t_.extent_w());
}
std::int64_t WeightsGradient::dy_floats() const { return rows_.largest() * columns_.largest() * k_stride_; }

std::size_t WeightsGradient::partial_bytes() const {
  return has_partial_sums() ? ScratchPieces::bytes<float>(items() * block_floats()) : 0;
}

std::size_t WeightsGradient::scratch_bytes() const {
  return ScratchPieces::bytes<float>(block_floats()) + ScratchPieces::bytes<float>(x_floats()) +
         ScratchPieces::bytes<float>(dy_floats()) + ScratchPieces::bytes<BrgemmSegment>(rows_.largest());
}

double WeightsGradient::cycles() const {
  const EvenSplit tiles(c_parts_.largest(), tile_.rows);
  const double panels = static_cast<double>(ceil_div(k_parts_.largest(), tile_.vectors));
  const double step = tile_step_cycles(static_cast<int>(tiles.largest()), tile_.vectors, false);
  const double pixels = static_cast<double>(t_.images() * t_.rows * t_.columns);
  const double products =
      static_cast<double>(t_.taps.size()) * static_cast<double>(tiles.parts()) * panels * step;
  const double staging = 0.3 * static_cast<double>(c_parts_.largest() * t_.step_h * t_.step_w + k_stride_);
  return pixels * (products + staging) * static_cast<double>(t_.groups * c_parts_.parts() * k_parts_.parts());
}

WeightsGradient::Block WeightsGradient::block(i64 index) const {
  Block b;
  const i64 k_part = index % k_parts_.parts();
  index /= k_parts_.parts();
  const i64 c_part = index % c_parts_.parts();
  index /= c_parts_.parts();
  const i64 tap_part = index % tap_parts_.parts();
  b.group = index / tap_parts_.parts();
  b.tap0 = tap_parts_.begin(tap_part), b.taps = tap_parts_.size(tap_part);
  b.c0 = c_parts_.begin(c_part), b.c = c_parts_.size(c_part);
  b.k0 = k_parts_.begin(k_part) * lanes_;
  b.k = std::min(k_parts_.begin(k_part + 1) * lanes_, t_.out_channels) - b.k0;
  return b;
}

WeightsGradient::Pixels WeightsGradient::pixels(i64 unit) const {
  const i64 column_part = unit % columns_.parts(), row_part = unit / columns_.parts() % rows_.parts();
  return {unit / columns_.parts() / rows_.parts(), rows_.begin(row_part), rows_.size(row_part),
          columns_.begin(column_part), columns_.size(column_part)};
}

void WeightsGradient::add_pixels(const Block& b, const Pixels& px, const void* x, const void* dy, bool first,
                                 const Staged& staged, float* sums) const {
  stage_gradient(b, px, dy, staged);
  // The taps of one plane of x after the other's: they share what is staged.
  for (i64 tap = 0; tap < b.taps;) {
    const i64 depth = t_.taps[static_cast<std::size_t>(b.tap0 + tap)].d;
    i64 end = tap + 1;
    while (end < b.taps && t_.taps[static_cast<std::size_t>(b.tap0 + end)].d == depth) ++end;
    const i64 plane = px.image % t_.depths * t_.step_d + depth;
    if (plane >= 0 && plane < t_.in.d) {
      add_plane(b, px, {tap, end, plane}, x, first, staged, sums);
    } else if (first) {
      std::fill(sums + tap * b.c * k_stride_, sums + end * b.c * k_stride_, 0.0f);
    }
    tap = end;
  }
}

void WeightsGradient::stage_gradient(const Block& b, const Pixels& px, const void* dy,
                                     const Staged& staged) const {
  const auto dy_at = [&](i64 i) {
    return static_cast<const std::byte*>(dy) +
           t_.out_offset(px.image, b.group * t_.out_channels + b.k0, px.row0 + i, px.column0) *
               size_of(p_.dtype);
  };
  if (p_.layout == Layout::nhwc) {
    StageCall whole;
    whole.dtype = p_.dtype;
    whole.from = dy_at(0), whole.from_row_stride = t_.out.stride_h;
    whole.height = whole.rows = px.rows, whole.width = whole.columns = px.columns;
    whole.channels = b.k, whole.to = staged.dy;
    stage_pixels(whole, t_.out.stride_w, px.columns * k_stride_, k_stride_);
    return;
  }
  for (i64 i = 0; i < px.rows; ++i) {
    transpose_to_float(p_.dtype, dy_at(i), t_.out.stride_c, b.k, px.columns,
                       staged.dy + i * px.columns * k_stride_, k_stride_);
  }
}

void WeightsGradient::add_plane(const Block& b, const Pixels& px, const PlaneTaps& taps, const void* x,
                                bool first, const Staged& staged, float* sums) const {
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from = static_cast<const std::byte*>(x) +
               t_.in_offset(px.image, taps.plane, b.group * t_.in_channels + b.c0, 0, 0) * size_of(p_.dtype);
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = px.row0 * t_.step_h + t_.min_h(), patch.rows = (px.rows - 1) * t_.step_h + t_.extent_h();
  patch.column0 = px.column0 * t_.step_w + t_.min_w();
  patch.columns = (px.columns - 1) * t_.step_w + t_.extent_w();
  patch.channels = b.c;
  patch.to = staged.x;

  // Distances between channels, pixels and rows of the staged x.
  const bool nhwc = p_.layout == Layout::nhwc;
  const i64 channel = nhwc ? 1 : patch.rows * patch.columns, pixel = nhwc ? b.c : 1;
  const i64 row = patch.columns * pixel;
  if (nhwc) {
    stage_pixels(patch, t_.in.stride_w, row, pixel);
  } else {
    stage_planes(patch, t_.in.stride_c, {1, 1, 1, 1, channel, 0, row});
  }

  for (i64 i = 0; i < px.rows; ++i) {
    new (&staged.segments[i]) BrgemmSegment{i * t_.step_h * row, i * px.columns * k_stride_};
  }
  const EvenSplit tiles(b.c, tile_.rows);
  const i64 panel_width = tile_.vectors * lanes_;
  BrgemmCall call;
  call.a_row_stride = channel, call.a_step = pixel * t_.step_w;
  call.b_step = k_stride_;
  call.segments = staged.segments, call.segment_count = px.rows, call.length = px.columns;
  call.c_row_stride = k_stride_;
  for (i64 tap = taps.first; tap < taps.end; ++tap) {
    const Tap& at = t_.taps[static_cast<std::size_t>(b.tap0 + tap)];
    const float* a = staged.x + (at.h - t_.min_h()) * row + (at.w - t_.min_w()) * pixel;
    for (i64 tile = 0; tile < tiles.parts(); ++tile) {
      const int m = static_cast<int>(tiles.size(tile));
      call.a0 = a + tiles.begin(tile) * channel, call.a1 = a + (tiles.begin(tile) + 7) * channel;
      for (i64 k = 0; k < b.k; k += panel_width) {
        const i64 columns = std::min(panel_width, b.k - k);
        call.b = staged.dy + k;
        call.columns = static_cast<int>(columns);
        call.c0 = sums + (tap * b.c + tiles.begin(tile)) * k_stride_ + k, call.c1 = call.c0 + 7 * k_stride_;
        if (!first) call.addend0 = call.c0, call.addend1 = call.c1;
        brgemm_kernel(nhwc ? BrgemmRows::contiguous : BrgemmRows::strided, m,
                      static_cast<int>(ceil_div(columns, lanes_)))(call);
      }
    }
  }
}

void WeightsGradient::write(const Block& b, const float* sums, void* dw) const {
  for (i64 tap = 0; tap < b.taps; ++tap) {
    const FilterView view = filter_view(p_, t_.taps[static_cast<std::size_t>(b.tap0 + tap)], b.group);
    const i64 base = view.base + b.c0 * view.c_stride + b.k0 * view.k_stride;
    const float* from = sums + tap * b.c * k_stride_;
    if (p_.dtype == DType::f32 && view.c_stride == 1) {
      transpose_to_float(DType::f32, from, k_stride_, b.c, b.k, static_cast<float*>(dw) + base,
                         view.k_stride);
      continue;
    }
    for (i64 k = 0; k < b.k; ++k) {
      for (i64 c = 0; c < b.c; ++c) {
        store_element(p_.dtype, dw, base + k * view.k_stride + c * view.c_stride, from[c * k_stride_ + k]);
      }
    }
  }
}

void WeightsGradient::run(i64 item, const void* x, const void* dy, void* dw, std::byte* scratch,
                          float* partial) const {
  const Block b = block(item / pixel_parts_.parts());
  const i64 part = item % pixel_parts_.parts();
  ScratchPieces pieces(scratch);
  float* const own_sums = pieces.take<float>(block_floats());
  const Staged staged{pieces.take<float>(x_floats()), pieces.take<float>(dy_floats()),
                      pieces.take<BrgemmSegment>(rows_.largest())};
  float* const sums = has_partial_sums() ? partial + item * block_floats() : own_sums;
  // Lanes beyond the block's channels are multiplied, too, and what stages dy leaves them as they are.
  if (b.k % lanes_ != 0) std::fill_n(staged.dy, dy_floats(), 0.0f);
  for (i64 unit = pixel_parts_.begin(part); unit < pixel_parts_.begin(part + 1); ++unit) {
    add_pixels(b, pixels(unit), x, dy, unit == pixel_parts_.begin(part), staged, sums);
  }
  if (!has_partial_sums()) write(b, sums, dw);
}

void WeightsGradient::reduce(i64 index, void* dw, std::byte* scratch, const float* partial) const {
  float* const sums = reinterpret_cast<float*>(scratch);
  const Block b = block(index);
  const float* from = partial + index * pixel_parts_.parts() * block_floats();
  const i64 count = b.taps * b.c * k_stride_;
  for (i64 part = 0; part < pixel_parts_.parts(); ++part) {
    for (i64 row = 0; row < count; row += k_stride_) {  // nothing is beyond its b.k floats
      for (i64 i = row; i < row + b.k; ++i) sums[i] = part == 0 ? from[i] : sums[i] + from[i];
    }
    from += block_floats();
  }
  write(b, sums, dw);
}

}  // namespace faltung
