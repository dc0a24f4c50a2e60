// Every portable kernel compiles for NVIDIA's architectures, without spills; no GPU is needed, only NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/backend/nvrtc.hpp"
#include "tests/builder.hpp"
#include "tests/fake_device.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

// Compiles, and runs nothing.
class Compiler : public FakeDevice {
 public:
  explicit Compiler(std::string architecture)
      : FakeDevice("compiler:" + architecture, architecture), architecture_(std::move(architecture)) {}
  Binary compile(const KernelSource& source) override {
    Binary binary;
    const double seconds = time([&] { binary = Nvrtc::get()->compile(source, architecture_); });
    if (seconds > longest) longest = seconds, longest_source = source;
    if (compiled == 0) first_source = source;
    EXPECT_NE(binary.log.find(" 0 bytes spill stores"), std::string::npos)
        << source.name << " for " << architecture_ << ": " << binary.log;
    ++compiled;
    return binary;
  }

  // How many times the first kernel's time the longest one takes, compiled in turn: on a processor that
  // others use as well, seconds say little.
  double longest_to_first() const {
    double first = 1e9, last = 1e9;
    for (int i = 0; i < 4; ++i) {
      first = std::min(first, time([&] { Nvrtc::get()->compile(first_source, architecture_); }));
      last = std::min(last, time([&] { Nvrtc::get()->compile(longest_source, architecture_); }));
    }
    return last / first;
  }

  double longest = 0;  // seconds of the processor
  KernelSource first_source, longest_source;

 private:
  static double time(const std::function<void()>& work) {
    const std::clock_t begin = std::clock();
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }

  std::string architecture_;
};

// A kernel to compile for one of several architectures, each of which has its own compiler.
struct Kernel {
  std::string architecture, problem;
  Candidate candidate;
};
using KindOf = std::string (*)(const Kernel&);

class Compilers {
 public:
  explicit Compilers(const std::vector<const char*>& architectures) {
    for (const char* architecture : architectures) {
      const auto compiler = std::make_shared<Compiler>(architecture);
      all_.try_emplace(architecture, One{compiler, std::make_unique<Builder>(compiler)});
    }
  }

  // To compile what the algorithm computes the problem by, as its model has them: all, or the first.
  enum class Taken { all, first };
  void add(const Algorithm& algorithm, const char* problem, Taken taken = Taken::all) {
    for (const auto& [architecture, one] : all_) {
      const Problem p = parse_problem(problem);
      if (!algorithm.supports(p, one.builder->target()).yes) continue;
      for (Candidate& candidate : algorithm.candidates(p, one.builder->target())) {
        kernels_.push_back({architecture, problem, std::move(candidate)});
        if (taken == Taken::first) break;
      }
    }
  }

  // Compiles `each` of every kind (tests/sampling.hpp), and says how many there were.
  std::size_t compile(double each, const std::string& label, KindOf kind_of) {
    for (const Kernel& kernel : sampling::draw(kernels_, each, label, kind_of))
      all_.at(kernel.architecture).builder->programs(kernel.candidate.recipe());
    return kernels_.size();
  }

  template <class Each>
  void each(const Each& each) const {
    for (const auto& [architecture, one] : all_) each(architecture, *one.compiler);
  }

 private:
  struct One {
    std::shared_ptr<Compiler> compiler;
    std::unique_ptr<Builder> builder;
  };
  std::map<std::string, One> all_;
  std::vector<Kernel> kernels_;
};

