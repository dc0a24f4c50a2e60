// The problems on which every kernel of the registry is tested.
#ifndef FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_
#define FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"
#include "tests/sampling.hpp"

namespace faltung {

// The rows of tests/shapes/small.csv in every direction, layout and dtype.
inline std::vector<Problem> shape_problems() {
  std::ifstream in(std::string(FALTUNG_SOURCE_DIR) + "/tests/shapes/small.csv");
  EXPECT_TRUE(in.good()) << "tests/shapes/small.csv";
  std::vector<Problem> problems;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const std::vector<std::string> f = split(line, ',');
    const auto number = [&](int i) { return std::stoll(f.at(static_cast<std::size_t>(i))); };
    Problem p;
    p.n = number(1), p.c = number(2), p.h = number(3), p.w = number(4), p.k = number(5), p.r = number(6);
    p.s = number(7), p.stride_h = number(8), p.stride_w = number(9), p.pad_top = number(10);
    p.pad_bottom = number(11), p.pad_left = number(12), p.pad_right = number(13), p.dilation_h = number(14);
    p.dilation_w = number(15), p.groups = number(16);
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          p.direction = direction;
          p.layout = layout;
          p.dtype = dtype;
          p.math = default_math(dtype);
          problems.push_back(p);
        }
      }
    }
  }
  return problems;
}

// Every operation of the epilogue, pools among them, behind a dense, a depthwise, a 1x1 and a strided filter.
inline std::vector<Problem> epilogue_problems() {
  const char* const epilogues[] = {"bias",
                                   "residual",
                                   "bias:residual:relu",
                                   "relu6",
                                   "leaky_relu(0.1)",
                                   "bias:sigmoid",
                                   "silu",
                                   "bias:gelu",
                                   "gelu_tanh",
                                   "hardswish",
                                   "hardsigmoid(0.2)",
                                   "clip(-1.5,2)",
                                   "bias:prelu",
                                   "prelu:residual",
                                   "bias:silu:residual",
                                   "bias:relu:maxpool2",
                                   "maxpool3s2p1",
                                   "residual:avgpool2",
                                   "silu:avgpool3s2p1",
                                   "bias:prelu:maxpool2",
                                   "bias:relu:maxpool2x3s1x2p0.1.0.2"};
  const char* const shapes[] = {"n2c16h14w15k32r3s3:pad1", "n1c24h9w12k24r3s3:pad1:g24", "n1c33h8w8k40r1s1",
                                "n1c3h21w19k20r5s5:st2:pad0.1.2.1"};
  std::vector<Problem> problems;
  for (const char* epilogue : epilogues) {
    for (const char* shape : shapes) {
      for (const char* layout : {"nchw", "nhwc"}) {
        for (const char* type : {"f32", "f16", "bf16"}) {
          problems.push_back(
              parse_problem(std::string("fwd:") + shape + ":" + type + ":" + layout + ":" + epilogue));
        }
      }
    }
    // Planes of a multiple of 8 pixels and channels, which Hopper's kernels take as they are.
    problems.push_back(parse_problem(std::string("fwd:n1c40h8w9k168r1s1:f16:nchw:") + epilogue));
    // Of 4, whose every second channel they take so.
    problems.push_back(parse_problem(std::string("fwd:n1c64h10w14k24r1s1:f16:nchw:") + epilogue));
  }
  for (const char* shape : shapes) {
    for (const char* type : {"f16:nchw", "f16:nhwc", "bf16:nchw", "bf16:nhwc"}) {
      for (const char* epilogue : {"biasf32:relu", "biasf32:residual"})
        problems.push_back(parse_problem(std::string("fwd:") + shape + ":" + type + ":" + epilogue));
    }
  }
  return problems;
}

