// Rows that are normalized or reduced on every GPU there is (OpenCL drivers for the CPU count): lengths that
// registers hold and that they do not, that divide nothing and begin anywhere, with and without the
// elementwise chain behind them; held to the references in doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "tests/device_networks.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

using NetworkRowsGpu = NetworkGpu;

// Of results that are rounded once, and sums in fp32.
double bound(DType dtype) {
  constexpr double kSums = 32 * 0x1p-24;
  return dtype == DType::f32 ? kSums : kSums + (dtype == DType::f16 ? 0x1p-11 : 0x1p-8);
}

// Numbers that the type holds.
Array drawn(const Shape& shape, DType dtype, double mean) {
  const network::Type types[] = {network::Type::f32, network::Type::f16, network::Type::bf16};
  Array array{types[static_cast<int>(dtype)], shape, {}};
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal(static_cast<float>(mean), 2);
  for (std::int64_t e = 0; e < network::elements(shape); ++e) array.data.push_back(normal(random));
  array.data = network::decode(network::encode(array)).data;
  array.type = network::Type::f32;
  return array;
}

template <class Call>
std::int64_t count(const NetworkPlanImpl& plan) {
  return std::ranges::count_if(plan.schedule().steps(),
                               [](const auto& step) { return std::holds_alternative<Call>(step.work); });
}

// What registers hold: 40 elements a thread, of a block or of sixteen.
std::int64_t held(const Device& device) {
  return device.info().has("sm_90") ? 327680 : device.info().dialect == "cuda" ? 20480 : 10240;
}

const std::vector<Shape> kShapes{{5, 768},    {1, 1000},     {3, 1},     {41, 7},     {37, 49},   {6, 197},
                                 {300, 64},   {1, 7},        {70, 384},  {9, 1283},   {3, 10240}, {2, 10247},
                                 {3, 18710},  {2, 20480},    {2, 20483}, {1, 45001},  {1, 1},     {33, 1280},
                                 {1100, 330}, {2, 3, 5, 40}, {3, 70007}, {2, 262144}, {1, 330000}};

// Read once where registers hold them, with the chain behind them: operands along the row, by row, and as
// large as the result, of other types.
TEST_F(NetworkRowsGpu, NormalizedRowsAndTheirChainsAreOneStep) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int number = 0;
    double worst = 0;
    for (const Shape& shape : kShapes) {
      for (const char* const op : {"Softmax", "LogSoftmax", "LayerNormalization"}) {
        for (const bool chained : {true, false}) {
          const std::int64_t length = shape.back();
          const int turn = number + number / 6;
          ++number;
          const DType dtype = static_cast<DType>(turn % 3);
          if (device->info().has("runs_on_cpu") && turn % 4 != 0 && !sampling::full()) continue;
          SCOPED_TRACE(std::string(op) + " " + network::to_string(shape) + " " + name(dtype) +
                       (chained ? ", a chain" : ""));
          onnx::ModelText model;
          model.add_input("x", shape);
          Shape by_row = shape;
          by_row.back() = 1;
          model.add_input("w", by_row);
          const auto n = static_cast<std::size_t>(length);
          std::vector<float> scale(n), shift(n);
          for (std::size_t i = 0; i < n; ++i)
            scale[i] = 0.5f + static_cast<float>(i % 7) / 8, shift[i] = static_cast<float>(i % 5) / 4 - 0.5f;
          model.add_constant(onnx::tensor("scale", {length}, scale));
          model.add_constant(onnx::tensor("shift", {length}, shift));
          model.add({"Neg", {"x"}, {"n"}, {}, ""});  // of 16 bits from here on
          const bool layer = std::string(op) == "LayerNormalization";
          if (layer)
            model.add({op, {"n", "scale", "shift"}, {"r"}, {{"axis", std::int64_t{-1}}}, ""});
          else
            model.add({op, {"n"}, {"r"}, {{"axis", std::int64_t{-1}}}, ""});
          if (chained) {
            if (!layer) {
              model.add({"Mul", {"r", "scale"}, {"m"}, {}, ""});
              model.add({"Add", {"m", "shift"}, {"a"}, {}, ""});
            }
            model.add({"Mul", {layer ? "r" : "a", "w"}, {"b"}, {}, ""});
            model.add({"Abs", {"b"}, {"c"}, {}, ""});
            model.add({"Add", {"n", "c"}, {"y"}, {}, ""});
          }
          onnx::Sizes turned;
          for (std::size_t d = shape.size(); d-- > 0;) turned.push_back(static_cast<std::int64_t>(d));
          model.add({"Transpose", {chained ? "y" : "r"}, {"t"}, {{"perm", turned}}, ""});
          model.add_output("t");
          const std::string bytes = model.bytes();
          const Graph graph = onnx::read(bytes);
          const std::vector<Array> inputs{drawn(shape, dtype, op[0] == 'S' ? 0 : 5), drawn(by_row, dtype, 0)};
          const auto plan = networks.plan(graph, {shape, by_row}, dtype, Convolutions::direct);
          const bool fits = length <= held(*device);
          EXPECT_EQ(count<network::NormalizeCall>(*plan), (chained || layer) && fits ? 1 : 0);
          EXPECT_EQ(count<network::NormalizeCall>(*plan) + count<RowsCall>(*plan), 1);
          const double error =
              worst_error(network::interpret(graph, inputs)[0], networks.run(*plan, inputs)[0]);
          // In two steps it is rounded between them, too, and scaled then.
          const double most = (fits ? 1 : 3) * bound(dtype);
          EXPECT_LE(error, most);
          worst = std::max(worst, error / most);
        }
      }
    }
    std::cout << "worst error over bound " << worst << "\n";
  }
}

