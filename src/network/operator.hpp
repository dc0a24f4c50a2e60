// The operators that are known: one row each, with its shape rule and its reference in doubles.
#ifndef FALTUNG_SRC_NETWORK_OPERATOR_HPP_
#define FALTUNG_SRC_NETWORK_OPERATOR_HPP_

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/network/graph.hpp"

namespace faltung::network {

// A constant's elements, decoded when they are first looked at: most rules look at shapes alone.
class LazyElements {
 public:
  explicit LazyElements(std::shared_ptr<const Constant> constant) : constant_(std::move(constant)) {}
  const double* get() {
    if (!decoded_) decoded_ = decode(*constant_);
    return decoded_->data.data();
  }

 private:
  std::shared_ptr<const Constant> constant_;
  std::optional<Array> decoded_;
};

// Where an operand's elements are: decoded already, or by whoever looks first. The one or the other outlives
// it.
class Elements {
 public:
  Elements(const double* decoded = nullptr) : decoded_(decoded) {}  // NOLINT: as a pointer to them
  explicit Elements(LazyElements* lazy) : lazy_(lazy) {}
  operator const double*() const { return lazy_ != nullptr ? lazy_->get() : decoded_; }  // NOLINT

 private:
  const double* decoded_ = nullptr;
  LazyElements* lazy_ = nullptr;
};

// What a node reads. data: null where the elements are not known.
struct Operand {
  Type type = Type::unknown;
  Shape shape;
  Elements data;
  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
};

// What a node writes.
struct Result {
  Type type;
  Shape shape;
};

// A node with what is known of its inputs: what the functions of its operator are asked about. All of them
// throw Error(bad_file) that names the node for what its operator does not allow, and Error(unsupported) for
// what faltung lacks.
class Site {
 public:
  Site(const Node& node, std::int64_t opset, std::vector<const Operand*> inputs)
      : node_(node), opset_(opset), inputs_(std::move(inputs)) {}

  const Node& node() const { return node_; }
  std::int64_t opset() const { return opset_; }
  std::size_t count() const { return inputs_.size(); }  // of the inputs, those left out among them
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const Operand& in(std::size_t i) const;
  // An input's elements, which must be known, as numbers or whole numbers.
  std::vector<double> numbers(std::size_t i) const;
  std::vector<std::int64_t> integers(std::size_t i) const;
  // The attribute of older versions, else the input of newer ones; none where neither is given.
  std::optional<std::vector<std::int64_t>> integers(std::string_view attribute, std::size_t i) const;
  // An axis counted from the end is counted from the front. rank: of what it is an axis of.
  std::size_t axis(std::int64_t axis, std::int64_t rank) const;
  std::vector<std::size_t> axes(const std::vector<std::int64_t>& axes, std::int64_t rank) const;

  void require(bool holds, const std::string& what) const {
    if (!holds) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void decline(const std::string& what) const;

 private:
  const Node& node_;
  std::int64_t opset_;
  std::vector<const Operand*> inputs_;
};

struct Operator {
  std::string_view name;  // as Node has it; with its domain where that is not ONNX's
  int least, most;        // inputs
  std::vector<Result> (*shapes)(const Site&);
  // The outputs have their shapes already. Every input's elements are known.
  void (*evaluate)(const Site&, std::vector<Array>& outputs);
};

inline constexpr int kAny = 1 << 20;  // as many inputs as one likes

// Null for one that is not known.
const Operator* find_operator(const Node& node);
std::vector<const Operator*> all_operators();
// Throws Error(unsupported) that lists all nodes whose operators are not known, or Error(bad_file) for a node
// with too few or too many inputs.
void check_operators(const Graph& graph);

// The rows, by family: src/network/operators_<family>.cpp.
std::span<const Operator> elementwise_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> join_operators();
std::span<const Operator> resize_operators();
std::span<const Operator> reduce_operators();
std::span<const Operator> normalize_operators();
std::span<const Operator> convolution_operators();
std::span<const Operator> product_operators();
std::span<const Operator> recurrent_operators();

// Shape rules of many operators: as the first input, and its type in another shape.
inline std::vector<Result> like_input(const Site& s) { return {{s.in(0).type, s.in(0).shape}}; }
inline std::vector<Result> with_shape(const Site& s, Shape shape) {
  return {{s.in(0).type, std::move(shape)}};
}

// ONNX's Max and Min: a NaN stays.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
inline double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }

// The most elements of a constant that a rule looks at.
inline constexpr std::int64_t kSmall = 1 << 16;

// For the shape rules and references: every index of a shape in order, with the offset into several tensors.
class Odometer {
 public:
  Odometer(Shape shape, std::vector<Shape> strides)
      : shape_(std::move(shape)),
        strides_(std::move(strides)),
        index_(shape_.size()),
        offset_(strides_.size()) {}
  std::int64_t offset(std::size_t tensor = 0) const { return offset_[tensor]; }
  const Shape& index() const { return index_; }
  void next();

 private:
  Shape shape_;
  std::vector<Shape> strides_;
  Shape index_;
  std::vector<std::int64_t> offset_;
};

// Strides of a tensor of shape `from` that is read as one of shape `to`: 0 where it is broadcast.
Shape broadcast_strides(const Shape& from, const Shape& to);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_OPERATOR_HPP_
