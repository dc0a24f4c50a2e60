// The emulator's matrix instructions: AMD's maps, and products by them.
#include <gtest/gtest.h>

#include <random>

#include "tests/emulator/bench.hpp"

namespace faltung::emulator {
namespace {

// Entries of AMD's matrix instruction calculator: which element of A, B or D a lane's register holds.
struct MapEntry {
  const char* instruction;
  bool gfx12;
  int lane, element;
  int a_row, a_depth;  // A[row][depth], and B[depth][row] beside it
  int result, d_row, d_column;
};
constexpr MapEntry kMap[] = {
    {"v_mfma_f32_16x16x16f16", false, 0, 3, 0, 3, 2, 2, 0},
    {"v_mfma_f32_16x16x16f16", false, 17, 0, 1, 4, 3, 7, 1},
    {"v_mfma_f32_16x16x16f16", false, 63, 1, 15, 13, 0, 12, 15},
    {"v_mfma_f32_16x16x16bf16_1k", false, 32, 2, 0, 10, 1, 9, 0},
    {"v_mfma_f32_32x32x8_f16", false, 17, 2, 17, 2, 5, 9, 17},
    {"v_mfma_f32_32x32x8_f16", false, 63, 3, 31, 7, 15, 31, 31},
    {"v_mfma_f32_32x32x8_f16", false, 48, 0, 16, 4, 4, 12, 16},
    {"v_mfma_f32_16x16x4_f32", false, 48, 0, 0, 3, 3, 15, 0},
    {"v_mfma_f32_32x32x2_f32", false, 48, 0, 16, 1, 8, 20, 16},
    {"v_wmma_f32_16x16x16_f16", false, 3, 11, 3, 11, 5, 10, 3},
    {"v_wmma_f32_16x16x16_f16", false, 18, 15, 2, 15, 6, 13, 2},
    {"v_wmma_f32_16x16x16_f16", true, 0, 5, 0, 9, 5, 5, 0},
    {"v_wmma_f32_16x16x16_f16", true, 19, 2, 3, 6, 1, 9, 3},
    {"v_wmma_f32_16x16x16_bf16", true, 19, 7, 3, 15, 7, 15, 3},
};
TEST(EmulatorMatrices, MatrixMaps) {
  for (const MapEntry& e : kMap) {
    const MatrixOperation& m = *find_matrix_operation(e.instruction, e.gfx12);
    EXPECT_EQ(e.lane % m.rows, e.a_row) << e.instruction;
    EXPECT_EQ(m.depth_at(e.lane, e.element), e.a_depth) << e.instruction;
    EXPECT_EQ(m.row_at(e.lane, e.result), e.d_row) << e.instruction;
    EXPECT_EQ(e.lane % m.columns, e.d_column) << e.instruction;
  }
}

// The product itself, of integers: every element of A, B and C is where the map says, and D is A B + C.
TEST(EmulatorMatrices, MatrixProducts) {
  struct Row {
    const char *chip, *text;
  };
  const Row rows[] = {{"gfx90a", "v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]"},
                      {"gfx90a", "v_mfma_f32_16x16x16bf16_1k a[0:3], v[0:1], v[2:3], a[0:3]"},
                      {"gfx90a", "v_mfma_f32_16x16x4f32 a[0:3], v0, v2, a[0:3]"},
                      {"gfx942", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]"},
                      {"gfx942", "v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]"},
                      {"gfx942", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v2, a[0:3]"},
                      {"gfx942", "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]"},
                      {"gfx942", "v_mfma_f32_32x32x2_f32 a[0:15], v0, v2, a[0:15]"},
                      {"gfx1100", "v_wmma_f32_16x16x16_f16 v[40:47], v[0:7], v[8:15], v[40:47]"},
                      {"gfx1100", "v_wmma_f32_16x16x16_bf16 v[40:47], v[0:7], v[8:15], v[40:47]"},
                      {"gfx1201", "v_wmma_f32_16x16x16_f16 v[40:47], v[0:3], v[8:11], v[40:47]"},
                      {"gfx1201", "v_wmma_f32_16x16x16_bf16 v[40:47], v[0:3], v[8:11], v[40:47]"}};
  std::mt19937 random(4);
  for (const Row& row : rows) {
    const Instruction instruction = decode(row.text);
    const MatrixOperation& m =
        *find_matrix_operation(instruction.mnemonic, std::string(row.chip) == "gfx1201");
    Bench bench(row.chip, m.lanes);
    float a[32][16], b[16][32], c[32][32];
    const auto fill = [&](auto& matrix) {
      for (auto& line : matrix)
        for (float& v : line) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
    };
    fill(a), fill(b), fill(c);
    const auto put = [&](int index, int lane, int e, float v) {
      u32& to = bench.wave.vector[index + (m.number == MatrixNumber::f32 ? e : e / 2)][lane];
      if (m.number == MatrixNumber::f32) to = std::bit_cast<u32>(v);
      const u32 half = m.number == MatrixNumber::f16 ? float_to_f16(v) : float_to_bf16(v);
      if (m.number != MatrixNumber::f32)
        to = e % 2 == 0 ? (to & 0xffff0000) | half : (to & 0xffff) | half << 16;
    };
    for (auto& halves : bench.wave.undefined) halves[0] = halves[1] = 0;
    for (int lane = 0; lane < m.lanes; ++lane) {
      for (int e = 0; e < m.elements; ++e) {
        put(instruction.operands[1].index, lane, e, a[lane % m.rows][m.depth_at(lane, e)]);
        put(instruction.operands[2].index, lane, e, b[m.depth_at(lane, e)][lane % m.columns]);
      }
      for (int r = 0; r < m.results; ++r)
        bench.wave.vector[instruction.operands[3].index + r][lane] =
            std::bit_cast<u32>(c[m.row_at(lane, r)][lane % m.columns]);
    }
    execute(bench.wave, instruction);
    for (int lane = 0; lane < m.lanes; ++lane) {
      for (int r = 0; r < m.results; ++r) {
        float wanted = c[m.row_at(lane, r)][lane % m.columns];
        for (int k = 0; k < m.depth; ++k) wanted += a[m.row_at(lane, r)][k] * b[k][lane % m.columns];
        ASSERT_EQ(std::bit_cast<float>(bench.wave.vector[instruction.operands[0].index + r][lane]), wanted)
            << row.text;
      }
    }
  }
}

}  // namespace
}  // namespace faltung::emulator
