// The copies around rewritten problems on which the steps are tested.
#ifndef FALTUNG_TESTS_REWRITE_COPIES_HPP_
#define FALTUNG_TESTS_REWRITE_COPIES_HPP_

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "src/algorithms/rewrite_steps.hpp"
#include "src/problem/parse.hpp"

namespace faltung {

inline std::vector<std::byte> random_bytes(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> all(bytes);
  for (std::byte& b : all) b = static_cast<std::byte>(random() % 256);
  return all;
}

inline std::size_t bytes_of_shape(const TensorCopy& copy, const TensorShape& shape) {
  return copy.inner_bytes() / static_cast<std::size_t>(copy.inner.elements()) *
         static_cast<std::size_t>(shape.elements());
}
inline std::size_t target_bytes(const TensorCopy& copy) { return bytes_of_shape(copy, copy.target()); }
inline std::size_t source_bytes(const TensorCopy& copy) {
  return bytes_of_shape(copy, copy.way == CopyWay::gather ? copy.outer : copy.inner);
}

// Of every rewrite of these problems, in both layouts and sizes of elements: each operand gathered, the
// result scattered; also with channels padded, with groups merged, and turned on the way to the other
// layout.
template <class Visit>
void each_copy(const Visit& visit) {
  const char* const problems[] = {
      "fwd:n2c3h17w19k5r5s5:st2:pad2",      "fwd:n1c4h9w13k6r3s3:st1x3:pad0x1:dil2x1:g2",
      "fwd:n2c5h7w9k7r1s1:st2:pad1",        "fwd:n3c5h4w6k7r1s1",
      "bwd_d:n2c6h9w11k4r3s3:st2:pad1:g2",  "fwd:n1c8h5w6k12r3s2:g4",
      "bwd_d:n1c5h7w6k4r3s3:st1:pad3:dil1", "bwd_d:n1c3h11w7k4r2s3:st3x1:pad4.0.1.2",
      "bwd_w:n2c3h17w19k5r5s5:st2:pad2",
  };
  for (const char* const text : problems) {
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Problem p = parse_problem(text);
        p.layout = layout, p.dtype = dtype, p.math = default_math(dtype);
        std::vector<Rewrite> all = {unchanged(p)};
        for (const RewriteRule* rule : rewrites::kAll) {
          if (rule->applies(p)) all.push_back((*rule)(p));
        }
        if (p.groups == 1) all.push_back(pad_channels(all.back(), 8));
        if (p.groups > 1) all.push_back(merge_groups(all.back(), 2));
        if (p.direction == Direction::backward_data) {
          for (const Rewrite& phase : data_phases(p)) all.push_back(phase);
          if (p.groups > 1) all.push_back(merge_groups(all.back(), p.groups));
        }
        for (const Rewrite& r : all) {
          SCOPED_TRACE(to_string(r.inner) + " in " + to_string(p));
          for (const Operand operand : {Operand::x, Operand::w, Operand::y}) {
            if (operand == result_operand(r.inner.direction)) {
              visit(scatter_of(p, r));
              continue;
            }
            TensorCopy copy = gather_of(p, r, operand);
            visit(copy);
            const Layout other = r.inner.layout == Layout::nchw ? Layout::nhwc : Layout::nchw;
            const TensorShape& s = copy.inner;
            copy.inner = make_shape(other, s.n, s.c, s.h, s.w);
            visit(copy);
          }
        }
      }
    }
  }
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_REWRITE_COPIES_HPP_
