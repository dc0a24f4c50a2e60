// How much of what there is to test one run tests, and by what seed it is drawn. Every test that could run
// for an hour asks here, and nowhere else.
//
// FALTUNG_TEST_SEED draws another sample; FALTUNG_TEST_SAMPLE=0.2 a fifth of it, 10 ten times as much;
// FALTUNG_TEST_FULL=1 takes all that there is: `./dev test-full` does where that is hours, and draws by a
// seed of the day where it is days. The seed is 1 unless given, so that a test that fails fails because of
// the change at hand; whoever wants to meet more gives a seed of the day.
#ifndef FALTUNG_TESTS_SAMPLING_HPP_
#define FALTUNG_TESTS_SAMPLING_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace faltung::sampling {

// The budget: each count in the tests is multiplied by it. At 1 all tests together take two slow cores some
// twenty minutes.
inline constexpr double kShare = 1;

inline bool full() {
  const char* const given = std::getenv("FALTUNG_TEST_FULL");
  return given != nullptr && *given != '\0';
}

inline double share() {
  const char* const given = std::getenv("FALTUNG_TEST_SAMPLE");
  return given == nullptr ? kShare : std::strtod(given, nullptr);
}

inline std::uint64_t seed() {
  const char* const given = std::getenv("FALTUNG_TEST_SEED");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

// What a test prints that has drawn: `taken` of `all`.
inline void say(std::size_t taken, std::size_t all) {
  if (taken < all) {
    std::printf("%zu of %zu drawn by FALTUNG_TEST_SEED=%llu; FALTUNG_TEST_FULL=1 runs all\n", taken, all,
                static_cast<unsigned long long>(seed()));
  }
}

// The variables that repeat this test's sample, to stand before a command.
inline std::string variables() {
  if (full()) return "FALTUNG_TEST_FULL=1 ";
  std::string text = "FALTUNG_TEST_SEED=" + std::to_string(seed()) + " ";
  if (const char* const given = std::getenv("FALTUNG_TEST_SAMPLE"))
    text += "FALTUNG_TEST_SAMPLE=" + std::string(given) + " ";
  return text;
}

// Said with every failure of what was drawn: the command that repeats it.
#define FALTUNG_TRACE_SAMPLE()                                                                          \
  const testing::UnitTest& sampled_unit = *testing::UnitTest::GetInstance();                            \
  SCOPED_TRACE("again: " + faltung::sampling::variables() +                                             \
               "<this program> --gtest_filter=" + sampled_unit.current_test_info()->test_suite_name() + \
               "." + sampled_unit.current_test_info()->name())

// How many of a random test's usual number to run, at least one.
inline int count(int usual) { return std::max(1, static_cast<int>(std::lround(usual * share()))); }

// A fair choice, the same for the same seed and label everywhere: std::shuffle differs from library to
// library.
inline std::vector<std::size_t> shuffled(std::size_t size, const std::string& label) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ seed();  // FNV-1a
  for (const char c : label) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::mt19937_64 random(hash);
  std::vector<std::size_t> order(size);
  for (std::size_t i = 0; i < size; ++i) order[i] = i;
  for (std::size_t i = size; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// Of each kind `each` times the share, at least one if that is 1 or more; below, one of a part of the kinds.
// Everything where all is to be tested. In the order given. label: keeps apart what two tests draw of the
// same.
template <class T, class KindOf>
std::vector<T> draw(const std::vector<T>& all, double each, const std::string& label, const KindOf& kind_of) {
  if (full()) return all;
  std::map<std::string, std::vector<std::size_t>> of_kind;
  for (std::size_t i = 0; i < all.size(); ++i) of_kind[kind_of(all[i])].push_back(i);
  const double wanted = each * share();
  std::vector<std::string> kinds;
  for (const auto& [kind, items] : of_kind) kinds.push_back(kind);
  std::vector<std::size_t> order = shuffled(kinds.size(), label);
  if (wanted < 1)
    order.resize(std::min(kinds.size(),
                          static_cast<std::size_t>(std::ceil(wanted * static_cast<double>(kinds.size())))));
  std::vector<std::size_t> taken;
  for (const std::size_t k : order) {
    const std::vector<std::size_t>& items = of_kind[kinds[k]];
    const std::vector<std::size_t> shuffle = shuffled(items.size(), label + kinds[k]);
    const auto count = static_cast<std::size_t>(std::max(1L, std::lround(wanted)));
    for (std::size_t i = 0; i < std::min(count, items.size()); ++i) taken.push_back(items[shuffle[i]]);
  }
  std::sort(taken.begin(), taken.end());
  std::vector<T> chosen;
  for (const std::size_t i : taken) chosen.push_back(all[i]);
  say(chosen.size(), all.size());
  return chosen;
}

}  // namespace faltung::sampling

#endif  // FALTUNG_TESTS_SAMPLING_HPP_
