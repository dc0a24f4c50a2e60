// Steps of networks on every GPU there is (OpenCL drivers for the CPU count) that have several ways, or do
// what several nodes say: each way, held to the references in doubles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "src/network/verify.hpp"
#include "tests/attention_model.hpp"
#include "tests/device_networks.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

using NetworkStepsGpu = NetworkGpu;

// Squares of a transposition, words of 16 bytes, long columns that are cut, and what is no multiple of
// anything.
TEST_F(NetworkStepsGpu, TheKernelsWays) {
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
      model.add({"ReduceLogSumExp", {"c"}, {"e"}, {{"axes", onnx::Sizes{1}}}, ""});
      for (const char* output : {"t", "c", "m", "e"}) model.add_output(output);
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
TEST_F(NetworkStepsGpu, LongRowsAreStandardizedInParts) {
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

// Group norms in either layout: of small images a block sums whole groups, of large ones chunks that are met;
// V of them at once, and one by one. In NCHW groups are rows, of which registers hold the shorter ones.
TEST_F(NetworkStepsGpu, GroupNormsArePartsOfChains) {
  struct Case {
    Shape image;
    std::int64_t groups;
  };
  const std::vector<Case> cases{{{2, 40, 5, 8}, 4},   {{1, 9, 7, 5}, 3},      {{2, 64, 80, 64}, 32},
                                {{1, 6, 64, 64}, 2},  {{1, 160, 33, 31}, 32}, {{3, 12, 6, 4}, 12},
                                {{1, 1100, 3, 5}, 2}, {{2, 5, 1, 1}, 5}};
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int count = 0;
    for (const Case& c : cases) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        const Shape& s = c.image;
        SCOPED_TRACE(network::to_string(s) + " in " + std::to_string(c.groups) + ", " + name(layout));
        const bool turns = layout == Layout::nhwc;
        const Shape given = turns ? Shape{s[0], s[2], s[3], s[1]} : s;
        onnx::ModelText model;
        model.add_input("x", given);
        const auto channels = static_cast<std::size_t>(s[1]), groups = static_cast<std::size_t>(c.groups);
        model.add_constant(onnx::tensor("rows", onnx::Sizes{s[0], c.groups, -1}));
        model.add_constant(onnx::tensor("image", onnx::Sizes{s[0], s[1], s[2], s[3]}));
        model.add_constant(onnx::tensor("ones", {c.groups}, std::vector<float>(groups, 1)));
        model.add_constant(onnx::tensor("zeros", {c.groups}, std::vector<float>(groups, 0)));
        std::vector<float> scale(channels), shift(channels);
        for (std::size_t i = 0; i < channels; ++i)
          scale[i] = 0.5f + static_cast<float>(i % 7) / 8, shift[i] = static_cast<float>(i % 5) / 4 - 0.5f;
        model.add_constant(onnx::tensor("scale", {s[1], 1, 1}, scale));
        model.add_constant(onnx::tensor("shift", {s[1], 1, 1}, shift));
        // As PyTorch writes it, and its SiLU.
        if (turns) model.add({"Transpose", {"x"}, {"t"}, {{"perm", onnx::Sizes{0, 3, 1, 2}}}, ""});
        model.add({"Reshape", {turns ? "t" : "x", "rows"}, {"r"}, {}, ""});
        model.add({"InstanceNormalization", {"r", "ones", "zeros"}, {"n"}, {}, ""});
        model.add({"Reshape", {"n", "image"}, {"b"}, {}, ""});
        model.add({"Mul", {"b", "scale"}, {"m"}, {}, ""});
        model.add({"Add", {"m", "shift"}, {"a"}, {}, ""});
        model.add({"Sigmoid", {"a"}, {"g"}, {}, ""});
        model.add({"Mul", {"a", "g"}, {"u"}, {}, ""});
        if (turns) model.add({"Transpose", {"u"}, {"v"}, {{"perm", onnx::Sizes{0, 2, 3, 1}}}, ""});
        model.add_output(turns ? "v" : "u");
        const std::string bytes = model.bytes();
        const Graph graph = onnx::read(bytes);
        Array input{network::Type::f32, given, {}};
        std::mt19937_64 random(7);
        std::normal_distribution<float> normal(30);
        for (std::int64_t e = 0; e < network::elements(given); ++e) input.data.push_back(normal(random));
        const DType dtype = ++count / 2 % 2 == 0 ? DType::f32 : DType::f16;
        const auto plan = networks.plan(graph, {given}, dtype, Convolutions::direct);
        int moments = 0, rows = 0, others = 0;
        for (const network::NetworkStep& step : plan->schedule().steps()) {
          const auto* const call = std::get_if<network::MomentsCall>(&step.work);
          if (call != nullptr) {
            ++moments;
            EXPECT_TRUE(call->layout == layout || s[2] * s[3] == 1);
          } else if (std::holds_alternative<network::NormalizeCall>(step.work)) {
            ++rows;
          } else if (!step.name.starts_with("Cast")) {
            ++others;
          }
        }
        const std::int64_t pixels = s[2] * s[3], group = s[1] / c.groups * pixels;
        if (!turns && pixels > 1 && group <= 10240 && (pixels % 4 == 0 || group < 2000)) {
          EXPECT_EQ(rows, 1);
        }
        EXPECT_EQ(moments + rows, 1);
        EXPECT_EQ(others, moments) << "the rest is one chain";
        const Array expected = network::interpret(graph, {input})[0];
        EXPECT_LE(worst_error(expected, networks.run(*plan, {input})[0]), dtype == DType::f32 ? 3e-6 : 2e-2);
      }
    }
  }
}

