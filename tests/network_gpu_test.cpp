// Whole networks on every GPU there is (OpenCL drivers for the CPU count): ONNX's node tests and random
// networks, in f32 and in 16 bits, held to the references in doubles. FALTUNG_TEST_FULL=1 runs every node
// test; compiling takes most of the time.
#include <gtest/gtest.h>

#include <iostream>

#include "src/problem/text.hpp"
#include "tests/device_networks.hpp"
#include "tests/node_cases.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

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
    "node/test_mod_mixed_sign_float32",
    "node/test_reduce_log_sum_negative_axes",
    "node/test_reduce_prod_negative_axes_keepdims_random",
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
