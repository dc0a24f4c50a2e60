// The canonical string: fields separated by colons.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "src/problem/parse.hpp"
#include "src/problem/wishes.hpp"
#include "src/problem/words.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// What a field gives for each dimension, once it is known how many there are.
struct Extents {
  std::string field;
  std::vector<i64> values;  // one, or one each
};

// "2", "2x3" or "2x3x4"
Extents extents(Cursor& cursor, const std::string& field) {
  Extents e{field, {cursor.number()}};
  while (cursor.skip("x")) e.values.push_back(cursor.number());
  return e;
}

// "1", "1x2" (one a dimension) or "0.1.0.1" (before and after of each)
struct Padding {
  std::string field;
  std::vector<i64> values;
  bool both_ends = false;
};

Padding padding(Cursor& cursor, const std::string& field) {
  Padding p{field, {cursor.number()}};
  p.both_ends = cursor.rest().starts_with('.');
  while (cursor.skip(p.both_ends ? "." : "x")) p.values.push_back(cursor.number());
  return p;
}

const char* count_word(std::size_t count) {
  constexpr const char* kWords[] = {"no", "one", "two", "three", "four", "five", "six"};
  return count < std::size(kWords) ? kWords[count] : "too many";
}

// An activation's numbers, commas between them, to the bracket behind them.
template <std::size_t kCount>
std::array<float, kCount> numbers(Cursor& cursor, const char* what, const char* form) {
  const std::string_view text = cursor.rest();
  const char *at = text.data(), *const end = at + text.size();
  std::array<float, kCount> all{};
  for (float& value : all) {
    const auto [behind, error] = std::from_chars(at, end, value);
    const char closing = &value == &all.back() ? ')' : ',';
    if (error != std::errc() || behind == end || *behind != closing || !std::isfinite(value))
      cursor.fail(std::string(what) + "; write " + form);
    at = behind + 1;
  }
  if (at != end) cursor.fail(std::string(what) + "; write " + form);
  return all;
}
float slope(Cursor& cursor, const char* form) {
  return numbers<1>(cursor, "a slope that is no finite number", form)[0];
}

class Canonical {
 public:
  explicit Canonical(std::string_view text) : text_(text) {}

  Problem problem() {
    for (const std::string& field : split(text_, ':')) read(field);
    count_dimensions();
    check_alias();
    set(stride_, {&p_.stride_d, &p_.stride_h, &p_.stride_w}, "strides");
    set(dilation_, {&p_.dilation_d, &p_.dilation_h, &p_.dilation_w}, "dilations");
    set(output_pad_, {&p_.output_pad_d, &p_.output_pad_h, &p_.output_pad_w}, "output paddings");
    set(padding_, {&p_.pad_front, &p_.pad_back, &p_.pad_top, &p_.pad_bottom, &p_.pad_left, &p_.pad_right});
    set_pool();
    if (!seen_.contains("math class")) p_.math = default_math(p_.dtype);
    return p_;
  }

