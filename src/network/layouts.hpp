// In which layout each four-dimensional value lies: the exact minimum of what the nodes cost in either and
// what turning values between them costs.
#ifndef FALTUNG_SRC_NETWORK_LAYOUTS_HPP_
#define FALTUNG_SRC_NETWORK_LAYOUTS_HPP_

#include <cstdint>
#include <vector>

namespace faltung::network {

// Choices of 0 (nchw) or 1 (nhwc), and what they cost together, in nanoseconds. Turning a value costs the
// same either way, and once for all of its readers.
class LayoutChoice {
 public:
  // A choice, and what it costs by itself as 0 and as 1.
  int add(std::int64_t as_nchw, std::int64_t as_nhwc);
  static constexpr int kNchw = -1;  // in the place of a choice: it is settled
  // A value made by `maker` is read by `readers`.
  void add_value(int maker, const std::vector<int>& readers, std::int64_t turning);

  struct Solution {
    std::vector<bool> nhwc;  // by choice
    std::int64_t cost;
  };
  // A minimum cut: all nodes on the source's side are nchw.
  Solution solve() const;
  // What a solution costs, counted anew.
  std::int64_t cost(const std::vector<bool>& nhwc) const;

 private:
  struct Value {
    int maker;
    std::vector<int> readers;
    std::int64_t turning;
  };
  std::vector<std::int64_t> nchw_, nhwc_;
  std::vector<Value> values_;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_LAYOUTS_HPP_
