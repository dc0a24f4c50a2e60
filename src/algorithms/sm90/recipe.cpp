// The steps of Hopper's implicit GEMM: what brings the tensors into the form that its kernel reads, and the
// kernel.
#include <algorithm>
#include <cstddef>

#include "kernels/sm90/params.h"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/sm90/around.hpp"
#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/channel_sums.hpp"
#include "src/algorithms/sm90/copies.hpp"
#include "src/algorithms/sm90/form.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// What brings the input and the weights into the kernel's form, in the words of the steps' names.
struct Bringing {
  Problem from;
  Rewrite rewrite;
  std::string input, weights;
};
Bringing bringing(const Formed& formed, const Problem& p) {
  switch (formed.form) {
    case Form::folded:
      return {p, rewrites::fold_rows(p), "fold input", "fold weights"};
    case Form::deepened: {
      const Problem planes = planes_apart(p);
      return {planes, rewrites::space_to_depth(planes), "space to depth of input",
              "space to depth of weights"};
    }
    case Form::plain:
    case Form::thinned:
      break;
  }
  const Problem planes = planes_below(p);
  const bool takes = thins(p) && formed.tiling.bring != Bring::fetch;
  return {planes, merge_groups(takes ? thin(p) : unchanged(planes), formed.merged), "input to NHWC",
          formed.merged > 1 ? "weights of merged groups" : "weights to NHWC"};
}

bool turns_weights(const Problem& p) {
  return p.c != padded_channels(p) || (p.layout == Layout::nchw && p.c > 1 && p.t * p.r * p.s > 1);
}

// y's gradient and the filter, both of them planes and to be pixels, are turned by one launch: a filter that
// changes with every run is no longer on its way than the gradient. That of a transposed convolution, which
// alone has an epilogue, is packed once.
bool turns_together(const Tiling& t, const Problem& p, const Problem& asked) {
  const i64 few = 2 * 16 / size_of(p.dtype);  // channels, which go by another way
  return t.filter_as_it_is() && asked.epilogue.empty() && turns_weights(asked) &&
         asked.layout == Layout::nchw && !is_volume(asked) && asked.c > few && asked.k > few &&
         (turns_input(t, p) || turns_tensors(asked));
}

// Of the filter as it is, as pixels.
i64 filter_bytes(const Problem& asked) {
  return asked.k * asked.t * asked.r * asked.s * padded_channels(asked) * size_of(asked.dtype);
}

// Of the weights as they are packed: of all phases.
i64 packed_taps(const Problem& p, const Problem& asked) {
  const Problem& filter = has_phases(asked) ? asked : p;
  return filter.t * filter.r * filter.s;
}

LaunchShape shape_of(const Tiling& t, const Problem& p, unsigned blocks) {
  LaunchShape shape;
  shape.grid[0] = blocks;
  shape.cluster[0] = static_cast<unsigned>(t.split);
  shape.block[0] = static_cast<unsigned>(threads(t, p));
  shape.overlaps_previous = true;
  return shape;
}

// Where the kernel's operands lie.
struct Operands {
  Slot x, w;
  Slot result;               // of phases
  std::size_t channel_sums;  // in the workspace, where the kernel has them
};

Mapped read(const MapShape& shape, Slot slot) { return {shape, {slot, Access::read}}; }
Mapped write(const MapShape& shape, Slot slot) { return {shape, {slot, Access::write}}; }

// Members of the parameters that are addresses.
template <class P>
std::vector<StepArgument::Member> addresses() {
  return {{offsetof(P, bias), {Place::bias, Access::read}},
          {offsetof(P, slopes), {Place::slopes, Access::read}},
          {offsetof(P, residual), {Place::residual, Access::read}},
          {offsetof(P, y), {Place::y, Access::write}}};
}

