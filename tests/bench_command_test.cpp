// `faltung bench` from outside: its columns, its lists, and peers in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/command_fixture.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class BenchCommand : public CommandFixture {
 protected:
  // Of a few milliseconds.
  Result bench(Words words) {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--min-time", "2ms", "--repeat", "2"});
    return run(words);
  }
};

TEST_F(BenchCommand, BenchWritesTheColumnsThatWerePromised) {
  const Result result = bench({kSmall, "n1c8h9w8k8r3s3:pad1:g8", "--csv", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("suite,name,problem,device,kernel,ms,ms_min,ms_max,tflops,gbps,ceiling_pct,"
                         "error_over_bound,compile_ms,workspace_bytes,peer,peer_ms,ratio,verdict,"));
  const auto table = rows(result.out);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].at("problem"), "fwd:" + kSmall + ":f32:nchw");
  for (const auto& row : table) {
    EXPECT_EQ(row.at("device"), "cpu");
    EXPECT_EQ(row.at("verdict"), "pass");
    EXPECT_THAT(row.at("kernel"), HasSubstr("_cpu/"));
    const double ms = std::stod(row.at("ms"));
    EXPECT_GT(std::stod(row.at("ms_min")), 0);
    EXPECT_LE(std::stod(row.at("ms_min")), ms);
    EXPECT_GE(std::stod(row.at("ms_max")), ms);
    EXPECT_LE(std::stod(row.at("error_over_bound")), 1);
    EXPECT_EQ(row.at("peer"), "");
    EXPECT_EQ(row.at("ratio"), "");
  }
  const double flops = 2.0 * 2 * 32 * 14 * 15 * 16 * 9;
  EXPECT_NEAR(std::stod(table[0].at("tflops")), flops / std::stod(table[0].at("ms")) * 1e-9,
              1e-4 * std::stod(table[0].at("tflops")));
}

TEST_F(BenchCommand, BenchTakesListsAndOverrides) {
  write(path("two.csv"),
        "name,n,c,h,w,k,r,s,pad_top,pad_bottom,pad_left,pad_right,count\n"
        "first,64,16,10,12,16,3,3,1,1,1,1,3\nsecond,64,16,9,9,16,1,1,0,0,0,0,1\n");
  const Result result =
      bench({"--suite", path("two.csv"), "--batch", "2", "--dtype", "bf16", "--layout", "nhwc", "--epilogue",
             "bias,relu,maxpool2", "--threads", "1", "--csv", path("out.csv"), "--json", path("out.json")});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto table = rows(read(path("out.csv")));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].at("suite"), "two");
  EXPECT_EQ(table[0].at("name"), "first");
  EXPECT_EQ(table[0].at("problem"), "fwd:n2c16h10w12k16r3s3:pad1:bf16:nhwc:bias:relu:maxpool2");
  EXPECT_EQ(table[1].at("problem"), "fwd:n2c16h9w9k16r1s1:bf16:nhwc:bias:relu:maxpool2");
  EXPECT_EQ(table[0].at("threads"), "1");
  EXPECT_EQ(table[0].at("verdict"), "pass");
  const auto json = nlohmann::json::parse(read(path("out.json")));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["name"], "second");
  EXPECT_TRUE(json[1]["ms"].is_number());
  EXPECT_THAT(result.out, HasSubstr("two: 2 rows measured"));
}

TEST_F(BenchCommand, BenchOfADirectionAndAnotherMath) {
  const Result result =
      bench({kSmall, "--dir", "bwd_w", "--math", "tf32", "--csv", "-", "--kernel", "reference*"});
  ASSERT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(rows(result.out).at(0).at("problem"), "bwd_w:" + kSmall + ":f32:nchw:math=tf32");
  EXPECT_EQ(rows(result.out).at(0).at("kernel"), "reference_cpu/plain");
}

