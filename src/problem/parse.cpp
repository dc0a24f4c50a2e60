#include <charconv>
#include <functional>

#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

[[noreturn]] void bad(std::string_view text, const std::string& message) {
  throw Error(Status::bad_problem, "problem '" + std::string(text) + "': " + message);
}

// Reads `<letter><number>` pairs and the like from the front of a field.
class Cursor {
 public:
  Cursor(std::string_view whole, std::string_view field) : whole_(whole), field_(field), rest_(field) {}
  bool done() const { return rest_.empty(); }
  bool skip(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }
  i64 number() {
    i64 value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a number that is out of range");
    if (error != std::errc()) fail("no number where one belongs");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    bad(whole_, "field '" + std::string(field_) + "' has " + what);
  }

 private:
  std::string_view whole_, field_, rest_;
};

// "2" or "2x3"
void pair(Cursor& cursor, i64& first, i64& second) {
  first = second = cursor.number();
  if (cursor.skip("x")) second = cursor.number();
}

// "1", "1x2" (vertical x horizontal) or "0.1.0.1" (top.bottom.left.right)
void padding(Cursor& cursor, i64& top, i64& bottom, i64& left, i64& right) {
  top = bottom = left = right = cursor.number();
  if (cursor.skip("x")) {
    left = right = cursor.number();
  } else if (cursor.skip(".")) {
    bottom = cursor.number();
    if (!cursor.skip(".")) cursor.fail("two paddings; give pad1, pad1x2 or pad0.1.0.1");
    left = cursor.number();
    if (!cursor.skip(".")) cursor.fail("three paddings; give pad1, pad1x2 or pad0.1.0.1");
    right = cursor.number();
  }
}

void sizes(Cursor cursor, Problem& p) {
  const std::pair<const char*, i64*> letters[] = {{"n", &p.n}, {"c", &p.c}, {"h", &p.h}, {"w", &p.w},
                                                  {"k", &p.k}, {"r", &p.r}, {"s", &p.s}};
  while (!cursor.done()) {
    bool found = false;
    for (const auto& [letter, value] : letters) {
      if (!found && cursor.skip(letter)) {
        *value = cursor.number();
        found = true;
      }
    }
    if (!found) cursor.fail("an unknown size; the letters are n c h w k r s");
  }
}

void pool(Cursor& cursor, PoolKind kind, Pool& pool) {
  pool.kind = kind;
  pair(cursor, pool.size_h, pool.size_w);
  pool.stride_h = pool.size_h;
  pool.stride_w = pool.size_w;
  if (cursor.skip("s")) pair(cursor, pool.stride_h, pool.stride_w);
  if (cursor.skip("p")) padding(cursor, pool.pad_top, pool.pad_bottom, pool.pad_left, pool.pad_right);
}

template <class Enum>
bool named(std::string_view field, Enum last, Enum& value) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (field == name(static_cast<Enum>(i))) {
      value = static_cast<Enum>(i);
      return true;
    }
  }
  return false;
}

bool activation(std::string_view whole, std::string_view field, Epilogue& e) {
  if (field.starts_with("leaky_relu(") && field.ends_with(")")) {
    const std::string_view text = field.substr(11, field.size() - 12);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), e.slope);
    if (error != std::errc() || end != text.data() + text.size())
      bad(whole, "leaky_relu's slope is no number");
    e.activation = Activation::leaky_relu;
    return true;
  }
  return field != "none" && named(field, Activation::hardswish, e.activation);
}