// The phases of a strided backward_data: their part of the parameters, and the result as each stores it.
std::vector<Mapped> add_phases(Params& params, const Tiling& t, const Problem& engine, const Problem& asked,
                               Slot result) {
  std::vector<Phase> phases = phases_of(asked).of;
  const bool as_it_is = t.filter_as_it_is();
  params.tiles = count_tiles(phases, t, engine);
  std::vector<Mapped> outputs;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    Phase& phase = phases[i];
    const i64 pixel = (phase.d * asked.h + phase.h) * asked.w + phase.w;
    const i64 first = pixel * asked.c * size_of(asked.dtype);
    const Slot begin = {result.place, result.offset + static_cast<std::size_t>(first)};
    outputs.push_back(write(phase_map(t, engine, asked, phase), begin));
    // Packed weights have the taps from the last one back.
    if (!as_it_is) {
      phase.tap = narrow(asked.t * asked.r * asked.s) - 1 - phase.tap;
      phase.tap_deep = -phase.tap_deep, phase.tap_down = -phase.tap_down;
      phase.tap_across = -phase.tap_across;
    }
    params.phases[i] = phase;
  }
  return outputs;
}

// asked: what the engine is asked for, of which it sees p.
Step gemm(const Tiling& t, const Problem& p, const Asked& as, const Operands& operands, const Chip& chip) {
  const Problem& asked = as.problem;
  Params params{};
  params.k = narrow(p.k), params.p = narrow(p.p()), params.q = narrow(p.q());
  params.y_pitch = narrow(y_pitch(p));
  params.pixels = narrow(output_planes(p) * p.p() * p.q());
  params.depth = depth_of(p);
  params.tiles = narrow(tiles(t, p));
  params.k_tiles = narrow(ceil_div(p.k, t.channels));
  params.c_blocks = narrow(channel_blocks(t, p));
  const int across = pooled_extent(t.width, p), down = pooled_extent(t.height, p);
  const bool of_boxes = t.bring == Bring::planes && planes::in_registers(p);
  const bool through_registers = of_boxes || t.bring == Bring::lines;
  params.tiles_w = narrow(ceil_div(t.bring == Bring::planes ? p.p() * p.q() : p.y_w(), across));
  if (of_boxes) params.tiles_w = params.tiles / params.k_tiles;  // all planes as if they were one
  params.tiles_h = narrow(ceil_div(p.y_h(), down));
  params.pad_top = narrow(p.pad_top), params.pad_left = narrow(p.pad_left);
  params.stride_h = narrow(p.stride_h), params.stride_w = narrow(p.stride_w);
  params.slope = p.epilogue.slope;
  params.bias_k = narrow(p.k / as.repeats);
  params.c = narrow(p.c), params.h = narrow(p.h), params.w = narrow(p.w);
  params.group_k = narrow(group_results(p)), params.group_c = narrow(group_channels(p));
  params.step = narrow(step(t, p));
  // Of planes that are no whole lines of the cache each line would be asked for twice.
  const bool of_lines = t.bring != Bring::planes || p.p() * p.q() * size_of(p.dtype) % 128 == 0;
  params.asks_ahead = operands.x.place != Place::workspace && of_lines;
  const i64 image = p.z() * p.p() * p.q();
  params.per_image = static_cast<unsigned>(ceil_div(i64{1} << 32, image));
  std::vector<StepArgument::Member> members = addresses<Params>();
  members.push_back({offsetof(Params, x), {Place::x, Access::read}});
  if (sums_channels(t, p))
    members.push_back(
        {offsetof(Params, channel_sums), {{Place::workspace, operands.channel_sums}, Access::write}});
  if (reads_affine(p)) {
    members.push_back({offsetof(Params, scale), {Place::scale, Access::read}});
    members.push_back({offsetof(Params, shift), {Place::shift, Access::read}});
  }
  // What a kernel does not use is some map.
  const Mapped w = read(w_map(t, p, packed_taps(p, asked)), operands.w);
  const Mapped x = reads_input(t, p) ? w : read(x_map(t, p), operands.x);
  // Both once all parameters are set: phases count their tiles anew.
  const auto shape = [&] {
    return shape_of(t, p,
                    t.split > 1 ? static_cast<unsigned>(params.tiles * t.split)
                                : persistent_blocks(t, p, params.k_tiles, params.tiles, chip));
  };
  const auto given = [&] {
    StepArgument argument = value(params, std::move(members));
    argument.rests = {{offsetof(Params, weights_rest), operands.w}};
    return argument;
  };
  if (through_registers)
    return launch("implicit_gemm", kernel_source(t, p), shape(), {mapped({x}), mapped({w}), given()});
  const Mapped y = stores_by_map(t, p) ? write(y_map(t, p), Place::y) : x;
  std::vector<Mapped> outputs = {y};
  if (t.phased()) outputs = add_phases(params, t, p, asked, operands.result);
  outputs.push_back(brings_residual(t, p) ? read(y_map(t, p), Place::residual) : outputs.front());
  const PhaseOrder order = t.phased() ? phase_order(phases_of(asked).of) : PhaseOrder::most_taps_first;
  return launch("implicit_gemm", kernel_source(t, p, order), shape(),
                {mapped({x}), mapped({w}), mapped(outputs), given()});
}

