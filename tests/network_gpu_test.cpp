// Whole networks on every GPU there is (OpenCL drivers for the CPU count): ONNX's node tests and random
// networks, in f32 and in 16 bits, held to the references in doubles. FALTUNG_TEST_FULL=1 runs every node
// test; compiling takes most of the time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "src/network/network.hpp"
#include "src/problem/text.hpp"
#include "tests/network_fixture.hpp"
#include "tests/node_cases.hpp"
#include "tests/random_network.hpp"
#include "tests/sampling.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

enum class Convolutions { chosen, direct };

class DeviceNetworks {
 public:
  explicit DeviceNetworks(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<const NetworkPlanImpl> plan(Graph graph, const std::vector<Shape>& shapes, DType dtype,
                                              Convolutions convolutions, bool choose_layouts = true) {
    graph = network::run_passes(network::unsized_passes(), std::move(graph));
    graph = network::with_sizes(std::move(graph), shapes);
    graph = network::run_passes(network::sized_passes(), std::move(graph));
    graph = network::with_precision(std::move(graph), dtype);
    Request request;
    request.device = device_->info().id;
    request.threads = 1;
    request.trust = TrustPolicy::all;
    // Each convolution would be a kernel of its own, seconds of compiling on a CPU; registry_gpu_test has
    // them all.
    if (convolutions == Convolutions::direct && !sampling::full()) request.only = {"direct_gpu*"};
    return std::make_shared<const NetworkPlanImpl>(
        network::Schedule(std::move(graph), {engine_, request, weights_, Math::f32, choose_layouts}), engine_,
        device_);
  }

  // In an arena that is full of NaN before, and whose bytes beyond its end are watched; and once more as the
  // plan itself has it.
  std::vector<Array> run(const NetworkPlanImpl& plan, const std::vector<Array>& inputs) {
    std::vector<faltung::Buffer> buffers;
    const auto upload = [&](const void* from, std::size_t bytes) {
      buffers.push_back(device_->allocate(std::max<std::size_t>(1, bytes)));
      device_->copy_in(buffers.back(), from, bytes);
      return buffers.back().pointer;
    };
    std::vector<const void*> reads;
    for (const Array& input : inputs) {
      const network::Constant constant = network::encode(input);
      reads.push_back(upload(constant.data, input.data.size() * network::size_of(input.type)));
    }
    constexpr std::size_t kGuard = 4096;
    const std::size_t size = plan.schedule().memory().bytes;
    std::vector<std::byte> arena(size + kGuard, std::byte{0xff});
    NetworkRunOptions options;
    options.arena = upload(arena.data(), arena.size());
    const faltung::Buffer there = buffers.back();
    const auto once = [&](const NetworkRunOptions& how) {
      std::vector<faltung::Buffer> results;
      std::vector<void*> writes;
      for (const network::ValueId id : plan.schedule().graph().outputs) {
        const std::vector<std::byte> poison(bytes_of(plan, id), std::byte{0xff});
        writes.push_back(upload(poison.data(), poison.size()));
        results.push_back(buffers.back());
      }
      plan.run(reads, writes, how);
      device_->synchronize({});
      std::vector<std::vector<std::byte>> all;
      for (std::size_t i = 0; i < results.size(); ++i) {
        all.emplace_back(bytes_of(plan, plan.schedule().graph().outputs[i]));
        device_->copy_out(all.back().data(), results[i], all.back().size());
      }
      return all;
    };
    const std::vector<std::vector<std::byte>> results = once(options);
    device_->copy_out(arena.data(), there, arena.size());
    for (std::size_t i = size; i < arena.size(); ++i) {
      if (arena[i] != std::byte{0xff}) throw Error(Status::internal, "a step wrote beyond the arena");
    }
    for (int again = 0; again < 2; ++again)
      EXPECT_TRUE(once({}) == results) << "the bits vary from run to run";
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const network::Value& value = plan.schedule().graph().at(plan.schedule().graph().outputs[i]);
      arrays.push_back(network::decode({value.type, *value.shape, nullptr, results[i].data()}));
    }
    return arrays;
  }

 private:
  static std::size_t bytes_of(const NetworkPlanImpl& plan, network::ValueId id) {
    const network::Value& value = plan.schedule().graph().at(id);
    return static_cast<std::size_t>(network::elements(*value.shape)) * network::size_of(value.type);
  }

  const Scratch scratch_;
  std::shared_ptr<Device> device_;
  EngineImpl engine_{std::getenv("FALTUNG_STORE") != nullptr ? "" : scratch_.path()};
  network::Weights weights_;
};

