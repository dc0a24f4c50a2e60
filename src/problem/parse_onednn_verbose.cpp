// A line that oneDNN writes under ONEDNN_VERBOSE=1, as benchdnn's options and problem:
// onednn_verbose,exec,cpu,convolution,jit:avx512_core,forward_inference,src_f32::blocked:acdb:f0
// wei_f32::..., attr-post-ops:eltwise_relu
// ,alg:convolution_direct,mb1_ic3oc64_ih224oh112kh7sh2dh0ph3_iw...,0.42
#include <algorithm>

#include "src/problem/cursor.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

class VerboseLine {
 public:
  explicit VerboseLine(std::string_view text) : text_(text), fields_(split(text, ',')) {}

  Problem problem() const {
    const auto kind = std::find_if(fields_.begin(), fields_.end(), [](const std::string& f) {
      return f == "convolution" || f == "deconvolution";
    });
    if (kind == fields_.end())
      bad_problem(text_, "it tells of no primitive that is a convolution or a deconvolution");
    // implementation, propagation, memory, attributes, auxiliary, problem
    if (fields_.end() - kind < 7) bad_problem(text_, "it ends before the problem; give the whole line");
    const std::string prefix = *kind == "convolution" ? "--conv" : "--deconv";
    const std::string options = direction(kind[2]) + memory(kind[3]) + attributes(kind[4]);
    try {
      return parse_benchdnn(prefix + options + " " + std::string(trim(kind[6])));
    } catch (const Error& error) {
      bad_problem(text_, error.what());
    }
  }

 private:
  std::string direction(const std::string& propagation) const {
    if (propagation.starts_with("forward")) return "";
    if (propagation == "backward_data") return " --dir=BWD_D";
    if (propagation == "backward_weights") return " --dir=BWD_W";
    bad_problem(text_, "unknown propagation " + quote(propagation) +
                           "; it can be forward_training, forward_inference, backward_data or "
                           "backward_weights");
  }

  // `src_f32::blocked:acdb:f0` of each tensor, separated by blanks: its dtype, and of the activations the
  // order in memory, where that is a plain one.
  std::string memory(const std::string& tensors) const {
    std::string options, dtype;
    for (const std::string& tensor : split(tensors, ' ')) {
      const std::vector<std::string> parts = split(tensor, ':');
      const std::size_t underscore = parts[0].find('_');
      if (underscore == std::string::npos) continue;
      const std::string which = parts[0].substr(0, underscore), type = parts[0].substr(underscore + 1);
      if (which == "bia" && type != "undef") options += " --bia-dt=" + type;
      if (which == "wei") dtype = type;
      const auto tag = std::find(parts.begin(), parts.end(), "blocked");
      const bool has_tag = tag != parts.end() && tag + 1 != parts.end() && is_plain_tag(tag[1]);
      if ((which == "src" || which == "diff_src") && has_tag) options += " --stag=" + tag[1];
      if ((which == "dst" || which == "diff_dst") && has_tag) options += " --dtag=" + tag[1];
    }
    if (dtype.empty()) bad_problem(text_, "no dtype of the weights in " + quote(tensors));
    return options + " --dt=" + dtype;
  }
  // oneDNN's own layouts have blocks: capital letters and numbers.
  static bool is_plain_tag(std::string_view tag) {
    return !tag.empty() && std::all_of(tag.begin(), tag.end(), [](char c) { return c >= 'a' && c <= 'f'; });
  }

  // attr-post-ops:sum:1+eltwise_relu:0.1, among others that say how, not what.
  std::string attributes(const std::string& attributes) const {
    for (const std::string& attribute : split(attributes, ' ')) {
      constexpr std::string_view kName = "attr-post-ops:";
      if (!attribute.starts_with(kName)) continue;
      std::string ops;
      for (std::string op : split(attribute.substr(kName.size()), '+')) {
        if (op.starts_with("eltwise_")) op = op.substr(8);
        if (op == "sum:1") op = "sum";
        ops += (ops.empty() ? "" : "+") + op;
      }
      return " --attr-post-ops=" + ops;
    }
    return "";
  }

  std::string_view text_;
  std::vector<std::string> fields_;
};

}  // namespace

Problem parse_onednn_verbose(std::string_view text) { return VerboseLine(text).problem(); }

}  // namespace faltung
