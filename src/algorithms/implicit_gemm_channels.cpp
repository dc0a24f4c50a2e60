// How ChannelLanes divides its work, and packs the weights for it.
#include "src/algorithms/implicit_gemm_channels.hpp"

#include <fmt/core.h>

#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// Of an item's input, and of the weights that are read again for each tile: together they stay in the
// second-level cache. Beyond the latter the reduction is cut.
i64 most_stage_bytes() { return cpu_caches().level2 * 5 / 16; }
i64 most_panel_bytes() { return cpu_caches().level2 * 3 / 8; }
constexpr i64 kSumBytes = 1 << 20;      // of unfinished sums that cannot wait in the output
constexpr i64 kManyProducts = 1 << 20;  // where handing out items counts little

// Whether tiles of so many rows are left with fewer in each row of a strided 1x1's output, so that its pixels
// are copied to one row first. Two rows of 7 are a tile of 14.
bool leaves_rows_short(const TapConvolution& t, int rows) {
  constexpr double kShort = 1.05;
  if (rows == 14 && t.columns == 7) return false;
  return static_cast<double>(round_up(t.columns, i64{rows})) > kShort * static_cast<double>(t.columns);
}
TapConvolution with_rows_joined(const TapConvolution& t, int rows) {
  return leaves_rows_short(t, rows) ? without_stride(t).value_or(t) : t;
}

}  // namespace

ChannelLanes::ChannelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile,
                           int threads)
    : ImplicitGemmPart(problem, with_rows_joined(convolution, tile.rows)),
      tile_(tile),
      joined_(convolution.step_h * convolution.step_w > t_.step_h * t_.step_w) {
  choose_panels();
  choose_items(threads);
}

void ChannelLanes::choose_panels() {
  lanes_ = brgemm_lanes();
  tile_.vectors = static_cast<int>(std::min<i64>(tile_.vectors, ceil_div(t_.out_channels, lanes_)));
  tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
  panel_width_ = tile_.vectors * lanes_;
  panels_ = ceil_div(t_.out_channels, panel_width_);
  channels_padded_ = round_up(t_.out_channels, lanes_);
  for (i64 i = 0; i < panels_; ++i) {
    const i64 first = i * panel_width_, width = panel_vectors(i) * lanes_;
    packed_panels_.push_back({first, std::min(width, t_.out_channels - first), width});
  }
  // So many channels that a panel of weights, and the staged input of one row of tiles, are not too large.
  const i64 panel_bytes = std::max<i64>(taps(), 1) * panel_width_ * 4;
  const i64 input_bytes = planes() * t_.extent_h() * ((tile_.rows - 1) * t_.step_w + t_.extent_w()) * 4;
  reductions_ = EvenSplit(t_.in_channels, std::max<i64>(16, std::min(most_panel_bytes() / panel_bytes,
                                                                     most_stage_bytes() / input_bytes)));
  in_kernel_ = epilogue_in_kernel(p_);
  few_steps_ = taps() * t_.in_channels <= kFewStepsOfPixels;
  for (const bool narrow : {false, true}) {
    const int vectors = narrow ? panel_vectors(panels_ - 1) : tile_.vectors;
    for (int rows = 1; rows <= tile_.rows; ++rows) {
      kernels_[narrow][rows - 1] = brgemm_kernel(BrgemmRows::strided, rows, vectors);
    }
  }
}

i64 ChannelLanes::stage_floats(i64 images, i64 rows, i64 columns) const {
  return planes() * images * ((rows - 1) * t_.step_h + t_.extent_h()) *
         ((columns - 1) * t_.step_w + t_.extent_w()) * pixel_;
}

// Whether all weights stay in each worker's cache, and are no more than what the pixels are read and written.
bool ChannelLanes::shares_pixels() const {
  const i64 weights = taps() * t_.in_channels * channels_padded_;
  const i64 pixels = t_.images() * t_.rows * t_.columns;
  return t_.groups == 1 && reductions_.parts() == 1 && 4 * weights <= most_panel_bytes() &&
         weights <= pixels * (t_.in_channels * t_.step_h * t_.step_w + t_.out_channels);
}

