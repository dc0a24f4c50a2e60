// How PixelLanes divides its work, and packs the weights for it.
#include "src/algorithms/implicit_gemm_pixels.hpp"

#include <fmt/core.h>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kStageFloats = (768 << 10) / 4;  // of an item's patch: with the weights in use it stays in L2
constexpr i64 kPanelBytes = 512 << 10;         // of weights, beyond which the reduction is cut
constexpr i64 kSumBytes = 1 << 20;             // of unfinished sums that cannot wait in the output
constexpr i64 kFewPanels = 8;  // that may read the input in place: more are worth a copy of it

}  // namespace

PixelLanes::PixelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads)
    : ImplicitGemmPart(problem, convolution), tile_(tile), threads_(threads) {
  lanes_ = brgemm_lanes();
  tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
  panels_ = EvenSplit(t_.out_channels, tile_.rows);
  phases_h_ = std::min(t_.step_h, t_.extent_h()), phases_w_ = std::min(t_.step_w, t_.extent_w());
  in_registers_ = epilogue_in_registers(p_) && t_.out_step_w == 1;
  few_steps_ = taps() * t_.in_channels <= kFewSteps;
  for (int vectors = 1; vectors <= tile_.vectors; ++vectors) {
    for (const i64 part : {i64{0}, panels_.parts() - 1}) {
      const int m = static_cast<int>(panels_.size(part));
      kernels_[m != panels_.largest()][vectors - 1] = brgemm_kernel(BrgemmRows::contiguous, m, vectors);
    }
  }
  choose_reductions();
  choose_items(threads);
}

i64 PixelLanes::phase_rows(i64 rows) const {
  return ceil_div((rows - 1) * t_.step_h + t_.extent_h(), t_.step_h);
}

i64 PixelLanes::phase_columns(i64 columns) const {
  return ceil_div((columns - 1) * t_.step_w + t_.extent_w(), t_.step_w);
}

i64 PixelLanes::image_floats(i64 rows, i64 columns) const {
  return phases_h_ * phases_w_ * phase_rows(rows) * phase_columns(columns);
}

// A whole number of cache lines, an odd one: channels spread over all of the cache.
i64 PixelLanes::channel_floats(i64 floats) { return (ceil_div(floats, 16) | 1) * 16; }

i64 PixelLanes::stage_floats(i64 images, i64 rows, i64 columns) const {
  return reductions_.largest() * channel_floats(planes() * images * image_floats(rows, columns)) + kBeyond;
}

i64 PixelLanes::packed_offset(i64 group, i64 cut, i64 panel) const {
  return taps() * (group * t_.out_channels * t_.in_channels + t_.out_channels * reductions_.begin(cut) +
                   panels_.begin(panel) * reductions_.size(cut));
}

void PixelLanes::choose_reductions() {
  const i64 row_floats =
      planes() * phase_columns(std::min<i64>(t_.columns, 64)) * phases_h_ * phases_w_ * phase_rows(1);
  const i64 step_bytes = std::max<i64>(taps(), 1) * tile_.rows * 4;
  reductions_ = EvenSplit(t_.in_channels,
                          std::max<i64>(16, std::min(kPanelBytes / step_bytes, (1 << 20) / 4 / row_floats)));
}

void PixelLanes::choose_items(int threads) {
  row_ = phase_columns(t_.columns);
  flat_ = flat_is_better();
  divide_pixels();
  in_place_ = reads_in_place();
  const bool sums_wait = reductions_.parts() > 1 && !in_registers_;
  const i64 pixels = grid_.rows() * grid_.columns();
  grid_.divide_panels(panels_.parts(), sums_wait ? ceil_div(pixels * t_.out_channels * 4, kSumBytes) : 1,
                      threads);
  stage_floats_ = stage_floats(grid_.images(), grid_.rows(), grid_.columns());
  if (flat_) {
    flat_columns_ = round_up(grid_.images() * phase_rows(t_.rows) * row_, lanes_);
    sum_floats_ = panels_.largest() * flat_columns_;
  } else if (sums_wait) {
    sum_floats_ = grid_.panels() * panels_.largest() * pixels;
  }
}

bool PixelLanes::flat_is_better() const {
  const i64 vector_columns = round_up(t_.columns, lanes_);
  return stage_floats(1, t_.rows, t_.columns) <= kStageFloats && reductions_.parts() == 1 &&
         static_cast<double>(vector_columns) / static_cast<double>(t_.columns) >
             1.05 * static_cast<double>(phase_rows(t_.rows) * phase_columns(t_.columns)) /
                 static_cast<double>(t_.rows * t_.columns);
}

