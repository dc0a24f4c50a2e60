// Random networks (seeded): convolutions, pools, gates, joins, normalizations and tokens, as ONNX files.
#ifndef FALTUNG_TESTS_RANDOM_NETWORK_HPP_
#define FALTUNG_TESTS_RANDOM_NETWORK_HPP_

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/network/interpreter.hpp"
#include "tests/onnx_writer.hpp"

namespace faltung {

class RandomNetwork {
 public:
  explicit RandomNetwork(std::uint64_t seed) : random_(seed) {
    const std::int64_t c = 3 + below(6), h = 7 + below(10), w = 7 + below(10);
    text_.add_input("x", {-1, c, -1, -1});
    input_ = {1 + below(2), c, h, w};
    images_.push_back({"x", c, 0});
    const int nodes = static_cast<int>(4 + below(14));
    for (int i = 0; i < nodes; ++i) grow();
    text_.add_output(images_.back().name);
    if (below(2) == 0) end_in_classes();
  }

  std::string bytes() const { return text_.bytes(); }
  const network::Shape& input() const { return input_; }
  const std::map<std::string, int>& kinds() const { return kinds_; }

 private:
  // `level`: images of the same level are of the same height and width.
  struct Image {
    std::string name;
    std::int64_t c;
    int level;
  };

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  std::string fresh() { return "v" + std::to_string(next_++); }
  std::string constant(const network::Shape& shape, float center = 0, float spread = 0.5f) {
    std::normal_distribution<float> normal(center, spread);
    std::vector<float> values(static_cast<std::size_t>(network::elements(shape)));
    for (float& v : values) v = normal(random_);
    const std::string name = fresh();
    text_.add_constant(onnx::tensor(name, shape, values));
    return name;
  }
  std::string add(const std::string& op, const std::vector<std::string>& inputs,
                  std::vector<std::pair<std::string, onnx::NodeText::Value>> attributes = {}) {
    const std::string name = fresh();
    text_.add({op, inputs, {name}, std::move(attributes), ""});
    ++kinds_[op];
    return name;
  }
  const Image& any() {
    return images_[static_cast<std::size_t>(below(static_cast<std::int64_t>(images_.size())))];
  }
  const Image& recent() { return below(3) == 0 ? any() : images_.back(); }
  void push(std::string name, std::int64_t c, int level) { images_.push_back({std::move(name), c, level}); }

