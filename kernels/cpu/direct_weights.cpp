// The filter's gradient as it is defined: for every weight the sum over images and pixels of x times dy. In
// nchw lanes are pixels of a row and a few output channels share the loads of x; in nhwc lanes are input
// channels.
#include <algorithm>

#include "kernels/cpu/direct.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

// The outputs for which a tap at `origin` sees the inside of the input.
TapRange outputs_inside(i64 outputs, i64 size, i64 stride, i64 origin) {
  return taps_inside({1, 0, 1, outputs, 0, 1, 1, origin, stride, size}, 0);
}

// Weights (k … k + count, c, r, s) of a group; c counts within it.
template <DType kType>
void nchw_item(const Problem& p, const Element<kType>* x, const Element<kType>* dy, Element<kType>* dw, i64 k,
               i64 count, i64 c, i64 r, i64 s) {
  const FloatTag d;
  const i64 group_c = p.c / p.groups, channel = k / (p.k / p.groups) * group_c + c;
  const i64 out_h = p.p(), out_w = p.q();
  const i64 top = r * p.dilation_h - p.pad_top, left = s * p.dilation_w - p.pad_left;
  const TapRange rows = outputs_inside(out_h, p.h, p.stride_h, top);
  const TapRange columns = outputs_inside(out_w, p.w, p.stride_w, left);
  V sums[kDirectChannels];
#pragma GCC unroll 4
  for (int o = 0; o < kDirectChannels; ++o) sums[o] = hn::Zero(d);
  for (i64 n = 0; n < p.n; ++n) {
    for (i64 h = rows.begin; h < rows.end; ++h) {
      const auto* xs = x + ((n * p.c + channel) * p.h + h * p.stride_h + top) * p.w + left;
      const auto* ds = dy + ((n * p.k + k) * out_h + h) * out_w;
      for (i64 q = columns.begin; q < columns.end; q += kFloatLanes) {
        const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, columns.end - q));
        V seen;
        if (p.stride_w == 1) {
          seen = load_lanes<kType, true>(xs + q, lanes);
        } else {
          HWY_ALIGN float values[kFloatLanes] = {};
          for (std::size_t i = 0; i < lanes; ++i) {
            values[i] = load_one<kType>(xs + (q + static_cast<i64>(i)) * p.stride_w);
          }
          seen = hn::Load(d, values);
        }
#pragma GCC unroll 4
        for (int o = 0; o < kDirectChannels; ++o) {
          if (o >= count) break;
          sums[o] = hn::MulAdd(seen, load_lanes<kType, true>(ds + o * out_h * out_w + q, lanes), sums[o]);
        }
      }
    }
  }
  for (int o = 0; o < kDirectChannels && o < count; ++o) {
    store_one<kType>(hn::GetLane(hn::SumOfLanes(d, sums[o])),
                     dw + (((k + o) * group_c + c) * p.r + r) * p.s + s);
  }
}

// Weights (k … k + count, r, s, all c).
template <DType kType>
void nhwc_item(const Problem& p, const Element<kType>* x, const Element<kType>* dy, Element<kType>* dw, i64 k,
               i64 count, i64 r, i64 s) {
  const FloatTag d;
  const i64 group_c = p.c / p.groups, first = k / (p.k / p.groups) * group_c;
  const i64 out_h = p.p(), out_w = p.q();
  const i64 top = r * p.dilation_h - p.pad_top, left = s * p.dilation_w - p.pad_left;
  const TapRange rows = outputs_inside(out_h, p.h, p.stride_h, top);
  const TapRange columns = outputs_inside(out_w, p.w, p.stride_w, left);
  for (i64 c = 0; c < group_c; c += kFloatLanes) {
    const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, group_c - c));
    V sums[kDirectChannels];
#pragma GCC unroll 4
    for (int o = 0; o < kDirectChannels; ++o) sums[o] = hn::Zero(d);
    for (i64 n = 0; n < p.n; ++n) {
      for (i64 h = rows.begin; h < rows.end; ++h) {
        const auto* xs = x + ((n * p.h + h * p.stride_h + top) * p.w + left) * p.c + first + c;
        const auto* ds = dy + (n * out_h + h) * out_w * p.k + k;
        for (i64 q = columns.begin; q < columns.end; ++q) {
          const auto* from = xs + q * p.stride_w * p.c;
          const V seen = lanes == kFloatLanes ? load_vec<kType>(from) : load_lanes<kType, true>(from, lanes);
#pragma GCC unroll 4
          for (int o = 0; o < kDirectChannels; ++o) {
            if (o >= count) break;
            sums[o] = hn::MulAdd(seen, hn::Set(d, load_one<kType>(ds + q * p.k + o)), sums[o]);
          }
        }
      }
    }
    for (int o = 0; o < kDirectChannels && o < count; ++o) {
      store_lanes<kType, true>(sums[o], dw + (((k + o) * p.r + r) * p.s + s) * group_c + c, lanes);
    }
  }
}

template <DType kType>
void run_item(const Problem& p, const void* x, const void* dy, void* dw, i64 item) {
  const auto* xs = static_cast<const Element<kType>*>(x);
  const auto* ds = static_cast<const Element<kType>*>(dy);
  auto* to = static_cast<Element<kType>*>(dw);
  const i64 s = item % p.s, r = item / p.s % p.r, rest = item / p.s / p.r;
  const i64 group_k = p.k / p.groups, blocks = (group_k + kDirectChannels - 1) / kDirectChannels,
            group_c = p.c / p.groups;
  const i64 block = p.layout == Layout::nhwc ? rest : rest / group_c;
  const i64 k = block / blocks * group_k + block % blocks * kDirectChannels;
  const i64 count = std::min<i64>(kDirectChannels, group_k - block % blocks * kDirectChannels);
  if (p.layout == Layout::nhwc) {
    nhwc_item<kType>(p, xs, ds, to, k, count, r, s);
  } else {
    nchw_item<kType>(p, xs, ds, to, k, count, rest % group_c, r, s);
  }
}

}  // namespace

void DirectWeightsItem(const Problem& p, const void* x, const void* dy, void* dw, i64 item) {
  with_dtype(p.dtype, [&](auto type) { run_item<type>(p, x, dy, dw, item); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DirectWeightsItem);

std::int64_t direct_weights_items(const Problem& p) {
  const std::int64_t blocks = (p.k / p.groups + kDirectChannels - 1) / kDirectChannels * p.groups;
  return blocks * p.r * p.s * (p.layout == Layout::nhwc ? 1 : p.c / p.groups);
}

void direct_weights_item(const Problem& problem, const void* x, const void* dy, void* dw, std::int64_t item) {
  HWY_DYNAMIC_DISPATCH(DirectWeightsItem)(problem, x, dy, dw, item);
}

}  // namespace faltung
#endif  // HWY_ONCE
