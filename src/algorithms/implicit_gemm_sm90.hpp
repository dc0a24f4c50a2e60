// The choices of Hopper's implicit GEMM, and what follows from them.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/problem/problem.hpp"

namespace faltung::sm90 {

// A tile of the output: channels by pixels; see kernels/sm90/implicit_gemm.cu and, for shift, shift_gemm.cu.
struct Tiling {
  bool im2col = false;         // the copy engine gathers pixels a tap at a time; else halo patches
  bool planes = false;         // as im2col, from NCHW as it is: 1x1 filters alone
  bool fetch = false;          // as planes, brought by warps: any plane, stride and number of images a tile
  bool turned = false;         // as patch, from NCHW as it is: turned on the way to shared memory
  bool shift = false;          // NCHW as it is, by windows of width x height: sums for each horizontal tap
  bool pixels_on_m = false;    // which operand has wgmma's M side; else the weights
  bool cooperative = false;    // two consumers share a tile; else one each, in turn
  bool resident = false;       // the weights are loaded once a block
  bool direct = false;         // 32-bit NHWC by ordinary stores: no shared memory to stage a tile
  int channels = 64;           // output channels of a tile
  int width = 8, height = 32;  // output pixels of a tile; with im2col width counts them all, height is 1
  int k_block = 64;            // input channels at a time
  int slots = 2, stages = 8;   // of pixels and of weights in shared memory
  int raws = 0;                // turned: patches of NCHW in shared memory; 0 they are read as they are turned
  int staged = 0;              // pixels on M: stores of a tile that have room in shared memory; 0 all of them
  int split = 1;               // blocks that share the sum over the channels of a tile, a cluster

