// Implicit GEMM with pixels in the lanes, for nchw, where neighbouring columns of the result are of different
// convolutions, as those of a transposed one with strides are: an item stages once what all of them read,
// computes the same pixels of each, and writes their columns side by side.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// What reads all that its phases read. Their taps are asked for their places alone.
TapConvolution reads_of_all(const std::vector<TapConvolution>& phases) {
  TapConvolution all = phases.front();  // whose columns are the most
  std::vector<Tap> taps;
  for (const TapConvolution& phase : phases) taps.insert(taps.end(), phase.taps.begin(), phase.taps.end());
  all.set_taps(std::move(taps));
  return all;
}

class PhaseLanes : public ImplicitGemmPart {
 public:
  PhaseLanes(const Problem& problem, const std::vector<TapConvolution>& phases, TileShape tile, int threads);

  i64 packed_floats() const override { return taps_ * filter_floats(); }
  i64 pack_items() const override {
    return static_cast<i64>(phases_.size()) * t_.groups * pack_blocks(t_.in_channels);
  }
  void pack(i64 item, const void* w, float* packed) const override;
  std::string packing() const override;
  std::size_t scratch_bytes() const override {
    return ScratchPieces::bytes<float>(stage_floats(grid_.rows(), grid_.columns())) +
           2 * ScratchPieces::bytes<float>(static_cast<i64>(phases_.size()) * tile_floats()) +
           ScratchPieces::bytes<BrgemmSegment>(2 * taps_);
  }
  void run(i64 item, const PartCall& call) const override;
  double work_ns() const override;

 private:
  // Floats beyond the last channel that a vector may reach: a tile's width.
  static constexpr i64 kBeyond = 16 * kBrgemmMaxVectors;

  // A patch: for each channel of each plane that taps span, rows of as many columns as an item's taps span.
  struct Patch {
    i64 row, plane, channel;
  };
  Patch patch(i64 rows, i64 columns) const {
    const i64 row = columns + t_.extent_w() - 1, plane = (rows + t_.extent_h() - 1) * row;
    // An odd number of cache lines: channels spread over all of the cache.
    return {row, plane, (ceil_div(planes() * plane, i64{16}) | 1) * 16};
  }
  i64 stage_floats(i64 rows, i64 columns) const {
    return t_.in_channels * patch(rows, columns).channel + kBeyond;
  }
  i64 planes() const { return static_cast<i64>(t_.planes().size()); }
  // Pixels of a patch, row behind row, from an item's first to its last.
  i64 pixels(i64 rows, i64 columns) const { return (rows - 1) * patch(rows, columns).row + columns; }
  i64 filter_floats() const { return t_.groups * t_.out_channels * t_.in_channels; }  // of a tap
  i64 tile_floats() const { return panels_.largest() * tile_.vectors * lanes_; }
  i64 taps_before(std::size_t phase) const {
    i64 taps = 0;
    for (std::size_t f = 0; f < phase; ++f) taps += taps_of(f);
    return taps;
  }
  i64 taps_of(std::size_t phase) const { return static_cast<i64>(phases_[phase].taps.size()); }
  double tile_ns(std::size_t phase, int vectors, i64 item_pixels) const;

  void divide(int threads);
  void stage(const WorkItem& item, const PartCall& call, const Patch& at, float* to) const;
  Prefetch prefetch(i64 index, const WorkItem& current, const PartCall& call, i64 calls) const;
  // Sums of all phases from a pixel of the item's on: of so many neighbouring columns to the result.
  struct Piece {
    i64 panel, row, column, columns;
  };
  BrgemmFetch lines_of(const WorkItem& item, const PartCall& call, const Piece& piece,
                       std::size_t phase) const;
  void finish(const WorkItem& item, const PartCall& call, const Piece& piece, const float* sums, i64 width,
              float* wide) const;
  i64 elements_of(const WorkItem& item, const Piece& piece) const {
    const i64 step = t_.out_step_w;
    return std::min(piece.columns * step, t_.out.w - (item.column0 + piece.column) * step);
  }
  i64 result_offset(const WorkItem& item, const Piece& piece) const {
    return t_.out_offset(item.image0, item.group * t_.out_channels + panels_.begin(piece.panel),
                         item.row0 + piece.row, item.column0 + piece.column);
  }

