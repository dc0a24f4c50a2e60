// How PixelLanes divides its work, and packs the weights for it.
#include "src/algorithms/implicit_gemm_pixels.hpp"

#include <fmt/core.h>

#include <cmath>

#include "src/algorithms/cpu_rates.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kPanelBytes = 512 << 10;  // of weights, beyond which the reduction is cut
constexpr i64 kSumBytes = 1 << 20;      // of unfinished sums that cannot wait in the output
constexpr i64 kFewChannels = 64;        // of a cut, for which going through the sums again does not pay

// Of all items: who comes last is waited for.
double division_ns(i64 items, double item_ns, int threads) {
  if (threads <= 1) return static_cast<double>(items) * item_ns;
  constexpr double kUneven = 0.05;  // of an item, between two that have as many of them
  return (static_cast<double>(ceil_div(items, i64{threads})) + kUneven) * item_ns;
}

// Of an item's patch: with the weights in use it stays in the second-level cache.
i64 most_stage_floats() { return cpu_caches().level2 * 3 / 8 / 4; }

}  // namespace

PixelLanes::PixelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads)
    : ImplicitGemmPart(problem, convolution), tile_(tile) {
  lanes_ = brgemm_lanes();
  tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
  // Two workers share an even number of panels evenly, where there are so many that one more costs nothing.
  constexpr i64 kMany = 8;
  i64 panels = ceil_div(t_.out_channels, i64{tile_.rows});
  if (panels > kMany) panels = round_up(panels, 2);
  panels_ = EvenSplit::in_parts(t_.out_channels, panels);
  for (i64 i = 0; i < panels_.parts(); ++i)
    packed_panels_.push_back({panels_.begin(i), panels_.size(i), panels_.size(i)});
  phases_h_ = std::min(t_.step_h, t_.extent_h()), phases_w_ = std::min(t_.step_w, t_.extent_w());
  in_kernel_ = epilogue_in_kernel(p_) && t_.out_step_w == 1;
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
  joined_ = !flat_ && rows_join();
  dense_ = flat_ && rows_join() && t_.out_step_w == 1;
  depths_end_ = planes() > 1 && t_.padded_in_depth();
  share_ = depths_end_ ? t_.share_of_depths() : flat_ || joined_ ? 1 : t_.share_of_rows();
  in_tiles_ = !flat_ && taps() == 1 && (joined_ || t_.rows == 1);
  const i64 panel_bytes = std::max<i64>(taps() * reductions_.largest(), 1) * panels_.largest() * 4;
  // Staged tiles come from the second-level cache in a stream, so that each panel passes over all of them,
  // and its results' planes are written in long runs.
  panel_group_ = in_tiles_ ? 1 : std::max<i64>(1, cpu_caches().level2 / 3 / panel_bytes);
  if (flat_) {
    divide_flat(threads);
    flat_columns_ = round_up(grid_.images() * phase_rows(t_.rows) * row_, lanes_);
    sum_floats_ = (reductions_.parts() > 1 ? grid_.panels() : 1) * panels_.largest() * flat_columns_;
  } else {
    divide(best_division(threads));
    const i64 rows = grid_.rows(), columns = grid_.columns();
    in_place_ = may_read_in_place(rows, columns) &&
                in_place_ns(rows, columns, static_cast<double>(grid_.panels())) < stage_ns(1, rows, columns);
    const i64 pixels = grid_.rows() * grid_.columns();
    if (reductions_.parts() > 1 && !in_kernel_) sum_floats_ = grid_.panels() * panels_.largest() * pixels;
    if (in_tiles_ && !in_place_) line_floats_ = kLineChannels * round_up(pixels, 16) + kBeyond;
  }
  stage_floats_ = in_place_ ? 0 : stage_floats(grid_.images(), grid_.rows(), grid_.columns());
}

