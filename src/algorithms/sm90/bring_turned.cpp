// Halo patches of NCHW as it is, which warps turn on the way to shared memory: they read the input
// themselves, or from buffers of rows that the copy engine fills (kernels/sm90/bring/turned.cuh for 32 bits,
// turned_16.cuh).
#include <algorithm>
#include <cmath>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/fitted.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::turned {
namespace {

using i64 = std::int64_t;

// What a thread that turns 16-bit pixels loads at once of a row: an aligned pair, or one.
int pixels_a_turn(const Problem& p) { return p.w % 2 == 0 ? 2 : 1; }

std::string unfit_16_bits(const Tiling& t, const Problem& p) {
  if (t.pixels_on_m() || (t.k_block != 64 && (t.k_block != 32 || t.row_slots == 0)))
    return "16-bit patches are turned by 64 channels, from buffers of their own also by 32, with the weights "
           "on M";
  if (2 * t.sums() > 200 && p.epilogue.residual)
    return "a residual and so many sums leave too few registers to the warps that turn";
  if (t.row_slots > 0 && t.channels > 128)
    return "warps that turn from buffers leave registers for up to 128 channels";
  if (t.row_slots > 0 && p.c % 8 != 0) return "the copy engine brings whole rows of a multiple of 8 channels";
  if (p.stride_w > 2) return "16-bit patches are turned with horizontal strides up to 2";
  return "";
}

std::string unfit_32_bits(const Tiling& t, const Problem& p) {
  if (p.stride_h != 1) return "patches of stride 1 alone are turned";
  if (t.pixels_on_m() || t.k_block != 32) return "patches are turned by 32 channels, with the weights on M";
  if (p.w % 4 != 0) return "the copy engine takes rows of a multiple of 4 pixels, not " + std::to_string(p.w);
  if (raw_width(kernel_config(t, p)) > 256) return "a patch is at most 256 pixels wide";
  return "";
}

}  // namespace

void specialise(KernelConfig& c, const Tiling& t, const Problem& p) {
  if (p.dtype == DType::f32) return;
  c.pixels_a_turn = pixels_a_turn(p);
  c.rows_whole = pooled_extent(t.height, p) >= p.y_h();
  c.rows_begin_alike = p.h * p.w * 2 % 16 == 0;
  if (t.row_slots == 0) return;
  constexpr i64 kTooMuch = 1 << 20;
  const i64 bytes = p.w * 2 * (c.rows_whole ? p.h : std::min<i64>(patch_height(c), p.h));
  c.row_pitch = static_cast<int>(std::min<i64>(c.rows_whole ? bytes : round_up(bytes + 14, 16), kTooMuch));
}

std::string unfit(const Tiling& t, const Problem& p) {
  if (const std::string why = patch::unfit_patch(t, p); !why.empty()) return why;
  if (p.layout != Layout::nchw) return "NCHW alone is turned on the way";
  return turns_16_bits(t, p) ? unfit_16_bits(t, p) : unfit_32_bits(t, p);
}

void fill(Lister& lister, Tiling t) {
  const Problem& p = lister.problem();
  t.k_block = p.dtype == DType::f32 ? 32 : 64;
  if (p.groups > 1 && group_channels(p) % t.k_block != 0) return;
  // Half as many channels leave room for buffers of their rows.
  const auto fits = [&](Tiling u) {
    u.weight_slots = 3, u.pixel_slots = 2;
    return lister.fits(u);
  };
  if (turns_16_bits(t, p) && t.row_slots > 0 && !fits(t)) t.k_block = 32;
  patch::fill(lister, t);
}

// 16 bits: where a step before the kernel weighs, or the copy engine does not take rows as they are. With
// strides a pixel serves fewer taps, and shared memory moves more for it than the step does. Windows of one
// are fetched.
void list(Lister& lister, Tiling shape, Sums sums) {
  const Problem& p = lister.problem();
  if (p.layout != Layout::nchw) return;
  shape.bring = Bring::turned;
  std::vector<int> buffers = {3, 2, 1, 0};
  if (p.dtype != DType::f32) {
    const bool worth = p.groups > 1 || lister.few_tiles() || (!strides(p) && p.w % 8 != 0);
    if (p.r * p.s <= 1 || p.c < 16 || !worth) return;
    buffers = {0, 2};
  }
  for (const int slots : buffers) {
    shape.row_slots = slots;
    lister.add(shape, sums);
  }
}

namespace {

// Cycles in which warps turn a block of channels of 16 bits.
double turning_16_bits(const Tiling& t, const Problem& p) {
  using namespace fitted::reading;
  const KernelConfig c = kernel_config(t, p);
  const double k_block = t.k_block, image_row = static_cast<double>(p.w) * 2;
  const double rows = static_cast<double>(patch_height(c)), row = static_cast<double>(patch_width(c));
  const double loads = rows * row * k_block / pixels_a_turn(p);
  if (t.row_slots > 0) {
    const double brought = k_block * c.row_pitch / kRowBytes;
    return std::max(brought, loads / 8 / kWarp * kTurn) + kFirst;
  }
  const double held = k_block * cache_lines(rows, std::min(row * 2, image_row), image_row) * kLine;
  const double issue = loads * 9 / 8 / kWarp * (p.stride_w > pixels_a_turn(p) ? kApart : kIssue);
  const double cache = cache_bytes(shared_bytes(t, p));
  return std::max(held / cache * kHeld, kAnswer * loads / kThreads / room(t)) + issue + kFirst;
}

}  // namespace

double preparation(const Tiling& t, const Problem& p, const Traffic& traffic) {
  if (p.dtype != DType::f32) return traffic.blocks * turning_16_bits(t, p);
  // Rows of NCHW come slowly, whatever part of 128 bytes they are; and shared memory is written by them, read
  // twice (two channels share a bank) and written again, while the matrix units read.
  using namespace fitted::turning;
  const KernelConfig c = kernel_config(t, p);
  const double rows = static_cast<double>(patch_height(c)) * t.k_block,
               row = static_cast<double>(raw_width(c)) * size_of(p.dtype);
  const double bytes = traffic.blocks * rows * row, passes = t.row_slots > 0 ? 3 : 0;
  const double shared =
      (passes * bytes +
       (kWritten * traffic.parts * traffic.pixel_rows + traffic.weight_rows / traffic.parts) * traffic.row) /
      kShared;
  const double read = t.row_slots > 0 ? traffic.blocks * rows * std::ceil(row / 128) * kRow : bytes / kRead;
  return std::max(read, traffic.operands + shared);
}

}  // namespace faltung::sm90::turned
