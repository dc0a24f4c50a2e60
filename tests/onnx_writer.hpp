// ONNX files for tests, written field by field.
#ifndef FALTUNG_TESTS_ONNX_WRITER_HPP_
#define FALTUNG_TESTS_ONNX_WRITER_HPP_

#include <cstdint>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/network/onnx.hpp"

namespace faltung::onnx {

using Sizes = std::vector<std::int64_t>;

struct NodeText {
  using Value = std::variant<std::int64_t, float, std::string, Sizes, std::vector<float>>;
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, Value>> attributes;
  std::string domain;
};

inline std::string tensor(const std::string& name, const Sizes& sizes, const std::vector<float>& values) {
  std::string bytes;
  protozero::pbf_writer w(bytes);
  w.add_packed_int64(1, sizes.begin(), sizes.end());
  w.add_int64(2, 1);
  w.add_string(8, name);
  w.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return bytes;
}

inline std::string tensor(const std::string& name, const Sizes& values) {
  const Sizes sizes{static_cast<std::int64_t>(values.size())};
  std::string bytes;
  protozero::pbf_writer w(bytes);
  w.add_packed_int64(1, sizes.begin(), sizes.end());
  w.add_int64(2, 7);
  w.add_packed_int64(7, values.begin(), values.end());
  w.add_string(8, name);
  return bytes;
}

inline std::string node(const NodeText& n) {
  std::string bytes;
  protozero::pbf_writer w(bytes);
  for (const std::string& input : n.inputs) w.add_string(1, input);
  for (const std::string& output : n.outputs) w.add_string(2, output);
  w.add_string(4, n.op);
  if (!n.domain.empty()) w.add_string(7, n.domain);
  for (const auto& [name, value] : n.attributes) {
    protozero::pbf_writer a(w, 5);
    a.add_string(1, name);
    if (const auto* f = std::get_if<float>(&value)) a.add_float(2, *f), a.add_int64(20, 1);
    if (const auto* i = std::get_if<std::int64_t>(&value)) a.add_int64(3, *i), a.add_int64(20, 2);
    if (const auto* s = std::get_if<std::string>(&value)) a.add_bytes(4, *s), a.add_int64(20, 3);
    if (const auto* v = std::get_if<std::vector<float>>(&value))
      a.add_packed_float(7, v->begin(), v->end()), a.add_int64(20, 6);
    if (const auto* v = std::get_if<Sizes>(&value))
      a.add_packed_int64(8, v->begin(), v->end()), a.add_int64(20, 7);
  }
  return bytes;
}

// A model of floats, but for inputs of another element (TensorProto's number). Sizes of -1 are open.
class ModelText {
 public:
  std::int64_t opset = 17;
  void add(const NodeText& n) { nodes_.push_back(node(n)); }
  void add_constant(const std::string& bytes) { constants_.push_back(bytes); }
  void add_input(const std::string& name, const Sizes& sizes, std::int64_t element = 1) {
    inputs_.push_back(info(name, sizes, element));
  }
  void add_output(const std::string& name) { outputs_.push_back(info(name, std::nullopt, 1)); }
  void add_metadata(const std::string& key, const std::string& value) { metadata_.emplace_back(key, value); }

  std::string bytes() const {
    std::string model;
    protozero::pbf_writer w(model);
    w.add_int64(1, 8);
    {
      protozero::pbf_writer o(w, 8);
      o.add_int64(2, opset);
    }
    for (const auto& [key, value] : metadata_) {
      protozero::pbf_writer m(w, 14);
      m.add_string(1, key), m.add_string(2, value);
    }
    protozero::pbf_writer g(w, 7);
    const auto add_all = [&](std::uint32_t field, const std::vector<std::string>& all) {
      for (const std::string& one : all) g.add_message(field, one);
    };
    add_all(1, nodes_), add_all(5, constants_), add_all(11, inputs_), add_all(12, outputs_);
    g.commit();
    return model;
  }

 private:
  static std::string info(const std::string& name, const std::optional<Sizes>& sizes, std::int64_t element) {
    std::string bytes;
    protozero::pbf_writer w(bytes);
    w.add_string(1, name);
    protozero::pbf_writer type(w, 2), tensor(type, 1);
    tensor.add_int64(1, element);
    if (sizes) {
      protozero::pbf_writer shape(tensor, 2);
      for (const std::int64_t size : *sizes) {
        protozero::pbf_writer dim(shape, 1);
        if (size < 0)
          dim.add_string(2, "open");
        else
          dim.add_int64(1, size);
      }
    }
    tensor.commit(), type.commit();
    return bytes;
  }

  std::vector<std::string> nodes_, constants_, inputs_, outputs_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// As from a file; bytes must outlive the graph.
inline network::Graph read(const std::string& bytes) {
  return network::read_onnx(std::as_bytes(std::span(bytes)), nullptr, "", "test");
}

}  // namespace faltung::onnx

#endif  // FALTUNG_TESTS_ONNX_WRITER_HPP_
