// Implicit GEMM of bf16 pairs in nhwc, on AMX's tile registers or by AVX-512's dot product: two groups of up
// to 16 or 7 pixels times 32 output channels.
//
// A group's pixels lie at one stride, so that a tap is an offset. The reduction goes in steps of 32 channels,
// or of 2; fewer are staged with zeros up to there. Where there are few channels (an image's three), a staged
// pixel holds all taps of a filter row beside each other, so that a step is not mostly zeros.
#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/core.h>

#include "kernels/cpu/brgemm_amx.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_pairs.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr PairTile kAmx{kAmxRows, 2 * kAmxLength, 2}, kDot{kDotRows, 2, 1.25};

constexpr i64 kStageBytes = 512 << 10;  // of an item's input: with a panel of weights it stays in L2
constexpr i64 kItemPixels = 512;        // so many that reading a panel's weights is small beside using them

// Up to 16 pixels at one stride.
struct Group {
  const std::uint16_t* a;  // the first pixel at the least tap
  i64 image, row, column;  // of the output, within the item; column counts positions, see Flat below
  int pixels;
};

class PairTiles : public ImplicitGemmPart {
 public:
  PairTiles(const Problem& problem, const TapConvolution& convolution, PairUnit unit, int threads)
      : ImplicitGemmPart(problem, convolution),
        unit_(unit),
        u_(unit == PairUnit::amx ? kAmx : kDot),
        s_(pair_pixels(t_, u_)) {
    simple_ = (p_.epilogue.activation == Activation::none || p_.epilogue.activation == Activation::relu) &&
              p_.epilogue.residual_order == ResidualOrder::before_activation;
    choose_items(threads);
  }

  i64 packed_floats() const override { return t_.groups * panels_ * panel_words(); }
  i64 pack_items() const override { return t_.groups * panels_; }
  std::size_t scratch_bytes() const override {
    return ScratchPieces::bytes<std::uint16_t>(stage_elements_) + ScratchPieces::bytes<Group>(max_groups_) +
           ScratchPieces::bytes<BrgemmSegment>(taps()) +
           ScratchPieces::bytes<float>(2 * kAmxRows * kPairColumns);
  }
  std::string packing() const override {
    return fmt::format("{}{}, pixels of {}", t_.tap_words(), s_.merges ? " by rows" : "", s_.pixel);
  }

  void pack(i64 item, const void* w, float* packed) const override;
  void run(i64 item, const PartCall& call) const override;

  double work_ns() const override {
    const double steps = static_cast<double>(taps()) * static_cast<double>(s_.pixel / u_.step);
    const double pixels = static_cast<double>(t_.in.n * t_.rows * t_.columns);
    // A step of a full tile is four products of 16 cycles; loads from L2 cost about as much again. A tile's
    // epilogue is some 300 cycles.
    const double tile = unit_ == PairUnit::amx ? cycle_ns() * (steps * 100 + 300) : dot_tile_time().of(steps);
    return tile * share_ * pixels / (2 * u_.rows * fill_) * static_cast<double>(panels_ * t_.groups);
  }

 private:
  i64 taps() const { return static_cast<i64>(s_.taps.size()); }
  i64 panel_words() const { return taps() * s_.pixel / 2 * kPairColumns; }
  int panel_columns(i64 panel) const {
    return static_cast<int>(std::min<i64>(kPairColumns, t_.out_channels - panel * kPairColumns));
  }

  // Staged columns: with merged taps one an output, otherwise one an input.
  i64 stage_columns(i64 columns) const {
    return s_.merges ? columns : (columns - 1) * t_.step_w + t_.extent_w();
  }
  i64 stage_rows(i64 rows) const { return (rows - 1) * t_.step_h + t_.extent_h(); }

