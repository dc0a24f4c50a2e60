// The canonical string, and which notation a text is in.
#include "src/problem/parse.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <set>

#include "src/problem/cursor.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Of the enumerators up to the last.
template <class Enum>
const std::vector<std::string>& names(Enum last) {
  static const std::vector<std::string> all = [last] {
    std::vector<std::string> out;
    for (int i = 0; i <= static_cast<int>(last); ++i) out.push_back(name(static_cast<Enum>(i)));
    return out;
  }();
  return all;
}

template <class Enum>
bool named(std::string_view text, Enum last, Enum& value) {
  const std::vector<std::string>& all = names(last);
  const auto found = std::find(all.begin(), all.end(), lower(text));
  if (found == all.end()) return false;
  value = static_cast<Enum>(found - all.begin());
  return true;
}

template <class Enum>
Enum parse_name(const char* what, std::string_view text, Enum last) {
  Enum value{};
  if (named(text, last, value)) return value;
  const std::vector<std::string>& all = names(last);
  throw Error(Status::bad_problem, std::string("unknown ") + what + " " + quote(text) + "; the nearest is " +
                                       nearest(lower(text), all) + ", it can be " + join_or(all));
}

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
    if (!cursor.skip(".")) cursor.fail("two paddings; give one, as 1x2 or as 0.1.0.1");
    left = cursor.number();
    if (!cursor.skip(".")) cursor.fail("three paddings; give one, as 1x2 or as 0.1.0.1");
    right = cursor.number();
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

float slope(Cursor& cursor) {
  const std::string_view text = cursor.rest();
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end + 1 != text.data() + text.size() || *end != ')' || !std::isfinite(value)) {
    cursor.fail("a slope that is no finite number; write leaky_relu(0.01)");
  }
  return value;
}

// Fields separated by colons, each at most once.
class Canonical {
 public:
  explicit Canonical(std::string_view text) : text_(text) {}

  Problem problem() {
    for (const std::string& field : split(text_, ':')) read(field);
    for (const char letter : std::string_view("nchwkrs")) {
      if (!seen_.contains(std::string("size ") + letter)) {
        bad_problem(text_,
                    std::string("size ") + letter + " is missing; the sizes are given as n1c64h56w56k64r3s3");
      }
    }
    if (!seen_.contains("math class")) p_.math = default_math(p_.dtype);
    return p_;
  }

  Epilogue epilogue() {
    for (const std::string& field : split(text_, ':')) {
      if (!epilogue_field(field)) unknown(field, epilogue_words());
    }
    return p_.epilogue;
  }

 private:
  void once(const std::string& what) {
    if (!seen_.insert(what).second) bad_problem(text_, what + " is given twice");
  }

  // An epilogue's field. They stand in the order in which they are applied: in another they would tell of
  // another function than the one that is computed.
  void applied(const std::string& what) {
    once(what);
    const std::string_view order[] = {"bias", "residual", "activation", "pool"};
    for (auto later = std::find(std::begin(order), std::end(order), what) + 1; later != std::end(order);
         ++later) {
      if (!seen_.contains(std::string(*later))) continue;
      bad_problem(text_, what + " comes after " + std::string(*later) +
                             "; an epilogue is written as it is applied: bias, residual, activation, pool");
    }
  }

  void read(const std::string& field) {
    Cursor cursor(text_, field);
    if (named(field, Direction::backward_weights, p_.direction)) {
      once("direction");
    } else if (named(field, DType::bf16, p_.dtype)) {
      once("dtype");
    } else if (named(field, Layout::nhwc, p_.layout)) {
      once("layout");
    } else if (cursor.skip("math=")) {
      once("math class");
      if (!named(cursor.rest(), Math::fast, p_.math)) {
        cursor.fail("an unknown math class; the nearest is " + nearest(cursor.rest(), names(Math::fast)));
      }
    } else if (cursor.skip_before_number("st")) {
      once("stride");
      pair(cursor, p_.stride_h, p_.stride_w);
      cursor.finish();
    } else if (cursor.skip_before_number("pad")) {
      once("padding");
      padding(cursor, p_.pad_top, p_.pad_bottom, p_.pad_left, p_.pad_right);
      cursor.finish();
    } else if (cursor.skip_before_number("dil")) {
      once("dilation");
      pair(cursor, p_.dilation_h, p_.dilation_w);
      cursor.finish();
    } else if (cursor.skip_before_number("g")) {
      once("groups");
      p_.groups = cursor.number();
      cursor.finish();
    } else if (!epilogue_field(field) && !sizes(cursor)) {
      std::vector<std::string> words = epilogue_words();
      for (const auto& more : {names(Direction::backward_weights),
                               names(DType::bf16),
                               names(Layout::nhwc),
                               {"math=f32", "math=tf32", "math=fast", "st1", "pad1", "dil1", "g1"}}) {
        words.insert(words.end(), more.begin(), more.end());
      }
      unknown(field, words);
    }
  }