bool PixelLanes::flat_is_better() const {
  // Of products that are saved, so that it pays: where the patch is cut, sums go through memory with each
  // cut.
  constexpr double kSaved = 1.05, kSavedByCuts = 1.2;
  const bool lone = taps() == 1 && (t_.rows == 1 || rows_join());
  if (lone && t_.images() == 1) return false;
  const i64 pixels = t_.rows * t_.columns, run = lone ? pixels : t_.columns;
  if (kBeyond + flat_channel(1) > most_stage_floats()) return false;
  const EvenSplit cuts = flat_reductions(1);
  if (cuts.parts() > 1 && cuts.largest() < kFewChannels) return false;
  return static_cast<double>(round_up(run, lanes_)) / static_cast<double>(run) >
         (cuts.parts() > 1 ? kSavedByCuts : kSaved) *
             static_cast<double>(phase_rows(t_.rows) * phase_columns(t_.columns)) /
             static_cast<double>(pixels);
}

// Of so many images whole, what stays in the second-level cache.
EvenSplit PixelLanes::flat_reductions(i64 images) const {
  const i64 most = (most_stage_floats() - kBeyond) / flat_channel(images);
  return EvenSplit(t_.in_channels, std::clamp<i64>(most, 1, reductions_.largest()));
}

i64 PixelLanes::flat_channel(i64 images) const {
  return channel_floats(planes() * images * image_floats(t_.rows, t_.columns));
}

bool PixelLanes::rows_join() const {
  const bool dense = t_.out_step_h == 1 && t_.out_step_w == 1 && t_.out.stride_h == t_.columns;
  return taps() == 1 && (dense || t_.out_step_w > 1);
}

// Whole images, whose staging parts of the panels repeat.
void PixelLanes::divide_flat(int threads) {
  constexpr i64 kMostPixels = 512;
  const i64 most = depths_end_ ? 1 : std::clamp<i64>(kMostPixels / (t_.rows * t_.columns), 1, t_.images());
  i64 best_images = 1, best_parts = 1;
  double best_ns = INFINITY;
  const i64 all = t_.images();
  for (i64 items_of_images = ceil_div(all, most);;
       items_of_images = std::min(all, items_of_images + std::max<i64>(1, items_of_images / 4))) {
    const i64 images = EvenSplit::in_parts(all, items_of_images).largest();
    const EvenSplit cuts = flat_reductions(images);
    if (images == 1 || cuts.parts() == 1 || cuts.largest() >= kFewChannels) {
      const i64 sum_bytes = images * phase_rows(t_.rows) * row_ * t_.out_channels * 4;
      each_panel_parts(cuts.parts() > 1 ? ceil_div(sum_bytes, kSumBytes) : 1, t_.groups * items_of_images,
                       threads, [&](i64 parts, i64 items) {
                         const i64 panels = ceil_div(panels_.parts(), parts);
                         const double item =
                             with_reads_ns(flat_item_ns(images, panels), panels, 0, t_.columns);
                         const double ns = division_ns(items, item, threads);
                         if (ns < best_ns) best_ns = ns, best_images = images, best_parts = parts;
                       });
    }
    if (items_of_images == all) break;
  }
  reductions_ = flat_reductions(best_images);
  grid_.divide_images(best_images);
  grid_.divide_panels(panels_.parts(), best_parts, 0);
}

void PixelLanes::divide(const Division& division) {
  if (division.columns < t_.columns) grid_.divide_columns(division.columns, division.unit);
  grid_.divide_rows(division.rows);
  grid_.divide_images(1);
  grid_.divide_panels(panels_.parts(), division.panel_parts, 0);
}

// Parts of the panels from the fewest on, and how many items there are then: until there are enough to share.
template <class Visit>
void PixelLanes::each_panel_parts(i64 least, i64 pixel_items, int threads, const Visit& visit) const {
  for (i64 parts = least;; parts = parts * 3 / 2 + 1) {
    parts = std::min(parts, panels_.parts());
    const i64 items = pixel_items * parts;
    visit(parts, items);
    if (parts == panels_.parts() || threads == 0 || items >= i64{8} * threads) return;
  }
}