  void conv() {
    const Image x = recent();
    const std::int64_t kinds = below(4);
    const bool depthwise = kinds == 0;
    const std::int64_t k = depthwise ? x.c : 1 + below(12), r = below(2) == 0 ? 1 : 3;
    const network::Shape filter{k, depthwise ? 1 : x.c, r, r};
    const float spread = 1.0f / std::sqrt(static_cast<float>(filter[1] * r * r));
    std::vector<std::string> inputs{x.name, constant(filter, 0, spread)};
    if (below(2) == 0) inputs.push_back(constant({k}));
    std::string y = add("Conv", inputs, {{"pads", onnx::Sizes(4, r / 2)}, {"group", depthwise ? x.c : 1}});
    if (below(3) == 0) {
      const std::string variance = fresh();
      std::vector<float> values(static_cast<std::size_t>(k), 0.7f);
      text_.add_constant(onnx::tensor(variance, {k}, values));
      y = add("BatchNormalization", {y, constant({k}, 1), constant({k}), constant({k}), variance});
    }
    push(y, k, x.level);
    if (below(2) == 0) activate();
  }
  void activate() {
    const Image x = images_.back();
    switch (below(7)) {
      case 0:
        return push(add("Relu", {x.name}), x.c, x.level);
      case 1:
        return push(add("Mul", {x.name, add("Sigmoid", {x.name})}), x.c, x.level);
      case 2:
        return push(add("HardSwish", {x.name}), x.c, x.level);
      case 3:
        return push(add("LeakyRelu", {x.name}, {{"alpha", 0.2f}}), x.c, x.level);
      case 4:
        return push(add("Clip", {x.name, number(x.c % 2 == 0 ? 0 : -0.75f), number(x.c % 3 == 0 ? 1.5f : 6)}),
                    x.c, x.level);
      case 5:
        return push(add("PRelu", {x.name, constant({x.c, 1, 1})}), x.c, x.level);
      default:
        return push(add("Tanh", {x.name}), x.c, x.level);
    }
  }
  std::string number(float value) {
    const std::string name = fresh();
    text_.add_constant(onnx::tensor(name, {}, {value}));
    return name;
  }
  void binary() {  // a residual, or by channel
    const Image x = recent();
    for (const Image& other : images_) {
      if (other.level != x.level || other.c != x.c || other.name == x.name) continue;
      return push(add(below(4) == 0 ? "Mul" : "Add", {x.name, other.name}), x.c, x.level);
    }
    push(add(below(2) == 0 ? "Mul" : "Sub", {x.name, constant({x.c, 1, 1}, 1)}), x.c, x.level);
  }
  void gate() {  // squeeze and excite
    const Image x = recent();
    const std::string pooled = add("GlobalAveragePool", {x.name});
    const std::string gates = add("Sigmoid", {add("Conv", {pooled, constant({x.c, x.c, 1, 1}, 0, 0.3f)})});
    push(add("Mul", {x.name, gates}), x.c, x.level);
  }
  void join() {
    const Image x = recent(), y = any();
    if (x.level != y.level) return;
    push(add("Concat", {x.name, y.name}, {{"axis", std::int64_t{1}}}), x.c + y.c, x.level);
    if (below(2) == 0) part();
  }
  // A row of growing concatenations, as dense blocks have them; the last may have a residual around it.
  void dense_block() {
    const Image x = recent();
    std::string all = x.name;
    std::vector<std::string> parts{x.name};
    std::int64_t c = x.c;
    const std::int64_t growth = below(2) == 0 ? 8 : 1 + below(5), layers = 2 + below(3);
    for (std::int64_t i = 0; i < layers; ++i) {
      const float spread = 1.0f / std::sqrt(static_cast<float>(c) * 9);
      std::string y = add("Conv", {all, constant({growth, c, 3, 3}, 0, spread), constant({growth})},
                          {{"pads", onnx::Sizes(4, 1)}});
      if (below(2) == 0) y = add("LeakyRelu", {y}, {{"alpha", 0.2f}});
      parts.push_back(y);
      c += growth;
      const bool nested = below(3) == 0;
      all = add("Concat", nested ? std::vector<std::string>{all, y} : parts, {{"axis", std::int64_t{1}}});
    }
    push(all, c, x.level);
    if (below(2) == 0) return;
    const float spread = 1.0f / std::sqrt(static_cast<float>(c));
    push(add("Add", {add("Conv", {all, constant({x.c, c, 1, 1}, 0, spread)}), x.name}), x.c, x.level);
  }
  // Split, one half through convolutions with a residual after the activation, all joined again.
  void cross_stage() {
    const Image x = recent();
    const std::int64_t half = below(2) == 0 ? 8 : 1 + below(4);
    const float spread = 1.0f / std::sqrt(static_cast<float>(x.c));
    const std::string wide = add("Conv", {x.name, constant({2 * half, x.c, 1, 1}, 0, spread)});
    const std::string left = fresh(), right = fresh();
    text_.add({"Split", {wide}, {left, right}, {{"axis", std::int64_t{1}}}, ""});
    ++kinds_["Split"];
    std::vector<std::string> parts{left, right};
    for (std::int64_t i = 0; i < 1 + below(2); ++i) {
      const std::string y =
          add("Conv", {parts.back(), constant({half, half, 3, 3}, 0, 0.2f)}, {{"pads", onnx::Sizes(4, 1)}});
      const std::string active =
          below(2) == 0 ? add("Mul", {y, add("Sigmoid", {y})}) : add("HardSigmoid", {y}, {{"alpha", 0.25f}});
      parts.push_back(add("Add", {active, parts.back()}));
    }
    const auto channels = static_cast<std::int64_t>(parts.size()) * half;
    push(add("Concat", parts, {{"axis", std::int64_t{1}}}), channels, x.level);
  }
  void part() {
    const Image x = images_.back();
    if (x.c < 2) return;
    const std::int64_t begin = below(x.c - 1), end = begin + 1 + below(x.c - begin);
    push(add("Slice", {x.name, whole({begin}), whole({end}), whole({1})}), std::min(end, x.c) - begin,
         x.level);
  }
  std::string whole(const network::Shape& values) {
    const std::string name = fresh();
    text_.add_constant(onnx::tensor(name, values));
    return name;
  }
  void pool() {
    const Image x = recent();
    const onnx::Sizes three{3, 3}, ones{1, 1, 1, 1};
    push(add(below(2) == 0 ? "MaxPool" : "AveragePool", {x.name}, {{"kernel_shape", three}, {"pads", ones}}),
         x.c, x.level);
  }
  void resize() {
    const Image x = recent();
    if (x.level > 1) return;
    const std::string scales = fresh();
    text_.add_constant(onnx::tensor(scales, {4}, {1, 1, 2, 2}));
    std::vector<std::pair<std::string, onnx::NodeText::Value>> mode{
        {"mode", std::string(below(2) == 0 ? "nearest" : "linear")}};
    push(add("Resize", {x.name, "", scales}, mode), x.c, x.level + 1);
  }
  void normalize() {
    const Image x = recent();
    if (below(2) == 0)
      return push(add("InstanceNormalization", {x.name, constant({x.c}, 1), constant({x.c})}), x.c, x.level);
    push(add("Softmax", {x.name}, {{"axis", std::int64_t{1}}}), x.c, x.level);
  }
  void pad() {
    const Image x = recent();
    const std::string y =
        add("Pad", {x.name, whole({0, 0, 1, 2, 0, 0, 2, 0})}, {{"mode", std::string("reflect")}});
    push(add("Conv", {y, constant({x.c, 1, 4, 3}, 0, 0.3f)}, {{"group", x.c}}), x.c, x.level);
  }
  void tokens() {  // as a transformer sees it, and back
    const Image x = recent();
    const std::string rows =
        add("Transpose", {add("Reshape", {x.name, whole({0, 0, -1})})}, {{"perm", onnx::Sizes{0, 2, 1}}});
    std::string y = add("MatMul", {rows, constant({x.c, x.c}, 0, 0.3f)});
    y = add("Add", {y, constant({x.c})});
    if (below(2) == 0) {
      const std::string scores =
          add("MatMul", {rows, add("Transpose", {y}, {{"perm", onnx::Sizes{0, 2, 1}}})});
      y = add("MatMul", {add("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), y});
    }
    if (below(2) == 0) y = add("LayerNormalization", {y, constant({x.c}, 1), constant({x.c})});
    const std::string shape = add("Shape", {x.name});
    push(add("Reshape", {add("Transpose", {y}, {{"perm", onnx::Sizes{0, 2, 1}}}), shape}), x.c, x.level);
  }
  void channels_last() {
    const Image x = recent();
    std::string y = add("Transpose", {x.name}, {{"perm", onnx::Sizes{0, 2, 3, 1}}});
    y = add("Mul", {y, constant({x.c}, 1)});
    push(add("Transpose", {y}, {{"perm", onnx::Sizes{0, 3, 1, 2}}}), x.c, x.level);
  }
  void upsample() {
    const Image x = recent();
    if (x.level > 1) return;
    const std::int64_t k = 1 + below(6);
    const onnx::Sizes twos{2, 2};
    push(
        add("ConvTranspose", {x.name, constant({x.c, k, 2, 2}, 0, 0.4f), constant({k})}, {{"strides", twos}}),
        k, x.level + 1);
  }

  // Along the rows, whose columns are averaged; what comes out is added to all of them.
  void recurrent() {
    const Image x = recent();
    if (x.level > 0) return;
    const std::string rows =
        add("ReduceMean", {x.name}, {{"axes", onnx::Sizes{3}}, {"keepdims", std::int64_t{0}}});
    const std::string steps = add("Transpose", {rows}, {{"perm", onnx::Sizes{2, 0, 1}}});
    const bool both = x.c % 2 == 0 && below(2) == 0, gru = below(2) == 0;
    const std::int64_t d = both ? 2 : 1, h = x.c / d, gates = (gru ? 3 : 4) * h;
    std::vector<std::pair<std::string, onnx::NodeText::Value>> attributes{
        {"hidden_size", h},
        {"direction", std::string(both            ? "bidirectional"
                                  : below(2) == 0 ? "forward"
                                                  : "reverse")}};
    if (gru) attributes.push_back({"linear_before_reset", below(2)});
    std::vector<std::string> inputs{steps, constant({d, gates, x.c}, 0, 0.4f),
                                    constant({d, gates, h}, 0, 0.4f)};
    if (below(2) == 0) inputs.push_back(constant({d, 2 * gates}));
    const std::string all = add(gru ? "GRU" : "LSTM", inputs, attributes);
    const std::string y = add("Transpose", {all}, {{"perm", onnx::Sizes{2, 1, 3, 0}}});
    push(add("Add", {x.name, add("Reshape", {y, whole({0, x.c, -1, 1})})}), x.c, x.level);
  }

  void grow() {
    switch (below(18)) {
      case 0:
        return binary();
      case 1:
        return gate();
      case 2:
        return join();
      case 3:
        return pool();
      case 4:
        return resize();
      case 5:
        return normalize();
      case 6:
        return tokens();
      case 7:
        return channels_last();
      case 8:
        return upsample();
      case 9:
        return activate();
      case 10:
        return pad();
      case 11:
        return dense_block();
      case 12:
        return cross_stage();
      case 13:
        return recurrent();
      default:
        return conv();
    }
  }
  void end_in_classes() {
    const Image x = images_.back();
    const std::string flat = add("Flatten", {add("GlobalAveragePool", {x.name})});
    text_.add_output(add("Softmax", {add("Gemm", {flat, constant({x.c, 10}), constant({10})})}));
  }

  std::mt19937_64 random_;
  onnx::ModelText text_;
  network::Shape input_;
  std::vector<Image> images_;
  std::map<std::string, int> kinds_;
  int next_ = 0;
};

inline double worst_error(const network::Array& expected, const network::Array& actual) {
  EXPECT_EQ(expected.shape, actual.shape);
  double worst = 0, largest = 1e-3;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    largest = std::max(largest, std::abs(expected.data[i]));
    const double error = std::abs(expected.data[i] - actual.data[i]);
    worst = std::isnan(error) ? 1e9 : std::max(worst, error);
  }
  return worst / largest;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_RANDOM_NETWORK_HPP_
