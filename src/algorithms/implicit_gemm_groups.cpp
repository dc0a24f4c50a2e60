// Implicit GEMM for nhwc with few channels a group, which lie side by side in the lanes: a vector is some
// groups' output channels at a pixel, and of the input the same channels, each spread over its group's lanes.
//
// Rows of a tile are pixels of one output row. Taps side by side share a loaded vector.
#include "src/algorithms/implicit_gemm_groups.hpp"

#include <algorithm>
#include <new>

#include <fmt/core.h>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kSharing = 3;  // taps that share a vector

TapConvolution side_by_side(TapConvolution t) {
  t.in_channels *= t.groups, t.out_channels *= t.groups, t.groups = 1;
  return t;
}

class GroupLanes : public ImplicitGemmPart {
 public:
  GroupLanes(const Problem& problem, const TapConvolution& convolution, int rows, int threads)
      : ImplicitGemmPart(problem, side_by_side(convolution)), rows_(rows), lanes_(brgemm_lanes()) {
    channels_ = t_.in_channels / p_.groups;
    panels_ = ceil_div(t_.out_channels, lanes_);
    in_kernel_ = epilogue_in_kernel(p_);
    sharing_ = tap_rows_are_shared() ? kSharing : 1;
    const i64 step_bytes = t_.in.c * t_.step_w * 4;
    staged_ = p_.dtype != DType::f32 || has_affine(p_) || t_.padded() || t_.in.c % lanes_ != 0 ||
              (step_bytes % 4096 == 0 && t_.columns > 1);
    choose_items(threads);
  }

  i64 packed_floats() const override { return panels_ * panel_floats(); }
  i64 pack_items() const override { return panels_; }
  void pack(i64 item, const void* w, float* packed) const override;
  std::string packing() const override {
    return fmt::format("{}, groups in lanes, {} at once", t_.tap_words(), sharing_);
  }
  std::size_t scratch_bytes() const override {
    return ScratchPieces::bytes<float>(stage_floats_) + ScratchPieces::bytes<BrgemmSegment>(taps());
  }
  void run(i64 item, const PartCall& call) const override;
  double work_ns() const override;

 private:
  // Where taps read their input: distances in floats.
  struct Source {
    const float* first;  // of the item's first output, at the least tap and the item's first channel
    i64 row, pixel;
  };

  i64 taps() const { return static_cast<i64>(t_.taps.size()); }
  i64 panel_floats() const { return taps() * channels_ * lanes_; }
  // The taps come as whole runs of neighbours.
  bool tap_rows_are_shared() const {
    if (t_.step_w != 1 || taps() == 0 || taps() % kSharing != 0) return false;
    for (i64 tap = 0; tap < taps(); ++tap) {
      const Tap &at = t_.taps[static_cast<std::size_t>(tap)],
                &first = t_.taps[static_cast<std::size_t>(tap / kSharing * kSharing)];
      if (at.h != first.h || at.w != first.w + tap % kSharing) return false;
    }
    return true;
  }
  // Of a staged pixel: an odd number of cache lines, so that pixels spread over all of the cache.
  i64 pixel_floats() const { return (ceil_div(grid_.panels() * lanes_, 16) | 1) * 16; }
  i64 stage_floats(i64 rows, i64 columns) const {
    return ((rows - 1) * t_.step_h + t_.extent_h()) * ((columns - 1) * t_.step_w + t_.extent_w()) *
           pixel_floats();
  }
  void choose_items(int threads);
  Source source(const WorkItem& item, const PartCall& call, float* stage) const;
  void run_tile(BrgemmCall& brgemm, const PartCall& call, i64 panel, i64 out, int rows) const;

  int rows_, lanes_;
  i64 channels_ = 1, panels_ = 1, sharing_ = 1, stage_floats_ = 0;
  bool in_kernel_ = false, staged_ = false;
};