// More parts of the pixels share the work more evenly, and their patches are small; parts of the panels do,
// too, but each stages the patch again.
PixelLanes::Division PixelLanes::best_division(int threads) const {
  // Whole tiles, unless there are too few to share.
  const i64 width = tile_.vectors * lanes_, lines = t_.groups * t_.images() * t_.rows;
  const i64 unit = in_tiles_ && lines * ceil_div(t_.columns, width) < i64{4} * threads ? lanes_ : width;
  const i64 most = in_tiles_ ? cpu_caches().level2 / 4 / 4 : most_stage_floats();
  const bool sums_wait = reductions_.parts() > 1 && !in_kernel_;
  Division best{1, std::min(t_.columns, unit), panels_.parts(), unit};
  double best_ns = INFINITY;
  const auto consider = [&](i64 rows, i64 columns) {
    const i64 floats =
        in_tiles_ ? reductions_.largest() * round_up(rows * columns, lanes_) : stage_floats(1, rows, columns);
    if (floats > most && (rows > 1 || columns > unit)) return;
    const i64 least = sums_wait ? ceil_div(rows * columns * t_.out_channels * 4, kSumBytes) : 1;
    const i64 pixel_parts = ceil_div(t_.rows, rows) * ceil_div(t_.columns, columns) * t_.images() * t_.groups;
    const double fetch = fetch_ns(1, rows, columns);
    each_panel_parts(least, pixel_parts, threads, [&](i64 parts, i64 items) {
      const i64 panels = ceil_div(panels_.parts(), parts);
      const double item =
          with_reads_ns(item_ns(rows, columns, static_cast<double>(panels)), panels, fetch, columns);
      const double ns = fetch + division_ns(items, item, threads);
      if (ns < best_ns) best_ns = ns, best = {rows, columns, parts, unit};
    });
  };
  constexpr i64 kMostPixels = 1024;  // of an item; beyond there is nothing to gain
  for (i64 columns = t_.columns; columns >= std::min(unit, t_.columns);) {
    if (columns < t_.columns && t_.rows > 1 && stage_floats(1, 1, t_.columns) <= most) break;
    // Lines that are joined are whole rows, or a part of one.
    const i64 most_rows = joined_ && columns < t_.columns ? 1 : t_.rows;
    for (i64 rows = std::clamp<i64>(kMostPixels / columns, 1, most_rows); rows >= 1; --rows)
      consider(rows, columns);
    if (columns <= unit) break;
    columns =
        std::min(columns - unit, round_up(ceil_div(t_.columns, ceil_div(t_.columns, columns) + 1), unit));
    columns = std::max(columns, unit);
  }
  return best;
}

bool PixelLanes::is_a_run(i64 rows) const {
  const Tap tap = taps() == 1 ? t_.taps.front() : Tap{};
  return p_.dtype == DType::f32 && !has_affine(p_) && taps() == 1 && tap.h == 0 && tap.w == 0 && tap.d == 0 &&
         t_.in.d == 1 && t_.step_h == 1 && t_.step_w == 1 && (rows == 1 || t_.columns == t_.in.w) &&
         !t_.padded();
}

std::size_t PixelLanes::scratch_bytes() const {
  return ScratchPieces::bytes<float>(stage_floats_) + ScratchPieces::bytes<float>(line_floats_) +
         ScratchPieces::bytes<float>(sum_floats_) + ScratchPieces::bytes<BrgemmSegment>(segment_count());
}

void PixelLanes::pack(i64 item, const void* w, float* packed) const {
  const i64 blocks = pack_blocks(reductions_.largest());
  const i64 block = item % blocks, cut = item / blocks % reductions_.parts();
  const i64 group = item / blocks / reductions_.parts(), length = reductions_.size(cut);
  pack_block({group, reductions_.begin(cut), length, block, packed + packed_offset(group, cut, 0)}, t_.taps,
             w);
}

std::string PixelLanes::packing() const {
  return fmt::format("{}, {} cuts, {} panels", t_.tap_words(), reductions_.parts(), panels_.parts());
}

