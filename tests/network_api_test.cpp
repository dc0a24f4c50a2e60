// faltung::Network and its C interface: sizes, plans that are kept, threads, and one clear error for what is
// wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "faltung/network.h"
#include "faltung/network.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class NetworkApi : public testing::Test {
 protected:
  // y = relu(x * w), z = the sum of y's rows; x is (open, 2, open).
  std::string write_model() {
    onnx::ModelText model;
    model.add_input("x", {-1, 2, -1});
    model.add_constant(onnx::tensor("w", {2, 1}, {1, -2}));
    model.add({"Mul", {"x", "w"}, {"scaled"}, {}, ""});
    model.add({"Relu", {"scaled"}, {"y"}, {}, ""});
    model.add({"ReduceSum", {"y"}, {"z"}, {{"keepdims", std::int64_t{0}}}, ""});
    model.add_output("y");
    model.add_output("z");
    model.add_metadata("classes", "cat\ndog");
    return write(model.bytes());
  }
  std::string write(const std::string& bytes) {
    const std::string path = scratch_.path() + "/model.onnx";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  template <class Call>
  static std::string error_of(Status status, const Call& call) {
    try {
      call();
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status) << error.what();
      return error.what();
    }
  }

  const Scratch scratch_;
  Engine engine_{scratch_.path() + "/store"};
};

#if defined(__linux__)
// KiB of the file's mapping that are in memory.
int resident_kib(const std::string& path) {
  std::ifstream map("/proc/self/smaps");
  int all = 0;
  bool own = false;
  for (std::string line; std::getline(map, line);) {
    if (line.find('-') < line.find(':')) own = line.ends_with(path);  // a mapping's addresses, not a field
    if (own && line.starts_with("Rss:")) all += std::atoi(line.c_str() + 4);
  }
  return all;
}

// Packed weights lie beside the file's own only until they are packed; for other sizes the file is read
// again.
TEST_F(NetworkApi, WeightsAreInMemoryOnce) {
  constexpr int kIn = 1024, kOut = 1024;
  std::vector<float> weights(kIn * kOut);
  for (int i = 0; i < kIn * kOut; ++i) weights[static_cast<std::size_t>(i)] = static_cast<float>(i % 7 - 3);
  onnx::ModelText model;
  model.add_input("x", {1, kIn, -1, 3});
  model.add_constant(onnx::tensor("w", {kOut, kIn, 1, 1}, weights));
  model.add({"Conv", {"x", "w"}, {"y"}, {}, ""});
  model.add_output("y");
  const std::string path = write(model.bytes());
  NetworkRequest request;
  request.request.threads = 1;
  Network network(engine_, path, request);
  for (const int rows : {2, 9}) {
    const NetworkPlan plan = network.plan({{1, kIn, rows, 3}});
    std::vector<float> x(static_cast<std::size_t>(kIn * rows * 3), 1),
        y(static_cast<std::size_t>(kOut * rows * 3));
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    plan.run(inputs, outputs);
    for (int k = 0; k < kOut; ++k) {
      float sum = 0;
      for (int c = 0; c < kIn; ++c) sum += weights[static_cast<std::size_t>(k * kIn + c)];
      ASSERT_EQ(y[static_cast<std::size_t>(k * rows * 3)], sum) << k;
    }
    EXPECT_LT(resident_kib(path), 512) << rows;
  }
}
#endif

