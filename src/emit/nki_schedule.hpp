// How a convolution is cut up for one NeuronCore: blocks of y whose pixels, weights and results fit SBUF, and
// groups of rows that fill a bank of PSUM. The kernels of kernels/nki/ are written to it.
#ifndef FALTUNG_SRC_EMIT_NKI_SCHEDULE_HPP_
#define FALTUNG_SRC_EMIT_NKI_SCHEDULE_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "src/backend/nki.hpp"
#include "src/problem/problem.hpp"

namespace faltung::nki {

// Which engines take sums out of PSUM.
enum class Emptying { scalar, both };

// The free choices.
struct Choice {
  int rows = 1, cols = 1, images = 1;  // of y, that a block computes
  int filters = 1;                     // whose weights are in SBUF at a time
  Emptying emptying = Emptying::scalar;
};

// What follows from a choice. Letters are the kernels': a part is what one set of weights computes.
struct Schedule {
  Choice choice;
  // Depthwise and other small groups share a part, on the diagonal of its weights.
  enum class Weights { dense, grouped, depthwise };
  Weights weights;
  std::int64_t c_part, k_groups;          // channels of a part; filters of its groups, all blocks of them
  std::int64_t c_tiles, k_tiles;          // of 128, in a part
  std::int64_t rows_in, cols_in;          // pixels of a block
  std::int64_t conv_rows, conv_cols;      // of the convolution, that a block of y needs
  std::int64_t window_rows, window_cols;  // the same with the pool's padding
  std::int64_t group_rows;                // rows of a bank of PSUM
  int x_buffers, w_buffers, y_buffers;    // used in turn
  static constexpr int kBanks = 6;        // in turn for sums; the other two are for turning
  static constexpr int kScratchBuffers = 2;
  std::int64_t sbuf_bytes;  // of a partition
};

// Why the problem is not computed on this core, in words, with the nearest that is; empty if it is.
std::string declined(const Problem& problem, const NkiCore& core);
// The choices worth pricing. Never empty for a problem that is not declined.
std::vector<Choice> choices(const Problem& problem, const NkiCore& core);
// Throws Error(unsupported) where it does not fit, Error(bad_problem) where it is no choice for the problem.
Schedule schedule(const Problem& problem, const Choice& choice, const NkiCore& core);

// What the scalar engine computes by itself, as NKI names it; empty for the others.
std::string scalar_activation(Activation activation);
bool has_pool(const Problem& problem);
bool is_padded(const Problem& problem);
// Whether an activation takes a float32 tile between PSUM and SBUF.
bool needs_scratch(const Problem& problem);

}  // namespace faltung::nki

#endif  // FALTUNG_SRC_EMIT_NKI_SCHEDULE_HPP_