// A tile's of so many vectors, of a panel as panels are on average.
double PixelLanes::panel_tile_ns(TileReads reads, int vectors) const {
  double ns = 0;
  panels_.each_size([&](i64 rows, i64 count) {
    ns += static_cast<double>(count) * tile_time(reads, static_cast<int>(rows), vectors).of(steps());
  });
  return ns / static_cast<double>(panels_.parts());
}

double PixelLanes::item_ns(i64 rows, i64 columns, double panels) const {
  const TileReads reads = taps() > 1 ? TileReads::contiguous_split : TileReads::contiguous;
  const EvenSplit split = tiles(line(rows, columns));
  // Cycles to set a tile up, and a panel's tiles of one width where one call computes them.
  constexpr double kTile = 20, kCall = 150;
  double panel = 0;
  split.each_size([&](i64 vectors, i64 count) {
    panel += static_cast<double>(count) * (panel_tile_ns(reads, static_cast<int>(vectors)) +
                                           kTile * cycle_ns() + refill_ns(rows * columns));
    if (in_tiles_ && in_kernel_) panel += kCall * cycle_ns();
  });
  panel = panel * static_cast<double>(lines(rows)) + scatter_ns(rows * columns);
  panel += weights_ns(static_cast<i64>(panels));
  double reading = stage_ns(1, rows, columns);
  if (may_read_in_place(rows, columns)) reading = std::min(reading, in_place_ns(rows, columns, panels));
  return panels * panel + reading;
}

// Vectors beyond a row's end would lie in the next plane, or in nothing.
bool PixelLanes::may_read_in_place(i64 rows, i64 columns) const {
  return in_tiles_ && t_.rows == 1 && is_a_run(rows) && t_.columns % lanes_ == 0 && columns % lanes_ == 0;
}

double PixelLanes::in_place_ns(i64 rows, i64 columns, double panels) const {
  const EvenSplit split = tiles(rows * columns);
  const auto step = [&](TileReads reads) {
    return tile_time(reads, static_cast<int>(panels_.largest()), static_cast<int>(split.largest())).step;
  };
  const double wait = std::max(0.0, step(TileReads::contiguous_planes) - step(TileReads::contiguous_stream));
  return panels * static_cast<double>(split.parts()) * steps() * wait;
}

// Copying an item's patch to where its tiles read it.
double PixelLanes::stage_ns(i64 images, i64 rows, i64 columns) const {
  if (taps() == 0) return 0;
  double plane = 0;
  if (!in_tiles_ || !is_a_run(rows)) {
    plane += static_cast<double>(phases_h_ * phases_w_ * phase_rows(rows)) *
             staging_time(Staging::rows).of(static_cast<double>(phase_columns(columns)));
  }
  if (in_tiles_) {
    const double pixels = static_cast<double>(rows * columns);
    plane += staging_time(Staging::runs).of(pixels);
    // Beyond the first-level cache they go to the second and come back.
    if (rows * columns * t_.in_channels * 4 > cpu_caches().level1 * 3 / 4)
      plane += 8 * near_byte_ns() * pixels;
  }
  return static_cast<double>(t_.in_channels * planes() * images) * plane;
}

// Of a tile: a step's vectors come from beyond the first-level cache where it does not hold all pixels that a
// panel passes over. A tile that loads as often as it multiplies has no time to wait for them; those that are
// staged lie one after the other, and several taps' vectors cross lines.
double PixelLanes::refill_ns(i64 pixels) const {
  constexpr double kLineFloats = 16, kWaitOfATap = 2, kWaitOfSeveral = 6;  // cycles a line, with AVX-512
  const double wait = taps() > 1 ? kWaitOfSeveral : kWaitOfATap;
  const double rows = static_cast<double>(panels_.largest()), vectors = tile_.vectors;
  if (pixels * t_.in_channels * 4 <= cpu_caches().level1) return 0;
  if (in_tiles_) {
    const auto step = [&](TileReads reads) {
      return tile_time(reads, static_cast<int>(panels_.largest()), tile_.vectors).step;
    };
    return steps() * std::max(0.0, step(TileReads::contiguous_stream) - step(TileReads::contiguous));
  }
  return wait * cycle_ns() * static_cast<double>(lanes_) / kLineFloats * static_cast<double>(steps()) *
         (rows + vectors) / (rows * vectors);
}

