// The kernels of networks' other steps take their arguments, and compile for NVIDIA's architectures without
// spills; no GPU is needed, only NVRTC for the latter.
#include <gtest/gtest.h>

#include <set>

#include "src/backend/nvrtc.hpp"
#include "src/network/device_steps.hpp"
#include "src/plan/bound_launch.hpp"
#include "tests/builder.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

using network::DeviceConstants;
using network::DeviceSlots;

MapOperand operand(MapElement element, std::array<std::int64_t, kMapRank> strides) {
  return {element, 0, strides};
}

// Rows that registers hold, few and many of a thread, with the chain behind them.
void add_normalized(std::vector<network::Work>& all, MapElement e) {
  const auto normalized =
      [&](RowsOp op, std::int64_t length, int rank, std::array<std::int64_t, kMapRank> sizes,
          std::array<std::int64_t, kMapRank> along, std::array<std::int64_t, kMapRank> whole) {
        network::NormalizeCall call{op, length, 1e-5f, {}, 0};
        call.map.rank = rank, call.map.sizes = sizes;
        call.map.inputs = {operand(e, whole), operand(MapElement::f32, along),
                           operand(MapElement::f32, along), operand(e, whole)};
        call.map.output = operand(e, whole);
        call.map.program = {{MapOp::mul, 4, 0, 1, 0, 0, 0},
                            {MapOp::add, 5, 4, 2, 0, 0, 0},
                            {MapOp::gelu, 6, 5, 0, 0, 0, 0},
                            {MapOp::add, 7, 6, 3, 0, 0, 0}};
        all.push_back(call);
        call.map.inputs.pop_back(), call.map.program.pop_back();
        all.push_back(call);
      };
  for (const std::int64_t length : {49, 384, 768, 1280, 18710, 20480})
    normalized(RowsOp::standardize, length, 2, {2048, length}, {0, 1}, {length, 1});
  // A group norm of images of 1024 pixels.
  normalized(RowsOp::standardize, 10240, 3, {8, 320, 1024}, {0, 1, 0}, {327680, 1024, 1});
  for (const std::int64_t length : {384, 768, 18710, 20480, 50257}) {
    for (const RowsOp op :
         {RowsOp::softmax, RowsOp::log_softmax, RowsOp::standardize, RowsOp::mean, RowsOp::max})
      all.push_back(RowsCall{op, {2048, length, 1}, 1e-5f, e, e});
  }
  for (const RowsOp op : {RowsOp::mean, RowsOp::max}) {
    all.push_back(RowsCall{op, {512, 12544, 1}, 0, e, e});
    all.push_back(RowsCall{op, {8, 12544, 64}, 0, e, e});
  }
}

