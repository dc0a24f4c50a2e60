// A plan over a made-up recipe: what it needs, what it hands to its steps, and that many threads may run one.
#include "src/plan/recipe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "src/problem/parse.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr std::size_t kWorkspace = 100, kPacked = 64;

float& number(std::byte* at) { return *reinterpret_cast<float*>(at); }

// A made-up kernel that multiplies x by w, both one number: it packs w as 2w and uses its workspace.
Recipe recipe(bool packs) {
  Recipe r;
  r.workspace_bytes = kWorkspace;
  if (packs) {
    r.packed_bytes = kPacked;
    r.pack.push_back(call("double", {Place::w}, {Place::packed}, [](const Memory& m, const Parallel&) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m[Place::packed]) % kAlignment, 0u);
      EXPECT_EQ(m[Place::workspace], nullptr);  // as it was not declared
      std::memset(m[Place::packed], 0, kPacked);
      number(m[Place::packed]) = 2 * number(m[Place::w]);
    }));
  }
  r.steps.push_back(call("fill", {Place::x}, {Place::workspace}, [](const Memory& m, const Parallel&) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m[Place::workspace]) % kAlignment, 0u);
    for (const Place undeclared : {Place::w, Place::y, Place::bias, Place::residual, Place::packed})
      EXPECT_EQ(m[undeclared], nullptr);
    std::memset(m[Place::workspace], 0, kWorkspace);
    number(m[Place::workspace]) = number(m[Place::x]);
  }));
  const Place weights = packs ? Place::packed : Place::w;
  r.steps.push_back(call("multiply", {Place::workspace, weights}, {Place::y},
                         [weights, scale = packs ? 2.0f : 1.0f](const Memory& m, const Parallel& parallel) {
                           EXPECT_EQ(m[Place::x], nullptr);
                           parallel.run([&](int worker) {
                             if (worker != 1) return;
                             number(m[Place::y]) = number(m[Place::workspace]) * number(m[weights]) / scale;
                           });
                         }));
  return r;
}

std::shared_ptr<const PlanImpl> make(Recipe r, const std::string& kernel = "made_up/x") {
  static Builder builder(find_device("cpu"));
  return std::make_shared<const PlanImpl>(parse_problem("fwd:n1c1h1w1k1r1s1"), kernel, std::move(r),
                                          builder.device(), builder.session(),
                                          std::make_shared<const Parallel>(2));
}

struct RecipeNumbers {
  float x = 3, w = 5, y = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(kWorkspace + kPacked + 3 * kAlignment);
  Tensors tensors() {
    Tensors t;
    t.x = &x, t.w = &w, t.y = &y;
    return t;
  }
  RunOptions options(std::size_t misaligned = 0) {
    RunOptions o;
    o.workspace = memory.data() + misaligned;
    return o;
  }
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Recipe, RunsItsSteps) {
  for (const bool packs : {false, true}) {
    const Plan plan(make(recipe(packs)));
    EXPECT_EQ(plan.kernel(), "made_up/x");
    EXPECT_EQ(plan.problem(), parse_problem("fwd:n1c1h1w1k1r1s1"));
    for (std::size_t misaligned = 0; misaligned < kAlignment; misaligned += 4) {
      RecipeNumbers n;
      plan.run(n.tensors(), n.options(misaligned));
      EXPECT_EQ(n.y, 15);
    }
  }
}

TEST(Recipe, WorkspaceAndPackedBytes) {
  const Plan plain(make(recipe(false))), packing(make(recipe(true))), none(make(Recipe{}));
  EXPECT_EQ(none.workspace_bytes(), 0u);
  EXPECT_EQ(plain.workspace_bytes(), kWorkspace + kAlignment);
  EXPECT_EQ(plain.workspace_bytes(true), kWorkspace + kAlignment);
  EXPECT_EQ(plain.packed_weights_bytes(), 0u);
  EXPECT_EQ(packing.packed_weights_bytes(), kPacked);
  EXPECT_EQ(packing.workspace_bytes(true), kWorkspace + kAlignment);
  EXPECT_EQ(packing.workspace_bytes(), aligned(kWorkspace) + kPacked + kAlignment);
}

