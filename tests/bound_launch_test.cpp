// A step as data: what it says that it touches, where its arguments come to lie, and how often a device is
// asked for what does not change.
#include "src/plan/bound_launch.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/builder.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

struct Numbers {
  std::int32_t a = 7;
  float b = 2.5f;
  const void* tensor = nullptr;
  std::int64_t c = -3;
};

jit::Source source_of(const std::string& entry, int shared_bytes = 0) {
  return {"made_up/" + entry, "// " + entry + "\n", entry, {}, 0, shared_bytes};
}

struct Flags {
  std::int32_t before = 7, rests = 0, after = 8;
};
Step step_reading(Place place) {
  StepArgument flags = value(Flags{});
  flags.rests = {{offsetof(Flags, rests), {place, 64}}};
  return launch("step", source_of("kernel"), {}, {in(Place::x), std::move(flags)});
}

class BoundLaunchTest : public testing::Test {
 protected:
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>(
      "fake:" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  Builder builder_{device_};
  std::array<std::byte, 1024> x_, y_, workspace_;
  Memory memory_ = [this] {
    Memory m;
    m[Place::x] = x_.data(), m[Place::y] = y_.data(), m[Place::workspace] = workspace_.data();
    return m;
  }();

  void run(const Step& step) {
    BoundLaunch(std::get<Launch>(step.work), builder_.session()).run(*device_, memory_, {});
  }
};

TEST_F(BoundLaunchTest, LaysOutItsArguments) {
  Numbers numbers;
  LaunchShape shape;
  shape.grid[1] = 5, shape.block[0] = 64;
  const TiledMap map;
  run(launch("step", source_of("kernel", 99), shape,
             {in({Place::x, 16}), value(3.5f), mapped({{map, {Place::y, Access::write}}}), value(numbers),
              in(Place::bias),
              value(numbers, {{offsetof(Numbers, tensor), {{Place::workspace, 32}, Access::update}}})}));
  const FakeDevice::Launched& last = device_->last;
  EXPECT_STREQ(last.entry, "kernel");
  EXPECT_EQ(last.shape.grid[1], 5u);
  EXPECT_EQ(last.shape.block[0], 64u);
  EXPECT_EQ(last.shape.shared_bytes, 99u);
  ASSERT_EQ(last.arguments, 6u);
  EXPECT_TRUE(last.passed[0].is_address);
  EXPECT_EQ(last.passed[0].as<std::byte*>(), x_.data() + 16);
  EXPECT_FALSE(last.passed[1].is_address);
  EXPECT_EQ(last.passed[1].bytes, sizeof(float));
  EXPECT_EQ(last.passed[1].as<float>(), 3.5f);
  EXPECT_FALSE(last.passed[2].is_address);
  EXPECT_EQ(last.passed[2].bytes, sizeof(TensorMap));
  EXPECT_EQ(last.passed[2].as<TensorMap>().opaque[0], reinterpret_cast<std::uintptr_t>(y_.data()));
  EXPECT_FALSE(last.passed[3].is_address);
  EXPECT_EQ(last.passed[3].as<Numbers>().a, 7);
  EXPECT_EQ(last.passed[3].as<Numbers>().tensor, nullptr);
  EXPECT_TRUE(last.passed[4].is_address);
  EXPECT_EQ(last.passed[4].as<std::byte*>(), nullptr);  // a run without a bias
  EXPECT_EQ(last.passed[5].bytes, sizeof(Numbers));
  EXPECT_EQ(last.passed[5].as<Numbers>().b, 2.5f);
  EXPECT_EQ(last.passed[5].as<Numbers>().c, -3);
  EXPECT_EQ(last.passed[5].as<Numbers>().tensor, workspace_.data() + 32);
}

// A kernel may read weights early where a caller has said that they rest, and never what a step before it has
// written.
TEST_F(BoundLaunchTest, SaysOfWeightsAloneThatTheyRest) {
  const auto passed = [&](const Step& step) {
    run(step);
    return device_->last.passed[1].as<Flags>();
  };
  EXPECT_EQ(passed(step_reading(Place::w)).rests, 0);
  memory_.weights_rest = true;
  for (const Place place : {Place::w, Place::packed}) EXPECT_EQ(passed(step_reading(place)).rests, 1);
  for (const Place place : {Place::workspace, Place::x, Place::y})
    EXPECT_EQ(passed(step_reading(place)).rests, 0);
  Step step = step_reading(Place::w);
  step.rewire(Place::w, {Place::workspace, 128});
  EXPECT_EQ(passed(step).rests, 0);
  step.exchange(Place::workspace, Place::w);
  EXPECT_EQ(passed(step).rests, 1);
  EXPECT_EQ(device_->last.passed[1].as<Flags>().before, 7);
  EXPECT_EQ(device_->last.passed[1].as<Flags>().after, 8);
}

// A run that packs them itself has just written them, whatever its caller says.
TEST_F(BoundLaunchTest, WeightsThatARunPacksItselfDoNotRest) {
  Recipe recipe;
  recipe.packed_bytes = 64;
  recipe.steps = {step_reading(Place::workspace)};
  EXPECT_FALSE(reads_weights_early(recipe));
  recipe.pack = {launch("pack", source_of("pack"), {}, {in(Place::w), out(Place::packed)})};
  recipe.steps = {step_reading(Place::packed)};
  EXPECT_TRUE(reads_weights_early(recipe));
  const auto plan = std::make_shared<const PlanImpl>(parse_problem("fwd:n1c1h1w1k1r1s1"), "made_up/x",
                                                     std::move(recipe), device_, builder_.session(), nullptr);
  float x = 0, w = 0, y = 0;
  RunOptions options;
  options.workspace = workspace_.data();
  const auto rest = [&] {
    plan->run(Tensors::forward(&x, &w, &y), options);
    return device_->last.passed[1].as<Flags>().rests;
  };
  options.weights_rest = true;
  EXPECT_EQ(rest(), 0);
  const auto packed = plan->pack_weights(&w, {});
  options.weights = packed.get();
  EXPECT_EQ(rest(), 1);
  options.weights_rest = false;
  EXPECT_EQ(rest(), 0);
}

TEST_F(BoundLaunchTest, ATensorIsEncodedOnceAnAddress) {
  const Step step = launch("step", source_of("kernel"), {},
                           {mapped({{TiledMap{}, {Place::x, Access::read}}}),
                            mapped({{Im2colMap{}, {{Place::y, 64}, Access::write}}})});
  const BoundLaunch bound(std::get<Launch>(step.work), builder_.session());
  const int before = device_->encoded;  // what cannot be encoded shows when it is bound
  EXPECT_EQ(before, 2);
  for (int i = 0; i < 5; ++i) bound.run(*device_, memory_, {});
  EXPECT_EQ(device_->launched, 5);
  EXPECT_EQ(device_->encoded - before, 2);
  EXPECT_EQ(device_->last.passed[1].as<TensorMap>().opaque[0],
            reinterpret_cast<std::uintptr_t>(y_.data()) + 64);
  // Buffers in turn, as a network has them.
  Memory other = memory_;
  other[Place::x] = workspace_.data();
  for (int i = 0; i < 5; ++i) {
    bound.run(*device_, other, {});
    EXPECT_EQ(device_->last.passed[0].as<TensorMap>().opaque[0],
              reinterpret_cast<std::uintptr_t>(workspace_.data()));
    bound.run(*device_, memory_, {});
    EXPECT_EQ(device_->last.passed[0].as<TensorMap>().opaque[0], reinterpret_cast<std::uintptr_t>(x_.data()));
  }
  EXPECT_EQ(device_->encoded - before, 3);
  // More addresses than are kept: encoded again, never a wrong one.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 40; ++i) {
      other[Place::x] = workspace_.data() + 16 * i;
      bound.run(*device_, other, {});
      EXPECT_EQ(device_->last.passed[0].as<TensorMap>().opaque[0],
                reinterpret_cast<std::uintptr_t>(workspace_.data() + 16 * i));
    }
  }
}

