// What a candidate promises, held by every algorithm of the registry on devices of every kind: its figures
// are its recipe's, its name gives the same again, and its steps touch what they may.
#include "src/algorithms/candidate.hpp"

#include <gtest/gtest.h>

#include <set>

#include "kernels/cpu/brgemm.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/plan/bound_launch.hpp"
#include "src/problem/rewrite.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/fake_device.hpp"
#include "tests/packed.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

// The CPU; a GPU that OpenCL drives, one of AMD's with matrix units, and NVIDIA's of two architectures; AWS's
// cores, for which kernels are emitted.
const std::vector<const DeviceInfo*>& devices_of(std::string_view kind) {
  static const FakeDevice opencl("fake:opencl"), instinct("fake:gfx942", "gfx942"),
      ampere("fake:sm_80", "sm_80"), hopper("fake:sm_90a", "sm_90a");
  static const std::vector<const DeviceInfo*> cpus = {&find_device("cpu")->info()};
  static const std::vector<const DeviceInfo*> gpus = {&opencl.info(), &instinct.info(), &ampere.info(),
                                                      &hopper.info()};
  static const std::shared_ptr<Device> trn2 = find_device("nki:trn2"), trn1 = find_device("nki:trn1");
  static const std::vector<const DeviceInfo*> cores = {&trn2->info(), &trn1->info()};
  return kind == "cpu" ? cpus : kind == "nki" ? cores : gpus;
}

// Some of the registry's problems, and layers of real networks, whose kernels split, fold and turn.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  const std::vector<Problem> shapes = shape_problems(), epilogues = epilogue_problems(),
                             slices = slice_problems(), affine = affine_problems();
  for (std::size_t i = 0; i < shapes.size(); i += 5) all.push_back(shapes[i]);
  for (std::size_t i = 0; i < epilogues.size(); i += 7) all.push_back(epilogues[i]);
  for (std::size_t i = 0; i < slices.size(); i += 4) all.push_back(slices[i]);
  for (std::size_t i = 0; i < affine.size(); i += 7) all.push_back(affine[i]);
  for (const char* shape :
       {"n32c64h56w56k64r3s3:pad1", "n8c3h224w224k64r7s7:st2:pad3", "n32c256h14w14k1024r1s1",
        "n8c144h56w56k144r3s3:pad1:g144", "n16c128h28w28k128r3s3:st2:pad1:bias:residual:relu",
        "n4c64h40w40k64r9s9:pad4:math=fast", "n1c512h7w7k512r3s3:pad1", "n8c64h56w56k256r1s1:st2",
        "n2c64h56w56k64r3s3:pad1:relu:maxpool2", "n2c64d4h14w16k64t3r3s3:pad1"}) {
    for (const char* direction : {"fwd:", "bwd_d:", "bwd_w:"}) {
      for (const char* type : {":f32", ":f16", ":bf16", ":f32:math=tf32"}) {
        for (const char* layout : {":nchw", ":nhwc"}) {
          try {
            all.push_back(parse_problem(std::string(direction) + shape + type + layout));
          } catch (const Error&) {  // an epilogue of a gradient, or math twice
          }
        }
      }
    }
  }
  return all;
}

class Candidates : public testing::TestWithParam<const Algorithm*> {
 protected:
  using Body = std::function<void(const Problem&, const Candidate&, const Target&)>;
  // What any GPU that OpenCL drives was asked for is not asked for again of AMD's.
  bool asks(const Problem& p, const Target& target) const {
    const bool again = target.device.unit.is_amd;
    return GetParam()->supports(p, target).yes &&
           !(again && GetParam()->supports(p, {*devices_of("gpu").front(), 1}).yes);
  }
  // Of each problem's candidates some: Hopper has hundreds, which other problems have again.
  void each(const Body& body) {
    FALTUNG_TRACE_SAMPLE();
    int met = 0;
    for (const DeviceInfo* device : devices_of(GetParam()->device_kind())) {
      const Target target{*device, device->kind == "cpu" ? 2 : 1};
      for (const Problem& p : problems()) {
        if (!asks(p, target)) continue;
        const std::vector<Candidate> all = GetParam()->candidates(p, target);
        std::vector<std::size_t> order = sampling::shuffled(all.size(), to_string(p));
        if (!sampling::full())
          order.resize(std::min(order.size(), static_cast<std::size_t>(sampling::count(12))));
        for (const std::size_t i : order) {
          SCOPED_TRACE(all[i].kernel() + " for " + to_string(p) + " on " + device->id);
          body(p, all[i], target);
          ++met;
          if (HasFailure()) return;
        }
      }
    }
    EXPECT_GT(met, 0) << "no problem is for this algorithm";
  }
};

