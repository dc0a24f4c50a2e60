// Tensors beyond 2^31 elements, by every algorithm that supports them. It takes 10 GiB of memory and minutes,
// so ctest does not run it: build/tests/large_tensors_test does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr std::size_t kMostMemory = std::size_t{16} << 30;

// Small integers that differ from element to element in a way that no power of two repeats; all but one in
// `every` 0.
void fill(DType dtype, void* data, i64 elements, const Parallel& parallel, i64 every = 1) {
  constexpr i64 kBlock = 1 << 20;
  parallel.each((elements + kBlock - 1) / kBlock, [&](i64 block, int) {
    for (i64 i = block * kBlock; i < std::min(elements, (block + 1) * kBlock); ++i) {
      const auto mixed = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u;
      store_element(dtype, data, i,
                    i % every == 0 ? static_cast<float>(static_cast<i64>(mixed >> 62) - 1) : 0.0f);
    }
  });
}

class LargeTensors : public testing::TestWithParam<const char*> {};

TEST_P(LargeTensors, EverySupportingAlgorithmIsRight) {
  Problem p = parse_problem(GetParam());
  ASSERT_GT(x_shape(p).elements(), i64{1} << 31);
  const std::shared_ptr<Device> device = find_device("cpu");
  const auto parallel = std::make_shared<const Parallel>(available_processors());
  Builder builder(device, parallel);
  const Target target = builder.target();
  const auto size = [&](const TensorShape& s) { return static_cast<std::size_t>(bytes_of(p, s)); };
  const Buffer x = device->allocate(size(x_shape(p))), w = device->allocate(size(w_shape(p))),
               y = device->allocate(size(y_shape(p)));
  const Tensors tensors{x.pointer, w.pointer, y.pointer, nullptr, nullptr};
  const TensorShape out = result_shape(p);
  for (const TensorShape& s : {x_shape(p), w_shape(p), y_shape(p)}) ASSERT_GT(s.elements(), 0);
  fill(p.dtype, x.pointer, x_shape(p).elements(), *parallel);
  fill(p.dtype, w.pointer, w_shape(p).elements(), *parallel);
  // A sum over all of y must stay exact, so there all but a few are 0.
  fill(p.dtype, y.pointer, y_shape(p).elements(), *parallel,
       p.direction == Direction::backward_weights ? 9973 : 1);

  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu" || algorithm->last_resort()) continue;
    Problem asked = p;
    if (!algorithm->supports(asked, target).yes) asked.math = Math::fast;
    if (!algorithm->supports(asked, target).yes) continue;
    const Candidate candidate = algorithm->candidates(asked, target).front();
    const std::string kernel = candidate.kernel();
    SCOPED_TRACE(kernel + " for " + to_string(asked));
    const std::shared_ptr<const PlanImpl> plan = builder.plan(asked, candidate);
    const std::size_t workspace_bytes = plan->workspace_bytes(false);
    const std::size_t total = workspace_bytes + x.bytes + w.bytes + y.bytes;
    std::cout << kernel << ", workspace " << (workspace_bytes >> 20) << " MiB" << std::endl;
    if (total > kMostMemory) {
      std::cout << "  left out: it would take " << (total >> 30) << " GiB" << std::endl;
      continue;
    }
    const Buffer workspace = device->allocate(workspace_bytes);
    std::memset(result_pointer(asked, tensors), 0xff, size(out));  // NaN
    RunOptions options;
    options.workspace = workspace.pointer;
    plan->run(tensors, options);

    // The ends, what lies around 2^31 elements, and a sample.
    const Accuracy& accuracy = candidate.accuracy;
    std::mt19937_64 random(1);
    const bool sums_all = p.direction == Direction::backward_weights;
    for (int i = 0; i < (sums_all ? 6 : 4000); ++i) {
      const i64 last = out.elements() - 1;
      const i64 at = i == 0   ? 0
                     : i == 1 ? last
                     : i < 40 ? std::min(last, (i64{1} << 31) + i - 20)
                              : static_cast<i64>(random() % static_cast<std::uint64_t>(out.elements()));
      // `at` counts in memory; the letters' order is the reference's.
      const bool nchw = p.layout == Layout::nchw;
      const i64 a = at / (out.c * out.h * out.w);
      const i64 c = nchw ? at / (out.h * out.w) % out.c : at % out.c;
      const i64 h = nchw ? at / out.w % out.h : at / (out.w * out.c) % out.h;
      const i64 b = nchw ? at % out.w : at / out.c % out.w;
      Expected expected = reference(p, tensors, a, c, h, b);
      const float actual = load_element(p.dtype, result_pointer(p, tensors), out.offset(a, c, h, b));
      const std::string where = "element (" + std::to_string(a) + ", " + std::to_string(c) + ", " +
                                std::to_string(h) + ", " + std::to_string(b) + ")";
      if (accuracy.exact_on_integers && accuracy.spread_h == 0) {
        ASSERT_EQ(actual, round_to(p.dtype, static_cast<float>(expected.value))) << where;
        continue;
      }
      // Algorithms on tiles: every |x| and |w| around the element is at most 2.
      expected.magnitude = 4 * static_cast<double>(reduction_length(p));
      ASSERT_LE(error_over_bound(asked, accuracy, expected, actual), 1)
          << where << " is " << actual << ", expected " << expected.value;
    }
  }
}

// x has 2.26e9 elements in 4.5 GB; y and w are small.
INSTANTIATE_TEST_SUITE_P(All, LargeTensors,
                         testing::Values("fwd:n2c64h4200w4200k2r3s3:pad1:bf16:nchw",
                                         "fwd:n2c64h4200w4200k2r3s3:pad1:bf16:nhwc",
                                         "fwd:n1c64h5900w5900k64r3s3:st4:pad1:g64:f16:nchw",
                                         "fwd:n1c64h5900w5900k64r3s3:st4:pad1:g64:f16:nhwc",
                                         "bwd_d:n2c64h4200w4200k2r3s3:pad1:bf16:nchw",
                                         "bwd_d:n2c64h4200w4200k2r3s3:pad1:bf16:nhwc",
                                         "bwd_w:n2c64h4200w4200k2r3s3:pad1:bf16:nchw",
                                         "bwd_w:n2c64h4200w4200k2r3s3:pad1:bf16:nhwc",
                                         "fwd:n1c1h48000w48000k1r1s1:st2:bf16:nchw"));

}  // namespace
}  // namespace faltung