  bool epilogue_field(const std::string& field) {
    Cursor cursor(text_, field);
    Epilogue& e = p_.epilogue;
    if (field == "bias") {
      applied("bias");
      e.bias = true;
    } else if (field == "residual") {
      applied("residual");
      e.residual = true;
    } else if (cursor.skip("leaky_relu(")) {
      applied("activation");
      e.activation = Activation::leaky_relu;
      e.slope = slope(cursor);
    } else if (named(field, std::end(kActivations)[-1], e.activation)) {
      applied("activation");
    } else if (cursor.skip_before_number("maxpool") || cursor.skip_before_number("avgpool")) {
      applied("pool");
      pool(cursor, field.starts_with("max") ? PoolKind::max : PoolKind::average, e.pool);
      cursor.finish();
    } else {
      return false;
    }
    return true;
  }

  // False if the field does not look like sizes at all.
  bool sizes(Cursor& cursor) {
    const std::pair<const char*, i64*> letters[] = {{"n", &p_.n}, {"c", &p_.c}, {"h", &p_.h}, {"w", &p_.w},
                                                    {"k", &p_.k}, {"r", &p_.r}, {"s", &p_.s}};
    bool any = false;
    while (!cursor.done()) {
      bool found = false;
      for (const auto& [letter, value] : letters) {
        if (!cursor.skip_before_number(letter)) continue;
        once(std::string("size ") + letter);
        *value = cursor.number();
        any = found = true;
        break;
      }
      if (!found && !any) return false;
      if (!found) {
        cursor.fail("no size in " + quote(cursor.rest()) + "; write n c h w k r s, each with its number");
      }
    }
    return any;
  }

  [[noreturn]] void unknown(const std::string& field, const std::vector<std::string>& words) const {
    if (field.empty()) {
      bad_problem(text_, text_.empty() ? "it is empty; write e.g. fwd:n1c64h56w56k64r3s3:pad1"
                                       : "a field is empty; write one colon between fields");
    }
    bad_problem(text_,
                "unknown field " + quote(field) + "; the nearest known is " + nearest(lower(field), words));
  }

  static std::vector<std::string> epilogue_words() {
    std::vector<std::string> words = names(std::end(kActivations)[-1]);
    words.insert(words.end(), {"bias", "residual", "leaky_relu(0.01)", "maxpool2", "avgpool2"});
    return words;
  }

  std::string_view text_;
  Problem p_;
  std::set<std::string> seen_;
};

bool is_miopen(std::string_view text) { return text.find("MIOpenDriver") != std::string_view::npos; }

// benchdnn's options start with dashes, and every problem of its names ic; no canonical field can.
bool is_benchdnn(std::string_view text) {
  if (text.starts_with("-") || text.find("benchdnn") != std::string_view::npos) return true;
  const std::string_view head = text.substr(0, text.find_first_of(":\""));
  const std::size_t ic = head.find("ic");
  return ic != std::string_view::npos && ic + 2 < head.size() && is_digit(head[ic + 2]);
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

Direction parse_direction(std::string_view text) {
  const std::string word = lower(text);
  if (word == "forward") return Direction::forward;
  if (word == "backward_data") return Direction::backward_data;
  if (word == "backward_weights") return Direction::backward_weights;
  return parse_name("direction", text, Direction::backward_weights);
}
DType parse_dtype(std::string_view text) { return parse_name("dtype", text, DType::bf16); }
Layout parse_layout(std::string_view text) { return parse_name("layout", text, Layout::nhwc); }
Math parse_math(std::string_view text) { return parse_name("math class", text, Math::fast); }
Epilogue parse_epilogue(std::string_view text) {
  text = trim(text);
  return text.empty() ? Epilogue{} : Canonical(text).epilogue();
}

std::vector<Problem> parse_problems(std::string_view text) {
  text = trim(text);
  std::vector<Problem> problems;
  if (is_miopen(text)) {
    problems = parse_miopen(text);
  } else if (is_benchdnn(text)) {
    problems = {parse_benchdnn(text)};
  } else {
    problems = {Canonical(text).problem()};
  }
  for (const Problem& p : problems) {
    try {
      validate(p);
    } catch (const Error& error) {
      bad_problem(text, error.what());
    }
  }
  return problems;
}

Problem parse_problem(std::string_view text) {
  const std::vector<Problem> problems = parse_problems(text);
  if (problems.size() == 1) return problems.front();
  bad_problem(trim(text), "it names " + std::to_string(problems.size()) +
                              " directions; choose one with -F 1 (fwd), -F 2 (bwd_d) or -F 4 (bwd_w)");
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
  if (p.math != Math::of_dtype && p.math != default_math(p.dtype))
    out += std::string(":math=") + name(p.math);
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