// What reads and writes slices of tensors of more channels: x, y and the residual, of whole vectors and not,
// in every layout and dtype.
inline std::vector<Problem> slice_problems() {
  const char* const shapes[] = {
      "n2c16h9w10k24r3s3:pad1:xpitch40:ypitch64",     "n2c32h5w7k16r1s1:xpitch48:ypitch24:bias:residual:relu",
      "n1c64h8w8k40r1s1:ypitch72:bias:silu:residual", "n2c24h11w8k16r3s3:st2:pad1:xpitch72:bias",
      "n3c5h7w6k7r3s3:pad1:xpitch9:ypitch8:residual", "n2c16h8w12k32r3s3:pad1:xpitch24:relu:maxpool2"};
  std::vector<Problem> problems;
  for (const char* shape : shapes) {
    for (const char* layout : {"nchw", "nhwc"}) {
      for (const char* type : {"f32", "f16", "bf16"})
        problems.push_back(parse_problem(std::string("fwd:") + shape + ":" + type + ":" + layout));
    }
  }
  return problems;
}

// x through a scale and a shift: dense, of groups, depthwise, strided, a slice, of one and three dimensions
// and transposed, in every layout and dtype, in the directions that read x.
inline std::vector<Problem> affine_problems() {
  const char* const shapes[] = {"n2c16h13w14k24r3s3:pad1",         "n1c24h9w22k24r3s3:pad1:g24",
                                "n2c12h15w33k24r5s5:st2:pad2:g12", "n1c33h8w8k40r1s1",
                                "n2c16h11w12k16r3s3:st2:pad1:g4",  "n2c6w50k8s3:pad1",
                                "n1c5d4h5w7k6t3r3s3:pad1",         "n2c6h7w5k9r3s3:transposed:st2:pad1"};
  std::vector<Problem> problems;
  for (const char* shape : shapes) {
    for (const char* what : {"affine_relu:fwd", "affine:bias:residual:relu", "affine_relu:bwd_w"}) {
      for (const char* layout : {"nchw", "nhwc"}) {
        for (const char* type : {"f32", "f16", "bf16"})
          problems.push_back(parse_problem(std::string(shape) + ":" + type + ":" + layout + ":" + what));
      }
    }
  }
  for (const char* type : {"f32:nchw", "f16:nhwc"})
    problems.push_back(parse_problem(std::string("n2c16h9w10k24r3s3:pad1:xpitch40:affine_relu:") + type));
  // Where Hopper's kernels read x through them: several blocks of channels, the last one not whole; tiles
  // beyond the image, and some that have none of its edge.
  for (const char* shape :
       {"n3c72h35w21k64r3s3:pad1:affine_relu:stats", "n2c136h19w23k40r3s3:st2:pad1:affine_relu",
        "n2c128h13w10k144r1s1:affine:residual", "n2c64h18w17k64r5s3:dil2x1:pad2.1.0.3:affine_relu",
        "n2c96h15w13k192r3s3:pad1:g6:affine_relu", "n2c64h17w16k64r3s3:st2x1:pad1:affine:bias:relu",
        "n2c80h14w18k48r1s1:st2:affine_relu:bias"}) {
    for (const char* type : {":f16:nhwc", ":bf16:nhwc"})
      problems.push_back(parse_problem(std::string(shape) + type));
  }
  return problems;
}

// What training takes beside the result, or gates it by: sums of several tiles of a block, of parts of tiles
// and of channels that no tile fills, of groups and few channels; dense ones of enough pixels for several
// parts.
inline std::vector<Problem> training_problems() {
  const char* const shapes[] = {"n5c64h13w11k96r3s3:pad1",    "n9c72h28w30k200r1s1",
                                "n3c64h9w12k128r3s3:pad1:g4", "n2c64h30w34k64r3s3:st2:pad1",
                                "n2c3h40w36k64r7s7:st2:pad3", "n4c32h64w64k64r3s3:pad1"};
  std::vector<Problem> problems;
  for (const char* shape : shapes) {
    for (const char* what : {"fwd:stats", "bias:residual:relu:stats", "bwd_w:dbias", "bwd_d:drelu"}) {
      for (const char* layout : {"nchw", "nhwc"}) {
        for (const char* type : {"f32", "f16", "bf16"})
          problems.push_back(parse_problem(std::string(shape) + ":" + type + ":" + layout + ":" + what));
      }
    }
  }
  return problems;
}