TEST_P(Candidates, FiguresAreTheRecipes) {
  each([&](const Problem&, const Candidate& candidate, const Target&) {
    const Recipe recipe = candidate.recipe();
    EXPECT_EQ(candidate.workspace_bytes, recipe.workspace_bytes);
    EXPECT_EQ(candidate.packed_bytes, recipe.packed_bytes);
    EXPECT_EQ(recipe.packed_bytes > 0, !recipe.pack.empty());
    EXPECT_FALSE(recipe.steps.empty());
    EXPECT_GT(candidate.cost.ms, 0);
    EXPECT_GT(candidate.accuracy.growth, 0);
    EXPECT_EQ(candidate.algorithm, GetParam());
  });
}

void expect_same(const Candidate& again, const Candidate& listed) {
  EXPECT_EQ(again.config, listed.config);
  EXPECT_EQ(again.cost.ms, listed.cost.ms);
  EXPECT_EQ(again.cost.bound, listed.cost.bound);
  EXPECT_EQ(again.workspace_bytes, listed.workspace_bytes);
  EXPECT_EQ(again.packed_bytes, listed.packed_bytes);
  EXPECT_EQ(again.accuracy.growth, listed.accuracy.growth);
  EXPECT_EQ(again.accuracy.spread_h, listed.accuracy.spread_h);
  EXPECT_EQ(again.accuracy.spread_w, listed.accuracy.spread_w);
  EXPECT_EQ(again.repeatable, listed.repeatable);
  EXPECT_EQ(again.registers, listed.registers);
  const Recipe a = again.recipe(), b = listed.recipe();
  EXPECT_EQ(program_digests(a), program_digests(b));
  EXPECT_EQ(a.packing, b.packing);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].name, b.steps[i].name);
}

TEST_P(Candidates, TheNameGivesTheSameAgain) {
  each([&](const Problem& p, const Candidate& listed, const Target& target) {
    expect_same(GetParam()->candidate(p, listed.config, target), listed);
  });
}

// Listing, making again and making for another batch read no names.
TEST_P(Candidates, TheChoicesGiveTheSameAgain) {
  const std::size_t read = names_read();
  each([&](const Problem& p, const Candidate& listed, const Target& target) {
    expect_same(GetParam()->candidate(p, listed.maker, target), listed);
    Problem more = p;
    more.n += 1;
    try {
      EXPECT_EQ(GetParam()->candidate(more, listed.maker, target).config, listed.config);
    } catch (const Error&) {  // these choices are not for that batch
    }
  });
  EXPECT_EQ(names_read(), read);
}

// Tiles of the weights' gradient do not ask each whether a rewrite applies: that is known of the problem.
TEST_P(Candidates, OfWeightsGradientsAskForRewritesOnce) {
  for (const DeviceInfo* device : devices_of(GetParam()->device_kind())) {
    for (const char* shape :
         {"n32c1024h14w14k2048r1s1:st2:f16:nchw", "n32c256h28w28k256r3s3:st2:pad1:f16:nhwc",
          "n32c3h224w224k64r7s7:st2:pad3:f32:nchw"}) {
      const Problem p = parse_problem(std::string("bwd_w:") + shape);
      const std::size_t before = rewrites_asked();
      static_cast<void>(GetParam()->offer(p, {*device, 1}));
      EXPECT_LE(rewrites_asked() - before, 32u) << to_string(p) << " on " << device->id;
    }
  }
}