void parse_field(std::string_view whole, std::string_view field, Problem& p, bool& math_given) {
  Cursor cursor(whole, field);
  const auto finish = [&] {
    if (!cursor.done()) cursor.fail("something after its end");
  };
  if (named(field, Direction::backward_weights, p.direction) || named(field, DType::bf16, p.dtype) ||
      named(field, Layout::nhwc, p.layout) || activation(whole, field, p.epilogue)) {
    return;
  }
  if (field == "bias") {
    p.epilogue.bias = true;
  } else if (field == "residual") {
    p.epilogue.residual = true;
  } else if (cursor.skip("math=")) {
    math_given = true;
    if (!named(field.substr(5), Math::fast, p.math))
      cursor.fail("no math class; it is f32, tf32, f16, bf16 or fast");
  } else if (cursor.skip("st")) {
    pair(cursor, p.stride_h, p.stride_w);
    finish();
  } else if (cursor.skip("pad")) {
    padding(cursor, p.pad_top, p.pad_bottom, p.pad_left, p.pad_right);
    finish();
  } else if (cursor.skip("dil")) {
    pair(cursor, p.dilation_h, p.dilation_w);
    finish();
  } else if (cursor.skip("g")) {
    p.groups = cursor.number();
    finish();
  } else if (cursor.skip("maxpool")) {
    pool(cursor, PoolKind::max, p.epilogue.pool);
    finish();
  } else if (cursor.skip("avgpool")) {
    pool(cursor, PoolKind::average, p.epilogue.pool);
    finish();
  } else {
    sizes(Cursor(whole, field), p);
  }
}

std::string pair_text(i64 a, i64 b) {
  return a == b ? std::to_string(a) : std::to_string(a) + "x" + std::to_string(b);
}

std::string padding_text(i64 top, i64 bottom, i64 left, i64 right) {
  if (top == bottom && left == right) return pair_text(top, left);
  return std::to_string(top) + "." + std::to_string(bottom) + "." + std::to_string(left) + "." +
         std::to_string(right);
}

}  // namespace

Problem parse_problem(std::string_view text) {
  Problem p;
  bool math_given = false;
  for (const std::string& field : split(trim(text), ':')) parse_field(text, field, p, math_given);
  if (!math_given) p.math = default_math(p.dtype);
  validate(p);
  return p;
}

std::string to_string(const Problem& p) {
  std::string out = name(p.direction);
  out += ":n" + std::to_string(p.n) + "c" + std::to_string(p.c) + "h" + std::to_string(p.h) + "w" +
         std::to_string(p.w) + "k" + std::to_string(p.k) + "r" + std::to_string(p.r) + "s" +
         std::to_string(p.s);
  if (p.stride_h != 1 || p.stride_w != 1) out += ":st" + pair_text(p.stride_h, p.stride_w);
  if (p.pad_top != 0 || p.pad_bottom != 0 || p.pad_left != 0 || p.pad_right != 0) {
    out += ":pad" + padding_text(p.pad_top, p.pad_bottom, p.pad_left, p.pad_right);
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) out += ":dil" + pair_text(p.dilation_h, p.dilation_w);
  if (p.groups != 1) out += ":g" + std::to_string(p.groups);
  out += std::string(":") + name(p.dtype) + ":" + name(p.layout);
  if (p.math != default_math(p.dtype)) out += std::string(":math=") + name(p.math);
  const Epilogue& e = p.epilogue;
  if (e.bias) out += ":bias";
  if (e.residual) out += ":residual";
  if (e.activation == Activation::leaky_relu) {
    char slope[64];
    *std::to_chars(slope, slope + sizeof slope - 1, e.slope).ptr = '\0';
    out += std::string(":leaky_relu(") + slope + ")";
  } else if (e.activation != Activation::none) {
    out += std::string(":") + name(e.activation);
  }
  if (e.pool.kind != PoolKind::none) {
    out += std::string(":") + name(e.pool.kind) + pair_text(e.pool.size_h, e.pool.size_w);
    if (e.pool.stride_h != e.pool.size_h || e.pool.stride_w != e.pool.size_w) {
      out += "s" + pair_text(e.pool.stride_h, e.pool.stride_w);
    }
    if (e.pool.pad_top + e.pool.pad_bottom + e.pool.pad_left + e.pool.pad_right > 0) {
      out += "p" + padding_text(e.pool.pad_top, e.pool.pad_bottom, e.pool.pad_left, e.pool.pad_right);
    }
  }
  return out;
}

}  // namespace faltung
