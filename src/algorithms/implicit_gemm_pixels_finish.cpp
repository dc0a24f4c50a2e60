// How PixelLanes brings sums to the result.
#include <algorithm>

#include "src/algorithms/implicit_gemm_pixels.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {

using i64 = std::int64_t;

// What else the micro-kernel does to a tile of output channels from k on that is stored to `to` in the
// result, or where that is null, which is not finished yet.
void PixelLanes::finish_in_kernel(BrgemmCall& brgemm, const PartCall& call, i64 k, const float* to) const {
  brgemm.row_bias = to == nullptr ? nullptr : call.bias_of(k);
  brgemm.residual0 = brgemm.residual1 = nullptr;
  if (to != nullptr && call.residual != nullptr) {
    brgemm.residual0 = static_cast<const float*>(call.residual) + (to - static_cast<const float*>(call.out));
    brgemm.residual1 = brgemm.residual0 + 7 * brgemm.c_row_stride;
  }
  brgemm.activation = to == nullptr ? ActivationCall{} : activation_of(p_.epilogue);
}

// A panel's pixels between those of other convolutions: one by one, to lines that each of them brings again.
double PixelLanes::scatter_ns(i64 pixels) const {
  if (t_.out_step_w == 1) return 0;
  constexpr double kScatteredNs = 0.5;
  const double brought = 8 * far_byte_ns() * static_cast<double>(t_.out_step_w);
  return (kScatteredNs + brought) * static_cast<double>(pixels * panels_.largest());
}

// Between the pixels of other phases, a step apart: of a transposed convolution with its epilogue.
void PixelLanes::finish_between(const EpilogueCall& end, const PartCall& call, i64 k, i64 offset) const {
  const Epilogue& e = p_.epilogue;
  const i64 step = t_.out_step_w;
  const bool plain = p_.dtype == DType::f32 && call.residual == nullptr && call.bias == nullptr &&
                     e.activation == Activation::none;
  alignas(64) float row[64], residual[64];
  EpilogueCall one;
  one.activation = activation_of(e), one.residual_order = e.residual_order;
  one.rows = 1, one.to = row;
  for (i64 i = 0; i < end.rows; ++i) {
    const float* const from = end.from + i * end.from_stride;
    const i64 first = offset + i * t_.out.stride_c;
    if (plain) {
      float* const to = static_cast<float*>(call.out) + first;
      for (i64 j = 0; j < end.columns; ++j) to[j * step] = from[j];
      continue;
    }
    for (i64 begin = 0; begin < end.columns; begin += 64) {
      one.columns = std::min<i64>(64, end.columns - begin);
      one.from = from + begin;
      const i64 at = first + begin * step;
      if (call.residual != nullptr) {
        for (i64 j = 0; j < one.columns; ++j)
          residual[j] = load_element(p_.dtype, call.residual, at + j * step);
        one.residual = residual;
      }
      one.row_bias = call.bias_of(k + i), one.row_slopes = call.slopes_of(k + i);
      epilogue_store(one);
      for (i64 j = 0; j < one.columns; ++j) store_element(p_.dtype, call.out, at + j * step, row[j]);
    }
  }
}

// Channels of neighbouring columns, of which the last may have a pixel less.
void PixelLanes::finish_phases(const EpilogueCall& end, const PartCall& call, i64 image, i64 k, i64 row,
                               i64 column) const {
  const i64 channels = t_.out_channels / t_.column_phases;
  for (i64 i = 0; i < end.rows; ++i) {
    const i64 channel = (k + i) % channels, phase = (k + i) / channels;
    EpilogueCall one = end;
    one.from += i * end.from_stride, one.rows = 1;
    one.columns = std::min(end.columns, ceil_div(t_.out.w - phase, t_.out_step_w) - column);
    finish_between(one, call, channel, t_.out_offset(image, channel, row, column) + phase);
  }
}

// end.from, rows (channels), columns and strides of from are set; the rest follows from where they go.
void PixelLanes::finish(EpilogueCall& end, const PartCall& call, i64 image, i64 k, i64 row, i64 column,
                        i64 further) const {
  if (t_.column_phases > 1) return finish_phases(end, call, image, k, row, column + further);
  const i64 offset = t_.out_offset(image, k, row, column) + further * t_.out_step_w;
  if (t_.out_step_w > 1) return finish_between(end, call, k, offset);
  end.row_bias = call.bias_of(k), end.row_slopes = call.slopes_of(k);
  end.activation = activation_of(p_.epilogue);
  end.residual_order = p_.epilogue.residual_order;
  end.dtype = p_.dtype, end.to_stride = t_.out.stride_c;
  end.to = static_cast<std::byte*>(call.out) + offset * size_of(p_.dtype);
  if (call.residual != nullptr) {
    end.residual = static_cast<const std::byte*>(call.residual) + offset * size_of(p_.dtype);
  }
  epilogue_store(end);
}

// Of an item and a panel: its weights come from the second-level cache once where the first does not hold
// those of all panels, half of which products hide.
double PixelLanes::weights_ns(i64 panels) const {
  constexpr double kSeen = 0.5;
  const double bytes = 4 * steps() * static_cast<double>(panels_.largest());
  return static_cast<double>(panels) * bytes <= static_cast<double>(cpu_caches().level1) / 2
             ? 0
             : kSeen * near_byte_ns() * bytes;
}

}  // namespace faltung
