// Attention as exporters write it: heads of each pixel's channels, turned; the scale on queries and keys, or
// on scores; a context of its own length; the result turned back or not.
#ifndef FALTUNG_TESTS_ATTENTION_MODEL_HPP_
#define FALTUNG_TESTS_ATTENTION_MODEL_HPP_

#include <cmath>
#include <string>
#include <vector>

#include "src/network/tensor.hpp"
#include "tests/onnx_writer.hpp"

namespace faltung {

struct AttentionModel {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, depth = 8;
  enum class Scale { of_both, of_scores } scale_is = Scale::of_both;
  // By one Transpose, or by one of three dimensions between two reshapings.
  enum class Keys { turned_at_once, turned_in_three } keys_are = Keys::turned_at_once;
  enum class Result { turned_back, turned_once_more } result_is = Result::turned_back;
  std::int64_t axis = -1;    // of the softmax
  std::string also_gives{};  // a tensor between, as an output

  std::vector<network::Shape> shapes() const {
    const std::int64_t width = heads * depth;
    return {{batch, queries, width}, {batch, keys, width}, {batch, keys, width}};
  }

  std::string bytes() const {
    onnx::ModelText model;
    const float root = 1 / std::sqrt(static_cast<float>(depth));
    const bool of_scores = scale_is == Scale::of_scores;
    model.add_constant(onnx::tensor("scale", {}, std::vector<float>{of_scores ? root : std::sqrt(root)}));
    const std::vector<network::Shape> all = shapes();
    const auto reshape = [&](const std::string& from, const std::string& to, const onnx::Sizes& sizes) {
      const std::string name = to + " shape";
      model.add_constant(onnx::tensor(name, sizes));
      model.add({"Reshape", {from, name}, {to}, {}, ""});
    };
    const auto turn = [&](const std::string& from, const std::string& to, const onnx::Sizes& perm) {
      model.add({"Transpose", {from}, {to}, {{"perm", perm}}, ""});
    };
    const auto heads_of = [&](const std::string& from, const std::string& to, std::int64_t tokens) {
      reshape(from, from + " by heads", {batch, tokens, heads, depth});
      turn(from + " by heads", to, {0, 2, 1, 3});
    };
    for (std::size_t i = 0; i < 3; ++i) model.add_input(std::string(1, "qkv"[i]), all[i]);
    heads_of("q", "queries", queries), heads_of("k", "heads", keys), heads_of("v", "values", keys);
    if (keys_are == Keys::turned_at_once) {
      turn("heads", "keys", {0, 1, 3, 2});
    } else {
      reshape("heads", "all heads", {-1, keys, depth});
      turn("all heads", "all keys", {0, 2, 1});
      reshape("all keys", "keys", {batch, heads, depth, keys});
    }
    if (of_scores) {
      model.add({"MatMul", {"queries", "keys"}, {"products"}, {}, ""});
      model.add({"Mul", {"products", "scale"}, {"scores"}, {}, ""});
    } else {
      model.add({"Mul", {"queries", "scale"}, {"asked"}, {}, ""});
      model.add({"Mul", {"keys", "scale"}, {"found"}, {}, ""});
      model.add({"MatMul", {"asked", "found"}, {"scores"}, {}, ""});
    }
    model.add({"Softmax", {"scores"}, {"powers"}, {{"axis", axis}}, ""});
    model.add({"MatMul", {"powers", "values"}, {"sums"}, {}, ""});
    if (result_is == Result::turned_back) {
      turn("sums", "by pixels", {0, 2, 1, 3});
      reshape("by pixels", "turned", {batch, queries, heads * depth});
    } else {
      turn("sums", "turned", {0, 1, 3, 2});
    }
    // A node whose result is of 16 bits stands between this and the output.
    model.add({"Relu", {"turned"}, {"y"}, {}, ""});
    model.add_output("y");
    if (!also_gives.empty()) model.add_output(also_gives);
    return model.bytes();
  }
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_ATTENTION_MODEL_HPP_
