// What is no problem.
#include <cmath>
#include <tuple>

#include "src/problem/problem.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

[[noreturn]] void bad(const std::string& message) { throw Error(Status::bad_problem, message); }

void require_positive(const std::string& what, i64 value) {
  if (value < 1) bad(what + " is " + std::to_string(value) + "; it must be at least 1");
}

void require_not_negative(const std::string& what, i64 value) {
  if (value < 0) bad(what + " is " + std::to_string(value) + "; it must be 0 or more");
}

// No size may be so large that index arithmetic on it could overflow; 2^40 elements are 4 TiB of f32.
constexpr i64 kMaxSize = i64{1} << 40;

void require_small(const std::string& what, i64 value) {
  if (value > kMaxSize) bad(what + " is " + std::to_string(value) + "; at most 2^40 is accepted");
}

void require_countable(const char* tensor, const std::vector<i64>& sizes) {
  i64 elements = 1;
  for (const i64 size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > (i64{1} << 56)) {
      bad(std::string(tensor) + " would have more than 2^56 elements");
    }
  }
}

// Each by-product of training has its direction.
void validate_training(const Problem& p) {
  constexpr struct {
    Direction direction;
    Training training;
  } kOf[] = {{Direction::forward, Training::stats},
             {Direction::backward_data, Training::drelu},
             {Direction::backward_weights, Training::dbias}};
  for (const auto& [direction, training] : kOf) {
    if (p.training != training || p.direction == direction) continue;
    const Training own = kOf[static_cast<int>(p.direction)].training;
    bad(std::string(name(training)) + " goes with " + name(direction) + ", not with " + name(p.direction) +
        ", which has " + name(own));
  }
  if (p.training == Training::stats && p.y_pitch != 0)
    bad("stats are of a whole tensor: leave ypitch out, or stats");
}

void validate_affine(const Problem& p) {
  if (has_affine(p) && p.direction == Direction::backward_data) {
    bad(std::string(name(p.affine)) + " goes with fwd and bwd_w, which read x; without it bwd_d gives the " +
        "gradient of what comes of x");
  }
}

void validate_bias(const Problem& p) {
  if (p.epilogue.bias_element == BiasElement::as_tensors) return;
  if (!p.epilogue.bias) bad("a bias's element is given, but no bias");
  if (p.dtype == DType::f32) bad("biasf32 is beside tensors of 16 bits; those of f32 have bias");
}

void validate_pool(const Problem& p) {
  const Pool& pool = p.epilogue.pool;
  if (pool.kind == PoolKind::none) {
    if (pool != Pool{}) bad("pool sizes are given but no pool kind; say maxpool or avgpool");
    return;
  }
  if (p.dimensions == 3) bad("a pool goes with one or two dimensions; pool a volume after the convolution");
  const bool has_height = pool.size_h != 1 || pool.stride_h != 1 || pool.pad_top != 0 || pool.pad_bottom != 0;
  if (p.dimensions == 1 && has_height)
    bad("a pool of one dimension has size 1, stride 1 and no padding in height; set those of its width");
  require_positive("pool size h", pool.size_h);
  require_positive("pool size w", pool.size_w);
  require_positive("pool stride h", pool.stride_h);
  require_positive("pool stride w", pool.stride_w);
  for (const i64 v : {pool.size_h, pool.size_w, pool.stride_h, pool.stride_w}) require_small("pool size", v);
  for (const i64 v : {pool.pad_top, pool.pad_bottom, pool.pad_left, pool.pad_right}) {
    require_not_negative("pool padding", v);
  }
  // Otherwise a window could lie in padding alone and have no maximum.
  if (pool.pad_top >= pool.size_h || pool.pad_bottom >= pool.size_h || pool.pad_left >= pool.size_w ||
      pool.pad_right >= pool.size_w) {
    bad("pool padding must be smaller than the pool's window, on each side");
  }
  if (pool.size_h > p.p() + pool.pad_top + pool.pad_bottom ||
      pool.size_w > p.q() + pool.pad_left + pool.pad_right) {
    bad("the pool's window " + std::to_string(pool.size_h) + "x" + std::to_string(pool.size_w) +
        " is larger than the padded output " + std::to_string(p.p() + pool.pad_top + pool.pad_bottom) + "x" +
        std::to_string(p.q() + pool.pad_left + pool.pad_right));
  }
}

