#include "src/network/onnx.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "src/network/onnx_fields.hpp"
#include "src/network/onnx_tensor.hpp"
#include "src/store/mapped_file.hpp"

namespace faltung::network {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(Status::bad_file, what); }

struct InputInfo {
  std::string name;
  Type type = Type::unknown;
  std::optional<Shape> shape;
  std::vector<std::string> size_names;
};

void read_shape(std::string_view message, InputInfo& info) {
  info.shape.emplace();
  for (Fields dims(message); dims.next();) {
    if (dims.id() != 1) continue;
    std::int64_t size = -1;
    std::string size_name;
    for (Fields dim(dims.bytes()); dim.next();) {
      if (dim.id() == 1)
        size = dim.integer();
      else if (dim.id() == 2)
        size_name = dim.bytes();
    }
    info.shape->push_back(size < 0 ? -1 : size);
    info.size_names.push_back(std::move(size_name));
  }
}

// A ValueInfoProto. What is no tensor (a sequence, a map) keeps the unknown type.
InputInfo read_info(std::string_view message) {
  InputInfo info;
  for (Fields f(message); f.next();) {
    if (f.id() == 1) info.name = f.bytes();
    if (f.id() != 2) continue;
    for (Fields type(f.bytes()); type.next();) {
      if (type.id() != 1) continue;
      for (Fields tensor(type.bytes()); tensor.next();) {
        if (tensor.id() == 1)
          info.type = type_of_number(tensor.integer());
        else if (tensor.id() == 2)
          read_shape(tensor.bytes(), info);
      }
    }
  }
  return info;
}

class Builder {
 public:
  Builder(TensorSource source) : source_(std::move(source)) {}

  Graph read_model(std::string_view message) {
    std::optional<std::string_view> graph;
    for (Fields f(message); f.next();) {
      if (f.id() == 7) {
        if (graph) fail("there are two graphs in it");
        graph = f.bytes();
      } else if (f.id() == 8) {
        read_opset(f.bytes());
      }
    }
    if (!graph) fail("there is no graph in it: this is no ONNX model");
    read_graph(*graph);
    return std::move(graph_);
  }

 private:
  void read_opset(std::string_view message) {
    std::string_view domain;
    std::int64_t version = 0;
    for (Fields f(message); f.next();) {
      if (f.id() == 1)
        domain = f.bytes();
      else if (f.id() == 2)
        version = f.integer();
    }
    if (domain.empty() || domain == "ai.onnx") graph_.opset = version;
  }

  void read_graph(std::string_view message) {
    std::vector<std::string_view> nodes;
    std::vector<InputInfo> inputs, outputs;
    for (Fields f(message); f.next();) {
      switch (f.id()) {
        case 1:
          nodes.push_back(f.bytes());
          break;
        case 5:
          add_initializer(source_.read(f.bytes()));
          break;
        case 11:
          inputs.push_back(read_info(f.bytes()));
          break;
        case 12:
          outputs.push_back(read_info(f.bytes()));
          break;
        default:
          break;
      }
    }
    for (InputInfo& input : inputs) add_input(std::move(input));
    for (const std::string_view node : nodes) read_node(node);
    if (outputs.empty()) fail("the network has no outputs");
    for (const InputInfo& output : outputs) {
      const auto found = ids_.find(output.name);
      if (found == ids_.end()) fail("no node makes the output " + in_quotes(output.name));
      graph_.outputs.push_back(found->second);
    }
  }

  ValueId define(const std::string& name) {
    Value value;
    value.name = name;
    const ValueId id = graph_.add(std::move(value));
    if (!ids_.emplace(name, id).second) fail("the name " + in_quotes(name) + " is given to two values");
    return id;
  }

  void set_constant(ValueId id, Constant constant) {
    Value& value = graph_.at(id);
    value.type = constant.type;
    value.shape = constant.shape;
    // Texts have no elements here: nothing that is known reads them.
    if (constant.data != nullptr || elements(constant.shape) == 0)
      value.constant = std::make_shared<const Constant>(std::move(constant));
  }

  void add_initializer(NamedTensor tensor) { set_constant(define(tensor.name), std::move(tensor.constant)); }

  // In older files every initializer is named among the inputs as well.
  void add_input(InputInfo info) {
    if (const auto found = ids_.find(info.name); found != ids_.end()) {
      if (graph_.is_constant(found->second)) return;
      fail("the name " + in_quotes(info.name) + " is given to two values");
    }
    const ValueId id = define(info.name);
    Value& value = graph_.at(id);
    value.type = info.type;
    value.shape = std::move(info.shape);
    value.size_names = std::move(info.size_names);
    graph_.inputs.push_back(id);
  }

