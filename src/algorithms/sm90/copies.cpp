#include "src/algorithms/sm90/copies.hpp"

#include <algorithm>
#include <cstddef>

#include "kernels/sm90/turned.h"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;
using gpu::number;

constexpr int kThreads = 256;

std::string constant(const char* name, i64 value) {
  return "constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

bool is_planes(const TensorCopy& copy) { return copy.outer_layout == Layout::nchw; }

// A kernel named as its file. It may start while the one before it runs.
Step tuned(const std::string& name, const std::string& kernel, const std::string& constants, i64 blocks,
           std::vector<StepArgument> arguments) {
  jit::Source source;
  source.name = source.entry = kernel;
  source.text = constants + "#include \"kernels/sm90/" + kernel + ".cu\"\n";
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(blocks);
  shape.block[0] = kThreads;
  shape.overlaps_previous = true;
  return launch(name, std::move(source), shape, std::move(arguments));
}

// A map's parts: how an inner channel falls into digits, and what the inner rows and columns step over.
struct CopyForm {
  explicit CopyForm(const TensorCopy& copy)
      : channels(copy.map.digits[kAxisC]),
        row(copy.map.digits[kAxisH].front()),
        column(copy.map.digits[kAxisW].front()) {}
  const std::vector<Digit>& channels;
  const Digit &row, &column;
  i64 count(std::size_t digit) const { return digit < channels.size() ? channels[digit].count : 1; }
};

// What gathers few channels knows of the tensors.
std::string gathered(const TensorCopy& copy) {
  return constant("kBytes", size_of(copy.dtype)) + constant("kNchw", is_planes(copy)) +
         constant("kC", CopyForm(copy).count(0)) + constant("kTo", copy.inner.c);
}

// Folded rows.
Step gather_rows(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                 const DeviceInfo& device) {
  const CopyForm form(copy);
  const Digit& taps = form.channels[1];
  const Index& outer = copy.map.outer_size;
  const i64 lines = outer[kAxisN] * outer[kAxisH];
  // Several lines a block, where that leaves every multiprocessor some blocks.
  const i64 most_blocks = device.units * 8;
  const i64 group = lines >= most_blocks * 4 ? 8 : std::max<i64>(1, lines / most_blocks);
  return tuned(
      name, "gather_rows", gathered(copy) + constant("kTaps", taps.count) + constant("kDilation", taps.step),
      std::min(ceil_div(lines, group), most_blocks),
      {in(from), out(to), number(lines), number(outer[kAxisH]), number(outer[kAxisW]), number(copy.inner.w),
       number(form.column.step), number(-copy.map.start[kAxisW]), number(group)});
}

// Blocks of pixels.
Step space_to_depth(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                    const DeviceInfo& device, i64 planes) {
  const CopyForm form(copy);
  const Index& outer = copy.map.outer_size;
  const i64 pixels = copy.inner.n * copy.inner.h * copy.inner.w;
  return tuned(name, "space_to_depth",
               gathered(copy) + constant("kDown", form.count(2)) + constant("kAcross", form.count(1)) +
                   constant("kVolumes", planes > 1),
               std::min<i64>((pixels - 1) / kThreads + 1, device.units * 32),
               {in(from), out(to), number(pixels), number(outer[kAxisH]), number(outer[kAxisW]),
                number(copy.inner.h), number(copy.inner.w), number(-copy.map.start[kAxisH]),
                number(-copy.map.start[kAxisW]), number(planes)});
}

// So far the rows of the last digit lie from the first one.
i64 last_row(const TensorCopy& copy) {
  i64 last = 0;
  for (const Digit& digit : copy.map.digits[kAxisH]) last += (digit.count - 1) * digit.step;
  return last;
}

// Whole planes, small ones that no wider load divides: so many channels a block, as shared memory has room.
i64 channels_of_whole(i64 c, i64 pixels, int element) {
  constexpr i64 kShared = 64 * 33 * 4;  // as in to_nhwc.cuh
  const i64 line = 128 / element, most = kShared / (pixels * element) / line * line;
  return round_up(ceil_div(c, ceil_div(c, most)), line);
}

// Planes through shared memory, all of their pixels or those that strides take: what the kernel is told.
struct Turn {
  std::string constants;  // each behind `prefix`
  StepArgument argument;
  i64 blocks;
};
Turn turn_of(const TensorCopy& copy, Slot from, Slot to, const std::string& prefix) {
  constexpr i64 kMostPixels = 64;
  const CopyForm form(copy);
  const int element = size_of(copy.dtype);
  const i64 plane = copy.outer.h * copy.outer.w, pixels = copy.inner.h * copy.inner.w;
  const bool thin = form.row.step != 1 || form.column.step != 1;
  const i64 step = form.column.step;
  const auto& rows = copy.map.digits[kAxisH];
  const bool deep = rows.size() > 1;
  i64 v = 1;  // pixels a load
  for (const i64 wider : {2, 4}) {
    const bool divides =
        thin ? copy.inner.w % wider == 0 && copy.outer.w % (wider * step) == 0 : pixels % wider == 0;
    if (divides && (step == 1 || step == 2) && wider * step * element <= 16) v = wider;
  }
  // Tiles of up to 64 pixels, alike.
  const i64 across = ceil_div(pixels, kMostPixels), tile = round_up(ceil_div(pixels, across), v);
  const bool whole = v == 1 && across == 1 && plane == pixels && form.count(0) == copy.inner.c;
  const i64 channels = whole ? channels_of_whole(copy.inner.c, pixels, element) : 128 / element;
  const i64 blocks = copy.inner.n * across * ceil_div(copy.inner.c, channels);
  if (whole) v = 0;
  Turned turned{};
  turned.c = narrow(form.count(0)), turned.c_to = narrow(copy.inner.c);
  turned.pixels = narrow(pixels), turned.tile = narrow(whole ? channels : tile), turned.plane = narrow(plane);
  turned.columns = narrow(copy.inner.w), turned.down = narrow(form.row.step * copy.outer.w);
  turned.rows = narrow(form.row.count), turned.deep = narrow(deep ? rows[1].step * copy.outer.w : 0);
  turned.blocks = narrow(blocks);
  return {constant((prefix + "LoadPixels").c_str(), v) + constant((prefix + "Step").c_str(), step) +
              constant((prefix + "Deep").c_str(), deep),
          value(turned, {{offsetof(Turned, from), {from, Access::read}},
                         {offsetof(Turned, to), {to, Access::write}}}),
          blocks};
}

Step turn(const std::string& name, const TensorCopy& copy, Slot from, Slot to) {
  const Turn one = turn_of(copy, from, to, "k");
  return tuned(name, "to_nhwc", constant("kBytes", size_of(copy.dtype)) + one.constants, one.blocks,
               {one.argument});
}

// A filter's groups merged, as forward has it; or merged or not as backward_data does, whose channels are
// exchanged. By sizes that 32 bits count. An element a thread is faster where they are few, and where groups
// stay apart in pixels, which then lie far from each other.
bool merges(const TensorCopy& copy) {
  constexpr i64 kFewest = i64{1} << 17, kMost = (i64{1} << 31) - 1;
  const auto& digits = copy.map.digits;
  const Diagonal& diagonal = copy.map.diagonal;
  const bool groups = diagonal.groups > 1 || (digits[kAxisN].size() > 1 && digits[kAxisN][1].count > 1);
  const bool apart = diagonal.groups == 1 || digits[kAxisC].front().count == diagonal.c;
  const bool pays = copy.inner.elements() >= kFewest && (diagonal.groups > 1 || is_planes(copy));
  return copy.map.of == Operand::w && groups && apart && pays && digits[kAxisH].size() == 1 &&
         digits[kAxisW].size() == 1 && copy.inner.c * size_of(copy.dtype) % 16 == 0 &&
         std::max(copy.inner.elements(), copy.outer.elements()) <= kMost;
}

Step merge_groups(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                  const DeviceInfo& device) {
  const TensorShape &inner = copy.inner, &outer = copy.outer;
  const Diagonal& diagonal = copy.map.diagonal;
  const i64 strides[] = {outer.stride_n, outer.stride_c, outer.stride_h, outer.stride_w};
  const auto step = [&](const Digit& digit) { return digit.step * strides[digit.to]; };
  const auto& k = copy.map.digits[kAxisN];
  const Digit &c = copy.map.digits[kAxisC].front(), &row = copy.map.digits[kAxisH].front(),
              &column = copy.map.digits[kAxisW].front();
  // Of forward k is one digit; of backward_data it falls into those of a group and the groups.
  const i64 group_k = k.size() > 1 ? k[0].count : diagonal.k;
  const i64 group = k.size() > 1 ? step(k[1]) : group_k * step(k[0]);
  const Index& start = copy.map.start;
  const i64 first = start[kAxisH] * strides[kAxisH] + start[kAxisW] * strides[kAxisW];
  const i64 chunks = inner.elements() * size_of(copy.dtype) / 16;
  return tuned(name, "merge_groups", constant("kBytes", size_of(copy.dtype)),
               std::min<i64>(ceil_div(chunks, kThreads), device.units * 32),
               {in(from), out(to), number(chunks), number(inner.c), number(inner.h), number(inner.w),
                number(group_k), number(c.count), number(diagonal.groups), number(first), number(step(k[0])),
                number(step(c)), number(step(row)), number(step(column)), number(group)});
}

// Channels padded, few of them turned.
Step pad(const std::string& name, const TensorCopy& copy, Slot from, Slot to, const DeviceInfo& device) {
  const int element = size_of(copy.dtype);
  const i64 pixels = copy.inner.h * copy.inner.w,
            chunks = copy.inner.n * pixels * copy.inner.c * element / 16;
  return tuned(name, "pad_channels", constant("kBytes", element) + constant("kNchw", is_planes(copy)),
               std::min<i64>(ceil_div(chunks, kThreads), device.units * 32),
               {in(from), out(to), number(copy.inner.n), number(CopyForm(copy).count(0)),
                number(copy.inner.c), number(pixels)});
}

}  // namespace

