// Kernels of one plan, built through a store.
#include "src/jit/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/builder.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

// Its compiler waits, for a while, until another one is at work.
class SlowCompiler : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  Binary compile(const KernelSource& source) override {
    if (++at_work > most) most = at_work.load();
    for (int ms = 0; ms < 2000 && most < 2; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++done;
    --at_work;
    if (source.entry == "bad") throw Error(Status::device_error, "it does not compile");
    return {"code of " + source.entry, "", 1};
  }
  std::atomic<int> at_work = 0, most = 0, done = 0;
};

jit::Source source_of(const std::string& entry) {
  return {"made_up/" + entry, "// " + entry + "\n", entry, {}};
}

TEST(Session, CompilesSeveralSideBySide) {
  const auto device = std::make_shared<SlowCompiler>("fake:several");
  Builder builder(device);
  const jit::Source a = source_of("a"), b = source_of("b");
  const std::vector<jit::Program> programs = builder.session().build({&a, &b, &a});
  EXPECT_EQ(device->most, std::min(2, available_processors()));
  EXPECT_EQ(device->done, 2);  // what is asked for twice is compiled once
  ASSERT_EQ(programs.size(), 3u);
  EXPECT_EQ(programs[0].entry, "a");
  EXPECT_EQ(programs[1].entry, "b");
  EXPECT_EQ(programs[2].entry, "a");
  EXPECT_GT(programs[0].compile_ms, 0);
  EXPECT_GT(programs[1].compile_ms, 0);
  EXPECT_EQ(programs[2].compile_ms, 0);
}

// Who comes second waits for the compiler of who came first.
TEST(Session, TwoThreadsCompileTheSameOnce) {
  const auto device = std::make_shared<SlowCompiler>("fake:threads");
  Builder builder(device);
  const jit::Source a = source_of("a"), b = source_of("b");
  const std::vector<const jit::Source*> sources{&a, &b};
  std::vector<jit::Program> here, there;
  std::thread other([&] { there = builder.session().build(sources); });
  here = builder.session().build(sources);
  other.join();
  EXPECT_EQ(device->done, 2);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(here[i].kernel, there[i].kernel);
    EXPECT_TRUE((here[i].compile_ms > 0) != (there[i].compile_ms > 0));
  }
}

TEST(Session, OfSeveralOneThatFailsIsSaid) {
  const auto device = std::make_shared<SlowCompiler>("fake:fails");
  Builder builder(device);
  const jit::Source good = source_of("good"), bad = source_of("bad");
  EXPECT_THROW(static_cast<void>(builder.session().build({&bad, &good})), Error);
  // The other is there.
  EXPECT_EQ(builder.session().build(good).compile_ms, 0);
}

}  // namespace
}  // namespace faltung