  void read_node(std::string_view message) {
    Node node;
    std::vector<std::string> outputs;
    std::vector<std::string_view> inputs, attributes;
    for (Fields f(message); f.next();) {
      switch (f.id()) {
        case 1:
          inputs.push_back(f.bytes());
          break;
        case 2:
          outputs.emplace_back(f.bytes());
          break;
        case 3:
          node.name = f.bytes();
          break;
        case 4:
          node.op = f.bytes();
          break;
        case 5:
          attributes.push_back(f.bytes());
          break;
        case 7:
          node.domain = f.bytes();
          break;
        default:
          break;
      }
    }
    if (node.domain == "ai.onnx") node.domain.clear();
    if (node.name.empty() && !outputs.empty()) node.name = outputs.front();
    for (const std::string_view attribute : attributes) read_attribute(attribute, node);
    for (const std::string_view input : inputs) {
      if (input.empty()) {
        node.inputs.push_back(kNone);
        continue;
      }
      const auto found = ids_.find(std::string(input));
      if (found == ids_.end()) {
        fail(node.title() + " reads " + in_quotes(input) +
             ", which no earlier node, constant or input gives: the name is wrong, or the nodes run in a "
             "circle");
      }
      node.inputs.push_back(found->second);
    }
    if (outputs.empty()) fail(node.title() + " has no output");
    for (const std::string& output : outputs) node.outputs.push_back(output.empty() ? kNone : define(output));
    if (is_constant(node)) return;
    graph_.nodes.push_back(std::move(node));
  }

  void read_attribute(std::string_view message, Node& node) {
    std::string name;
    std::optional<Attribute> value;
    std::vector<std::int64_t> integers;
    std::vector<float> floats;
    std::vector<std::string> texts;
    std::int64_t kind = 0;
    for (Fields f(message); f.next();) {
      switch (f.id()) {
        case 1:
          name = f.bytes();
          break;
        case 2:
          value = f.number();
          break;
        case 3:
          value = f.integer();
          break;
        case 4:
          value = std::string(f.bytes());
          break;
        case 5:
          value = std::make_shared<const Constant>(source_.read(f.bytes()).constant);
          break;
        case 7:
          f.append(floats);
          break;
        case 8:
          f.append(integers);
          break;
        case 9:
          texts.emplace_back(f.bytes());
          break;
        case 20:
          kind = f.integer();
          break;
        default:
          break;  // graphs: only operators that are not known have them
      }
    }
    // Zeros and empty texts may be left out of the file; the kind then says what they are.
    switch (kind) {
      case 1:
        if (!value) value = 0.0f;
        break;
      case 2:
        if (!value) value = std::int64_t{0};
        break;
      case 3:
        if (!value) value = std::string();
        break;
      case 6:
        value = std::move(floats);
        break;
      case 7:
        value = std::move(integers);
        break;
      case 8:
        value = std::move(texts);
        break;
      case 0:  // files before ONNX 1.0
        if (!integers.empty())
          value = std::move(integers);
        else if (!floats.empty())
          value = std::move(floats);
        else if (!texts.empty())
          value = std::move(texts);
        break;
      default:
        break;
    }
    if (value && !node.attributes.emplace(name, std::move(*value)).second)
      fail(node.title() + " has the attribute " + in_quotes(name) + " twice");
  }

  // A Constant becomes the value that it is.
  bool is_constant(const Node& node) {
    if (node.op != "Constant" || !node.domain.empty() || node.outputs.size() != 1 || node.outputs[0] == kNone)
      return false;
    if (node.attributes.size() != 1) fail(node.title() + " must have one attribute, its value");
    const auto& [key, value] = *node.attributes.begin();
    const auto set = [&](Type type, Shape shape, std::vector<double> data) {
      set_constant(node.outputs[0], encode({type, std::move(shape), std::move(data)}));
    };
    if (const auto* tensor = std::get_if<std::shared_ptr<const Constant>>(&value)) {
      set_constant(node.outputs[0], **tensor);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      set(Type::i64, {}, {static_cast<double>(*integer)});
    } else if (const auto* number = std::get_if<float>(&value)) {
      set(Type::f32, {}, {*number});
    } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
      set(Type::i64, {static_cast<std::int64_t>(integers->size())}, {integers->begin(), integers->end()});
    } else if (const auto* numbers = std::get_if<std::vector<float>>(&value)) {
      set(Type::f32, {static_cast<std::int64_t>(numbers->size())}, {numbers->begin(), numbers->end()});
    } else {
      return false;  // texts
    }
    return true;
  }

  TensorSource source_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> ids_;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What `read` gives; its failures name the file.
template <class Read>
auto in_file(const std::string& file, const Read& read) {
  try {
    return read();
  } catch (const protozero::exception& error) {
    throw Error(Status::bad_file, fmt::format("{}: not an ONNX file, or cut short ({})", file, error.what()));
  } catch (const Error& error) {
    throw Error(error.status(), fmt::format("{}: {}", file, error.what()));
  }
}

}  // namespace

Graph read_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                const std::string& folder, const std::string& file) {
  return in_file(file,
                 [&] { return Builder(TensorSource(std::move(owner), folder)).read_model(text_of(bytes)); });
}

Graph read_onnx(const std::string& path) {
  const MappedFile file = map_file(path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return read_onnx(file.bytes, file.owner, folder, path);
}

NamedTensor read_onnx_tensor(const std::string& path) {
  const MappedFile file = map_file(path);
  return in_file(path, [&] { return TensorSource(file.owner, "").read(text_of(file.bytes)); });
}

}  // namespace faltung::network