TEST(PortableNvrtc, EveryKernelCompilesWithoutSpills) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const char* const problems[] = {"fwd:n2c16h14w15k32r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "fwd:n2c16h14w15k32r3s3:pad1:f16:nhwc:bias:relu:maxpool2",
                                  "bwd_d:n2c16h14w15k32r3s3:pad1:st2:bf16:nchw",
                                  "bwd_w:n2c16h14w15k32r3s3:pad1:f16:nhwc",
                                  "fwd:n1c3h21w19k20r5s5:st2:pad0.1.2.1:bf16:nchw:silu",
                                  "fwd:n1c24h9w12k24r3s3:pad1:g24:f16:nchw:hardswish",
                                  "bwd_d:n1c24h9w12k24r3s3:pad1:g24:f32:nhwc",
                                  "bwd_w:n1c24h9w12k24r3s3:pad1:g24:bf16:nchw",
                                  "fwd:n2c64h14w15k32r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "bwd_d:n2c16h14w15k32r3s3:pad1:f16:nhwc:math=fast",
                                  "fwd:n1c16h40w36k8r9s9:pad4:f16:nchw:math=fast:bias:silu",
                                  "bwd_d:n1c16h40w36k8r13s13:pad6:f32:nhwc:math=fast"};
  // The oldest that it knows: NVRTC 13 has left Volta behind.
  const char* const oldest = std::stoi(Nvrtc::get()->version()) < 13 ? "sm_70" : "sm_75";
  Compilers compilers({"sm_80", oldest, "sm_90a"});
  for (const auto& algorithm : registry()) {
    if (!algorithm->name().ends_with("_gpu")) continue;
    const bool all = algorithm->name().starts_with("winograd");  // whose sums fill the registers
    for (const char* text : problems)
      compilers.add(*algorithm, text, all ? Compilers::Taken::all : Compilers::Taken::first);
  }
  // Each for one of the architectures.
  compilers.compile(1, "every kernel", [](const Kernel& kernel) {
    return kernel.problem + " " + std::string(kernel.candidate.algorithm->name()) + "/" +
           kernel.candidate.config;
  });
  compilers.each([](const std::string& architecture, const Compiler& compiler) {
    EXPECT_GT(compiler.compiled, 10) << architecture;
    const double ratio = compiler.longest_to_first();
    EXPECT_LT(ratio, 22) << compiler.longest_source.name;  // 14 to 17: 0.8 to 1.0 s of a core of its own
    std::printf("%d kernels for %s, the longest %.1f times the first one, %.2f s: %s\n", compiler.compiled,
                architecture.c_str(), ratio, compiler.longest,
                compiler.longest_source.name.substr(0, compiler.longest_source.name.find(' ')).c_str());
  });
}

// Some tiles of each problem for each architecture.
void expect_no_spills(const char* name, const std::vector<const char*>& architectures,
                      const std::vector<const char*>& problems, double each, std::size_t least) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  Compilers compilers(architectures);
  for (const char* problem : problems) compilers.add(find_algorithm(name), problem);
  EXPECT_GE(compilers.compile(each, name, [](const Kernel& k) { return k.architecture + " " + k.problem; }),
            least);
}

// Every tile of the weights' gradient on the matrix units, whatever is gathered, for one of the
// architectures.
TEST(PortableNvrtc, TheMatrixUnitsTilesOfBackwardWeightsDoNotSpill) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  Compilers compilers({"sm_80", "sm_90a"});
  for (const char* problem :
       {"bwd_w:n128c64h64w64k64r3s3:pad1:f16:nhwc", "bwd_w:n128c64h64w64k64r3s3:pad1:f16:nchw",
        "bwd_w:n128c64h64w64k64r3s3:pad1:f32:nhwc:math=tf32",
        "bwd_w:n128c64h64w64k64r3s3:pad1:f32:nchw:math=tf32",
        "bwd_w:n32c3h224w224k64r7s7:st2:pad3:bf16:nhwc"})
    compilers.add(find_algorithm("implicit_gemm_mma_gpu"), problem);
  compilers.compile(1, "weights", [](const Kernel& k) {
    return k.problem + " " + k.candidate.config.substr(0, k.candidate.config.rfind("_sk"));
  });
  compilers.each([](const std::string& architecture, const Compiler& compiler) {
    EXPECT_GE(compiler.compiled, 5) << architecture;
  });
}

// Tiles and walks of depthwise convolutions, some of each problem's: all that a thread has is in registers.
TEST(PortableNvrtc, DepthwiseTilesDoNotSpill) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const Algorithm& algorithm = find_algorithm("depthwise_gpu");
  const auto compiler = std::make_shared<Compiler>("sm_90a");
  Builder builder(compiler);
  const Target target = builder.target();
  std::set<std::string> entries;
  constexpr std::size_t kEach = 6;
  std::size_t turn = 0;
  for (const char* text :
       {"fwd:n32c144h56w56k144r5s5:pad2:g144:f16:nhwc", "fwd:n32c96h56w56k96r7s7:pad3:g96:bf16:nchw",
        "bwd_d:n32c144h56w56k144r5s5:pad1.2.1.2:st2:g144:f16:nhwc",
        "bwd_w:n32c144h56w56k144r5s5:pad2:g144:f16:nhwc", "bwd_w:n32c144h56w56k144r3s3:pad1:g144:f32:nchw",
        "fwd:n8c128h56w56k128r31s31:pad15:g128:f32:nhwc"}) {
    const std::vector<Candidate> candidates = algorithm.candidates(parse_problem(text), target);
    for (std::size_t i = turn++ % kEach; i < candidates.size(); i += kEach) {
      if (candidates[i].config.starts_with("ln")) continue;
      const Recipe recipe = candidates[i].recipe();
      builder.programs(recipe);
      entries.insert(std::get<Launch>(recipe.steps.front().work).source.entry);
    }
  }
  EXPECT_EQ(entries, (std::set<std::string>{"depthwise_tile", "depthwise_walk", "depthwise_weights"}));
  EXPECT_GE(compiler->compiled, 15);
}

