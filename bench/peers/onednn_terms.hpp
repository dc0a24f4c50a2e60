// A problem in oneDNN's terms.
#ifndef FALTUNG_BENCH_PEERS_ONEDNN_TERMS_HPP_
#define FALTUNG_BENCH_PEERS_ONEDNN_TERMS_HPP_

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>

#include "bench/peers/serve.hpp"
#include "src/problem/problem.hpp"

namespace faltung::peers {

using dnnl::memory;

inline memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return memory::data_type::f16;
    case DType::bf16:
      return memory::data_type::bf16;
    case DType::f32:
      break;
  }
  return memory::data_type::f32;
}

// Those of the problem's dimensions, after what stands before them.
inline memory::dims with_spatial(const Problem& p, memory::dims before, memory::dims spatial) {
  before.insert(before.end(), spatial.end() - p.dimensions, spatial.end());
  return before;
}

inline memory::desc describe(const Problem& p, const TensorShape& s) {
  return {with_spatial(p, {s.n, s.c}, {s.d, s.h, s.w}), data_type(p.dtype),
          with_spatial(p, {s.stride_n, s.stride_c}, {s.stride_d, s.stride_h, s.stride_w})};
}

// The filter as the user has it: with a dimension of groups where there are several. Output channels come
// before input channels: a transposed convolution's change places.
inline memory::desc describe_filter(const Problem& p) {
  const TensorShape s = w_shape(p);
  memory::dims sizes = {s.n / p.groups, s.c}, strides = {s.stride_n, s.stride_c};
  if (is_transposed(p)) std::swap(sizes[0], sizes[1]), std::swap(strides[0], strides[1]);
  if (p.groups > 1) {
    sizes.insert(sizes.begin(), p.groups);
    strides.insert(strides.begin(), s.stride_n * (s.n / p.groups));
  }
  return {with_spatial(p, sizes, {s.d, s.h, s.w}), data_type(p.dtype),
          with_spatial(p, strides, {s.stride_d, s.stride_h, s.stride_w})};
}

inline memory::desc any_format(const memory::desc& d) {
  return {d.dims(), d.data_type(), memory::format_tag::any};
}

inline void append_activation(dnnl::post_ops& ops, const Epilogue& e) {
  using dnnl::algorithm;
  const auto append = [&](algorithm what, float alpha = 0, float beta = 0) {
    ops.append_eltwise(1.0f, what, alpha, beta);
  };
  switch (e.activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return append(algorithm::eltwise_relu);
    case Activation::relu6:
      return append(algorithm::eltwise_clip, 0, 6);
    case Activation::leaky_relu:
      return append(algorithm::eltwise_relu, e.slope);
    case Activation::sigmoid:
      return append(algorithm::eltwise_logistic);
    case Activation::silu:
      return append(algorithm::eltwise_swish, 1);
    case Activation::gelu:
      return append(algorithm::eltwise_gelu_erf);
    case Activation::gelu_tanh:
      return append(algorithm::eltwise_gelu_tanh);
    case Activation::hardswish:
      return append(algorithm::eltwise_hardswish);
    case Activation::clip:
      return append(algorithm::eltwise_clip, e.clip.least, e.clip.most);
    default:
      throw Declined(std::string("oneDNN has no operation for ") + name(e.activation));
  }
}

}  // namespace faltung::peers

#endif  // FALTUNG_BENCH_PEERS_ONEDNN_TERMS_HPP_