  std::vector<TapConvolution> phases_;  // by the column that they write first
  i64 taps_ = 0;                        // of all
  TileShape tile_;
  int lanes_ = 1;
  EvenSplit panels_;                                 // of output channels
  i64 panel_group_ = 1;                              // panels whose weights stay in the second-level cache
  BrgemmKernel kernels_[2][kBrgemmMaxVectors] = {};  // by whether a panel is a smaller one, and vectors - 1
};

PhaseLanes::PhaseLanes(const Problem& problem, const std::vector<TapConvolution>& phases, TileShape tile,
                       int threads)
    : ImplicitGemmPart(problem, reads_of_all(phases)), phases_(phases), tile_(tile) {
  taps_ = taps_before(phases_.size());
  lanes_ = brgemm_lanes();
  tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
  panels_ = EvenSplit(t_.out_channels, tile_.rows);
  for (i64 i = 0; i < panels_.parts(); ++i)
    packed_panels_.push_back({panels_.begin(i), panels_.size(i), panels_.size(i)});
  for (int vectors = 1; vectors <= tile_.vectors; ++vectors) {
    for (const i64 part : {i64{0}, panels_.parts() - 1}) {
      const int m = static_cast<int>(panels_.size(part));
      kernels_[m != panels_.largest()][vectors - 1] = brgemm_kernel(BrgemmRows::contiguous, m, vectors);
    }
  }
  panel_group_ = std::max<i64>(1, cpu_caches().level2 / 3 / (taps_ * t_.in_channels * panels_.largest() * 4));
  divide(threads);
}

// Whole rows where they are short, of as many pixels as share the work and whose patch stays in the
// second-level cache.
void PhaseLanes::divide(int threads) {
  constexpr i64 kMostPixels = 512;
  const i64 unit = tile_.vectors * lanes_, most = cpu_caches().level2 * 3 / 8 / 4;
  i64 columns = std::min(t_.columns, round_up(kMostPixels, unit));
  while (columns > unit && stage_floats(1, columns) > most) columns = std::max(unit, columns - unit);
  i64 rows = columns < t_.columns ? 1 : std::clamp<i64>(kMostPixels / columns, 1, t_.rows);
  while (rows > 1 && stage_floats(rows, columns) > most) --rows;
  if (columns < t_.columns) grid_.divide_columns(columns, unit);
  grid_.divide_rows(rows);
  grid_.divide_images(1);
  grid_.divide_panels(panels_.parts(), 1, threads);
}

void PhaseLanes::pack(i64 item, const void* w, float* packed) const {
  const i64 blocks = pack_blocks(t_.in_channels), block = item % blocks;
  const i64 group = item / blocks % t_.groups;
  const auto phase = static_cast<std::size_t>(item / blocks / t_.groups);
  float* const to = packed + taps_before(phase) * filter_floats() +
                    taps_of(phase) * group * t_.out_channels * t_.in_channels;
  pack_block({group, 0, t_.in_channels, block, to}, phases_[phase].taps, w);
}

std::string PhaseLanes::packing() const {
  std::string text = fmt::format("side by side, {} panels", panels_.parts());
  for (const TapConvolution& phase : phases_) text += ", " + phase.tap_words();
  return text;
}