// Tiles of groups of few channels, in all directions; with an epilogue, and with as many taps as there are.
TEST(PortableNvrtc, GroupsOfFewChannelsDoNotSpill) {
  expect_no_spills(
      "grouped_mma_gpu", {"sm_80", "sm_90a"},
      {"fwd:n32c128h56w56k128r3s3:pad1:g32:f16:nhwc:bias:residual:silu",
       "fwd:n32c512h28w28k512r3s3:pad1:st2:g32:bf16:nhwc", "fwd:n32c1024h7w7k1024r3s3:pad1:g32:f16:nhwc",
       "bwd_d:n32c128h56w56k128r3s3:pad1:g64:bf16:nhwc", "bwd_d:n32c256h56w56k256r3s3:pad1:st2:g32:f16:nhwc",
       "bwd_d:n32c1024h14w14k1024r3s3:pad1:st2:g32:f16:nhwc", "bwd_w:n32c128h56w56k128r3s3:pad1:g32:f16:nhwc",
       "bwd_w:n32c1024h14w14k1024r3s3:pad1:st2:g32:bf16:nhwc",
       "fwd:n32c1024h7w7k1024r3s3:pad1:g32:f16:nchw:bias:residual:silu",
       "bwd_d:n32c1024h14w14k1024r3s3:pad1:st2:g32:bf16:nchw"},
      3, 100);
}

// Depthwise convolutions on the matrix units, with an epilogue and with as many taps as there are.
TEST(PortableNvrtc, DepthwiseTilesOfTheMatrixUnitsDoNotSpill) {
  expect_no_spills(
      "depthwise_mma_gpu", {"sm_80", "sm_90a"},
      {"fwd:n32c96h56w56k96r7s7:pad3:g96:f16:nhwc:bias:silu", "fwd:n32c768h7w7k768r7s7:pad3:g768:f16:nhwc",
       "bwd_d:n32c384h14w14k384r7s7:pad3:g384:bf16:nhwc",
       "fwd:n32c192h28w28k192r9s9:pad4:g192:bf16:nhwc:bias:gelu",
       "fwd:n32c128h56w56k128r31s31:pad15:g128:f16:nhwc:bias",
       "bwd_d:n32c144h56w56k144r3s3:pad1:g144:f16:nhwc", "bwd_w:n32c96h56w56k96r7s7:pad3:g96:f16:nhwc",
       "bwd_w:n32c768h7w7k768r7s7:pad3:g768:bf16:nhwc", "bwd_w:n32c144h56w56k144r3s3:pad1:g144:f16:nhwc"},
      2, 60);
}

// Numbers of whole planes that a block has, large ones and small.
TEST(PortableNvrtc, DepthwiseOfWholePlanesDoesNotSpill) {
  expect_no_spills(
      "depthwise_planes_gpu", {"sm_80", "sm_90a"},
      {"fwd:n32c32h112w112k32r3s3:pad1:g32:f16:nchw:bias", "fwd:n32c144h56w56k144r3s3:pad1:g144:f16:nchw",
       "bwd_d:n32c96h56w56k96r7s7:pad3:g96:bf16:nchw",
       "fwd:n32c288h28w28k288r5s5:pad2:g288:f16:nchw:bias:gelu",
       "fwd:n32c384h14w14k384r7s7:pad3:g384:bf16:nchw", "bwd_d:n32c64h32w128k64r9s9:pad4:g64:f16:nchw"},
      2, 30);
}

