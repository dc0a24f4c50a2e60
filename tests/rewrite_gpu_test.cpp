// A GPU's copies around a rewritten problem are the CPU's, on every device there is; skipped where there is
// none, unless FALTUNG_TEST_REQUIRE_GPU=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "src/algorithms/rewrite_steps.hpp"
#include "src/algorithms/sm90/copies.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/plan/bound_launch.hpp"
#include "src/problem/dtype.hpp"
#include "src/store/store.hpp"
#include "tests/rewrite_copies.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

// What a step leaves where it writes no element of the other tensor.
enum class Between { what_was_there, zeros };

// Runs the step, from x into the workspace, and compares what it leaves there with the CPU's.
void expect_the_cpus(const TensorCopy& copy, const Step& step, Slot to, const jit::Session& session,
                     Between between = Between::what_was_there) {
  Device& device = session.device();
  std::vector<std::byte> from = random_bytes(source_bytes(copy), 1);
  std::vector<std::byte> expected = random_bytes(target_bytes(copy), 2);
  const Buffer x = device.allocate(from.size()), workspace = device.allocate(to.offset + expected.size());
  std::vector<std::byte> around(to.offset, std::byte{7});
  around.insert(around.end(), expected.begin(), expected.end());
  if (between == Between::zeros) std::fill(expected.begin(), expected.end(), std::byte{});
  device.copy_in(x, from.data(), from.size());
  device.copy_in(workspace, around.data(), around.size());

  Memory memory;
  memory[Place::x] = static_cast<std::byte*>(x.pointer);
  memory[Place::workspace] = static_cast<std::byte*>(workspace.pointer);
  BoundLaunch(std::get<Launch>(step.work), session).run(device, memory, {});
  device.synchronize({});
  device.copy_out(around.data(), workspace, around.size());

  const Parallel parallel(1);
  Memory host;
  host[Place::x] = from.data(), host[Place::workspace] = expected.data();
  std::get<Call>(copy_call("copy", copy, Place::x, Place::workspace).work).run(host, parallel);
  const auto begin = around.begin() + static_cast<std::ptrdiff_t>(to.offset);
  EXPECT_EQ(std::vector<std::byte>(begin, around.end()), expected);
}

constexpr Slot kTo{Place::workspace, 64};

// Skips the test, or fails, where there is none.
template <class Function>
void each_gpu(const Function& function) {
  Store store("");  // where FALTUNG_STORE says
  const std::vector<std::shared_ptr<Device>> devices = tested_gpus();
  for (const auto& device : devices) {
    SCOPED_TRACE(device->info().id);
    function(jit::Session(*device, store));
  }
  if (!devices.empty()) return;
  if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
  GTEST_SKIP() << "no GPU";
}

TEST(RewriteSteps, OnGpusAreTheCpus) {
  each_gpu([](const jit::Session& session) {
    each_copy([&](const TensorCopy& copy) {
      expect_the_cpus(copy, copy_launch("copy", "test", copy, Place::x, kTo, session.device().info()), kTo,
                      session);
    });
  });
}

// A filter's channels in another order.
TEST(RewriteSteps, EvenChannelsComeFirst) {
  each_gpu([](const jit::Session& session) {
    const Problem p = parse_problem("fwd:n1c128h14w14k72r1s1:f16:nchw");
    const TensorCopy copy = sm90::even_channels_first(sm90::pixels_of(p, unchanged(p), Operand::w), 64);
    expect_the_cpus(copy, sm90::copy_step("copy", copy, Place::x, kTo, session.device().info()), kTo,
                    session);
  });
}

// By words of 2 and of 4 bytes, into rows of one chunk of 16 bytes and of several; nothing is written beyond
// them.
TEST(RewriteSteps, RowsAreContinuedByZeros) {
  each_gpu([](const jit::Session& session) {
    Device& device = session.device();
    for (const DType dtype : {DType::f16, DType::f32}) {
      for (const std::size_t width : {1, 3, 6, 30, 61}) {
        const std::size_t rows = 37, size = static_cast<std::size_t>(size_of(dtype)), chunk = 16 / size;
        const std::size_t wide = (width + chunk - 1) / chunk * chunk;
        const std::vector<std::byte> from = random_bytes(rows * width * size, 1);
        std::vector<std::byte> expected(kTo.offset, std::byte{7}), there;
        for (std::size_t row = 0; row < rows; ++row) {
          const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * width * size);
          expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(width * size));
          expected.resize(expected.size() + (wide - width) * size);
        }
        expected.resize(expected.size() + 64, std::byte{7});
        there.assign(expected.size(), std::byte{7});
        const Buffer x = device.allocate(from.size()), workspace = device.allocate(there.size());
        device.copy_in(x, from.data(), from.size());
        device.copy_in(workspace, there.data(), there.size());
        Memory memory;
        memory[Place::x] = static_cast<std::byte*>(x.pointer);
        memory[Place::workspace] = static_cast<std::byte*>(workspace.pointer);
        const Step step = sm90::widen_rows("rows", dtype, rows, static_cast<std::int64_t>(width),
                                           static_cast<std::int64_t>(wide), Place::x, kTo, device.info());
        BoundLaunch(std::get<Launch>(step.work), session).run(device, memory, {});
        device.synchronize({});
        device.copy_out(there.data(), workspace, there.size());
        EXPECT_EQ(there, expected) << name(dtype) << " " << width;
      }
    }
  });
}

