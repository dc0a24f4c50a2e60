// NCHW as it is, by the copy engine: the matrix units take planes of pixels as they lie, of 32 bits through
// registers (kernels/sm90/planes_gemm.cu). 1x1 filters, stride 1.
#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::planes {
namespace {

std::string unfit_16_bits(const Tiling& t, const Problem& p) {
  if (p.h * p.w % 8 != 0 || p.c % 8 != 0) return "planes need a multiple of 8 pixels and of 8 channels";
  if (t.pixels() % 64 != 0 || t.k_block != 64) return "planes are taken by 64 pixels and channels";
  return "";
}

std::string unfit_32_bits(const Tiling& t, const Problem& p) {
  // Beside the sums a thread has its pixels' high and low parts.
  if (tf32_parts(p) == 2 && (t.m_blocks() > 1 || t.channels > 128))
    return "planes multiplied in parts take 64 pixels a consumer and up to 128 channels";
  if (!t.pixels_on_m()) return "the matrix units take 32-bit channels side by side only, or from registers";
  if (p.h * p.w % 4 != 0) return "planes of 32 bits need a multiple of 4 pixels";
  if (t.k_block != 32) return "planes of 32 bits are taken by 32 channels";
  return "";
}

}  // namespace

std::string unfit(const Tiling& t, const Problem& p) {
  const bool pointwise = p.r == 1 && p.s == 1 && !strides(p) && p.p() == p.h && p.q() == p.w;
  if (p.layout != Layout::nchw || !pointwise) return "planes serve NCHW, 1x1 filters, stride 1, no padding";
  const std::string why = in_registers(p) ? unfit_32_bits(t, p) : unfit_16_bits(t, p);
  return why.empty() ? im2col::unfit(t, p) : why;
}

void fill(Lister& lister, Tiling t) {
  t.k_block = 128 / size_of(lister.problem().dtype);
  im2col::fill(lister, t);
}

// No warps of their own make them ready.
double preparation(const Tiling&, const Problem&, const Traffic&) { return 0; }

void list(Lister& lister, Tiling t) {
  t.bring = Bring::planes;
  if (lister.problem().layout == Layout::nchw && t.pixels() % 64 == 0) lister.add(t);
}

bool in_registers(const Problem& p) { return p.dtype == DType::f32; }

std::int64_t boxes(const Problem& p) { return p.n * ceil_div(p.p() * p.q(), kBox); }

}  // namespace faltung::sm90::planes
