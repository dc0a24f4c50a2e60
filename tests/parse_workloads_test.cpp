// Lists of problems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/parse_checks.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

TEST(Workloads, EveryListReads) {
  int lists = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FALTUNG_SOURCE_DIR "/workloads")) {
    if (entry.path().extension() != ".csv") continue;
    ++lists;
    EXPECT_FALSE(read_workloads(entry.path()).empty()) << entry.path();
  }
  EXPECT_GE(lists, 9);
  const std::vector<Workload> rows = read_workloads(FALTUNG_SOURCE_DIR "/workloads/resnet50.csv");
  EXPECT_EQ(rows[2].name, "rn_01");
  EXPECT_EQ(rows[2].count, 3);
  EXPECT_EQ(to_string(rows[2].problem), "fwd:n32c64h56w56k64r3s3:pad1:f32:nchw");
}

TEST(Workloads, ColumnsInAnyOrderWithDefaults) {
  const std::vector<Workload> rows = parse_workloads(
      "\xef\xbb\xbf# a comment\r\n\r\ns, "
      "r,k,w,h,c,n,epilogue,dtype,layout\r\n1,1,5,4,3,2,1,bias:relu,f16,nhwc\r\n3,3,8,9,9,4,1,none,f32,nchw",
      "f");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(to_string(rows[0].problem), "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias:relu");
  EXPECT_EQ(rows[0].name, "line4");
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_EQ(to_string(rows[1].problem), "fwd:n1c4h9w9k8r3s3:f32:nchw");
}

TEST(Workloads, OneAndThreeDimensions) {
  std::vector<Workload> rows =
      parse_workloads("n,c,w,k,s,stride_w,epilogue\n8,64,160,128,9,2,maxpool2\n", "f");
  EXPECT_EQ(to_string(rows.at(0).problem), "fwd:n8c64w160k128s9:st2:f32:nchw:maxpool2");
  rows = parse_workloads(
      "n,c,d,h,w,k,t,r,s,pad_front,pad_back,stride_d,dilation_d,kind,output_pad_d\n"
      "1,2,4,4,5,6,3,1,1,1,0,1,2,plain,0\n1,2,3,4,5,6,3,1,1,0,0,2,1,transposed,1\n",
      "f");
  EXPECT_EQ(to_string(rows.at(0).problem),
            to_string(parse_problem("n1c2d4h4w5k6t3r1s1:pad1.0.0.0.0.0:dil2x1x1")));
  EXPECT_EQ(to_string(rows.at(1).problem),
            to_string(parse_problem("n1c2d3h4w5k6t3r1s1:transposed:st2x1x1:outpad1x0x0")));
}

// What bench, find and verify write with --csv is a list again.
TEST(Workloads, ColumnOfProblems) {
  const std::vector<Workload> rows = parse_workloads(
      "suite,name,problem,device,kernel,ms,note\n"
      "s,first,fwd:n1c2h3w4k5r1s1:f16:nhwc:bias,cpu,a/b,1.5,\"a note, \"\"quoted\"\"\"\n"
      "s,first,fwd:n1c2h3w4k5r1s1:f16:nhwc:bias,cpu,a/c,2.5,\n"
      ",,\"MIOpenDriver conv -F 1 -n 2\",cpu,,,\n",
      "f");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "first");
  EXPECT_EQ(to_string(rows[0].problem), "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias");
  EXPECT_EQ(rows[1].name, "line4");
  EXPECT_EQ(to_string(rows[1].problem), "fwd:n2c3h32w32k32r3s3:f32:nchw");
}

