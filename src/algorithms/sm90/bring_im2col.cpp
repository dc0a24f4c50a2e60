// The copy engine gathers a tile's pixels for one tap at a time: any stride, any filter up to its reach.
#include <algorithm>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/fitted.hpp"
#include "src/backend/tensor_map.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::im2col {

using i64 = std::int64_t;

std::string unfit(const Tiling&, const Problem& p) {
  const i64 reach = im2col_reach(is_volume(p) ? 5 : 4);
  if ((p.s - 1) * p.dilation_w > reach || (p.r - 1) * p.dilation_h > reach ||
      (p.t - 1) * p.dilation_d > reach)
    return "the copy engine gathers filters of an extent up to " + std::to_string(reach + 1);
  for (const i64 pad : {p.pad_front, p.pad_back, p.pad_top, p.pad_bottom, p.pad_left, p.pad_right}) {
    if (pad > reach) return "the copy engine gathers with padding up to " + std::to_string(reach);
  }
  if (p.stride_d > 8 || p.stride_h > 8 || p.stride_w > 8)
    return "the copy engine gathers with strides up to 8";
  return "";
}

void fill(Lister& lister, Tiling t) {
  if (t.bring == Bring::im2col) t.k_block = lister.k_block(t);
  for (t.pixel_slots = 8; t.pixel_slots >= 2; --t.pixel_slots) {
    t.weight_slots = t.pixel_slots;
    if (lister.fits(t)) break;
  }
  lister.keep(t);
  if (!lister.may_stay(t)) return;
  t.weights_in = WeightsIn::resident;
  t.weight_slots = 0;
  for (t.pixel_slots = 6; t.pixel_slots >= 1; --t.pixel_slots) {
    if (lister.fits(t)) break;
  }
  if (t.pixel_slots >= 3) lister.keep(t);
}

// A slot is of one tap: its low parts come late.
double preparation(const Tiling& t, const Problem& p, const Traffic& traffic) {
  const double split = splitting(t, p, traffic);
  if (traffic.parts != 2) return split;
  return std::max(split, traffic.blocks * traffic.taps * fitted::kPrepared);
}

void list(Lister& lister, Tiling t) {
  t.bring = Bring::im2col;
  // Of the odd sizes those whose few tiles leave hardly a multiprocessor idle.
  const bool odd = t.pixels() % 64 != 0;
  if (!odd || (lister.waves(t) <= 3 && lister.even(t, lister.waves(t)))) lister.add(t);
}

void list_images(Lister& lister, Tiling t, int most_pixels) {
  const Problem& p = lister.problem();
  t.bring = Bring::im2col;
  const int image = static_cast<int>(std::min<i64>(p.z() * p.p() * p.q(), most_pixels + 1));
  for (int pixels = image; pixels <= most_pixels; pixels += image) {
    t.width = round_up(pixels, 8);
    if (t.width >= 48 && t.width <= most_pixels && whole_images(t, p)) fill(lister, t);
  }
}

// A sum of one block leaves nothing that stores in turn hide behind: a tile's results are there at once, and
// smaller tiles use more of the chip.
void list_wide(Lister& lister, Tiling t) {
  const Problem& p = lister.problem();
  if (p.r * p.s == 1 && group_channels(p) <= lister.k_block(t)) return;
  t.bring = Bring::im2col;
  for (t.store_slots = 1; t.cooperative() && t.store_slots <= 2; ++t.store_slots) lister.add(t);
}

}  // namespace faltung::sm90::im2col