  void choose_items(int threads) {
    panels_ = ceil_div(t_.out_channels, kPairColumns);
    i64 columns = t_.columns;
    if (columns > 2 * kItemPixels) columns = kItemPixels;
    const auto bytes = [&](i64 rows) { return stage_rows(rows) * stage_columns(columns) * s_.pitch * 2; };
    while (columns > 16 && s_.staged && bytes(1) > kStageBytes) columns = ceil_div(columns, 2);
    columns = columns < t_.columns ? round_up(columns, 16) : t_.columns;
    grid_.divide_columns(std::min(columns, t_.columns));
    columns = grid_.columns();
    grid_.divide_images(1);
    i64 rows = std::clamp<i64>(kItemPixels / columns, 1, t_.rows);
    while (rows > 1 && s_.staged && bytes(rows) > kStageBytes) --rows;
    // Few items leave workers idle: smaller ones, then parts of the channels.
    while (rows > 1 && grid_.pixel_items() * ceil_div(t_.rows, rows) < 2 * threads &&
           (rows - 1) * columns >= 32) {
      --rows;
    }
    grid_.divide_rows(rows);
    grid_.divide_panels(panels_, 1, threads);
    rows = grid_.rows();
    few_steps_ = taps() * s_.pixel / 2 <= kFewStepsOfPixels / 4;
    stage_elements_ = s_.staged ? bytes(rows) / 2 : 0;

    // Positions of a short row leave most of a group empty. Where a row's last position and the next row's
    // first are at the same stride too, groups may run over the rows' ends, at the price of positions that
    // are no output.
    const i64 across = s_.staged ? stage_columns(columns) : t_.in.w;
    // Of AMX a tile takes as long whatever it holds; of dot products as many chains as their latency hides.
    const i64 least = unit_ == PairUnit::amx ? u_.rows : 2;
    const i64 groups = ceil_div(t_.columns, u_.rows) * least;
    const double by_row = static_cast<double>(t_.columns) / static_cast<double>(std::max(groups, t_.columns));
    const double flat = static_cast<double>(t_.columns) / static_cast<double>(across);
    const bool uniform = t_.step_h == 1 && (s_.merges || t_.step_w == 1);
    flat_ = uniform && rows > 1 && columns == t_.columns && flat > by_row;
    row_positions_ = flat_ ? across : 0;
    fill_ = flat_ ? flat : by_row;
    // Of rows that read padding, some taps are left out of a tile that they fill. Rows of one group are taken
    // of two images, those that leave out the same.
    leaves_out_ = unit_ == PairUnit::dot && !flat_ && !s_.merges && t_.share_of_rows() < 1;
    const i64 groups_of_row = ceil_div(t_.columns, u_.rows);
    if (leaves_out_ && groups_of_row == 1 && t_.in.n > 1) {
      images_ = 2;
      grid_.divide_images(images_);
      grid_.divide_panels(panels_, 1, threads);
    }
    if (leaves_out_ && (images_ == 2 || groups_of_row % 2 == 0)) share_ = t_.share_of_rows();
    stage_elements_ *= images_;
    max_groups_ = images_ * rows * ceil_div(std::max(columns, row_positions_), u_.rows) + 1;
  }

  // An input row's and a pixel's distance in elements, from the item's first output at the least tap.
  struct Source {
    const std::uint16_t* first;
    i64 image, row, pixel;
  };
  Source stage(const WorkItem& item, const PartCall& call, std::uint16_t* to) const;
  void stage_inside(const std::uint16_t* row, i64 column, i64 step, i64 count, std::uint16_t* to) const;
  void stage_edge(const std::uint16_t* row, i64 column, std::uint16_t* to) const;
  i64 list_groups(const WorkItem& item, const Source& source, Group* groups) const;
  // Output pixels side by side.
  struct Run {
    i64 image, row, column, pixels;
  };
  PairStore store_of(const WorkItem& item, const Run& run, i64 panel, const PartCall& call) const;
  void finish(const WorkItem& item, const Group& group, i64 panel, const float* sums,
              const PartCall& call) const;

