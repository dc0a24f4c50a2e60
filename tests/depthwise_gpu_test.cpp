// What the registry's tests do not do to depthwise_gpu's tiles: tensors that begin at any element, and an
// image with Inf beside where there is no result.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "src/finder/oracle.hpp"
#include "src/problem/dtype.hpp"
#include "tests/builder.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A tensor on the device, so many elements beyond where its memory begins.
class Placed {
 public:
  Placed(Device& device, const Problem& p, i64 elements, const void* content, i64 beyond)
      : bytes_(static_cast<std::size_t>(elements * size_of(p.dtype))),
        skip_(static_cast<std::size_t>(beyond * size_of(p.dtype))),
        device_(device),
        all_(device.allocate(bytes_ + skip_)) {
    const std::vector<std::byte> unwritten(bytes_, std::byte{0xff});
    device_.copy_in(part(), content != nullptr ? content : unwritten.data(), bytes_);
  }
  void* pointer() const { return part().pointer; }
  std::vector<std::byte> content() const {
    std::vector<std::byte> out(bytes_);
    device_.copy_out(out.data(), part(), bytes_);
    return out;
  }

 private:
  Buffer part() const { return {all_.owner, static_cast<char*>(all_.pointer) + skip_, bytes_}; }
  std::size_t bytes_, skip_;
  Device& device_;
  Buffer all_;
};

// What the candidate makes of the oracle's tensors, each so many elements beyond where its memory begins.
Finding run(Builder& builder, const Candidate& candidate, const Oracle& oracle, i64 beyond) {
  Device& device = *builder.device();
  const Problem& p = oracle.problem();
  const Tensors& host = oracle.tensors();
  const bool forward = p.direction == Direction::forward,
             weights = p.direction == Direction::backward_weights;
  const Placed x(device, p, x_shape(p).elements(), forward || weights ? host.x : nullptr, beyond);
  const Placed w(device, p, w_shape(p).elements(), weights ? nullptr : host.w, beyond);
  const Placed y(device, p, conv_shape(p).elements(), forward ? nullptr : host.y, beyond);
  const auto plan = builder.plan(p, candidate);
  const Buffer workspace = device.allocate(plan->workspace_bytes(false) + 1);
  RunOptions options;
  options.workspace = workspace.pointer;
  plan->run({x.pointer(), w.pointer(), y.pointer(), nullptr, nullptr}, options);
  device.synchronize({});
  const std::vector<std::byte> result = (forward ? y : weights ? w : x).content();
  return oracle.check(result.data(), candidate.accuracy, Parallel(1));
}

// The first tile and the first walk.
std::vector<Candidate> one_of_each(const Problem& p, const Target& target) {
  std::vector<Candidate> all;
  std::set<bool> met;
  for (Candidate& c : find_algorithm("depthwise_gpu").candidates(p, target)) {
    if (c.config.starts_with("ln")) continue;
    if (met.insert(c.config.starts_with("walk")).second) all.push_back(std::move(c));
  }
  return all;
}

class DepthwiseGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpus_.empty()) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
  }
  const std::vector<std::shared_ptr<Device>> gpus_ = tested_gpus();
};

TEST_F(DepthwiseGpu, TensorsBeginAtAnyElement) {
  for (const auto& device : gpus_) {
    Builder builder(device);
    for (const char* text :
         {"bwd_d:n2c8h5w8k8r3s3:pad1:g8:f16:nchw", "bwd_w:n2c8h5w8k8r3s3:pad1:g8:bf16:nhwc"}) {
      const Problem p = parse_problem(text);
      const Oracle oracle(p, Data::small_integers, 1);
      const std::vector<Candidate> candidates = one_of_each(p, builder.target());
      EXPECT_EQ(candidates.size(), 2u) << text;
      for (const Candidate& candidate : candidates) {
        for (const i64 beyond : {0, 1}) {
          const Finding finding = run(builder, candidate, oracle, beyond);
          EXPECT_EQ(finding.error_over_bound, 0)
              << candidate.kernel() << " for " << text << ", " << beyond << " beyond: " << finding.worst;
        }
      }
    }
  }
}

// Tiles are 2 x 4 pixels and more, the image is 7 x 9 of them: its last pixels lie beside places without a
// result.
TEST_F(DepthwiseGpu, InfInTheImageIsInItsOwnSumsAlone) {
  for (const auto& device : gpus_) {
    Builder builder(device);
    const Problem p = parse_problem("bwd_w:n1c4h8w11k4r3s3:pad0.1.0.0:g4:f32:nhwc");
    const Oracle oracle(p, Data::random, 1);
    Tensors tensors = oracle.tensors();
    std::vector<std::byte> x(static_cast<std::size_t>(bytes_of(p, x_shape(p))));
    std::memcpy(x.data(), tensors.x, x.size());
    tensors.x = x.data();
    store_element(p.dtype, x.data(), x_shape(p).offset(0, 1, p.h - 1, p.w - 1), INFINITY);
    const Oracle judge(p, tensors, 1);
    for (const Candidate& candidate : one_of_each(p, builder.target())) {
      const Finding finding = run(builder, candidate, judge, 0);
      EXPECT_TRUE(finding.right()) << candidate.kernel() << " for " << to_string(p) << ": " << finding.worst;
    }
  }
}

}  // namespace
}  // namespace faltung
