// kernels/gpu/mma_patch_units.h and what it takes of matrix_units.h, in C++: what each instruction does
// with the lanes of a warp. Copies arrive when they are waited for, no sooner.
#pragma once
#include <cstdlib>

#include "kernels/gpu/convolution.h"

#define F_ALL_LOCAL_MEMORY(name)  // lanes.hpp says what it is

F_DEVICE u32 local_address(const void* p) {
  return static_cast<u32>(static_cast<const unsigned char*>(p) - lanes::own->memory);
}

namespace lanes {
struct Copy {
  u32 to;
  const void* from;
  bool wanted;
};
inline thread_local std::vector<Copy> open;
inline thread_local std::vector<std::vector<Copy>> closed;
}  // namespace lanes
F_DEVICE void copy_chunk_if(bool may, u32 to, const void* from, bool wanted) {
  if (to % 16 != 0 || bits_of<std::uintptr_t>(from) % 16 != 0) std::abort();
  if (may) lanes::open.push_back({to, from, wanted});
}
F_DEVICE void copy_piece_if(bool may, u32 to, const void* from, bool wanted) {
  copy_chunk_if(may, to, from, wanted);
}
F_DEVICE void ask_for(const void*) {}
F_DEVICE void close_copies() { lanes::closed.push_back(std::exchange(lanes::open, {})); }
template <int kPending>
F_DEVICE void wait_for_copies() {
  for (; lanes::closed.size() > kPending; lanes::closed.erase(lanes::closed.begin())) {
    for (const lanes::Copy& copy : lanes::closed.front()) {
      if (copy.wanted)
        std::memcpy(lanes::own->memory + copy.to, copy.from, 16);
      else
        std::memset(lanes::own->memory + copy.to, 0, 16);
    }
  }
}

// Matrix i's rows are where lanes 8 i to 8 i + 7 say.
F_DEVICE u16 matrix_element(int matrix, int row, int column) {
  u16 v;
  std::memcpy(&v, lanes::own->memory + lanes::mine()[8 * matrix + row][0] + 2 * column, 2);
  return v;
}
template <bool kTransposed>
F_DEVICE void read_matrices(u32 from, u32* v) {
  const int lane = lanes::thread % lanes::kWarp, row = lane / 4, column = lane % 4 * 2;
  if (from % 16 != 0) std::abort();
  lanes::mine()[lane][0] = from;
  lanes::together();
  for (int i = 0; i < 4; ++i) {
    const u16 low = kTransposed ? matrix_element(i, column, row) : matrix_element(i, row, column);
    const u16 high = kTransposed ? matrix_element(i, column + 1, row) : matrix_element(i, row, column + 1);
    v[i] = low | static_cast<u32>(high) << 16;
  }
  lanes::together();
}
F_DEVICE void load_matrices(u32 from, u32* v) { read_matrices<false>(from, v); }
F_DEVICE void load_matrices_transposed(u32 from, u32* v) { read_matrices<true>(from, v); }

F_DEVICE float half_of_word(u32 word, int which) {
  return which == 0 ? F_FROM_PAIR_LOW(word) : F_FROM_PAIR_HIGH(word);
}
template <int kSteps>
F_DEVICE void multiply_matrices(const u32* a, const u32* b, float* d) {
  const int lane = lanes::thread % lanes::kWarp;
  constexpr int kA = kSteps / 4, kB = kSteps / 8, kBegin = 4;
  u32(*const shown)[8] = lanes::mine();
  for (int i = 0; i < kA; ++i) shown[lane][i] = a[i];
  for (int i = 0; i < kB; ++i) shown[lane][kBegin + i] = b[i];
  lanes::together();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < kSteps; ++k) {
      const int at = k % 8 / 2;
      d[i] += half_of_word(shown[row % 8 * 4 + at][row / 8 + k / 8 * 2], k % 2) *
              half_of_word(shown[column * 4 + at][kBegin + k / 8], k % 2);
    }
  }
  lanes::together();
}
F_DEVICE void multiply(const u32* a, const u32* b, float* d) { multiply_matrices<16>(a, b, d); }
F_DEVICE void multiply_eight(const u32* a, const u32* b, float* d) { multiply_matrices<8>(a, b, d); }
