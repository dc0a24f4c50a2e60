// From nodes to steps: what each computes, on which buffers.
#ifndef FALTUNG_SRC_NETWORK_LOWERING_HPP_
#define FALTUNG_SRC_NETWORK_LOWERING_HPP_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/finder/engine.hpp"
#include "src/network/attention_finder.hpp"
#include "src/network/graph.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/operator.hpp"
#include "src/network/reduction.hpp"
#include "src/network/step.hpp"
#include "src/network/weights.hpp"

namespace faltung::network {

struct Buffer {
  std::size_t bytes = 0;
  Place::In in = Place::In::arena;
  std::size_t index = 0;  // of the constant, input or output
};
// A place in a buffer, before the memory plan.
struct Ref {
  int buffer = -1;
  std::size_t offset = 0;
  // Of a slice of an image of more channels: how many that has (Problem::x_pitch). 0: what lies there is
  // whole.
  std::int64_t pitch = 0;
};
struct Draft {
  std::string name;
  Work work;
  std::vector<Ref> reads;
  Ref write;
  std::size_t workspace_bytes = 0;
  // Those of `reads` that the result may overwrite, element by element.
  std::vector<int> in_place;
  Layout layout = Layout::nchw;  // of the result; nchw too where it is no image
  ValueId value = kNone;         // of which the result is, or a part
  Ref value_at;                  // where that lies: in the buffer that is written
  std::optional<Ref> averages;   // what a step of strips writes beside its result
  std::string note;              // what `network explain` tells of it
};

// What a node costs beside turning, in either layout: convolutions.
struct NodeCosts {
  std::int64_t nchw = 0, nhwc = 0;
};

class Lowering {
 public:
  struct Settings {
    EngineImpl& engine;
    Request request;
    Weights& weights;
    const Parallel& planners;  // EngineImpl::planners, while it lowers
    Math math = Math::f32;
    bool choose_layouts = true;  // else nchw throughout
    bool fuse_chains = true;     // elementwise nodes, else one step each
    bool use_slices = true;      // of concatenations, else every part is copied
    bool fuse_gates = true;      // squeeze-excite, on a GPU, else its layers are steps
    bool few_rows = true;        // layers of few rows are steps of their own kind on a GPU, else convolutions
    bool fuse_attention = true;  // on a GPU, else its products and softmax are steps
    bool use_strips = true;      // on the CPU, else every image between two computations is written whole
    bool scale_filters = true;   // on the CPU, of 1x1 convolutions, else the images that they read
  };
  Lowering(const Graph& graph, const Settings& settings);

  // Lowers every node. Throws Error(unsupported) with all nodes that cannot be lowered.
  void run();
  // The same on a GPU without plans, constants and the device itself: whose plans it would ask for. Drafts of
  // convolutions have none.
  std::vector<Problem> survey();

  const Graph& graph() const { return graph_; }
  std::vector<Draft> drafts;
  std::vector<Buffer> buffers;
  std::vector<Bytes> constants;
  int turned = 0;  // values that were turned from one layout to the other

  // ---- for the rules of operators: src/network/lower_<family>.cpp

  Site site(const Node& node) const;
  const Shape& shape(ValueId id) const { return *graph_.at(id).shape; }
  Layout layout_of(const Node& node) const;  // in which it reads and writes images
  bool on_gpu() const { return device_->info().kind == "gpu"; }
  const DeviceInfo& device() const { return device_->info(); }
  // In which layout a value lies already: this one, if in both.
  Layout where(ValueId id, Layout layout) const;
  // A value, turned if it lies in another layout. Values that are no images lie as they do.
  Ref read(ValueId id, Layout layout);
  // Where a node's result goes.
  Ref write(ValueId id, Layout layout);

  // ---- slices (src/network/slices.cpp): images that lie among the channels of a larger one, and rows (of
  // what is no image) that are columns of longer ones

  // As read, but where it lies as a slice in this layout, and whole nowhere, that is given.
  Ref read_slice(ValueId id, Layout layout);
  // Where in the concatenation that wants it a result may be written, for whoever writes slices.
  std::optional<Ref> slice_of_join(ValueId id, Layout layout);
  // The node's result goes there.
  void write_slice(ValueId id, Ref slice, Layout layout);
  // Channels from `begin` on of an image, or columns of rows, where they lie; none where a copy is better.
  std::optional<Ref> slice_of(ValueId id, Layout layout, std::int64_t begin, std::int64_t channels);
  // What begins at an element of a value and lies in one run; none where a copy is better.
  std::optional<Ref> run_of(ValueId id, std::int64_t begin);
  // A concatenation along the channels of images: what is not there already is copied.
  void join(const Node& node, Layout layout);
  // What a copy of the value costs, in nanoseconds.
  std::int64_t copying_cost(ValueId id) const;
  bool lies_whole(ValueId id, Layout layout) const;
  // The pitch of a value that lies as a slice in this layout, and nowhere whole.
  std::optional<std::int64_t> slice_pitch(ValueId id, Layout layout) const;

