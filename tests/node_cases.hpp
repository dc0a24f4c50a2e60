// ONNX's test data: models of a node or a few, with inputs and what they must give.
#ifndef FALTUNG_TESTS_NODE_CASES_HPP_
#define FALTUNG_TESTS_NODE_CASES_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/network/graph.hpp"
#include "src/network/onnx.hpp"
#include "src/network/operator.hpp"

namespace faltung::node_cases {

inline constexpr const char* kFolder = "/usr/share/libonnx-testdata/data";

struct Case {
  std::string name, model, data;  // data: the folder with inputs and outputs
};

// Debian's, and FALTUNG_ONNX_DATA, where `./dev test-full` writes those of a newer ONNX.
inline std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found{kFolder};
  const char* const given = std::getenv("FALTUNG_ONNX_DATA");
  if (given != nullptr && *given != '\0') found.emplace_back(given);
  return found;
}

// In the order of their names, those of each folder together.
inline std::vector<Case> all() {
  std::vector<Case> cases;
  for (const std::filesystem::path& root : folders()) {
    std::vector<Case> here;
    for (const char* group : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
      if (!std::filesystem::exists(root / group)) continue;
      for (const auto& entry : std::filesystem::directory_iterator(root / group)) {
        const std::filesystem::path data = entry.path() / "test_data_set_0";
        if (!std::filesystem::exists(data)) continue;
        const std::string name = group + ("/" + entry.path().filename().string());
        here.push_back({root == kFolder ? name : "newer " + name, entry.path() / "model.onnx", data});
      }
    }
    std::ranges::sort(here, {}, &Case::name);
    cases.insert(cases.end(), here.begin(), here.end());
  }
  // These compute with the size before it is rounded, against the specification's words.
  std::erase_if(cases, [](const Case& c) {
    return c.name.ends_with("node/test_resize_downsample_scales_cubic_align_corners") ||
           c.name.ends_with("node/test_resize_downsample_scales_linear_align_corners");
  });
  return cases;
}

// What was left out, by case and why: a line for each reason.
inline void print_declined(const std::map<std::string, std::string>& declined) {
  std::map<std::string, std::vector<std::string>> cases;
  for (const auto& [name, why] : declined) cases[why].push_back(name);
  for (const auto& [why, names] : cases)
    std::cout << "  " << names.size() << " as " << names.front() << ": " << why << "\n";
}

// types: the graph's. The data of bf16 is in files of u16.
inline std::vector<network::Array> read_all(const Case& c, const std::string& prefix,
                                            const std::vector<network::Type>& types) {
  std::vector<network::Array> arrays;
  for (int i = 0;; ++i) {
    const std::string file = c.data + "/" + prefix + std::to_string(i) + ".pb";
    if (!std::filesystem::exists(file)) return arrays;
    network::Constant constant = network::read_onnx_tensor(file).constant;
    const auto at = static_cast<std::size_t>(i);
    if (constant.type == network::Type::u16 && at < types.size() && types[at] == network::Type::bf16)
      constant.type = network::Type::bf16;
    arrays.push_back(network::decode(constant));
  }
}
inline std::vector<network::Array> inputs(const Case& c, const network::Graph& graph) {
  check_operators(graph);  // before tensors are read of which nothing is known
  std::vector<network::Type> types;
  for (const network::ValueId id : graph.inputs) types.push_back(graph.at(id).type);
  return read_all(c, "input_", types);
}
inline std::vector<network::Array> outputs(const Case& c, const std::vector<network::Array>& results) {
  std::vector<network::Type> types;
  for (const network::Array& result : results) types.push_back(result.type);
  return read_all(c, "output_", types);
}

// The graph with some of its inputs as constants of these elements; `inputs` keeps the others.
inline network::Graph with_constants(network::Graph graph, std::vector<network::Array>& inputs,
                                     bool all_but_first) {
  std::vector<network::Array> rest;
  std::vector<network::ValueId> ids;
  for (std::size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i) {
    const network::ValueId id = graph.inputs[i];
    const bool whole = inputs[i].type != network::Type::f32 && inputs[i].type != network::Type::boolean;
    if (whole || (all_but_first && i > 0)) {
      network::Value& value = graph.at(id);
      value.constant = std::make_shared<const network::Constant>(encode(inputs[i]));
      value.shape = inputs[i].shape;
    } else {
      ids.push_back(id);
      rest.push_back(inputs[i]);
    }
  }
  graph.inputs = ids;
  inputs = rest;
  return graph;
}

// How far from a result in doubles one in the type may be, in units of the larger of it and 1: the longest
// sums here have some hundred terms.
inline double bound(const std::string& name, network::Type type) {
  if (name.find("window_") != std::string::npos) return 1e-4;  // its nodes have pi to four decimals
  switch (type) {
    case network::Type::f16:
      return 2e-3;
    case network::Type::bf16:
      return 1.6e-2;
    case network::Type::f32:
      return 2e-5;
    case network::Type::f64:
      return 1e-6;  // of constants that are floats
    default:
      return 0;
  }
}

inline void expect_same(const std::string& name, const network::Array& expected,
                        const network::Array& actual) {
  ASSERT_EQ(actual.shape, expected.shape) << name;
  ASSERT_EQ(actual.data.size(), expected.data.size()) << name;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double e = expected.data[i], a = actual.data[i];
    if ((std::isnan(e) && std::isnan(a)) || e == a) continue;
    if (std::abs(a - e) <= bound(name, expected.type) * std::max(1.0, std::abs(e))) continue;
    ADD_FAILURE() << name << ": element " << i << " is " << a << ", expected " << e;
    return;
  }
}

}  // namespace faltung::node_cases

#endif  // FALTUNG_TESTS_NODE_CASES_HPP_