class NetworkGpu : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : list_devices()) {
      if (device->info().kind == "gpu" && is_tested(device->info().id)) devices_.push_back(device);
    }
    if (!devices_.empty()) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU";
  }
  std::vector<std::shared_ptr<Device>> devices_;
};

// A case for each kernel, and each of its ways.
constexpr const char* kCases[] = {
    "node/test_and_bcast3v1d",
    "node/test_argmax_keepdims_example_select_last_index",
    "node/test_averagepool_2d_pads_count_include_pad",
    "node/test_concat_2d_axis_1",
    "node/test_edge_pad",
    "node/test_gemm_all_attributes",
    "node/test_logsoftmax_axis_1",
    "node/test_matmul_4d",
    "node/test_maxpool_2d_pads",
    "node/test_resize_upsample_scales_linear",
    "node/test_slice_neg_steps",
    "node/test_where_example",
};

bool is_wanted(const std::string& name) {
  return sampling::full() ||
         std::ranges::any_of(kCases, [&](const char* pattern) { return matches(pattern, name); });
}

TEST_F(NetworkGpu, Onnx) {
  if (!std::filesystem::exists(node_cases::kFolder))
    GTEST_SKIP() << node_cases::kFolder << " is missing; Debian has it in libonnx-testdata";
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int run_count = 0;
    for (const node_cases::Case& c : node_cases::all()) {
      if (!is_wanted(c.name)) continue;
      SCOPED_TRACE(c.name);
      std::optional<std::vector<Array>> results;
      std::string why;
      for (const bool all_but_first : {false, true}) {
        if (results) continue;
        try {
          Graph graph = network::read_onnx(c.model);
          std::vector<Array> inputs = node_cases::inputs(c, graph);
          graph = node_cases::with_constants(std::move(graph), inputs, all_but_first);
          std::vector<Shape> shapes;
          for (const Array& input : inputs) shapes.push_back(input.shape);
          results = networks.run(*networks.plan(std::move(graph), shapes, DType::f32, Convolutions::chosen),
                                 inputs);
        } catch (const Error& error) {
          why = error.what();
          EXPECT_TRUE(error.status() == Status::unsupported || error.status() == Status::bad_problem) << why;
        }
      }
      if (!results) {
        EXPECT_TRUE(sampling::full()) << why;
        continue;
      }
      const std::vector<Array> expected = node_cases::outputs(c, *results);
      ASSERT_EQ(results->size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        node_cases::expect_same(c.name, expected[i], (*results)[i]);
      ++run_count;
    }
    std::cout << device->info().id << ": " << run_count << " cases\n";
    EXPECT_GE(run_count, sampling::full() ? 420 : static_cast<int>(std::size(kCases)));
  }
}

TEST_F(NetworkGpu, RandomNetworks) {
  FALTUNG_TRACE_SAMPLE();
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const int count = sampling::full() ? 100 : sampling::count(1);
    double worst[3] = {};
    for (int i = 0; i < count; ++i) {
      const std::uint64_t seed = sampling::seed() * 1000003 + static_cast<std::uint64_t>(i);
      const RandomNetwork made(seed);
      const std::string bytes = made.bytes();
      const Graph graph = onnx::read(bytes);
      Array input{network::Type::f32, made.input(), {}};
      std::mt19937_64 random(seed);
      std::normal_distribution<float> normal;
      for (std::int64_t e = 0; e < network::elements(input.shape); ++e) input.data.push_back(normal(random));
      const std::vector<Array> expected = network::interpret(graph, {input});
      // A network in one of them, each in turn; all of them where everything is run.
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const auto at = static_cast<std::size_t>(dtype);
        if (!sampling::full() && static_cast<int>(at) != (i + 1) % 3) continue;
        SCOPED_TRACE("network " + std::to_string(seed) + " in " + name(dtype));
        const auto plan = networks.plan(graph, {made.input()}, dtype, Convolutions::direct, i % 2 == 0);
        const std::vector<Array> actual = networks.run(*plan, {input});
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t o = 0; o < actual.size(); ++o) {
          const double error = worst_error(expected[o], actual[o]);
          worst[at] = std::max(worst[at], error);
          // Some twenty roundings in a row, to 2^-11 or 2^-8; normalizations magnify. In f32 as on the CPU.
          const double bounds[] = {2e-4, 2e-2, 16e-2};
          EXPECT_LE(error, bounds[at]) << "output " << o;
        }
      }
    }
    std::cout << device->info().id << ": worst errors " << worst[0] << " f32, " << worst[1] << " f16, "
              << worst[2] << " bf16\n";
  }
}

