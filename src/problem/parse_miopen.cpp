// `MIOpenDriver conv ...`: the flags, defaults and meanings of ROCm's MIOpen driver (driver/conv_driver.hpp).
#include <algorithm>
#include <utility>

#include "src/problem/cursor.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct Flag {
  char letter;       // '\0': it has none
  const char* name;  // --name
  const char* value;
  enum Kind {
    shape,        // a whole number that becomes part of the problem
    word,         // likewise, but a word
    volume,       // of 3-D convolution alone; without meaning in 2-D
    only_default  // something faltung does not do
  } kind;
};

// The values are the driver's defaults.
const Flag kFlags[] = {
    {'F', "forw", "0", Flag::shape},
    {'n', "batchsize", "100", Flag::shape},
    {'c', "in_channels", "3", Flag::shape},
    {'H', "in_h", "32", Flag::shape},
    {'W', "in_w", "32", Flag::shape},
    {'k', "out_channels", "32", Flag::shape},
    {'y', "fil_h", "3", Flag::shape},
    {'x', "fil_w", "3", Flag::shape},
    {'u', "conv_stride_h", "1", Flag::shape},
    {'v', "conv_stride_w", "1", Flag::shape},
    {'p', "pad_h", "0", Flag::shape},
    {'q', "pad_w", "0", Flag::shape},
    {'l', "dilation_h", "1", Flag::shape},
    {'j', "dilation_w", "1", Flag::shape},
    {'g', "group_count", "1", Flag::shape},
    {'b', "bias", "0", Flag::shape},
    {'Y', "trans_output_pad_h", "0", Flag::shape},
    {'X', "trans_output_pad_w", "0", Flag::shape},
    {'m', "mode", "conv", Flag::word},
    {'z', "pad_mode", "default", Flag::word},
    {'I', "in_layout", "NCHW", Flag::word},
    {'f', "fil_layout", "NCHW", Flag::word},
    {'O', "out_layout", "NCHW", Flag::word},
    {'_', "spatial_dim", "2", Flag::only_default},
    {'r', "pad_val", "0", Flag::only_default},
    {'Z', "tensor_vect", "0", Flag::only_default},
    {'L', "vector_length", "1", Flag::only_default},
    {'R', "wei_cast_type", "-1", Flag::only_default},
    {'T', "out_cast_type", "-1", Flag::only_default},
    {'U', "in_cast_type", "-1", Flag::only_default},
    {'!', "in_d", "", Flag::volume},
    {'@', "fil_d", "", Flag::volume},
    {'#', "conv_stride_d", "", Flag::volume},
    {'$', "pad_d", "", Flag::volume},
    {'%', "trans_output_pad_d", "", Flag::volume},
    {'^', "dilation_d", "", Flag::volume},
};

// How the driver runs, times and checks: no part of the problem.
const Flag kIgnored[] = {
    {'i', "iter", "", Flag::word},       {'V', "verify", "", Flag::word},
    {'t', "time", "", Flag::word},       {'C', "verification_cache", "", Flag::word},
    {'w', "wall", "", Flag::word},       {'s', "search", "", Flag::word},
    {'P', "printconv", "", Flag::word},  {'o', "dump_output", "", Flag::word},
    {'d', "in_data", "", Flag::word},    {'e', "weights", "", Flag::word},
    {'a', "in_bias", "", Flag::word},    {'D', "dout_data", "", Flag::word},
    {'S', "solution", "", Flag::word},   {'G', "gpualloc", "", Flag::word},
    {'B', "dbias_data", "", Flag::word}, {'A', "alpha", "", Flag::word},
    {'K', "beta", "", Flag::word},
};

