// Networks scheduled and run in tests.
#ifndef FALTUNG_TESTS_NETWORK_FIXTURE_HPP_
#define FALTUNG_TESTS_NETWORK_FIXTURE_HPP_

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/network/passes.hpp"
#include "src/network/schedule.hpp"
#include "tests/scratch.hpp"

namespace faltung {

class NetworkRunner {
 public:
  struct Ways {
    std::set<std::string> off;  // passes
    bool choose_layouts = true, fuse_chains = true, use_slices = true, use_strips = true,
         scale_filters = true;
  };

  network::Schedule schedule(network::Graph graph, const std::vector<network::Shape>& shapes,
                             const Ways& ways) {
    graph = network::run_passes(network::unsized_passes(), std::move(graph), ways.off);
    graph = network::with_sizes(std::move(graph), shapes);
    graph = network::run_passes(network::sized_passes(), std::move(graph), ways.off);
    Request request;
    request.threads = 2;
    return {std::move(graph),
            {.engine = engine_,
             .request = request,
             .weights = weights_,
             .planners = *engine_.workers(request.threads),
             .choose_layouts = ways.choose_layouts,
             .fuse_chains = ways.fuse_chains,
             .use_slices = ways.use_slices,
             .use_strips = ways.use_strips,
             .scale_filters = ways.scale_filters}};
  }

  // With an arena that is full of NaN before, and whose bytes beyond its end are watched.
  static std::vector<network::Array> run(const network::Schedule& schedule,
                                         const std::vector<network::Array>& inputs) {
    std::vector<network::Bytes> in;
    std::vector<const void*> reads;
    for (const network::Array& input : inputs) {
      in.push_back(network::aligned_copy(network::encode(input)));
      reads.push_back(in.back().get());
    }
    const network::Graph& graph = schedule.graph();
    std::vector<std::vector<std::byte>> out;
    for (const network::ValueId id : graph.outputs) {
      const network::Value& value = graph.at(id);
      out.emplace_back(
          static_cast<std::size_t>(network::elements(*value.shape)) * network::size_of(value.type),
          std::byte{0xff});
    }
    std::vector<void*> writes;
    for (std::vector<std::byte>& bytes : out) writes.push_back(bytes.data());
    constexpr std::size_t kGuard = 4096;
    const std::size_t bytes = schedule.memory().bytes;
    const std::unique_ptr<std::byte[], void (*)(std::byte*)> arena(
        static_cast<std::byte*>(::operator new[](bytes + kGuard, std::align_val_t{64})),
        [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); });
    std::memset(arena.get(), 0xff, bytes + kGuard);
    schedule.run(reads, writes, arena.get());
    for (std::size_t i = bytes; i < bytes + kGuard; ++i) {
      if (arena[i] != std::byte{0xff}) throw Error(Status::internal, "a step wrote beyond the arena");
    }
    std::vector<network::Array> results;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const network::Value& value = graph.at(graph.outputs[i]);
      results.push_back(network::decode({value.type, *value.shape, nullptr, out[i].data()}));
    }
    return results;
  }

  EngineImpl& engine() { return engine_; }

 private:
  const Scratch scratch_;
  EngineImpl engine_{scratch_.path()};
  network::Weights weights_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_NETWORK_FIXTURE_HPP_