// The same by diagonal matrices: small and large filters, strides, every number of channels a block has.
TEST(PortableNvrtc, DepthwiseByDiagonalMatricesDoesNotSpill) {
  expect_no_spills("depthwise_diagonal_gpu", {"sm_80"},
                   {"fwd:n2c16h30w30k16r5s5:pad2:g16:f16:nhwc:bias:residual:silu",
                    "bwd_w:n32c16h28w28k16r7s7:pad3:g16:f16:nhwc"},
                   3, 10);
  expect_no_spills(
      "depthwise_diagonal_gpu", {"sm_90a"},
      {"fwd:n32c32h30w30k32r3s3:st2:pad0.1.0.1:g32:f16:nhwc:bias:gelu",
       "fwd:n32c96h28w28k96r7s7:pad3:g96:bf16:nhwc", "bwd_d:n32c1248h7w7k1248r5s5:pad2:g1248:f16:nhwc",
       "bwd_w:n32c96h56w56k96r7s7:pad3:g96:f16:nhwc", "bwd_w:n32c2112h7w7k2112r3s3:pad1:g2112:bf16:nhwc"},
      3, 10);
}

// Planes are turned where both tensors have whole 16 bytes of channels, in a workspace that holds both.
TEST(PortableNvrtc, PlanesAreTurnedWhereChannelsAreWhole) {
  const Algorithm& algorithm = find_algorithm("implicit_gemm_mma_gpu");
  const Compiler compiler("sm_90a");
  const Target target{compiler.info(), 1};
  const auto turned = [&](const char* text) {
    int count = 0;
    for (const Candidate& c : algorithm.candidates(parse_problem(text), target)) {
      if (!c.config.starts_with("nhwc_")) continue;
      EXPECT_GE(c.workspace_bytes, 2u * (2 * 64 * 56 * 56 + 2 * 32 * 56 * 56)) << c.config;
      ++count;
    }
    return count;
  };
  EXPECT_GE(turned("bwd_w:n2c64h56w56k32r3s3:pad1:f16:nchw"), 5);
  EXPECT_EQ(turned("bwd_w:n2c64h56w56k32r3s3:pad1:f16:nhwc"), 0);
  EXPECT_EQ(turned("bwd_w:n2c3h56w56k32r3s3:pad1:f16:nchw"), 0);
  EXPECT_EQ(turned("bwd_w:n2c64h56w56k36r3s3:pad1:f16:nchw"), 0);
  EXPECT_EQ(turned("fwd:n2c64h56w56k32r3s3:pad1:f16:nchw"), 0);
  const Problem pixels = parse_problem("bwd_w:n2c64h56w56k32r3s3:pad1:f16:nhwc");
  for (const char* config :
       {"nhwc_bt64x64_wp2x2_st4", "bt64x64_wp2x2_st4_sk1", "bt64x64_wp2x2_st4_sk",
        "bt64x64_wp2x2_st4_sk2nhwc", "nhwcbt64x64_wp2x2_st4", "bt64x64_wp2x2_st4_nhwc", "bt64x64"}) {
    try {
      algorithm.candidate(pixels, config, target);
      ADD_FAILURE() << config << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem) << config << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(config), std::string::npos) << error.what();
    }
  }
}

// Padding that differs from side to side is read as it is: the same steps and workspace as with none that
// differs.
TEST(PortableNvrtc, UnequalPaddingIsNoStep) {
  const Compiler compiler("sm_80");
  const Target target{compiler.info(), 1};
  const char* const pairs[][2] = {
      {"fwd:n8c96h112w112k96r3s3:st2:pad0.1.0.1:g96:f16:nhwc",
       "fwd:n8c96h112w112k96r3s3:st2:pad1:g96:f16:nhwc"},
      {"fwd:n8c3h224w224k32r3s3:st2:pad0.1.0.1:f16:nhwc", "fwd:n8c3h224w224k32r3s3:st2:pad1:f16:nhwc"},
      {"fwd:n8c16h56w56k32r3s3:pad0.2.1.1:f32:nchw", "fwd:n8c16h56w56k32r3s3:pad1:f32:nchw"}};
  int compared = 0;
  for (const auto& algorithm : registry()) {
    if (!algorithm->name().ends_with("_gpu")) continue;
    for (const auto& pair : pairs) {
      const Problem unequal = parse_problem(pair[0]), equal = parse_problem(pair[1]);
      if (!algorithm->supports(unequal, target).yes || !algorithm->supports(equal, target).yes) continue;
      const Candidate candidate = algorithm->candidates(unequal, target).front();
      const Recipe a = candidate.recipe(), b = algorithm->candidate(equal, candidate.config, target).recipe();
      ASSERT_EQ(a.steps.size(), b.steps.size()) << algorithm->name() << " " << pair[0];
      for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].name, b.steps[i].name);
      EXPECT_LE(a.workspace_bytes, b.workspace_bytes) << algorithm->name() << " " << pair[0];
      ++compared;
    }
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace faltung