Step to_planes(const std::string& name, DType dtype, i64 images, i64 c, i64 pixels, Slot from, Slot to) {
  constexpr i64 kMostPixels = 64, kWords = 64 * 33;
  const i64 element = size_of(dtype), chunk = 16 / element, pair = 4 / element;
  i64 store = 16 / element;
  while (pixels % store != 0) store /= 2;
  const i64 across = ceil_div(pixels, kMostPixels), tile = round_up(ceil_div(pixels, across), store);
  const i64 pitch = ceil_div(tile, pair) | 1, line = 128 / element;
  // Tiles of channels, alike.
  const i64 most = kWords / pitch / line * line;
  const i64 span = std::min(round_up(c, chunk), round_up(ceil_div(c, ceil_div(c, most)), line));
  // Whole planes lie one behind the other, whatever a plane's size.
  const bool whole = across == 1 && store < chunk;
  return tuned(name, "to_nchw",
               constant("kBytes", element) + constant("kStore", store) + constant("kWhole", whole),
               images * ceil_div(pixels, tile) * ceil_div(c, span),
               {in(from), out(to), number(c), number(pixels), number(tile), number(span)});
}

Step widen_rows(const std::string& name, DType dtype, i64 rows, i64 width, i64 to_width, Slot from, Slot to,
                const DeviceInfo& device) {
  const i64 word = width * size_of(dtype) % 4 == 0 ? 4 : 2, units = to_width * size_of(dtype) / 16;
  Step step =
      launch(name,
             gpu::source(device, "weights_gradient_sm90", "widen_rows.cl", "widen_rows",
                         {{"THREADS", std::to_string(kThreads)},
                          {"BYTES", std::to_string(word)},
                          {"WIDE", rows * to_width >= i64{1} << 30 ? "1" : "0"}}),
             gpu::one_dimension(rows * units, kThreads),
             {in(from), out(to), value(rows * units), value(units), value(width * size_of(dtype) / word)});
  std::get<Launch>(step.work).shape.overlaps_previous = true;
  return step;
}

