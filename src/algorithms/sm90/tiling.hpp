// The free choices of Hopper's implicit GEMM, by name, and what follows from them for a problem.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_TILING_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_TILING_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/sm90/config.h"
#include "kernels/sm90/depths.h"
#include "kernels/sm90/layout.h"
#include "src/algorithms/config_name.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung::sm90 {

// patch_bt64x8x32_k64_pp_xs2_ws8, im2col_bt128x256_k64_co_st4, planes_bt160x128_k64_pp_px_st4,
// turned_bt64x16x8_k32_pp_xs2_ws4_rs2, shift_bt64x64x4_k64_pp_xs2_wres, fetch_bt128x104_k64_co_st4_sk2,
// patch_bt64x16x16_k32_pp_xs2_ws12_ds, im2col_bt160x256_k64_co_px_st3_us2,
// patch_bt128x16x8_k64_co_xs2_ws8_wx_ph4, patch_bt64x8x16_k64_pp_px_xs6_wres_gt4,
// im2col_bt128x192_k64_co_xs4_wres_ra2
struct Tiling : Choices {
  int apart = 1;  // results are pixels so far apart in the output, across and down, with zeros between
  template <class Name>
  void spell(Name& name) {
    static constexpr NameWord<Bring> kBrings[] = {{Bring::patch, "patch"},   {Bring::im2col, "im2col"},
                                                  {Bring::planes, "planes"}, {Bring::fetch, "fetch"},
                                                  {Bring::turned, "turned"}, {Bring::lines, "lines"},
                                                  {Bring::shift, "shift"}};
    static constexpr NameWord<Schedule> kSchedules[] = {{Schedule::ping_pong, "pp"},
                                                        {Schedule::cooperative, "co"}};
    static constexpr NameWord<MSide> kSides[] = {{MSide::channels, ""}, {MSide::pixels, "px"}};
    static constexpr NameWord<Filter> kFilters[] = {{Filter::packed, ""}, {Filter::as_it_is, "wx"}};
    static constexpr NameWord<Stores> kStores[] = {{Stores::staged, ""}, {Stores::direct, "ds"}};
    name.word(bring, kBrings);
    if (flat()) {
      height = 1;
      name.key("bt", channels, width);
    } else {
      name.key("bt", channels, width, height);
    }
    name.key("k", k_block);
    name.word(schedule, kSchedules);
    name.word(m_side, kSides);
    spell_buffers(name);
    name.word(filter, kFilters);
    name.optional("rs", 0, row_slots);
    name.word(stores, kStores);
    name.optional("us", 0, store_slots);
    name.optional("ra", 1, result_areas);
    name.optional("sk", 1, split);
    name.optional("gt", 1, groups);
    name.optional("ph", 1, phases);
    name.optional("ap", 1, apart);
  }

 private:
  // Flat tiles, and lines, have pixels and weights in one buffer each time, but where the weights stay.
  template <class Name>
  void spell_buffers(Name& name) {
    static constexpr NameWord<WeightsIn> kResident[] = {{WeightsIn::resident, "wres"}};
    const bool together = flat() || bring == Bring::lines;
    int both = together && !resident() ? pixel_slots : 0;
    if (together) name.optional("st", 0, both);
    if (both > 0) {
      weights_in = WeightsIn::ring;
      pixel_slots = weight_slots = both;
      return;
    }
    name.key("xs", pixel_slots);
    int ring = together || resident() ? 0 : weight_slots;
    if (!together) name.optional("ws", 0, ring);
    weights_in = ring > 0 ? WeightsIn::ring : WeightsIn::resident;
    weight_slots = ring;
    if (ring == 0) name.word(weights_in, kResident);
  }
};

std::string to_string(const Tiling& tiling);
// Both throw Error(bad_problem) that shows the form.
Tiling parse_tiling(std::string_view name);
[[noreturn]] void refuse_tiling(std::string_view name);

// What the kernel is specialised by. tiling: each number at least 1 where a name may have it, patches a
// multiple of 8 wide.
KernelConfig kernel_config(const Tiling& tiling, const Problem& problem);

// C as the kernel sees it: the copy engine takes pixels of a multiple of 16 bytes.
std::int64_t padded_channels(const Problem& problem);
// Of one group: what a result sums over, and the results' channels.
std::int64_t group_channels(const Problem& problem);
std::int64_t group_results(const Problem& problem);
std::int64_t channel_blocks(const Tiling& tiling, const Problem& problem);
// What a tile's sum is of: blocks of channels, for each tap in depth.
std::int64_t sum_blocks(const Tiling& tiling, const Problem& problem);
// Of the taps in depth, how many reach the input from a tile's planes, on average.
double depths_met(const Tiling& tiling, const Problem& problem);
Depth depth_of(const Problem& problem);
// How 32-bit elements are multiplied: 0 they are not, 1 rounded to tf32, 2 as high and low parts.
int tf32_parts(const Problem& problem);
Factors factors(const Problem& problem);
// Of a fused pool, whose stride is 2: 2, 3, or 0 where there is none.
int pool_window(const Problem& problem);
// So many windows begin and end within so many pixels.
int pooled_extent(int pixels, const Problem& problem);
// NHWC by ordinary stores: the copy engine takes pixels of a multiple of 16 bytes.
bool plain_stores(const Problem& problem);
bool pads(const Problem& problem);
// Planes of volumes of three dimensions, which are images otherwise.
inline bool is_volume(const Problem& p) { return p.dimensions == 3; }
inline std::int64_t output_planes(const Problem& p) { return p.n * p.z(); }
bool strides(const Problem& problem);
// A 1x1 filter without strides and padding: a tile's pixels are rows that lie one after the other.
bool takes_every_pixel(const Problem& problem);

bool turns_16_bits(const Tiling& tiling, const Problem& problem);
// fetch: whether the copy engine brings every second channel, and warps the others
// (kernels/sm90/bring/alternating.cuh).
bool alternates(const Tiling& tiling, const Problem& problem);
// Whether warps alone, not the copy engine, read the input.
bool reads_input(const Tiling& tiling, const Problem& problem);
// Whether the input is brought into the form that the kernel reads by a step before it.
bool turns_input(const Tiling& tiling, const Problem& problem);
// Whether the copy engine stores whole tiles.
bool stores_by_map(const Tiling& tiling, const Problem& problem);
// Whether it brings the residual, too.
bool brings_residual(const Tiling& tiling, const Problem& problem);
// A tile is whole images of NCHW, which are stored as contiguous bytes: where few pixels of a plane lie
// together and aligned.
bool whole_images(const Tiling& tiling, const Problem& problem);

// Whether kernels read x through its scale and shift: pixels of 16 bits as they lie, not so few channels that
// these are gathered first.
bool reads_affine(const Problem& problem);
// Whether the kernel adds up its results' channels, and their squares.
bool sums_channels(const Tiling& tiling, const Problem& problem);
// Whether all of a block's tiles have the same channels, of weights or of sums that stay.
bool keeps_channels(const Tiling& tiling, const Problem& problem);

int threads(const Tiling& tiling, const Problem& problem);
int shared_bytes(const Tiling& tiling, const Problem& problem);

// Of flat tiles: from a tile's first pixel to the next one's, over all images.
std::int64_t step(const Tiling& tiling, const Problem& problem);
// Of the output. With shift: strips of windows.
std::int64_t tiles(const Tiling& tiling, const Problem& problem);
// Blocks of threads that work on the problem, if there is a multiprocessor for each.
std::int64_t blocks(const Tiling& tiling, const Problem& problem);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_TILING_HPP_
