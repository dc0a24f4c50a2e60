#include "kernels/cpu/direct.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

i64 channel_blocks(const DirectPass& pass) {
  return (pass.out_channels + kDirectChannels - 1) / kDirectChannels;
}

}  // namespace

DirectPass make_direct_pass(const Problem& p) {
  DirectPass pass;
  pass.problem = p;
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups;
  const bool nchw = p.layout == Layout::nchw;
  const i64 of_k = group_c * p.r * p.s, of_c = nchw ? p.r * p.s : 1;
  pass.weight_group = group_k * of_k;
  pass.weight_row = nchw ? p.s : p.s * group_c;
  pass.weight_column = nchw ? 1 : group_c;
  if (p.direction == Direction::forward) {
    pass.rows = forward_slides(p.h, p.p(), p.r, p.stride_h, p.dilation_h, p.pad_top);
    pass.columns = forward_slides(p.w, p.q(), p.s, p.stride_w, p.dilation_w, p.pad_left);
    pass.in_channels = group_c, pass.in_h = p.h, pass.in_w = p.w;
    pass.out_channels = group_k, pass.out_h = p.p(), pass.out_w = p.q();
    pass.weight_out = of_k, pass.weight_in = of_c;
  } else {
    pass.rows = backward_slides(p.p(), p.h, p.r, p.stride_h, p.dilation_h, p.pad_top);
    pass.columns = backward_slides(p.q(), p.w, p.s, p.stride_w, p.dilation_w, p.pad_left);
    pass.in_channels = group_k, pass.in_h = p.p(), pass.in_w = p.q();
    pass.out_channels = group_c, pass.out_h = p.h, pass.out_w = p.w;
    pass.weight_out = of_c, pass.weight_in = of_k;
  }
  return pass;
}

i64 direct_items(const DirectPass& pass) {
  const Problem& p = pass.problem;
  if (p.layout == Layout::nhwc) return p.n * pass.out_h;
  return p.n * p.groups * channel_blocks(pass) * pass.out_h;
}

void direct_item(const DirectPass& pass, const DirectTensors& tensors, i64 item) {
  const i64 row = item % pass.out_h, rest = item / pass.out_h;
  if (pass.problem.layout == Layout::nhwc) return direct_nhwc_row(pass, tensors, rest, row);
  const i64 blocks = channel_blocks(pass), groups = pass.problem.groups;
  direct_nchw_row(pass, tensors, rest / blocks / groups, rest / blocks % groups,
                  rest % blocks * kDirectChannels, row);
}

}  // namespace faltung
