// Division of sizes, which are not negative.
#ifndef FALTUNG_SRC_PROBLEM_INTEGERS_HPP_
#define FALTUNG_SRC_PROBLEM_INTEGERS_HPP_

#include <type_traits>

namespace faltung {

// So many pieces of b make up a, the last one perhaps in part.
template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return (static_cast<Common>(a) + static_cast<Common>(b) - 1) / static_cast<Common>(b);
}

// The smallest multiple of b that is not below a.
template <class A, class B>
constexpr std::common_type_t<A, B> round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_INTEGERS_HPP_
