// The ways of bringing pixels, a file bring_<way>.cpp each: whom it serves, its tilings, its part of the
// cost.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_BRING_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_BRING_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/sm90/planes_pixels.h"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/tiling.hpp"

namespace faltung::sm90 {

struct Bringer {
  // Empty, or why it does not bring this problem's pixels so.
  std::string (*unfit)(const Tiling&, const Problem&);
  // Keeps the tiling with as many buffers as fit, in steps that matter. Null: it lists whole tilings.
  void (*fill)(Lister&, Tiling);
  // Cycles in which warps make a tile's pixels ready, beside the copy engine; 0: they do not.
  double (*preparation)(const Tiling&, const Problem&, const Traffic&);
};
const Bringer& bringer(Bring bring);

// Warps round 32-bit pixels where they lie, and write what rounding took away apart; or take 16-bit ones
// through x's scale and shift.
double splitting(const Tiling& tiling, const Problem& problem, const Traffic& traffic);

namespace patch {
std::string unfit(const Tiling& tiling, const Problem& problem);
// The limits of any halo patch.
std::string unfit_patch(const Tiling& tiling, const Problem& problem);
void fill(Lister& lister, Tiling tiling);
void list(Lister& lister, Tiling shape, Sums sums);
}  // namespace patch

namespace im2col {
std::string unfit(const Tiling& tiling, const Problem& problem);
void fill(Lister& lister, Tiling tiling);
double preparation(const Tiling& tiling, const Problem& problem, const Traffic& traffic);
void list(Lister& lister, Tiling shape);
// Tiles of whole images of NCHW, of at most so many pixels.
void list_images(Lister& lister, Tiling shape, int most_pixels);
// More sums than elsewhere, whose stores take turns.
void list_wide(Lister& lister, Tiling shape);
}  // namespace im2col

namespace planes {
std::string unfit(const Tiling& tiling, const Problem& problem);
void fill(Lister& lister, Tiling tiling);
double preparation(const Tiling& tiling, const Problem& problem, const Traffic& traffic);
void list(Lister& lister, Tiling shape);
// Of 32 bits they go through registers, in boxes of kBox pixels; how many these are, of all images.
bool in_registers(const Problem& problem);
std::int64_t boxes(const Problem& problem);
}  // namespace planes

namespace fetch {
std::string unfit(const Tiling& tiling, const Problem& problem);
double preparation(const Tiling& tiling, const Problem& problem, const Traffic& traffic);
void list(Lister& lister);
// All of them, of a problem whose other tilings take another problem.
std::vector<Tiling> tilings(const Problem& problem, const Chip& chip);
void specialise(KernelConfig& config, const Tiling& tiling, const Problem& problem);
// Pixels of the output that a thread loads at once.
int pixels_a_load(const Problem& problem);
}  // namespace fetch

namespace turned {
std::string unfit(const Tiling& tiling, const Problem& problem);
void fill(Lister& lister, Tiling tiling);
double preparation(const Tiling& tiling, const Problem& problem, const Traffic& traffic);
void list(Lister& lister, Tiling shape, Sums sums);
void specialise(KernelConfig& config, const Tiling& tiling, const Problem& problem);
}  // namespace turned

namespace lines {
// Of weights that stay, blocks of channels.
std::int64_t kept_blocks(const Problem& problem);
std::string unfit(const Tiling& tiling, const Problem& problem);
void fill(Lister& lister, Tiling tiling);
double preparation(const Tiling& tiling, const Problem& problem, const Traffic& traffic);
void list(Lister& lister);
}  // namespace lines

namespace shift {
std::string unfit(const Tiling& tiling, const Problem& problem);
void list(Lister& lister);
Estimate estimate(const Tiling& tiling, const Problem& problem, const Chip& chip);
// Windows of a strip.
std::int64_t windows(const Tiling& tiling, const Problem& problem);
// Whether the copy engine stores: the output's rows are multiples of 16 bytes.
bool stores_in_bulk(const Problem& problem);
}  // namespace shift

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_BRING_HPP_