// A run writes nothing outside the workspace it asked for, wherever that starts.
TEST(Recipe, StaysInsideItsWorkspace) {
  const Plan plan(make(recipe(true)));
  for (std::size_t offset = 0; offset < kAlignment; ++offset) {
    if (offset % 4 != 0) continue;
    std::vector<unsigned char> memory(plan.workspace_bytes() + kAlignment + 64, 0xa5);
    RecipeNumbers n;
    RunOptions options;
    options.workspace = memory.data() + offset;
    plan.run(n.tensors(), options);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const bool inside = i >= offset && i < offset + plan.workspace_bytes();
      ASSERT_TRUE(inside || memory[i] == 0xa5) << i;
    }
  }
}

TEST(Recipe, PackedWeights) {
  const Plan plan(make(recipe(true))), other(make(recipe(true)));
  RecipeNumbers n;
  const auto weights = plan.pack_weights(&n.w);
  n.w = 100;  // no longer read
  RunOptions options = n.options();
  options.weights = weights.get();
  Tensors tensors = n.tensors();
  tensors.w = nullptr;
  plan.run(tensors, options);
  EXPECT_EQ(n.y, 15);
  EXPECT_THAT(error_of([&] { other.run(tensors, options); }),
              HasSubstr("the packed weights are of kernel made_up/x for another filter or device"));
  EXPECT_THAT(error_of([&] { plan.pack_weights(nullptr); }), HasSubstr("w is null"));
}

TEST(Recipe, PackedWeightsOfAKernelThatPacksNothing) {
  const Plan plan(make(recipe(false)));
  RecipeNumbers n;
  const auto weights = plan.pack_weights(&n.w);
  RunOptions options = n.options();
  options.weights = weights.get();
  plan.run(n.tensors(), options);
  EXPECT_EQ(n.y, 15);
  Tensors tensors = n.tensors();
  tensors.w = nullptr;
  EXPECT_THAT(error_of([&] { plan.run(tensors, options); }), HasSubstr("tensor w is null"));
}

// What they depend on is said in words: of plans whose words are the same each takes the other's.
TEST(Recipe, PackedWeightsServeEveryPlanWithTheSamePacking) {
  const auto packing = [](const std::string& words, const std::string& kernel = "made_up/x") {
    Recipe r = recipe(true);
    r.packing = words;
    return Plan(make(std::move(r), kernel));
  };
  const Plan plan = packing("3x3 f32");
  RecipeNumbers n;
  const auto weights = plan.pack_weights(&n.w);
  RunOptions options = n.options();
  options.weights = weights.get();
  packing("3x3 f32").run(n.tensors(), options);
  EXPECT_EQ(n.y, 15);
  for (const Plan& other :
       {packing("5x5 f32"), packing(""), packing("3x3 f32", "made_up/y"), Plan(make(recipe(true)))}) {
    EXPECT_THAT(error_of([&] { other.run(n.tensors(), options); }), HasSubstr("pack them with this plan"));
  }
}

// Kernels that read the same order say so by one name.
TEST(Recipe, PackedWeightsServeOtherKernelsOfTheSameName) {
  const auto packing = [](const std::string& kernel, const std::string& packed_for,
                          const std::string& words) {
    Recipe r = recipe(true);
    r.packing = words, r.packed_for = packed_for;
    return Plan(make(std::move(r), kernel));
  };
  RecipeNumbers n;
  const auto weights = packing("made_up/x", "panels", "3x3").pack_weights(&n.w);
  RunOptions options = n.options();
  options.weights = weights.get();
  packing("made_up/y", "panels", "3x3").run(n.tensors(), options);
  EXPECT_EQ(n.y, 15);
  for (const Plan& other : {packing("made_up/y", "panels", "5x5"), packing("made_up/y", "rows", "3x3"),
                            packing("made_up/x", "", "3x3"), packing("made_up/y", "panels", "")}) {
    EXPECT_THAT(error_of([&] { other.run(n.tensors(), options); }), HasSubstr("pack them with this plan"));
  }
}

