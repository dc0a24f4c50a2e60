// One operator of networks as text, and as a network of its own: what `faltung bench --op` times.
//
//   transpose:8x64x56x56:nchw>nhwc:f16     OPERATOR:SIZES[:HOW][:TYPE]
//
// The sizes are the (first) input's. docs/bench.md lists the operators.
#ifndef FALTUNG_TOOLS_OP_HPP_
#define FALTUNG_TOOLS_OP_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/network/graph.hpp"

namespace faltung::tools {

struct Op {
  std::string name;
  network::Shape sizes;
  std::string how;                           // empty where the operator takes nothing
  DType from = DType::f32, to = DType::f32;  // differ where it casts
};

// Each throws Error(bad_problem) in one line for what does not fit.
Op parse_op(std::string_view text);
// A file of one a line, of which the first is the word `op`; blank lines and those that begin with # are
// skipped. Throws Error(bad_file) that names the line.
std::vector<Op> read_ops(const std::string& file);
std::string to_string(const Op& op);
std::string elements_of(const Op& op);  // f16, or f32>f16

// What an operator takes.
struct OpKind {
  std::string_view name;
  std::size_t least_rank, most_rank;
  const char* how;  // an example; null: nothing
};
std::vector<OpKind> op_kinds();

// The operator as a network, with what its constants hold.
struct OpNetwork {
  network::Graph graph;
  double least_bytes = 0;  // what has to be read and written
  // How far a result may be off: `roundings` units of its type, and `growth` of f32's times the largest
  // element of what is read and written. Both 0: not at all.
  int roundings = 0;
  double growth = 0;
};
// is_exact: every element is of f32, which the reference takes as it is; constants hold the same numbers.
// largest: of the inputs' elements.
OpNetwork op_network(const Op& op, std::uint64_t seed, bool is_exact, double largest);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_OP_HPP_