double PixelLanes::flat_item_ns(i64 images, i64 panels) const {
  const i64 columns = images * phase_rows(t_.rows) * row_;
  const EvenSplit split = tiles(columns);
  const TileTime tile = tile_time(taps() > 1 ? TileReads::contiguous_split : TileReads::contiguous,
                                  static_cast<int>(panels_.largest()), static_cast<int>(split.largest()));
  const double full = static_cast<double>(ceil_div(columns, lanes_)) / static_cast<double>(split.largest());
  // The sums go through memory once more, with each cut, but those of tiles that are one image's.
  const double cuts = static_cast<double>(flat_reductions(images).parts());
  const i64 through_memory =
      dense_ && in_kernel_ ? std::min(columns, (images - 1) * split.largest() * lanes_) : columns;
  const double sums = cuts * static_cast<double>(through_memory * panels_.largest()) * kStagedFloatNs;
  return static_cast<double>(panels) *
             (full * (tile.of(steps()) + (cuts - 1) * tile.once + refill_ns(columns)) + sums +
              scatter_ns(columns)) +
         stage_ns(images, t_.rows, t_.columns);
}

// Waiting for a patch that no cache has: a channel's pixels are far from the next channel's.
double PixelLanes::fetch_ns(i64 images, i64 rows, i64 columns) const {
  constexpr i64 kLineFloats = 16;
  if (t_.in.stride_c <= kLineFloats || taps() == 0) return 0;
  const bool run = in_tiles_ && is_a_run(rows);
  const i64 floats = phases_h_ * phase_rows(rows) * phase_columns(columns) * t_.step_w;
  return static_cast<double>(t_.in_channels * planes() * images) *
         fetch_time(run ? Staging::runs : Staging::rows)
             .of(static_cast<double>(floats) / static_cast<double>(kLineFloats));
}

// An item's planes come while the one before is computed, and its weights, where the second-level cache does
// not hold them, in a stream: products hide both as long as there are enough of them, the weights less well,
// which nobody fetches ahead.
double PixelLanes::with_reads_ns(double item, i64 panels, double fetch, i64 columns) const {
  constexpr double kSeen = 0.1, kSeenOfWeights = 0.15;
  const auto beside = [](double work, double read, double seen) {
    return std::max(work, read) + seen * std::min(work, read);
  };
  const i64 bytes = taps() * t_.in_channels * panels * panels_.largest() * 4;
  if (bytes > cpu_caches().level2 / 3)
    item = beside(item, far_byte_ns() * static_cast<double>(bytes), kSeenOfWeights);
  const bool in_order = t_.extent_h() >= t_.step_h && (columns == t_.columns || t_.in.h == 1);
  return in_order ? beside(item, fetch, kSeen) : item + fetch;
}

double PixelLanes::work_ns() const {
  const double panel_parts = static_cast<double>(items() / grid_.pixel_items());
  const double panels = static_cast<double>(panels_.parts()) / panel_parts;
  const double fetch = fetch_ns(grid_.images(), grid_.rows(), grid_.columns());
  const auto with_reads = [&](double item, i64 columns) {
    return with_reads_ns(item, grid_.panels(), fetch, columns);
  };
  if (flat_) {
    const double item = flat_item_ns(grid_.images(), grid_.panels());
    return with_reads(item, grid_.columns()) * static_cast<double>(items()) + fetch;
  }
  double image = 0;
  grid_.row_parts().each_size([&](i64 rows, i64 row_count) {
    grid_.each_column_count([&](i64 columns, i64 count) {
      image += static_cast<double>(row_count * count) *
               with_reads(item_ns(rows, columns, panels), grid_.columns());
    });
  });
  return image * static_cast<double>(t_.images() * t_.groups) * panel_parts + fetch;
}

std::unique_ptr<ImplicitGemmPart> make_pixel_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   TileShape tile, int threads) {
  return std::make_unique<PixelLanes>(problem, convolution, tile, threads);
}

}  // namespace faltung
