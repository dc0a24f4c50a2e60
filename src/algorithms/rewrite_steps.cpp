#include "src/algorithms/rewrite_steps.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "src/algorithms/gpu.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// ------------------------------------------------------------------------------------------------- CPU

// A copy made ready: an element's place is a sum of four parts, one for each of its indices; and along the
// inner tensor's fast axis, runs of elements lie side by side in both tensors.
struct Prepared {
  explicit Prepared(const TensorCopy& copy) : copy(copy) {
    for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) {
      for (i64 i = 0; i < copy.map.size[axis]; ++i) parts[axis].push_back(copy.map.along(axis, i));
    }
    const bool channels_lie_together = copy.inner.stride_c == 1;
    slow = channels_lie_together ? kAxisW : kAxisC, fast = channels_lie_together ? kAxisC : kAxisW;
    const i64 strides[] = {copy.outer.stride_n, copy.outer.stride_c, copy.outer.stride_h,
                           copy.outer.stride_w};
    const Digit& fastest = copy.map.digits[fast].front();
    along = fastest.to;
    run = fastest.step == 1 && strides[along] == 1 ? fastest.count : 1;
  }
  const std::optional<Index>& part(Axis axis, i64 i) const {
    return parts[axis][static_cast<std::size_t>(i)];
  }

  TensorCopy copy;
  std::array<std::vector<std::optional<Index>>, kAxes> parts;
  Axis slow, fast, along;
  i64 run;  // of so many elements, which move the outer index along one axis
};

// Elements [0, count) of a run, of which the first is at `there`; base is that of the outer tensor's memory.
template <class Element>
void copy_run(const Prepared& p, const Index& there, i64 count, const Element* from, Element* to, i64 inner) {
  const IndexMap& map = p.copy.map;
  bool inside = true;
  for (std::size_t axis = 0; axis < kAxes; ++axis)
    inside = inside && (axis == p.along || (there[axis] >= 0 && there[axis] < map.outer_size[axis]));
  const bool gathers = p.copy.way == CopyWay::gather;
  if (!inside) {
    if (gathers) std::fill_n(to + inner, count, Element(0));
    return;
  }
  const i64 at = there[p.along], begin = std::clamp<i64>(-at, 0, count);
  const i64 end = std::clamp<i64>(map.outer_size[p.along] - at, begin, count);
  const i64 outer = p.copy.outer.offset(there[kAxisN], there[kAxisC], there[kAxisH], there[kAxisW]) + begin;
  if (gathers) {
    std::fill(to + inner, to + inner + begin, Element(0));
    std::copy_n(from + outer, end - begin, to + inner + begin);
    std::fill(to + inner + end, to + inner + count, Element(0));
  } else {
    std::copy_n(from + inner + begin, end - begin, to + outer);
  }
}

// One inner row (n, h).
template <class Element>
void copy_row(const Prepared& p, i64 n, i64 h, const Element* from, Element* to) {
  const IndexMap& map = p.copy.map;
  const auto &part_n = p.part(kAxisN, n), &part_h = p.part(kAxisH, h);
  for (i64 s = 0; s < map.size[p.slow]; ++s) {
    const auto& part_s = p.part(p.slow, s);
    for (i64 f = 0; f < map.size[p.fast]; f += p.run) {
      const i64 c = p.fast == kAxisC ? f : s;  // a run is of one group
      const auto& part_f = p.part(p.fast, f);
      const i64 count = std::min(p.run, map.size[p.fast] - f);
      const i64 inner = p.fast == kAxisC ? p.copy.inner.offset(n, f, h, s) : p.copy.inner.offset(n, s, h, f);
      if (!part_n || !part_h || !part_s || !part_f || !map.diagonal.has({n, c, 0, 0})) {
        if (p.copy.way == CopyWay::gather) std::fill(to + inner, to + inner + count, Element(0));
        continue;
      }
      Index there{};
      for (std::size_t axis = 0; axis < kAxes; ++axis)
        there[axis] = map.start[axis] + (*part_n)[axis] + (*part_h)[axis] + (*part_s)[axis] + (*part_f)[axis];
      copy_run(p, there, count, from, to, inner);
    }
  }
}

template <class Element>
void copy_all(const Prepared& p, const std::byte* from, std::byte* to, const Parallel& parallel) {
  const i64 rows = p.copy.map.size[kAxisH];
  parallel.each(p.copy.map.size[kAxisN] * rows, [&](i64 row, int) {
    copy_row(p, row / rows, row % rows, reinterpret_cast<const Element*>(from),
             reinterpret_cast<Element*>(to));
  });
}

// ------------------------------------------------------------------------------------------------- GPU

constexpr int kThreads = 256, kMostDigits = 8;

// As in kernels/gpu/copy_by_map.cl.
struct CopySizes {
  i64 elements;        // of the inner tensor
  i64 strides[kAxes];  // of the outer one
  std::int32_t size[kAxes], outer_size[kAxes], start[kAxes];
  std::int32_t count[kMostDigits], step[kMostDigits];
  std::int32_t diagonal_k, diagonal_c, diagonal_groups;
  std::int32_t even;
};