  const PairUnit unit_;
  const PairTile u_;
  const PairPixels s_;
  bool simple_ = false;  // an end that store_pairs can do
  bool few_steps_ = false, leaves_out_ = false;
  bool flat_ = false;
  i64 row_positions_ = 0;  // if flat_: positions from one row to the next
  double fill_ = 1;        // share of a group's rows that are outputs
  double share_ = 1;       // of taps that are multiplied with
  i64 images_ = 1;         // of an item, at most
  i64 panels_ = 0, stage_elements_ = 0, max_groups_ = 0;
};

void PairTiles::pack(i64 item, const void* w, float* packed) const {
  const i64 panel = item % panels_, group = item / panels_;
  auto* to = reinterpret_cast<std::uint32_t*>(packed) + item * panel_words();
  PairPack call;
  call.columns = panel_columns(panel);
  for (const StagedTap& staged : s_.taps) {
    const i64 channels = static_cast<i64>(staged.parts.size()) * t_.in_channels;
    // A channel's weights; null beyond the last.
    const auto row = [&](i64 c) -> const std::uint16_t* {
      if (c >= channels) return nullptr;
      const FilterView view =
          filter_view(p_, staged.parts[static_cast<std::size_t>(c / t_.in_channels)], group);
      call.column_stride = view.k_stride;
      return static_cast<const std::uint16_t*>(w) + view.base + c % t_.in_channels * view.c_stride +
             panel * kPairColumns * view.k_stride;
    };
    for (i64 c = 0; c < s_.pixel; c += 2, to += kPairColumns) {
      call.low = row(c), call.high = row(c + 1), call.to = to;
      pack_pairs(call);
    }
  }
}

PairTiles::Source PairTiles::stage(const WorkItem& item, const PartCall& call, std::uint16_t* to) const {
  const auto* from = static_cast<const std::uint16_t*>(call.in);
  const i64 channel = item.group * t_.in_channels;
  const i64 row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  const i64 column0 = item.column0 * t_.step_w + t_.min_w();
  if (!s_.staged)
    return {from + t_.in.offset(item.image0, channel, row0, column0), t_.in.stride_n, t_.in.stride_h,
            t_.in.stride_w};
  const i64 rows = stage_rows(item.rows), columns = stage_columns(item.columns);
  // What a staged pixel is made of: with merged taps those of the filter row, else the pixel itself.
  const i64 step = s_.merges ? t_.step_w : 1, window = s_.merges ? t_.extent_w() : 1;
  // Pixels whose window lies within the row: [inside0, inside1).
  const i64 inside0 = std::clamp<i64>(ceil_div(std::max<i64>(-column0, 0), step), 0, columns);
  const i64 last = t_.in.w - window - column0;  // the last offset whose window does
  const i64 inside1 = last < 0 ? inside0 : std::clamp(last / step + 1, inside0, columns);
  for (i64 i = 0; i < item.images * rows; ++i) {
    if (i % rows % t_.step_h >= t_.extent_h()) continue;  // between what is read
    const i64 row = row0 + i % rows;
    std::uint16_t* const line = to + i * columns * s_.pitch;
    if (row < 0 || row >= t_.in.h) {
      std::memset(line, 0, static_cast<std::size_t>(columns * s_.pitch) * 2);
      continue;
    }
    const std::uint16_t* const image_row = from + t_.in.offset(item.image0 + i / rows, channel, row, 0);
    for (i64 j = 0; j < inside0; ++j) stage_edge(image_row, column0 + j * step, line + j * s_.pitch);
    stage_inside(image_row, column0 + inside0 * step, step, inside1 - inside0, line + inside0 * s_.pitch);
    for (i64 j = inside1; j < columns; ++j) stage_edge(image_row, column0 + j * step, line + j * s_.pitch);
  }
  return {to, rows * columns * s_.pitch, columns * s_.pitch, s_.pitch};
}

// count pixels whose taps all lie within the row, the first at column.
void PairTiles::stage_inside(const std::uint16_t* row, i64 column, i64 step, i64 count,
                             std::uint16_t* to) const {
  const i64 neighbour = t_.in.stride_w;
  if (!s_.merges || (t_.in.c == t_.in_channels && s_.merges_neighbours)) {
    const i64 elements = s_.merges ? t_.extent_w() * t_.in_channels : t_.in_channels;
    stage_pairs(row + column * neighbour, step * neighbour, elements, count, to, s_.pixel, s_.pitch);
    return;
  }
  for (i64 j = 0; j < count; ++j) stage_edge(row, column + j * step, to + j * s_.pitch);
}

