// `faltung bench --op` from outside: operators as texts, what their rows say, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/network/interpreter.hpp"
#include "tests/command_fixture.hpp"
#include "tools/op.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class BenchOpCommand : public CommandFixture {
 protected:
  // Of a few milliseconds.
  Result bench(Words words) {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--min-time", "1ms", "--repeat", "2", "--patience", "0s"});
    return run(words);
  }
};

// What must be read and written, by hand, and which steps a CPU makes of it.
struct Expected {
  const char* op;
  std::int64_t bytes;
  const char* kernel;
};
constexpr Expected kOps[] = {
    {"copy:2x3x5x7", 2 * 840, "copy"},
    {"transpose:2x24x5x7:nchw>nhwc", 2 * 6720, "copy"},
    {"transpose:2x5x7x24:nhwc>nchw", 2 * 6720, "copy"},
    {"transpose:3x17x19x2:abcd>dbac:f16", 2 * 3876, "copy"},
    {"transpose:40x50:ab>ba:bf16", 2 * 4000, "copy"},
    {"cast:2x3x5x7:f32>f16", 210 * 6, "map"},
    {"cast:2x3x5x7:bf16>f32", 210 * 6, "map"},
    {"chain:2x3x5x7:relu", 2 * 840, "map"},
    {"chain:2x3x20x20:silu+add+scale", 3 * 9600 + 24, "map"},
    {"chain:2x3x20x20:bias+mul:f16", 3 * 4800, "map"},
    {"mean:2x24x5x7:nchw>nc", 6720 + 192, "reduce"},
    {"mean:9x5x7x80:nhwc>nc", 9 * 35 * 320 + 9 * 320, "reduce"},
    {"max:6x50:ab>a", 1200 + 24, "reduce"},
    {"softmax:6x50", 2 * 1200, "normalize"},
    {"layer_norm:6x50", 2 * 1200, "normalize"},
    {"group_norm:2x24x5x7:8", 2 * 6720, "normalize"},
    {"instance_norm:2x3x5x7", 2 * 840, "normalize"},
    {"concat:2x3x5x7:1", 4 * 840, "copy+copy"},
    {"slice:2x3x5x7:1", 2 * 560, "copy"},
    {"upsample:2x3x5x7:nchw", 5 * 840, "pick"},
    {"upsample:2x5x7x24:nhwc", 5 * 6720, "copy"},
    {"pad:2x3x5x7:1", 840 + 6 * 7 * 9 * 4, "pick"},
    {"gather:40x7:12", 2 * 12 * 28, "pick"},
};

TEST_F(BenchOpCommand, EveryOperatorHasARow) {
  std::string list = "op\n# a comment\n\n";
  for (const Expected& e : kOps) list += std::string(e.op) + "\n";
  write(path("list.csv"), list);
  const Result result = bench({"--ops", path("list.csv"), "--threads", "2", "--csv", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto table = rows(result.out);
  ASSERT_EQ(table.size(), std::size(kOps));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto& row = table[i];
    SCOPED_TRACE(kOps[i].op);
    EXPECT_EQ(row.at("op"), kOps[i].op);  // its text is what was given
    EXPECT_EQ(row.at("bytes"), std::to_string(kOps[i].bytes));
    EXPECT_EQ(row.at("kernel"), kOps[i].kernel);
    EXPECT_EQ(row.at("verdict"), "pass");
    EXPECT_LE(std::stod(row.at("error_over_bound")), 1);
    const double ms = std::stod(row.at("ms")), gbps = std::stod(row.at("gbps"));
    EXPECT_GT(ms, 0);
    EXPECT_NEAR(gbps, static_cast<double>(kOps[i].bytes) / ms * 1e-6, 1e-3 * gbps);
    EXPECT_NEAR(std::stod(row.at("copy_pct")), 100 * gbps / std::stod(row.at("copy_gbps")),
                1e-3 * std::stod(row.at("copy_pct")));
    EXPECT_EQ(row.at("threads"), "2");
    EXPECT_GE(std::stoi(row.at("sets")), 2);
  }
  // What is moved is so to the bit.
  for (const auto& row : table) {
    if (row.at("kernel") == "copy" || row.at("kernel").starts_with("pick")) {
      EXPECT_EQ(row.at("error"), "0");
    }
  }
}

// The graph is what the text says: element by element, by hand.
TEST(OpNetwork, LettersNameDimensions) {
  network::Array x{network::Type::f32, {2, 3, 4}, {}};
  for (int i = 0; i < 24; ++i) x.data.push_back(i * i);
  const auto of = [&](const char* op) {
    return network::interpret(tools::op_network(tools::parse_op(op), 1, true, 600).graph, {x})[0];
  };
  const network::Array turned = of("transpose:2x3x4:abc>cab"), mean = of("mean:2x3x4:abc>b"),
                       half = of("slice:2x3x4:2");
  ASSERT_EQ(turned.shape, (network::Shape{4, 2, 3}));
  ASSERT_EQ(mean.shape, network::Shape{3});
  ASSERT_EQ(half.shape, (network::Shape{2, 3, 2}));
  std::vector<double> sums(3);
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t c = 0; c < 4; ++c) {
        const double value = x.data[(a * 3 + b) * 4 + c];
        EXPECT_EQ(turned.data[(c * 2 + a) * 3 + b], value);
        if (c >= 2) {
          EXPECT_EQ(half.data[(a * 3 + b) * 2 + c - 2], value);
        }
        sums[b] += value;
      }
    }
  }
  for (std::size_t b = 0; b < 3; ++b) EXPECT_DOUBLE_EQ(mean.data[b], sums[b] / 8);
}