TEST_P(Candidates, AreListedOnceAndTheBestFirst) {
  for (const DeviceInfo* device : devices_of(GetParam()->device_kind())) {
    const Target target{*device, device->kind == "cpu" ? 2 : 1};
    for (const Problem& p : problems()) {
      if (!asks(p, target)) continue;
      std::set<std::string> names;
      double before = 0;
      for (const Candidate& candidate : GetParam()->candidates(p, target)) {
        EXPECT_TRUE(names.insert(candidate.config).second) << candidate.kernel() << " for " << to_string(p);
        EXPECT_GE(candidate.cost.ms, before) << candidate.kernel() << " for " << to_string(p);
        before = candidate.cost.ms;
      }
      EXPECT_FALSE(names.empty()) << to_string(p);
    }
  }
}

// Inputs are read alone; packed weights are written by pack steps alone; the result is written, nothing is
// read that was never written, and every slot lies in its place.
TEST_P(Candidates, StepsTouchWhatTheyMay) {
  each([&](const Problem& p, const Candidate& candidate, const Target& target) {
    const Recipe recipe = candidate.recipe();
    const Place result = result_place(p);
    const bool sums = bytes(p, Tensor::sums) > 0;  // are a result, too
    bool wrote_result = false, wrote_packed = false, wrote_workspace = false;
    const auto check = [&](const Step& step, bool packs) {
      EXPECT_EQ(std::holds_alternative<Launch>(step.work), target.device.kind != "cpu") << step.name;
      bool writes = false, workspace_after = wrote_workspace;
      for (const Address& use : step.uses()) {
        const Place place = use.slot.place;
        const std::string where = step.name + ", place " + std::to_string(static_cast<int>(place));
        const bool reads = use.access != Access::write, written = use.access != Access::read;
        writes = writes || written;
        switch (place) {
          case Place::workspace:
            // A CPU's step may declare what this problem needs nothing of.
            if (recipe.workspace_bytes > 0 || target.device.kind == "gpu") {
              EXPECT_LT(use.slot.offset, recipe.workspace_bytes) << where;
            }
            EXPECT_TRUE(!reads || wrote_workspace || use.access == Access::update) << where;
            workspace_after = workspace_after || written;
            break;
          case Place::packed:
            EXPECT_LT(use.slot.offset, recipe.packed_bytes) << where;
            EXPECT_TRUE(packs || !written) << where;
            EXPECT_TRUE(!reads || wrote_packed || use.access == Access::update) << where;
            if (written) wrote_packed = true;
            break;
          default:
            EXPECT_EQ(use.slot.offset == 0 || target.device.kind == "gpu", true) << where;
            EXPECT_TRUE(!written || ((place == result || (place == Place::sums && sums)) && !packs))
                << where << " is no result";
            EXPECT_TRUE(!reads || place != result || wrote_result || use.access == Access::update) << where;
            EXPECT_TRUE(!packs || place == Place::w) << where << " is no weights";
            if (place == result && written) wrote_result = true;
        }
      }
      EXPECT_TRUE(writes) << step.name << " writes nothing";
      wrote_workspace = workspace_after;
    };
    for (const Step& step : recipe.pack) check(step, true);
    EXPECT_EQ(wrote_packed, recipe.packed_bytes > 0);
    wrote_workspace = false;  // packing may have been done long before
    for (const Step& step : recipe.steps) check(step, false);
    EXPECT_TRUE(wrote_result);
  });
}

