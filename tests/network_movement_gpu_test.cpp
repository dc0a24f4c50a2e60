// What networks move on every GPU there is (OpenCL drivers for the CPU count), or need not: picked and
// repeated numbers, parts that are read where they lie, results in the place of what is read.
#include <gtest/gtest.h>

#include "tests/device_networks.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

using NetworkMovementGpu = NetworkGpu;

// Whole numbers from -below on, as many as `period`, over and over; over `by`.
Array counted(const Shape& shape, std::int64_t period, std::int64_t below, double by = 1) {
  Array array{network::Type::f32, shape, {}};
  for (std::int64_t e = 0; e < network::elements(shape); ++e)
    array.data.push_back(static_cast<double>(e * 37 % period - below) / by);
  return array;
}

// Doubled and surrounded: single numbers, 16 bytes of them at once where these divide the result, though not
// its rows.
TEST_F(NetworkMovementGpu, NumbersArePickedOneByOneAndInEights) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const Shape& shape :
         {Shape{2, 3, 5, 12}, Shape{2, 4, 4, 7}, Shape{1, 3, 4, 7}, Shape{4, 2, 4, 7}, Shape{2, 3, 4, 8}}) {
      onnx::ModelText model;
      model.add_input("x", shape);
      model.add_constant(onnx::tensor("scales", {4}, std::vector<float>{1, 1, 2, 2}));
      model.add_constant(onnx::tensor("pads", onnx::Sizes{0, 0, 1, 3, 0, 0, 0, 5}));
      model.add({"Relu", {"x"}, {"r"}, {}, ""});
      model.add({"Resize", {"r", "", "scales"}, {"d"}, {{"mode", std::string("nearest")}}, ""});
      model.add({"Pad", {"d", "pads"}, {"p"}, {}, ""});
      model.add({"Relu", {"p"}, {"y"}, {}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      const Array input = counted(shape, 201, 50);  // that bf16 holds
      const std::vector<Array> expected = network::interpret(graph, {input});
      for (const DType dtype : {DType::f16, DType::f32}) {
        if ((dtype == DType::f16) != (shape[0] == 2) && !sampling::full()) continue;
        const auto plan = networks.plan(graph, {shape}, dtype, Convolutions::direct);
        EXPECT_EQ(worst_error(expected[0], networks.run(*plan, {input})[0]), 0) << faltung::name(dtype);
      }
    }
  }
}

// An axis of one element of which nothing is left beside another that changes is all fill.
TEST_F(NetworkMovementGpu, AnAxisOfOneElementMayBeFillAlone) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    const Shape shape{2, 3, 1, 5};
    onnx::ModelText model;
    model.add_input("x", shape);
    model.add_constant(onnx::tensor("pads", onnx::Sizes{0, 0, 1, 1, 0, 0, -1, 1}));
    model.add({"Relu", {"x"}, {"r"}, {}, ""});
    model.add({"Pad", {"r", "pads"}, {"y"}, {}, ""});
    model.add_output("y");
    const std::string bytes = model.bytes();
    const Graph graph = onnx::read(bytes);
    const Array input = counted(shape, 201, 50);
    const auto plan = networks.plan(graph, {shape}, DType::f32, Convolutions::direct);
    EXPECT_EQ(worst_error(network::interpret(graph, {input})[0], networks.run(*plan, {input})[0]), 0);
  }
}

// Through tiles that are full, and squares and long ones that are not; lines that begin at four elements, and
// not; whole images of few channels, and of few pixels, that lie in one piece; two dimensions beside each
// other.
TEST_F(NetworkMovementGpu, DimensionsChangePlacesByTiles) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const Shape& shape : {Shape{1, 64, 132}, Shape{3, 37, 70}, Shape{1, 3, 500}, Shape{2, 501, 3},
                               Shape{1, 16, 16}, Shape{1, 6, 2050}, Shape{2, 1200, 3}, Shape{2, 49, 72},
                               Shape{2, 72, 49}, Shape{8, 6, 40}, Shape{16, 5, 130}}) {
      const onnx::Sizes turned = shape[0] > 4 ? onnx::Sizes{2, 1, 0} : onnx::Sizes{0, 2, 1};
      onnx::ModelText model;
      model.add_input("x", shape);
      model.add({"Relu", {"x"}, {"r"}, {}, ""});
      model.add({"Transpose", {"r"}, {"t"}, {{"perm", turned}}, ""});
      model.add({"Transpose", {"x"}, {"z"}, {{"perm", turned}}, ""});
      model.add_output("t");
      model.add_output("z");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      const Array input = counted(shape, 201, 50);  // that bf16 holds
      const std::vector<Array> expected = network::interpret(graph, {input});
      for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
        if (dtype != DType::f16 && shape[0] != 2 && !sampling::full()) continue;
        const auto plan = networks.plan(graph, {shape}, dtype, Convolutions::direct);
        const std::vector<Array> got = networks.run(*plan, {input});
        for (std::size_t i = 0; i < 2; ++i)
          EXPECT_EQ(worst_error(expected[i], got[i]), 0) << faltung::name(dtype) << " " << i;
      }
    }
  }
}

