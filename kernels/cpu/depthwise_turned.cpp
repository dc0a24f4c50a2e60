// Depthwise in nchw where planes are so small that their rows fill no vectors: some neighbouring channels'
// planes of an image, which are one run of memory, are turned to pixels in a scratch that stays in the
// caches, computed as nhwc is, with channels in lanes, and turned back.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu/affine.hpp"
#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// The planes of a group of channels of an image.
struct GroupPlanes {
  i64 first, channels;  // the first of all images' planes, and how many
  i64 channel;          // of an image
};

GroupPlanes planes_of(const DepthwisePass& pass, i64 item) {
  const i64 groups = ceil_div(pass.out_channels, kDepthwiseGroup);
  const i64 channel = item % groups * kDepthwiseGroup;
  return {item / groups * pass.out_channels + channel, std::min(kDepthwiseGroup, pass.out_channels - channel),
          channel};
}

i64 in_plane(const DepthwisePass& pass) { return pass.in_h * pass.in_w; }
i64 out_plane(const DepthwisePass& pass) { return pass.out_h * pass.out_w; }

// A tensor's element.
template <class T>
T* address_of(const DepthwisePass& pass, T* tensor, i64 index) {
  if (tensor == nullptr) return nullptr;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(tensor) + index * size_of(pass.problem.dtype);
}

// Either holds the pixels of a group, or its planes.
struct TurningBuffers {
  float *here, *other;
};

// Turns planes of the input to pixels, here.
void turn_in(const DepthwisePass& pass, const DepthwiseTensors& tensors, const GroupPlanes& planes,
             TurningBuffers& to) {
  const i64 plane = in_plane(pass), begin = planes.first * plane, size = planes.channels * plane;
  const DType dtype = pass.problem.dtype;
  const void* from = address_of(pass, tensors.in, begin);
  if (tensors.affine) {
    // Of these planes as if they were an image's first.
    through_affine(pass.problem, from, tensors.affine.from(planes.channel), to.here, 0, size);
    from = to.here, std::swap(to.here, to.other);
  }
  if (dtype != DType::f32) {
    convert_to_float(dtype, from, to.here, size);
    from = to.here, std::swap(to.here, to.other);
  }
  transpose_to_float(DType::f32, from, plane, planes.channels, plane, to.here, planes.channels);
}

// Stores the result's planes, which are here, as the epilogue has them.
void store_planes(const DepthwisePass& pass, const DepthwiseTensors& tensors, const GroupPlanes& planes,
                  const float* from) {
  const Epilogue& epilogue = pass.problem.epilogue;
  const i64 plane = out_plane(pass), begin = planes.first * plane;
  float bias[kDepthwiseGroup];
  EpilogueCall end;
  end.from = from;
  if (tensors.bias != nullptr) {
    convert_to_float(pass.problem.dtype, address_of(pass, tensors.bias, planes.channel), bias,
                     planes.channels);
    end.row_bias = bias;
  }
  if (tensors.slopes != nullptr) end.row_slopes = tensors.slopes + planes.channel;
  // Without what differs from channel to channel, all planes are one row.
  const bool alike = end.row_bias == nullptr && end.row_slopes == nullptr;
  end.rows = alike ? 1 : planes.channels, end.columns = alike ? planes.channels * plane : plane;
  end.from_stride = end.to_stride = plane;
  end.residual = address_of(pass, tensors.residual, begin), end.residual_order = epilogue.residual_order;
  end.activation = activation_of(epilogue);
  end.dtype = pass.problem.dtype, end.to = address_of(pass, tensors.out, begin);
  epilogue_store(end);
}

// Of one of the two buffers.
i64 buffer_floats(const DepthwisePass& pass) {
  constexpr i64 kLineFloats = 16;
  return round_up(std::max(in_plane(pass), out_plane(pass)) * pass.turned.front().in_channels, kLineFloats);
}

}  // namespace

std::size_t depthwise_turned_scratch_bytes(const DepthwisePass& pass) {
  return static_cast<std::size_t>(2 * buffer_floats(pass)) * sizeof(float);
}

void depthwise_turned(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch,
                      int worker, int workers) {
  const i64 plane_bytes = in_plane(pass) * size_of(pass.problem.dtype);
  const i64 out_bytes = out_plane(pass) * size_of(pass.problem.dtype);
  const i64 filter = kDepthwiseGroup * pass.problem.r * pass.problem.s;
  auto* const floats = reinterpret_cast<float*>(scratch);
  const Range part = share(pass.problem.n * ceil_div(pass.out_channels, kDepthwiseGroup), worker, workers);
  for (i64 item = part.begin; item < part.end; ++item) {
    const GroupPlanes planes = planes_of(pass, item), next = planes_of(pass, item + 1);
    const bool whole = planes.channels == pass.turned.front().in_channels;
    const DepthwisePass& pixels = whole ? pass.turned.front() : pass.turned.back();
    TurningBuffers buffers{floats, floats + buffer_floats(pass)};
    turn_in(pass, tensors, planes, buffers);
    // The next planes of the input and these of the result are fetched meanwhile.
    DepthwiseAhead ahead;
    ahead.out = address_of(pass, tensors.out, planes.first * out_plane(pass));
    ahead.out_bytes = planes.channels * out_bytes;
    if (item + 1 < part.end) {
      ahead.in = address_of(pass, tensors.in, next.first * in_plane(pass));
      ahead.in_bytes = next.channels * plane_bytes;
    }
    DepthwiseTensors group{};
    group.in = buffers.here, group.out = buffers.other;
    group.packed = tensors.packed + planes.channel / kDepthwiseGroup * filter;
    depthwise_nhwc(pixels, group, &ahead, 0, 1);
    transpose_to_float(DType::f32, buffers.other, planes.channels, out_plane(pass), planes.channels,
                       buffers.here, out_plane(pass));
    store_planes(pass, tensors, planes, buffers.here);
  }
}

}  // namespace faltung