// Each kernel, each of its ways.
std::vector<network::Work> works() {
  std::vector<network::Work> all;
  const auto map = [&](std::array<std::int64_t, kMapRank> sizes, int rank, std::vector<MapOperand> inputs,
                       MapOperand to, std::vector<MapInstruction> program) {
    MapCall call;
    call.rank = rank, call.sizes = sizes, call.inputs = std::move(inputs), call.output = to;
    call.program = std::move(program);
    all.push_back(std::move(call));
  };
  add_normalized(all, MapElement::f32);
  for (const MapElement e : {MapElement::f16, MapElement::bf16}) {
    // Every operation, on operands that lie together, alone and apart.
    std::vector<MapInstruction> every;
    std::uint8_t last = 0;
    for (int op = 0; op <= static_cast<int>(MapOp::select); ++op) {
      every.push_back({static_cast<MapOp>(op), 3, last, 1, 2, 0.5f, -2.0f});
      last = 3;
    }
    map({6, 40}, 2,
        {operand(e, {40, 1}), operand(MapElement::f32, {1, 0}), operand(MapElement::boolean, {80, 2})},
        operand(e, {40, 1}), every);
    // A group norm with SiLU and a residual: rows at once, by the moments and parameters of all.
    map({2, 4096, 320}, 3,
        {operand(e, {4096 * 320, 320, 1}), operand(MapElement::f32, {0, 0, 1}),
         operand(MapElement::f32, {0, 0, 1}), operand(e, {4096 * 320, 320, 1}),
         operand(MapElement::f32, {320, 0, 1}), operand(MapElement::f32, {320, 0, 1})},
        operand(e, {4096 * 320, 320, 1}),
        {{MapOp::sub, 6, 0, 4, 0, 0, 0},
         {MapOp::mul, 7, 6, 5, 0, 0, 0},
         {MapOp::mul, 8, 7, 1, 0, 0, 0},
         {MapOp::add, 9, 8, 2, 0, 0, 0},
         {MapOp::silu, 10, 9, 0, 0, 0, 0},
         {MapOp::add, 11, 10, 3, 0, 0, 0}});
    map({2, 64, 3}, 3, {operand(MapElement::f32, {192, 1, 64})}, operand(e, {192, 3, 1}),
        {{MapOp::copy, 1, 0, 0, 0, 0, 0}});
    map({33, 40}, 2, {operand(e, {1, 33})}, operand(e, {40, 1}), {{MapOp::relu, 1, 0, 0, 0, 0, 0}});
    map({33, 40}, 2, {operand(e, {1, 33})}, operand(e, {40, 1}), {});
    add_normalized(all, e);
    map({5, 24}, 2, {operand(e, {48, 1})}, operand(e, {24, 1}), {});
    if (e != MapElement::f16) continue;  // the rest is alike
    for (const RowsOp op :
         {RowsOp::mean, RowsOp::max, RowsOp::min, RowsOp::sum_of_squares, RowsOp::sum_of_sizes,
          RowsOp::product, RowsOp::softmax, RowsOp::log_softmax, RowsOp::standardize}) {
      all.push_back(RowsCall{op, {4, 1000, 1}, 1e-5f, e, e});
      all.push_back(RowsCall{op, {4, 49, 64}, 1e-5f, e, e});
    }
    for (const std::int64_t length : {1 << 18, 1 << 20})  // by a cluster, and in parts
      all.push_back(RowsCall{RowsOp::standardize, {8, length, 1}, 1e-5f, e, e});
    for (const RowsOp op : {RowsOp::mean, RowsOp::max})
      all.push_back(RowsCall{op, {8, 12544, 64}, 1e-5f, e, e});
    map({8, 500, 3}, 3, {operand(e, {1500, 1, 500})}, operand(e, {1500, 3, 1}), {});
    map({8, 3, 500}, 3, {operand(e, {1500, 1, 3})}, operand(e, {1500, 500, 1}), {});
    map({128, 24, 16}, 3, {operand(e, {1, 128, 3072})}, operand(e, {384, 16, 1}), {});
    all.push_back(TapsCall{{2, 3, 16}, 2, 2, {0, 1, 1, 2}, {0.5f, 0.5f, 0.5f, 0.5f}, e, e});
    all.push_back(BestCall{{2, 30, 5}, BestKind::smallest, OfEqual::last, e});
    ProductCall product{5, 8, 7, {0}, {0}};
    product.a_element = product.b_element = product.y_element = e;
    all.push_back(product);
    network::GateCall gate;
    gate.images = 2, gate.pixels = 49, gate.channels = gate.x_pitch = 40, gate.hidden = 10, gate.y_pitch = 80;
    gate.x = gate.squeezed = gate.weight = gate.y = e;
    gate.first = MapInstruction{MapOp::silu, 0, 0, 0, 0, 0, 0}, gate.second.op = MapOp::sigmoid;
    gate.program = {{MapOp::mul, 2, 0, 1, 0, 0, 0}};
    gate.image_register = 1;
    all.push_back(gate);
    gate.first.reset();
    all.push_back(gate);
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      for (const std::int64_t pixels : {64, 16384}) {  // whole groups in a block, and in chunks
        network::MomentsCall moments{2, 320, pixels, 32, 320, layout, e, 1e-5f};
        all.push_back(moments);
      }
    }
    for (const std::int64_t rows : {1, 4}) {
      network::LayerCall layer{rows, 2048, 1000, e, e, MapElement::f32, {}};
      layer.activation.op = MapOp::silu;
      all.push_back(layer);
    }
  }
  // Attention by every tile: heads of a part of a pixel's channels, few and many queries; types in turn.
  MapElement type = MapElement::f16;
  for (const auto& [depth, queries] : {std::pair{40, 1024},
                                       {64, 4096},
                                       {80, 1024},
                                       {80, 4096},
                                       {160, 256},
                                       {160, 4096},
                                       {256, 256},
                                       {512, 1024},
                                       {512, 16384}}) {
    network::AttentionCall call;
    call.heads = depth > 256 ? 1 : 8, call.queries = call.keys = queries, call.depth = depth;
    call.q = call.k = call.v = call.y = {call.queries * call.heads * depth, depth, call.heads * depth};
    call.element = type;
    all.push_back(call);
    type = type == MapElement::f16 ? MapElement::bf16 : MapElement::f16;
  }
  for (const std::size_t bytes : {1, 2, 4, 8})
    all.push_back(PickCall{2, {}, {3, {2, -1, 0}}, 5, bytes, 7, true});
  all.push_back(PickCall{2, {}, {3, {2, -1, 0}}, 16, 2, 0, true});
  for (const std::size_t bytes : {2, 4}) {
    for (const std::vector<std::int32_t>& columns : {std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, -1, 3},
                                                     {0, 0, 1, 1, 2, 2, 3, 3},
                                                     {-1, 0, 1, 2, 3, -1, -1, -1}})
      all.push_back(PickCall{5, {2, {1, -1}}, {4, columns}, 1, bytes, 7, true});
  }
  map({3, 5}, 2, {operand(MapElement::i64, {5, 1})}, operand(MapElement::i32, {1, 3}),
      {{MapOp::truncate, 1, 0, 0, 0, 0, 0}});
  return all;
}