// Maps that are one argument: the members of a struct.
TEST_F(BoundLaunchTest, SeveralMapsAreOneArgument) {
  run(launch("step", source_of("kernel"), {},
             {value(1), mapped({{TiledMap{}, {Place::x, Access::read}},
                                {Im2colMap{}, {{Place::workspace, 128}, Access::write}}})}));
  ASSERT_EQ(device_->last.arguments, 2u);
  const FakeDevice::Passed& passed = device_->last.passed[1];
  struct Maps {
    TensorMap first, second;
  };
  EXPECT_FALSE(passed.is_address);
  ASSERT_EQ(passed.bytes, sizeof(Maps));
  EXPECT_EQ(passed.as<Maps>().first.opaque[0], reinterpret_cast<std::uintptr_t>(x_.data()));
  EXPECT_EQ(passed.as<Maps>().second.opaque[0], reinterpret_cast<std::uintptr_t>(workspace_.data()) + 128);
}

TEST_F(BoundLaunchTest, AKernelIsCompiledOnce) {
  const Step step = launch("step", source_of("kernel"), {}, {in(Place::x)});
  for (int i = 0; i < 3; ++i) run(step);
  EXPECT_EQ(device_->compiled, 1);
  EXPECT_EQ(device_->launched, 3);
  run(launch("step", source_of("kernel", 1), {}, {in(Place::x)}));
  EXPECT_EQ(device_->compiled, 2);
}

TEST_F(BoundLaunchTest, SoManyArgumentsAreADefect) {
  const auto status = [&](std::vector<StepArgument> arguments) {
    try {
      run(launch("step", source_of("kernel"), {}, std::move(arguments)));
    } catch (const Error& error) {
      return error.status();
    }
    return Status::ok;
  };
  EXPECT_EQ(status(std::vector<StepArgument>(16, in(Place::x))), Status::ok);
  EXPECT_EQ(status(std::vector<StepArgument>(17, in(Place::x))), Status::internal);
  struct Large {
    char bytes[3000];
  };
  EXPECT_EQ(status({value(Large{})}), Status::ok);
  EXPECT_EQ(status({value(Large{}), value(Large{})}), Status::internal);
}