// One pixel, some of whose taps may lie outside of the row.
void PairTiles::stage_edge(const std::uint16_t* row, i64 column, std::uint16_t* to) const {
  const std::size_t part_bytes = static_cast<std::size_t>(t_.in_channels) * 2;
  const i64 parts = s_.merges ? static_cast<i64>(s_.taps[0].parts.size()) : 1;
  std::memset(to, 0, static_cast<std::size_t>(s_.pixel) * 2);
  for (i64 part = 0; part < parts; ++part) {
    const i64 at = column + (s_.merges ? s_.taps[0].parts[static_cast<std::size_t>(part)].w - t_.min_w() : 0);
    if (at < 0 || at >= t_.in.w) continue;
    std::memcpy(to + part * t_.in_channels, row + at * t_.in.stride_w, part_bytes);
  }
}

i64 PairTiles::list_groups(const WorkItem& item, const Source& source, Group* groups) const {
  i64 count = 0;
  const i64 step = source.pixel * (s_.merges ? 1 : t_.step_w);
  const auto add = [&](i64 image, i64 row, i64 positions) {
    const EvenSplit split(positions, u_.rows);
    for (i64 part = 0; part < split.parts(); ++part) {
      const std::uint16_t* a =
          source.first + image * source.image + row * t_.step_h * source.row + split.begin(part) * step;
      new (&groups[count++])
          Group{a, item.image0 + image, row, split.begin(part), static_cast<int>(split.size(part))};
    }
  };
  if (flat_) {
    add(0, 0, (item.rows - 1) * row_positions_ + item.columns);
  } else {
    for (i64 row = 0; row < item.rows; ++row) {
      for (i64 image = 0; image < item.images; ++image) add(image, row, item.columns);
    }
  }
  return count;
}

// To where a panel's sums of so many pixels of a row go, with an end that store_pairs can do.
PairStore PairTiles::store_of(const WorkItem& item, const Run& run, i64 panel, const PartCall& call) const {
  const i64 first = item.group * t_.out_channels + panel * kPairColumns;
  const i64 to = t_.out.offset(run.image, first, t_.out_h0 + (item.row0 + run.row) * t_.out_step_h,
                               t_.out_w0 + (item.column0 + run.column) * t_.out_step_w);
  PairStore store;
  store.rows = static_cast<int>(run.pixels), store.columns = panel_columns(panel);
  store.bias = call.bias_of(first);
  if (call.residual != nullptr) store.residual = static_cast<const std::uint16_t*>(call.residual) + to;
  store.relu = p_.epilogue.activation == Activation::relu;
  store.to = static_cast<std::uint16_t*>(call.out) + to;
  store.to_stride = t_.out.stride_w * t_.out_step_w;
  return store;
}

// Stores a group's sums: runs of positions that are outputs, each of one output row.
void PairTiles::finish(const WorkItem& item, const Group& group, i64 panel, const float* sums,
                       const PartCall& call) const {
  for (i64 begin = 0; begin < group.pixels;) {
    i64 row = group.row, column = group.column + begin, run = group.pixels - begin;
    if (flat_) {
      row += column / row_positions_, column %= row_positions_;
      if (column >= item.columns) {
        begin += row_positions_ - column;
        continue;
      }
      run = std::min(run, item.columns - column);
    }
    PairStore store = store_of(item, {group.image, row, column, run}, panel, call);
    store.from = sums + begin * kPairColumns;
    begin += run;
    if (simple_) {
      store_pairs(store);
      continue;
    }
    EpilogueCall end;
    end.from = store.from, end.from_stride = kPairColumns, end.rows = run, end.columns = store.columns;
    end.column_bias = store.bias, end.residual = store.residual;
    end.column_slopes = call.slopes_of(item.group * t_.out_channels + panel * kPairColumns);
    end.activation = activation_of(p_.epilogue);
    end.residual_order = p_.epilogue.residual_order;
    end.dtype = p_.dtype, end.to = store.to, end.to_stride = store.to_stride;
    epilogue_store(end);
  }
}

