// FFT convolution where the registry's tests do not reach it: with epilogues (which need math fast for small
// filters), over several tiles and batches of them, and within the bound of math f32.
#include <gtest/gtest.h>

#include "src/finder/trust/verify.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

void verify(const std::string& text) {
  const Problem problem = parse_problem(text);
  const std::shared_ptr<Device> device = find_device("cpu");
  const auto parallel = std::make_shared<const Parallel>(2);
  const Algorithm& fft = find_algorithm("fft_cpu");
  const Target target{device->info(), 2};
  const Support support = fft.supports(problem, target);
  ASSERT_TRUE(support.yes) << text << ": " << support.why;
  const Scratch folder;
  Store store(folder.path());
  Verifier verifier(problem, device, parallel, 1);
  for (const Candidate& candidate : fft.candidates(problem, target)) {
    const Report report = verifier.kernel(candidate, store);
    EXPECT_TRUE(passed(report)) << text << " " << candidate.config << ": " << report.why;
  }
}

TEST(Fft, Epilogues) {
  for (const char* layout : {"nchw", "nhwc"}) {
    for (const char* type : {"f32", "f16", "bf16"}) {
      for (const char* epilogue : {"bias", "bias:residual:relu", "silu", "bias:gelu:maxpool2"}) {
        verify(std::string("fwd:n2c5h19w22k18r5s4:pad2.1.0.3:") + type + ":" + layout +
               ":math=fast:" + epilogue);
      }
    }
  }
}

TEST(Fft, LargeFiltersWithinTheBoundOfMathF32) {
  for (const char* layout : {"nchw", "nhwc"}) {
    verify(std::string("fwd:n1c24h34w30k6r19s21:pad9.9.10.10:f32:") + layout);
    verify(std::string("bwd_d:n1c6h34w30k24r19s21:pad9.9.10.10:f32:") + layout);
  }
}

TEST(Fft, DeclinesMathF32ForSmallFilters) {
  const std::shared_ptr<Device> device = find_device("cpu");
  const Support support =
      find_algorithm("fft_cpu").supports(parse_problem("fwd:n1c16h32w32k16r3s3:pad1"), {device->info(), 1});
  EXPECT_FALSE(support.yes);
  EXPECT_NE(support.why.find("math fast"), std::string::npos) << support.why;
}

}  // namespace
}  // namespace faltung
