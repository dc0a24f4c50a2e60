// The matrix product of brgemm.hpp on the tile registers of AMX: bf16 pairs alone, some eight times the rate
// of vdpbf16ps.
//
// Takes the same call, with tiles of up to 32 rows and 32 columns: rows 0..15 from a0 and c0, 16..31 from a1
// and c1. B is packed as for a brgemm of 32 columns (or 16). What differs:
//   a_step must be 1: a row of A is contiguous along the reduction.
//   length must be a multiple of kAmxLength pairs; pad with zeros on both sides.
//   Only addend0/1 of what may be done before the store, and there they must be C itself: the sum goes on in
//   C.
#ifndef FALTUNG_KERNELS_CPU_BRGEMM_AMX_HPP_
#define FALTUNG_KERNELS_CPU_BRGEMM_AMX_HPP_

#include "kernels/cpu/brgemm.hpp"

namespace faltung {

inline constexpr int kAmxRows = 16;     // of a group; a tile has two
inline constexpr int kAmxColumns = 32;  // of a tile
inline constexpr int kAmxLength = 16;   // pairs a step: 32 bf16 numbers

// Whether the processor has AMX and the system lets this process use it; asks the system for it once.
bool amx_usable();

// Tile registers belong to a thread: one of these lives around its calls of brgemm_amx.
class AmxThread {
 public:
  AmxThread() = default;
  ~AmxThread();
  AmxThread(const AmxThread&) = delete;
  AmxThread& operator=(const AmxThread&) = delete;

  // rows0 in 1..16 rows of the first group, rows1 in 0..16 of the second; call.columns in 1..32.
  void run(const BrgemmCall& call, int rows0, int rows1);

 private:
  int configured_ = 0;  // rows0, rows1 and columns that the tiles are set up for, in one number
};

// The two ends of such a product, for the same processors.

// A tile's sums to bf16: plus bias, plus residual, relu. Strides are in elements.
struct AmxStore {
  const float* from = nullptr;              // rows of kAmxColumns
  int rows = 0, columns = 0;                // columns at most kAmxColumns
  const float* bias = nullptr;              // [columns], or null
  const std::uint16_t* residual = nullptr;  // strided like the result, or null
  bool relu = false;
  std::uint16_t* to = nullptr;
  std::int64_t to_stride = 0;
};
void amx_store(const AmxStore& call);

// count windows of `elements` contiguous 16-bit elements, from_step apart, to pixels of `padded` elements
// that are filled up with zeros. Reads nothing outside of the windows.
void amx_stage(const std::uint16_t* from, std::int64_t from_step, std::int64_t elements, std::int64_t count,
               std::uint16_t* to, std::int64_t padded, std::int64_t to_step);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_BRGEMM_AMX_HPP_