// One step where the matrix units take it.
TEST_F(NetworkStepsGpu, AttentionIsOneStep) {
  using enum AttentionModel::Scale;
  using enum AttentionModel::Keys;
  using enum AttentionModel::Result;
  struct Case {
    AttentionModel model;
    DType dtype;
  };
  const Case cases[] = {{{1, 2, 70, 70, 40}, DType::f16},
                        {{2, 3, 64, 77, 64, of_scores}, DType::f16},
                        {{1, 2, 33, 130, 80, of_both, turned_at_once, turned_once_more}, DType::bf16},
                        {{1, 8, 3000, 90, 80, of_both, turned_in_three}, DType::f16},
                        {{2, 8, 1500, 75, 40, of_scores, turned_in_three}, DType::bf16},
                        {{1, 1, 100, 65, 160, of_scores}, DType::f16},
                        {{1, 8, 2200, 70, 160}, DType::f16},
                        {{1, 2, 200, 66, 104}, DType::bf16},
                        {{1, 1, 40, 50, 256}, DType::bf16},
                        {{1, 1, 150, 70, 512}, DType::f16},
                        {{1, 1, 8500, 33, 512}, DType::f16},
                        {{1, 2, 5, 1, 8}, DType::f16},
                        {{1, 8, 2200, 64, 64, of_scores}, DType::f16},
                        {{1, 4, 129, 128, 72}, DType::f16},
                        {{1, 1, 17, 95, 288}, DType::bf16},
                        {{1, 2, 20, 30, 12}, DType::f16},
                        {{1, 1, 20, 30, 640}, DType::f16}};
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const bool has_units = device->info().dialect == "cuda" && device->info().has("mma_sync");
    int number = 0;
    for (const auto& [model, dtype] : cases) {
      // Without them these are steps that other tests have, too, and slow to compile on a CPU.
      if (!has_units && model.queries != 70 && !sampling::full()) continue;
      SCOPED_TRACE("case " + std::to_string(number++));
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      std::vector<Array> inputs;
      std::mt19937_64 random(5);
      std::normal_distribution<float> normal;
      const network::Type type = dtype == DType::f16 ? network::Type::f16 : network::Type::bf16;
      for (const Shape& shape : model.shapes()) {  // numbers that the type holds
        Array input{type, shape, {}};
        for (std::int64_t e = 0; e < network::elements(shape); ++e) input.data.push_back(normal(random));
        input.data = network::decode(network::encode(input)).data;
        input.type = network::Type::f32;
        inputs.push_back(std::move(input));
      }
      const auto plan = networks.plan(graph, model.shapes(), dtype, Convolutions::direct);
      const auto steps = std::ranges::count_if(plan->schedule().steps(), [](const auto& step) {
        return std::string(kind(step.work)) == "attention";
      });
      EXPECT_EQ(steps, has_units && model.depth % 8 == 0 && model.depth <= 512 ? 1 : 0);
      const double error = worst_error(network::interpret(graph, inputs)[0], networks.run(*plan, inputs)[0]);
      // A result is a mean of values by weights of a sum of 1, each rounded once, as the result is. By steps
      // queries, keys and scores are rounded, too, before they are powers.
      const double unit = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
      EXPECT_LE(error, (steps == 1 ? 4 : 24) * unit);
      std::cout << number - 1 << ": " << error / unit << " units\n";
    }
  }
}

