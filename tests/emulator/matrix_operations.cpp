// Matrix instructions: the maps of AMD's matrix instruction calculator, in closed form, and the product
// itself.
#include <string_view>

#include "src/backend/amd_assembly.hpp"
#include "tests/emulator/operations.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

// CDNA: groups of lanes hold neighbouring steps of the sum, and groups of four rows of the result.
template <int Rows, int Elements>
int cdna_depth(int lane, int i) {
  return lane / Rows * Elements + i;
}
int cdna_row_of_16(int lane, int i) { return lane / 16 * 4 + i; }
int cdna_row_of_32(int lane, int i) { return i / 4 * 8 + lane / 32 * 4 + i % 4; }
// RDNA 3: both halves of the wave hold the same operands, and rows of the result in turn.
int rdna3_depth(int, int i) { return i; }
int rdna3_row(int lane, int i) { return 2 * i + lane / 16; }
// RDNA 4: each half holds quads of steps in turn, and eight rows of the result.
int rdna4_depth(int lane, int i) { return i / 4 * 8 + lane / 16 * 4 + i % 4; }
int rdna4_row(int lane, int i) { return lane / 16 * 8 + i; }

using N = MatrixNumber;
constexpr MatrixOperation kMatrixOperations[] = {
    {"v_mfma_f32_16x16x16f16", N::f16, 16, 16, 16, 64, 4, 4, cdna_depth<16, 4>, cdna_row_of_16, false},
    {"v_mfma_f32_16x16x16_f16", N::f16, 16, 16, 16, 64, 4, 4, cdna_depth<16, 4>, cdna_row_of_16, false},
    {"v_mfma_f32_16x16x16bf16_1k", N::bf16, 16, 16, 16, 64, 4, 4, cdna_depth<16, 4>, cdna_row_of_16, false},
    {"v_mfma_f32_16x16x16_bf16", N::bf16, 16, 16, 16, 64, 4, 4, cdna_depth<16, 4>, cdna_row_of_16, false},
    {"v_mfma_f32_16x16x4f32", N::f32, 16, 16, 4, 64, 1, 4, cdna_depth<16, 1>, cdna_row_of_16, false},
    {"v_mfma_f32_16x16x4_f32", N::f32, 16, 16, 4, 64, 1, 4, cdna_depth<16, 1>, cdna_row_of_16, false},
    {"v_mfma_f32_32x32x8f16", N::f16, 32, 32, 8, 64, 4, 16, cdna_depth<32, 4>, cdna_row_of_32, false},
    {"v_mfma_f32_32x32x8_f16", N::f16, 32, 32, 8, 64, 4, 16, cdna_depth<32, 4>, cdna_row_of_32, false},
    {"v_mfma_f32_32x32x8bf16_1k", N::bf16, 32, 32, 8, 64, 4, 16, cdna_depth<32, 4>, cdna_row_of_32, false},
    {"v_mfma_f32_32x32x8_bf16", N::bf16, 32, 32, 8, 64, 4, 16, cdna_depth<32, 4>, cdna_row_of_32, false},
    {"v_mfma_f32_32x32x2f32", N::f32, 32, 32, 2, 64, 1, 16, cdna_depth<32, 1>, cdna_row_of_32, false},
    {"v_mfma_f32_32x32x2_f32", N::f32, 32, 32, 2, 64, 1, 16, cdna_depth<32, 1>, cdna_row_of_32, false},
    {"v_wmma_f32_16x16x16_f16", N::f16, 16, 16, 16, 32, 16, 8, rdna3_depth, rdna3_row, false},
    {"v_wmma_f32_16x16x16_bf16", N::bf16, 16, 16, 16, 32, 16, 8, rdna3_depth, rdna3_row, false},
    {"v_wmma_f32_16x16x16_f16", N::f16, 16, 16, 16, 32, 8, 8, rdna4_depth, rdna4_row, true},
    {"v_wmma_f32_16x16x16_bf16", N::bf16, 16, 16, 16, 32, 8, 8, rdna4_depth, rdna4_row, true},
};

float element(const Wave& wave, const MatrixOperation& m, int first, int lane, int i) {
  if (m.number == N::f32) return std::bit_cast<float>(wave.vector[first + i][lane]);
  const auto bits = static_cast<u16>(wave.vector[first + i / 2][lane] >> (16 * (i % 2)));
  return m.number == N::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

const MatrixOperation* find_matrix_operation(const std::string& name, bool is_gfx12) {
  for (const MatrixOperation& operation : kMatrixOperations) {
    if (name == operation.name && operation.is_gfx12 == is_gfx12) return &operation;
  }
  return is_gfx12 ? find_matrix_operation(name, false) : nullptr;
}

// Products are summed in double and rounded once a step of the instruction: the hardware's own order is its
// secret; small integers are exact in any.
void execute_matrix(Wave& wave, const Instruction& i) {
  const MatrixOperation& m = *find_matrix_operation(i.mnemonic, wave.block.chip.generation == 12);
  if (wave.lanes != m.lanes) wave.fail(i, "is for waves of another width");
  if (wave.exec() != wave.all_lanes()) wave.fail(i, "multiplies matrices while lanes are off");
  const Operand &d = i.operands.at(0), &a = i.operands.at(1), &b = i.operands.at(2), &c = i.operands.at(3);
  const int registers = m.number == N::f32 ? m.elements : m.elements / 2;
  for (const Operand* source : {&a, &b}) {
    for (int r = 0; r < registers; ++r) {
      wave.read_vector(*source, r, i);
      wave.must_be_defined(*source, r, wave.all_lanes(), i);
    }
  }
  for (int r = 0; r < m.results && c.is_vector(); ++r) {
    wave.read_vector(c, r, i);
    wave.must_be_defined(c, r, wave.all_lanes(), i);
  }
  static thread_local float left[32][16], right[16][32];
  for (int lane = 0; lane < m.lanes; ++lane) {
    for (int e = 0; e < m.elements; ++e) {
      left[lane % m.rows][m.depth_at(lane, e)] = element(wave, m, a.index, lane, e);
      right[m.depth_at(lane, e)][lane % m.columns] = element(wave, m, b.index, lane, e);
    }
  }
  const float constant = c.is_vector() ? 0
                         : c.real      ? static_cast<float>(*c.real)
                                       : std::bit_cast<float>(static_cast<u32>(c.integer));
  static thread_local u32 result[16][kMostLanes];
  for (int lane = 0; lane < m.lanes; ++lane) {
    for (int r = 0; r < m.results; ++r) {
      double sum = c.is_vector() ? std::bit_cast<float>(wave.vector[c.index + r][lane]) : constant;
      const float* const row = left[m.row_at(lane, r)];
      for (int k = 0; k < m.depth; ++k) sum += double{row[k]} * right[k][lane % m.columns];
      result[r][lane] = std::bit_cast<u32>(static_cast<float>(sum));
    }
  }
  for (int r = 0; r < m.results; ++r) {
    wave.settle_vector(d.index + r, i);
    std::copy_n(result[r], m.lanes, wave.vector[d.index + r]);
    wave.undefined[d.index + r][0] &= ~wave.all_lanes(), wave.undefined[d.index + r][1] &= ~wave.all_lanes();
  }
  wave.block.counts.matrix += 1;
  wave.block.counts.matrix_cycles += static_cast<u64>(matrix_cycles(i.mnemonic, wave.block.chip.name));
}

}  // namespace faltung::emulator
