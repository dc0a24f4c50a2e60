// The tiles of depthwise_gpu: which serve a problem, how they lie over it, and what they cost.
#ifndef FALTUNG_SRC_ALGORITHMS_DEPTHWISE_GPU_TILE_HPP_
#define FALTUNG_SRC_ALGORITHMS_DEPTHWISE_GPU_TILE_HPP_

#include <optional>
#include <string>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::depthwise {

// lines: results of a row a thread, in any problem and direction. tile: rows x columns of pixels a thread, of
// a vector of channels in nhwc; with an output channel a channel. The pixels are those of y, or of x's
// gradient. walk: such a tile, whose rows a thread has one after the other; without strides down.
enum class Kind { tile, walk, lines };
struct Tile {
  Kind kind;
  int rows, columns, channels;
  template <class Name>
  void spell(Name& name) {
    if (kind == Kind::lines) {
      name.key("ln", columns);
    } else {
      constexpr NameWord<Kind> kKinds[] = {{Kind::walk, "walk"}, {Kind::tile, ""}};
      name.word(kind, kKinds);
      name.key("tt", rows, columns);
      name.optional("v", 1, channels);
    }
  }
};
inline constexpr int kTileThreads = 128;

// A tile over a problem: what kernels/gpu/depthwise_rows.h asks for, and what follows from it.
struct Fit {
  Tile tile;
  int side_by_side;    // threads of a block with neighbouring vectors of channels; each has its own pixels
  int tap_rows;        // of the filter, that are summed at a time
  bool exact;          // the image has whole tiles
  int left, right;     // nchw: columns that are read at once to the tile's left and right,
  int middle, stored;  // between them, and of the pixels
  int ahead;           // rows that are asked for before the first is used
  int rows;            // of the other tensor, that are read for tap_rows
  int row_loads, row_elements;  // of each
  int out_loads;                // of a row of the pixels, by backward_weights
  int registers;                // of a thread, beside addresses
  std::int64_t tiles, chunks;   // of all images; of the channels, each a block's
  std::int64_t tap_groups;      // backward_weights: so many times tap_rows make up the filter
  std::int64_t slices() const { return kTileThreads / side_by_side; }  // tiles of a block
};
// Nothing where the tile does not serve.
std::optional<Fit> fit(const Tile& tile, const Problem& problem, const DeviceInfo& device);
// The #defines that tell a kernel of it.
gpu::Constants constants(const Fit& fit, const Problem& problem);
// backward_weights: among how many blocks the pixels are shared, so that there are enough of them.
std::int64_t splits(const Fit& fit, const DeviceInfo& device);

// Of 16 bits, beyond what the model was fitted to.
inline bool has_large_filter(const Problem& p) { return p.s > 7 && size_of(p.dtype) == 2; }
double predicted_ms(const Fit& fit, const Problem& problem, const Target& target);

}  // namespace faltung::depthwise

#endif  // FALTUNG_SRC_ALGORITHMS_DEPTHWISE_GPU_TILE_HPP_
