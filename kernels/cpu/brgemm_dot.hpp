// The matrix product of brgemm.hpp on AVX-512's dot product of bf16 pairs, vdpbf16ps, and the two ends that
// it shares with AMX's tiles (brgemm_amx.hpp): bf16 in nhwc.
//
// Takes the same call, with tiles of up to 14 rows and 32 columns: rows 0..6 from a0 and c0, 7..13 from a1
// and c1; B is packed as for a brgemm of 32 columns, in pairs. What differs: a_step must be 1, of what may be
// done before the store there is none, and columns beyond the last are stored, too, up to a vector's end.
#ifndef FALTUNG_KERNELS_CPU_BRGEMM_DOT_HPP_
#define FALTUNG_KERNELS_CPU_BRGEMM_DOT_HPP_

#include "kernels/cpu/brgemm.hpp"

namespace faltung {

inline constexpr int kDotRows = 7;       // of a group; a tile has two
inline constexpr int kPairColumns = 32;  // of a tile, and of a packed panel

// Whether the processor has vdpbf16ps.
bool dot_usable();

// A tile's sums to bf16: plus bias, plus residual, relu. Strides are in elements.
struct PairStore {
  const float* from = nullptr;              // rows of kPairColumns
  int rows = 0, columns = 0;                // columns at most kPairColumns
  const float* bias = nullptr;              // [columns], or null
  const std::uint16_t* residual = nullptr;  // strided like the result, or null
  bool relu = false;
  std::uint16_t* to = nullptr;
  std::int64_t to_stride = 0;
};
void store_pairs(const PairStore& call);

// count windows of `elements` contiguous 16-bit elements, from_step apart, to pixels of `padded` elements
// that are filled up with zeros. Reads nothing outside of the windows, and writes nothing outside of the
// pixels.
void stage_pairs(const std::uint16_t* from, std::int64_t from_step, std::int64_t elements, std::int64_t count,
                 std::uint16_t* to, std::int64_t padded, std::int64_t to_step);

// A step of a panel of B: to[column] is low's and high's element of this column, zero beyond the columns and
// where one of them is null.
struct PairPack {
  const std::uint16_t *low = nullptr, *high = nullptr;
  std::int64_t column_stride = 1;  // in elements, of both
  int columns = 0;                 // at most kPairColumns
  std::uint32_t* to = nullptr;     // kPairColumns
};
void pack_pairs(const PairPack& call);

// rows0 in 1..7 rows of the first group, rows1 in 0..7 of the second; call.columns in 1..32. With `ends`, one
// of each group, sums go from registers to bf16, of which from and rows are not read; without, to c0 and c1.
void brgemm_dot(const BrgemmCall& call, int rows0, int rows1, const PairStore* ends);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_BRGEMM_DOT_HPP_