// Squares of a transposition, words of 16 bytes, long columns that are cut, and what is no multiple of
// anything.
TEST_F(NetworkGpu, TheKernelsWays) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const Shape& shape : {Shape{2, 48, 20, 36}, Shape{1, 19, 31, 33}}) {
      onnx::ModelText model;
      model.add_input("x", shape);
      model.add({"Sigmoid", {"x"}, {"s"}, {}, ""});
      model.add({"Transpose", {"s"}, {"t"}, {{"perm", onnx::Sizes{0, 2, 3, 1}}}, ""});
      model.add({"GlobalAveragePool", {"x"}, {"g"}, {}, ""});
      model.add({"Mul", {"x", "g"}, {"y"}, {}, ""});
      model.add({"Concat", {"y", "s"}, {"c"}, {{"axis", std::int64_t{1}}}, ""});
      model.add({"ReduceMax", {"c"}, {"m"}, {{"axes", onnx::Sizes{1}}}, ""});
      for (const char* output : {"t", "c", "m"}) model.add_output(output);
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      Array input{network::Type::f32, shape, {}};
      std::mt19937_64 random(7);
      std::normal_distribution<float> normal;
      for (std::int64_t e = 0; e < network::elements(shape); ++e) input.data.push_back(normal(random));
      const std::vector<Array> expected = network::interpret(graph, {input});
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if ((dtype == DType::f32) == (shape[0] == 2) && !sampling::full()) continue;
        const std::vector<Array> actual =
            networks.run(*networks.plan(graph, {shape}, dtype, Convolutions::direct), {input});
        for (std::size_t o = 0; o < actual.size(); ++o)
          EXPECT_LE(worst_error(expected[o], actual[o]), dtype == DType::f32 ? 1e-5 : 2e-2)
              << name(dtype) << " " << o;
      }
    }
  }
}

// A row that is long enough to be standardized in parts, by all units, and far from zero.
TEST_F(NetworkGpu, LongRowsAreStandardizedInParts) {
  onnx::ModelText model;
  const Shape shape{1, 1, 1024, 2048};
  model.add_input("x", shape);
  model.add_constant(onnx::tensor("scale", {1}, std::vector<float>{2}));
  model.add_constant(onnx::tensor("shift", {1}, std::vector<float>{-1}));
  model.add({"InstanceNormalization", {"x", "scale", "shift"}, {"y"}, {}, ""});
  model.add_output("y");
  const std::string bytes = model.bytes();
  const Graph graph = onnx::read(bytes);
  Array input{network::Type::f32, shape, {}};
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(30);
  for (std::int64_t e = 0; e < network::elements(shape); ++e) input.data.push_back(normal(random));
  const std::vector<Array> expected = network::interpret(graph, {input});
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const auto plan = networks.plan(graph, {shape}, DType::f32, Convolutions::direct);
    EXPECT_LE(worst_error(expected[0], networks.run(*plan, {input})[0]), 2e-6);
  }
}

