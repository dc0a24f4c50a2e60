#include "src/finder/sums.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

struct ExpectedSum {
  double value = 0, magnitude = 0;
  bool are_integers = true;
  void add(double term) {
    value += term, magnitude += std::abs(term);
    are_integers = are_integers && term == std::rint(term);
  }
};

}  // namespace

Finding check_sums(const Problem& p, const void* summed, const float* sums) {
  constexpr double kU = 0x1p-24, kExact = 0x1p24;
  const TensorShape shape = summed_shape(p);
  const std::int64_t each = sums_of_channel(p);
  std::vector<ExpectedSum> expected(static_cast<std::size_t>(each * p.k));
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const double value = load_element(p.dtype, summed, i);
    const auto c = static_cast<std::size_t>(i / shape.stride_c % p.k);
    expected[c].add(value);
    if (each > 1) expected[static_cast<std::size_t>(p.k) + c].add(value * value);
  }
  // Every addition rounds, and a square.
  const double growth = static_cast<double>(shape.elements() / p.k + 1);
  Finding finding;
  finding.checked = each * p.k;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ExpectedSum& e = expected[i];
    const double found = sums[i], off = std::abs(found - e.value);
    const bool exact = e.are_integers && e.magnitude <= kExact;
    const double bound = exact ? 0 : growth * kU * e.magnitude + std::numeric_limits<float>::denorm_min();
    double error = off == 0 ? 0 : off / bound;
    if (std::isnan(e.value)) error = std::isnan(found) ? 0 : INFINITY;
    if (std::isinf(e.value)) error = found == e.value ? 0 : INFINITY;
    if (std::isnan(error)) error = INFINITY;
    if (error <= finding.error_over_bound) continue;
    finding.error_over_bound = error;
    const auto channel = static_cast<std::int64_t>(i) % p.k;
    finding.worst = fmt::format("the sum of {} of channel {} is {:.9g}, expected {:.9g}{}",
                                static_cast<std::int64_t>(i) < p.k ? "elements" : "squares", channel, found,
                                e.value, exact ? " exactly" : "");
  }
  return finding;
}

}  // namespace faltung
