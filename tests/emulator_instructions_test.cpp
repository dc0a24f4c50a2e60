// The emulator's instructions, each alone, against definitions of their own in plain C++; and AMD's maps of
// its matrix instructions.
#include <gtest/gtest.h>

#include <random>

#include "faltung/faltung.hpp"
#include "tests/emulator/half_definitions.hpp"
#include "tests/emulator/operations.hpp"
#include "tests/emulator/scalar_definitions.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

// A wave of its own, all lanes on.
struct Bench {
  explicit Bench(const std::string& name, int lanes = 64) : chip(name), wave(block, 0, lanes) {
    local.begin(4096);
    wave.set_mask(kExec, wave.all_lanes());
    wave.first_exec = wave.all_lanes();
    wave.scc_undefined = false;
  }
  void vector(int index, int lane, u64 value, int registers = 2) {
    for (int r = 0; r < registers; ++r)
      wave.write_vector(index + r, lane, static_cast<u32>(value >> (32 * r)), 0);
  }
  void scalar(int index, u64 value, int registers = 2) {
    for (int r = 0; r < registers; ++r)
      wave.scalar[index + r] = static_cast<u32>(value >> (32 * r)), wave.scalar_undefined[index + r] = 0;
  }
  u64 wide(int index, int lane) const {
    return wave.vector[index][lane] | u64{wave.vector[index + 1][lane]} << 32;
  }
  void run(const std::string& text) { execute(wave, decode(text)); }

  Chip chip;
  Memory memory;
  LocalMemory local;
  Counts counts;
  Block block{chip, memory, local, counts, "a test", {}, nullptr, nullptr};
  Wave wave;
};

// Numbers that decide: signs, ends, subnormals, infinities, NaN, halves; and any.
u64 number(std::mt19937_64& random) {
  constexpr u32 kSpecial[] = {0,          1,          2,          31,         32,         63,
                              0x7fffffff, 0x80000000, 0xffffffff, 0xffff,     0x10000,    0x8000,
                              0x3f800000, 0xbf800000, 0x40490fdb, 0x00000001, 0x807fffff, 0x7f800000,
                              0xff800000, 0x7fc00000, 0x7f7fffff, 0x3f000000, 0x4b000001, 0x3c003800,
                              0x7c00fc00, 0x477fefff, 0x33000000, 0x38800000, 0xc2fe0000, 0x42fe0000};
  const auto word = [&]() -> u64 {
    switch (random() % 4) {
      case 0:
        return kSpecial[random() % std::size(kSpecial)];
      case 1:  // a float of everyday size
        return std::bit_cast<u32>(static_cast<float>(static_cast<i64>(random() % 4001) - 2000) / 64);
      default:
        return random() & 0xffffffff;
    }
  };
  const u64 low = word();
  return low | word() << 32;
}

bool agree(Compared compared, u64 is, u64 wanted) {
  const auto f32 = [](u64 a, u64 b) {
    const float x = std::bit_cast<float>(static_cast<u32>(a)), y = std::bit_cast<float>(static_cast<u32>(b));
    return static_cast<u32>(a) == static_cast<u32>(b) || (std::isnan(x) && std::isnan(y));
  };
  const auto f16 = [](u64 a, u64 b) {
    const float x = f16_to_float(static_cast<u16>(a)), y = f16_to_float(static_cast<u16>(b));
    return (a & 0xffff) == (b & 0xffff) || (std::isnan(x) && std::isnan(y));
  };
  switch (compared) {
    case Compared::f32:
      return f32(is, wanted);
    case Compared::f32_close: {  // as exact as the hardware promises: a unit or two in the last place
      const float x = std::bit_cast<float>(static_cast<u32>(is)),
                  y = std::bit_cast<float>(static_cast<u32>(wanted));
      return f32(is, wanted) || std::fabs(double(x) - y) <= 0x1p-22 * std::fabs(double(y)) + 0x1p-148;
    }
    case Compared::pair_of_f32:
      return f32(is, wanted) && f32(is >> 32, wanted >> 32);
    case Compared::f16:
      return f16(is, wanted);
    case Compared::pair_of_f16:
      return f16(is, wanted) && f16(is >> 16, wanted >> 16);
    case Compared::f64:
      return is == wanted ||
             (std::isnan(std::bit_cast<double>(is)) && std::isnan(std::bit_cast<double>(wanted)));
    default:
      return is == wanted;
  }
}

class EmulatorVectorInstructions : public testing::TestWithParam<std::span<const VectorDefinition>> {};

