// Packed weights belong to a kernel and a filter: a plan for another batch and image takes them where the
// recipes' packing is the same, and refuses them where it is not.
#ifndef FALTUNG_TESTS_PACKED_HPP_
#define FALTUNG_TESTS_PACKED_HPP_

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "src/finder/trial.hpp"
#include "tests/builder.hpp"

namespace faltung {

enum class Served { none, by_its_own_alone, by_another };

// With other batches and images of the candidate's problem.
inline Served expect_packed_weights_serve(Builder& builder, const Problem& problem,
                                          const Candidate& candidate) {
  const std::shared_ptr<const PlanImpl> packer = builder.plan(problem, candidate);
  if (packer->recipe().packed_bytes == 0) return Served::none;
  Served served = Served::by_its_own_alone;
  for (const auto& [n, h, w] :
       {std::array{problem.n + 2, problem.h, problem.w}, {problem.n, problem.h + 5, problem.w + 3}}) {
    Problem other = problem;
    other.n = n, other.h = h, other.w = w;
    std::shared_ptr<const PlanImpl> plan;
    try {
      plan = builder.plan(other, candidate.algorithm->candidate(other, candidate.maker, builder.target()));
    } catch (const Error&) {
      continue;  // this config is not for that image
    }
    Device& device = plan->device();
    const Oracle oracle(other, Data::random, 1);
    Arena arena(device, oracle, 0, 2);
    const auto run = [&](const PackedWeights* weights) {
      std::vector<std::byte> result(static_cast<std::size_t>(oracle.result_bytes()), std::byte{0xff});
      const Buffer where{nullptr, result_pointer(other, arena.first()), result.size()};
      device.copy_in(where, result.data(), result.size());
      RunOptions options;
      const Buffer workspace = device.allocate(plan->workspace_bytes(weights != nullptr) + 1);
      options.workspace = workspace.pointer;
      options.weights = weights;
      plan->run(arena.first(), options);
      device.synchronize({});
      device.copy_out(result.data(), where, result.size());
      return result;
    };
    const auto weights = packer->pack_weights(arena.first().w, {});
    device.synchronize({});
    const std::string what = candidate.kernel() + ": packed for " + to_string(problem) + " [" +
                             packer->recipe().packing + "], run for " + to_string(other) + " [" +
                             plan->recipe().packing + "]";
    const bool same = !packer->recipe().packing.empty() && packer->recipe().packing == plan->recipe().packing;
    std::optional<Status> refused;
    std::vector<std::byte> result;
    try {
      result = run(weights.get());
    } catch (const Error& error) {
      refused = error.status();
    }
    if (same) {
      EXPECT_FALSE(refused) << what;
      EXPECT_TRUE(result == run(nullptr)) << what;
      served = Served::by_another;
    } else {
      EXPECT_EQ(refused, Status::bad_problem) << what;
    }
  }
  return served;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_PACKED_HPP_