Step thin_planes(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                 const DeviceInfo& device) {
  const CopyForm form(copy);
  const TensorShape &inner = copy.inner, &outer = copy.outer;
  const i64 element = size_of(copy.dtype), step = form.column.step, chunk = 16 / element;
  const i64 in_row = outer.w / chunk, chunks = inner.n * inner.c * inner.h * in_row;
  constexpr i64 kMost = (i64{1} << 31) - kThreads;
  const bool whole = outer.w % chunk == 0 && inner.w * step == outer.w && inner.c == outer.c;
  const bool none_before = copy.map.start[kAxisH] == 0 && copy.map.start[kAxisW] == 0;
  if ((step != 2 && step != 4) || step > chunk || !whole || !none_before || last_row(copy) >= outer.h ||
      chunks > kMost)
    return copy_launch(name, name, copy, from, to, device);
  return tuned(name, "thin_planes", constant("kBytes", element) + constant("kStep", step),
               ceil_div(chunks, kThreads),
               {in(from), out(to), number(chunks), number(in_row), number(inner.h),
                number(form.row.step * in_row), number(outer.h * in_row)});
}

Step spread(const std::string& name, const Problem& asked, Slot from, Slot to) {
  const bool nchw = asked.layout == Layout::nchw;
  const i64 element = size_of(asked.dtype), across = asked.stride_w, in_pixel = asked.c * element / 16;
  i64 word = 16 / element;  // columns of the result a thread writes
  while (word > across && asked.w % word != 0) word /= 2;
  const i64 in_row = nchw ? asked.w / word : asked.q() * in_pixel;
  const i64 rows = nchw && word * element == 16 ? asked.h : asked.p();
  const i64 words = in_row * asked.n * (nchw ? asked.c : 1) * rows;
  return tuned(name, "spread",
               constant("kBytes", element) + constant("kNchw", nchw) + constant("kAcross", across) +
                   constant("kDown", asked.stride_h) + constant("kTaken", nchw ? word / across : 1),
               ceil_div(words, kThreads),
               {in(from), out(to), number(words), number(in_row), number(asked.p()), number(asked.h),
                number(asked.w), number(in_pixel)});
}

