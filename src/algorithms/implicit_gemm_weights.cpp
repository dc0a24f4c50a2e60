#include "src/algorithms/implicit_gemm_weights.hpp"

#include <algorithm>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/training.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kFilterLine = 16;  // floats of a cache line

// Floats of a block of weights, and of each side's staged pixels: they stay in the second-level cache
// together.
i64 most_block_floats() { return cpu_caches().level2 / 4 / 4; }
i64 most_stage_floats() { return cpu_caches().level2 / 3 / 4; }

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
  const i64 panel = tile_.vectors * lanes_;
  i64 c_most = std::min<i64>(t_.in_channels, 256);
  i64 k_most = std::max<i64>(std::min(k_vectors * lanes_, i64{128}) / panel, 1) * panel;
  while (taps * c_most * k_most > most_block_floats() && c_most > 4 * tile_.rows)
    c_most = round_up(ceil_div(c_most, 2), tile_.rows);
  while (taps * c_most * k_most > most_block_floats() && k_most > panel)
    k_most = round_up(ceil_div(k_most, 2), panel);
  const i64 row_floats = t_.extent_h() * (t_.extent_w() + 15 * step_w());
  while (c_most > 1 && c_most * row_floats > most_stage_floats()) c_most = ceil_div(c_most, 2);
  // Whole cache lines of a filter in nhwc.
  c_unit_ = c_most >= kFilterLine ? kFilterLine : 1;
  c_parts_ = EvenSplit(ceil_div(t_.in_channels, c_unit_), c_most / c_unit_);
  k_parts_ = vector_parts(t_.out_channels, k_most, lanes_);
  k_stride_ = k_parts_.largest() * lanes_;
  c_stride_ = channels() % 64 == 0 ? channels() + 16 : channels();
  tap_parts_ = EvenSplit(taps, std::max<i64>(1, most_block_floats() / (channels() * k_stride_)));
  if (joins_taps()) joined_ = t_.extent_w();

  // So many pixels that a panel of dy and a tile's channels of x stay in the first-level cache.
  const i64 most_pixels = std::max<i64>(16, cpu_caches().level1 / 2 / (panel * 4) * 3 / 4);
  i64 columns = t_.columns;
  while (columns > 16 && (stage_floats(1, columns) > most_stage_floats() || columns > most_pixels)) {
    columns = ceil_div(columns, 2);
  }
  i64 rows = columns < t_.columns ? 1 : std::clamp<i64>(most_pixels / columns, 1, t_.rows);
  while (rows > 1 && stage_floats(rows, columns) > most_stage_floats()) --rows;
  columns_ = EvenSplit(t_.columns, columns), rows_ = EvenSplit(t_.rows, rows);
  const i64 wanted = i64{4} * threads;
  pixel_parts_ = EvenSplit::in_parts(units(), blocks() < wanted ? ceil_div(wanted, blocks()) : 1);
}

// Whole rows of planes as they lie there, unless these begin at the same place of the cache.
bool WeightsGradient::reads_in_place() const {
  return p_.layout == Layout::nchw && p_.dtype == DType::f32 && !has_affine(p_) && lone() && t_.step_h == 1 &&
         t_.step_w == 1 && t_.min_w() == 0 && columns_.parts() == 1 && t_.columns == t_.in.w &&
         t_.in.stride_c * 4 % 4096 != 0;
}

// In nhwc the channels that neighbouring taps of a filter's row read lie side by side, in x as in the sums.
bool WeightsGradient::joins_taps() const {
  if (p_.layout == Layout::nchw || channels() >= tile_.rows) return false;
  if (c_parts_.parts() > 1 || tap_parts_.parts() > 1 || lone()) return false;
  return t_.extent_w() == p_.s;  // without dilation
}

i64 WeightsGradient::channel_floats(i64 pixels) { return (ceil_div(pixels, 16) | 1) * 16; }

i64 WeightsGradient::stage_floats(i64 rows, i64 columns) const {
  const i64 pixels = x_rows(rows) * x_columns(columns);
  return p_.layout == Layout::nhwc ? pixels * c_stride_ : channels() * channel_floats(pixels);
}

std::int64_t WeightsGradient::block_floats() const { return tap_parts_.largest() * channels() * k_stride_; }
std::int64_t WeightsGradient::x_floats() const { return stage_floats(rows_.largest(), columns_.largest()); }
std::int64_t WeightsGradient::dy_floats() const { return rows_.largest() * columns_.largest() * k_stride_; }

std::size_t WeightsGradient::partial_bytes() const {
  return has_partial_sums() ? ScratchPieces::bytes<float>(items() * block_floats()) : 0;
}