// Images in nhwc whose pixels are repeated are one copy.
TEST_F(NetworkMovementGpu, PixelsAreRepeatedInOneStep) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const Shape& given : {Shape{2, 3, 5, 16}, Shape{1, 4, 3, 9}}) {
      onnx::ModelText model;
      model.add_input("x", given);
      model.add_constant(onnx::tensor("scales", {4}, std::vector<float>{1, 1, 2, 3}));
      model.add({"Transpose", {"x"}, {"t"}, {{"perm", onnx::Sizes{0, 3, 1, 2}}}, ""});
      model.add({"Resize",
                 {"t", "", "scales"},
                 {"r"},
                 {{"mode", std::string("nearest")},
                  {"coordinate_transformation_mode", std::string("asymmetric")},
                  {"nearest_mode", std::string("floor")}},
                 ""});
      model.add({"Transpose", {"r"}, {"y"}, {{"perm", onnx::Sizes{0, 2, 3, 1}}}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      const Array input = counted(given, 201, 50);  // that f16 holds
      const DType dtype = given[0] == 2 ? DType::f16 : DType::f32;
      const auto plan = networks.plan(graph, {given}, dtype, Convolutions::direct);
      int steps = 0;
      for (const network::NetworkStep& step : plan->schedule().steps())
        steps += step.name.starts_with("Resize") ? 1 : 0;
      EXPECT_EQ(steps, 1);
      EXPECT_EQ(worst_error(network::interpret(graph, {input})[0], networks.run(*plan, {input})[0]), 0);
    }
  }
}

// Columns of rows are read where they are, by chains; what else reads them has a copy of them.
TEST_F(NetworkMovementGpu, ChainsReadColumnsWhereTheyAre) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const std::int64_t columns : {32, 10}) {  // halves that begin at 16 bytes, and not
      const Shape given{2, 5, columns};
      onnx::ModelText model;
      model.add_input("x", given);
      model.add_constant(onnx::tensor("halves", onnx::Sizes{columns / 2, columns / 2}));
      model.add({"Relu", {"x"}, {"r"}, {}, ""});
      model.add({"Split", {"r", "halves"}, {"a", "b"}, {{"axis", std::int64_t{-1}}}, ""});
      model.add({"Mul", {"a", "b"}, {"y"}, {}, ""});
      model.add({"ReduceMax", {"b"}, {"m"}, {{"keepdims", std::int64_t{0}}}, ""});
      model.add_output("y");
      model.add_output("m");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      const Array input = counted(given, 51, 10);  // products that f16 holds
      const auto plan = networks.plan(graph, {given}, DType::f16, Convolutions::direct);
      int copies = 0;
      for (const network::NetworkStep& step : plan->schedule().steps()) {
        const auto* const call = std::get_if<MapCall>(&step.work);
        copies += call != nullptr && call->program.empty() ? 1 : 0;
      }
      EXPECT_EQ(copies, columns == 32 ? 1 : 2);
      const std::vector<Array> expected = network::interpret(graph, {input}),
                               got = networks.run(*plan, {input});
      for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(worst_error(expected[i], got[i]), 0);
    }
  }
}

// Beside what a step reads, unless nothing else made the arena so large.
TEST_F(NetworkMovementGpu, StepsWriteInPlaceWhereTheArenaWouldBeLarger) {
  for (const auto& device : devices_) {
    SCOPED_TRACE(device->info().id);
    DeviceNetworks networks(device);
    for (const std::int64_t copies : {8, 1}) {
      const Shape given{copies, 64, 32};
      onnx::ModelText model;
      model.add_input("x", given);
      model.add({"Softmax", {"x"}, {"s"}, {{"axis", std::int64_t{-1}}}, ""});
      if (copies > 1) model.add({"ReduceMax", {"s"}, {"m"}, {{"axes", onnx::Sizes{0}}}, ""});
      model.add({"Exp", {copies > 1 ? "m" : "s"}, {"e"}, {}, ""});
      model.add({"Softmax", {"e"}, {"y"}, {{"axis", std::int64_t{1}}}, ""});
      model.add_output("y");
      const std::string bytes = model.bytes();
      const Graph graph = onnx::read(bytes);
      const Array input = counted(given, 51, 0, 8);
      const auto plan = networks.plan(graph, {given}, DType::f32, Convolutions::direct);
      int chains = 0;
      for (const network::NetworkStep& step : plan->schedule().steps()) {
        if (!step.name.starts_with("Exp")) continue;
        ++chains;
        EXPECT_EQ(step.write.offset == step.reads[0].offset, copies == 1) << step.name;
      }
      EXPECT_EQ(chains, 1);
      EXPECT_LE(worst_error(network::interpret(graph, {input})[0], networks.run(*plan, {input})[0]), 1e-5);
    }
  }
}

}  // namespace
}  // namespace faltung