void ChannelLanes::choose_items(int threads) {
  staged_ = p_.dtype != DType::f32 || t_.padded() || has_affine(p_) || joined_;
  depths_end_ = planes() > 1 && t_.padded_in_depth();
  pixel_ = reductions_.largest();
  if (pixel_ * t_.step_w % 512 == 0) pixel_ += 16;
  const auto fits = [&](i64 images, i64 rows, i64 columns) {
    return !staged_ || stage_floats(images, rows, columns) <= most_stage_bytes() / 4;
  };

  // Enough pixels for what reading the weights costs to be small beside using them.
  constexpr i64 kPixels = 16 * 14;
  i64 columns = t_.columns;
  while (columns > 1 && !fits(1, 1, columns)) columns = ceil_div(columns, 2);
  if (columns > 4 * kPixels) columns = kPixels;
  // Parts of the pixels, which the steps before and after share alike, rather than of the channels, whose
  // lines of memory and input two workers would share, where each may read all weights.
  const i64 all_rows = t_.images() * t_.rows;
  const i64 products = t_.groups * all_rows * t_.columns * taps() * t_.in_channels * t_.out_channels;
  const i64 wanted = std::max<i64>(1, (products < kManyProducts ? i64{2} : i64{4}) * threads);
  const bool by_pixels = threads > 1 && shares_pixels();
  if (by_pixels && all_rows < i64{2} * threads)
    columns = std::min(columns, round_up(ceil_div(all_rows * t_.columns, wanted), i64{tile_.rows}));
  const bool whole_rows = columns == t_.columns;
  if (!whole_rows) {  // whole tiles
    columns = std::max<i64>(columns / tile_.rows, 1) * tile_.rows;
    grid_.divide_columns(columns, tile_.rows);
  }
  i64 rows = std::clamp<i64>(kPixels / columns, 1, t_.rows);
  pairs_ = t_.columns == 7 && tile_.rows == 14 && whole_rows;
  if (by_pixels) rows = std::clamp<i64>(all_rows / wanted, std::min<i64>(pairs_ ? 2 : 1, rows), rows);
  while (rows > 1 && !fits(1, rows, columns)) --rows;
  grid_.divide_rows(rows);
  i64 images = 1;
  if (grid_.row_parts().parts() == 1 && grid_.column_parts().parts() == 1) {
    images = std::clamp<i64>(kPixels / (t_.rows * t_.columns), 1, t_.images());
    if (by_pixels) images = std::clamp<i64>(t_.images() / wanted, 1, images);
    while (images > 1 && !fits(images, t_.rows, columns)) --images;
    if (t_.depths > 1 && !staged_) images = 1;  // they are no even distance apart
    if (depths_end_) images = 1;                // each has taps of its own
  }
  grid_.divide_images(images);

  const i64 pixels = grid_.images() * grid_.rows() * grid_.columns();
  const bool sums_wait = reductions_.parts() > 1 && !in_kernel_;
  grid_.divide_panels(panels_, sums_wait ? ceil_div(pixels * channels_padded_ * 4, kSumBytes) : 1,
                      by_pixels && grid_.pixel_items() >= i64{2} * threads ? 0 : threads);

  sum_stride_ = grid_.panels() * panel_width_;
  weights_stay_ = taps() * t_.in_channels * sum_stride_ * 4 <= most_panel_bytes();
  tiles_are_runs_ = !staged_ && taps() == 1 && t_.groups == 1 && t_.step_w == 1 && reductions_.parts() == 1;
  // A tile is stored to one stretch of memory, whose lines the panels that do not fetch pixels bring, one a
  // step, or three in two steps: one of a pair brings the other. Where too few are left, all do.
  const auto bring_stores = [&](i64 reading) {
    const i64 lines = ceil_div(4 * tile_.rows * t_.out_channels, kFetchedLine);
    return 3 * (panels_ - reading) * taps() * t_.in_channels >= 2 * lines;
  };
  reading_panels_ = tiles_are_runs_
                        ? std::max<i64>(1, panels_ * t_.in_channels / (t_.in_channels + t_.out_channels))
                        : panels_ / 2;
  if (tiles_are_runs_ && !bring_stores(reading_panels_) && bring_stores(0)) reading_panels_ = 0;
  fetches_stores_ = in_kernel_ && few_steps_ && weights_stay_ && !pairs_ && panels_ > 1 &&
                    grid_.panels() == panels_ && t_.groups == 1 &&
                    t_.out.stride_w * t_.out_step_w == t_.out_channels && bring_stores(reading_panels_);
  stage_floats_ = staged_ ? stage_floats(grid_.images(), grid_.rows(), grid_.columns()) : 0;
  // A call for a panel's tiles costs less than one for each tile, as long as a pixel's results are few lines.
  constexpr i64 kStays = 24 << 10, kLines = 3;
  input_stays_ = in_kernel_ && staged_ && !pairs_ && 4 * stage_floats_ <= kStays &&
                 4 * t_.out_channels <= kLines * kFetchedLine;
  sum_floats_ = sums_wait ? pixels * sum_stride_ : 0;
  max_tiles_ = grid_.images() * grid_.rows() * ceil_div(grid_.columns(), tile_.rows);
}

