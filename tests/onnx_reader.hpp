// Reads the part of ONNX's files that conformance tests need: a model's nodes and initializers, and tensors.
#ifndef FALTUNG_TESTS_ONNX_READER_HPP_
#define FALTUNG_TESTS_ONNX_READER_HPP_

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace faltung::onnx {

// One field of a protobuf message: a number, or bytes (a text, a message, or packed numbers).
struct Field {
  std::uint64_t id, number;
  std::string_view bytes;
};

class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint(rest_);
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.number = varint(rest_);
        return true;
      case 1:
        field.bytes = take(8);
        return true;
      case 2:
        field.bytes = take(varint(rest_));
        return true;
      case 5:
        field.bytes = take(4);
        return true;
      default:
        throw std::runtime_error("not a protobuf message");
    }
  }

  // A repeated number comes one at a time or packed.
  static void append_numbers(const Field& field, std::vector<std::int64_t>& out) {
    if (field.bytes.empty()) out.push_back(static_cast<std::int64_t>(field.number));
    for (std::string_view rest = field.bytes; !rest.empty();)
      out.push_back(static_cast<std::int64_t>(varint(rest)));
  }

 private:
  static std::uint64_t varint(std::string_view& rest) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest.empty()) break;
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a truncated protobuf message");
  }

  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw std::runtime_error("a truncated protobuf message");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::uint64_t type = 0;  // 1: f32
  std::vector<float> values;
};

inline Tensor read_tensor(std::string_view bytes) {
  Tensor tensor;
  std::string_view raw;
  Field field;
  for (Message message(bytes); message.next(field);) {
    if (field.id == 1) Message::append_numbers(field, tensor.sizes);
    if (field.id == 2) tensor.type = field.number;
    if (field.id == 4 || field.id == 9) raw = field.bytes;  // packed floats and raw data look the same
    if (field.id == 8) tensor.name = field.bytes;
  }
  if (tensor.type == 1) {
    tensor.values.resize(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(tensor.values.data(), raw.data(), raw.size());
  }
  return tensor;
}

struct Node {
  std::string op;
  std::vector<std::string> inputs;
  std::map<std::string, std::vector<std::int64_t>> ints;  // a single integer is a list of one
  std::map<std::string, std::string> strings;

  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const auto found = ints.find(name);
    return found == ints.end() ? otherwise : found->second.at(0);
  }
};

inline Node read_node(std::string_view bytes) {
  Node node;
  Field field, part;
  for (Message message(bytes); message.next(field);) {
    if (field.id == 1) node.inputs.emplace_back(field.bytes);
    if (field.id == 4) node.op = field.bytes;
    if (field.id != 5) continue;
    std::string name, text;
    std::vector<std::int64_t> numbers;
    for (Message attribute(field.bytes); attribute.next(part);) {
      if (part.id == 1) name = part.bytes;
      if (part.id == 3 || part.id == 8) Message::append_numbers(part, numbers);
      if (part.id == 4) text = part.bytes;
    }
    if (!numbers.empty()) node.ints[name] = numbers;
    if (!text.empty()) node.strings[name] = text;
  }
  return node;
}

struct Model {
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
};

inline Model read_model(std::string_view bytes) {
  Model model;
  Field field, part;
  for (Message message(bytes); message.next(field);) {
    if (field.id != 7) continue;
    for (Message graph(field.bytes); graph.next(part);) {
      if (part.id == 1) model.nodes.push_back(read_node(part.bytes));
      if (part.id == 5) model.initializers.push_back(read_tensor(part.bytes));
    }
  }
  return model;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace faltung::onnx

#endif  // FALTUNG_TESTS_ONNX_READER_HPP_