// Hopper's own, each of which some rewrite asks for.
TEST(RewriteSteps, OnHopperAreTheCpus) {
  const char* const problems[] = {
      "fwd:n2c3h17w19k5r5s5:st2:pad2", "fwd:n2c3h13w20k5r3s7:st1x3:pad0x1:dil2x1",
      "fwd:n2c24h12w16k7r1s1:st2",     "fwd:n2c24h12w17k7r1s1:st3x5",
      "fwd:n2c24h12w16k7r1s1:st2x1",   "fwd:n3c70h5w12k6r3s3:pad1",
      "fwd:n3c5h5w12k6r3s3:pad1",      "bwd_d:n2c6h9w11k4r3s3:st2:pad1",
      "fwd:n3c72h5w5k6r3s3:pad1",      "fwd:n2c520h7w7k5r3s3:pad1",
      "bwd_d:n1c5h7w6k4r3s3:pad3",     "fwd:n1c512h5w6k256r3s2:g32",
      "bwd_d:n1c384h5w6k512r2s3:g32",  "bwd_d:n1c512h7w6k512r3s3:st2:g64",
  };
  Store store("");
  std::set<std::string> kernels;
  for (const auto& device : list_devices()) {
    if (!device->info().has("sm_90a") || device->info().dialect != "cuda" || !is_tested(device->info().id))
      continue;
    SCOPED_TRACE(device->info().id);
    const jit::Session session(*device, store);
    for (const char* const text : problems) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16}) {
          Problem p = parse_problem(text);
          p.layout = layout, p.dtype = dtype, p.math = default_math(dtype);
          std::vector<Rewrite> all =
              p.direction == Direction::forward ? std::vector<Rewrite>{unchanged(p)} : data_phases(p);
          for (const RewriteRule* rule : {&rewrites::fold_rows, &rewrites::space_to_depth, &rewrites::thin,
                                          &rewrites::data_as_forward}) {
            if (rule->applies(p)) all.push_back((*rule)(p));
          }
          if (p.groups > 1) all = {merge_groups(all.front(), 8), merge_groups(all.back(), p.groups)};
          for (const Rewrite& r : all) {
            for (const Operand operand : {Operand::x, Operand::w}) {
              const TensorCopy copy = sm90::pixels_of(p, r, operand);
              const Step step = sm90::copy_step("copy", copy, Place::x, kTo, device->info());
              const std::string& kernel = std::get<Launch>(step.work).source.entry;
              kernels.insert(kernel);
              SCOPED_TRACE(kernel + " of " + to_string(r.inner) + " in " + to_string(p));
              expect_the_cpus(copy, step, kTo, session);
            }
          }
        }
      }
    }
  }
  if (kernels.empty()) GTEST_SKIP() << "no Hopper";
  EXPECT_THAT(kernels, testing::UnorderedElementsAre("copy_by_map", "gather_rows", "pad_channels",
                                                     "space_to_depth", "to_nhwc", "merge_groups"));
}

TEST(RewriteSteps, SpreadOnHopperIsTheCpusWithZerosBetween) {
  Store store("");
  int spread = 0;
  for (const auto& device : list_devices()) {
    if (!device->info().has("sm_90a") || device->info().dialect != "cuda" || !is_tested(device->info().id))
      continue;
    SCOPED_TRACE(device->info().id);
    const jit::Session session(*device, store);
    for (const char* const text :
         {"bwd_d:n2c24h13w16k7r1s1:st2", "bwd_d:n3c72h14w14k7r1s1:st2", "bwd_d:n2c16h9w12k7r1s1:st3x4",
          "bwd_d:n2c16h9w11k7r1s1:st2x1", "bwd_d:n2c16h9w11k7r1s1:st2x3"}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16}) {
          Problem p = parse_problem(text);
          p.layout = layout, p.dtype = dtype, p.math = default_math(dtype);
          if (!sm90::spreads(p)) continue;
          SCOPED_TRACE(to_string(p));
          expect_the_cpus(scatter_of(p, rewrites::thin(p)), sm90::spread("spread", p, Place::x, kTo), kTo,
                          session, Between::zeros);
          ++spread;
        }
      }
    }
  }
  if (spread == 0) GTEST_SKIP() << "no Hopper";
  EXPECT_EQ(spread, 18);
}

TEST(RewriteSteps, DepthToSpaceOnHopperIsTheCpusWithZerosBeyond) {
  Store store("");
  int compared = 0;
  for (const auto& device : list_devices()) {
    if (!device->info().has("sm_90a") || device->info().dialect != "cuda" || !is_tested(device->info().id))
      continue;
    SCOPED_TRACE(device->info().id);
    const jit::Session session(*device, store);
    for (const char* const text : {"bwd_d:n2c3h23w22k64r7s7:st2:pad3", "bwd_d:n3c3h17w20k64r4s4:st4",
                                   "bwd_d:n2c5h19w22k64r5s4:st3x2:pad1x2", "bwd_d:n2c8h14w18k64r2s2:st2"}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16}) {
          Problem p = parse_problem(text);
          p.layout = layout, p.dtype = dtype, p.math = default_math(dtype);
          SCOPED_TRACE(to_string(p));
          const TensorCopy copy = scatter_of(p, sm90::deepened_gradient(p));
          expect_the_cpus(copy, sm90::depth_to_space("back", copy, Place::x, kTo, device->info()), kTo,
                          session, Between::zeros);
          ++compared;
        }
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "no Hopper";
  EXPECT_EQ(compared, 16);
}

}  // namespace
}  // namespace faltung