TEST(Workloads, BadFiles) {
  const auto error = [](const std::string& text) {
    return parse_error([&] { parse_workloads(text, "a.csv"); });
  };
  const std::string head = "name,n,c,h,w,k,r,s,groups,count\n";
  EXPECT_THAT(error(""), HasSubstr("a.csv: no rows"));
  EXPECT_THAT(error(head), HasSubstr("a.csv: no rows"));
  EXPECT_THAT(error("name,n,c\n"), HasSubstr("a.csv:1: column h is missing"));
  EXPECT_THAT(error("n,c,w,k,r,s\n"),
              HasSubstr("a.csv:1: column h is missing; n c h w k r s are required of two"));
  EXPECT_THAT(error("n,c,h,w,k,t,r,s\n"),
              HasSubstr("a.csv:1: column d is missing; n c d h w k t r s are required of three dimensions"));
  EXPECT_THAT(error("n,c,d,h,w,k,r,s\n"), HasSubstr("a.csv:1: column t is missing"));
  // A third dimension in a list of two: of the sizes, of what goes with them, and in one row alone.
  EXPECT_THAT(error("n,c,h,w,k,r,s,d\n1,2,4,4,5,1,1,3\n"),
              HasSubstr("a.csv:1: column t is missing; n c d h w k t r s are required of three dimensions"));
  EXPECT_THAT(
      error("n,c,h,w,k,r,s,stride_d\n1,2,4,4,5,1,1,2\n"),
      HasSubstr(
          "a.csv:2: line2: stride_d is 2, but of 2 dimensions it is no part; it must be 1, or dimensions 3"));
  EXPECT_THAT(error("n,c,h,w,k,r,s,pad_front\n1,2,4,4,5,1,1,1\n"),
              HasSubstr("a.csv:2: line2: pad_front is 1, but of 2 dimensions it is no part; it must be 0"));
  EXPECT_THAT(error("n,c,h,w,k,r,s\n1,2,4,4,5,1,1,3\n"), HasSubstr("a.csv:2: 8 values for 7 columns"));
  EXPECT_THAT(error("problem\nn1c2h3w4k5t3r1s1\n"), HasSubstr("a.csv:2: column problem: "));
  EXPECT_THAT(error(head + "\"x,1,2,3,4,5,1,1,1,1\n"), HasSubstr("a.csv:2: a quote is not closed"));
  EXPECT_THAT(error(head + "\"x\"y,1,2,3,4,5,1,1,1,1\n"),
              HasSubstr("a.csv:2: text follows the closing quote"));
  EXPECT_THAT(error("kind,n,c,h,w,k,r,s\ntrans,1,1,1,1,1,1,1"), HasSubstr("it can be plain or transposed"));
  EXPECT_THAT(error("problem\nn1c2h3w4k5r1\n"), HasSubstr("a.csv:2: column problem: problem 'n1c2h3w4k5r1'"));
  EXPECT_THAT(error("nmae,n,c,h,w,k,r,s\n"),
              HasSubstr("a.csv:1: unknown column 'nmae'; the nearest is name"));
  EXPECT_THAT(error("n,n,c,h,w,k,r,s\n"), HasSubstr("a.csv:1: column n is there twice"));
  EXPECT_THAT(error(head + "x,1,2,3\n"), HasSubstr("a.csv:2: 4 values for 10 columns"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,1,1\n\ny,1,2,3,4.5,5,1,1,1,1\n"),
              HasSubstr("a.csv:4: column w: '4.5' is no whole number"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,2,1\n"),
              HasSubstr("a.csv:2: x: groups = 2 does not divide k = 5"));
  EXPECT_THAT(error("epilogue,n,c,h,w,k,r,s\nrelu:bias,1,1,1,1,1,1,1"),
              HasSubstr("a.csv:2: column epilogue: problem 'relu:bias': bias comes after activation"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,1,0\n"),
              HasSubstr("a.csv:2: column count: 0 must be at least 1"));
  EXPECT_THAT(error("dtype,n,c,h,w,k,r,s\nfp32,1,1,1,1,1,1,1"),
              HasSubstr("a.csv:2: column dtype: unknown dtype 'fp32'; it is called f32"));
  EXPECT_THAT(parse_error([] { read_workloads("/nonexistent/a.csv"); }),
              HasSubstr("/nonexistent/a.csv: cannot be opened"));
  EXPECT_THAT(parse_error([] { read_workloads("/tmp"); }), HasSubstr("/tmp: is empty or cannot be read"));
}

}  // namespace
}  // namespace faltung
