// From the network as it was written to the one that is scheduled: each pass makes a graph of a graph that
// computes the same, to rounding. docs/networks.md follows an example through all of them.
#ifndef FALTUNG_SRC_NETWORK_PASSES_HPP_
#define FALTUNG_SRC_NETWORK_PASSES_HPP_

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/parallel.hpp"
#include "src/network/graph.hpp"

namespace faltung::network {

struct Pass {
  const char* name;
  Graph (*run)(Graph, const Parallel&);
};

// Done once, whatever the sizes: constants, weights and patterns.
std::span<const Pass> unsized_passes();
// Done for given sizes: all shapes are known.
std::span<const Pass> sized_passes();
// The names of those that a kind of device does without.
std::set<std::string> passes_off(std::string_view device_kind);
// Those of them whose names are not in `off`.
Graph run_passes(std::span<const Pass> passes, Graph graph, const std::set<std::string>& off = {},
                 const Parallel& parallel = Parallel(1));

// Computes what depends on constants alone, as far as the memory it takes is in proportion to the file's.
// Shapes and types are told where they follow.
Graph fold_constants(Graph graph);
// The graph for inputs of these shapes, one an input: every shape is known, and what depends on shapes alone
// is constant. Throws Error(bad_problem) where a size does not fit the network's input, Error(unsupported)
// with all nodes whose results' shapes depend on what the inputs hold.
Graph with_sizes(Graph graph, const std::vector<Shape>& shapes);

// Each of unsized_passes() and sized_passes(), which tell them in order.
Graph fold_scales(Graph graph);  // BatchNormalization, Mul, Add, … by channel, into weights and biases
// Gemm and MatMul by a constant become faltung.Linear.
Graph make_products(Graph graph, const Parallel& parallel);
Graph split_upsampling(Graph graph);  // transposed convolutions to few channels: a product, and a copy; CPU's
Graph find_patterns(Graph graph);     // SiLU, HardSwish, GELU, LayerNormalization in parts; what does nothing
Graph unroll_recurrences(Graph graph);  // LSTM, GRU and RNN by steps
// Normalizations become faltung.Standardize and elementwise nodes; logarithms of sums these and sums.
Graph split_norms(Graph graph);
Graph join_group_norms(Graph graph);  // rows of groups of channels, on the image itself
Graph fuse_epilogues(Graph graph);    // residual, activation and pool into the convolution or product before

// Whether no element of a constant of f32 is infinite in the type.
bool is_finite_in(Type type, const std::shared_ptr<const Constant>& constant);
using FiniteIn = std::function<bool(Type, const std::shared_ptr<const Constant>&)>;

// After all of them: values of f32 are of this type from here on, but the network's inputs and outputs, sums
// that may be large, those with a name among `kept`, and what a node makes by weights that the type does not
// hold. Nodes that cast stand where the two meet.
Graph with_precision(Graph graph, DType dtype, const std::set<std::string>& kept = {},
                     const FiniteIn& finite_in = is_finite_in);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_PASSES_HPP_