Step shift_gemm(const Tiling& t, const Problem& p, const Operands& operands, const Chip& chip) {
  ShiftParams params{};
  params.k = narrow(p.k), params.p = narrow(p.p()), params.q = narrow(p.q());
  params.group_k = narrow(group_results(p)), params.group_c = narrow(group_channels(p));
  params.strips = narrow(tiles(t, p));
  params.k_tiles = narrow(ceil_div(p.k, t.channels));
  params.c_blocks = narrow(channel_blocks(t, p));
  params.windows = narrow(shift::windows(t, p));
  params.tiles_h = narrow(ceil_div(p.p(), t.height));
  params.pad_top = narrow(p.pad_top);
  params.slope = p.epilogue.slope;
  params.depth = depth_of(p);
  const Mapped x = read(x_map(t, p), operands.x), w = read(w_map(t, p, p.t * p.r * p.s), operands.w);
  std::vector<Mapped> rows(4, x);  // as ShiftMaps has them
  static_assert(sizeof(ShiftMaps<TensorMap>) == 4 * sizeof(TensorMap));
  if (shift::stores_in_bulk(p)) {
    const MapShape whole = y_rows_map(t, p, t.width), aside = y_rows_map(t, p, shift::kLag);
    rows[0] = write(whole, Place::y), rows[1] = write(aside, Place::y);
    if (p.epilogue.residual) rows[2] = read(whole, Place::residual), rows[3] = read(aside, Place::residual);
  }
  return launch("implicit_gemm", kernel_source(t, p),
                shape_of(t, p, persistent_blocks(t, p, params.k_tiles, params.strips, chip)),
                {mapped({x}), mapped({w}), mapped(rows), value(params, addresses<ShiftParams>())});
}

// 32-bit weights in the kernel's order, split in parts, where the packed ones lie.
Step split(const Problem& p, i64 taps, Slot from, const Chip& chip) {
  constexpr i64 kThreads = 256;
  const i64 elements = p.k * taps * group_channels(p);
  jit::Source source;
  source.name = source.entry = "split_tf32";
  source.text = "constexpr int kParts = " + std::to_string(tf32_parts(p)) +
                ";\n#include \"kernels/sm90/split_tf32.cu\"\n";
  LaunchShape shape;
  shape.grid[0] =
      static_cast<unsigned>(std::min<i64>(ceil_div(elements, kThreads), i64{chip.multiprocessors} * 8));
  shape.block[0] = kThreads;
  shape.overlaps_previous = true;
  return launch("split weights", std::move(source), shape, {in(from), out(Place::packed), value(elements)});
}

}  // namespace

Formed parse_formed(const std::string& config) {
  Formed formed;
  if (!parse_config(config, formed)) refuse_tiling(config);
  return formed;
}