Step depth_to_space(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                    const DeviceInfo& device) {
  const CopyForm form(copy);
  const Index &outer = copy.map.outer_size, &start = copy.map.start;
  const i64 rows = ceil_div(outer[kAxisH] - start[kAxisH], form.count(2));
  const i64 line = outer[kAxisW] * (is_planes(copy) ? 1 : outer[kAxisC]) * size_of(copy.dtype);
  i64 word = 16;  // bytes
  while (line % word != 0) word /= 2;
  return tuned(
      name, "depth_to_space",
      gathered(copy) + constant("kDown", form.count(2)) + constant("kAcross", form.count(1)) +
          constant("kWord", word),
      std::min<i64>(copy.inner.n * rows, device.units * 32),
      {in(from), out(to), number(copy.inner.n), number(outer[kAxisH]), number(outer[kAxisW]), number(rows),
       number(copy.inner.h), number(copy.inner.w), number(-start[kAxisH]), number(-start[kAxisW])});
}

TensorCopy pixels_of(const Problem& outer, const Rewrite& rewrite, Operand operand) {
  const i64 unit = 16 / size_of(outer.dtype);
  Rewrite padded = rewrite;
  if (rewrite.inner.groups == 1) {
    padded = pad_channels(rewrite, unit);
  } else if (operand == Operand::x) {  // behind the last group's; a filter's are whole
    padded.inner.c = padded.x.size[kAxisC] = round_up(rewrite.inner.c, unit);
  }
  TensorCopy copy = gather_of(outer, padded, operand);
  copy.inner = make_shape(Layout::nhwc, copy.inner.n, copy.inner.c, copy.inner.h, copy.inner.w);
  return copy;
}