bool operator==(const Address& a, const Address& b) { return a.slot == b.slot && a.access == b.access; }

TEST(StepTest, ALaunchSaysWhatItUses) {
  const Step step = launch("step", source_of("kernel"), {},
                           {in(Place::x), value(1), out({Place::workspace, 64}),
                            value(Numbers{}, {{offsetof(Numbers, tensor), {Place::bias, Access::read}}}),
                            mapped({{TiledMap{}, {{Place::packed, 128}, Access::read}}}), in_out(Place::y)});
  const std::vector<Address> uses = step.uses();
  ASSERT_EQ(uses.size(), 5u);
  EXPECT_TRUE(uses[0] == (Address{Place::x, Access::read}));
  EXPECT_TRUE(uses[1] == (Address{{Place::workspace, 64}, Access::write}));
  EXPECT_TRUE(uses[2] == (Address{Place::bias, Access::read}));
  EXPECT_TRUE(uses[3] == (Address{{Place::packed, 128}, Access::read}));
  EXPECT_TRUE(uses[4] == (Address{Place::y, Access::update}));
}

TEST(StepTest, ALaunchIsRewired) {
  Step step =
      launch("step", source_of("kernel"), {},
             {out({Place::y, 16}), value(Numbers{}, {{offsetof(Numbers, tensor), {Place::y, Access::read}}}),
              mapped({{TiledMap{}, {{Place::y, 32}, Access::write}}}), in(Place::x)});
  step.rewire(Place::y, {Place::workspace, 1000});
  const std::vector<Address> uses = step.uses();
  EXPECT_EQ(uses[0].slot, (Slot{Place::workspace, 1016}));
  EXPECT_EQ(uses[1].slot, (Slot{Place::workspace, 1000}));
  EXPECT_EQ(uses[2].slot, (Slot{Place::workspace, 1032}));
  EXPECT_EQ(uses[3].slot, Slot{Place::x});
  EXPECT_EQ(uses[2].access, Access::write);
}

// The function asks for y as before, and finds what y has become.
TEST(StepTest, ACallIsRewired) {
  const std::byte* seen_y = nullptr;
  const std::byte* seen_workspace = nullptr;
  Step step = call("step", {Place::x}, {Place::y, Place::workspace}, [&](const Memory& m, const Parallel&) {
    seen_y = m[Place::y], seen_workspace = m[Place::workspace];
  });
  step.rewire(Place::y, {Place::workspace, 128});
  const std::vector<Address> uses = step.uses();
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_TRUE(uses[0] == (Address{Place::x, Access::read}));
  EXPECT_TRUE(uses[1] == (Address{{Place::workspace, 128}, Access::write}));
  EXPECT_TRUE(uses[2] == (Address{Place::workspace, Access::write}));

  Recipe recipe;
  recipe.workspace_bytes = 192;
  recipe.steps = {step};
  Builder builder(find_device("cpu"));
  const auto plan = std::make_shared<const PlanImpl>(parse_problem("fwd:n1c1h1w1k1r1s1"), "made_up/x",
                                                     std::move(recipe), builder.device(), builder.session(),
                                                     std::make_shared<const Parallel>(1));
  float x = 0, w = 0, y = 0;
  alignas(64) std::byte workspace[256];
  RunOptions options;
  options.workspace = workspace;
  plan->run(Tensors::forward(&x, &w, &y), options);
  EXPECT_EQ(seen_workspace, workspace);
  EXPECT_EQ(seen_y, workspace + 128);
}

// What a verdict is on: each program once, pack steps first, and nothing of the arguments.
TEST(RecipeDigests, AreOfThePrograms) {
  const auto step = [](const std::string& entry, Slot slot) {
    return launch(entry, source_of(entry), {}, {in(slot)});
  };
  Recipe recipe;
  recipe.pack = {step("pack", Place::w)};
  recipe.steps = {step("b", Place::x), step("a", Place::x), step("b", Place::y)};
  const std::vector<std::string> digests = program_digests(recipe);
  EXPECT_EQ(digests, (std::vector<std::string>{source_of("pack").digest(), source_of("b").digest(),
                                               source_of("a").digest()}));
  for (const auto& change : std::vector<std::function<void(jit::Source&)>>{
           [](jit::Source& s) { s.text += " "; }, [](jit::Source& s) { s.entry = "other"; },
           [](jit::Source& s) { s.options.push_back("-O1"); }, [](jit::Source& s) { s.shared_bytes = 4; },
           [](jit::Source& s) { s.block_threads = 32; },
           [](jit::Source& s) { s.text += "#include \"kernels/gpu/opencl.h\"\n"; }}) {
    jit::Source changed = source_of("a");
    change(changed);
    EXPECT_NE(changed.digest(), source_of("a").digest());
  }
  jit::Source renamed = source_of("a");
  renamed.name = "what messages call it";
  EXPECT_EQ(renamed.digest(), source_of("a").digest());
}

}  // namespace
}  // namespace faltung