void PixelLanes::divide_pixels() {
  i64 images = 1, rows = t_.rows, columns = t_.columns;
  if (flat_) {
    images = std::clamp<i64>(512 / (rows * columns), 1, t_.images());
    while (images > 1 && stage_floats(images, rows, columns) > kStageFloats) --images;
  } else {
    const i64 unit = tile_.vectors * lanes_;
    while (columns > unit &&
           (stage_floats(1, 1, columns) > kStageFloats || (t_.rows == 1 && columns > 16 * unit))) {
      columns = round_up(ceil_div(columns, 2), unit);
    }
    if (columns < t_.columns) grid_.divide_columns(columns, unit);
    rows = std::clamp<i64>(1024 / columns, 1, t_.rows);
    while (rows > 1 && stage_floats(1, rows, columns) > kStageFloats) --rows;
  }
  grid_.divide_rows(rows);
  grid_.divide_images(images);
}

// A lone tap over whole planes finds its vectors in the input as it lies there, unless many planes begin at
// the same place of the cache.
bool PixelLanes::reads_in_place() const {
  const Tap tap = taps() == 1 ? t_.taps.front() : Tap{};
  const bool planes = taps() == 1 && tap.h == 0 && tap.w == 0 && t_.step_h == 1 && t_.step_w == 1 &&
                      t_.rows == 1 && t_.in.h == 1 && t_.in.d == 1 && t_.columns == t_.in.w;
  const bool collide = t_.in.stride_c * 4 % 4096 == 0 && t_.in_channels > 64;
  return planes && !t_.padded() && !collide && !flat_ && p_.dtype == DType::f32 &&
         panels_.parts() <= kFewPanels;
}

std::size_t PixelLanes::scratch_bytes() const {
  return ScratchPieces::bytes<float>(stage_floats_) + ScratchPieces::bytes<float>(sum_floats_) +
         ScratchPieces::bytes<BrgemmSegment>(segment_count());
}

void PixelLanes::pack(i64 item, const void* w, float* packed) const {
  const i64 panel = item % panels_.parts(), cut = item / panels_.parts() % reductions_.parts();
  const i64 group = item / panels_.parts() / reductions_.parts();
  float* to = packed + packed_offset(group, cut, panel);
  for (const Tap& tap : t_.taps) {
    const FilterView view = filter_view(p_, tap, group);
    for (i64 c = 0; c < reductions_.size(cut); ++c) {
      for (i64 k = panels_.begin(panel); k < panels_.begin(panel + 1); ++k) {
        *to++ = load_element(p_.dtype, w,
                             view.base + (reductions_.begin(cut) + c) * view.c_stride + k * view.k_stride);
      }
    }
  }
}

std::string PixelLanes::packing() const {
  return fmt::format("{}, {} cuts, {} panels", t_.tap_words(), reductions_.parts(), panels_.parts());
}

double PixelLanes::cycles() const {
  constexpr double kTileOverhead = 40;
  double total = 0;
  const double steps = static_cast<double>(taps() * t_.in_channels);
  const bool split = t_.taps.size() > 1;
  const auto row_of_tiles = [&](i64 columns) {
    const EvenSplit vectors(ceil_div(columns, lanes_), tile_.vectors);
    double sum = 0;
    for (i64 part = 0; part < vectors.parts(); ++part) {
      for (i64 panel = 0; panel < panels_.parts(); ++panel) {
        sum += steps * tile_step_cycles(static_cast<int>(panels_.size(panel)),
                                        static_cast<int>(vectors.size(part)), split) +
               kTileOverhead;
      }
    }
    return sum;
  };
  if (flat_) {
    for (i64 part = 0; part < grid_.image_parts().parts(); ++part) {
      const double columns = static_cast<double>(grid_.image_parts().size(part) * phase_rows(t_.rows) * row_);
      // The sums go through memory once more.
      total += row_of_tiles(grid_.image_parts().size(part) * phase_rows(t_.rows) * row_) +
               0.2 * columns * static_cast<double>(t_.out_channels);
    }
    return total * static_cast<double>(t_.groups);
  }
  for (i64 part = 0; part < grid_.column_parts().parts(); ++part)
    total += row_of_tiles(grid_.column_begin(part + 1) - grid_.column_begin(part));
  return total * static_cast<double>(t_.groups * t_.images() * t_.rows);
}

std::unique_ptr<ImplicitGemmPart> make_pixel_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   TileShape tile, int threads) {
  return std::make_unique<PixelLanes>(problem, convolution, tile, threads);
}

}  // namespace faltung