void PairTiles::run(i64 index, const PartCall& call) const {
  const WorkItem item = grid_.item(index);
  ScratchPieces scratch(call.scratch);
  auto* const staged = scratch.take<std::uint16_t>(stage_elements_);
  auto* const groups = scratch.take<Group>(max_groups_);
  auto* const segments = scratch.take<BrgemmSegment>(taps());
  auto* const sums = scratch.take<float>(2 * kAmxRows * kPairColumns);

  const Source source = stage(item, call, staged);
  const i64 count = list_groups(item, source, groups);
  for (std::size_t tap = 0; tap < s_.taps.size(); ++tap) {
    const i64 a = (s_.taps[tap].h - t_.min_h()) * source.row + (s_.taps[tap].w - t_.min_w()) * source.pixel;
    new (&segments[tap]) BrgemmSegment{a / 2, static_cast<i64>(tap) * s_.pixel / 2 * kPairColumns};
  }
  BrgemmCall brgemm;
  brgemm.a_row_stride = source.pixel * (s_.merges ? 1 : t_.step_w) / 2;
  brgemm.b_step = kPairColumns;
  brgemm.segments = segments, brgemm.segment_count = taps(), brgemm.length = s_.pixel / 2;
  brgemm.c0 = sums, brgemm.c1 = sums + u_.rows * kPairColumns, brgemm.c_row_stride = kPairColumns;
  AmxThread amx;
  const bool at_once = unit_ == PairUnit::dot && simple_ && !flat_;  // from registers to where they go
  const auto run_tile = [&](i64 panel, i64 first) {
    const Group* const two = groups + first;
    const int rows0 = two[0].pixels, rows1 = first + 1 < count ? two[1].pixels : 0;
    brgemm.b = call.packed + (item.group * panels_ + panel) * panel_words();
    brgemm.columns = panel_columns(panel);
    brgemm.a0 = two[0].a, brgemm.a1 = rows1 > 0 ? two[1].a : nullptr;
    if (leaves_out_) {
      const i64 row0 = call.first_row + item.row0;
      TapConvolution::TapRange inside = t_.taps_inside(row0 + two[0].row);
      const TapConvolution::TapRange others = t_.taps_inside(row0 + two[rows1 > 0 ? 1 : 0].row);
      inside = {std::min(inside.first, others.first), std::max(inside.end, others.end)};
      brgemm.segments = segments + inside.first, brgemm.segment_count = inside.end - inside.first;
    }
    if (unit_ == PairUnit::amx) {
      amx.run(brgemm, rows0, rows1);
    } else {
      PairStore ends[2];
      for (int g = 0; at_once && g < (rows1 > 0 ? 2 : 1); ++g)
        ends[g] = store_of(item, {two[g].image, two[g].row, two[g].column, two[g].pixels}, panel, call);
      if (at_once &&
          few_steps_) {  // each step brings a pixel's line that a tile behind this one is stored to
        brgemm.ahead = ends[0].to + (rows0 + rows1) * ends[0].to_stride;
        brgemm.ahead_step = 2 * ends[0].to_stride;
      }
      brgemm_dot(brgemm, rows0, rows1, at_once ? ends : nullptr);
      if (at_once) return;
    }
    finish(item, two[0], panel, sums, call);
    if (rows1 > 0) finish(item, two[1], panel, sums + u_.rows * kPairColumns, call);
  };
  for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
    for (i64 i = 0; i < count; i += 2) run_tile(panel, i);
  }
}

}  // namespace

std::unique_ptr<ImplicitGemmPart> make_pair_tiles(const Problem& problem, const TapConvolution& convolution,
                                                  PairUnit unit, int threads) {
  return std::make_unique<PairTiles>(problem, convolution, unit, threads);
}

}  // namespace faltung
