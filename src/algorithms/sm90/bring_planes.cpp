// NCHW as it is, by the copy engine: the matrix units take planes of pixels as they lie. 1x1 filters,
// stride 1.
#include "src/algorithms/sm90/bring.hpp"

namespace faltung::sm90::planes {

std::string unfit(const Tiling& t, const Problem& p) {
  const bool pointwise = p.r == 1 && p.s == 1 && !strides(p) && p.p() == p.h && p.q() == p.w;
  if (p.layout != Layout::nchw || !pointwise) return "planes serve NCHW, 1x1 filters, stride 1, no padding";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (p.h * p.w % 8 != 0 || p.c % 8 != 0) return "planes need a multiple of 8 pixels and of 8 channels";
  if (t.pixels() % 64 != 0 || t.k_block != 64) return "planes are taken by 64 pixels and channels";
  return im2col::unfit(t, p);
}

void fill(Lister& lister, Tiling t) {
  t.k_block = 64;
  im2col::fill(lister, t);
}

void list(Lister& lister, Tiling t) {
  t.bring = Bring::planes;
  if (lister.problem().layout == Layout::nchw && t.pixels() % 64 == 0) lister.add(t);
}

}  // namespace faltung::sm90::planes
