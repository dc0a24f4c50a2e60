// Products of matrices: by constant weights as 1×1 convolutions, else a kernel of their own.
#include <algorithm>

#include "src/network/epilogue.hpp"
#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// The rows are the pixels of one image.
void lower_linear(Lowering& lowering, const Node& node) {
  const Graph& graph = lowering.graph();
  const Site site = lowering.site(node);
  if (!graph.is_constant(node.inputs[1])) site.decline("weights that are not constant are not known");
  const i64 n = site.in(1).shape[0], k = site.in(1).shape[1];
  Problem p;
  p.layout = Layout::nhwc;
  p.dtype = dtype_of(graph.at(node.inputs[0]).type, node.title());
  p.math = lowering.settings().math;
  if (p.dtype != DType::f32 && p.math == Math::f32) p.math = Math::of_dtype;
  p.c = k, p.k = n, p.w = elements(site.in(0).shape) / k;
  p.epilogue = epilogue_of(node, p.dtype, {site.has(2), site.has(3)});
  ConvolutionWork work = lowering.convolution(node, p, lowering.settings().request);
  std::vector<Ref> reads{lowering.read(node.inputs[0], Layout::nchw)};
  if (p.epilogue.residual) reads.push_back(lowering.read(node.inputs[3], Layout::nchw));
  lowering.emit(node, std::move(work), std::move(reads), lowering.write(node.outputs[0], Layout::nchw),
                Layout::nchw);
}

void set_elements(ProductCall& call, const Lowering& lowering, const Node& node) {
  call.a_element = element_of(lowering, node.inputs[0], node);
  call.b_element = element_of(lowering, node.inputs[1], node);
  call.y_element = element_of(lowering, node.outputs[0], node);
}

// A matrix that is to be read transposed is copied so first.
Ref as_rows(Lowering& lowering, const Node& node, ValueId id, bool transposed) {
  const Ref from = lowering.read(id, Layout::nchw);
  if (!transposed) return from;
  const Shape& shape = lowering.shape(id);
  const Shape turned{shape[1], shape[0]};
  const Type type = lowering.graph().at(id).type;
  const Ref to = lowering.scratch(static_cast<std::size_t>(elements(shape)) * size_of(type));
  lowering.emit(
      node, make_copy(turned, {type, {1, shape[1]}, 0}, {type, contiguous_strides(turned), 0}, node.title()),
      {from}, to, Layout::nchw);
  return to;
}

void lower_gemm(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  const bool ta = node.integer("transA", 0) != 0, tb = node.integer("transB", 0) != 0;
  const Shape &a = site.in(0).shape, &b = site.in(1).shape;
  const ValueId y = node.outputs[0];
  ProductCall call{a[ta ? 1 : 0], b[tb ? 0 : 1], a[ta ? 0 : 1], {0}, {0}};
  set_elements(call, lowering, node);
  const std::vector<Ref> reads{as_rows(lowering, node, node.inputs[0], ta),
                               as_rows(lowering, node, node.inputs[1], tb)};
  const Ref to = lowering.write(y, Layout::nchw);
  lowering.emit(node, std::move(call), reads, to, Layout::nchw);
  const float alpha = node.number("alpha", 1), beta = node.number("beta", 1);
  if (alpha == 1 && !site.has(2)) return;
  const Shape& shape = lowering.shape(y);
  const StridedOperand all{lowering.graph().at(y).type, contiguous_strides(shape), 0};
  std::vector<MapInstruction> program{{MapOp::affine, 2, 0, 0, 0, alpha, 0}};
  std::vector<StridedOperand> inputs{all};
  std::vector<Ref> sums{to};
  if (site.has(2)) {
    inputs.push_back({site.in(2).type, broadcast_strides(site.in(2).shape, shape), 0});
    sums.push_back(lowering.read(node.inputs[2], Layout::nchw));
    program.push_back({MapOp::affine, 3, 1, 0, 0, beta, 0});
    program.push_back({MapOp::add, 4, 2, 3, 0, 0, 0});
  }
  lowering.emit(node, make_map(shape, inputs, all, program, node.title()), sums, to, Layout::nchw);
}

void lower_matmul(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  Shape a = site.in(0).shape, b = site.in(1).shape;
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const i64 m = a[a.size() - 2], k = a.back(), n = b.back();
  const Shape outer_a(a.begin(), a.end() - 2), outer_b(b.begin(), b.end() - 2);
  const Shape batch = broadcast(outer_a, outer_b);
  ProductCall call{m, n, k, {}, {}};
  set_elements(call, lowering, node);
  Odometer at(batch, {broadcast_strides(outer_a, batch), broadcast_strides(outer_b, batch)});
  for (i64 i = 0; i < elements(batch); ++i, at.next()) {
    call.a.push_back(at.offset(0) * m * k);
    call.b.push_back(at.offset(1) * k * n);
  }
  const std::vector<Ref> reads{lowering.read(node.inputs[0], Layout::nchw),
                               lowering.read(node.inputs[1], Layout::nchw)};
  lowering.emit(node, std::move(call), reads, lowering.write(node.outputs[0], Layout::nchw), Layout::nchw);
}

}  // namespace

bool lower_product(Lowering& lowering, const Node& node) {
  const bool linear = node.domain == "faltung" && node.op == "Linear";
  const bool product = node.domain.empty() && (node.op == "Gemm" || node.op == "MatMul");
  if (!linear && !product) return false;
  for (const ValueId id : node.inputs) {
    if (id == kNone) continue;
    const Type type = lowering.graph().at(id).type;
    if (!is_float(type) || type == Type::f64)
      throw Error(Status::unsupported, node.title() + ": products of elements of type " + name(type));
  }
  if (linear)
    lower_linear(lowering, node);
  else if (node.op == "Gemm")
    lower_gemm(lowering, node);
  else
    lower_matmul(lowering, node);
  return true;
}

}  // namespace faltung::network
