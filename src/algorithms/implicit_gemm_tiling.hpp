// How the implicit GEMMs divide their work.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_

#include <algorithm>
#include <cstdint>

namespace faltung {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// [0, total) in parts as even as they can be: the sizes differ by at most 1.
class EvenSplit {
 public:
  EvenSplit() = default;
  // Parts of at most `most`.
  EvenSplit(std::int64_t total, std::int64_t most) : total_(total), parts_(ceil_div(total, most)) {}
  static EvenSplit in_parts(std::int64_t total, std::int64_t parts) {
    EvenSplit split;
    split.total_ = total;
    split.parts_ = std::clamp<std::int64_t>(parts, 1, total);
    return split;
  }
  std::int64_t parts() const { return parts_; }
  std::int64_t begin(std::int64_t part) const {
    return part * (total_ / parts_) + std::min(part, total_ % parts_);
  }
  std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  std::int64_t largest() const { return ceil_div(total_, parts_); }

 private:
  std::int64_t total_ = 1, parts_ = 1;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TILING_HPP_
