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

#include "kernels/cpu/brgemm_dot.hpp"

namespace faltung {

inline constexpr int kAmxRows = 16;    // of a group; a tile has two
inline constexpr int kAmxLength = 16;  // pairs a step: 32 bf16 numbers

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

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_BRGEMM_AMX_HPP_
