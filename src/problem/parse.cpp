// Which notation a text is in, and the canonical string of a problem.
#include "src/problem/parse.hpp"

#include <algorithm>
#include <charconv>
#include <functional>

#include "src/problem/float_mode.hpp"
#include "src/problem/wishes.hpp"
#include "src/problem/words.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

template <class Enum>
Enum parse_name(const char* what, std::string_view text, Enum last) {
  Enum value{};
  if (named(text, last, value)) return value;
  const std::vector<std::string>& all = names(last);
  throw Error(Status::bad_problem,
              std::string("unknown ") + what + " " + quote(text) + "; " + advice(text, all));
}

bool is_miopen(std::string_view text) { return text.find("MIOpenDriver") != std::string_view::npos; }

// dnnl_verbose is its name in older versions.
bool is_onednn_verbose(std::string_view text) {
  return text.starts_with("onednn_verbose,") || text.starts_with("dnnl_verbose,");
}

// benchdnn's options start with dashes, and every problem of its names ic; no canonical field can.
bool is_benchdnn(std::string_view text) {
  if (text.starts_with("-") || text.find("benchdnn") != std::string_view::npos) return true;
  const std::string_view head = text.substr(0, text.find_first_of(":\""));
  const std::size_t ic = head.find("ic");
  return ic != std::string_view::npos && ic + 2 < head.size() && is_digit(head[ic + 2]);
}

// The shortest that reads back as it.
std::string number_text(float value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// All alike: one; else joined.
std::string extents_text(const std::vector<i64>& values, char separator = 'x') {
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end())
    return std::to_string(values.front());
  std::string text;
  for (const i64 value : values)
    text += (text.empty() ? "" : std::string(1, separator)) + std::to_string(value);
  return text;
}

// Of each dimension, before and after.
std::string padding_text(const std::vector<std::pair<i64, i64>>& ends) {
  std::vector<i64> before, both;
  for (const auto& [first, last] : ends) {
    before.push_back(first);
    both.push_back(first), both.push_back(last);
  }
  if (std::all_of(ends.begin(), ends.end(), [](const auto& e) { return e.first == e.second; }))
    return extents_text(before);
  return extents_text(both, '.');
}

std::string pool_text(const Pool& pool, int dimensions) {
  const auto text = [&](i64 h, i64 w) {
    return extents_text(dimensions == 1 ? std::vector<i64>{w} : std::vector<i64>{h, w});
  };
  std::string out = name(pool.kind) + text(pool.size_h, pool.size_w);
  if (pool.stride_h != pool.size_h || pool.stride_w != pool.size_w)
    out += "s" + text(pool.stride_h, pool.stride_w);
  if (pool.pad_top + pool.pad_bottom + pool.pad_left + pool.pad_right > 0) {
    std::vector<std::pair<i64, i64>> ends = {{pool.pad_top, pool.pad_bottom},
                                             {pool.pad_left, pool.pad_right}};
    if (dimensions == 1) ends.erase(ends.begin());
    out += "p" + padding_text(ends);
  }
  return out;
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
Layout parse_layout(std::string_view text) {
  for (const LayoutAlias& alias : kLayoutAliases) {
    if (lower(text) == alias.name) return alias.layout;
  }
  return parse_name("layout", text, Layout::nhwc);
}
Training parse_training(std::string_view text) { return parse_name("by-product", text, Training::dbias); }
Affine parse_affine(std::string_view text) { return parse_name("affine step", text, Affine::affine_relu); }
Math parse_math(std::string_view text) { return parse_name("math class", text, Math::fast); }

std::vector<Problem> parse_problems(std::string_view text) {
  const FloatMode mode;
  text = trim(text);
  std::vector<Problem> problems;
  if (is_miopen(text)) {
    problems = parse_miopen(text);
  } else if (is_onednn_verbose(text)) {
    problems = {parse_onednn_verbose(text)};
  } else if (is_benchdnn(text)) {
    problems = {parse_benchdnn(text)};
  } else {
    problems = {parse_canonical(text)};
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
  const FloatMode mode;
  const std::vector<Dimension> spatial = spatial_dimensions(p);
  std::string out = name(p.direction);
  out += ":n" + std::to_string(p.n) + "c" + std::to_string(p.c);
  for (const Dimension& d : spatial) out += d.input_letter + std::to_string(d.in);
  out += "k" + std::to_string(p.k);
  std::vector<i64> strides, dilations, output_pads;
  std::vector<std::pair<i64, i64>> ends;
  for (const Dimension& d : spatial) {
    out += d.filter_letter + std::to_string(d.filter);
    strides.push_back(d.stride), dilations.push_back(d.dilation), output_pads.push_back(d.output_pad);
    ends.emplace_back(d.before, d.after);
  }
  const auto field = [&](const char* word, const std::string& text, const char* usual) {
    if (text != usual) out += std::string(":") + word + text;
  };
  if (is_transposed(p)) out += std::string(":") + name(p.kind);
  field("st", extents_text(strides), "1");
  field("pad", padding_text(ends), "0");
  field("outpad", extents_text(output_pads), "0");
  field("dil", extents_text(dilations), "1");
  if (p.groups != 1) out += ":g" + std::to_string(p.groups);
  for (const auto& [word, pitch] : {std::pair{":xpitch", p.x_pitch}, std::pair{":ypitch", p.y_pitch}}) {
    if (pitch != 0) out += word + std::to_string(pitch);
  }
  out += std::string(":") + name(p.dtype) + ":" + name(p.layout);
  if (p.math != Math::of_dtype && p.math != default_math(p.dtype))
    out += std::string(":math=") + name(p.math);
  if (has_affine(p)) out += std::string(":") + name(p.affine);
  const Epilogue& e = p.epilogue;
  if (e.bias) out += e.bias_element == BiasElement::f32 ? ":biasf32" : ":bias";
  const bool after = e.residual && e.residual_order == ResidualOrder::after_activation;
  if (e.residual && !after) out += ":residual";
  if (e.activation != Activation::none) out += std::string(":") + name(e.activation);
  const ActivationCall activation = activation_of(e);
  if (takes_slope(e.activation)) out += "(" + number_text(activation.a) + ")";
  if (e.activation == Activation::clip)
    out += "(" + number_text(activation.a) + "," + number_text(activation.b) + ")";
  if (after) out += ":residual";
  if (e.pool.kind != PoolKind::none) out += ":" + pool_text(e.pool, p.dimensions);
  if (p.training != Training::none) out += std::string(":") + name(p.training);
  return out;
}

}  // namespace faltung