std::size_t WeightsGradient::scratch_bytes() const {
  return ScratchPieces::bytes<float>(block_floats()) + ScratchPieces::bytes<float>(x_floats()) +
         ScratchPieces::bytes<float>(dy_floats()) + ScratchPieces::bytes<BrgemmSegment>(rows_.largest());
}

double WeightsGradient::work_ns() const {
  const EvenSplit tiles(joined_ * channels(), tile_.rows);
  const double panels = static_cast<double>(ceil_div(k_parts_.largest(), tile_.vectors));
  const TileTime time = tile_time(p_.layout == Layout::nhwc ? TileReads::contiguous : TileReads::strided,
                                  static_cast<int>(tiles.largest()), tile_.vectors);
  // A unit's pixels are summed at once; the sums are read and written again for each, from beyond the
  // first-level cache.
  const double pixels = static_cast<double>(rows_.largest() * columns_.largest());
  const double sums = 8 * near_byte_ns() * static_cast<double>(tiles.largest() * tile_.vectors * lanes_);
  const i64 rows = static_cast<i64>(t_.taps.size()) / joined_;
  const double products = static_cast<double>(rows * tiles.parts()) * panels * (time.of(pixels) + sums);
  const double staging =
      kStagedFloatNs * static_cast<double>((reads_in_place() ? 0 : x_floats()) + dy_floats());
  return (products + staging) *
         static_cast<double>(units() * t_.groups * c_parts_.parts() * k_parts_.parts());
}

WeightsGradient::Block WeightsGradient::block(i64 index) const {
  Block b;
  const i64 c_part = index % c_parts_.parts();
  index /= c_parts_.parts();
  const i64 k_part = index % k_parts_.parts();
  index /= k_parts_.parts();
  const i64 tap_part = index % tap_parts_.parts();
  b.group = index / tap_parts_.parts();
  b.tap0 = tap_parts_.begin(tap_part), b.taps = tap_parts_.size(tap_part);
  b.c0 = c_parts_.begin(c_part) * c_unit_;
  b.c = std::min(c_parts_.begin(c_part + 1) * c_unit_, t_.in_channels) - b.c0;
  b.k0 = k_parts_.begin(k_part) * lanes_;
  b.k = std::min(k_parts_.begin(k_part + 1) * lanes_, t_.out_channels) - b.k0;
  return b;
}

WeightsGradient::Pixels WeightsGradient::pixels(i64 unit) const {
  const i64 column_part = unit % columns_.parts(), row_part = unit / columns_.parts() % rows_.parts();
  return {unit / columns_.parts() / rows_.parts(), rows_.begin(row_part), rows_.size(row_part),
          columns_.begin(column_part), columns_.size(column_part)};
}

// Where whole rows are staged, each pixel's channels. Planes are fetched by what copies and transposes them.
WeightsGradient::Ahead WeightsGradient::ahead(const Block& b, const Pixels& next, const void* x,
                                              const void* dy) const {
  if (p_.layout == Layout::nchw || columns_.parts() > 1 || t_.depths > 1 || t_.in.d > 1) return {};
  const i64 bytes = size_of(p_.dtype), panels = ceil_div(b.k, tile_.vectors * lanes_);
  const i64 calls = panels * (b.taps / joined_) * ceil_div(joined_ * b.c, tile_.rows);
  const i64 row0 = std::clamp<i64>(next.row0 * t_.step_h + t_.min_h(), 0, t_.in.h);
  const i64 row1 = std::clamp<i64>(row0 + x_rows(next.rows) * (lone() ? t_.step_h : 1), row0, t_.in.h);
  const std::byte* const from =
      static_cast<const std::byte*>(x) +
      t_.in_offset(next.image, 0, b.group * t_.in_channels + b.c0, row0, lone() ? t_.min_w() : 0) * bytes;
  const std::byte* const gradient =
      static_cast<const std::byte*>(dy) +
      t_.out_offset(next.image, b.group * t_.out_channels + b.k0, next.row0, 0) * bytes;
  MemoryRuns read{from, (row1 - row0) * t_.in.w, b.c * bytes, t_.in.stride_w * bytes};
  if (lone() && (t_.step_h > 1 || t_.step_w > 1)) {  // those pixels alone that are read
    read.count = t_.columns, read.stride *= t_.step_w;
    read.rows = next.rows, read.row_stride = t_.in.stride_h * t_.step_h * bytes;
  }
  const MemoryRuns written{gradient, next.rows * t_.columns, b.k * bytes, t_.out.stride_w * bytes};
  return {Prefetch(read, calls), Prefetch(written, calls)};
}

