#include "src/problem/problem.hpp"

#include <cmath>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

[[noreturn]] void bad(const std::string& message) { throw Error(Status::bad_problem, message); }

void require_positive(const char* what, i64 value) {
  if (value < 1) bad(std::string(what) + " is " + std::to_string(value) + "; it must be at least 1");
}

void require_not_negative(const char* what, i64 value) {
  if (value < 0) bad(std::string(what) + " is " + std::to_string(value) + "; it must be 0 or more");
}

// No size may be so large that index arithmetic on it could overflow; 2^40 elements are 4 TiB of f32.
constexpr i64 kMaxSize = i64{1} << 40;

void require_small(const char* what, i64 value) {
  if (value > kMaxSize)
    bad(std::string(what) + " is " + std::to_string(value) + "; at most 2^40 is accepted");
}

void require_countable(const char* tensor, std::array<i64, 4> sizes) {
  i64 elements = 1;
  for (const i64 size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > (i64{1} << 56)) {
      bad(std::string(tensor) + " would have more than 2^56 elements");
    }
  }
}

void validate_pool(const Problem& p) {
  const Pool& pool = p.epilogue.pool;
  if (pool.kind == PoolKind::none) {
    if (pool != Pool{}) bad("pool sizes are given but no pool kind; say maxpool or avgpool");
    return;
  }
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

i64 pooled(i64 size, i64 pad, i64 window, i64 stride) { return (size + pad - window) / stride + 1; }

}  // namespace

const char* name(Direction d) {
  constexpr const char* kNames[] = {"fwd", "bwd_d", "bwd_w"};
  return kNames[static_cast<int>(d)];
}
const char* name(DType d) { return info(d).name; }
const char* name(Layout l) { return l == Layout::nchw ? "nchw" : "nhwc"; }
const char* name(Math m) {
  constexpr const char* kNames[] = {"f32", "tf32", "f16", "bf16", "fast", "of_dtype"};
  return kNames[static_cast<int>(m)];
}
const char* name(Activation a) {
  constexpr const char* kNames[] = {
#define FALTUNG_ACTIVATION(op, value) #op,
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
  };
  static_assert(
      [] {
        for (std::size_t i = 0; i < std::size(kActivations); ++i) {
          if (static_cast<std::size_t>(kActivations[i]) != i) return false;
        }
        return true;
      }(),
      "epilogue_ops.inc and Activation in faltung.hpp have the same order");
  return kNames[static_cast<int>(a)];
}
const char* name(PoolKind k) {
  constexpr const char* kNames[] = {"none", "maxpool", "avgpool"};
  return kNames[static_cast<int>(k)];
}

Math default_math(DType dtype) {
  constexpr Math kMath[] = {Math::f32, Math::f16, Math::bf16};
  return kMath[static_cast<int>(dtype)];
}

Problem with_math(Problem p) {
  if (p.math == Math::of_dtype) p.math = default_math(p.dtype);
  return p;
}

std::int64_t Problem::y_h() const {
  const Pool& pool = epilogue.pool;
  if (pool.kind == PoolKind::none) return p();
  return pooled(p(), pool.pad_top + pool.pad_bottom, pool.size_h, pool.stride_h);
}

std::int64_t Problem::y_w() const {
  const Pool& pool = epilogue.pool;
  if (pool.kind == PoolKind::none) return q();
  return pooled(q(), pool.pad_left + pool.pad_right, pool.size_w, pool.stride_w);
}

void validate(const Problem& p) {
  const std::pair<const char*, i64> positive[] = {{"n", p.n},
                                                  {"c", p.c},
                                                  {"h", p.h},
                                                  {"w", p.w},
                                                  {"k", p.k},
                                                  {"r", p.r},
                                                  {"s", p.s},
                                                  {"stride_h", p.stride_h},
                                                  {"stride_w", p.stride_w},
                                                  {"dilation_h", p.dilation_h},
                                                  {"dilation_w", p.dilation_w},
                                                  {"groups", p.groups}};
  for (const auto& [what, value] : positive) {
    require_positive(what, value);
    require_small(what, value);
  }
  const std::pair<const char*, i64> padding[] = {{"pad_top", p.pad_top},
                                                 {"pad_bottom", p.pad_bottom},
                                                 {"pad_left", p.pad_left},
                                                 {"pad_right", p.pad_right}};
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
  i64 extent_h, extent_w;  // of the dilated filter
  if (__builtin_mul_overflow(p.dilation_h, p.r - 1, &extent_h) || extent_h > kMaxSize ||
      __builtin_mul_overflow(p.dilation_w, p.s - 1, &extent_w) || extent_w > kMaxSize) {
    bad("the dilated filter is larger than 2^40");
  }
  const i64 padded_h = p.h + p.pad_top + p.pad_bottom, padded_w = p.w + p.pad_left + p.pad_right;
  if (extent_h + 1 > padded_h || extent_w + 1 > padded_w) {
    bad("the dilated filter " + std::to_string(extent_h + 1) + "x" + std::to_string(extent_w + 1) +
        " is larger than the padded input " + std::to_string(padded_h) + "x" + std::to_string(padded_w) +
        "; pad more or use a smaller filter or dilation");
  }
  require_countable("x", {p.n, p.c, padded_h, padded_w});
  require_countable("w", {p.k, p.c / p.groups, p.r, p.s});
  require_countable("y", {p.n, p.k, p.p(), p.q()});
  validate_math(p);
  if (p.direction != Direction::forward && !p.epilogue.empty()) {
    bad(std::string("an epilogue goes with fwd alone, not with ") + name(p.direction));
  }
  const bool slope_is_used = p.epilogue.activation == Activation::leaky_relu;
  if (slope_is_used ? !std::isfinite(p.epilogue.slope) : p.epilogue.slope != Epilogue{}.slope) {
    bad(slope_is_used ? "leaky_relu's slope is not finite"
                      : "a slope is given but the activation is not leaky_relu");
  }
  validate_pool(p);
}