  Ref scratch(std::size_t bytes);
  Ref constant(const Array& array);  // rounded to its type
  // The result is what lies there; a network's output is copied.
  void alias(ValueId id, Ref ref, Layout layout);
  void emit(const Node& node, Work work, std::vector<Ref> reads, Ref to, Layout layout,
            std::size_t workspace = 0);
  // The cost model's, or as measured, in nanoseconds; a large number where nothing computes it.
  std::int64_t cost(const Problem& problem);
  // A convolution's plan, for the node's weights and bias.
  ConvolutionWork convolution(const Node& node, const Problem& problem, const Request& request,
                              bool packs = true);
  // What a step is thought to take, in milliseconds; 0 where nothing is known.
  double predicted_ms(const Work& work);
  const Settings& settings() const { return settings_; }

 private:
  static constexpr std::int64_t kNever = std::int64_t{1} << 50;  // nanoseconds
  struct Located {
    std::optional<Ref> ref[2];    // by layout
    std::optional<Ref> slice[2];  // where it is one
  };
  // That an image is the first, or another, part of.
  struct Join {
    const Node* node = nullptr;
    std::int64_t begin = 0;  // channel
  };
  // Squeeze-excite: the image, its register in the chain's program, and the layers' nodes; -1: the first is a
  // step of its own.
  struct Gate {
    ValueId image = kNone;
    int image_register = 0, second = -1, first = -1;
  };
  // A convolution by strips (src/network/lower_strips.cpp), with the one before it: first; -1: nothing.
  struct Strips {
    int first = -1;
    bool averages = false;  // the result's, over its pixels, are wanted too
  };
  // A 1x1 convolution that scales its filter (src/network/lower_scaled.cpp), and what would scale its image.
  struct Scaled {
    int product;
    ValueId image, scales;
  };
  struct Averages {
    Ref parts;  // images, strips, channels
    std::int64_t strips;
  };
  // What computes a problem, or null, and in how many nanoseconds: a large number where nothing does.
  struct Priced {
    std::int64_t ns = kNever;
    std::shared_ptr<const Considered> considered;
  };
  Priced price(const Problem& problem) const;
  const Priced& priced(const Problem& problem);
  // By all workers side by side.
  void price_ahead(const std::vector<std::vector<Problem>>& of_nodes);
  void lower(std::size_t node);
  void lower_all();
  void decide();
  void lower_outputs();
  void plan_ahead();
  void choose_layouts();
  void find_strips();
  std::optional<Problem> strips_problem(const Node& node) const;
  StripsWork::Kind strips_kind(const Node& node, const Node* first, const Problem& rows, std::int64_t kept,
                               StripsWork& work);
  void lower_strips(std::size_t node, const Strips& strips);
  bool lower_average(const Node& node);
  bool joins_norm(const Node& norm, const std::vector<const Node*>& chain);  // src/network/lower_norms.cpp
  void find_scaled();
  std::optional<Problem> scaled_problem(const Node& node) const;
  void lower_scaled(std::size_t node, const Scaled& scaled);
  void write_into_joins();  // src/network/joins.cpp
  void find_joins();        // src/network/slices.cpp
  void find_gates();        // src/network/gates.cpp
  void lower_gate(std::size_t last, const Gate& gate);
  void find_layers();  // src/network/layers.cpp
  void lower_layer(std::size_t last, std::size_t layer);
  void find_normalized();  // src/network/normalized.cpp
  bool joins_rows(std::size_t norm, std::size_t last) const;
  NormalizeCall normalized_chain(std::size_t last, std::size_t norm) const;
  void lower_normalized(std::size_t last, std::size_t norm);
  void find_attention();  // src/network/attention.cpp
  void lower_attention(std::size_t last, const Attention& attention);
  Ref place_of_join(const Node& node, Layout layout);
  Ref copy_whole(ValueId id, Ref from, Layout from_layout, Layout layout);
  void prepare(Operand& operand, ValueId id) const;

  std::size_t workspace_of(const Work& work, const Node& node) const;
  // src/network/notes.cpp: why a value is copied for the node that is lowered, or a network's output.
  std::string copying_note(ValueId id, Layout from, Layout to) const;
  std::string layout_note(int node) const;
  std::vector<const Node*> chain(std::size_t last) const;  // of elementwise nodes, by its last