void validate_math(const Problem& p) {
  const bool fits = p.math == Math::fast || p.math == Math::of_dtype || p.math == default_math(p.dtype) ||
                    (p.dtype == DType::f32 && p.math == Math::tf32);
  if (fits) return;
  bad(std::string("math ") + name(p.math) + " does not go with dtype " + name(p.dtype) + "; it can be " +
      (p.dtype == DType::f32 ? "f32, tf32 or fast" : std::string(name(default_math(p.dtype))) + " or fast"));
}

void validate_pitch(const Problem& p) {
  if (!has_pitch(p)) return;
  if (p.direction != Direction::forward || !is_plain(p))
    bad("a channel pitch goes with fwd of plain convolutions of two dimensions; copy the slice");
  if (p.y_pitch != 0 && p.epilogue.pool.kind != PoolKind::none)
    bad("a pooled result is no slice: leave ypitch out, or the pool");
  for (const auto& [what, pitch, channels, letter] :
       {std::tuple{"xpitch", p.x_pitch, p.c, "c"}, std::tuple{"ypitch", p.y_pitch, p.k, "k"}}) {
    if (pitch == 0) continue;
    require_small(what, pitch);
    if (pitch <= channels) {
      bad(std::string(what) + " is " + std::to_string(pitch) + "; a slice of " + letter + " = " +
          std::to_string(channels) + " channels lies in a tensor of more, and without " + what + " in none");
    }
  }
  require_countable("x", {p.n, x_pitch(p), p.h, p.w});
  require_countable("y", {p.n, y_pitch(p), p.p(), p.q()});
}

// What is set of a dimension that the problem has not would be left out of its text.
void require_absent(const Problem& p) {
  const Problem usual;
  const auto absent = [&](int from, std::initializer_list<std::pair<const char*, i64 Problem::*>> members) {
    if (p.dimensions >= from) return;
    for (const auto& [what, member] : members) {
      if (p.*member == usual.*member) continue;
      bad(std::string(what) + " is " + std::to_string(p.*member) + ", but of " +
          std::to_string(p.dimensions) + (p.dimensions == 1 ? " dimension" : " dimensions") +
          " it is no part; it must be " + std::to_string(usual.*member) + ", or dimensions " +
          std::to_string(from));
    }
  };
  absent(3, {{"d", &Problem::d},
             {"t", &Problem::t},
             {"stride_d", &Problem::stride_d},
             {"dilation_d", &Problem::dilation_d},
             {"pad_front", &Problem::pad_front},
             {"pad_back", &Problem::pad_back},
             {"output_pad_d", &Problem::output_pad_d}});
  absent(2, {{"h", &Problem::h},
             {"r", &Problem::r},
             {"stride_h", &Problem::stride_h},
             {"dilation_h", &Problem::dilation_h},
             {"pad_top", &Problem::pad_top},
             {"pad_bottom", &Problem::pad_bottom},
             {"output_pad_h", &Problem::output_pad_h}});
}