TensorShape make_shape(Layout layout, i64 n, i64 c, i64 h, i64 w) {
  if (layout == Layout::nchw) return {n, c, h, w, c * h * w, h * w, w, 1};
  return {n, c, h, w, h * w * c, 1, w * c, c};
}

TensorShape x_shape(const Problem& p) { return make_shape(p.layout, p.n, p.c, p.h, p.w); }
TensorShape w_shape(const Problem& p) { return make_shape(p.layout, p.k, p.c / p.groups, p.r, p.s); }
TensorShape conv_shape(const Problem& p) { return make_shape(p.layout, p.n, p.k, p.p(), p.q()); }
TensorShape y_shape(const Problem& p) { return make_shape(p.layout, p.n, p.k, p.y_h(), p.y_w()); }

TensorShape result_shape(const Problem& p) {
  switch (p.direction) {
    case Direction::forward:
      return y_shape(p);
    case Direction::backward_data:
      return x_shape(p);
    case Direction::backward_weights:
      return w_shape(p);
  }
  return {};
}

std::size_t bytes(const Problem& p, Tensor tensor) {
  return static_cast<std::size_t>(bytes_of(p, shape_of(p, tensor)));
}

TensorShape shape_of(const Problem& p, Tensor tensor) {
  switch (tensor) {
    case Tensor::x:
      return x_shape(p);
    case Tensor::w:
      return w_shape(p);
    case Tensor::y:
      return p.direction == Direction::forward ? y_shape(p) : conv_shape(p);
    case Tensor::bias:
      return make_shape(p.layout, 1, p.k, 1, 1);
    case Tensor::residual:
      return conv_shape(p);
  }
  throw Error(Status::bad_problem, "no tensor " + std::to_string(static_cast<int>(tensor)) +
                                       "; they are x, w, y, bias and residual");
}

void* result_pointer(const Problem& p, const Tensors& t) {
  switch (p.direction) {
    case Direction::forward:
      return t.y;
    case Direction::backward_data:
      return t.x;
    case Direction::backward_weights:
      return t.w;
  }
  return nullptr;
}

i64 bytes_of(const Problem& p, const TensorShape& shape) { return shape.elements() * size_of(p.dtype); }

double flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.n) * static_cast<double>(p.k) * static_cast<double>(p.p()) *
         static_cast<double>(p.q()) * static_cast<double>(p.c / p.groups) * static_cast<double>(p.r * p.s);
}

double min_bytes(const Problem& p) {
  i64 elements = x_shape(p).elements() + w_shape(p).elements() + y_shape(p).elements();
  if (p.epilogue.bias) elements += p.k;
  if (p.epilogue.residual) elements += conv_shape(p).elements();
  return static_cast<double>(elements) * size_of(p.dtype);
}

i64 reduction_length(const Problem& p) {
  switch (p.direction) {
    case Direction::forward:
      return p.c / p.groups * p.r * p.s;
    case Direction::backward_data:
      return p.k / p.groups * p.r * p.s;
    case Direction::backward_weights:
      return p.n * p.p() * p.q();
  }
  return 0;
}

void check_pointers(const Problem& p, const Tensors& t, bool weights_are_packed) {
  const auto need = [&](const char* what, const void* pointer) {
    if (pointer == nullptr) {
      bad(std::string("tensor ") + what + " is null, but " + name(p.direction) + " of " + to_string(p) +
          " needs it");
    }
  };
  need("x", t.x);
  if (!weights_are_packed) need("w", t.w);
  need("y", t.y);
  if (p.epilogue.bias) need("bias", t.bias);
  if (p.epilogue.residual) need("residual", t.residual);
}

}  // namespace faltung