std::int32_t narrow(i64 value) {
  constexpr i64 kMost = std::numeric_limits<std::int32_t>::max() / 2;
  if (value < -kMost || value > kMost) {
    throw Error(Status::unsupported,
                "a size of " + std::to_string(value) + " is beyond what copying kernels count");
  }
  return static_cast<std::int32_t>(value);
}

CopySizes sizes_of(const TensorCopy& copy) {
  CopySizes z{};
  const TensorShape& o = copy.outer;
  z.elements = copy.inner.elements();
  const i64 strides[] = {o.stride_n, o.stride_c, o.stride_h, o.stride_w};
  std::copy(std::begin(strides), std::end(strides), z.strides);
  const Diagonal& diagonal = copy.map.diagonal;
  z.diagonal_k = narrow(diagonal.k), z.diagonal_c = narrow(diagonal.c);
  z.diagonal_groups = narrow(diagonal.groups);
  std::size_t digits = 0;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    z.size[axis] = narrow(copy.map.size[axis]);
    z.outer_size[axis] = narrow(copy.map.outer_size[axis]);
    z.start[axis] = narrow(copy.map.start[axis]);
    for (const Digit& digit : copy.map.digits[axis]) {
      if (digits == kMostDigits) throw Error(Status::internal, "a map has too many digits to copy by");
      z.count[digits] = narrow(digit.count);
      z.step[digits++] = narrow(digit.step);
    }
  }
  return z;
}

// Which digit of which inner index moves which outer one; how far are arguments.
std::string digits_text(const IndexMap& map) {
  constexpr char kLetters[] = "nchw";
  std::string text;
  int number = 0;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    for (const Digit& digit : map.digits[axis]) {
      text += std::string(text.empty() ? "" : " ") + "D(" + kLetters[axis] + ", " + kLetters[digit.to] +
              ", " + std::to_string(number++) + ")";
    }
  }
  return text;
}

TensorCopy copy_of(CopyWay way, const Problem& outer, const Rewrite& rewrite, Operand operand) {
  const IndexMap& map = rewrite.map(operand);
  return {way,         map,         operand_shape(rewrite.inner, operand), operand_shape(outer, map.of),
          outer.dtype, outer.layout};
}

}  // namespace

std::size_t TensorCopy::inner_bytes() const {
  return static_cast<std::size_t>(inner.elements() * size_of(dtype));
}

TensorCopy gather_of(const Problem& outer, const Rewrite& rewrite, Operand operand) {
  return copy_of(CopyWay::gather, outer, rewrite, operand);
}

TensorCopy scatter_of(const Problem& outer, const Rewrite& rewrite) {
  return copy_of(CopyWay::scatter, outer, rewrite, result_operand(rewrite.inner.direction));
}

Step copy_call(const std::string& name, const TensorCopy& copy, Slot from, Slot to) {
  return call(name, {from.place}, {to.place},
              [prepared = std::make_shared<const Prepared>(copy), from, to](const Memory& m,
                                                                            const Parallel& parallel) {
                const auto copy_elements =
                    size_of(prepared->copy.dtype) == 4 ? copy_all<std::uint32_t> : copy_all<std::uint16_t>;
                copy_elements(*prepared, m.at(from), m.at(to), parallel);
              });
}

Step copy_launch(const std::string& name, const std::string& kernel, const TensorCopy& copy, Slot from,
                 Slot to, const DeviceInfo& device) {
  const i64 largest = std::max(copy.inner.elements(), copy.outer.elements());
  const bool channels_lie_together = copy.inner.stride_c == 1;
  const gpu::Constants constants = {
      {"THREADS", std::to_string(kThreads)},
      {"BYTES", std::to_string(size_of(copy.dtype))},
      {"WIDE", largest > std::numeric_limits<std::int32_t>::max() / 2 ? "1" : "0"},
      {copy.way == CopyWay::gather ? "GATHER" : "SCATTER", "1"},
      {channels_lie_together ? "INNER_nhwc" : "INNER_nchw", "1"},
      {"DIAGONAL", copy.map.diagonal.groups > 1 ? "1" : "0"},
      {"DIGITS(D)", digits_text(copy.map)}};
  return launch(name, gpu::source(device, kernel, "copy_by_map.cl", "copy_by_map", constants),
                gpu::one_dimension(copy.inner.elements(), kThreads),
                {in(from), out(to), value(sizes_of(copy))});
}

Step turn_planes_launch(const std::string& name, const std::string& kernel, const Problem& p,
                        const TensorCopy& copy, Slot from, Slot to, const DeviceInfo& device) {
  constexpr i64 kPixels = 64, kBytes = 128, kMostBlocks = 65535;  // of a block; along a grid
  const TensorShape& shape = copy.inner;
  const i64 plane = shape.h * shape.w;
  return launch(name,
                gpu::source(device, kernel, "turn_planes.cu", "turn_planes",
                            gpu::constants(p, {{"THREADS", std::to_string(kThreads)}})),
                gpu::grid(ceil_div(plane, kPixels), ceil_div(shape.c, kBytes / size_of(p.dtype)),
                          std::min(shape.n, kMostBlocks), kThreads),
                {in(from), out(to), gpu::number(shape.n), gpu::number(shape.c), gpu::number(plane)});
}

}  // namespace faltung
