// A network for given sizes: steps in order, on one arena.
#ifndef FALTUNG_SRC_NETWORK_SCHEDULE_HPP_
#define FALTUNG_SRC_NETWORK_SCHEDULE_HPP_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/network/lowering.hpp"
#include "src/network/memory_plan.hpp"

namespace faltung::network {

class Schedule {
 public:
  // graph: with all its shapes, after the passes. The engine and the weights outlive the schedule's making,
  // and are not needed afterwards.
  Schedule(Graph graph, const Lowering::Settings& settings);

  const Graph& graph() const { return graph_; }
  const std::vector<NetworkStep>& steps() const { return steps_; }
  // Where the arena's largest and smallest possible size are told: memory().bytes and memory().bound.
  const MemoryPlan& memory() const { return memory_; }
  int turned() const { return turned_; }
  // Of each step: which value its result is (or a part of), and in which layout.
  struct Product {
    ValueId value;
    Layout layout;
    std::size_t offset = 0;  // from the step's result to the value, back where it is negative (modulo 2^64)
    std::int64_t pitch = 0;  // of a slice, else 0
  };
  const std::vector<Product>& products() const { return products_; }
  struct Constant {
    Bytes data;
    std::size_t bytes;
  };
  const std::vector<Constant>& constants() const { return constants_; }

  // The CPU's. Allocates nothing. inputs, outputs: one address an input and output of the graph. arena:
  // memory().bytes, aligned to 64 bytes. before: called with each step's index before it runs, and once after
  // the last.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, std::byte* arena,
           FunctionRef<void(std::size_t)> before) const;
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, std::byte* arena) const {
    run(inputs, outputs, arena, [](std::size_t) {});
  }
  // Where a step's result lies during a run.
  std::byte* result(std::size_t step, std::span<void* const> outputs, std::byte* arena) const;

 private:
  void place(Lowering& lowering);

  Graph graph_;
  std::shared_ptr<const Parallel> parallel_;
  std::vector<NetworkStep> steps_;
  std::vector<Product> products_;
  std::vector<Constant> constants_;
  MemoryPlan memory_;
  int turned_ = 0;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_SCHEDULE_HPP_