void require_form(const Formed& formed, const Problem& given) {
  const auto require = [&](bool can, const std::string& else_why) {
    if (!can) throw Error(Status::bad_problem, config_name(formed) + else_why);
  };
  if (formed.form == Form::thinned)
    require(spreads(given), " spreads x's gradient of a 1x1 filter with strides");
  if (formed.tiling.apart > 1)
    require(stores_apart(formed, given), " stores every second pixel, of a 1x1 filter whose strides are 2");
  if (formed.form == Form::thinned) return;
  if (goes_around(formed.form, given)) return;
  const Problem asked = as_asked(given).problem, p = engine_problem(asked);
  const Tiling& t = formed.tiling;
  require(formed.form != Form::folded || folds(p), " folds few channels, not " + std::to_string(p.c));
  require(formed.form != Form::deepened || deepens(p),
          " takes few channels and strides no larger than the filter, no dilation");
  require(p.groups % formed.merged == 0, " merges groups by a divisor of " + std::to_string(p.groups));
  require(formed.merged == 1 || !alternates(t, seen(p, formed)),
          " brings every second channel of one group, not of several that are merged");
  if (formed.form == Form::plain) {
    require(!thins(p) || takes_nhwc(t) || t.bring == Bring::fetch,
            ": thinned pixels are NHWC, as patch and im2col take them");
    return;
  }
  require(p.groups == 1, " gathers few channels of one group, not of " + std::to_string(p.groups));
  require(takes_nhwc(t), ": gathered pixels are NHWC, as patch and im2col take them");
  require(asked.x_pitch == 0, " gathers from whole tensors, and x is a slice");
  require(asked.direction == Direction::forward, " gathers few channels in forward alone");
}

bool takes_nhwc(const Tiling& t) { return t.bring == Bring::patch || t.bring == Bring::im2col; }

Problem seen(const Problem& p, Form form, int merged) {
  Problem inner = form == Form::folded     ? folded(p)
                  : form == Form::deepened ? deepened(p)
                  : thins(p)               ? thinned(p)
                                           : p;
  inner.groups /= merged;
  return inner;
}

Problem seen(const Problem& p, const Formed& formed) {
  if (formed.tiling.bring != Bring::fetch) return seen(p, formed.form, formed.merged);
  Problem merged = p;
  merged.groups /= formed.merged;
  return merged;
}

Workspace workspace_of(const Formed& formed, const Problem& p, const Problem& asked) {
  Workspace w;
  if (formed.form != Form::plain || turns_input(formed.tiling, p) || turns_tensors(asked))
    w.result = static_cast<std::size_t>(p.n * p.d * p.h * p.w * padded_channels(p) * size_of(p.dtype));
  w.bytes = w.result;
  if (turns_tensors(asked)) {
    w.result = static_cast<std::size_t>(round_up(static_cast<i64>(w.result), 256));
    w.bytes = w.result + static_cast<std::size_t>(bytes_of(asked, x_shape(asked)));
  }
  if (turns_together(formed.tiling, p, asked)) {
    w.filter = faltung::aligned(w.bytes);
    w.bytes = w.filter + static_cast<std::size_t>(filter_bytes(asked));
  }
  return w;
}

std::size_t packed_bytes(const Formed& formed, const Problem& p, const Problem& asked) {
  const int parts = tf32_parts(p), element = size_of(p.dtype);
  if (formed.tiling.filter_as_it_is()) {
    const bool packed = turns_weights(asked) && !turns_together(formed.tiling, p, asked);
    return packed ? static_cast<std::size_t>(filter_bytes(asked)) : 0;
  }
  const bool as_they_are = asked.direction == Direction::forward && formed.form == Form::plain &&
                           formed.merged == 1 && !turns_weights(p) && !alternates(formed.tiling, p);
  if (as_they_are && parts == 0) return 0;
  return static_cast<std::size_t>(p.k * packed_taps(p, asked) * group_channels(p) * element *
                                  std::max(1, parts));
}