void PhaseLanes::stage(const WorkItem& item, const PartCall& call, const Patch& at, float* to) const {
  StageCall part;
  part.dtype = p_.dtype;
  part.from_row_stride = t_.in.stride_h;
  part.width = t_.in.w;
  part.row0 = item.row0 + t_.min_h(), part.rows = item.rows + t_.extent_h() - 1;
  part.column0 = item.column0 + t_.min_w(), part.columns = at.row;
  part.channels = t_.in_channels, part.affine = call.affine.from(item.group * t_.in_channels);
  for (i64 plane = 0; plane < planes(); ++plane) {
    const i64 depth = t_.depth_of(item.image0, plane);
    const bool inside = depth >= 0 && depth < t_.in.d;  // beyond, all of it is padding
    part.height = inside ? t_.in.h : 0;
    part.to = to + plane * at.plane;
    part.from =
        static_cast<const std::byte*>(call.in) +
        t_.in_offset(item.image0, inside ? depth : 0, item.group * t_.in_channels, 0, 0) * size_of(p_.dtype);
    stage_planes(part, t_.in.stride_c, {1, 1, 1, 1, at.channel, at.plane, at.row});
  }
  // What vectors reach beyond the last row's end is multiplied: stale memory may read as denormals.
  const i64 used = planes() * at.plane;
  for (i64 c = 0; c < t_.in_channels; ++c)
    std::fill(to + c * at.channel + used, to + (c + 1) * at.channel, 0.0f);
  std::fill_n(to + t_.in_channels * at.channel, kBeyond, 0.0f);
}

// Of the item that this worker will probably run next: its input, where each channel's is contiguous.
Prefetch PhaseLanes::prefetch(i64 index, const WorkItem& current, const PartCall& call, i64 calls) const {
  if (index >= items() || planes() > 1) return {};
  const WorkItem next = grid_.item(index);
  const i64 depth = t_.depth_of(next.image0, 0);
  const bool other = next.group != current.group || next.image0 != current.image0 ||
                     next.row0 != current.row0 || next.column0 != current.column0;
  if (!other || depth < 0 || depth >= t_.in.d || (next.columns < t_.columns && t_.in.h > 1)) return {};
  const i64 row0 = std::clamp<i64>(next.row0 + t_.min_h(), 0, t_.in.h);
  const i64 row1 = std::clamp<i64>(next.row0 + t_.min_h() + next.rows + t_.extent_h() - 1, row0, t_.in.h);
  i64 column0 = 0, columns = t_.in.w;
  if (next.columns < t_.columns) {
    column0 = std::clamp<i64>(next.column0 + t_.min_w(), 0, t_.in.w);
    columns = std::min(t_.in.w - column0, next.columns + t_.extent_w() - 1);
  }
  const i64 bytes = size_of(p_.dtype);
  const std::byte* const from =
      static_cast<const std::byte*>(call.in) +
      t_.in_offset(next.image0, depth, next.group * t_.in_channels, row0, column0) * bytes;
  return Prefetch({from, t_.in_channels, (row1 - row0) * columns * bytes, t_.in.stride_c * bytes}, calls);
}

// What a tile is stored to: a phase's share of the lines.
BrgemmFetch PhaseLanes::lines_of(const WorkItem& item, const PartCall& call, const Piece& piece,
                                 std::size_t phase) const {
  if (piece.columns <= 0) return {};
  const i64 phases = static_cast<i64>(phases_.size()), f = static_cast<i64>(phase);
  const i64 bytes = size_of(p_.dtype), size = panels_.size(piece.panel);
  const i64 first = size * f / phases, rows = size * (f + 1) / phases - first;
  const i64 stride = t_.out.stride_c * bytes;
  const char* const to = static_cast<const char*>(call.out) + result_offset(item, piece) * bytes;
  const i64 apart = stride % kFetchedLine == 0
                        ? static_cast<i64>(reinterpret_cast<std::uintptr_t>(to) % kFetchedLine)
                        : kFetchedLine - bytes;
  const i64 run = ceil_div(elements_of(item, piece) * bytes + apart, kFetchedLine);
  return {to + first * stride, rows * run, run, run, stride};
}

