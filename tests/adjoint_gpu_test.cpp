// The three directions agree exactly on integers (tests/adjoint.hpp), by every algorithm for GPUs, on every
// GPU there is (OpenCL drivers for the CPU count).
//
// A GPU draws some of each direction and form of kernel, a form being a config's name without its numbers, of
// problems in any dimension, layout, dtype and math; a driver for the CPU, which compiles slowly, one problem
// an algorithm, and a config of each direction. A direction that is not drawn, or that the algorithm
// declines, is computed by another's kernel: two kernels of two directions are wrong alike, or agree, or one
// is found. FALTUNG_TEST_FULL=1 takes all, FALTUNG_TEST_PART=<i>/<n> every n-th problem (tests/parts.hpp).
#include <map>
#include <set>

#include "src/finder/trust/verify.hpp"
#include "tests/adjoint.hpp"
#include "tests/algorithms.hpp"
#include "tests/parts.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

// A kernel of one direction of a problem, which is its number in the list.
struct View {
  std::size_t number;
  Problem problem;
  std::string config;
};

class AdjointGpu : public testing::TestWithParam<const Algorithm*> {
 protected:
  void SetUp() override {
    if (devices_.empty()) GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
    if (compiles_slowly(*GetParam(), *devices_.front()) && !sampling::full())
      GTEST_SKIP() << "minutes of compiling, which another driver does in a second";
  }

  // Forward, in every layout and dtype, on a GPU f32 by tf32 as well.
  std::vector<Problem> problems(bool on_cpu) const {
    std::vector<Problem> found;
    for (const std::vector<Problem>& all : {shape_problems(), dimension_problems()}) {
      for (Problem p : all) {
        if (p.direction != Direction::forward || !p.epilogue.empty()) continue;
        found.push_back(p);
        if (p.dtype != DType::f32 || on_cpu) continue;
        p.math = Math::tf32;
        found.push_back(p);
      }
    }
    return found;
  }

  // Every exact kernel of the algorithm's.
  std::vector<View> views(const std::vector<Problem>& problems, const Target& target) const {
    std::vector<View> found;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      Problem p = problems[i];
      for (const Direction direction : kDirections) {
        p.direction = direction, p.math = problems[i].math;
        if (!GetParam()->supports(p, target).yes) p.math = Math::fast;
        if (!GetParam()->supports(p, target).yes) continue;
        for (const Candidate& c : GetParam()->candidates(p, target)) {
          if (c.accuracy.exact_on_integers) found.push_back({i, p, c.config});
        }
      }
    }
    return found;
  }

  static std::string kind_of_view(const View& view) {
    return name(view.problem.direction) + (" " + form_of(view.config));
  }

  std::vector<View> draw(const std::vector<View>& all, bool on_cpu) const {
    const std::string label = std::string(GetParam()->name()) + " adjoint";
    if (!on_cpu) return sampling::draw(all, 3, label, kind_of_view);
    std::vector<View> of_problems;
    std::set<std::size_t> numbers;
    for (const View& view : all) numbers.insert(view.number);
    for (const std::size_t number : sampling::draw(std::vector<std::size_t>(numbers.begin(), numbers.end()),
                                                   2, label, [](std::size_t) { return std::string(); })) {
      for (const View& view : all) {
        if (view.number == number) of_problems.push_back(view);
      }
    }
    return sampling::draw(of_problems, std::max(1.0, 1 / sampling::share()), label,
                          [](const View& v) { return std::to_string(v.number) + name(v.problem.direction); });
  }

  // By these kernels of one problem, and another algorithm's where they have not every direction.
  void check(const std::shared_ptr<Device>& device, const std::vector<View>& views) {
    const TrilinearForm form(views.front().problem, sampling::seed() + views.front().number);
    std::map<std::string, double> values;  // by kernel and direction
    std::set<Direction> met;
    const auto compute = [&](const Problem& p, const Candidate& candidate) {
      met.insert(p.direction);
      const std::string what = candidate.kernel() + " of " + to_string(p);
      try {
        values[what] = form.by(*make_plan(p, candidate, device, {*device, store_}, nullptr));
      } catch (const Error& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    };
    for (const View& view : views)
      compute(view.problem, GetParam()->candidate(view.problem, view.config, target_of(*device)));
    for (const Direction direction : kDirections) {
      if (met.contains(direction)) continue;
      Problem p = views.front().problem;
      p.direction = direction, p.math = default_math(p.dtype);
      compute(p, find_algorithm("direct_gpu").candidates(p, target_of(*device)).front());
    }
    for (const auto& [what, value] : values)
      EXPECT_EQ(value, values.begin()->second) << "disagree: " << what << " and " << values.begin()->first;
    checked_ += static_cast<int>(views.size());
  }

  std::vector<std::shared_ptr<Device>> devices_ = tested_gpus();
  Store store_;  // the default one: what this compiles serves the next run
  int checked_ = 0;
};

TEST_P(AdjointGpu, ThreeDirectionsAgree) {
  FALTUNG_TRACE_SAMPLE();
  const bool on_cpu = are_all_on_cpu(devices_);
  const std::vector<Problem> all = problems(on_cpu);
  for (const std::shared_ptr<Device>& device : devices_) {
    std::map<std::size_t, std::vector<View>> by_problem;
    for (const View& view : draw(views(all, target_of(*device)), on_cpu))
      by_problem[view.number].push_back(view);
    std::size_t number = 0;
    for (const auto& [problem, views] : by_problem) {
      if (parts::ours(number++)) check(device, views);
    }
  }
  std::printf("%d kernels verified\n", checked_);
}

INSTANTIATE_TEST_SUITE_P(All, AdjointGpu, testing::ValuesIn(algorithms("gpu")), algorithm_name);

}  // namespace
}  // namespace faltung
