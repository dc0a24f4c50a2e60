// A row of depthwise in nhwc, for one instruction set: what its tiles of outputs read and write, and how
// their sums end.
#if defined(FALTUNG_KERNELS_CPU_DEPTHWISE_ROW_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_DEPTHWISE_ROW_INL_HPP_
#undef FALTUNG_KERNELS_CPU_DEPTHWISE_ROW_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_DEPTHWISE_ROW_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/direct-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace depthwise {

using D = FloatTag;
using V = FloatVec;
// Of the 32 registers of AVX-512 a tile of two vectors uses 14 for sums and up to 14 for weights; of the 16
// of AVX2 a tile of one vector uses 7 and up to 7.
constexpr int kPixels = kHasVectors ? 7 : 4;
constexpr int kWide = HWY_TARGET == HWY_AVX3 ? 2 : 1;

// One output row for one column slide. Pitches are in elements.
template <DType kType>
struct Row {
  const Element<kType>* in;  // column 0 of the first tap's row
  i64 taps, in_pitch, in_pixel;
  const float* weights;  // of the first row tap and the first plane
  i64 weight_plane, weight_row, weight_tap;
  const Slide* columns;
  Element<kType>* out;  // of output t = 0
  i64 out_pixel;
  const Element<kType>* bias;
  const Element<kType>* residual;  // as out
  const float* slopes;             // prelu's, or null
  const Epilogue* epilogue;
  i64 planes, multiplier;
};

// What an epilogue has beyond a bias and relu, for a tile's sums in memory:
// held[kPixels][vectors][kFloatLanes] with the bias added. Out of line, once for all filters.
template <DType kType, bool kPart>
HWY_NOINLINE void finish_held(const Row<kType>& row, float* const held, int vectors, i64 valid, i64 offset,
                              i64 channel, std::size_t lanes) {
  const Epilogue& e = *row.epilogue;
  const auto each = [&](const auto& body) HWY_ATTR {
    float* value = held;
    i64 to = offset;
    for (i64 j = 0; j < valid; ++j, to += row.out_pixel) {
      for (int v = 0; v < vectors; ++v, value += kFloatLanes) body(value, to + v * kFloatLanes);
    }
  };
  const auto with_residual = [&](const float* value, i64 to) HWY_ATTR {
    return hn::Add(hn::Load(D(), value), load_lanes<kType, kPart>(row.residual + to, lanes));
  };
  const bool is_added = row.residual != nullptr, after = e.residual_order == ResidualOrder::after_activation;
  if (is_added && !after)
    each([&](float* value, i64 to) HWY_ATTR { hn::Store(with_residual(value, to), D(), value); });
  const ActivationCall activation = activation_of(e);
  const int apart = row.slopes == nullptr ? 1 : vectors;  // channels have slopes of their own
  for (int v = 0; v < apart; ++v) {
    const V a = a_of_channels(activation, row.slopes, channel + v * kFloatLanes,
                              kPart ? static_cast<i64>(lanes) : kFloatLanes);
    activate_vectors(activation, held + v * kFloatLanes, static_cast<int>(valid) * vectors / apart, apart, a);
  }
  each([&](const float* value, i64 to) HWY_ATTR {
    const V result = is_added && after ? with_residual(value, to) : hn::Load(D(), value);
    store_lanes<kType, kPart>(result, row.out + to, lanes);
  });
}

template <DType kType, int kVectors, bool kPart>
HWY_INLINE void finish(const Row<kType>& row, V (&sums)[kPixels][kVectors], i64 t, i64 channel,
                       std::size_t lanes) {
  const D d;
  const i64 valid = std::min<i64>(kPixels, row.columns->count - t);
  const i64 offset = t * row.out_pixel + channel;
  if (row.bias != nullptr) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const V bias = load_lanes<kType, kPart>(row.bias + channel + v * kFloatLanes, lanes);
#pragma GCC unroll 8
      for (int j = 0; j < kPixels; ++j) sums[j][v] = hn::Add(sums[j][v], bias);
    }
  }
  if (row.residual != nullptr || takes_long(row.epilogue->activation)) {
    HWY_ALIGN float held[kPixels * kVectors * kFloatLanes];
#pragma GCC unroll 8
    for (int j = 0; j < kPixels; ++j) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) hn::Store(sums[j][v], d, held + (j * kVectors + v) * kFloatLanes);
    }
    return finish_held<kType, kPart>(row, held, kVectors, valid, offset, channel, lanes);
  }
  // No activation is relu from minus infinity on.
  const float least =
      row.epilogue->activation == Activation::relu ? 0 : -std::numeric_limits<float>::infinity();
  auto* out = row.out + offset;
#pragma GCC unroll 8
  for (int j = 0; j < kPixels; ++j, out += row.out_pixel) {
    if (j >= valid) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      store_lanes<kType, kPart>(vec_at_least(sums[j][v], least), out + v * kFloatLanes, lanes);
  }
}

}  // namespace depthwise
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
