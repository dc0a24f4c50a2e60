// benchdnn's convolution problems, `g1mb4ic3ih224oc64oh112kh7sh2ph3n"name"`, after options such as --conv or
// --deconv and --dir=BWD_D; see tests/benchdnn/doc/driver_conv.md of oneDNN.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "src/problem/cursor.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kMost = i64{1} << 40;  // no size can be more

const char* const kKeys[] = {"mb", "ic", "id", "ih", "iw", "oc", "od", "oh", "ow", "kd", "kh",
                             "kw", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw", "g"};

// Options that say how benchdnn runs, not what.
const std::vector<std::string>& ignored() {
  static const std::vector<std::string> words = split(
      "mode mode-modifier alg match engine skip-impl impl global-impl global-skip-impl verbose perf-template "
      "attr-scratchpad fix-times-per-prb max-ms-per-prb mem-check fast-ref ctx-init ctx-exe start canonical "
      "allow-enum-tags-only memory-kind attr-deterministic cold-cache repeats-per-prb",
      ' ');
  return words;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// One spatial dimension.
struct SpatialSizes {
  i64 input = 1, filter = 1, stride = 1, pad_before = 0, pad_after = 0, dilation = 1, output_pad = 0;
};

class BenchdnnLine {
 public:
  explicit BenchdnnLine(std::string_view text) : text_(text) {}

  Problem problem() {
    bool found = false;
    for (const std::string& word : words()) {
      if (found) {
        bad_problem(text_,
                    quote(word) + " follows the problem; options come before it, and one problem is read");
      }
      if (word.starts_with("-")) {
        option(word);
      } else if (!word.ends_with("benchdnn")) {
        descriptor(word);
        found = true;
      }
    }
    if (!found) bad_problem(text_, "no problem after the options; write e.g. mb4ic3ih224oc64oh112kh7sh2ph3");
    problem_.math = default_math(problem_.dtype);
    if (tf32_ && problem_.dtype == DType::f32) problem_.math = Math::tf32;
    // The gradient of the bias (BWD_WB) is no part of a faltung problem.
    problem_.epilogue.bias = bias_ && problem_.direction == Direction::forward;
    return problem_;
  }

 private:
  // Separated by blanks outside double quotes.
  std::vector<std::string> words() const {
    std::vector<std::string> out;
    std::string word;
    bool in_quotes = false;
    for (const char c : text_) {
      if (c == '"') in_quotes = !in_quotes;
      if (in_quotes || std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      } else if (!word.empty()) {
        out.push_back(std::exchange(word, {}));
      }
    }
    if (!word.empty()) out.push_back(word);
    return out;
  }

  void option(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals).substr(word.starts_with("--") ? 2 : 1);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "conv") return;
    if (name == "deconv") {
      problem_.kind = ConvolutionKind::transposed;
      return;
    }
    if (name == "dir") return direction(value);
    if (name == "dt") return dtype(name, split(value, ':'), value);
    if (name == "cfg") return configuration(value);
    if (name == "bia-dt") {
      bias_ = value != "undef";
      return;
    }
    if (name == "stag" || name == "wtag" || name == "dtag") return tag(name, value);
    if (name == "attr-post-ops") return post_ops(value);
    if (name == "attr-fpmath") return fpmath(value);
    if (name == "mb") {
      Cursor cursor(text_, value);
      batch_ = cursor.number();
      cursor.finish();
      return;
    }
    if (name.starts_with("v") && name.size() <= 2) return;  // -v1
    if (std::find(ignored().begin(), ignored().end(), name) != ignored().end()) return;
    std::vector<std::string> known = {"dir",         "dt",   "cfg",  "bia-dt",
                                      "stag",        "wtag", "dtag", "attr-post-ops",
                                      "attr-fpmath", "mb",   "conv", "deconv"};
    known.insert(known.end(), ignored().begin(), ignored().end());
    for (std::string& option : known) option = "--" + option;
    bad_problem(text_, "option " + printable(word) + " is not supported; " + suggestion("--" + name, known));
  }

  // A problem without --dir is plain forward: benchdnn's own default is a knob of the run.
  void direction(const std::string& value) {
    bias_ = same_word(value, "FWD_B");
    if (same_word(value, "FWD_B") || same_word(value, "FWD_D") || same_word(value, "FWD_I")) {
      problem_.direction = Direction::forward;
    } else if (same_word(value, "BWD_D")) {
      problem_.direction = Direction::backward_data;
    } else if (same_word(value, "BWD_W") || same_word(value, "BWD_WB")) {
      problem_.direction = Direction::backward_weights;
    } else {
      bad_problem(text_, "--dir=" + printable(value) +
                             " is unknown; it can be FWD_B, FWD_D, FWD_I, BWD_D, BWD_W or BWD_WB");
    }
  }

  void dtype(const std::string& option, const std::vector<std::string>& parts, const std::string& value) {
    const bool same = std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return p == parts[0]; });
    const std::string given = "--" + option + "=" + printable(value);
    if (!same || (parts.size() != 1 && parts.size() != 3)) {
      bad_problem(text_, given + " mixes dtypes; give one for all, e.g. --dt=bf16");
    }
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      if (parts[0] == name(type)) {
        problem_.dtype = type;
        return;
      }
    }
    bad_problem(text_, given + " is not supported; it can be f32, f16 or bf16");
  }

  // The old way to give dtypes: bf16bf16bf16, f32_wino.
  void configuration(const std::string& value) {
    if (value == "f32_wino") return dtype("cfg", {"f32"}, value);
    if (value == "bf16bf16bf16") return dtype("cfg", {"bf16"}, value);
    dtype("cfg", {value}, value);
  }

  void tag(const std::string& name, const std::string& value) {
    if (value == "any" || value == "undef") return;
    std::optional<Layout> layout;
    for (const char* word : {"abx", "abc", "ncw", "oiw", "abcd", "nchw", "oihw", "goiw", "abcde", "ncdhw",
                             "oidhw", "goihw", "abcdef", "goidhw"}) {
      if (value == word) layout = Layout::nchw;
    }
    for (const char* word : {"axb", "acb", "nwc", "owi", "acdb", "nhwc", "ohwi", "gowi", "abdec", "acdeb",
                             "ndhwc", "odhwi", "gohwi", "abdefc", "godhwi"}) {
      if (value == word) layout = Layout::nhwc;
    }
    if (!layout)
      bad_problem(text_, "--" + name + "=" + printable(value) +
                             " is not supported; it can be any, abx (nchw) or axb (nhwc)");
    if (layout_ && *layout_ != *layout)
      bad_problem(text_, "--" + name + "=" + printable(value) +
                             " differs from the other tensors' layout; give one for all");
    layout_ = layout;
    problem_.layout = *layout;
  }

  void fpmath(const std::string& value) {
    tf32_ = value == "tf32";
    if (!tf32_ && value != "strict")
      bad_problem(text_, "--attr-fpmath=" + printable(value) + " is not supported; it can be strict or tf32");
  }

  // A residual (sum), then one activation: the order of the epilogue.
  void post_ops(const std::string& value) {
    Epilogue& e = problem_.epilogue;
    e.residual = false;
    e.activation = Activation::none;
    if (value.empty()) return;
    for (const std::string& op : split(value, '+')) {
      if (e.activation != Activation::none)
        bad_problem(text_, quote(op) + " follows an activation; one activation is supported, after sum");
      if (op == "sum" && !e.residual) {
        e.residual = true;
      } else {
        activation(op);
      }
    }
  }

  // So many finite numbers behind the word, each after a colon.
  static std::optional<std::vector<float>> numbers(const std::string& op, const std::string& word,
                                                   std::size_t count) {
    const std::vector<std::string> parts = split(op, ':');
    if (parts.front() != word || parts.size() != count + 1) return std::nullopt;
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      const char* const end = parts[i + 1].data() + parts[i + 1].size();
      const auto [behind, error] = std::from_chars(parts[i + 1].data(), end, all[i]);
      if (error != std::errc() || behind != end || !std::isfinite(all[i])) return std::nullopt;
    }
    return all;
  }

  void activation(const std::string& op) {
    const std::pair<const char*, Activation> known[] = {
        {"relu", Activation::relu},           {"relu:0", Activation::relu},
        {"clip:0:6", Activation::relu6},      {"clip_v2:0:6", Activation::relu6},
        {"logistic", Activation::sigmoid},    {"swish", Activation::silu},
        {"swish:1", Activation::silu},        {"gelu_erf", Activation::gelu},
        {"gelu_tanh", Activation::gelu_tanh}, {"hardswish", Activation::hardswish}};
    Epilogue& e = problem_.epilogue;
    for (const auto& [word, activation] : known) {
      if (op == word) {
        e.activation = activation;
        return;
      }
    }
    if (op == "prelu:per_oc") {
      e.activation = Activation::prelu;
      return;
    }
    if (const auto slope = numbers(op, "relu", 1)) {
      e.activation = Activation::leaky_relu;
      e.slope = slope->front();
      return;
    }
    for (const char* clip : {"clip", "clip_v2"}) {
      const auto bounds = numbers(op, clip, 2);
      if (!bounds) continue;
      e.activation = Activation::clip;
      e.clip = {bounds->front(), bounds->back()};
      return;
    }
    std::vector<std::string> words = {"sum", "relu:0.01", "clip:-1:6", "prelu:per_oc"};
    for (const auto& entry : known) words.push_back(entry.first);
    bad_problem(text_, "post-op " + quote(op) + " is not supported; " + suggestion(op, words));
  }

  void descriptor(const std::string& word) {
    Cursor cursor(text_, word);
    while (!cursor.done() && !cursor.skip("n")) {  // n: the rest is a name
      if (cursor.skip("_")) continue;
      const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                    [&](const char* k) { return cursor.skip_before_number(k); });
      if (key == std::end(kKeys)) {
        cursor.fail(
            "nothing known at " + quote(cursor.rest()) + "; the keys are " +
            "g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh dw, each with a number, and "
            "n with a name");
      }
      if (!given_.emplace(*key, 0).second) cursor.fail(std::string(*key) + " twice");
      given_[*key] = cursor.number();
      if (given_[*key] < 0) cursor.fail(std::string("a negative ") + *key);
      if (given_[*key] > kMost) cursor.fail(std::string("a number beyond 2^40 for ") + *key);
    }
    fill();
  }

  bool has(const std::string& key) const { return given_.contains(key); }
  i64 get(const std::string& key, i64 otherwise) const {
    const auto found = given_.find(key);
    return found == given_.end() ? otherwise : found->second;
  }
  i64 need(const std::string& key) const {
    if (get(key, 0) < 1) bad_problem(text_, key + " is missing or 0; it must be given and at least 1");
    return get(key, 0);
  }

  bool mentions(char axis) const {
    const std::string a(1, axis);
    return get("i" + a, 0) != 0 || get("o" + a, 0) != 0 || get("k" + a, 0) != 0 || get("d" + a, 0) != 0 ||
           get("s" + a, 1) != 1 || get("p" + a, 0) != 0;
  }

  // More than a size of 1, which says that there is none.
  bool is_deep() const {
    return get("id", 1) != 1 || get("od", 1) != 1 || get("kd", 1) != 1 || get("dd", 0) != 0 ||
           get("sd", 1) != 1 || get("pd", 0) != 0;
  }

  SpatialSizes axis(char letter) const {
    const std::string a(1, letter);
    SpatialSizes out;
    out.input = need("i" + a), out.filter = need("k" + a), out.dilation = get("d" + a, 0) + 1;
    if (has("s" + a)) out.stride = need("s" + a);
    i64 extent;  // of the dilated filter
    if (__builtin_mul_overflow(out.filter - 1, out.dilation, &extent) || extent > kMost) {
      bad_problem(text_, "the dilated filter is larger than 2^40");
    }
    ++extent;
    const i64 output = get("o" + a, 0);
    if (output == 0) {
      out.pad_before = out.pad_after = get("p" + a, 0);
      return out;
    }
    if (problem_.kind == ConvolutionKind::transposed) return transposed_axis(out, a, extent, output);
    // p is the padding before; o implies what follows after, which is less than nothing where the last input
    // elements are not read.
    i64 both;
    if (__builtin_mul_overflow(output - 1, out.stride, &both) || both > (i64{1} << 60)) {
      bad_problem(text_, "o" + a + " is out of range");
    }
    both += extent - out.input;
    out.pad_before = get("p" + a, std::max<i64>(0, both) / 2);
    const i64 after = both - out.pad_before;
    // Padding of less than a stride beyond that changes nothing: the same on both sides is the plainest form.
    out.pad_after = std::max<i64>(0, after);
    if (out.pad_before >= after && out.pad_before - after < out.stride) out.pad_after = out.pad_before;
    if (out.pad_after - after >= out.stride) {
      const i64 least = (out.input + out.pad_before - extent) / out.stride + 1;
      bad_problem(text_, "o" + a + std::to_string(output) +
                             " does not follow from the other sizes, which give " + std::to_string(least) +
                             " or more");
    }
    return out;
  }

  // The padding after, or what the output has more than the padding leaves, follows from the output.
  SpatialSizes transposed_axis(SpatialSizes out, const std::string& a, i64 extent, i64 output) const {
    i64 walked;
    if (__builtin_mul_overflow(out.input - 1, out.stride, &walked) || walked > (i64{1} << 60))
      bad_problem(text_, "i" + a + " is out of range");
    const i64 both = walked + extent - output;
    out.pad_before = get("p" + a, std::max<i64>(0, both) / 2);
    const i64 after = both - out.pad_before;
    out.pad_after = out.pad_before - after >= 0 && out.pad_before - after < out.stride
                        ? out.pad_before
                        : std::max<i64>(0, after);
    out.output_pad = out.pad_after - after;
    return out;
  }

  void fill() {
    Problem& p = problem_;
    p.groups = has("g") ? need("g") : 1;
    p.n = batch_ != 0 ? batch_ : has("mb") ? need("mb") : 2;
    p.c = need("ic");
    p.k = need("oc");
    const bool d = is_deep(), h = mentions('h'), w = mentions('w');
    if (!d && !h && !w) bad_problem(text_, "no image size; give ih and kh, and iw and kw where they differ");
    p.dimensions = d ? 3 : h ? 2 : 1;
    // What is not given is as the dimension before it.
    const SpatialSizes depth = d ? axis('d') : SpatialSizes{};
    const SpatialSizes vertical = h ? axis('h') : depth;
    const SpatialSizes horizontal = w ? axis('w') : vertical;
    p.d = depth.input, p.h = vertical.input, p.w = horizontal.input;
    p.t = depth.filter, p.r = vertical.filter, p.s = horizontal.filter;
    p.stride_d = depth.stride, p.stride_h = vertical.stride, p.stride_w = horizontal.stride;
    p.dilation_d = depth.dilation, p.dilation_h = vertical.dilation, p.dilation_w = horizontal.dilation;
    p.pad_front = depth.pad_before, p.pad_back = depth.pad_after;
    p.pad_top = vertical.pad_before, p.pad_bottom = vertical.pad_after;
    p.pad_left = horizontal.pad_before, p.pad_right = horizontal.pad_after;
    p.output_pad_d = depth.output_pad, p.output_pad_h = vertical.output_pad;
    p.output_pad_w = horizontal.output_pad;
  }

  std::string_view text_;
  Problem problem_;
  std::optional<Layout> layout_;
  bool tf32_ = false, bias_ = false;
  i64 batch_ = 0;
  std::map<std::string, i64> given_;
};

}  // namespace

Problem parse_benchdnn(std::string_view text) { return BenchdnnLine(text).problem(); }

}  // namespace faltung