  int pixels() const { return width * height; }
  int m() const { return pixels_on_m ? pixels() : channels; }
  int m_blocks() const { return shift ? 1 : m() / 64 / (cooperative ? 2 : 1); }  // a consumer's
  int n_blocks() const { return shift || pixels_on_m || im2col ? 1 : width / 8; }
  int n() const { return shift ? pixels() / 2 : (pixels_on_m ? channels : pixels()) / n_blocks(); }
  // Channels a store of 16-bit elements, with pixels on M.
  int unit() const { return n() % 64 == 0 ? 64 : n() % 32 == 0 ? 32 : n() % 16 == 0 ? 16 : 8; }
};

// patch_64x8x32_k64_pp_s2_w8, im2col_128x256_k64_co_s4, planes_64x256_k64_pp_s4,
// patch_160x8x16_k64_co_px_s2_w8, patch_64x8x32_k64_pp_s2_wr, shift_64x64x4_k64_pp_s2_wr,
// fetch_128x96_k64_co_s6, turned_64x16x8_k32_pp_s2_w4_r2, turned_64x16x16_k32_pp_s2_w9,
// im2col_160x256_k64_co_px_s3_u2, patch_64x16x16_k32_pp_s2_w12_ds, patch_64x8x16_k32_co_px_s2_w9_sk8,
// planes_160x128_k64_pp_px_s4
std::string to_string(const Tiling& tiling);
// Throws Error(bad_problem) that shows the form.
Tiling parse_tiling(std::string_view name);

// Bytes of shared memory that a block may have.
constexpr int kSharedLimit = 232448;
// What the rest of 256 KB is to the cache that loads of threads go through comes in steps: of it, so much to
// a block.
constexpr int kSharedSteps[] = {195 * 1024, 163 * 1024, 131 * 1024};

// C as the kernel sees it: the copy engine takes pixels of a multiple of 16 bytes.
std::int64_t padded_channels(const Problem& problem);
// How 32-bit elements are multiplied: 0 they are not, 1 rounded to tf32, 2 as high and low parts.
int tf32_parts(const Problem& problem);
// Whether warps of their own make pixels ready for the matrix units; else the copy engine rounds 32-bit ones.
bool prepares(const Tiling& tiling, const Problem& problem);
// Threads of a block.
int threads(const Tiling& tiling, const Problem& problem);
// Whether the input is brought into the form that the kernel reads by a step before it.
bool turns_input(const Tiling& tiling, const Problem& problem);
int shared_bytes(const Tiling& tiling, const Problem& problem);
// Of the pixels that a tile takes for a block of channels, of one part; and the rows of a halo patch.
int slot_bytes(const Tiling& tiling, const Problem& problem);
std::int64_t patch_height(const Tiling& tiling, const Problem& problem);
std::int64_t patch_width(const Tiling& tiling, const Problem& problem);
// Whether warps turn patches of 16-bit elements; and whether they, not the copy engine, read the input.
bool turns_16_bits(const Tiling& tiling, const Problem& problem);
bool reads_input(const Tiling& tiling, const Problem& problem);
// What a thread that turns loads at once of a row: an aligned pair, or one.
int pixels_turned_at_once(const Problem& problem);
// Empty if the tiling can compute the problem, else which limit it breaks.
std::string unfit(const Tiling& tiling, const Problem& problem);
std::int64_t tiles(const Tiling& tiling, const Problem& problem);
// Few channels: a row of the filter's window as the channels of one pixel, an R x S filter as an R x 1 one.
bool folds(const Problem& problem);
// What the kernel then computes.
Problem folded(const Problem& problem);
// Few channels and a stride: blocks of stride x stride pixels as the channels of one pixel (space-to-depth),
// a filter with strides as a smaller one without.
bool deepens(const Problem& problem);
// What the kernel then computes.
Problem deepened(const Problem& problem);
// NCHW, a 1x1 filter with strides: of the input only the pixels that they take are turned.
bool thins(const Problem& problem);
// What the kernel then computes.
Problem thinned(const Problem& problem);
// Every tiling worth trying.
std::vector<Tiling> tilings(const Problem& problem);
// Blocks of threads that work on the problem, if there is a multiprocessor for each.
std::int64_t blocks(const Tiling& tiling, const Problem& problem);
// The largest block of channels that wastes least: `most`, or a half or a quarter of it.
int best_k_block(std::int64_t c, int most);
// Of a fused pool, whose stride is 2: 2, 3, or 0 where there is none.
int pool_window(const Problem& problem);
// So many windows begin and end within so many pixels.
int pooled_extent(int pixels, const Problem& problem);
// NHWC by ordinary stores: the copy engine takes pixels of a multiple of 16 bytes.
bool plain_stores(const Problem& problem);
// Whether the copy engine stores whole tiles.
bool stores_by_map(const Tiling& tiling, const Problem& problem);
// NCHW: the most pixels, up to 16 bytes, that lie together and aligned whatever the tile.
int pixels_a_store(const Tiling& tiling, const Problem& problem);

struct Estimate {
  double ms = 0;
  std::string bound_by;
};
Estimate estimate(const Tiling& tiling, const Problem& problem, int multiprocessors);

// Of a turned patch of 32 bits: pixels of a row of it, as loaded; 16 and 32 are swizzled.
int raw_width(const Tiling& tiling, const Problem& problem);
// Of one of 16 bits: whether each has all rows of the image; and from a channel's rows in a buffer to the
// next one's, in bytes.
bool raw_whole(const Tiling& tiling, const Problem& problem);
int raw_pitch(const Tiling& tiling, const Problem& problem);
// Of fetch tilings (implicit_gemm_sm90_fetch.cpp).
namespace fetch {
std::string unfit(const Tiling& tiling, const Problem& problem);
// Pixels of the output that a thread loads at once.
int pixels_a_load(const Problem& problem);
// A tile, also of patches or gathered pixels, is whole images, which are stored as contiguous bytes: where
// few pixels of a plane lie together and aligned.
bool whole_images(const Tiling& tiling, const Problem& problem);
// Whole images of an odd number of pixels, side by side: they are loaded by aligned pairs.
bool odd_images(const Tiling& tiling, const Problem& problem);
// From a tile's first pixel to the next one's, over all images.
std::int64_t step(const Tiling& tiling, const Problem& problem);
std::vector<Tiling> tilings(const Problem& problem);
}  // namespace fetch
// The same questions for shift tilings (implicit_gemm_sm90_shift.cpp).
namespace shift {
std::string unfit(const Tiling& tiling, const Problem& problem);
int shared_bytes(const Tiling& tiling, const Problem& problem);
std::int64_t windows(const Tiling& tiling, const Problem& problem);  // of a strip; tiles() counts strips
// Whether the copy engine stores: the output's rows are multiples of 16 bytes.
bool stores_in_bulk(const Problem& problem);
std::vector<Tiling> tilings(const Problem& problem);
Estimate estimate(const Tiling& tiling, const Problem& problem, int multiprocessors);
}  // namespace shift

// One translation unit, specialised as the tiling, the filter, stride, dilation, dtype and epilogue say; a
// new batch, image or channel count needs no other, but for the alignment of rows and planes, and 16-bit
// patches from buffers (raws), whose rows' length it knows.
KernelSource kernel_source(const Tiling& tiling, const Problem& problem);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_HPP_
