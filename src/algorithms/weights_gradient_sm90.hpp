// The choices of Hopper's weights' gradient, and what follows from them.
#ifndef FALTUNG_SRC_ALGORITHMS_WEIGHTS_GRADIENT_SM90_HPP_
#define FALTUNG_SRC_ALGORITHMS_WEIGHTS_GRADIENT_SM90_HPP_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sm90/layout.h"
#include "kernels/sm90/weights_gradient_config.h"
#include "kernels/sm90/weights_gradient_runs.h"
#include "src/algorithms/candidate.hpp"
#include "src/algorithms/sm90/chip.hpp"
#include "src/algorithms/sm90/kernel_config.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung::weights_gradient_sm90 {

using sm90::kSharedLimit;
using sm90::narrow;

// So few channels make more by space-to-depth.
constexpr int kFewChannels = 8;

// deepened: of the problem with blocks of stride x stride pixels as channels (space_to_depth). thinned: of
// the pixels alone that a 1x1 filter with strides takes. widened: with the rows of the output's gradient
// continued by zeros to multiples of 16 bytes, and as much more padding. runs: of the problem itself, where
// those rows are read as runs of their planes.
enum class Form { plain, deepened, thinned, widened, runs };

// Whose rows of the output's gradient are no multiples of 16 bytes, which lines alone serve.
constexpr bool is_of_lines(Form form) { return form == Form::widened || form == Form::runs; }

struct Tile {
  Form form = Form::plain;
  Kind kind = Kind::patch;
  int k = 64, c = 64;                      // of a block's results: output and input channels
  int height = 8, width = 32, images = 1;  // output pixels that are summed at a time
  int stages = 3;                          // buffers of such tiles; lines: of x alone
  int rows = 0;                            // lines: buffers of rows of the output's gradient
  int cluster = 1;                         // blocks that add up their sums before they store them
  Pair pair = Pair::neither;               // what neighbouring blocks bring for each other
  int shares = 1;                          // that the pixels are divided into: blocks to a result

  bool operator==(const Tile&) const = default;
  template <class Name>
  void spell(Name& name);
  // Of each result: what is stored, and summed by a step of its own; 1: the result itself.
  int parts() const { return shares / cluster; }
};
std::string to_string(const Tile& tile);
// Throws Error(bad_problem) that shows the form.
Tile parse_tile(std::string_view name);

// What of the problem is computed: itself, or the inner problem of its rewrite. Listing tiles asks for the
// latter alone.
Rewrite rewritten(const Tile& tile, const Problem& problem);
Problem inner_of(const Tile& tile, const Problem& problem);
// That as the kernel sees it: NHWC where it is turned, channels padded to 16 bytes, and the pixels of
// a 1x1 filter as one row.
Problem seen(const Tile& tile, const Problem& problem);
// Whether a step before the kernel brings x, or the output's gradient, into that form. Here as below who asks
// of many tiles brings what it has seen.
bool turns_x(const Tile& tile, const Problem& problem, const Problem& seen);
bool turns_y(const Tile& tile, const Problem& problem, const Problem& seen);
inline bool turns_x(const Tile& t, const Problem& p) { return turns_x(t, p, seen(t, p)); }
inline bool turns_y(const Tile& t, const Problem& p) { return turns_y(t, p, seen(t, p)); }
// Whether the gradient is made with its channels side by side and turned by a step of its own: a filter of
// NCHW would be written element by element.
bool turns_result(const Tile& tile, const Problem& problem);
// Or else few parts of them are summed so that they are stored as they are.
bool sums_filters(const Tile& tile, const Problem& problem);

// What the kernel is specialised by.
Config config(const Tile& tile, const Problem& problem, const Problem& seen);
inline Config config(const Tile& t, const Problem& p) { return config(t, p, seen(t, p)); }
// Whether its buffers fit in shared memory.
bool has_room(const Config& config);

// How many blocks' results, and tiles of pixels, there are.
struct Counts {
  std::int64_t k = 1, c = 1, taps = 1;            // tiles of results, of merged groups
  std::int64_t groups = 1;                        // how often groups are merged
  std::int64_t across = 1, down = 1, images = 1;  // tiles of pixels
  std::int64_t results() const { return k * c * taps * groups; }
  std::int64_t pixels() const { return across * down * images; }
};
Counts counts(const Tile& tile, const Problem& seen, const Config& config);
inline Counts counts(const Tile& t, const Problem& p) {
  const Problem inner = seen(t, p);
  return counts(t, inner, config(t, p, inner));
}

// Empty if the tile can compute the problem, else which limit it breaks.
std::string unfit(const Tile& tile, const Problem& problem);
// Every tile worth trying.
std::vector<Tile> tiles(const Problem& problem, int multiprocessors);
Cost cost(const Tile& tile, const Problem& problem, const sm90::Chip& chip);

// The parts, then x and the output's gradient where they are turned, and the inner problem's result: where
// these begin, and all of it.
struct Workspace {
  std::size_t x = 0, y = 0, w = 0, bytes = 0;
};
// Of pairs of sums, so many are in each part.
std::int64_t part_pairs_of(const Tile& tile, const Problem& problem, const Problem& seen);
Workspace workspace(const Tile& tile, const Problem& problem);

// The kernel: specialised as the tile, the filter, stride, dilation and dtype say; batch, image and channel
// counts are its arguments.
jit::Source source(const Tile& tile, const Problem& problem);
Recipe recipe(const Tile& tile, const Problem& problem, const DeviceInfo& device);

}  // namespace faltung::weights_gradient_sm90

#endif  // FALTUNG_SRC_ALGORITHMS_WEIGHTS_GRADIENT_SM90_HPP_