std::string joined(const std::vector<i64>& sizes) {
  std::string text;
  for (const i64 size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

void validate_plain(const Problem& p, const std::vector<Dimension>& spatial) {
  std::vector<i64> extents, padded;
  bool fits = true;
  for (const Dimension& d : spatial) {
    extents.push_back(d.dilation * (d.filter - 1) + 1), padded.push_back(d.in + d.before + d.after);
    fits = fits && extents.back() <= padded.back();
  }
  if (!fits) {
    bad("the dilated filter " + joined(extents) + " is larger than the padded input " + joined(padded) +
        "; pad more or use a smaller filter or dilation");
  }
  if (p.output_pad_d != 0 || p.output_pad_h != 0 || p.output_pad_w != 0)
    bad("an output padding goes with a transposed convolution alone; leave it out, or say transposed");
}

void validate_transposed(const std::vector<Dimension>& spatial) {
  for (const Dimension& d : spatial) {
    const std::string of = std::string(" of ") + d.input_letter;
    require_not_negative("output padding" + of, d.output_pad);
    if (d.output_pad >= d.stride) {
      bad("an output padding" + of + " of " + std::to_string(d.output_pad) +
          " is not smaller than the stride " + std::to_string(d.stride));
    }
    i64 walked;
    if (__builtin_mul_overflow(d.in - 1, d.stride, &walked) || walked > kMaxSize)
      bad(std::string("the output of ") + d.input_letter + " is larger than 2^40");
    const i64 extent = d.dilation * (d.filter - 1) + 1,
              out = walked + extent - d.before - d.after + d.output_pad;
    if (out < 1) {
      bad("a transposed convolution" + of + " = " + std::to_string(d.in) + " with filter " +
          std::to_string(d.filter) + ", stride " + std::to_string(d.stride) + " and padding " +
          std::to_string(d.before) + " and " + std::to_string(d.after) + " has an output of " +
          std::to_string(out) + "; pad less");
    }
  }
}

}  // namespace

void validate(const Problem& p) {
  if (p.dimensions < 1 || p.dimensions > 3)
    bad("dimensions is " + std::to_string(p.dimensions) + "; there are 1, 2 or 3 spatial ones");
  require_absent(p);
  const std::vector<Dimension> spatial = spatial_dimensions(p);
  std::vector<std::pair<std::string, i64>> positive = {{"n", p.n}, {"c", p.c}}, padding;
  for (const Dimension& d : spatial) positive.emplace_back(std::string(1, d.input_letter), d.in);
  positive.emplace_back("k", p.k);
  for (const Dimension& d : spatial) positive.emplace_back(std::string(1, d.filter_letter), d.filter);
  for (const Dimension& d : spatial) positive.emplace_back(d.stride_name, d.stride);
  for (const Dimension& d : spatial) positive.emplace_back(d.dilation_name, d.dilation);
  positive.emplace_back("groups", p.groups);
  for (const Dimension& d : spatial) {
    padding.emplace_back(d.before_name, d.before);
    padding.emplace_back(d.after_name, d.after);
  }
  for (const auto& [what, value] : positive) {
    require_positive(what, value);
    require_small(what, value);
  }
  for (const auto& [what, value] : padding) {
    require_not_negative(what, value);
    require_small(what, value);
  }
  for (const auto& [what, count] : {std::pair{"c", p.c}, std::pair{"k", p.k}}) {
    if (count % p.groups != 0) {
      bad(std::string("groups = ") + std::to_string(p.groups) + " does not divide " + what + " = " +
          std::to_string(count));
    }
  }
  for (const Dimension& d : spatial) {
    i64 extent;
    if (__builtin_mul_overflow(d.dilation, d.filter - 1, &extent) || extent > kMaxSize)
      bad("the dilated filter is larger than 2^40");
  }
  if (is_transposed(p)) {
    validate_transposed(spatial);
  } else {
    validate_plain(p, spatial);
  }
  std::vector<i64> x = {p.n, p.c}, w = {p.k, p.c / p.groups}, y = {p.n, p.k};
  for (const Dimension& d : spatial) {
    x.push_back(is_transposed(p) ? d.in : d.in + d.before + d.after);
    w.push_back(d.filter);
  }
  for (const i64 out : spatial_output(p)) y.push_back(out);
  require_countable("x", x);
  require_countable("w", w);
  require_countable("y", y);
  // Each has a description of its own, which kernels are made of.
  constexpr i64 kMostPhases = 1 << 14;
  if (phases(p) > kMostPhases) {
    bad("strides so large make more than " + std::to_string(kMostPhases) +
        " sums of what is written, one for each remainder by them; use smaller ones");
  }
  validate_math(p);
  if (p.direction != Direction::forward && !p.epilogue.empty()) {
    bad(std::string("an epilogue goes with fwd alone, not with ") + name(p.direction));
  }
  validate_training(p);
  validate_affine(p);
  const bool slope_is_used = takes_slope(p.epilogue.activation);
  if (slope_is_used ? !std::isfinite(p.epilogue.slope) : p.epilogue.slope != Epilogue{}.slope) {
    bad(slope_is_used ? std::string(name(p.epilogue.activation)) + "'s slope is not finite"
                      : "a slope is given but the activation has none; leaky_relu and hardsigmoid have");
  }
  const Clip clip = p.epilogue.clip;
  if (p.epilogue.activation != Activation::clip && clip != Clip{})
    bad("bounds are given but the activation has none; clip has");
  if (!std::isfinite(clip.least) || !std::isfinite(clip.most) || clip.least > clip.most)
    bad("clip's bounds are two finite numbers, the smaller one first");
  const bool after = p.epilogue.residual_order == ResidualOrder::after_activation;
  if (after && (!p.epilogue.residual || p.epilogue.activation == Activation::none))
    bad("a residual is after an activation where both are there; leave its order as it is");
  validate_pitch(p);
  validate_bias(p);
  validate_pool(p);
}

}  // namespace faltung