// What is small is so beside the whole filter, whoever brought its parts into the plan's layout: the first
// weight is large, the last output channel has tiny ones alone.
TEST_F(NetworkApi, TinyWeightsOfALargeFilterAreZero) {
  constexpr int kIn = 256, kOut = 512;
  for (const float first : {1.0f, 0x1p-80f}) {
    for (const int size : {1, 3}) {
      const int taps = size * size;
      std::vector<float> weights(static_cast<std::size_t>(kIn * kOut * taps));
      weights.front() = first;
      std::fill(weights.end() - kIn * taps, weights.end(), 0x1p-110f);
      onnx::ModelText model;
      model.add_input("x", {1, kIn, 8, 8});
      model.add_constant(onnx::tensor("w", {kOut, kIn, size, size}, weights));
      model.add({"Conv", {"x", "w"}, {"y"}, {{"pads", network::Shape(4, size / 2)}}, ""});
      model.add_output("y");
      NetworkRequest request;
      request.request.threads = 2;
      Network network(engine_, write(model.bytes()), request);
      std::vector<float> x(kIn * 64, 0x1p100f), y(kOut * 64);
      const void* inputs[] = {x.data()};
      void* outputs[] = {y.data()};
      network.plan({{1, kIn, 8, 8}}).run(inputs, outputs);
      const float pixel = y[(kOut - 1) * 64 + 3 * 8 + 3], kept = 0x1p-10f * kIn * static_cast<float>(taps);
      if (first == 1)
        EXPECT_EQ(pixel, 0) << size;
      else
        EXPECT_NEAR(pixel, kept, kept / 16) << size;
    }
  }
}

TEST_F(NetworkApi, RunsForTheSizesGiven) {
  Network network(engine_, write_model());
  ASSERT_EQ(network.inputs().size(), 1u);
  EXPECT_EQ(network.inputs()[0].name, "x");
  EXPECT_EQ(network.inputs()[0].sizes, (std::vector<std::int64_t>{-1, 2, -1}));
  const NetworkPlan plan = network.plan({{1, 2, 3}});
  ASSERT_EQ(plan.outputs().size(), 2u);
  EXPECT_EQ(plan.outputs()[0].sizes, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(plan.outputs()[1].sizes, std::vector<std::int64_t>{});
  const float x[] = {1, -2, 3, 4, -5, 6};
  float y[6], z;
  const void* const inputs[] = {x};
  void* const outputs[] = {y, &z};
  plan.run(inputs, outputs);
  EXPECT_THAT(y, testing::ElementsAre(1, 0, 3, 0, 10, 0));
  EXPECT_EQ(z, 14);
}

TEST_F(NetworkApi, SaysWhatTheFileSaysOfItself) {
  const Network network(engine_, write_model());
  EXPECT_THAT(network.metadata(), testing::ElementsAre(testing::Pair("classes", "cat\ndog")));
}

// Two that are the same value are two, and each is called as the file calls it.
TEST_F(NetworkApi, OutputsHaveTheirOwnNames) {
  onnx::ModelText model;
  model.add_input("x", {3});
  model.add({"Identity", {"x"}, {"same"}, {}, ""});
  model.add({"Relu", {"x"}, {"y"}, {}, ""});
  model.add({"Dropout", {"y"}, {"z"}, {}, ""});
  for (const char* name : {"same", "y", "z", "x"}) model.add_output(name);
  Network network(engine_, write(model.bytes()));
  const NetworkPlan plan = network.plan({{3}});
  std::vector<std::string> names;
  for (const NetworkTensor& tensor : plan.outputs()) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::ElementsAre("same", "y", "z", "x"));
  const float x[] = {1, -2, 3};
  float y[4][3];
  const void* const inputs[] = {x};
  void* const outputs[] = {y[0], y[1], y[2], y[3]};
  plan.run(inputs, outputs);
  for (const int same : {0, 3}) EXPECT_THAT(y[same], testing::ElementsAre(1, -2, 3));
  for (const int positive : {1, 2}) EXPECT_THAT(y[positive], testing::ElementsAre(1, 0, 3));
}

TEST_F(NetworkApi, PlansAreKeptUpToTheirNumber) {
  NetworkRequest request;
  request.plans = 2;
  Network network(engine_, write_model(), request);
  const auto impl = [&](std::int64_t n) { return network.plan({{n, 2, 3}}).outputs().data(); };
  const auto* const first = impl(1);
  EXPECT_EQ(impl(1), first);
  const NetworkPlan held = network.plan({{1, 2, 3}});  // what is held lives on
  impl(2), impl(3);
  EXPECT_NE(impl(1), held.outputs().data());
}

