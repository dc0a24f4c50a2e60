// Problems of dice, every field varied: what a kernel is asked that nobody thought of.
#ifndef FALTUNG_TESTS_RANDOM_PROBLEMS_HPP_
#define FALTUNG_TESTS_RANDOM_PROBLEMS_HPP_

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <random>

#include "src/problem/problem.hpp"

namespace faltung {

class Dice {
 public:
  using i64 = std::int64_t;
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  // In [first, last].
  i64 between(i64 first, i64 last) {
    return first + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  i64 one_of(std::initializer_list<i64> values) {
    return *(values.begin() + between(0, static_cast<std::int64_t>(values.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

inline void roll_pool(Dice& dice, const Problem& p, Pool& pool) {
  pool.kind = dice.chance(50) ? PoolKind::max : PoolKind::average;
  pool.size_w = dice.between(1, 4);
  pool.stride_w = dice.chance(60) ? pool.size_w : dice.between(1, 3);
  if (p.dimensions > 1) {
    pool.size_h = dice.chance(60) ? pool.size_w : dice.between(1, 4);
    pool.stride_h = dice.chance(60) ? pool.size_h : dice.between(1, 3);
  }
  if (dice.chance(60)) return;
  pool.pad_top = dice.between(0, pool.size_h - 1);
  pool.pad_bottom = dice.between(0, pool.size_h - 1);
  pool.pad_left = dice.between(0, pool.size_w - 1);
  pool.pad_right = dice.between(0, pool.size_w - 1);
}

inline void roll_epilogue(Dice& dice, const Problem& p, Epilogue& e) {
  e.bias = dice.chance(50);
  if (e.bias && p.dtype != DType::f32 && dice.chance(30)) e.bias_element = BiasElement::f32;
  e.residual = dice.chance(25);
  if (dice.chance(60))
    e.activation =
        static_cast<Activation>(dice.between(1, static_cast<std::int64_t>(std::size(kActivations)) - 1));
  if (takes_slope(e.activation)) e.slope = static_cast<float>(dice.one_of({-3, 1, 2, 8})) / 16;
  if (e.activation == Activation::clip) {
    e.clip.least = static_cast<float>(dice.between(-32, 8)) / 8;
    e.clip.most = e.clip.least + static_cast<float>(dice.between(0, 64)) / 8;
  }
  if (e.residual && e.activation != Activation::none && dice.chance(50))
    e.residual_order = ResidualOrder::after_activation;
  if (p.dimensions < 3 && dice.chance(25)) roll_pool(dice, p, e.pool);
}

inline void roll_slices(Dice& dice, Problem& p) {
  if (!is_plain(p) || dice.chance(75)) return;
  if (dice.chance(60)) p.x_pitch = p.c + dice.one_of({1, 8, 16, 40});
  if (dice.chance(60) && p.epilogue.pool.kind == PoolKind::none) p.y_pitch = p.k + dice.one_of({1, 8, 24});
}

inline void roll_affine(Dice& dice, Problem& p) {
  if (p.direction == Direction::backward_data || dice.chance(85)) return;
  p.affine = dice.chance(60) ? Affine::affine_relu : Affine::affine;
}

inline void roll_channels(Dice& dice, Problem& p) {
  if (dice.chance(30)) {  // depthwise
    p.c = p.groups = dice.one_of({1, 2, 3, 7, 8, 16, 17, 24, 32, 35, 64});
    p.k = p.c * (dice.chance(70) ? 1 : dice.between(2, 3));
    return;
  }
  p.groups = dice.chance(65) ? 1 : dice.between(2, 4);
  p.c = p.groups * dice.one_of({1, 2, 3, 4, 5, 8, 13, 16, 17, 24, 32, 33, 48, 64, 70});
  p.k = p.groups * dice.one_of({1, 2, 3, 6, 8, 10, 16, 19, 24, 32, 33, 48, 64, 96, 100});
}

inline void roll_filter(Dice& dice, Problem& p) {
  p.r = dice.chance(50) ? 3 : dice.chance(40) ? 1 : dice.between(1, dice.chance(80) ? 7 : 16);
  p.s = dice.chance(80) ? p.r : dice.between(1, 7);
  p.stride_h = dice.chance(60) ? 1 : dice.between(1, 4);
  p.stride_w = dice.chance(85) ? p.stride_h : dice.between(1, 4);
  p.dilation_h = dice.chance(80) ? 1 : dice.between(1, 3);
  p.dilation_w = dice.chance(85) ? p.dilation_h : dice.between(1, 3);
  if (dice.chance(20)) return;  // no padding
  if (dice.chance(60)) {        // half the filter, the output as large as the input
    p.pad_top = p.pad_bottom = p.dilation_h * (p.r - 1) / 2;
    p.pad_left = p.pad_right = p.dilation_w * (p.s - 1) / 2;
    return;
  }
  p.pad_top = dice.between(0, p.r);
  p.pad_bottom = dice.between(0, p.r);
  p.pad_left = dice.between(0, p.s);
  p.pad_right = dice.between(0, p.s);
}

// Of two dimensions one or three, and of a convolution a transposed one.
inline void roll_dimensions(Dice& dice, Problem& p) {
  if (dice.chance(20)) {
    p.dimensions = 1;
    p.h = p.r = p.stride_h = p.dilation_h = 1;
    p.pad_top = p.pad_bottom = 0;
    if (dice.chance(30)) p.w = dice.between(100, 1000);
  } else if (dice.chance(30)) {
    p.dimensions = 3;
    p.d = dice.between(1, 9), p.h = dice.between(1, 9), p.w = dice.between(1, 12);
    p.t = dice.chance(50) ? 3 : dice.between(1, 4);
    if (dice.chance(20)) p.r = p.s = p.stride_h = p.stride_w = 1, p.pad_top = p.pad_bottom = 0;
    if (p.r == 1 && p.s == 1 && dice.chance(70)) p.pad_left = p.pad_right = 0;
    p.stride_d = dice.chance(60) ? 1 : dice.between(1, 3);
    p.dilation_d = dice.chance(80) ? 1 : dice.between(1, 3);
    p.pad_front = dice.between(0, p.t);
    p.pad_back = dice.chance(60) ? p.pad_front : dice.between(0, p.t);
  }
  if (!dice.chance(25)) return;
  p.kind = ConvolutionKind::transposed;
  if (dice.chance(50)) return;
  p.output_pad_w = dice.between(0, p.stride_w - 1);
  if (p.dimensions > 1) p.output_pad_h = dice.between(0, p.stride_h - 1);
  if (p.dimensions > 2) p.output_pad_d = dice.between(0, p.stride_d - 1);
}

// A valid problem whose reference takes milliseconds.
inline Problem roll(std::uint64_t seed) {
  constexpr double kMaxProducts = 3e6;
  for (Dice dice(seed);;) {
    Problem p;
    p.direction = dice.chance(50) ? Direction::forward : static_cast<Direction>(dice.between(1, 2));
    p.dtype = static_cast<DType>(dice.between(0, 2));
    p.layout = static_cast<Layout>(dice.between(0, 1));
    p.math = dice.chance(70) ? default_math(p.dtype) : Math::fast;
    p.n = dice.chance(70) ? dice.between(1, 2) : dice.between(1, 5);
    p.h = dice.between(1, dice.chance(80) ? 20 : 45);
    p.w = dice.between(1, dice.chance(80) ? 24 : 70);
    roll_channels(dice, p);
    roll_filter(dice, p);
    roll_dimensions(dice, p);
    if (p.direction == Direction::forward) roll_epilogue(dice, p, p.epilogue), roll_slices(dice, p);
    try {
      validate(p);
    } catch (const Error&) {
      continue;
    }
    if (flops(p) / 2 > kMaxProducts) continue;
    roll_affine(dice, p);
    return p;
  }
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_RANDOM_PROBLEMS_HPP_
