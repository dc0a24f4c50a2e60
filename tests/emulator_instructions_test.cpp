// The emulator's arithmetic, each instruction alone, against definitions of their own in plain C++.
#include <gtest/gtest.h>

#include <random>

#include "faltung/faltung.hpp"
#include "tests/emulator/bench.hpp"
#include "tests/emulator/half_definitions.hpp"
#include "tests/emulator/scalar_definitions.hpp"

namespace faltung::emulator {
namespace {

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
