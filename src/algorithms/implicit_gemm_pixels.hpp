// Implicit GEMM with pixels in the lanes, for nchw: the input is staged as a dense patch with its padding, in
// which a tap is an offset of the vectors.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PIXELS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PIXELS_HPP_

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"

namespace faltung {

class PixelLanes : public ImplicitGemmPart {
 public:
  PixelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads);

  std::int64_t packed_floats() const override {
    return t_.groups * t_.out_channels * taps() * t_.in_channels;
  }
  std::int64_t pack_items() const override {
    return t_.groups * reductions_.parts() * pack_blocks(reductions_.largest());
  }
  void pack(std::int64_t item, const void* w, float* packed) const override;
  std::string packing() const override;
  std::size_t scratch_bytes() const override;
  void run(std::int64_t item, const PartCall& call) const override;
  double work_ns() const override;

 private:
  // Floats beyond the last channel that a vector may reach: a tile's width.
  static constexpr std::int64_t kBeyond = 16 * kBrgemmMaxVectors;

  // A way to divide the work: rows and columns of an item at most, parts of the panels, and of what whole
  // numbers columns are.
  struct Division {
    std::int64_t rows, columns, panel_parts, unit;
  };

  void choose_reductions();
  void choose_items(int threads);
  // Rows one after the other as if they were one, where their ends would leave too many lanes empty.
  bool flat_is_better() const;
  EvenSplit flat_reductions(std::int64_t images) const;
  std::int64_t flat_channel(std::int64_t images) const;  // floats of a staged channel of so many, whole
  // The output's rows of a lone tap follow each other in memory, or its pixels are stored one by one anyway,
  // and their input can be staged so.
  bool rows_join() const;
  void divide_flat(int threads);
  template <class Visit>
  void each_panel_parts(std::int64_t least, std::int64_t pixel_items, int threads, const Visit& visit) const;
  void divide(const Division& division);
  Division best_division(int threads) const;
  // A lone tap's item of so many rows is a run of the input's memory in each channel.
  bool is_a_run(std::int64_t rows) const;
  // Such an item's tiles may read their pixels there, in whole vectors.
  bool may_read_in_place(std::int64_t rows, std::int64_t columns) const;
  // By the cost model: of reading them so, beyond reading copies of them, for so many panels.
  double in_place_ns(std::int64_t rows, std::int64_t columns, double panels) const;
  // By the cost model: an item of so many pixels and panels.
  double item_ns(std::int64_t rows, std::int64_t columns, double panels) const;
  double panel_tile_ns(TileReads reads, int vectors) const;
  double scatter_ns(std::int64_t pixels) const;
  double weights_ns(std::int64_t panels) const;
  double flat_item_ns(std::int64_t images, std::int64_t panels) const;
  double stage_ns(std::int64_t images, std::int64_t rows, std::int64_t columns) const;
  double fetch_ns(std::int64_t images, std::int64_t rows, std::int64_t columns) const;
  double refill_ns(std::int64_t pixels) const;
  // Of an item that takes so long beside its reads of memory, but for the first: with them.
  double with_reads_ns(double item, std::int64_t panels, double fetch, std::int64_t columns) const;
  // An item's pixels are so many lines of so many each, of which tiles take neighbours.
  std::int64_t lines(std::int64_t rows) const { return joined_ ? 1 : rows; }
  std::int64_t line(std::int64_t rows, std::int64_t columns) const {
    return joined_ ? rows * columns : columns;
  }
  EvenSplit tiles(std::int64_t pixels) const { return EvenSplit(ceil_div(pixels, lanes_), tile_.vectors); }
  BrgemmKernel kernel_of(int m, int vectors) const { return kernels_[m != panels_.largest()][vectors - 1]; }
  std::int64_t taps() const { return static_cast<std::int64_t>(t_.taps.size()); }
  std::int64_t planes() const { return static_cast<std::int64_t>(t_.planes().size()); }
  std::int64_t segment_count() const { return 2 * taps(); }
  std::int64_t packed_offset(std::int64_t group, std::int64_t cut, std::int64_t panel) const;
  // Rows and columns of one phase of a patch of so many output rows and columns.
  std::int64_t phase_rows(std::int64_t rows) const;
  std::int64_t phase_columns(std::int64_t columns) const;
  // Distances in a staged patch, in floats: an image's part of each plane that the taps span.
  std::int64_t image_floats(std::int64_t rows, std::int64_t columns) const;
  static std::int64_t channel_floats(std::int64_t floats);
  static constexpr std::int64_t kLineChannels = 8;  // staged as lines before they are staged as tiles
  std::int64_t stage_floats(std::int64_t images, std::int64_t rows, std::int64_t columns) const;
  // Of those that are left of them.
  double steps() const { return share_ * static_cast<double>(taps() * t_.in_channels); }

