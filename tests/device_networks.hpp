// Whole networks on every GPU there is, in tests: planned, and run in watched memory.
#ifndef FALTUNG_TESTS_DEVICE_NETWORKS_HPP_
#define FALTUNG_TESTS_DEVICE_NETWORKS_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "src/network/network.hpp"
#include "tests/network_fixture.hpp"
#include "tests/sampling.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {

enum class Convolutions { chosen, direct };

class DeviceNetworks {
 public:
  explicit DeviceNetworks(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<const NetworkPlanImpl> plan(network::Graph graph, const std::vector<network::Shape>& shapes,
                                              DType dtype, Convolutions convolutions,
                                              bool choose_layouts = true,
                                              const std::set<std::string>& kept = {}) {
    graph = network::run_passes(network::unsized_passes(), std::move(graph),
                                network::passes_off(device_->info().kind));
    graph = network::with_sizes(std::move(graph), shapes);
    graph = network::run_passes(network::sized_passes(), std::move(graph));
    graph = network::with_precision(std::move(graph), dtype, kept);
    return std::make_shared<const NetworkPlanImpl>(
        network::Schedule(std::move(graph),
                          {engine_, request(convolutions), weights_, *engine_.planners(device_->info(), 1),
                           Math::f32, choose_layouts}),
        engine_, device_);
  }

  Request request(Convolutions convolutions) const {
    Request request;
    request.device = device_->info().id;
    request.threads = 1;
    request.trust = TrustPolicy::all;
    // Each convolution would be a kernel of its own, seconds of compiling on a CPU; registry_gpu_test has
    // them all.
    if (convolutions == Convolutions::direct && !sampling::full()) request.only = {"direct_gpu*"};
    return request;
  }
  EngineImpl& engine() { return engine_; }

  // In an arena that is full of NaN before, and whose bytes beyond its end are watched; and once more as the
  // plan itself has it.
  std::vector<network::Array> run(const NetworkPlanImpl& plan, const std::vector<network::Array>& inputs) {
    std::vector<faltung::Buffer> buffers;
    const auto upload = [&](const void* from, std::size_t bytes) {
      buffers.push_back(device_->allocate(std::max<std::size_t>(1, bytes)));
      device_->copy_in(buffers.back(), from, bytes);
      return buffers.back().pointer;
    };
    std::vector<const void*> reads;
    for (const network::Array& input : inputs) {
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
    std::vector<network::Array> arrays;
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
    if (!devices_.empty()) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU";
  }
  const std::vector<std::shared_ptr<Device>> devices_ = tested_gpus();
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_DEVICE_NETWORKS_HPP_