TEST_F(BenchOpCommand, TypesAreReplacedButWhereTheOperatorCasts) {
  const Result result = bench({"--op", "transpose:8x9:ab>ba", "--op", "cast:8x9:f32>bf16", "--dtype", "f16",
                               "--json", path("out.json"), "--no-check"});
  ASSERT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 rows measured: of a copy's rate "));
  const auto json = nlohmann::json::parse(read(path("out.json")));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["op"], "transpose:8x9:ab>ba:f16");
  EXPECT_EQ(json[0]["type"], "f16");
  EXPECT_EQ(json[0]["verdict"], "unchecked");
  EXPECT_TRUE(json[0]["error"].is_null());
  EXPECT_EQ(json[1]["type"], "f32>bf16");
}

// What a CPU's kernels do not compute is told beside what they do, and refused where it is all.
TEST_F(BenchOpCommand, WhatNothingComputesIsDeclined) {
  const Result result = bench({"--op", "softmax:6x50:f16", "--op", "copy:6x50:f16", "--csv", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto table = rows(result.out);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].at("verdict"), "declined");
  EXPECT_EQ(table[1].at("verdict"), "pass");
  const Result none = bench({"--op", "softmax:6x50:f16", "--csv", path("none.csv")});
  EXPECT_EQ(none.exit, 2);
  EXPECT_THAT(none.err, HasSubstr("the CPU computes it on elements of f32 alone"));
}

TEST_F(BenchOpCommand, TheListThatShipsIsKnownByItsName) {
  const std::vector<tools::Op> ops = tools::read_ops(FALTUNG_SOURCE_DIR "/workloads/ops.txt");
  EXPECT_GT(ops.size(), 30u);
  for (const tools::Op& op : ops) EXPECT_EQ(to_string(tools::parse_op(to_string(op))), to_string(op));
  expect_refused({"bench", "--ops", "opz"}, "the nearest is ops");
}

TEST_F(BenchOpCommand, WhatDoesNotFitIsRefused) {
  const std::pair<const char*, const char*> kBad[] = {
      {"transposes:8x9:ab>ba", "there is no operator 'transposes'; the nearest is transpose"},
      {"", "there is no operator ''"},
      {"copy", "it has no sizes"},
      {"copy:", "'' is no whole number"},
      {"copy:8x0", "'0' is no whole number of at least 1"},
      {"copy:8x-1", "'-1' is no whole number"},
      {"copy:8x9y", "'9y' is no whole number"},
      {"copy:65536x65536", "more than 2^28 elements"},
      {"copy:99999999999999999999", "is no whole number"},
      {"copy:1x1x1x1x1x1x1x1x1", "it is of 1 to 8 dimensions, not 9"},
      {"copy:8:f16:f16", "'f16' is too much"},
      {"copy:8:f17", "f17"},
      {"copy:8:f32>f16", "is not a type"},
      {"cast:8", "it does not say of which types"},
      {"cast:8:f16", "is not as f32>f16"},
      {"transpose:8x9", "it does not say how, as transpose:8x9:nchw>nhwc"},
      {"transpose:8x9:ab", "is not as nchw>nhwc"},
      {"transpose:8x9:abc>cba", "does not name 2 dimensions"},
      {"transpose:8x9:aa>aa", "does not name 2 dimensions"},
      {"transpose:8x9:ab>ac", "does not name 2 dimensions"},
      {"transpose:8x9:ab>a", "loses dimensions"},
      {"mean:8x9:ab>ab", "does not leave dimensions out"},
      {"mean:8x9x3:abc>ba", "does not leave dimensions out"},
      {"chain:8x9:tanhh", "a chain has no 'tanhh'"},
      {"chain:8x9:relu+", "a chain has no ''"},
      {"group_norm:2x24x5x7:5", "5 groups do not divide 24 channels"},
      {"group_norm:2x24x5x7:0", "0 groups do not divide"},
      {"group_norm:24x5x7:8", "it is of 4 dimensions, not 3"},
      {"concat:8x9:2", "'2' is no whole number up to 1"},
      {"slice:1x9:0", "dimension 0 has no half"},
      {"upsample:2x3x5x7:chw", "'chw' is neither nchw nor nhwc"},
      {"pad:8x9:-1", "'-1' is no whole number up to"},
      {"pad:8x9:many", "'many' is no whole number up to"},
      {"gather:8x9:9", "'9' is no whole number up to 8"},
      {"gather:8x9:0", "it gathers nothing"},
  };
  for (const auto& [op, message] : kBad) expect_refused({"bench", "--op", op}, message);
  expect_refused({"bench", "--op", "copy:8", kSmall}, "--op beside problems");
  expect_refused({"bench", "--op", "copy:8", "--batch", "2"}, "--batch with --op");
  expect_refused({"bench", "--op", "copy:8", "--skip", "winograd*"}, "--skip with --op");
  expect_refused({"bench", "--op", "copy:8", "--workspace", "0"}, "--workspace with --op");
  expect_refused({"bench", "--op", "copy:8", "--nondeterministic"}, "--nondeterministic with --op");
  expect_refused({"bench", "--op", "copy:8", "--vs", "onednn"}, "are of problems");
  expect_refused({"bench", "--op", "copy:8", "--dtype", "f8"}, "--dtype");
  expect_refused({"bench", "--ops", path("none.csv")}, "none.csv: it is no list of operators");
  write(path("bad.csv"), "op\ncopy:8\n\ncopy:8x\n");
  expect_refused({"bench", "--ops", path("bad.csv")}, "bad.csv, line 4: ");
  write(path("empty.csv"), "op\n");
  expect_refused({"bench", "--ops", path("empty.csv")}, "it lists no operator");
}

}  // namespace
}  // namespace faltung