// By the caller's parallel_for, as a run is.
TEST(Recipe, PacksOnTheCallersThreads) {
  Recipe r = recipe(true);
  r.pack.push_back(
      call("more", {}, {}, [](const Memory&, const Parallel& parallel) { parallel.run([](int) {}); }));
  const Plan plan(make(std::move(r)));
  RecipeNumbers n;
  RunOptions options;
  int calls = 0;
  options.parallel_for = [&](int count, const std::function<void(int)>& body) {
    ++calls;
    for (int i = 0; i < count; ++i) body(i);
  };
  plan.pack_weights(&n.w, options);
  EXPECT_EQ(calls, 1);
}

TEST(Recipe, PackedWeightsOutliveThePlan) {
  RecipeNumbers n;
  auto plan = std::make_unique<Plan>(make(recipe(true)));
  const auto weights = plan->pack_weights(&n.w);
  plan.reset();
  EXPECT_EQ(weights->plan().kernel(), "made_up/x");
}

TEST(Recipe, WhatIsMissing) {
  const Plan plan(make(recipe(true)));
  RecipeNumbers n;
  EXPECT_THAT(error_of([&] { plan.run(n.tensors(), {}); }),
              HasSubstr("kernel made_up/x needs a workspace of "));
  Tensors tensors = n.tensors();
  tensors.y = nullptr;
  EXPECT_THAT(error_of([&] { plan.run(tensors, n.options()); }), HasSubstr("tensor y is null"));
}

TEST(Recipe, AddressesThatAKernelCannotTakeAreRefusedByName) {
  Recipe r = recipe(true);
  r.alignment = 16;
  const Plan plan(make(std::move(r)));
  RecipeNumbers n;
  alignas(16) float aligned[12] = {3, 0, 0, 0, 5};
  Tensors right;
  right.x = aligned, right.w = aligned + 4, right.y = aligned + 8;
  plan.run(right, n.options());
  EXPECT_EQ(aligned[8], 15);
  for (const char* const what : {"x", "w", "y"}) {
    Tensors beyond = right;
    (*what == 'x' ? beyond.x : *what == 'w' ? beyond.w : beyond.y) = aligned + 9;
    EXPECT_THAT(error_of([&] { plan.run(beyond, n.options()); }),
                testing::AllOf(testing::StartsWith(std::string(what) + ": kernel made_up/x takes"),
                               HasSubstr("multiples of 16 bytes, and this is 4 beyond one")));
  }
  EXPECT_THAT(error_of([&] { plan.pack_weights(aligned + 9); }), HasSubstr("pack_weights: w"));
}

TEST(Recipe, TheCallersParallelFor) {
  const Plan plan(make(recipe(true)));
  RecipeNumbers n;
  RunOptions options = n.options();
  int calls = 0;
  options.parallel_for = [&](int count, const std::function<void(int)>& body) {
    ++calls;
    EXPECT_EQ(count, 2);  // the division stays the recipe's
    for (int i = 0; i < count; ++i) body(i);
  };
  plan.run(n.tensors(), options);
  EXPECT_EQ(n.y, 15);
  EXPECT_EQ(calls, 1);
}

TEST(Recipe, AStepsExceptionComesBack) {
  Recipe r = recipe(false);
  r.steps.push_back(call("fail", {}, {}, [](const Memory&, const Parallel& parallel) {
    parallel.run([](int worker) {
      if (worker == 1) throw Error(Status::internal, "failed");
    });
  }));
  const Plan plan(make(std::move(r)));
  RecipeNumbers n;
  EXPECT_EQ(error_of([&] { plan.run(n.tensors(), n.options()); }), "failed");
  EXPECT_EQ(error_of([&] { plan.run(n.tensors(), n.options()); }), "failed");
}

TEST(Recipe, RunsFromManyThreads) {
  const Plan plan(make(recipe(true)));
  RecipeNumbers shared;
  const auto weights = plan.pack_weights(&shared.w);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RecipeNumbers n;
      for (int i = 0; i < 500; ++i) {
        n.x = static_cast<float>(t * 1000 + i);
        RunOptions options = n.options();
        if (i % 2 == 0) options.weights = weights.get();
        plan.run(n.tensors(), options);
        ASSERT_EQ(n.y, n.x * 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace faltung