TEST_F(NetworkApi, ManyThreadsRunAtOnce) {
  Network network(engine_, write_model());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      const NetworkPlan plan = network.plan({{t, 2, 3}});
      std::vector<float> x(static_cast<std::size_t>(6 * t), 1.0f), y(x.size());
      float z;
      for (int run = 0; run < 50; ++run) {
        const void* const inputs[] = {x.data()};
        void* const outputs[] = {y.data(), &z};
        plan.run(inputs, outputs);
        wrong += z != static_cast<float>(3 * t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(NetworkApi, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(Status::bad_file, [&] { Network(engine_, scratch_.path() + "/none.onnx"); }),
              HasSubstr("none.onnx"));
  EXPECT_THAT(error_of(Status::bad_file, [&] { Network(engine_, scratch_.path()); }),
              HasSubstr("no regular file"));
  Network network(engine_, write_model());
  EXPECT_THAT(error_of(Status::bad_problem,
                       [&] {
                         network.plan({{1, 3, 3}});
                       }),
              HasSubstr("does not fit the network's [?, 2, ?]"));
  EXPECT_THAT(error_of(Status::bad_problem, [&] { network.plan({{1, 2}}); }), HasSubstr("does not fit"));
  EXPECT_THAT(error_of(Status::bad_problem, [&] { network.plan({}); }), HasSubstr("has 1 inputs"));
  EXPECT_THAT(error_of(Status::bad_problem, [&] { network.plan({{1, 2, 0}}); }), HasSubstr("no elements"));
  const NetworkPlan plan = network.plan({{1, 2, 3}});
  const void* const inputs[] = {nullptr};
  float y[6], z;
  void* const outputs[] = {y, &z};
  EXPECT_THAT(error_of(Status::bad_problem, [&] { plan.run(inputs, outputs); }),
              HasSubstr("input 'x' is null"));
  EXPECT_THAT(error_of(Status::bad_problem, [&] { plan.run({}, outputs); }), HasSubstr("0 and 2 are given"));

  for (const char* op : {"Conv", "ConvTranspose"}) {
    onnx::ModelText number;
    number.add_input("x", {1, 2, 4, 4});
    number.add_constant(onnx::tensor("w", {}, {1}));
    number.add({op, {"x", "w"}, {"y"}, {{"kernel_shape", onnx::Sizes{1, 1}}}, ""});
    number.add_output("y");
    EXPECT_THAT(error_of(Status::bad_file, [&] { Network(engine_, write(number.bytes())); }),
                HasSubstr("its weights have another number of dimensions than its input"));
  }

  onnx::ModelText model;
  model.add_input("x", {4, 4});
  model.add({"ArgMax", {"x"}, {"a"}, {}, ""});
  model.add({"NonZero", {"x"}, {"b"}, {}, ""});
  model.add({"Hardmax", {"x"}, {"c"}, {}, ""});
  model.add_output("b");
  model.add_output("c");
  const std::string path = write(model.bytes());
  EXPECT_THAT(error_of(Status::unsupported, [&] { Network(engine_, path); }),
              HasSubstr("2 nodes have operators that are not known (opset 17): NonZero 'b', Hardmax 'c'"));
}

// A file of a few bytes must not take gigabytes.
TEST_F(NetworkApi, SmallFilesTakeLittleMemory) {
  onnx::ModelText model;
  model.add_constant(onnx::tensor("shape", onnx::Sizes{1 << 20, 1 << 20}));
  model.add({"ConstantOfShape", {"shape"}, {"y"}, {}, ""});
  model.add_output("y");
  const std::string path = write(model.bytes());
  Network network(engine_, path);
  EXPECT_THAT(error_of(Status::unsupported, [&] { network.plan({}); }), HasSubstr("ConstantOfShape 'y'"));
}

TEST_F(NetworkApi, TheCInterface) {
  const std::string path = write_model();
  faltung_engine* engine = nullptr;
  ASSERT_EQ(faltung_engine_create((scratch_.path() + "/store").c_str(), &engine), FALTUNG_OK);
  faltung_network* network = nullptr;
  EXPECT_EQ(faltung_network_create(engine, "/nowhere", nullptr, &network), FALTUNG_BAD_FILE);
  EXPECT_EQ(network, nullptr);
  ASSERT_EQ(faltung_network_create(engine, path.c_str(), nullptr, &network), FALTUNG_OK)
      << faltung_last_error();
  ASSERT_EQ(faltung_network_input_count(network), 1u);
  faltung_network_tensor tensor{};
  tensor.size = sizeof tensor;
  ASSERT_EQ(faltung_network_input(network, 0, &tensor), FALTUNG_OK);
  EXPECT_STREQ(tensor.name, "x");
  EXPECT_EQ(tensor.rank, 3u);
  EXPECT_EQ(tensor.sizes[0], -1);
  EXPECT_EQ(faltung_network_input(network, 1, &tensor), FALTUNG_BAD_PROBLEM);
  EXPECT_STREQ(faltung_network_metadata(network, "classes"), "cat\ndog");
  EXPECT_EQ(faltung_network_metadata(network, "author"), nullptr);
  EXPECT_EQ(faltung_network_metadata(network, nullptr), nullptr);
  const std::int64_t sizes[] = {1, 2, 3, 4};
  faltung_network_plan* plan = nullptr;
  EXPECT_EQ(faltung_network_plan_create(network, sizes, 4, &plan), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("3 sizes together; 4 are given"));
  EXPECT_EQ(faltung_network_plan_create(network, sizes, 2, &plan), FALTUNG_BAD_PROBLEM);
  ASSERT_EQ(faltung_network_plan_create(network, sizes, 3, &plan), FALTUNG_OK) << faltung_last_error();
  EXPECT_EQ(faltung_network_plan_output_count(plan), 2u);
  ASSERT_EQ(faltung_network_plan_output(plan, 0, &tensor), FALTUNG_OK);
  EXPECT_STREQ(tensor.name, "y");
  EXPECT_EQ(tensor.sizes[2], 3);
  faltung_network_destroy(network);  // the plan lives on
  const float x[] = {1, -2, 3, 4, -5, 6};
  float y[6], z = 0;
  const void* const inputs[] = {x};
  void* const outputs[] = {y, &z};
  ASSERT_EQ(faltung_network_run(plan, inputs, outputs), FALTUNG_OK) << faltung_last_error();
  EXPECT_EQ(z, 14);
  EXPECT_EQ(faltung_network_run(nullptr, inputs, outputs), FALTUNG_BAD_PROBLEM);
  // 16 bits are a GPU's.
  EXPECT_EQ(faltung_network_create_in(engine, path.c_str(), nullptr, FALTUNG_ELEMENT_F16, &network),
            FALTUNG_UNSUPPORTED);
  EXPECT_THAT(faltung_last_error(), HasSubstr("f16"));
  EXPECT_EQ(faltung_network_create_in(engine, path.c_str(), nullptr, FALTUNG_ELEMENT_I64, &network),
            FALTUNG_BAD_PROBLEM);
  const char* const kept[] = {"nothing", nullptr};
  EXPECT_EQ(
      faltung_network_create_mixed(engine, path.c_str(), nullptr, FALTUNG_ELEMENT_F32, kept, 1, &network),
      FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("no tensor 'nothing' to keep in f32"));
  EXPECT_EQ(
      faltung_network_create_mixed(engine, path.c_str(), nullptr, FALTUNG_ELEMENT_F32, kept + 1, 1, &network),
      FALTUNG_BAD_PROBLEM);
  faltung_network_plan_destroy(plan);
  faltung_network_destroy(nullptr);
  faltung_engine_destroy(engine);
}

}  // namespace
}  // namespace faltung