class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {
    std::string word;
    for (const char c : text) {
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n' && c != '\v' && c != '\f') {
        word += c;
      } else if (!word.empty()) {
        words_.push_back(std::exchange(word, {}));
      }
    }
    if (!word.empty()) words_.push_back(word);
  }

  std::vector<Problem> problems() {
    std::size_t next = 0;
    while (next < words_.size() && !words_[next].ends_with("MIOpenDriver")) ++next;
    if (++next >= words_.size())
      bad_problem(text_, "no driver after MIOpenDriver; give conv, convfp16 or convbfp16");
    const DType dtype = driver(words_[next++]);
    for (; next < words_.size(); next += 2) {
      if (next + 1 == words_.size()) bad_problem(text_, "flag " + printable(words_[next]) + " has no value");
      take(words_[next], words_[next + 1]);
    }
    return make(dtype);
  }

 private:
  DType driver(const std::string& word) const {
    if (word == "conv") return DType::f32;
    if (word == "convfp16") return DType::f16;
    if (word == "convbfp16") return DType::bf16;
    bad_problem(text_,
                "driver " + quote(word) + " is not supported; it can be conv (f32), convfp16 or convbfp16");
  }

  void take(const std::string& flag, const std::string& value) {
    const bool is_long = flag.starts_with("--");
    if (!flag.starts_with("-") || flag.size() < 2 || (!is_long && flag.size() != 2)) {
      bad_problem(text_, quote(flag) + " stands where a flag belongs; write -n 4 or --batchsize 4");
    }
    const auto is_it = [&](const Flag& f) {
      return is_long ? flag.substr(2) == f.name : flag[1] == f.letter;
    };
    // The strides' names in older versions.
    if (flag == "--conv_stride_0") return take("-u", value);
    if (flag == "--conv_stride_1") return take("-v", value);
    if (std::any_of(std::begin(kIgnored), std::end(kIgnored), is_it)) return;
    const auto known = std::find_if(std::begin(kFlags), std::end(kFlags), is_it);
    if (known == std::end(kFlags)) unknown(flag);
    if (known->kind == Flag::volume) return;
    if (known->kind == Flag::only_default && value != known->value) {
      bad_problem(text_, std::string("--") + known->name + " " + printable(value) +
                             " is not supported; only " + known->value + " is");
    }
    values_[static_cast<std::size_t>(known - kFlags)] = value;
  }

  [[noreturn]] void unknown(const std::string& flag) const {
    std::vector<std::string> names;
    for (const Flag& f : kFlags) names.push_back(std::string("--") + f.name);
    for (const Flag& f : kIgnored) names.push_back(std::string("--") + f.name);
    bad_problem(text_, "unknown flag " + printable(flag) +
                           (flag.starts_with("--") ? "; the nearest is " + nearest(flag, names) : ""));
  }

  std::string word(std::string_view name) const {
    for (std::size_t i = 0; i < std::size(kFlags); ++i) {
      if (name == kFlags[i].name) return values_[i].empty() ? kFlags[i].value : values_[i];
    }
    return "";
  }

  i64 number(std::string_view name) const {
    const std::string value = word(name);
    i64 out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size()) {
      bad_problem(text_, "--" + std::string(name) + " " + printable(value) + " is no whole number in range");
    }
    return out;
  }

  Layout layout() const {
    const std::string in = word("in_layout"), filter = word("fil_layout"), out = word("out_layout");
    if (in != filter || in != out) {
      bad_problem(text_, "the layouts differ: --in_layout " + printable(in) + " --fil_layout " +
                             printable(filter) + " --out_layout " + printable(out) +
                             "; give the same for all three");
    }
    if (in == "NCHW") return Layout::nchw;
    if (in == "NHWC") return Layout::nhwc;
    bad_problem(text_, "layout " + printable(in) + " is not supported; it can be NCHW or NHWC");
  }

  std::vector<Direction> directions() const {
    const i64 bits = number("forw");
    if (bits < 0 || bits > 7)
      bad_problem(text_, "-F " + std::to_string(bits) + " is no sum of 1 (fwd), 2 (bwd_d) and 4 (bwd_w)");
    std::vector<Direction> out;
    if (bits == 0 || (bits & 1) != 0) out.push_back(Direction::forward);
    if (bits == 0 || (bits & 2) != 0) out.push_back(Direction::backward_data);
    if (bits == 0 || (bits & 4) != 0) out.push_back(Direction::backward_weights);
    return out;
  }

  // One dimension's padding, as -z has it: the driver applies it to undilated and 1x1 filters alone.
  i64 padding(std::string_view given, i64 image, i64 filter, i64 stride, bool applies) const {
    const std::string mode = word("pad_mode");
    if (mode != "default" && mode != "same" && mode != "valid") {
      bad_problem(text_, "--pad_mode " + printable(mode) + " is unknown; it can be default, same or valid");
    }
    if (mode == "default" || !applies) return number(given);
    if (mode == "valid" || image < 1 || filter < 1 || stride < 1) return 0;
    return std::max<i64>(0, filter - (image % stride == 0 ? stride : image % stride)) / 2;
  }

  std::vector<Problem> make(DType dtype) const {
    Problem p;
    p.dtype = dtype;
    p.math = default_math(dtype);
    p.layout = layout();
    p.n = number("batchsize"), p.c = number("in_channels"), p.k = number("out_channels");
    p.h = number("in_h"), p.w = number("in_w"), p.r = number("fil_h"), p.s = number("fil_w");
    p.stride_h = number("conv_stride_h"), p.stride_w = number("conv_stride_w");
    p.dilation_h = number("dilation_h"), p.dilation_w = number("dilation_w");
    p.groups = number("group_count");
    const std::string mode = word("mode");
    const bool transposed = mode == "trans";
    if (!transposed && mode != "conv") {
      bad_problem(text_, "--mode " + printable(mode) + " is unknown; it can be conv or trans");
    }
    const bool applies = !transposed && ((p.dilation_h == 1 && p.dilation_w == 1) || (p.r == 1 && p.s == 1));
    p.pad_top = p.pad_bottom = padding("pad_h", p.h, p.r, p.stride_h, applies);
    p.pad_left = p.pad_right = padding("pad_w", p.w, p.s, p.stride_w, applies);
    if (transposed) transpose(p);

    std::vector<Problem> out;
    for (const Direction direction : directions()) {
      out.push_back(p);
      out.back().direction = direction;
      if (transposed && direction != Direction::backward_weights) {
        out.back().direction =
            direction == Direction::forward ? Direction::backward_data : Direction::forward;
      }
      // In the other directions the driver's bias is a sum of its own, no part of the convolution.
      if (direction == Direction::forward && number("bias") != 0) {
        if (transposed)
          bad_problem(text_, "a transposed convolution with bias is not supported; leave out -b");
        out.back().epilogue.bias = true;
      }
    }
    return out;
  }

  // A transposed convolution is the backward_data of a convolution from its output to its input.
  void transpose(Problem& p) const {
    std::swap(p.c, p.k);
    p.h = transposed_size(p.h, p.r, p.stride_h, p.dilation_h, p.pad_top, number("trans_output_pad_h"));
    p.w = transposed_size(p.w, p.s, p.stride_w, p.dilation_w, p.pad_left, number("trans_output_pad_w"));
  }

  i64 transposed_size(i64 size, i64 filter, i64 stride, i64 dilation, i64 pad, i64 output_pad) const {
    constexpr i64 kMost = i64{1} << 30;
    for (const i64 v : {size, filter, stride, dilation, pad, output_pad}) {
      if (v < 0 || v > kMost)
        bad_problem(text_, std::to_string(v) + " is out of range; 0 to 2^30 is accepted");
    }
    if (output_pad >= std::max<i64>(stride, 1)) {
      bad_problem(text_, "an output padding of " + std::to_string(output_pad) +
                             " is not smaller than the stride " + std::to_string(stride));
    }
    return (size - 1) * stride - 2 * pad + dilation * (filter - 1) + 1 + output_pad;
  }

  std::string_view text_;
  std::vector<std::string> words_;
  std::string values_[std::size(kFlags)];
};

}  // namespace

std::vector<Problem> parse_miopen(std::string_view text) { return Line(text).problems(); }

}  // namespace faltung
