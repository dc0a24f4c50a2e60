// The two ways that implicit GEMM computes a convolution over taps.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PART_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PART_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/affine.hpp"
#include "kernels/cpu/brgemm.hpp"
#include "src/algorithms/implicit_gemm_grid.hpp"
#include "src/plan/recipe.hpp"

namespace faltung {

// The most rows of a register tile, and its width in vectors.
struct TileShape {
  int rows, vectors;
};

// Of copying a float of the input to where tiles read it, and of packing one of the weights.
inline constexpr double kStagedFloatNs = 0.25, kPackedFloatNs = 0.6;

// What one run hands to its items.
struct PartCall {
  const void* in = nullptr;
  void* out = nullptr;
  const float* bias = nullptr;  // of all output channels, or null
  const void* residual = nullptr;
  const float* slopes = nullptr;  // prelu's, of all output channels
  const float* packed = nullptr;  // this part's
  std::byte* scratch = nullptr;   // this worker's
  std::int64_t first_row = 0;     // of a band: where its first row lies among the image's
  InputAffine affine = {};        // what the input goes through, where it is staged

  // What is of output channels, from one on.
  const float* bias_of(std::int64_t k) const { return bias == nullptr ? nullptr : bias + k; }
  const float* slopes_of(std::int64_t k) const { return slopes == nullptr ? nullptr : slopes + k; }
};

// Pieces of a worker's scratch, one after the other.
class ScratchPieces {
 public:
  explicit ScratchPieces(std::byte* begin) : at_(begin) {}
  template <class T>
  T* take(std::int64_t count) {
    T* const taken = reinterpret_cast<T*>(at_);
    at_ += bytes<T>(count);
    return taken;
  }
  template <class T>
  static std::size_t bytes(std::int64_t count) {
    return aligned(static_cast<std::size_t>(count) * sizeof(T));
  }

 private:
  std::byte* at_;
};

// One convolution over taps, divided into items that are independent of each other. With threads 0 into no
// more than its caches ask for: they are one worker's, one after the other.
class ImplicitGemmPart {
 public:
  ImplicitGemmPart(const Problem& problem, const TapConvolution& convolution)
      : p_(problem), t_(flattened(convolution, problem.layout)), grid_(t_), filter_(problem) {}
  virtual ~ImplicitGemmPart() = default;
  virtual std::int64_t packed_floats() const = 0;
  virtual std::size_t scratch_bytes() const = 0;  // of each worker
  virtual std::int64_t pack_items() const = 0;
  virtual void pack(std::int64_t item, const void* w, float* packed) const = 0;
  // What the order of the packed weights depends on beside the problem's filter, in words.
  virtual std::string packing() const = 0;
  std::int64_t items() const { return grid_.items(); }
  virtual void run(std::int64_t item, const PartCall& call) const = 0;
  // What all items take together, and packing the weights, on one core by the cost model.
  virtual double work_ns() const = 0;
  // The filter, unlike what is read and written, lies as in this layout. Before it is packed.
  void take_filter_in(Layout layout) { filter_.layout = layout; }
  // Of the items' work, the part of whoever is last of so many threads that take them in turn.
  double busiest_share(int threads) const;
  double pack_ns() const { return kPackedFloatNs * static_cast<double>(packed_floats()); }

 protected:
  // Weights are packed a cut of the input channels after the other, in it panels of output channels, in these
  // taps, in these a row of the panel's width for each input channel, with zeros after the last column.
  struct Panel {
    std::int64_t first, columns, width;
  };
  // A block of a cut's rows, which is packed at once: panels of the filter lie side by side in memory, and
  // where its output channels are no neighbours, taps between them.
  static constexpr std::int64_t kPackedRows = 16;
  static std::int64_t pack_blocks(std::int64_t length) { return ceil_div(length, kPackedRows); }
  // first: the cut's first channel; length: its channels; to: where the cut is packed.
  struct PackedBlock {
    std::int64_t group, first, length, block;
    float* to;
  };
  void pack_block(const PackedBlock& block, const std::vector<Tap>& taps, const void* w) const;
  void pack_column_phases(const PackedBlock& block, const void* w) const;
  std::vector<Panel> packed_panels_;  // made by who derives

  const Problem p_;
  const TapConvolution t_;
  WorkGrid grid_;  // divided by who derives

 private:
  Problem filter_;  // p_, in the filter's layout
};

// A tile's columns are output channels, its rows pixels: weights are vectors, inputs are broadcast. Natural
// for nhwc.
std::unique_ptr<ImplicitGemmPart> make_channel_lanes(const Problem& problem,
                                                     const TapConvolution& convolution, TileShape tile,
                                                     int threads);
// A tile's columns are neighbouring pixels, its rows output channels: inputs are vectors, weights are
// broadcast. Natural for nchw.
std::unique_ptr<ImplicitGemmPart> make_pixel_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   TileShape tile, int threads);

// The same of several that write neighbouring columns in turn, side by side.
std::unique_ptr<ImplicitGemmPart> make_phase_lanes(const Problem& problem,
                                                   const std::vector<TapConvolution>& phases, TileShape tile,
                                                   int threads);

// A tile is summed over pairs, in AMX's tile registers or by dot products of AVX-512: bf16 in nhwc, where
// amx_usable() or dot_usable().
enum class PairUnit { amx, dot };
std::unique_ptr<ImplicitGemmPart> make_pair_tiles(const Problem& problem, const TapConvolution& convolution,
                                                  PairUnit unit, int threads);

// Whether the micro-kernel can do the epilogue itself, on its way to memory.
inline bool epilogue_in_kernel(const Problem& p) {
  return p.dtype == DType::f32 && p.epilogue.residual_order == ResidualOrder::before_activation &&
         p.epilogue.activation != Activation::prelu;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PART_HPP_