Recipe recipe(const Formed& formed, const Problem& given, const DeviceInfo& device) {
  if (goes_around(formed.form, given)) return recipe_around(formed, given, device);
  const Asked asked = as_asked(given);
  const Problem& problem = asked.problem;
  const Chip chip = Chip::of(device);
  const Tiling& t = formed.tiling;
  const bool backward = problem.direction == Direction::backward_data;
  Problem forward = engine_problem(problem);
  const Problem p = seen(forward, formed);
  const bool rewrites = formed.form != Form::plain || formed.merged > 1, splits = tf32_parts(p) > 0;
  const bool alternating = alternates(t, p);
  const bool turned =
      t.filter_as_it_is() ? turns_weights(problem) : rewrites || backward || turns_weights(p) || alternating;
  forward.layout = problem.layout;
  const Bringing from = bringing(formed, forward);
  const Workspace memory = workspace_of(formed, p, problem);
  const ChannelSums sums = channel_sums(t, p, memory.bytes, chip);
  Recipe recipe;
  recipe.alignment = 16;  // of the copy engine, and of the widest loads
  recipe.packed_bytes = packed_bytes(formed, p, problem);
  recipe.workspace_bytes = sums.workspace_bytes;
  if (recipe.packed_bytes > 0)
    recipe.packing = packing_of(problem) + " as " + (is_volume(p) ? std::to_string(p.t) + "x" : "") +
                     std::to_string(p.r) + "x" + std::to_string(p.s) +
                     (alternating ? ", even channels first" : "");
  const bool together = turns_together(t, p, problem);
  const Slot filter_there = together ? Slot{Place::workspace, memory.filter} : Slot{Place::packed};
  const auto weights_of = [&] {
    const Problem& filter = backward ? planes_below(problem) : from.from;
    const TensorCopy pixels = pixels_of(filter,
                                        t.filter_as_it_is() ? unchanged(filter)
                                        : backward ? merge_groups(packed_weights_of(problem), formed.merged)
                                                   : from.rewrite,
                                        Operand::w);
    return alternating && !t.filter_as_it_is() ? even_channels_first(pixels, t.k_block) : pixels;
  };
  const auto input = [&] { return pixels_of(from.from, from.rewrite, Operand::x); };
  if (together) {
    recipe.steps.push_back(turn_both("input and weights to NHWC", input(), Place::x, Place::workspace,
                                     weights_of(), Place::w, filter_there)
                               .value());
  } else {
    if (turned)
      recipe.pack.push_back(copy_step(alternating ? "weights, even channels first" : from.weights,
                                      weights_of(), Place::w, Place::packed, device, problem.t));
    if (memory.bytes > 0)
      recipe.steps.push_back(copy_step(from.input, input(), Place::x, Place::workspace, device, forward.d));
  }
  if (splits)
    recipe.pack.push_back(split(p, packed_taps(p, problem), turned ? Place::packed : Place::w, chip));
  const Slot result = turns_tensors(problem) ? Slot{Place::workspace, memory.result} : Slot{Place::y};
  const Operands operands{memory.bytes > 0 ? Place::workspace : Place::x,
                          turned || splits ? filter_there : Slot{Place::w}, result, sums.at};
  recipe.steps.push_back(t.bring == Bring::shift ? shift_gemm(t, p, operands, chip)
                                                 : gemm(t, p, asked, operands, chip));
  if (sums.parts > 0) recipe.steps.push_back(sum_channels(sums));
  if (turns_tensors(problem))
    recipe.steps.push_back(to_planes(is_transposed(given) ? "result to NCHW" : "x's gradient to NCHW",
                                     problem.dtype, problem.n, problem.c, problem.d * problem.h * problem.w,
                                     result, Place::y));
  // The engine's input is y's gradient then, its output x's; of a transposed convolution x and y again.
  for (Step& step : recipe.steps) {
    if (backward && !is_transposed(given)) step.exchange(Place::x, Place::y);
    if (given.training == Training::drelu) step.rewire(Place::residual, Place::relu);
  }
  return recipe;
}

}  // namespace faltung::sm90