void PhaseLanes::finish(const WorkItem& item, const PartCall& call, const Piece& piece, const float* sums,
                        i64 width, float* wide) const {
  const Epilogue& e = p_.epilogue;
  const i64 k = item.group * t_.out_channels + panels_.begin(piece.panel);
  const i64 offset = result_offset(item, piece), bytes = size_of(p_.dtype);
  const bool plain = p_.dtype == DType::f32 && call.bias == nullptr && call.residual == nullptr &&
                     e.activation == Activation::none;
  InterleaveCall columns;
  columns.from = sums, columns.from_phase = tile_floats(), columns.from_row = width;
  columns.phases = static_cast<i64>(phases_.size()), columns.rows = panels_.size(piece.panel);
  columns.elements = elements_of(item, piece);
  columns.to = plain ? static_cast<float*>(call.out) + offset : wide;
  columns.to_row = plain ? t_.out.stride_c : width * columns.phases;
  interleave_columns(columns);
  if (plain) return;
  EpilogueCall end;
  end.from = wide, end.from_stride = columns.to_row;
  end.rows = columns.rows, end.columns = columns.elements;
  end.row_bias = call.bias_of(k), end.row_slopes = call.slopes_of(k);
  end.activation = activation_of(e), end.residual_order = e.residual_order;
  end.dtype = p_.dtype, end.to_stride = t_.out.stride_c;
  end.to = static_cast<std::byte*>(call.out) + offset * bytes;
  if (call.residual != nullptr) end.residual = static_cast<const std::byte*>(call.residual) + offset * bytes;
  epilogue_store(end);
}

void PhaseLanes::run(i64 index, const PartCall& call) const {
  const WorkItem item = grid_.item(index);
  const Patch at = patch(item.rows, item.columns);
  ScratchPieces scratch(call.scratch);
  float* const staged = scratch.take<float>(stage_floats(grid_.rows(), grid_.columns()));
  const i64 all_floats = static_cast<i64>(phases_.size()) * tile_floats();
  float* const sums = scratch.take<float>(all_floats);
  float* const wide = scratch.take<float>(all_floats);
  BrgemmSegment* const segments = scratch.take<BrgemmSegment>(2 * taps_);
  stage(item, call, at, staged);
  // Panels come in two sizes: the segments of the larger, then those of the other.
  i64 count = 0;
  for (const TapConvolution& phase : phases_) {
    for (std::size_t tap = 0; tap < phase.taps.size(); ++tap, ++count) {
      const Tap& reads = phase.taps[tap];
      const i64 b = t_.plane_of(reads) * at.plane + (reads.h - t_.min_h()) * at.row + reads.w - t_.min_w();
      const i64 rows = static_cast<i64>(tap) * t_.in_channels;
      new (&segments[count]) BrgemmSegment{rows * panels_.largest(), b};
      new (&segments[taps_ + count]) BrgemmSegment{rows * (panels_.largest() - 1), b};
    }
  }
  const i64 used = pixels(item.rows, item.columns);
  const EvenSplit vectors(ceil_div(used, lanes_), tile_.vectors);
  Prefetch ahead = prefetch(index + 1, item, call,
                            (item.panel1 - item.panel0) * vectors.parts() * static_cast<i64>(phases_.size()));
  BrgemmCall brgemm;
  brgemm.length = t_.in_channels, brgemm.b_step = at.channel;
  const auto tile = [&](i64 part, i64 panel) {
    const i64 begin = vectors.begin(part) * lanes_, width = vectors.size(part) * lanes_;
    const i64 end = std::min(used, begin + width), m = panels_.size(panel);
    // The tile's pixels up to the end of the patch's row.
    const auto piece_at = [&](i64 pixel) {
      const i64 row = pixel / at.row, column = pixel - row * at.row;
      return Piece{panel, row, column, std::min(end - pixel, item.columns - column)};
    };
    brgemm.b = staged + begin, brgemm.columns = static_cast<int>(width);
    brgemm.a_step = m, brgemm.c_row_stride = width;
    i64 taps = 0;
    for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
      const float* const weights =
          call.packed + taps * filter_floats() +
          taps_of(phase) * t_.in_channels * (item.group * t_.out_channels + panels_.begin(panel));
      brgemm.a0 = weights, brgemm.a1 = weights + 7;
      brgemm.segments = segments + (m == panels_.largest() ? 0 : taps_) + taps;
      brgemm.segment_count = taps_of(phase);
      brgemm.c0 = sums + static_cast<i64>(phase) * tile_floats(), brgemm.c1 = brgemm.c0 + 7 * width;
      const i64 steps = taps_of(phase) * t_.in_channels;
      brgemm.near = in_steps(lines_of(item, call, piece_at(begin), phase), steps);
      brgemm.far = ahead.next(steps);
      kernels_[m != panels_.largest()][vectors.size(part) - 1](brgemm);
      taps += taps_of(phase);
    }
    for (i64 pixel = begin; pixel < end;) {
      const Piece piece = piece_at(pixel);
      if (piece.columns > 0) finish(item, call, piece, sums + (pixel - begin), width, wide);
      pixel += at.row - piece.column;
    }
  };
  for (i64 panel0 = item.panel0; panel0 < item.panel1; panel0 += panel_group_) {
    const i64 panel1 = std::min(item.panel1, panel0 + panel_group_);
    for (i64 part = 0; part < vectors.parts(); ++part) {
      for (i64 panel = panel0; panel < panel1; ++panel) tile(part, panel);
    }
  }
}

