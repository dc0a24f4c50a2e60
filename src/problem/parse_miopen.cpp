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
    volume,       // likewise a whole number, of 3-D convolution alone; without meaning in 2-D
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
    {'I', "in_layout", "", Flag::word},
    {'f', "fil_layout", "", Flag::word},
    {'O', "out_layout", "", Flag::word},
    {'_', "spatial_dim", "2", Flag::shape},
    {'r', "pad_val", "0", Flag::only_default},
    {'Z', "tensor_vect", "0", Flag::only_default},
    {'L', "vector_length", "1", Flag::only_default},
    {'R', "wei_cast_type", "-1", Flag::only_default},
    {'T', "out_cast_type", "-1", Flag::only_default},
    {'U', "in_cast_type", "-1", Flag::only_default},
    {'!', "in_d", "32", Flag::volume},
    {'@', "fil_d", "3", Flag::volume},
    {'#', "conv_stride_d", "1", Flag::volume},
    {'$', "pad_d", "0", Flag::volume},
    {'%', "trans_output_pad_d", "0", Flag::volume},
    {'^', "dilation_d", "1", Flag::volume},
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

class MiopenLine {
 public:
  explicit MiopenLine(std::string_view text) : text_(text) {
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

  int dimensions() const {
    const i64 given = number("spatial_dim");
    if (given != 2 && given != 3)
      bad_problem(text_, "--spatial_dim " + std::to_string(given) + " is not supported; it can be 2 or 3");
    return static_cast<int>(given);
  }

  // The driver's default is what goes with the dimensions.
  Layout layout(int dimensions) const {
    const std::string in = word("in_layout"), filter = word("fil_layout"), out = word("out_layout");
    const bool volume = dimensions == 3;
    const std::string planes = volume ? "NCDHW" : "NCHW", pixels = volume ? "NDHWC" : "NHWC";
    const auto of = [&](const std::string& given) { return given.empty() ? planes : given; };
    if (of(in) != of(filter) || of(in) != of(out)) {
      bad_problem(text_, "the layouts differ: --in_layout " + printable(of(in)) + " --fil_layout " +
                             printable(of(filter)) + " --out_layout " + printable(of(out)) +
                             "; give the same for all three");
    }
    if (of(in) == planes) return Layout::nchw;
    if (of(in) == pixels) return Layout::nhwc;
    bad_problem(text_, "layout " + printable(in) + " is not supported with --spatial_dim " +
                           std::to_string(dimensions) + "; it can be " + planes + " or " + pixels);
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
    p.dimensions = dimensions();
    p.layout = layout(p.dimensions);
    p.n = number("batchsize"), p.c = number("in_channels"), p.k = number("out_channels");
    p.h = number("in_h"), p.w = number("in_w"), p.r = number("fil_h"), p.s = number("fil_w");
    p.stride_h = number("conv_stride_h"), p.stride_w = number("conv_stride_w");
    p.dilation_h = number("dilation_h"), p.dilation_w = number("dilation_w");
    p.groups = number("group_count");
    const bool volume = p.dimensions == 3;
    if (volume) {
      p.d = number("in_d"), p.t = number("fil_d");
      p.stride_d = number("conv_stride_d"), p.dilation_d = number("dilation_d");
    }
    const std::string mode = word("mode");
    if (mode == "trans") {
      p.kind = ConvolutionKind::transposed;
      p.output_pad_h = number("trans_output_pad_h"), p.output_pad_w = number("trans_output_pad_w");
      if (volume) p.output_pad_d = number("trans_output_pad_d");
    } else if (mode != "conv") {
      bad_problem(text_, "--mode " + printable(mode) + " is unknown; it can be conv or trans");
    }
    const bool undilated = p.dilation_d == 1 && p.dilation_h == 1 && p.dilation_w == 1;
    const bool applies = !is_transposed(p) && (undilated || (p.t == 1 && p.r == 1 && p.s == 1));
    if (volume) p.pad_front = p.pad_back = padding("pad_d", p.d, p.t, p.stride_d, applies);
    p.pad_top = p.pad_bottom = padding("pad_h", p.h, p.r, p.stride_h, applies);
    p.pad_left = p.pad_right = padding("pad_w", p.w, p.s, p.stride_w, applies);

    std::vector<Problem> out;
    for (const Direction direction : directions()) {
      out.push_back(p);
      out.back().direction = direction;
      // In the other directions the driver's bias is a sum of its own, no part of the convolution.
      if (direction == Direction::forward && number("bias") != 0) out.back().epilogue.bias = true;
    }
    return out;
  }

  std::string_view text_;
  std::vector<std::string> words_;
  std::string values_[std::size(kFlags)];
};

}  // namespace

std::vector<Problem> parse_miopen(std::string_view text) { return MiopenLine(text).problems(); }

}  // namespace faltung