  Epilogue epilogue(int dimensions) {
    for (const std::string& field : split(text_, ':')) {
      if (!epilogue_field(field)) unknown(field, epilogue_words());
    }
    p_.dimensions = dimensions;
    set_pool();
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
      if (what == "residual" && *later == "activation") continue;  // it may be added after it, too
      bad_problem(text_, what + " comes after " + std::string(*later) +
                             "; an epilogue is written as it is applied: bias, residual, activation, pool");
    }
  }

  // Of the sizes that are given; w and s are of every problem.
  void count_dimensions() {
    const auto has = [&](char letter) { return seen_.contains(std::string("size ") + letter); };
    const bool deep = has('d') || has('t'), high = deep || has('h') || has('r');
    p_.dimensions = deep ? 3 : high ? 2 : 1;
    const std::string_view needed[] = {"ncwks", "nchwkrs", "ncdhwktrs"};
    constexpr const char* kExamples[] = {"n8c64w16000k128s9", "n1c64h56w56k64r3s3",
                                         "n2c64d16h32w32k64t3r3s3"};
    // Nothing of a second dimension may just as well be forgotten.
    const bool none = !has('w') && !has('s');
    const int meant = p_.dimensions == 1 && none ? 2 : p_.dimensions;
    for (const char letter : needed[meant - 1]) {
      if (has(letter)) continue;
      const bool one_of_two = std::string_view("dthr").find(letter) != std::string_view::npos;
      bad_problem(text_, std::string("size ") + letter + " is missing; the sizes" +
                             (one_of_two ? std::string(" of ") + dimensions_word(meant) : "") +
                             " are given as " + kExamples[meant - 1]);
    }
  }

  void check_alias() const {
    if (alias_ == nullptr || alias_->dimensions == p_.dimensions) return;
    bad_problem(text_, std::string("layout ") + alias_->name + " is of " +
                           dimensions_word(alias_->dimensions) + " and the sizes are of " +
                           dimensions_word(p_.dimensions) + "; say " + name(alias_->layout));
  }

  void set(const std::optional<Extents>& given, std::initializer_list<i64*> members, const char* what) {
    if (!given) return;
    const auto count = static_cast<std::size_t>(p_.dimensions);
    const std::vector<i64>& values = given->values;
    if (values.size() != 1 && values.size() != count) {
      Cursor(text_, given->field)
          .fail(std::string(count_word(values.size())) + " " + what + " for " +
                dimensions_word(p_.dimensions) + "; give one, or one for each");
    }
    auto member = members.end() - static_cast<std::ptrdiff_t>(count);
    for (std::size_t i = 0; i < count; ++i) *member[i] = values.size() == 1 ? values[0] : values[i];
  }

  void set(const std::optional<Padding>& given, std::initializer_list<i64*> members) {
    if (!given) return;
    const auto count = static_cast<std::size_t>(p_.dimensions);
    const std::vector<i64>& values = given->values;
    const bool fits =
        given->both_ends ? values.size() == 2 * count : values.size() == 1 || values.size() == count;
    if (!fits) {
      constexpr const char* kForms[] = {"1 or as 0.1", "1x2 or as 0.1.0.1", "1x2x3 or as 0.1.0.1.2.2"};
      Cursor(text_, given->field)
          .fail(std::string(count_word(values.size())) + " paddings; give one, as " + kForms[count - 1]);
    }
    auto member = members.end() - static_cast<std::ptrdiff_t>(2 * count);
    for (std::size_t i = 0; i < 2 * count; ++i)
      *member[i] = values.size() == 1 ? values[0] : values[given->both_ends ? i : i / 2];
  }

  // A pool of one dimension has a height of 1.
  void set_pool() {
    if (!pool_size_) return;
    Pool& pool = p_.epilogue.pool;
    const int dimensions = p_.dimensions;
    if (dimensions == 3) p_.dimensions = 2;  // validate says that there is none
    set(pool_size_, {&pool.size_h, &pool.size_w}, "pool sizes");
    pool.stride_h = pool.size_h, pool.stride_w = pool.size_w;
    set(pool_stride_, {&pool.stride_h, &pool.stride_w}, "pool strides");
    set(pool_padding_, {&pool.pad_top, &pool.pad_bottom, &pool.pad_left, &pool.pad_right});
    p_.dimensions = dimensions;
  }

  void read(const std::string& field) {
    Cursor cursor(text_, field);
    if (named(field, Direction::backward_weights, p_.direction)) {
      once("direction");
    } else if (named(field, DType::bf16, p_.dtype)) {
      once("dtype");
    } else if (named(field, Layout::nhwc, p_.layout)) {
      once("layout");
    } else if (layout_alias(field)) {
      once("layout");
    } else if (lower(field) == name(ConvolutionKind::transposed)) {
      once("transposed");
      p_.kind = ConvolutionKind::transposed;
    } else if (lower(field) != name(Training::none) && named(field, Training::dbias, p_.training)) {
      once("by-product of training");
    } else if (lower(field) != name(Affine::none) && named(field, Affine::affine_relu, p_.affine)) {
      once("affine step");
    } else if (lower(field).starts_with("affine_")) {
      cursor.fail("an activation that x is not read through; write affine_relu, or affine for none");
    } else if (cursor.skip("math=")) {
      once("math class");
      if (!named(cursor.rest(), Math::fast, p_.math)) {
        cursor.fail("an unknown math class; " + advice(cursor.rest(), names(Math::fast)));
      }
    } else if (cursor.skip_before_number("st")) {
      once("stride");
      stride_ = extents(cursor, field);
      cursor.finish();
    } else if (cursor.skip_before_number("pad")) {
      once("padding");
      padding_ = padding(cursor, field);
      cursor.finish();
    } else if (cursor.skip_before_number("outpad")) {
      once("output padding");
      output_pad_ = extents(cursor, field);
      cursor.finish();
    } else if (cursor.skip_before_number("dil")) {
      once("dilation");
      dilation_ = extents(cursor, field);
      cursor.finish();
    } else if (cursor.skip_before_number("xpitch")) {
      once("pitch of x");
      p_.x_pitch = cursor.number();
      cursor.finish();
    } else if (cursor.skip_before_number("ypitch")) {
      once("pitch of y");
      p_.y_pitch = cursor.number();
      cursor.finish();
    } else if (cursor.skip_before_number("g")) {
      once("groups");
      p_.groups = cursor.number();
      cursor.finish();
    } else if (!epilogue_field(field) && !sizes(cursor)) {
      std::vector<std::string> words = epilogue_words();
      words.erase(words.begin());  // none: there the field is left out
      for (const auto& more :
           {names(Direction::backward_weights),
            names(DType::bf16),
            names(Layout::nhwc),
            {"math=f32", "math=tf32", "math=fast", "st1", "pad1", "outpad1", "dil1", "g1", "transposed",
             "xpitch64", "ypitch64", "stats", "drelu", "dbias", "affine", "affine_relu"}}) {
        words.insert(words.end(), more.begin(), more.end());
      }
      unknown(field, words);
    }
  }

  bool layout_alias(const std::string& field) {
    for (const LayoutAlias& alias : kLayoutAliases) {
      if (lower(field) != alias.name) continue;
      alias_ = &alias;
      p_.layout = alias.layout;
      return true;
    }
    return false;
  }

  bool epilogue_field(const std::string& field) {
    Cursor cursor(text_, field);
    Epilogue& e = p_.epilogue;
    if (field == "bias" || field == "biasf32") {
      applied("bias");
      e.bias = true;
      if (field == "biasf32") e.bias_element = BiasElement::f32;
    } else if (field == "residual") {
      applied("residual");
      e.residual = true;
      if (seen_.contains("activation")) e.residual_order = ResidualOrder::after_activation;
    } else if (cursor.skip("leaky_relu(")) {
      applied("activation");
      e.activation = Activation::leaky_relu;
      e.slope = slope(cursor, "leaky_relu(0.01)");
    } else if (cursor.skip("hardsigmoid(")) {
      applied("activation");
      e.activation = Activation::hardsigmoid;
      e.slope = slope(cursor, "hardsigmoid(0.2)");
    } else if (cursor.skip("clip(")) {
      applied("activation");
      e.activation = Activation::clip;
      const auto [least, most] = numbers<2>(cursor, "bounds that are no two finite numbers", "clip(-1,6)");
      e.clip = {least, most};
    } else if (cursor.skip("prelu(")) {
      cursor.fail("a prelu with a slope; write prelu, whose slopes are a tensor, or leaky_relu(0.01)");
    } else if (named(field, std::end(kActivations)[-1], e.activation)) {
      if (e.activation == Activation::hardsigmoid)
        cursor.fail("a hardsigmoid without its slope; write hardsigmoid(0.2)");
      if (e.activation == Activation::clip) cursor.fail("a clip without its bounds; write clip(-1,6)");
      applied("activation");
    } else if (cursor.skip_before_number("maxpool") || cursor.skip_before_number("avgpool")) {
      applied("pool");
      e.pool.kind = field.starts_with("max") ? PoolKind::max : PoolKind::average;
      pool_size_ = extents(cursor, field);
      if (cursor.skip("s")) pool_stride_ = extents(cursor, field);
      if (cursor.skip("p")) pool_padding_ = padding(cursor, field);
      cursor.finish();
    } else {
      return false;
    }
    return true;
  }

  // False if the field does not look like sizes at all.
  bool sizes(Cursor& cursor) {
    const std::pair<const char*, i64*> letters[] = {{"n", &p_.n}, {"c", &p_.c}, {"d", &p_.d},
                                                    {"h", &p_.h}, {"w", &p_.w}, {"k", &p_.k},
                                                    {"t", &p_.t}, {"r", &p_.r}, {"s", &p_.s}};
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
        cursor.fail("no size in " + quote(cursor.rest()) +
                    "; write n c h w k r s, each with its number, and d and t of a volume");
      }
    }
    return any;
  }

  [[noreturn]] void unknown(const std::string& field, const std::vector<std::string>& words) const {
    if (field.empty()) {
      bad_problem(text_, text_.empty() ? "it is empty; write e.g. fwd:n1c64h56w56k64r3s3:pad1"
                                       : "a field is empty; write one colon between fields");
    }
    bad_problem(text_, "unknown field " + quote(field) + "; " + advice(field, words));
  }

  static std::vector<std::string> epilogue_words() {
    std::vector<std::string> words = names(std::end(kActivations)[-1]);
    words.insert(words.end(), {"bias", "biasf32", "residual", "leaky_relu(0.01)", "hardsigmoid(0.2)",
                               "clip(-1,6)", "maxpool2", "avgpool2"});
    return words;
  }

  std::string_view text_;
  Problem p_;
  std::optional<Extents> stride_, dilation_, output_pad_, pool_size_, pool_stride_;
  std::optional<Padding> padding_, pool_padding_;
  const LayoutAlias* alias_ = nullptr;
  std::set<std::string> seen_;
};

}  // namespace

Problem parse_canonical(std::string_view text) { return Canonical(text).problem(); }

Epilogue parse_epilogue(std::string_view text, int dimensions) {
  text = trim(text);
  return text.empty() ? Epilogue{} : Canonical(text).epilogue(dimensions);
}

}  // namespace faltung