void GroupLanes::choose_items(int threads) {
  constexpr i64 kPixels = 16 * 14;
  grid_.divide_images(1);
  if (t_.columns > 4 * kPixels) grid_.divide_columns(kPixels / rows_ * rows_, rows_);
  grid_.divide_panels(panels_, 1, 0);
  // A patch stays in the second-level cache, with room for what comes next.
  const i64 most = cpu_caches().level2 / 8 / 4;
  i64 rows = std::clamp<i64>(4 * kPixels / grid_.columns(), 1, t_.rows);
  while (rows > 1 && staged_ && stage_floats(rows, grid_.columns()) > most) --rows;
  grid_.divide_rows(rows);
  const i64 parts = staged_ ? ceil_div(stage_floats(rows, grid_.columns()), most) : 1;
  grid_.divide_panels(panels_, parts, threads);
  stage_floats_ = staged_ ? stage_floats(grid_.rows(), grid_.columns()) : 0;
}

void GroupLanes::pack(i64 panel, const void* w, float* packed) const {
  const i64 columns = std::min<i64>(lanes_, t_.out_channels - panel * lanes_);
  for (i64 tap = 0; tap < taps(); ++tap) {
    const Tap& at = t_.taps[static_cast<std::size_t>(tap)];
    const FilterView view = filter_view(p_, at, 0);
    const i64 group = filter_view(p_, at, 1).base - view.base;
    i64 from[16];
    for (i64 lane = 0; lane < columns; ++lane) {
      const i64 k = panel * lanes_ + lane;
      from[lane] = view.base + k / channels_ * group + k % channels_ * view.k_stride;
    }
    // [run of taps][channel][tap][lane]
    float* to =
        packed + panel * panel_floats() + (tap / sharing_ * sharing_ * channels_ + tap % sharing_) * lanes_;
    for (i64 i = 0; i < channels_; ++i, to += sharing_ * lanes_) {
      if (p_.dtype == DType::f32) {
        const float* const floats = static_cast<const float*>(w) + i * view.c_stride;
        for (i64 lane = 0; lane < columns; ++lane) to[lane] = floats[from[lane]];
      } else {
        for (i64 lane = 0; lane < columns; ++lane)
          to[lane] = load_element(p_.dtype, w, from[lane] + i * view.c_stride);
      }
      std::fill(to + columns, to + lanes_, 0.0f);
    }
  }
}

double GroupLanes::work_ns() const {
  const EvenSplit split(grid_.columns(), rows_);
  // A vector is loaded and spread for the taps that share it.
  const double rows = static_cast<double>(split.largest()), shared = static_cast<double>(sharing_);
  const double spreads = channels_ == lanes_ ? 0 : rows + shared - 1;
  const double steps = static_cast<double>(taps() / sharing_ * channels_);
  const double tile = steps * (rows * shared + spreads) * cycle_ns() / 2 + 20;
  const double tiles = static_cast<double>(split.parts() * grid_.column_parts().parts() * t_.rows * panels_) *
                       static_cast<double>(t_.images());
  return tiles * tile + static_cast<double>(stage_floats_ * items()) * kStagedFloatNs;
}

GroupLanes::Source GroupLanes::source(const WorkItem& item, const PartCall& call, float* stage) const {
  const i64 row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  const i64 column0 = item.column0 * t_.step_w + t_.min_w(), channel = item.panel0 * lanes_;
  if (!staged_) {
    const float* in = static_cast<const float*>(call.in);
    return {in + t_.in_offset(item.image0, 0, channel, row0, column0), t_.in.stride_h, t_.in.stride_w};
  }
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from = static_cast<const std::byte*>(call.in) +
               t_.in_offset(item.image0, 0, channel, 0, 0) * size_of(p_.dtype);
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = row0, patch.rows = (item.rows - 1) * t_.step_h + t_.extent_h();
  patch.column0 = column0, patch.columns = (item.columns - 1) * t_.step_w + t_.extent_w();
  patch.channels = std::min(item.panel1 * lanes_, t_.in_channels) - channel;
  patch.affine = call.affine.from(channel);
  patch.to = stage;
  const Source source{stage, patch.columns * pixel_floats(), pixel_floats()};
  // Lanes beyond the last channel are read, too.
  if (patch.channels % lanes_ != 0) std::fill_n(stage, patch.rows * source.row, 0.0f);
  stage_pixels(patch, t_.in.stride_w, source.row, source.pixel);
  return source;
}

