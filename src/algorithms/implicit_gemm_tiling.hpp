// How the implicit GEMMs divide their work.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_

#include <algorithm>
#include <cstdint>

#include "src/problem/integers.hpp"

namespace faltung {

// [0, total) in parts as even as they can be: the first ones are larger by 1.
class EvenSplit {
 public:
  EvenSplit() = default;
  // Parts of at most `most`.
  EvenSplit(std::int64_t total, std::int64_t most) : EvenSplit(Parts{ceil_div(total, most)}, total) {}
  static EvenSplit in_parts(std::int64_t total, std::int64_t parts) {
    return {Parts{std::clamp<std::int64_t>(parts, 1, total)}, total};
  }
  std::int64_t total() const { return begin(parts_); }
  std::int64_t parts() const { return parts_; }
  std::int64_t begin(std::int64_t part) const { return part * size_ + std::min(part, larger_); }
  std::int64_t size(std::int64_t part) const { return size_ + (part < larger_ ? 1 : 0); }
  std::int64_t largest() const { return size(0); }
  // visit(size, count) for the sizes that parts have: two at most, however many parts there are.
  template <class Visit>
  void each_size(const Visit& visit) const {
    if (larger_ > 0) visit(size_ + 1, larger_);
    if (parts_ > larger_) visit(size_, parts_ - larger_);
  }

 private:
  struct Parts {
    std::int64_t count;
  };
  EvenSplit(Parts parts, std::int64_t total)
      : parts_(parts.count), size_(total / parts.count), larger_(total % parts.count) {}
  std::int64_t parts_ = 1, size_ = 1, larger_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_