// Attention as exporters write it: heads of each pixel's channels, turned; the scale on queries and keys, or
// on scores; a context of its own length; the result turned back or not. One step where the matrix units take
// it.
TEST_F(NetworkGpu, AttentionIsOneStep) {
  struct Case {
    std::int64_t batch, heads, queries, keys, depth;
    DType dtype;
    bool scales_scores, turns_back;
  };
  const Case cases[] = {
      {1, 2, 70, 70, 40, DType::f16, false, true},    {2, 3, 64, 77, 64, DType::f16, true, true},
      {1, 2, 33, 130, 80, DType::bf16, false, false}, {1, 8, 3000, 90, 80, DType::f16, false, true},
      {2, 8, 1500, 75, 40, DType::bf16, true, true},  {1, 1, 100, 65, 160, DType::f16, true, true},
      {1, 1, 40, 50, 256, DType::bf16, false, true},  {1, 1, 150, 70, 512, DType::f16, false, true},
      {1, 1, 8500, 33, 512, DType::f16, false, true}, {1, 2, 5, 1, 8, DType::f16, false, true},
      {1, 2, 20, 30, 12, DType::f16, false, true},    {1, 1, 20, 30, 640, DType::f16, false, true},
  };
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const bool has_units = device->info().dialect == "cuda" && device->info().has("mma_sync");
    int number = 0;
    for (const Case& c : cases) {
      // Without them these are steps that other tests have, too, and slow to compile on a CPU.
      if (!has_units && c.queries != 70 && !sampling::full()) continue;
      SCOPED_TRACE("case " + std::to_string(number++));
      onnx::ModelText model;
      const Shape shapes[] = {{c.batch, c.queries, c.heads, c.depth},
                              {c.batch, c.keys, c.heads, c.depth},
                              {c.batch, c.keys, c.heads, c.depth}};
      const float scale = 1 / std::sqrt(static_cast<float>(c.depth));
      model.add_constant(
          onnx::tensor("scale", {}, std::vector<float>{c.scales_scores ? scale : std::sqrt(scale)}));
      for (const char* name : {"q", "k", "v"}) model.add_input(name, shapes[*name == 'q' ? 0 : 1]);
      const auto turn = [&](const char* from, const char* to, const onnx::Sizes& perm) {
        model.add({"Transpose", {from}, {to}, {{"perm", perm}}, ""});
      };
      turn("q", "queries", {0, 2, 1, 3}), turn("k", "heads", {0, 2, 1, 3}), turn("v", "values", {0, 2, 1, 3});
      turn("heads", "keys", {0, 1, 3, 2});
      if (c.scales_scores) {
        model.add({"MatMul", {"queries", "keys"}, {"products"}, {}, ""});
        model.add({"Mul", {"products", "scale"}, {"scores"}, {}, ""});
      } else {
        model.add({"Mul", {"queries", "scale"}, {"asked"}, {}, ""});
        model.add({"Mul", {"keys", "scale"}, {"found"}, {}, ""});
        model.add({"MatMul", {"asked", "found"}, {"scores"}, {}, ""});
      }
      model.add({"Softmax", {"scores"}, {"powers"}, {{"axis", std::int64_t{-1}}}, ""});
      model.add({"MatMul", {"powers", "values"}, {"sums"}, {}, ""});
      // A node whose result is of 16 bits stands between this and the output.
      turn("sums", "turned", c.turns_back ? onnx::Sizes{0, 2, 1, 3} : onnx::Sizes{0, 1, 3, 2});
      model.add({"Relu", {"turned"}, {"y"}, {}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      std::vector<Array> inputs;
      std::mt19937_64 random(5);
      std::normal_distribution<float> normal;
      const network::Type type = c.dtype == DType::f16 ? network::Type::f16 : network::Type::bf16;
      for (const Shape& shape : shapes) {  // numbers that the type holds
        Array input{type, shape, {}};
        for (std::int64_t e = 0; e < network::elements(shape); ++e) input.data.push_back(normal(random));
        input.data = network::decode(network::encode(input)).data;
        input.type = network::Type::f32;
        inputs.push_back(std::move(input));
      }
      const auto plan =
          networks.plan(graph, {shapes[0], shapes[1], shapes[2]}, c.dtype, Convolutions::direct);
      const auto steps = std::ranges::count_if(plan->schedule().steps(), [](const auto& step) {
        return std::string(kind(step.work)) == "attention";
      });
      EXPECT_EQ(steps, has_units && c.depth % 8 == 0 && c.depth <= 512 ? 1 : 0);
      const double error = worst_error(network::interpret(graph, inputs)[0], networks.run(*plan, inputs)[0]);
      // A result is a mean of values by weights of a sum of 1, each rounded once, as the result is. By steps
      // queries, keys and scores are rounded, too, before they are powers.
      const double unit = c.dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
      EXPECT_LE(error, (steps == 1 ? 4 : 24) * unit);
      std::cout << number - 1 << ": " << error / unit << " units\n";
    }
  }
}

// Squeeze-excite in one step with its first layer, or after it where that is large; of a slice, into a slice,
// with the image once more beside it, and of channels that are no multiple of anything.
TEST_F(NetworkGpu, GatesAreOneStep) {
  struct Case {
    Shape shape;
    std::int64_t hidden;
    DType dtype;
    const char *first, *second;
    bool adds;          // the image to what is gated
    bool joins;         // what is gated with what it was made of
    std::size_t steps;  // beside the average's and the casts
  };
  const Case cases[] = {{{2, 24, 9, 11}, 6, DType::f16, "Relu", "HardSigmoid", false, true, 1},
                        {{1, 160, 5, 7}, 10, DType::bf16, "HardSwish", "Sigmoid", true, false, 1},
                        {{3, 13, 4, 3}, 5, DType::f32, "", "Sigmoid", false, false, 1},
                        {{2, 136, 6, 6}, 264, DType::f16, "LeakyRelu", "Sigmoid", false, false, 2}};
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int number = 0;
    for (const Case& c : cases) {
      SCOPED_TRACE("case " + std::to_string(number++));
      const std::int64_t channels = c.shape[1];
      std::mt19937_64 random(11);
      onnx::ModelText model;
      // Both ends lie in NHWC, and so does what is between.
      const Shape outside{c.shape[0], c.shape[2], c.shape[3], channels};
      model.add_input("outside", outside);
      model.add({"Transpose", {"outside"}, {"x"}, {{"perm", onnx::Sizes{0, 3, 1, 2}}}, ""});
      const auto constant = [&](const char* name, const Shape& shape, float spread) {
        std::normal_distribution<float> normal(0, spread);
        std::vector<float> values(static_cast<std::size_t>(network::elements(shape)));
        for (float& v : values) v = normal(random);
        model.add_constant(onnx::tensor(name, shape, values));
      };
      const auto layer = [&](const char* from, const char* name, const char* activation, std::int64_t in,
                             std::int64_t out) {
        const std::string w = std::string(name) + "_w", b = std::string(name) + "_b",
                          sum = name + std::string("_sum");
        constant(w.c_str(), {out, in, 1, 1}, 2.0f / std::sqrt(static_cast<float>(in)));
        constant(b.c_str(), {out}, 0.5f);
        const bool plain = *activation == '\0';
        model.add({"Conv", {from, w, b}, {plain ? name : sum}, {}, ""});
        if (!plain) model.add({activation, {sum}, {name}, {}, ""});
      };
      constant("w", {channels, channels, 1, 1}, 1.0f / std::sqrt(static_cast<float>(channels)));
      model.add({"Conv", {"x", "w"}, {"image"}, {}, ""});
      model.add({"GlobalAveragePool", {"image"}, {"mean"}, {}, ""});
      layer("mean", "hidden", c.first, channels, c.hidden);
      layer("hidden", "gate", c.second, c.hidden, channels);
      model.add({"Mul", {"gate", "image"}, {"gated"}, {}, ""});
      if (c.adds) model.add({"Add", {"image", "gated"}, {"sum"}, {}, ""});
      const char* const y = c.adds ? "sum" : "gated";
      if (c.joins) model.add({"Concat", {"image", y}, {"joined"}, {{"axis", std::int64_t{1}}}, ""});
      model.add({"Transpose", {c.joins ? "joined" : y}, {"y"}, {{"perm", onnx::Sizes{0, 2, 3, 1}}}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      Array input{network::Type::f32, outside, {}};
      std::normal_distribution<float> normal(0.5f);
      for (std::int64_t e = 0; e < network::elements(c.shape); ++e) input.data.push_back(normal(random));
      const std::vector<Array> expected = network::interpret(graph, {input});
      const auto plan = networks.plan(graph, {outside}, c.dtype, Convolutions::direct);
      std::size_t gates = 0, convolutions = 0;
      for (const network::NetworkStep& step : plan->schedule().steps()) {
        gates += std::holds_alternative<network::GateCall>(step.work) ? 1 : 0;
        convolutions += std::holds_alternative<network::ConvolutionWork>(step.work) ? 1 : 0;
      }
      EXPECT_EQ(gates, 1u);
      EXPECT_EQ(gates + convolutions - 1, c.steps);
      // Roundings of the image, of both layers' weights and of the result.
      const double bounds[] = {1e-5, 4e-3, 3e-2};
      EXPECT_LE(worst_error(expected[0], networks.run(*plan, {input})[0]), bounds[static_cast<int>(c.dtype)]);
    }
  }
}

TEST_F(NetworkGpu, SaysWhatIsWrong) {
  const auto& device = devices_.front();
  DeviceNetworks networks(device);
  onnx::ModelText model;
  model.add_input("x", {4, 4});
  model.add({"Relu", {"x"}, {"y"}, {}, ""});
  model.add_output("y");
  const std::string bytes = model.bytes();
  const auto plan = networks.plan(onnx::read(bytes), {{4, 4}}, DType::f32, Convolutions::direct);
  const faltung::Buffer buffer = device->allocate(256);
  const void* const inputs[] = {static_cast<std::byte*>(buffer.pointer) + 4};
  void* const outputs[] = {static_cast<std::byte*>(buffer.pointer) + 128};
  try {
    plan->run(inputs, outputs, {});
    FAIL() << "it took an address that is no multiple of 16";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_problem);
    EXPECT_NE(std::string(error.what()).find("input 'x'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace faltung