TEST_F(BenchCommand, BenchOfAllAlgorithmsHasARowForEachAndSaysWhyNot) {
  const Result result = bench({kSmall, "--all-algorithms", "--csv", path("out.csv")});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto table = rows(read(path("out.csv")));
  ASSERT_GE(table.size(), 2u);  // at least the reference and one more
  int chosen = 0;
  std::set<std::string> algorithms;
  for (const auto& row : table) {
    chosen += row.at("chosen") == "1";
    algorithms.insert(row.at("kernel").substr(0, row.at("kernel").find('/')));
    EXPECT_EQ(row.at("verdict"), "pass") << row.at("kernel");
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_TRUE(algorithms.count("reference_cpu"));
  EXPECT_THAT(result.out, HasSubstr("depthwise_cpu declined: "));
  EXPECT_THAT(result.out, HasSubstr("chosen over best measured"));
}

TEST_F(BenchCommand, BenchInTurnWithAPeer) {
  write(path("faltung-peer-fixed"),
        "#!/bin/sh\necho 'peer 1 fixed 1.0'\nwhile read verb rest; do\n case $verb in\n"
        " prepare) case $rest in *bwd_w*) echo declined no gradients;; *) echo ready some kernel;; esac;;\n"
        " run) echo ms 2.5 2.4 2.6 7;;\n *) echo failed;;\n esac\ndone\n");
  std::filesystem::permissions(path("faltung-peer-fixed"), std::filesystem::perms::owner_all);
  environment_["FALTUNG_PEER_PATH"] = scratch_.path();
  Result result = bench({kSmall, "bwd_w:" + kSmall, "--vs", "fixed", "--csv", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  auto table = rows(result.out);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].at("peer"), "fixed");
  EXPECT_EQ(table[0].at("peer_impl"), "some kernel");
  EXPECT_EQ(std::stod(table[0].at("peer_ms")), 2.5);
  EXPECT_NEAR(std::stod(table[0].at("ratio")), 2.5 / std::stod(table[0].at("ms")),
              1e-3 * std::stod(table[0].at("ratio")));
  EXPECT_EQ(table[1].at("ratio"), "");
  EXPECT_THAT(table[1].at("note"), HasSubstr("declined: no gradients"));

  result = bench({kSmall, kSmall, "--vs", "fixed"});
  EXPECT_THAT(result.out, HasSubstr("problems: ratio to fixed: geometric mean "));

  write(path("faltung-peer-fixed"), "#!/bin/sh\necho 'peer 1 fixed 1.0'\nread line\nexit 3\n");
  result = bench({kSmall, "--vs", "fixed"});
  EXPECT_EQ(result.exit, 2);
  EXPECT_THAT(result.err, HasSubstr("peer fixed: it ended without an answer"));
}

TEST_F(BenchCommand, OneDnnComputesTheSame) {
  if (access(FALTUNG_BINARY_DIR "/bench/peers/faltung-peer-onednn", X_OK) != 0) GTEST_SKIP() << "not built";
  const Words problems{kSmall + ":nhwc:bias:residual:relu",
                       kSmall + ":bias:silu:avgpool3s2p1",
                       "n2c8h9w8k8r3s3:pad0.1.0.1:st2:g8:residual:maxpool2",
                       "bwd_d:n2c8h9w8k12r3s2:pad1:dil2:g4:nhwc",
                       "bwd_w:" + kSmall,
                       kSmall + ":nhwc:bf16:bias:gelu"};
  Words words = problems;
  words.insert(words.end(), {"--vs", "onednn", "--csv", "-"});
  const Result result = bench(words);
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto table = rows(result.out);
  ASSERT_EQ(table.size(), problems.size());
  for (const auto& row : table) {
    // It has bf16 on processors with AVX-512 alone.
    if (row.at("note").starts_with("onednn declined") && row.at("problem").find("bf16") != std::string::npos)
      continue;
    EXPECT_EQ(row.at("note"), "") << row.at("problem");  // it would say where the results differ
    EXPECT_GT(std::stod(row.at("peer_ms")), 0) << row.at("problem");
  }
}

}  // namespace
}  // namespace faltung