  void stage(const WorkItem& item, std::int64_t channel0, std::int64_t channels, const PartCall& call,
             float* to, const PhaseStrides& strides) const;
  const float* run_of(const WorkItem& item, std::int64_t cut, const PartCall& call) const;
  void stage_in_tiles(const WorkItem& item, std::int64_t cut, const PartCall& call, float* to,
                      float* lines) const;
  void clear_ends(float* patch, const PhaseStrides& strides) const;
  // Of taps, for panels of either size.
  struct Segments {
    const BrgemmSegment *of_large, *of_small;
    std::int64_t count;
  };
  void run_panels(const WorkItem& item, std::int64_t cut, const PartCall& call, const float* patch,
                  const Segments& segments, Prefetch& ahead) const;
  void run_rows(const WorkItem& item, std::int64_t cut, const PartCall& call, const float* patch,
                const PhaseStrides& strides, const Segments& segments, float* sums, Prefetch& ahead) const;
  void run_flat(const WorkItem& item, std::int64_t cut, const PartCall& call, const float* patch,
                const PhaseStrides& strides, const Segments& segments, float* sums, Prefetch& ahead) const;
  Prefetch prefetch(std::int64_t index, const WorkItem& current, const PartCall& call,
                    std::int64_t calls) const;
  std::int64_t plane_floats(const PhaseStrides& strides) const {
    return phases_h_ * phases_w_ * strides.phase;
  }
  void finish_in_kernel(BrgemmCall& brgemm, const PartCall& call, std::int64_t k, const float* to) const;
  void finish_between(const EpilogueCall& end, const PartCall& call, std::int64_t k,
                      std::int64_t offset) const;
  void finish_phases(const EpilogueCall& end, const PartCall& call, std::int64_t image, std::int64_t k,
                     std::int64_t row, std::int64_t column) const;
  void finish(EpilogueCall& end, const PartCall& call, std::int64_t image, std::int64_t k, std::int64_t row,
              std::int64_t column, std::int64_t further) const;

  TileShape tile_;
  int lanes_ = 1;
  // By whether a panel is one of the smaller, and vectors - 1.
  BrgemmKernel kernels_[2][kBrgemmMaxVectors] = {};
  std::int64_t phases_h_ = 1, phases_w_ = 1;
  EvenSplit panels_;      // of output channels
  EvenSplit reductions_;  // of input channels
  bool flat_ = false, joined_ = false, in_tiles_ = false, in_place_ = false;
  bool in_kernel_ = false;
  bool dense_ = false;       // rows that are flat follow each other in the result, too
  bool depths_end_ = false;  // some images have taps beyond the first depth or the last
  double share_ = 1;         // of taps that are multiplied with, those of rows or depths inside
  std::int64_t row_ = 0, flat_columns_ = 0, stage_floats_ = 0, line_floats_ = 0, sum_floats_ = 0;
  std::int64_t panel_group_ = 1;  // panels whose weights stay in the second-level cache
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PIXELS_HPP_