  const Graph& graph_;
  Settings settings_;
  std::shared_ptr<Device> device_;
  bool trusts_all_;                // also kernels that no GPU has shown right
  const std::vector<int> makers_;  // by value: the node that makes it, or -1
  std::vector<Located> located_;
  std::vector<Join> joins_;            // by value
  std::vector<Layout> layouts_;        // by node
  std::vector<NodeCosts> costs_;       // by node, where layouts are chosen
  int lowered_ = -1;                   // the node that is lowered
  std::vector<int> groups_;            // by node: the last node of its elementwise chain; -1: it is none
  std::vector<int> output_of_;         // by value: which of the network's outputs it is
  std::map<std::size_t, Gate> gates_;  // by the last node of the chain that is gated
  std::map<std::size_t, std::size_t> layers_;      // by the node whose result is written, the layer's
  std::map<std::size_t, Attention> attention_;     // by the node whose result is written
  std::map<std::size_t, std::size_t> normalized_;  // by the last node of the chain behind it
  std::map<std::size_t, Strips> strips_;           // by the node of the convolution
  std::map<ValueId, Averages> averages_;           // by the value of which they are
  std::map<std::size_t, Scaled> scaled_;           // by the node of the convolution
  std::set<std::size_t> absorbed_;                 // nodes that another's step computes, before its last
  mutable std::map<ValueId, LazyElements> decoded_;
  mutable std::deque<Operand> operands_;
  std::map<std::string, Priced> priced_;    // by the problem
  std::vector<Problem>* wanted_ = nullptr;  // plans are not made then, but told here
  bool only_plans_ = false;                 // nor steps made that no plan is of and whose weights take long
};

// ---- rules

// How a node's images may lie.
enum class LayoutRule {
  plain,       // nchw
  any,         // all alike
  from_plain,  // it reads nchw and writes either
  to_plain,    // it reads either and writes nchw
};
LayoutRule layout_rule(const Graph& graph, const Node& node);
NodeCosts node_costs(Lowering& lowering, const Node& node, const std::vector<Problem>& problems);
// A convolution's problem in either layout; of other nodes none.
std::vector<Problem> node_problems(const Lowering& lowering, const Node& node);

bool is_image(const Shape& shape);  // four dimensions: those that have a layout
bool is_pixel(const Shape& shape);  // an image of one pixel
// The order of dimensions in memory, and strides by dimension.
// pitch: of a slice, or 0.
Shape strides_in(const Shape& shape, Layout layout, std::int64_t pitch = 0);
// The pitch as far as it matters: 0 where a slice of so many channels is one run.
std::int64_t pitch_of(const Shape& shape, Layout layout, std::int64_t pitch);
// A map's or copy's operand that lies there; the reference becomes its buffer's beginning.
StridedOperand operand_at(Ref& ref, Type type, const Shape& strides);

// Each throws Error(unsupported) for what it does not know.
bool lower_convolution(Lowering& lowering, const Node& node);
// A node "Conv" as a problem. Throws Error(unsupported) for what problems do not have.
Problem forward_problem(const Lowering& lowering, const Node& node, Layout layout);
bool lower_rows(Lowering& lowering, const Node& node);
// Softmax and what standardizes, as one step in this layout, which must fit its axes.
bool normalizes(const Node& node);
RowsCall normalization_call(const Lowering& lowering, const Node& node, Layout layout);
bool lower_movement(Lowering& lowering, const Node& node);
bool lower_product(Lowering& lowering, const Node& node);

// Where groups of channels are standardized: in rows of memory, a step of its own, or in an elementwise
// chain, by moments that were summed before.
enum class GroupNorms { in_rows, in_chains };
// Elementwise nodes by the chain they are computed in: the index of its last node, -1 for other nodes.
std::vector<int> elementwise_chains(const Graph& graph, bool fuse, GroupNorms norms);
bool is_elementwise(const Node& node);
// A GPU turns a chain's image from one layout to the other as it computes, where the image is all that the
// chain reads: which one; kNone where there is none such.
ValueId turned_image(const Graph& graph, const std::vector<const Node*>& nodes);
// In whose first registers is what it reads from outside, in the order in which the nodes read it.
// normalized: of those that standardize groups the one whose result is in its input's register.
struct ChainProgram {
  std::vector<ValueId> inputs;
  std::vector<MapInstruction> code;
};
ChainProgram chain_program(const Lowering& lowering, const std::vector<const Node*>& nodes,
                           const Node* normalized = nullptr);
// Strides of a value that is read as one of shape `to`.
Shape read_strides(const Shape& from, const Shape& to, Layout layout, std::int64_t pitch);
// What `network explain` tells of a step: what a convolution or product has taken over, and what not and why;
// of a chain its nodes.
std::string epilogue_note(const Node& node);
std::string chain_note(const std::vector<const Node*>& nodes);
// The registers that nodes as one step take, of what they read and standardize among them.
std::size_t chain_registers(Lowering& lowering, const std::vector<const Node*>& nodes);
// What standardizes: rows, or groups of an image's channels. In memory these are so many dimensions as one;
// none where something lies between them.
bool is_norm(const Node& node);
std::optional<Extent> standardized_rows(const Lowering& lowering, const Node& node, Layout layout);
// Together with the program of what follows: of inputs, of which x is standardized, and then its mean and
// inverse.
Work standardize_then(const Lowering& lowering, const Node& norm, const Shape& shape, Layout layout,
                      std::vector<StridedOperand> inputs, StridedOperand output,
                      std::vector<MapInstruction> code, int x);
// All nodes of a chain as one step.
void lower_chain(Lowering& lowering, const std::vector<const Node*>& nodes);
// Whether two layouts of a shape are the same in memory.
bool same_memory(const Shape& shape);

// How maps and rows read a value; throws Error(unsupported) for a type that they do not have.
MapElement element_of(const Lowering& lowering, ValueId id, const Node& node);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_LOWERING_HPP_