// A phase's products of a panel as panels are on average, for a tile of so many vectors.
double PhaseLanes::tile_ns(std::size_t phase, int vectors, i64 item_pixels) const {
  constexpr double kTile = 20, kWaitOfATap = 2, kWaitOfSeveral = 6;  // cycles; the latter a line
  const i64 taps = taps_of(phase);
  const double steps = static_cast<double>(taps * t_.in_channels);
  const TileReads reads = taps > 1 ? TileReads::contiguous_split : TileReads::contiguous;
  double ns = 0;
  panels_.each_size([&](i64 rows, i64 count) {
    ns += static_cast<double>(count) * tile_time(reads, static_cast<int>(rows), vectors).of(steps);
  });
  ns = ns / static_cast<double>(panels_.parts()) + kTile * cycle_ns();
  if (item_pixels * t_.in_channels * 4 <= cpu_caches().level1) return ns;
  const double rows = static_cast<double>(panels_.largest()), width = vectors;
  return ns + (taps > 1 ? kWaitOfSeveral : kWaitOfATap) * cycle_ns() * static_cast<double>(lanes_) / 16 *
                  steps * (rows + width) / (rows * width);
}

double PhaseLanes::work_ns() const {
  constexpr double kInterleavedNs = 0.12;  // a float
  const i64 rows = grid_.rows(), columns = grid_.columns(), run = pixels(rows, columns);
  double panel = 0;
  const EvenSplit vectors(ceil_div(run, lanes_), tile_.vectors);
  for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
    vectors.each_size([&](i64 size, i64 count) {
      panel += static_cast<double>(count) * tile_ns(phase, static_cast<int>(size), run);
    });
    panel += kInterleavedNs * static_cast<double>(run * panels_.largest());
  }
  const Patch at = patch(rows, columns);
  const double staged = static_cast<double>(t_.in_channels * planes() * (rows + t_.extent_h() - 1)) *
                        staging_time(Staging::rows).of(static_cast<double>(at.row));
  const double fetched = static_cast<double>(t_.in_channels * planes()) *
                         fetch_time(Staging::rows).of(static_cast<double>(at.plane) / 16);
  const double panels = static_cast<double>(panels_.parts());
  const double panel_parts = static_cast<double>(items() / grid_.pixel_items());
  const double boxes = static_cast<double>(t_.rows * t_.columns * t_.images() * t_.groups) /
                       static_cast<double>(rows * columns);
  constexpr double kSeen = 0.1;  // of what is fetched beside products
  return boxes * (panels * panel + panel_parts * staged + (planes() > 1 ? 1 : kSeen) * fetched) + fetched;
}

}  // namespace

std::unique_ptr<ImplicitGemmPart> make_phase_lanes(const Problem& problem,
                                                   const std::vector<TapConvolution>& phases, TileShape tile,
                                                   int threads) {
  return std::make_unique<PhaseLanes>(problem, phases, tile, threads);
}

}  // namespace faltung