// Of a GPU's steps each is so large as the device can launch, with its program's own block.
class GpuCandidates : public Candidates {};
TEST_P(GpuCandidates, LaunchWhatTheProgramsAreCompiledFor) {
  each([&](const Problem&, const Candidate& candidate, const Target&) {
    const Recipe recipe = candidate.recipe();
    for (const std::vector<Step>* steps : {&recipe.pack, &recipe.steps}) {
      for (const Step& step : *steps) {
        const auto& work = std::get<Launch>(step.work);
        const unsigned threads = work.shape.block[0] * work.shape.block[1] * work.shape.block[2];
        for (const unsigned blocks : work.shape.grid) EXPECT_GT(blocks, 0u) << step.name;
        EXPECT_GT(threads, 0u) << step.name;
        EXPECT_LE(threads, 1024u) << step.name;
        if (work.source.block_threads > 0) {
          EXPECT_EQ(threads, static_cast<unsigned>(work.source.block_threads)) << step.name;
        }
        EXPECT_FALSE(work.source.digest().empty());
        EXPECT_LE(work.arguments.size(), BoundLaunch::Arguments::kMost) << step.name;
      }
    }
  });
}

TEST_P(Candidates, PackingIsNeverThatOfAnotherFilter) {
  each([&](const Problem& p, const Candidate& candidate, const Target& target) {
    if (candidate.packed_bytes == 0) return;
    const std::string packing = candidate.recipe().packing;
    const auto of = [&](const Problem& other) -> std::optional<std::string> {
      try {
        validate(other);
        return GetParam()->candidate(other, candidate.config, target).recipe().packing;
      } catch (const Error&) {
        return std::nullopt;
      }
    };
    if (packing.empty()) return;
    for (const auto& change : std::vector<std::function<void(Problem&)>>{
             [](Problem& o) { o.r += 2, o.pad_top += 1, o.pad_bottom += 1; }, [](Problem& o) { o.k *= 2; },
             [](Problem& o) { o.c *= 2; },
             [](Problem& o) { o.layout = o.layout == Layout::nchw ? Layout::nhwc : Layout::nchw; },
             [](Problem& o) {
               o.direction =
                   o.direction == Direction::forward ? Direction::backward_data : Direction::forward;
               o.epilogue = {};
             },
             [](Problem& o) {
               o.dtype = o.dtype == DType::f16 ? DType::bf16 : DType::f16, o.math = default_math(o.dtype);
             }}) {
      Problem other = p;
      change(other);
      if (const auto words = of(other)) {
        EXPECT_NE(*words, packing) << to_string(other);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Candidates, testing::ValuesIn(algorithms()), algorithm_name);
INSTANTIATE_TEST_SUITE_P(All, GpuCandidates, testing::ValuesIn(algorithms("gpu")), algorithm_name);

// On the CPU, bit for bit; registry_gpu_test.cpp does the same on GPUs.
TEST(PackedWeightsTest, ServeAnotherBatchAndImage) {
  // One worker, for hundreds of tiny runs: two would wait for each other where others use the processors.
  Builder builder(find_device("cpu"), std::make_shared<const Parallel>(1));
  std::map<std::string, int> served;
  for (const char* shape : {"fwd:n2c16h13w14k24r3s3:pad1:bias:relu", "fwd:n1c24h12w11k24r3s3:pad1:g24",
                            "fwd:n2c19h9w8k33r1s1", "fwd:n1c3h20w22k16r5s5:st2:pad2",
                            "fwd:n1c6h30w28k5r13s13:pad6:math=fast", "bwd_d:n2c16h13w14k24r3s3:pad1"}) {
    for (const char* type : {":f32", ":f16", ":bf16"}) {
      for (const char* layout : {":nchw", ":nhwc"}) {
        const Problem p = parse_problem(std::string(shape) + type + layout);
        for (const auto& algorithm : registry()) {
          if (algorithm->device_kind() != "cpu" || !algorithm->supports(p, builder.target()).yes) continue;
          for (const Candidate& candidate : algorithm->candidates(p, builder.target())) {
            if (expect_packed_weights_serve(builder, p, candidate) == Served::by_another)
              ++served[std::string(algorithm->name())];
          }
        }
      }
    }
  }
  // Where nothing but the filter is packed.
  for (const char* algorithm : {"depthwise_cpu", "explicit_gemm_cpu"})
    EXPECT_GT(served[algorithm], 0) << algorithm;
  for (const auto& [algorithm, count] : served) std::printf("%s: %d\n", algorithm.c_str(), count);
}

}  // namespace
}  // namespace faltung