int ChannelLanes::panel_vectors(i64 panel) const {
  const i64 left = ceil_div(t_.out_channels - panel * panel_width_, lanes_);
  return static_cast<int>(std::min<i64>(tile_.vectors, left));
}

i64 ChannelLanes::packed_offset(i64 group, i64 cut, i64 panel) const {
  return taps() * (group * channels_padded_ * t_.in_channels + channels_padded_ * reductions_.begin(cut) +
                   panel * panel_width_ * reductions_.size(cut));
}

std::size_t ChannelLanes::scratch_bytes() const {
  return ScratchPieces::bytes<float>(stage_floats_) + ScratchPieces::bytes<float>(sum_floats_) +
         ScratchPieces::bytes<Tile>(max_tiles_) + ScratchPieces::bytes<BrgemmSegment>(segment_count());
}

void ChannelLanes::pack(i64 item, const void* w, float* packed) const {
  const i64 blocks = pack_blocks(reductions_.largest());
  const i64 block = item % blocks, cut = item / blocks % reductions_.parts();
  const i64 group = item / blocks / reductions_.parts(), length = reductions_.size(cut);
  pack_block({group, reductions_.begin(cut), length, block, packed + packed_offset(group, cut, 0)}, t_.taps,
             w);
}

std::string ChannelLanes::packing() const {
  return fmt::format("{}, {} cuts, panels of {}", t_.tap_words(), reductions_.parts(), panel_width_);
}

// A step of a tile: weights may come from beyond the first-level cache, and pixels a multiple of a page apart
// go to the same few of its lines and push each other out: where there are more of them than places, a line
// is waited for again that the second-level cache does not hold either.
double ChannelLanes::step_ns(int rows, int vectors) const {
  constexpr i64 kPage = 4096;
  const auto step = [&](TileReads reads) { return tile_time(reads, rows, vectors).step; };
  const bool conflict = !staged_ && t_.in.stride_w * t_.step_w * 4 % kPage == 0;
  double ns = step(conflict ? TileReads::strided_pages : TileReads::strided);
  if (taps() * reductions_.largest() * panel_width_ * 4 > cpu_caches().level1 / 2)
    ns += std::max(0.0, step(TileReads::strided_stream) - step(TileReads::strided));
  const i64 pixels = grid_.images() * grid_.rows() * grid_.columns();
  if (conflict && rows > cpu_caches().level1 / kPage && 4 * pixels * t_.in_channels > cpu_caches().level2 / 2)
    ns += 4 * far_byte_ns() * rows;  // of a line of 16 steps
  return ns;
}

double ChannelLanes::work_ns() const {
  const double share = planes() > 1 ? t_.share_of_depths() : t_.share_of_rows();
  const double steps = share * static_cast<double>(taps() * t_.in_channels);
  const double cuts = static_cast<double>(reductions_.parts());
  const auto tiles_ns = [&](i64 columns, int vectors) {
    double ns = 0;
    EvenSplit(columns, tile_.rows).each_size([&](i64 size, i64 count) {
      const int rows = static_cast<int>(pairs_ ? 2 * size : size);
      const double once = tile_time(TileReads::strided, rows, vectors).once;
      ns += static_cast<double>(count) * (steps * step_ns(rows, vectors) + cuts * once) / (pairs_ ? 2 : 1);
    });
    return ns;
  };
  double line = 0;  // the tiles of one output row, all channels
  const auto add = [&](i64 columns, double count) {
    const double whole = panels_ > 1 ? tiles_ns(columns, tile_.vectors) : 0;
    const double last = tiles_ns(columns, panel_vectors(panels_ - 1));
    line += count * (static_cast<double>(panels_ - 1) * whole + last);
  };
  if (joined_ && grid_.columns() == t_.columns) {
    const i64 rows = grid_.images() * grid_.rows();
    add(rows * t_.columns, 1 / static_cast<double>(rows));
  } else {
    grid_.each_column_count([&](i64 columns, i64 count) { add(columns, static_cast<double>(count)); });
  }
  // A group's channels are a short run in each pixel.
  const double channels = static_cast<double>(pixel_);
  const double a_pixel =
      t_.groups == 1 ? channels * kStagedFloatNs : staging_time(Staging::rows).of(channels);
  const double pixels = static_cast<double>(stage_floats_ / pixel_) * cuts * static_cast<double>(items());
  return line * static_cast<double>(t_.groups * t_.images() * t_.rows) + pixels * a_pixel;
}

std::unique_ptr<ImplicitGemmPart> make_channel_lanes(const Problem& problem,
                                                     const TapConvolution& convolution, TileShape tile,
                                                     int threads) {
  return std::make_unique<ChannelLanes>(problem, convolution, tile, threads);
}

}  // namespace faltung
