// What verification sees of memory that is larger than the pieces it is read in.
#include "src/finder/trust/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "src/problem/parse.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

// x of 5 MB.
constexpr const char* kFiveMegabytes = "fwd:n1c8h400w400k1r1s1";

// A right kernel's report, and what it did besides: at an element of x or of y.
Report verify_with(Place place, std::int64_t element) {
  const Problem p = parse_problem(kFiveMegabytes);
  Builder builder(find_device("cpu"), std::make_shared<const Parallel>(1));
  Candidate candidate = find_algorithm("direct_cpu").candidates(p, builder.target()).front();
  candidate.recipe = [honest = candidate.recipe, place, element] {
    Recipe recipe = honest();
    recipe.steps.push_back(
        call("harm", {Place::x}, {Place::y}, [place, element](const Memory& m, const Parallel&) {
          reinterpret_cast<float*>(m[place])[element] = 3;  // no input is
        }));
    return recipe;
  };
  const Parallel parallel(1);
  const Oracle oracle(p, Data::small_integers, 1, 1e4);
  return verify(*builder.plan(p, candidate), candidate.accuracy, oracle, parallel);
}

TEST(Verify, SeesAnInputThatIsChangedAnywhere) {
  const std::int64_t elements = x_shape(parse_problem(kFiveMegabytes)).elements();
  for (const std::int64_t element :
       {std::int64_t{0}, (std::int64_t{1} << 20) - 1, std::int64_t{1} << 20, elements - 1}) {
    const Report report = verify_with(Place::x, element);
    EXPECT_EQ(report.outcome, Outcome::out_of_bounds) << element;
    EXPECT_EQ(report.why, "changed its input x") << element;
  }
}

TEST(Verify, SeesWhatIsWrittenBesideABuffer) {
  const std::int64_t x = x_shape(parse_problem(kFiveMegabytes)).elements(),
                     y = y_shape(parse_problem(kFiveMegabytes)).elements();
  EXPECT_EQ(verify_with(Place::x, x).why, "wrote 1 bytes past x");
  EXPECT_EQ(verify_with(Place::x, -1).why, "wrote 1 bytes before x");
  EXPECT_EQ(verify_with(Place::y, y).why, "wrote 1 bytes past y");
  EXPECT_EQ(verify_with(Place::y, -1).why, "wrote 1 bytes before y");
}

}  // namespace
}  // namespace faltung