TEST_P(EmulatorVectorInstructions, AreAsDefined) {
  std::mt19937_64 random(1);
  for (const VectorDefinition& definition : GetParam()) {
    const std::string text = definition.text;
    const Instruction instruction = decode(text);
    ASSERT_TRUE(instruction.vector != nullptr) << text;
    for (int round = 0; round < 5; ++round) {
      Bench bench("gfx90a");
      Given given[64];
      u64 mask = 0;
      for (int lane = 0; lane < 64; ++lane) {
        Given& g =
            given[lane] = {number(random), number(random), number(random), number(random), random() % 2 == 0};
        if (random() % 8 == 0) g.b = g.a;
        bench.vector(0, lane, g.a), bench.vector(2, lane, g.b), bench.vector(4, lane, g.c),
            bench.vector(10, lane, g.d);
        bench.vector(kAccumulators, lane, g.a), bench.vector(kAccumulators + 10, lane, g.d);
        mask |= u64{g.m} << lane;
      }
      bench.scalar(kVcc, mask);
      const u64 exec = random() | 1;
      bench.wave.set_mask(kExec, exec);
      execute(bench.wave, instruction);
      const Operand& result = instruction.operands[0];
      for (int lane = 0; lane < 64; ++lane) {
        const u64 bit = u64{1} << lane;
        const Given& g = given[lane];
        if (definition.compared == Compared::mask) {
          const bool wanted = (exec & bit) != 0 && definition.value(g) != 0;
          ASSERT_EQ((bench.wave.mask(kVcc) & bit) != 0, wanted)
              << text << std::hex << " of " << g.a << ", " << g.b;
          continue;
        }
        const u64 is = bench.wide(result.index, lane);
        if ((exec & bit) == 0) {
          ASSERT_EQ(is, g.d) << text << " wrote a lane that was off";
          continue;
        }
        const u64 word = result.count == 2 ? ~u64{0} : 0xffffffff;
        const u64 wanted = definition.value(g);
        ASSERT_TRUE(agree(definition.compared, is & word, wanted & word))
            << text << std::hex << " of " << g.a << ", " << g.b << ", " << g.c << ", " << g.d << " is "
            << (is & word) << ", not " << (wanted & word);
        if (definition.carry != nullptr) {
          ASSERT_EQ((bench.wave.mask(kVcc) & bit) != 0, definition.carry(g))
              << text << std::hex << " carries of " << g.a << ", " << g.b;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Definitions, EmulatorVectorInstructions,
                         testing::Values(std::span<const VectorDefinition>(kVectorDefinitions),
                                         std::span<const VectorDefinition>(kHalfDefinitions)));

// The three instructions that divide, as LLVM puts them together: rounded as IEEE has it, with zeros,
// infinities, NaN and operands that are scaled. A quotient that is subnormal is rounded before it is scaled
// back and once more then: a unit of its last place.
TEST(EmulatorInstructions, Divisions) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    Bench bench("gfx90a");
    float numerator[64], denominator[64];
    for (int lane = 0; lane < 64; ++lane) {
      // Of some the quotient of 1 by what is about as large as a float can be.
      const u64 huge = 0x7e000000 + random() % 0x1800000;
      const u64 n = lane % 8 == 0 ? 0x3f800000 : number(random), d = lane % 8 == 0 ? huge : number(random);
      numerator[lane] = std::bit_cast<float>(static_cast<u32>(n));
      denominator[lane] = std::bit_cast<float>(static_cast<u32>(d));
      bench.vector(0, lane, n, 1), bench.vector(1, lane, d, 1);
    }
    for (const char* line :
         {"v_div_scale_f32 v2, s[4:5], v1, v1, v0", "v_div_scale_f32 v3, vcc, v0, v1, v0",
          "v_rcp_f32_e32 v4, v2", "v_fma_f32 v5, -v2, v4, 1.0", "v_fma_f32 v4, v5, v4, v4",
          "v_mul_f32_e32 v5, v3, v4", "v_fma_f32 v6, -v2, v5, v3", "v_fma_f32 v5, v6, v4, v5",
          "v_fma_f32 v2, -v2, v5, v3", "v_div_fmas_f32 v2, v2, v4, v5", "v_div_fixup_f32 v10, v2, v1, v0"}) {
      bench.run(line);
    }
    for (int lane = 0; lane < 64; ++lane) {
      const float wanted = numerator[lane] / denominator[lane];
      const u32 is = bench.wave.vector[10][lane];
      const bool near = std::fpclassify(wanted) == FP_SUBNORMAL &&
                        std::abs(double(std::bit_cast<float>(is)) - double(wanted)) <= 0x1p-149;
      ASSERT_TRUE(near || agree(Compared::f32, is, std::bit_cast<u32>(wanted)))
          << std::hexfloat << numerator[lane] << " / " << denominator[lane] << " is "
          << std::bit_cast<float>(is);
    }
  }
}

// Both halves of a dual instruction read before either writes.
TEST(EmulatorInstructions, DualInstructionsReadFirst) {
  Bench bench("gfx1100", 32);
  for (int lane = 0; lane < 32; ++lane)
    bench.vector(0, lane, static_cast<u64>(lane), 1), bench.vector(1, lane, 100, 1);
  bench.run("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0");
  for (u32 lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(bench.wave.vector[0][lane], 100u);
    EXPECT_EQ(bench.wave.vector[1][lane], lane);
  }
}

// v_cmpx chooses the lanes by what v_cmp finds, of those that are on.
TEST(EmulatorInstructions, ComparisonsChooseLanes) {
  Bench bench("gfx1100", 32);
  for (int lane = 0; lane < 32; ++lane)
    bench.vector(0, lane, static_cast<u64>(lane), 1), bench.vector(1, lane, 12, 1);
  bench.wave.set_mask(kExec, 0xfffffff0);
  bench.run("v_cmpx_gt_i32_e32 v1, v0");
  EXPECT_EQ(bench.wave.exec(), 0xff0u);
}

class EmulatorScalarInstructions : public testing::TestWithParam<std::span<const ScalarDefinition>> {};

TEST_P(EmulatorScalarInstructions, AreAsDefined) {
  std::mt19937_64 random(2);
  for (const ScalarDefinition& definition : GetParam()) {
    const Instruction instruction = decode(definition.text);
    for (int round = 0; round < 60; ++round) {
      Bench bench("gfx90a");
      Given g{number(random), number(random), 0, number(random), random() % 2 == 0};
      if (random() % 4 == 0) g.b = g.a;
      bench.scalar(0, g.a), bench.scalar(2, g.b), bench.scalar(10, g.d);
      bench.wave.scc = g.m;
      execute(bench.wave, instruction);
      if (definition.value != nullptr) {
        const bool wide = instruction.operands[0].count == 2;
        const u64 is = bench.wave.scalar[10] | (wide ? u64{bench.wave.scalar[11]} << 32 : 0);
        const std::string text = definition.text;
        const bool is_float = text.find("_f32 s10") != std::string::npos && !text.starts_with("s_cvt_");
        ASSERT_TRUE(agree(is_float ? Compared::f32 : Compared::bits, is, definition.value(g)))
            << definition.text << std::hex << " of " << g.a << ", " << g.b << " is " << is << ", not "
            << definition.value(g);
      }
      if (definition.scc != nullptr) {
        ASSERT_EQ(bench.wave.scc, definition.scc(g))
            << definition.text << std::hex << " of " << g.a << ", " << g.b;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Definitions, EmulatorScalarInstructions,
                         testing::Values(std::span<const ScalarDefinition>(kScalarDefinitions),
                                         std::span<const ScalarDefinition>(kRareScalarDefinitions)));

TEST(EmulatorInstructions, DppPermutesLanes) {
  struct Row {
    const char* control;
    int (*from)(int lane);  // -1: none, and the lane gets 0
  };
  const Row rows[] = {
      {"quad_perm:[1,0,3,2]", [](int l) { return l ^ 1; }},
      {"row_shl:3", [](int l) { return l % 16 + 3 < 16 ? l + 3 : -1; }},
      {"row_shr:2", [](int l) { return l % 16 >= 2 ? l - 2 : -1; }},
      {"row_ror:5", [](int l) { return l / 16 * 16 + (l % 16 + 11) % 16; }},
      {"row_mirror", [](int l) { return l / 16 * 16 + 15 - l % 16; }},
      {"row_half_mirror", [](int l) { return l / 8 * 8 + 7 - l % 8; }},
  };
  for (const Row& row : rows) {
    Bench bench("gfx90a");
    for (int lane = 0; lane < 64; ++lane)
      bench.vector(0, lane, static_cast<u64>(lane) + 1000, 1), bench.vector(10, lane, 7, 1);
    bench.run(std::string("v_mov_b32_dpp v10, v0 ") + row.control +
              " row_mask:0xf bank_mask:0xf bound_ctrl:1");
    for (int lane = 0; lane < 64; ++lane) {
      const int from = row.from(lane);
      ASSERT_EQ(bench.wave.vector[10][lane], from < 0 ? 0u : static_cast<u32>(from) + 1000)
          << row.control << " lane " << lane;
    }
  }
}

// Loads and stores of every size, through global memory, buffers and local memory.
TEST(EmulatorInstructions, Memory) {
  struct Row {
    const char *load, *store;  // global_ and buffer_ before them
    int bytes;
    u32 (*word)(u32 given);  // what a load of the first word gives
  };
  const auto whole = [](u32 v) { return v; };
  const Row rows[] = {
      {"load_dword", "store_dword", 4, whole},
      {"load_b64", "store_b64", 8, whole},
      {"load_dwordx3", "store_dwordx3", 12, whole},
      {"load_b128", "store_dwordx4", 16, whole},
      {"load_ushort", "store_short", 2, [](u32 v) { return v % 65536; }},
      {"load_i16", "store_b16", 2,
       [](u32 v) { return v % 65536 < 32768 ? v % 65536 : v % 65536 + 0xffff0000; }},
      {"load_u8", "store_b8", 1, [](u32 v) { return v % 256; }},
      {"load_sbyte", "store_byte", 1, [](u32 v) { return v % 256 < 128 ? v % 256 : v % 256 + 0xffffff00; }}};
  std::mt19937_64 random(3);
  for (const bool buffer : {false, true}) {
    for (const Row& row : rows) {
      Bench bench("gfx942");
      std::vector<u8> from(64 * 16), to(64 * 16);
      for (u8& byte : from) byte = static_cast<u8>(random());
      bench.memory.add(from.data(), from.size(), Memory::Content::defined, "from");
      bench.memory.add(to.data(), to.size(), Memory::Content::undefined, "to");
      for (int lane = 0; lane < 64; ++lane) bench.vector(0, lane, static_cast<u64>(lane * 16), 1);
      const std::string registers = "v[4:" + std::to_string(3 + (row.bytes + 3) / 4) + "]";
      bench.scalar(0, reinterpret_cast<u64>(from.data())), bench.scalar(4, reinterpret_cast<u64>(to.data()));
      bench.scalar(2, from.size()), bench.scalar(6, to.size());
      const std::string prefix = buffer ? "buffer_" : "global_";
      bench.run(prefix + row.load + " " + registers + (buffer ? ", v0, s[0:3], 0 offen" : ", v0, s[0:1]"));
      for (int lane = 0; lane < 64; ++lane) {
        u32 word = 0;
        std::memcpy(&word, from.data() + lane * 16, 4);
        // What is loaded is there once it was waited for.
        if (lane == 0) bench.run("s_waitcnt vmcnt(0)");
        ASSERT_EQ(bench.wave.vector[4][lane], row.word(word)) << row.load;
      }
      bench.run(prefix + row.store +
                (buffer ? " " + registers + ", v0, s[4:7], 0 offen" : " v0, " + registers + ", s[4:5]"));
      for (int lane = 0; lane < 64; ++lane) {
        ASSERT_EQ(
            std::memcmp(to.data() + lane * 16, from.data() + lane * 16, static_cast<std::size_t>(row.bytes)),
            0)
            << row.store;
      }
    }
  }
}

TEST(EmulatorInstructions, BuffersReadZeroBeyondTheirEnd) {
  Bench bench("gfx1100", 32);
  std::vector<u32> data(8, 5);
  bench.memory.add(data.data(), 32, Memory::Content::defined, "data");
  bench.scalar(0, reinterpret_cast<u64>(data.data())), bench.scalar(2, 32);
  for (int lane = 0; lane < 32; ++lane)
    bench.vector(0, lane, lane < 8 ? static_cast<u64>(lane * 4) : lane < 16 ? 0xfffffff0u : 29u, 1);
  bench.run("buffer_load_b32 v1, v0, s[0:3], 0 offen");
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(bench.wave.vector[1][lane], lane < 8 ? 5u : 0u);
}

// Each lane has its own, by the instructions for it and by a buffer that adds lanes.
TEST(EmulatorInstructions, PrivateMemory) {
  for (const bool buffer : {false, true}) {
    Bench bench(buffer ? "gfx90a" : "gfx942");
    constexpr int kBytes = 20;
    std::vector<u8> data(64 * kBytes);
    bench.memory.add(data.data(), data.size(), Memory::Content::undefined, "private memory");
    bench.block.private_memory = reinterpret_cast<u64>(data.data()), bench.block.private_bytes = kBytes;
    bench.scalar(0, bench.block.private_memory), bench.scalar(2, ~u32{0} | u64{kAddsLanes} << 32);
    for (int lane = 0; lane < 64; ++lane) {
      bench.vector(0, lane, static_cast<u64>(lane % 2 * 4), 1);
      for (int r = 0; r < 2; ++r) bench.vector(4 + r, lane, static_cast<u64>(lane * 10 + r), 1);
    }
    bench.run(buffer ? "buffer_store_dwordx2 v[4:5], off, s[0:3], 0 offset:8"
                     : "scratch_store_dwordx2 off, v[4:5], off offset:8");
    bench.run(buffer ? "buffer_load_dword v6, v0, s[0:3], 0 offen offset:8"
                     : "scratch_load_dword v6, v0, off offset:8");
    bench.run(buffer ? "buffer_load_dword v7, off, s[0:3], 0 offset:16"
                     : "scratch_load_dword v7, off, off offset:16");
    bench.run("s_waitcnt vmcnt(0)");
    for (u32 lane = 0; lane < 64; ++lane) EXPECT_EQ(bench.wave.vector[6][lane], lane * 10 + lane % 2);
    EXPECT_EQ(bench.wave.undefined[6][0], 0u);
    EXPECT_EQ(bench.wave.undefined[7][0], ~u64{0});  // nobody wrote there
  }
}

TEST(EmulatorInstructions, LocalMemory) {
  Bench bench("gfx90a");
  for (int lane = 0; lane < 64; ++lane) {
    bench.vector(0, lane, static_cast<u64>(lane * 16), 1);
    for (int r = 0; r < 4; ++r) bench.vector(4 + r, lane, static_cast<u64>(lane * 10 + r), 1);
  }
  bench.run("ds_write_b128 v0, v[4:7]");
  bench.run("ds_read2_b32 v[10:11], v0 offset0:1 offset1:3");
  bench.run("ds_read_b64 v[12:13], v0 offset:8");
  bench.run("ds_read_u16 v14, v0");
  bench.run("ds_read2st64_b32 v[16:17], v0 offset1:1");  // 64 words on: lane + 16
  bench.run("s_waitcnt lgkmcnt(0)");
  for (u32 lane = 0; lane < 48; ++lane) {
    EXPECT_EQ(bench.wave.vector[10][lane], lane * 10 + 1);
    EXPECT_EQ(bench.wave.vector[11][lane], lane * 10 + 3);
    EXPECT_EQ(bench.wave.vector[12][lane], lane * 10 + 2);
    EXPECT_EQ(bench.wave.vector[14][lane], lane * 10);
    EXPECT_EQ(bench.wave.vector[17][lane], (lane + 16) * 10);
  }
}

// Rows of 16 bytes have no conflicts; a column of words 32 apart asks one bank 32 times.
TEST(EmulatorInstructions, BankConflictsAreCounted) {
  u32 rows[64], column[32], same[64] = {};
  for (u32 i = 0; i < 64; ++i) rows[i] = i * 16;
  for (u32 i = 0; i < 32; ++i) column[i] = i * 128;
  EXPECT_EQ(local_cost(rows, 16).cycles, 8);
  EXPECT_EQ(local_cost(rows, 16).least, 8);
  EXPECT_EQ(local_cost(column, 4).cycles, 32);
  EXPECT_EQ(local_cost(column, 4).least, 1);
  EXPECT_EQ(local_cost(same, 4).cycles, 2);
}

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
TEST(EmulatorInstructions, MatrixMaps) {
  for (const MapEntry& e : kMap) {
    const MatrixOperation& m = *find_matrix_operation(e.instruction, e.gfx12);
    EXPECT_EQ(e.lane % m.rows, e.a_row) << e.instruction;
    EXPECT_EQ(m.depth_at(e.lane, e.element), e.a_depth) << e.instruction;
    EXPECT_EQ(m.row_at(e.lane, e.result), e.d_row) << e.instruction;
    EXPECT_EQ(e.lane % m.columns, e.d_column) << e.instruction;
  }
}

// The product itself, of integers: every element of A, B and C is where the map says, and D is A B + C.
TEST(EmulatorInstructions, MatrixProducts) {
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

std::string refusal(const std::string& text) {
  try {
    decode(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
TEST(EmulatorInstructions, AnUnknownInstructionIsNamed) {
  EXPECT_NE(refusal("v_frobnicate_b32 v0, v1").find("v_frobnicate_b32"), std::string::npos);
  EXPECT_NE(refusal("v_add_f32_e32 v0, q7, v1").find("'q7'"), std::string::npos);
}

}  // namespace
}  // namespace faltung::emulator
