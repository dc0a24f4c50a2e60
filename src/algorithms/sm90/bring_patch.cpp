// Halo patches, which the copy engine loads: a block of channels of a tile's pixels with those that the
// filter's taps reach beyond it, once for all taps. Horizontal stride 1: a tap is a view, the patch some
// pixels further.
#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::patch {

std::string unfit_patch(const Tiling& t, const Problem& p) {
  if (t.pixels_on_m() && t.width != 8) return "a patch with pixels on M is 8 wide";
  if (p.stride_w != 1 && !turns_16_bits(t, p)) return "halo patches serve a horizontal stride 1";
  const KernelConfig c = kernel_config(t, p);
  if (patch_height(c) > 256) return "a patch is at most 256 pixels high";
  if (patch_width(c) > 256) return "a patch is at most 256 pixels wide";
  return "";
}

std::string unfit(const Tiling& t, const Problem& p) { return unfit_patch(t, p); }

void fill(Lister& lister, Tiling t) {
  const Problem& p = lister.problem();
  if (t.bring == Bring::patch) t.k_block = lister.k_block(t);
  const bool one_block = sum_blocks(t, p) <= t.split;
  const int fewest = t.split > 1 && one_block ? 1 : 2, most = t.bring == Bring::turned || t.split > 1 ? 2 : 3;
  for (t.pixel_slots = fewest; t.pixel_slots <= most; ++t.pixel_slots) {
    const int least = t.pixel_slots < 3 ? 3 : 5;
    t.weight_slots = least;
    // Then more do not fit either; but split sums take the place of many.
    if (t.split == 1 && !lister.fits(t)) continue;
    t.weight_slots = t.pixel_slots < 3 ? 12 : 8;
    while (t.weight_slots >= least && !lister.fits(t)) --t.weight_slots;
    if (t.weight_slots < least) continue;
    lister.keep(t);
    // Also with less shared memory, which leaves more to the loads of warps that read what they turn.
    if (turns_16_bits(t, p) && t.row_slots == 0) {
      while (t.weight_slots > 3 && shared_bytes(t, p) > kSharedSteps[1]) --t.weight_slots;
      lister.keep(t);
    }
    if (t.split > 1) break;
  }
  if (!lister.may_stay(t)) return;
  t.weights_in = WeightsIn::resident;
  t.weight_slots = 0;
  // Groups are bound by what they load: more of it on its way.
  for (const int slots : {8, 3}) {
    if (slots > 3 && p.groups == 1) continue;
    for (t.pixel_slots = slots; t.pixel_slots >= 1; --t.pixel_slots) {
      if (lister.fits(t)) break;
    }
    if (t.pixel_slots >= 1) lister.keep(t);
  }
}

void list(Lister& lister, Tiling shape, Sums sums) {
  const Problem& p = lister.problem();
  shape.bring = Bring::patch;
  lister.add(shape, sums);
  shape.stores = Stores::direct;
  if (p.dtype == DType::f32 && p.layout == Layout::nhwc && shape.pixels() >= 192) lister.add(shape);
}

}  // namespace faltung::sm90::patch