void GroupLanes::run_tile(BrgemmCall& brgemm, const PartCall& call, i64 panel, i64 out, int rows) const {
  const i64 k = panel * lanes_, columns = std::min<i64>(lanes_, t_.out_channels - k);
  const i64 pixel = t_.out.stride_w * t_.out_step_w;
  const float* const bias = call.bias_of(k);
  brgemm.columns = static_cast<int>(columns);
  const BrgemmKernel kernel = brgemm_group_kernel(rows, static_cast<int>(sharing_));
  if (in_kernel_) {
    brgemm.c0 = static_cast<float*>(call.out) + out, brgemm.c_row_stride = pixel;
    brgemm.c1 = brgemm.c0 + 7 * pixel;
    brgemm.column_bias = bias;
    if (call.residual != nullptr) {
      brgemm.residual0 = static_cast<const float*>(call.residual) + out;
      brgemm.residual1 = brgemm.residual0 + 7 * pixel;
    }
    brgemm.activation = activation_of(p_.epilogue);
    return kernel(brgemm);
  }
  alignas(64) float finished[14 * 16];
  brgemm.c0 = finished, brgemm.c1 = finished + 7 * lanes_, brgemm.c_row_stride = lanes_;
  kernel(brgemm);
  EpilogueCall end;
  end.from = finished, end.from_stride = lanes_;
  end.rows = rows, end.columns = columns;
  end.column_bias = bias, end.column_slopes = call.slopes_of(k);
  end.activation = activation_of(p_.epilogue);
  end.residual_order = p_.epilogue.residual_order;
  const i64 to = out * size_of(p_.dtype);
  if (call.residual != nullptr) end.residual = static_cast<const std::byte*>(call.residual) + to;
  end.dtype = p_.dtype, end.to_stride = pixel;
  end.to = static_cast<std::byte*>(call.out) + to;
  epilogue_store(end);
}

void GroupLanes::run(i64 index, const PartCall& call) const {
  const WorkItem item = grid_.item(index);
  ScratchPieces scratch(call.scratch);
  float* const stage = scratch.take<float>(stage_floats_);
  BrgemmSegment* const segments = scratch.take<BrgemmSegment>(taps());
  const Source from = source(item, call, stage);
  for (i64 tap = 0; tap < taps(); tap += sharing_) {
    const Tap& at = t_.taps[static_cast<std::size_t>(tap)];
    new (&segments[tap / sharing_]) BrgemmSegment{
        (at.h - t_.min_h()) * from.row + (at.w - t_.min_w()) * from.pixel, tap * channels_ * lanes_};
  }
  BrgemmCall brgemm;
  brgemm.segments = segments, brgemm.segment_count = taps() / sharing_;
  brgemm.length = channels_;
  brgemm.a_row_stride = from.pixel * t_.step_w;
  const EvenSplit split(item.columns, rows_);
  for (i64 row = 0; row < item.rows; ++row) {
    for (i64 part = 0; part < split.parts(); ++part) {
      const float* const a =
          from.first + row * t_.step_h * from.row + split.begin(part) * t_.step_w * from.pixel;
      for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
        brgemm.a0 = a + (panel - item.panel0) * lanes_;
        brgemm.b = call.packed + panel * panel_floats();
        run_tile(
            brgemm, call, panel,
            t_.out_offset(item.image0, panel * lanes_, item.row0 + row, item.column0 + split.begin(part)),
            static_cast<int>(split.size(part)));
      }
    }
  }
}

}  // namespace

bool groups_fit_lanes(const Problem& p) {
  const i64 channels = p.c / p.groups, lanes = brgemm_lanes();
  return p.layout == Layout::nhwc && is_plain(p) && p.groups > 1 && p.k == p.c && channels > 1 &&
         lanes % channels == 0 && p.direction != Direction::backward_weights;
}

std::unique_ptr<ImplicitGemmPart> make_group_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   int rows, int threads) {
  return std::make_unique<GroupLanes>(problem, convolution, rows, threads);
}

}  // namespace faltung