TensorCopy even_channels_first(TensorCopy filter, i64 block) {
  std::vector<Digit>& channels = filter.map.digits[kAxisC];
  const Digit all = channels.front();
  channels = {{block / 2, all.to, all.step * 2},
              {2, all.to, all.step},
              {all.count / block, all.to, all.step * block}};
  return filter;
}

namespace {

// How a rewrite takes pixels.
struct Taken {
  explicit Taken(const TensorCopy& copy) {
    const CopyForm form(copy);
    const auto& channels = form.channels;
    const Index& start = copy.map.start;
    all_rows = start[kAxisH] == 0 && form.row.step == 1 && copy.inner.h == copy.outer.h;
    const bool as_they_are =
        channels.size() == 1 && channels[0].to == kAxisC && start[kAxisH] == 0 && start[kAxisW] == 0;
    pixels_as_they_are = as_they_are && form.row.step >= 1 && form.row.to == kAxisH;
    every = all_rows && form.column.step == 1 && copy.inner.w == copy.outer.w;
    inside = last_row(copy) < copy.outer.h && (copy.inner.w - 1) * form.column.step < copy.outer.w &&
             form.column.step > 1;
  }
  bool all_rows, pixels_as_they_are, every, inside;
};

// Whether it is for `turn`.
bool turns(const TensorCopy& copy) {
  const Taken taken(copy);
  const i64 chunk = 16 / size_of(copy.dtype);
  return copy.map.diagonal.groups <= 1 && taken.pixels_as_they_are && is_planes(copy) &&
         (taken.every ? copy.inner.c > 2 * chunk : taken.inside);
}

}  // namespace

std::optional<Step> turn_both(const std::string& name, const TensorCopy& first, Slot first_from,
                              Slot first_to, const TensorCopy& second, Slot second_from, Slot second_to) {
  if (!turns(first) || !turns(second) || first.dtype != second.dtype) return {};
  const Turn one = turn_of(first, first_from, first_to, "k");
  const Turn other = turn_of(second, second_from, second_to, "kSecond");
  return tuned(name, "to_nhwc_both",
               constant("kBytes", size_of(first.dtype)) + one.constants + other.constants,
               one.blocks + other.blocks, {one.argument, other.argument});
}

Step copy_step(const std::string& name, const TensorCopy& copy, Slot from, Slot to, const DeviceInfo& device,
               i64 planes) {
  if (merges(copy)) return merge_groups(name, copy, from, to, device);
  const bool chunks = copy.inner.c * size_of(copy.dtype) % 16 == 0;  // as the kernels below store pixels
  if (copy.map.diagonal.groups > 1 || !chunks) return copy_launch(name, name, copy, from, to, device);
  const Taken taken(copy);
  const auto& channels = CopyForm(copy).channels;
  const bool one_group = channels.size() == 1 || channels.back().to != kAxisC || channels.back().count == 1;
  const bool folds = channels.size() >= 2 && channels[1].to == kAxisW && taken.all_rows;
  const bool deepens = channels.size() >= 3 && channels[1].to == kAxisW && channels[2].to == kAxisH;
  if (one_group && deepens && channels[1].step == 1)
    return space_to_depth(name, copy, from, to, device, planes);
  if (one_group && folds) return gather_rows(name, copy, from, to, device);
  if (turns(copy)) return turn(name, copy, from, to);
  if (taken.pixels_as_they_are && taken.every) return pad(name, copy, from, to, device);
  return copy_launch(name, name, copy, from, to, device);
}

}  // namespace faltung::sm90
