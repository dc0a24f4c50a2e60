// The first of a long list by the cost model: what is far behind needs a price, but no name and no recipe.
#ifndef FALTUNG_SRC_ALGORITHMS_SHORTLIST_HPP_
#define FALTUNG_SRC_ALGORITHMS_SHORTLIST_HPP_

#include <algorithm>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Times the best price: beyond what a choice weighs against each other, and what is asked next where the
// first of them fail.
inline constexpr double kNearest = 1.25;

// Those whose price, which is no more than the made candidate's time, is near the least of all.
template <class Choice, class Price, class Make>
Shortlist nearest_of(const std::vector<Choice>& choices, const Price& price, const Make& make) {
  std::vector<double> prices;
  prices.reserve(choices.size());
  for (const Choice& choice : choices) prices.push_back(price(choice));
  Shortlist found;
  if (choices.empty()) return found;
  found.complete_to_ms = kNearest * *std::min_element(prices.begin(), prices.end());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (prices[i] <= found.complete_to_ms) found.candidates.push_back(make(choices[i]));
  }
  return found;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_SHORTLIST_HPP_