// Squeeze-excite in one step with its first layer, or after it where that is large; of a slice, into a slice,
// with the image once more beside it, and of channels that are no multiple of anything.
TEST_F(NetworkStepsGpu, GatesAreOneStep) {
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
      std::size_t gates = 0, others = 0;
      for (const network::NetworkStep& step : plan->schedule().steps()) {
        gates += std::holds_alternative<network::GateCall>(step.work) ? 1 : 0;
        others += std::holds_alternative<network::ConvolutionWork>(step.work) ||
                          std::holds_alternative<network::LayerCall>(step.work)
                      ? 1
                      : 0;
      }
      EXPECT_EQ(gates, 1u);
      EXPECT_EQ(gates + others - 1, c.steps);
      // Roundings of the image, of both layers' weights and of the result.
      const double bounds[] = {1e-5, 4e-3, 3e-2};
      EXPECT_LE(worst_error(expected[0], networks.run(*plan, {input})[0]), bounds[static_cast<int>(c.dtype)]);
    }
  }
}

// Products of few rows, also as convolutions of single pixels, with what widens their results; of more rows
// they are convolutions. Runs that a thread takes before and after it waits, and terms that are no multiple
// of anything.
TEST_F(NetworkStepsGpu, LayersOfFewRowsAreOneStep) {
  struct Case {
    std::int64_t rows, terms, results;
    DType dtype;
    const char* activation;
    bool pixels;
  };
  const Case cases[] = {{1, 2048, 1000, DType::f16, "", false},      {4, 3000, 37, DType::f16, "Relu", false},
                        {3, 52, 30, DType::bf16, "HardSwish", true}, {2, 13, 5, DType::f32, "", true},
                        {1, 4104, 9, DType::f32, "Sigmoid", false},  {5, 64, 40, DType::f16, "", false}};
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int number = 0;
    for (const Case& c : cases) {
      SCOPED_TRACE("case " + std::to_string(number++));
      std::mt19937_64 random(3);
      std::normal_distribution<float> normal;
      const auto draw = [&](const char* name, const Shape& shape, float spread, onnx::ModelText& model) {
        std::vector<float> values(static_cast<std::size_t>(network::elements(shape)));
        for (float& v : values) v = spread * normal(random);
        model.add_constant(onnx::tensor(name, shape, values));
      };
      const Shape in = c.pixels ? Shape{c.rows, c.terms, 1, 1} : Shape{c.rows, c.terms};
      const std::string made = *c.activation == '\0' ? "y" : "sum";
      onnx::ModelText model;
      model.add_input("x", in);
      draw("w", c.pixels ? Shape{c.results, c.terms, 1, 1} : Shape{c.results, c.terms},
           1.0f / std::sqrt(static_cast<float>(c.terms)), model);
      draw("b", {c.results}, 0.5f, model);
      model.add({"Abs", {"x"}, {"a"}, {}, ""});
      if (c.pixels)
        model.add({"Conv", {"a", "w", "b"}, {made}, {}, ""});
      else
        model.add({"Gemm", {"a", "w", "b"}, {made}, {{"transB", std::int64_t{1}}}, ""});
      if (made == "sum") model.add({c.activation, {"sum"}, {"y"}, {}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      Array input{network::Type::f32, in, {}};
      for (std::int64_t e = 0; e < c.rows * c.terms; ++e) input.data.push_back(normal(random));
      const auto plan = networks.plan(graph, {in}, c.dtype, Convolutions::direct);
      const auto& steps = plan->schedule().steps();
      const bool few = c.rows <= network::kMostLayerRows;
      EXPECT_EQ(std::string(kind(steps[1].work)) == "layer", few);
      EXPECT_EQ(steps.size(), few || c.dtype == DType::f32 ? 2u : 3u);
      // Roundings of x and of the weights, which half a result's terms add to and half take from.
      const double bounds[] = {1e-5, 3e-3, 2e-2};
      EXPECT_LE(worst_error(network::interpret(graph, {input})[0], networks.run(*plan, {input})[0]),
                bounds[static_cast<int>(c.dtype)]);
    }
  }
}

// Values and weights beyond f16, in f32: said by the weights themselves, and of values by verify.
TEST_F(NetworkStepsGpu, WhatSixteenBitsDoNotHoldIsInF32) {
  const Shape shape{2, 8, 9, 7};
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  const auto model = [&](float weight, float spread) {
    onnx::ModelText text;
    text.add_input("x", shape);
    std::vector<float> first(12 * 8), second(4 * 12 * 9);
    for (float& v : first) v = spread * normal(random);
    for (float& v : second) v = normal(random);
    first[5] = weight;
    text.add_constant(onnx::tensor("w", {12, 8, 1, 1}, first));
    text.add_constant(onnx::tensor("v", {4, 12, 3, 3}, second));
    text.add({"Tanh", {"x"}, {"t"}, {}, ""});
    text.add({"Conv", {"t", "w"}, {"c"}, {}, ""});
    text.add({"Relu", {"c"}, {"r"}, {}, ""});
    text.add({"Conv", {"r", "v"}, {"m"}, {{"pads", onnx::Sizes{1, 1, 1, 1}}}, ""});
    text.add({"InstanceNormalization", {"m", "scale", "shift"}, {"y"}, {}, ""});
    text.add_constant(onnx::tensor("scale", {4}, std::vector<float>(4, 1)));
    text.add_constant(onnx::tensor("shift", {4}, std::vector<float>(4, 0)));
    text.add_output("y");
    return text.bytes();
  };
  Array input{network::Type::f32, shape, {}};
  for (std::int64_t e = 0; e < network::elements(shape); ++e) input.data.push_back(normal(random));
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const auto verified = [&](const std::string& bytes, std::vector<std::string> kept) {
      NetworkRequest request;
      request.request = networks.request(Convolutions::direct);
      request.dtype = DType::f16;
      request.keep_f32 = std::move(kept);
      NetworkImpl impl(networks.engine(), onnx::read(bytes), request);
      const network::Constant data = network::encode(input);
      const void* const inputs[] = {data.data};
      return network::verify(impl, *impl.plan({shape}), inputs);
    };
    const auto expect_right = [](const network::Verified& all) {
      EXPECT_THAT(all.beyond, testing::IsEmpty());
      for (const network::TensorError& e : all.tensors) {
        EXPECT_TRUE(e.finite) << e.name;
        EXPECT_LE(e.worst, 1e-2) << e.name;
      }
    };
    const std::string large_weight = model(1e5f, 1);
    // The second convolution's sums are as large as what it reads.
    EXPECT_THAT(verified(large_weight, {}).beyond, testing::ElementsAre("m"));
    expect_right(verified(large_weight, {"m"}));
    const std::string large_values = model(1.5e4f, 1.5e4f);
    const network::Verified lost = verified(large_values, {});
    EXPECT_THAT(lost.beyond, testing::ElementsAre("r", "m"));
    EXPECT_FALSE(lost.tensors.back().finite);
    expect_right(verified(large_values, lost.beyond));
  }
}

}  // namespace
}  // namespace faltung