// Reductions of rows, and of columns that many blocks share.
TEST_F(NetworkRowsGpu, RowsAreReduced) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    int number = 0;
    std::vector<Shape> shapes = kShapes;
    shapes.insert(shapes.end(), {{2, 12544, 64}, {3, 700, 33}, {1, 5000, 8}});
    for (const Shape& shape : shapes) {
      for (const char* const op : {"ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"}) {
        const std::int64_t axis = shape.size() == 3 ? 1 : -1;
        const DType dtype = static_cast<DType>(++number % 3);
        if (device->info().has("runs_on_cpu") && number % 4 != 0 && !sampling::full()) continue;
        SCOPED_TRACE(std::string(op) + " " + network::to_string(shape) + " " + name(dtype));
        onnx::ModelText model;
        model.add_input("x", shape);
        model.add({"Neg", {"x"}, {"n"}, {}, ""});
        model.add({op, {"n"}, {"y"}, {{"axes", onnx::Sizes{axis}}}, ""});
        model.add_output("y");
        const std::string bytes = model.bytes();
        const Graph graph = onnx::read(bytes);
        const Array input = drawn(shape, dtype, 1);
        const auto plan = networks.plan(graph, {shape}, dtype, Convolutions::direct);
        EXPECT_LE(worst_error(network::interpret(graph, {input})[0], networks.run(*plan, {input})[0]),
                  bound(dtype));
      }
    }
  }
}

// Infinities and what is no number, wherever they stand: among the first of a row, all of it, and behind its
// last whole vector.
TEST_F(NetworkRowsGpu, WhatIsNoNumberComesOut) {
  const double inf = HUGE_VAL, nan = std::nan("");
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const std::int64_t length : {9, 70, 771, 24003}) {
      const Shape shape{7, length};
      Array input = drawn(shape, DType::f32, 0);
      const auto at = [&](std::int64_t row, std::int64_t i) -> double& {
        return input.data[static_cast<std::size_t>(row * length + i)];
      };
      for (std::int64_t i = 0; i < length; ++i) {
        if (i < length - 1) at(0, i) = -inf;  // a mask
        at(1, i) = -inf;
      }
      at(2, length - 1) = inf, at(3, 0) = nan, at(4, length - 1) = nan, at(5, length / 2) = -inf;
      for (const char* const op : {"Softmax", "LogSoftmax", "ReduceMax", "ReduceMin", "ReduceMean"}) {
        onnx::ModelText model;
        model.add_input("x", shape);
        if (op[0] == 'R')
          model.add({op, {"x"}, {"y"}, {{"axes", onnx::Sizes{-1}}}, ""});
        else
          model.add({op, {"x"}, {"y"}, {{"axis", std::int64_t{-1}}}, ""});
        model.add_output("y");
        const std::string bytes = model.bytes();
        const Graph graph = onnx::read(bytes);
        const Array expected = network::interpret(graph, {input})[0];
        const Array actual =
            networks.run(*networks.plan(graph, {shape}, DType::f32, Convolutions::direct), {input})[0];
        int wrong = 0;
        for (std::size_t i = 0; i < expected.data.size(); ++i) {
          const double e = expected.data[i], a = actual.data[i];
          const bool same =
              std::isnan(e) ? std::isnan(a) : e == a || std::abs(e - a) <= 1e-5 * (1 + std::abs(e));
          wrong += same ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0) << op << " of " << length;
      }
    }
  }
}

}  // namespace
}  // namespace faltung
