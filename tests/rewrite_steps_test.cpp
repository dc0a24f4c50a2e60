// The CPU's copies around a rewritten problem put every element where the map says.
#include "src/algorithms/rewrite_steps.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/copies.hpp"
#include "src/problem/dtype.hpp"
#include "tests/rewrite_copies.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A copy by the map alone, element by element, of elements of `Element`'s size.
template <class Element>
std::vector<std::byte> copied(const TensorCopy& copy, const std::vector<std::byte>& from,
                              std::vector<std::byte> to) {
  const auto* const source = reinterpret_cast<const Element*>(from.data());
  auto* const target = reinterpret_cast<Element*>(to.data());
  for (i64 n = 0; n < copy.inner.n; ++n) {
    for (i64 c = 0; c < copy.inner.c; ++c) {
      for (i64 h = 0; h < copy.inner.h; ++h) {
        for (i64 w = 0; w < copy.inner.w; ++w) {
          const auto there = copy.map({n, c, h, w});
          const i64 inner = copy.inner.offset(n, c, h, w);
          const i64 outer = there ? copy.outer.offset((*there)[0], (*there)[1], (*there)[2], (*there)[3]) : 0;
          if (copy.way == CopyWay::gather) target[inner] = there ? source[outer] : Element(0);
          if (copy.way == CopyWay::scatter && there) target[outer] = source[inner];
        }
      }
    }
  }
  return to;
}

TEST(RewriteSteps, OnTheCpuCopyByTheMap) {
  const Parallel parallel(2);
  int copies = 0;
  each_copy([&](const TensorCopy& copy) {
    const std::vector<std::byte> from = random_bytes(source_bytes(copy), 1);
    const std::vector<std::byte> before = random_bytes(target_bytes(copy), 2);
    const std::vector<std::byte> expected = size_of(copy.dtype) == 4
                                                ? copied<std::uint32_t>(copy, from, before)
                                                : copied<std::uint16_t>(copy, from, before);
    // At offsets, as in a workspace.
    constexpr std::size_t kAt = 64;
    std::vector<std::byte> x(from), workspace(kAt, std::byte{7});
    workspace.insert(workspace.end(), before.begin(), before.end());
    Memory memory;
    memory[Place::x] = x.data(), memory[Place::workspace] = workspace.data();
    const Step step = copy_call("copy", copy, Place::x, Slot(Place::workspace, kAt));
    std::get<Call>(step.work).run(memory, parallel);
    const std::vector<std::byte> result(workspace.begin() + kAt, workspace.end());
    EXPECT_EQ(result, expected);
    EXPECT_EQ(x, from);
    EXPECT_EQ(std::vector<std::byte>(kAt, std::byte{7}),
              std::vector<std::byte>(workspace.begin(), workspace.begin() + kAt));
    ++copies;
  });
  EXPECT_GT(copies, 100);
}

// What a step declares is what a plan binds.
TEST(RewriteSteps, DeclareWhatTheyReadAndWrite) {
  each_copy([&](const TensorCopy& copy) {
    const std::vector<Address> uses = copy_call("copy", copy, Place::x, Place::workspace).uses();
    ASSERT_EQ(uses.size(), 2u);
    EXPECT_EQ(uses[0].slot, Slot(Place::x));
    EXPECT_EQ(uses[0].access, Access::read);
    EXPECT_EQ(uses[1].slot, Slot(Place::workspace));
    EXPECT_EQ(uses[1].access, Access::write);
  });
}

// Hopper's tuned kernels for folded rows and for blocks of pixels know one group of channels.
TEST(RewriteSteps, OnHopperGroupsAreCopiedByTheMap) {
  DeviceInfo h200;
  h200.kind = "gpu", h200.dialect = "cuda", h200.units = 132;
  const auto kernel = [&](const RewriteRule& rule, const std::string& problem) {
    const Problem p = parse_problem(problem);
    const Step step =
        sm90::copy_step("copy", sm90::pixels_of(p, rule(p), Operand::x), Place::x, Place::workspace, h200);
    return std::get<Launch>(step.work).source.entry;
  };
  const std::string problem = "n2c6h8w8k4r3s3:st2:pad1";
  EXPECT_EQ(kernel(rewrites::space_to_depth, "bwd_w:" + problem), "space_to_depth");
  EXPECT_EQ(kernel(rewrites::space_to_depth, "bwd_w:" + problem + ":g2"), "copy_by_map");
  EXPECT_EQ(kernel(rewrites::fold_rows, "fwd:n2c6h8w8k4r5s3:st1x2:pad2x1"), "gather_rows");
  EXPECT_EQ(kernel(rewrites::fold_rows, "fwd:n2c6h8w8k4r5s3:st1x2:pad2x1:g2"), "copy_by_map");
}

// Counts the problems that it lists candidates for.
class Counting : public Algorithm {
 public:
  Counting() : Algorithm({"counting_cpu", "counts what it is asked", "cpu"}) {}
  Support accepts(const Problem&, const Target&) const override { return Support::supported(); }
  mutable int lists = 0;

 private:
  std::vector<Candidate> list(const Problem&, const Target&) const override {
    ++lists;
    Candidate one;
    one.config = "plain";
    return {one};
  }
  Maker parse(const std::string&, Direction) const override { return {}; }
};

// With an epilogue a transposed convolution is its phases: those of 2x2 with stride 2 are alike.
TEST(RewriteSteps, PartsThatAreAlikeAreListedOnce) {
  const Counting counting;
  const DeviceInfo device;
  const Problem phases = parse_problem("n1c8h4w4k8r2s2:transposed:st2:bias:relu");
  EXPECT_EQ(counting.candidates(phases, {device, 1}).size(), 1u);
  EXPECT_EQ(counting.lists, 1);
}

}  // namespace
}  // namespace faltung