constexpr const char* kArchitecture = "sm_90a";
const std::set<std::string> kEntries = {"attention", "best", "copy",    "few_channels", "gate",
                                        "layer",     "map",  "moments", "pick",         "product",
                                        "rows",      "taps", "turn",    "turn_dense",   "whole_rows"};

std::vector<Step> steps_of(const network::Work& work, const DeviceInfo& device) {
  DeviceConstants constants;
  DeviceSlots slots{{Place::x, Place::w, Place::bias}, Place::y, Place::workspace};
  if (const auto* call = std::get_if<MapCall>(&work)) slots.reads.resize(call->inputs.size(), Place::x);
  if (const auto* call = std::get_if<network::NormalizeCall>(&work))
    slots.reads.resize(call->map.inputs.size(), Place::x);
  if (const auto* call = std::get_if<network::GateCall>(&work))
    slots.reads.resize(call->first ? 6 : 4, Place::x);
  return network::device_steps(work, slots, constants, device);
}

// A launch has room for so many arguments (BoundLaunch::Arguments), and says so where it is bound: before
// that no other test without a GPU comes.
TEST(NetworkNvrtc, EveryKernelsArgumentsFit) {
  const auto device = std::make_shared<FakeDevice>("arguments", kArchitecture);
  Builder builder(device);
  std::array<std::byte, 64> somewhere;
  Memory memory;
  for (std::byte*& begin : memory.begin) begin = somewhere.data();
  std::set<std::string> entries;
  for (const network::Work& work : works()) {
    for (const Step& step : steps_of(work, device->info())) {
      const auto& launch = std::get<Launch>(step.work);
      BoundLaunch(launch, builder.session()).run(*device, memory, {});
      EXPECT_EQ(device->last.arguments, launch.arguments.size());
      entries.insert(launch.source.entry);
    }
  }
  EXPECT_EQ(entries, kEntries);
}

TEST(NetworkNvrtc, EveryKernelCompilesWithoutSpills) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const FakeDevice device("compiler", kArchitecture);
  std::set<std::string> entries;
  int compiled = 0;
  std::set<std::string> done;
  for (const network::Work& work : works()) {
    for (const Step& step : steps_of(work, device.info())) {
      const KernelSource source = std::get<Launch>(step.work).source.whole();
      if (!done.insert(source.text).second) continue;
      const Binary binary = Nvrtc::get()->compile(source, kArchitecture);
      EXPECT_NE(binary.log.find(" 0 bytes spill stores"), std::string::npos)
          << source.name << ": " << binary.log;
      entries.insert(source.entry);
      ++compiled;
    }
  }
  std::cout << compiled << " kernels compiled\n";
  EXPECT_EQ(entries, kEntries);
}

// What no GPU has run is told, and what has been is not; OpenCL's drivers for the CPU run all of it in tests.
TEST(NetworkNvrtc, WhatIsNotProvenIsTold) {
  const DeviceInfo opencl = FakeDevice().info();
  DeviceInfo on_cpu = opencl, nvidia = opencl;
  nvidia.description = "NVIDIA H200";
  on_cpu.features.push_back("runs_on_cpu");
  const RowsCall softmax{RowsOp::softmax, {4, 49, 64}, 0, MapElement::f16, MapElement::f16};
  EXPECT_EQ(network::unproven(softmax, nvidia), "");
  EXPECT_NE(network::unproven(softmax, opencl), "");
  EXPECT_EQ(network::unproven(softmax, on_cpu), "");
  nvidia.dialect = "opencl";
  EXPECT_EQ(network::unproven(softmax, nvidia), "");
  EXPECT_NE(network::unproven(network::MomentsCall{}, nvidia), "");
  nvidia.dialect = "cuda";
  EXPECT_EQ(network::unproven(network::MomentsCall{}, nvidia), "");
  EXPECT_NE(network::unproven(network::MomentsCall{}, opencl), "");
  EXPECT_EQ(network::unproven(network::MomentsCall{}, on_cpu), "");
}

}  // namespace
}  // namespace faltung