void WeightsGradient::add_pixels(const Block& b, const Pixels& px, const Input& x, const void* dy, bool first,
                                 const Staged& staged, Ahead& ahead, float* sums) const {
  stage_gradient(b, px, dy, staged);
  // The taps of one plane of x after the other's: they share what is staged.
  for (i64 tap = 0; tap < b.taps;) {
    const i64 depth = t_.taps[static_cast<std::size_t>(b.tap0 + tap)].d;
    i64 end = tap + 1;
    while (end < b.taps && t_.taps[static_cast<std::size_t>(b.tap0 + end)].d == depth) ++end;
    const i64 plane = px.image % t_.depths * t_.step_d + depth;
    if (plane >= 0 && plane < t_.in.d) {
      add_plane(b, px, {tap, end, plane}, x, first, staged, ahead, sums);
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
  // A panel after the other: [panel][pixel][its channels].
  const i64 panel = tile_.vectors * lanes_, pixels = px.rows * px.columns;
  for (i64 k = 0; k < b.k; k += panel) {
    const i64 width = std::min(panel, round_up(b.k - k, lanes_)), channels = std::min(width, b.k - k);
    float* const to = staged.dy + k * pixels;
    if (p_.layout == Layout::nhwc) {
      StageCall whole;
      whole.dtype = p_.dtype;
      whole.from = dy_at(0) + k * size_of(p_.dtype), whole.from_row_stride = t_.out.stride_h;
      whole.height = whole.rows = px.rows, whole.width = whole.columns = px.columns;
      whole.channels = channels, whole.to = to;
      stage_pixels(whole, t_.out.stride_w, px.columns * width, width);
      continue;
    }
    for (i64 i = 0; i < px.rows; ++i) {
      transpose_to_float(p_.dtype, dy_at(i) + k * t_.out.stride_c * size_of(p_.dtype), t_.out.stride_c,
                         channels, px.columns, to + i * px.columns * width, width);
    }
  }
}

WeightsGradient::Strides WeightsGradient::stage_input(const Block& b, const Pixels& px, i64 plane,
                                                      const Input& x, float* to) const {
  const bool nhwc = p_.layout == Layout::nhwc;
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from = static_cast<const std::byte*>(x.data) +
               t_.in_offset(px.image, plane, b.group * t_.in_channels + b.c0, 0, 0) * size_of(p_.dtype);
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = px.row0 * t_.step_h + t_.min_h(), patch.rows = x_rows(px.rows);
  patch.column0 = px.column0 * t_.step_w + t_.min_w(), patch.columns = x_columns(px.columns);
  patch.channels = b.c, patch.affine = x.affine.from(b.group * t_.in_channels + b.c0);
  patch.to = to;
  i64 from_pixel = t_.in.stride_w;
  if (lone() && nhwc) {  // of an image that has every step-th row and column alone
    patch.from = static_cast<const std::byte*>(patch.from) +
                 (patch.row0 * t_.in.stride_h + patch.column0 * t_.in.stride_w) * size_of(p_.dtype);
    patch.from_row_stride *= t_.step_h, from_pixel *= t_.step_w;
    patch.row0 = patch.column0 = 0, patch.height = patch.rows, patch.width = patch.columns;
  }
  if (nhwc) {
    const Strides strides{1, c_stride_, patch.columns * c_stride_};
    stage_pixels(patch, from_pixel, strides.row, strides.pixel);
    return strides;
  }
  const Strides strides{channel_floats(patch.rows * patch.columns), 1, patch.columns};
  PhaseStrides phases{1, 1, 1, 1, strides.channel, 0, strides.row};
  if (lone()) {
    phases.step_h = t_.step_h, phases.step_w = t_.step_w;
    patch.rows = (px.rows - 1) * t_.step_h + 1, patch.columns = (px.columns - 1) * t_.step_w + 1;
  }
  stage_planes(patch, t_.in.stride_c, phases);
  return strides;
}

void WeightsGradient::add_plane(const Block& b, const Pixels& px, const PlaneTaps& taps, const Input& x,
                                bool first, const Staged& staged, Ahead& ahead, float* sums) const {
  const Strides at =
      reads_in_place() ? Strides{t_.in.stride_c, 1, px.columns} : stage_input(b, px, taps.plane, x, staged.x);
  const float* const from =
      reads_in_place()
          ? static_cast<const float*>(x.data) +
                t_.in_offset(px.image, taps.plane, b.group * t_.in_channels + b.c0, px.row0 + t_.min_h(), 0)
          : staged.x;
  const EvenSplit tiles(joined_ * b.c, tile_.rows);
  const i64 panel = tile_.vectors * lanes_, pixels = px.rows * px.columns;
  // Rows that follow each other on both sides are one.
  const bool one = lone() && at.row == px.columns * at.pixel;
  BrgemmCall call;
  call.a_row_stride = at.channel, call.a_step = at.pixel * step_w();
  call.segments = staged.segments, call.segment_count = one ? 1 : px.rows;
  call.length = one ? pixels : px.columns;
  call.c_row_stride = k_stride_;
  // A panel of dy stays in the first-level cache while tiles of x pass.
  for (i64 k = 0; k < b.k; k += panel) {
    const i64 columns = std::min(panel, b.k - k), width = std::min(panel, round_up(columns, lanes_));
    call.b = staged.dy + k * pixels, call.b_step = width;
    call.columns = static_cast<int>(columns);
    for (i64 i = 0; i < px.rows; ++i)
      new (&staged.segments[i]) BrgemmSegment{i * step_h() * at.row, i * px.columns * width};
    for (i64 tap = taps.first; tap < taps.end; tap += joined_) {
      const Tap& t = t_.taps[static_cast<std::size_t>(b.tap0 + tap)];
      const float* a = from + (t.h - t_.min_h()) * at.row + (t.w - t_.min_w()) * at.pixel;
      for (i64 tile = 0; tile < tiles.parts(); ++tile) {
        const int m = static_cast<int>(tiles.size(tile));
        call.a0 = a + tiles.begin(tile) * at.channel, call.a1 = a + (tiles.begin(tile) + 7) * at.channel;
        call.c0 = sums + (tap * b.c + tiles.begin(tile)) * k_stride_ + k, call.c1 = call.c0 + 7 * k_stride_;
        if (!first) call.addend0 = call.c0, call.addend1 = call.c1;
        call.near = ahead.x.next(pixels), call.far = ahead.dy.next(pixels);
        brgemm_kernel(p_.layout == Layout::nhwc ? BrgemmRows::contiguous : BrgemmRows::strided, m,
                      static_cast<int>(width / lanes_))(call);
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
      float* const to = static_cast<float*>(dw) + base;
      if (w_shape(p_).elements() * size_of(p_.dtype) > cpu_caches().level2) {
        transpose_past_caches(from, k_stride_, b.c, b.k, to, view.k_stride);
      } else {
        transpose_to_float(DType::f32, from, k_stride_, b.c, b.k, to, view.k_stride);
      }
      continue;
    }
    for (i64 k = 0; k < b.k; ++k) {
      for (i64 c = 0; c < b.c; ++c) {
        store_element(p_.dtype, dw, base + k * view.k_stride + c * view.c_stride, from[c * k_stride_ + k]);
      }
    }
  }
}

void WeightsGradient::run(i64 item, const Input& x, const void* dy, void* dw, std::byte* scratch,
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
  const i64 first = pixel_parts_.begin(part), end = pixel_parts_.begin(part + 1);
  for (i64 unit = first; unit < end; ++unit) {
    Ahead next = unit + 1 < end ? ahead(b, pixels(unit + 1), x.data, dy) : Ahead{};
    add_pixels(b, pixels(unit), x, dy, unit == first, staged, next, sums);
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

// A transposed convolution's filter is that of one from its y to its x.
Recipe weights_recipe(const Problem& p, const std::shared_ptr<const WeightsGradient>& gradient,
                      std::size_t workspace_bytes) {
  const Place x = is_transposed(p) ? Place::y : Place::x, y = is_transposed(p) ? Place::x : Place::y;
  Recipe recipe;
  recipe.workspace_bytes = workspace_bytes;
  const auto scratch = [gradient](const Memory& m, int worker) {
    return m[Place::workspace] + gradient->partial_bytes() +
           static_cast<std::size_t>(worker) * gradient->scratch_bytes();
  };
  const bool partial = gradient->has_partial_sums();
  recipe.steps.push_back(
      call("implicit_gemm", {Place::x, Place::y, Place::scale, Place::shift},
           partial ? std::vector{Place::workspace} : std::vector{Place::w, Place::workspace},
           [p, gradient, scratch, x, y](const Memory& m, const Parallel& parallel) {
             const WeightsGradient::Input input{m[x], input_affine(p, m)};
             parallel.each(gradient->items(), [&](i64 item, int worker) {
               gradient->run(item, input, m[y], m[Place::w], scratch(m, worker),
                             reinterpret_cast<float*>(m[Place::workspace]));
             });
           }));
  if (!partial) return recipe;
  recipe.steps.push_back(call("reduce", {Place::workspace}, {Place::w, Place::workspace},
                              [gradient, scratch](const Memory& m, const Parallel& parallel) {
                                parallel.each(gradient->blocks(), [&](i64 block, int worker) {
                                  gradient->reduce(block, m[Place::w], scratch(m, worker),
                                                   reinterpret_cast<float*>(m[Place::workspace]));
                                });
                              }));
  return recipe;
}

}  // namespace faltung
