// Implicit GEMM with output channels in the lanes, for nhwc: rows of a tile are pixels of one output row (or
// of two, 7 wide), addressed by one stride, so that a tap is an offset.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CHANNELS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CHANNELS_HPP_

#include "kernels/cpu/brgemm.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"

namespace faltung {

class ChannelLanes : public ImplicitGemmPart {
 public:
  ChannelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads);

  std::int64_t packed_floats() const override {
    return t_.groups * channels_padded_ * taps() * t_.in_channels;
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
  // A register tile of an item.
  struct Tile {
    const float *a0, *a1;
    std::int64_t c0, c1;  // offsets in the output, in elements
    std::int64_t sum;     // offset of its unfinished sums, in pixels
    int rows;
    TapConvolution::TapRange taps;  // that it is summed over
    // Tiles from this one on that are alike but for where they lie, as far apart each.
    std::int64_t run = 1;
  };
  // Where taps read their input: distances in floats between the planes that taps span, and an image's, an
  // input row's and a pixel's.
  struct Source {
    const float* first;  // of the item's first output, at the least tap
    std::int64_t plane, image, row, pixel;
  };
  // What the tiles of one item and one cut of the reduction share.
  struct Step {
    const WorkItem& item;
    const PartCall& call;
    std::int64_t cut;
    const float* panels;  // the packed weights of this group and cut
    float* sums;
    BrgemmCall* brgemm;
    const BrgemmSegment* segments[2];  // of each, all taps', `merged` of which are one
    std::int64_t merged;
  };

  double step_ns(int rows, int vectors) const;
  void choose_panels();
  void choose_items(int threads);
  bool shares_pixels() const;
  std::int64_t stage_floats(std::int64_t images, std::int64_t rows, std::int64_t columns) const;
  std::int64_t taps() const { return static_cast<std::int64_t>(t_.taps.size()); }
  std::int64_t planes() const { return static_cast<std::int64_t>(t_.planes().size()); }
  std::int64_t segment_count() const { return 2 * taps(); }
  int panel_vectors(std::int64_t panel) const;
  std::int64_t packed_offset(std::int64_t group, std::int64_t cut, std::int64_t panel) const;
  // Taps side by side in memory, and so in the packed weights, are summed over as if they were one.
  std::int64_t merged_taps(const Source& source, std::int64_t cut) const;

  // From the first plane that taps span to that of this one.
  std::int64_t plane_offset(const Tap& tap, const Source& source) const {
    return (staged_ ? t_.plane_of(tap) : tap.d - t_.planes().front()) * source.plane;
  }
  Source source(const WorkItem& item, std::int64_t cut, const PartCall& call, float* stage) const;
  std::int64_t list_tiles(const WorkItem& item, const Source& source, std::int64_t first_row,
                          Tile* tiles) const;
  static void mark_runs(Tile* tiles, std::int64_t count);
  Stretch ahead(std::int64_t index, const WorkItem& current, const PartCall& call, std::int64_t calls) const;
  // The micro-kernel's call for a tile and a panel, but for what is brought ahead.
  BrgemmCall& set_up(const Tile& tile, std::int64_t panel, const Step& step) const;
  // So many panels from one on of a tile, and so many tiles from one on of a panel; fetched: the lines that
  // they are stored to are on their way.
  void run_panels(const Tile& tile, std::int64_t panel, std::int64_t end, const Step& step, Stretch& ahead,
                  bool fetched) const;
  void run_tiles(const Tile* tiles, std::int64_t count, std::int64_t panel, const Step& step,
                 Stretch& ahead) const;
  void compute(BrgemmCall& brgemm, const Tile& tile, std::int64_t panel, const Step& step) const;

  TileShape tile_;
  int lanes_ = 1;
  std::int64_t panel_width_ = 0, panels_ = 0, channels_padded_ = 0;
  EvenSplit reductions_;              // input channels
  BrgemmKernel kernels_[2][14] = {};  // by whether the panel is the narrower last one, and rows - 1
  bool in_kernel_ = false, few_steps_ = false, weights_stay_ = false, input_stays_ = false;
  bool staged_ = false, pairs_ = false;
  bool joined_ = false;          // rows and images of an item are one row of tiles
  bool depths_end_ = false;      // some images have taps beyond the first depth or the last
  bool tiles_are_runs_ = false;  // each reads one stretch of memory
  bool fetches_stores_ = false;  // a tile's products bring the lines that the next one is stored to
  // Of a tile's panels, those that fetch pixels then: as many as the pixels have of both.
  std::int64_t reading_panels_ = 0;
  std::int64_t pixel_ = 0, sum_stride_ = 0, stage_floats_ = 0, sum_floats_ = 0, max_tiles_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CHANNELS_HPP_