// One and three dimensions, and transposed convolutions, in every direction, layout and dtype; forward with
// an epilogue, too.
inline std::vector<Problem> dimension_problems() {
  const char* const shapes[] = {"n2c16w50k24s3:pad1",
                                "n1c5w233k7s31:st2:pad15.14",
                                "n2c8w40k8s9:dil2:g8",
                                "n1c8d5h7w9k12t3r3s3:pad1",
                                "n2c6d6h5w8k10t3r1s1:st2x1x1:pad1x0x0",
                                "n1c7d4h9w8k9t1r3s3:pad0x1x1",
                                "n1c4d7h8w6k6t2r3s2:st2:pad0.1.1.0.1.2:dil2x1x1:g2",
                                "n2c5d3h4w4k6t1r1s1",
                                "n2c24d3h6w8k16t3r3s3:pad1",
                                "n1c19d5h7w9k21t2r3s2:st2x2x1:pad1.0.1.1.0.1:dil2x1x1",
                                "n2c12w20k10s4:transposed:st2:pad1",
                                "n1c16h7w6k20r4s4:transposed:st2:pad1",
                                "n2c6h5w7k8r3s3:transposed:st2x3:pad1:outpad1x2:g2",
                                "n1c10h9w8k12r3s3:transposed:pad1",
                                "n1c8d3h5w4k6t3r3s3:transposed:st2:pad1:outpad1",
                                "n2c6d4h4w5k8t1r1s1:transposed:st3x1x1:outpad1x0x0"};
  std::vector<Problem> problems;
  for (const char* shape : shapes) {
    const bool volume = parse_problem(shape).dimensions == 3;
    for (const char* what : {"fwd", "bwd_d", "bwd_w", "bias:residual:relu", "bias:relu:maxpool2"}) {
      const std::string word = what;
      if (volume && word.ends_with("maxpool2")) continue;
      for (const char* layout : {"nchw", "nhwc"}) {
        for (const char* type : {"f32", "f16", "bf16"})
          problems.push_back(parse_problem(std::string(shape) + ":" + type + ":" + layout + ":" + word));
      }
    }
  }
  return problems;
}

// What a sample of those must meet all of.
inline std::string dimension_kind_of(const Problem& p) {
  return std::to_string(p.dimensions) + name(p.kind) + name(p.direction) +
         (p.epilogue.empty() ? "" : " and an epilogue");
}

// What a sample must meet all of: directions, layouts and dtypes with each epilogue.
inline std::string kind_of(const Problem& p) {
  Problem kind;
  kind.direction = p.direction, kind.layout = p.layout, kind.dtype = p.dtype;
  kind.math = default_math(p.dtype), kind.epilogue = p.epilogue;
  return to_string(kind);
}

// A part that meets everything: of problems without an epilogue one for each direction, layout and dtype, of
// the others one for each epilogue, their layouts and dtypes in turn; the shapes as the seed has them. each:
// as for sampling::draw.
inline std::vector<Problem> sample(const std::vector<Problem>& problems, double each,
                                   const std::string& label) {
  std::vector<std::string> variants;
  std::map<std::string, std::size_t> epilogues;  // and the place of each
  const auto variant = [](Problem p) { return p.epilogue = {}, kind_of(p); };
  const auto epilogue = [](const Problem& p) {
    Problem only;
    only.epilogue = p.epilogue;
    return to_string(only);
  };
  for (const Problem& p : problems) {
    if (p.epilogue.empty()) continue;
    if (std::find(variants.begin(), variants.end(), variant(p)) == variants.end())
      variants.push_back(variant(p));
    epilogues.emplace(epilogue(p), epilogues.size());
  }
  std::set<std::string> in_turn;  // epilogues that have the layout and dtype whose turn it is
  const auto has_its_turn = [&](const Problem& p) {
    return variant(p) == variants[(epilogues.at(epilogue(p)) + sampling::seed()) % variants.size()];
  };
  for (const Problem& p : problems) {
    if (!p.epilogue.empty() && has_its_turn(p)) in_turn.insert(epilogue(p));
  }
  std::vector<Problem> meant;
  for (const Problem& p : problems) {
    if (p.epilogue.empty() || has_its_turn(p) || !in_turn.contains(epilogue(p))) meant.push_back(p);
  }
  return sampling::draw(meant, each, label,
                        [&](const Problem& p) { return p.epilogue.empty() ? variant(p) : epilogue(p); });
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_
