// How PixelLanes copies an item's input to where its tiles read it.
#include <algorithm>

#include "src/algorithms/implicit_gemm_pixels.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

using i64 = std::int64_t;

void PixelLanes::stage(const WorkItem& item, i64 channel0, i64 channels, const PartCall& call, float* to,
                       const PhaseStrides& strides) const {
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  patch.rows = (item.rows - 1) * t_.step_h + t_.extent_h();
  patch.column0 = item.column0 * t_.step_w + t_.min_w();
  patch.columns = (item.columns - 1) * t_.step_w + t_.extent_w();
  patch.channels = channels;
  const i64 channel = item.group * t_.in_channels + channel0;
  patch.affine = call.affine.from(channel);
  for (i64 plane = 0; plane < planes(); ++plane) {
    for (i64 image = 0; image < item.images; ++image) {
      const i64 depth = t_.depth_of(item.image0 + image, plane);
      patch.to = to + plane * plane_floats(strides) + image * phase_rows(item.rows) * strides.row;
      // Beyond the tensor's depth all of it is padding.
      const bool inside = depth >= 0 && depth < t_.in.d;
      patch.height = inside ? t_.in.h : 0;
      patch.from = static_cast<const std::byte*>(call.in) +
                   t_.in_offset(item.image0 + image, inside ? depth : 0, channel, 0, 0) * size_of(p_.dtype);
      stage_planes(patch, t_.in.stride_c, strides);
    }
  }
}

// An item's pixels in the first channel of a cut, where they are a run of memory.
const float* PixelLanes::run_of(const WorkItem& item, i64 cut, const PartCall& call) const {
  return static_cast<const float*>(call.in) +
         t_.in.offset(item.image0, item.group * t_.in_channels + reductions_.begin(cut),
                      call.first_row + item.row0, item.column0);
}

// Of a lone tap: what a register tile reads in a row, a step after the other.
void PixelLanes::stage_in_tiles(const WorkItem& item, i64 cut, const PartCall& call, float* to,
                                float* lines) const {
  const i64 pixels = item.rows * item.columns, channels = reductions_.size(cut);
  const bool as_it_lies = is_a_run(item.rows);
  PhaseStrides dense{t_.step_h, t_.step_w, 1, 1, round_up(pixels, 16), pixels, item.columns};
  const EvenSplit vectors = tiles(pixels);
  const i64 together = as_it_lies ? channels : kLineChannels;
  for (i64 c = 0; c < channels; c += together) {
    TileStageCall line;
    line.channels = std::min(together, channels - c);
    if (as_it_lies) {
      line.from = run_of(item, cut, call);
      line.from_channel = t_.in.stride_c;
    } else {
      stage(item, reductions_.begin(cut) + c, line.channels, call, lines, dense);
      line.from = lines, line.from_channel = dense.channel;
    }
    i64 part = 0;
    vectors.each_size([&](i64 size, i64 count) {
      const i64 width = size * lanes_, begin = vectors.begin(part) * lanes_;
      part += count;
      TileStageCall some = line;
      some.from += begin, some.columns = std::min(pixels, vectors.begin(part) * lanes_) - begin;
      some.to = to + begin * channels + c * width;
      stage_tiles(some, width, channels * width);
    });
  }
}

// Vectors go beyond the last row's end. What they find there is not stored, but it is multiplied: where stale
// memory reads as denormals that takes an assist each time, and a signalling NaN raises a flag.
void PixelLanes::clear_ends(float* patch, const PhaseStrides& strides) const {
  const i64 used = planes() * plane_floats(strides), channels = reductions_.largest();
  for (i64 c = 0; c < channels; ++c) {
    std::fill(patch + c * strides.channel + used, patch + (c + 1) * strides.channel, 0.0f);
  }
  std::fill_n(patch + channels * strides.channel, kBeyond, 0.0f);
}

}  // namespace faltung
