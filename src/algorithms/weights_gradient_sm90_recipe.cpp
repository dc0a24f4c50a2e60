// The steps of the weights' gradient on Hopper: what is turned, the products, the sum of their parts.
#include <algorithm>
#include <cstddef>
#include <optional>

#include "src/algorithms/sm90/copies.hpp"
#include "src/algorithms/sm90/wgmma.hpp"
#include "src/algorithms/weights_gradient_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::weights_gradient_sm90 {
namespace {

using i64 = std::int64_t;

constexpr int kSumThreads = 256;

std::string constant(const char* name, i64 value) {
  return "#define " + std::string(name) + " " + std::to_string(value) + "\n";
}

// The first operand from registers, or both from shared memory, with their rows, not their depth, side by
// side but of planes.
std::string mma_function(int n, DType dtype, Kind kind) {
  if (kind == Kind::lines)
    return sm90::wgmma_function(n, dtype, sm90::First::registers, dtype == DType::f32 ? "" : ", 0");
  return sm90::wgmma_function(n, dtype, sm90::First::shared, kind == Kind::patch ? ", 1, 1" : ", 0, 0");
}

std::string config_text(const Config& c) {
  sm90::ConfigText text;
  const auto order = [](Order order) { return order == Order::nchw ? "Order::nchw" : "Order::nhwc"; };
  text.add("kind", c.kind == Kind::patch    ? "Kind::patch"
                   : c.kind == Kind::planes ? "Kind::planes"
                   : c.kind == Kind::fetch  ? "Kind::fetch"
                                            : "Kind::lines");
  text.add("element", c.element == Element::f32    ? "Element::f32"
                      : c.element == Element::bf16 ? "Element::bf16"
                                                   : "Element::f16");
  text.add("parts", c.parts == Parts::two ? "Parts::two" : "Parts::one");
  text.add("order", order(c.order)), text.add("filter", order(c.filter));
  text.add("result", c.result == Result::parts ? "Result::parts" : "Result::whole");
  text.add("r", c.r), text.add("s", c.s);
  text.add("depth_h", c.depth_h), text.add("depth_w", c.depth_w), text.add("depth_c", c.depth_c);
  text.add("depth_r", c.depth_r), text.add("depth_s", c.depth_s);
  text.add("stride_h", c.stride_h), text.add("stride_w", c.stride_w);
  text.add("dilation_h", c.dilation_h), text.add("dilation_w", c.dilation_w),
      text.add("pad_left", c.pad_left);
  text.add("group_k", c.group_k), text.add("group_c", c.group_c), text.add("merged", c.merged);
  text.add("tap_rows", c.tap_rows), text.add("tap_columns", c.tap_columns);
  text.add("k_blocks", c.k_blocks), text.add("c_blocks", c.c_blocks), text.add("channels", c.channels);
  text.add("width", c.width), text.add("height", c.height), text.add("images", c.images);
  text.add("stages", c.stages), text.add("rows", c.rows), text.add("cluster", c.cluster);
  text.add("boxes_of_blocks", c.boxes_of_blocks);
  text.add("pair", c.pair == Pair::x ? "Pair::x" : c.pair == Pair::dy ? "Pair::dy" : "Pair::neither");
  return text.text();
}

TiledMap tiled(DType dtype, const i64 (&sizes)[4], const int (&box)[4], int swizzle_bytes, int step_w = 1,
               int step_h = 1) {
  TiledMap map;
  map.dtype = dtype;
  map.rank = 4;
  i64 stride = size_of(dtype);
  for (int i = 0; i < 4; ++i) {
    map.size[i] = sizes[i], map.box[i] = box[i];
    stride *= sizes[i];
    if (i < 3) map.stride_bytes[i] = stride;
  }
  map.step[1] = step_w, map.step[2] = step_h;
  map.swizzle_bytes = swizzle_bytes;
  return map;
}

// NCHW: sizes and boxes by width, channels, rows, images.
TiledMap tiled_rows(DType dtype, i64 n, i64 c, i64 h, i64 w, const int (&box)[4], int swizzle_bytes) {
  const i64 sizes[] = {w, c, h, n};
  TiledMap map = tiled(dtype, sizes, box, swizzle_bytes);
  const i64 row = w * size_of(dtype);
  map.stride_bytes[0] = h * row, map.stride_bytes[1] = row, map.stride_bytes[2] = c * h * row;
  return map;
}

// Planes by 64 pixels and so many channels.
TiledMap planes_map(const Problem& p, i64 channels, int box) {
  return tiled(p.dtype, {p.q(), channels, p.n, 1}, {64, box, 1, 1}, 128);
}

// NHWC with the channels by blocks of 64, so that a box has several.
TiledMap by_blocks(TiledMap map, int blocks) {
  const i64 channels = map.size[0];
  map.rank = 5;
  map.size[0] = 64, map.size[4] = channels / 64;
  map.box[4] = blocks;
  map.stride_bytes[3] = 64 * size_of(map.dtype);
  map.step[4] = 1;
  return map;
}

// NHWC with the images of a box side by side in each pixel's place.
TiledMap with_images_together(TiledMap map) {
  std::rotate(&map.size[1], &map.size[3], &map.size[4]);
  std::rotate(&map.box[1], &map.box[3], &map.box[4]);
  std::rotate(&map.step[1], &map.step[3], &map.step[4]);
  std::rotate(&map.stride_bytes[0], &map.stride_bytes[2], &map.stride_bytes[3]);
  return map;
}

TiledMap pixels_map(const TiledMap& map, const Config& c, int blocks) {
  const TiledMap pixels = together(c) > 1 ? with_images_together(map) : map;
  return c.boxes_of_blocks ? by_blocks(pixels, blocks) : pixels;
}

TiledMap x_map(const Problem& p, const Config& c) {
  if (c.kind == Kind::planes) return planes_map(p, p.c, c.c_blocks * (c.pair == Pair::x ? 32 : 64));
  if (c.turns()) return tiled(p.dtype, {p.c, p.w, p.h, p.n}, {32, c.width, 1, 1}, 128);
  if (c.kind == Kind::lines)
    return tiled_rows(p.dtype, p.n, p.c, p.h, p.w, {c.width, c.channels, patch_height(c), 1}, row_bytes(c));
  const bool skips_rows = c.tap_rows == 1;
  const int stride_h = skips_rows ? c.stride_h : 1;
  const int rows = skips_rows ? (c.height - 1) * stride_h + 1 : patch_height(c);
  const bool shared = c.pair == Pair::x;
  const int width = halved_pixels((patch_width(c) - 1) * c.stride_w + 1, c.c_blocks, shared);
  const TiledMap map = tiled(p.dtype, {p.c, p.w, p.h, p.n}, {c.channels, width, rows, c.images}, row_bytes(c),
                             c.stride_w, stride_h);
  return pixels_map(map, c, halved_blocks(c.c_blocks, shared));
}

// Of runs: a plane's pixels, the channels whose planes are a multiple of 16 bytes together, those, images.
TiledMap runs_map(const Problem& p, const Config& c) {
  const i64 plane = p.p() * p.q(), element = size_of(p.dtype);
  const int late = late_by(c, plane), together = channels_together(c, late);
  TiledMap map = tiled(p.dtype, {plane + (together - 1) * late, together, p.k / together, p.n},
                       {line_pixels(c), together, kOutChannels / together, 1}, 0);
  map.stride_bytes[0] = (plane - late) * element, map.stride_bytes[1] = together * plane * element;
  map.stride_bytes[2] = p.k * plane * element;
  return map;
}

TiledMap y_map(const Tile& t, const Problem& p, const Config& c) {
  if (t.form == Form::runs) return runs_map(p, c);
  if (c.kind == Kind::planes) return planes_map(p, p.k, c.k_blocks * (c.pair == Pair::dy ? 32 : 64));
  if (c.turns()) return tiled(p.dtype, {p.k, p.q(), p.p(), p.n}, {32, line_pixels(c), 1, 1}, 128);
  if (c.kind == Kind::lines)
    return tiled_rows(p.dtype, p.n, p.k, p.p(), p.q(), {line_pixels(c), kOutChannels, 1, 1}, 0);
  const bool shared = c.pair == Pair::dy;
  const TiledMap map =
      tiled(p.dtype, {p.k, p.q(), p.p(), p.n},
            {kOutChannels, halved_pixels(c.width, c.k_blocks, shared), c.height, c.images}, 128);
  return pixels_map(map, c, halved_blocks(c.k_blocks, shared));
}

std::string include(const std::string& kernel) { return "#include \"kernels/sm90/" + kernel + ".cu\"\n"; }

// The output's gradient as the input of a problem: what copies inputs then copies it.
Problem gradient_as_input(const Problem& problem) {
  Problem p = problem;
  p.direction = Direction::forward;
  p.c = problem.k, p.h = problem.p(), p.w = problem.q();
  p.r = p.s = p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = 0;
  return p;
}

// Threads that share a pair of the sum: each asks for eight parts at once.
int sharers(const Tile& t) {
  int rows = 1;
  while (rows < 16 && rows * 8 < t.parts()) rows *= 2;
  return rows;
}

// Of the kernel's config what says where its sums belong: other tiles of as many results have the same.
Config of_sums(Config c) {
  c.stages = 2, c.cluster = 1, c.boxes_of_blocks = false;
  if (c.kind != Kind::lines) c.width = 16, c.height = c.images = 1;
  if (c.kind == Kind::fetch) c.kind = Kind::planes;
  return c;
}

Step sum_step(const Tile& t, const Problem& problem, const Config& c, const Params& params,
              std::vector<StepArgument::Member> tensors) {
  const bool filters = sums_filters(t, problem);
  const int threads = filters ? sum_threads(c.r * c.s) : kSumThreads;
  jit::Source source;
  source.name = "weights_gradient_sm90 (sum of the parts)";
  source.entry = filters ? "weights_gradient_sum_filters" : "weights_gradient_sum";
  source.text = config_text(of_sums(c));
  if (!filters) source.text += constant("F_LINES", c.kind == Kind::lines) + constant("F_ROWS", sharers(t));
  source.text += include(source.entry);
  source.block_threads = threads;
  LaunchShape shape;
  const i64 blocks = filters ? ceil_div(problem.k, kSumOutputs) * ceil_div(problem.c, kSumInputs)
                             : ceil_div(params.part_pairs, i64{kSumThreads / sharers(t)});
  shape.grid[0] = static_cast<unsigned>(blocks);
  shape.block[0] = static_cast<unsigned>(threads);
  shape.overlaps_previous = true;
  return launch("sum of the parts", std::move(source), shape,
                {value(params, std::move(tensors)), value(t.parts())});
}

}  // namespace

jit::Source source(const Tile& t, const Problem& problem) {
  const Config c = config(t, problem);
  jit::Source source;
  source.name = "weights_gradient_sm90/" + to_string(t);
  source.text = config_text(c) + mma_function(columns(c), problem.dtype, t.kind);
  if (short_columns(c) != columns(c)) source.text += mma_function(short_columns(c), problem.dtype, t.kind);
  if (t.form == Form::runs) source.text += constant("F_LATE", late_by(c, problem.p() * problem.q()));
  source.entry = t.form == Form::runs    ? "weights_gradient_runs"
                 : t.kind == Kind::lines ? "weights_gradient_lines"
                 : t.kind == Kind::fetch ? "weights_gradient_fetch"
                                         : "weights_gradient";
  source.text += include(source.entry);
  source.block_threads = threads(c);
  source.shared_bytes = shared_bytes(c);
  return source;
}

TensorCopy gradient_copy(const Problem& problem) {
  const Problem gradient = gradient_as_input(problem);
  return sm90::pixels_of(gradient, unchanged(gradient), Operand::x);
}

// By one launch, where both are planes to be turned and no more.
std::optional<Step> turn_both(const Tile& t, const Problem& problem, const Rewrite& rewrite, Slot x, Slot y) {
  if (t.form == Form::deepened) return {};
  return sm90::turn_both("input and output's gradient to NHWC", sm90::pixels_of(problem, rewrite, Operand::x),
                         Place::x, x, gradient_copy(problem), Place::y, y);
}

// The output's gradient as it does.
Step bring_y(const Tile& t, const Problem& problem, Slot to, const DeviceInfo& device) {
  if (t.form == Form::widened)
    return sm90::widen_rows("output's gradient in wider rows", problem.dtype,
                            problem.n * problem.k * problem.p(), problem.q(), inner_of(t, problem).q(),
                            Place::y, to, device);
  return sm90::copy_step("output's gradient to NHWC", gradient_copy(problem), Place::y, to, device);
}

// x as the kernel reads it.
Step bring_x(const Tile& t, const Problem& problem, const Rewrite& rewrite, Slot to,
             const DeviceInfo& device) {
  if (t.kind == Kind::planes)
    return sm90::thin_planes("input's pixels that are taken", gather_of(problem, rewrite, Operand::x),
                             Place::x, to, device);
  const TensorCopy copy = sm90::pixels_of(problem, rewrite, Operand::x);
  const bool deepened = t.form == Form::deepened;
  const std::string name = deepened ? "space to depth of input" : "input to NHWC";
  // The kernel that is tuned for blocks of pixels keeps a pixel's channels in registers.
  if (deepened && problem.c > kFewChannels)
    return copy_launch(name, "weights_gradient_sm90", copy, Place::x, to, device);
  return sm90::copy_step(name, copy, Place::x, to, device);
}

Recipe recipe(const Tile& t, const Problem& problem, const DeviceInfo& device) {
  const Rewrite rewrite = rewritten(t, problem);
  const Problem& inner = rewrite.inner;
  const Problem p = seen(t, problem);
  const Config c = config(t, problem);
  const Counts n = counts(t, problem);
  const Workspace memory = workspace(t, problem);
  Recipe recipe;
  recipe.alignment = 16;  // of the copy engine
  recipe.workspace_bytes = memory.bytes;
  Slot x = Place::x, y = Place::y, w = Place::w;
  const bool both = turns_x(t, problem) && turns_y(t, problem);
  if (turns_x(t, problem)) x = {Place::workspace, memory.x};
  if (turns_y(t, problem)) y = {Place::workspace, memory.y};
  if (std::optional<Step> at_once = both ? turn_both(t, problem, rewrite, x, y) : std::nullopt) {
    recipe.steps.push_back(std::move(*at_once));
  } else {
    if (turns_x(t, problem)) recipe.steps.push_back(bring_x(t, problem, rewrite, x, device));
    if (turns_y(t, problem)) recipe.steps.push_back(bring_y(t, problem, y, device));
  }
  if (turns_result(t, problem)) w = {Place::workspace, memory.w};
  Params params{};
  params.k = narrow(inner.k), params.c = narrow(inner.c / inner.groups),
  params.c_pitch = round_up(params.c, 2);
  params.part_pairs = part_pairs_of(t, problem, p), params.results = narrow(n.results());
  params.p = narrow(p.p());
  params.k_tiles = narrow(n.k), params.c_tiles = narrow(n.c), params.group_tiles = narrow(n.groups);
  params.pixel_tiles = narrow(n.pixels()), params.tiles_w = narrow(n.across), params.tiles_h = narrow(n.down);
  params.shares = t.shares;
  params.pad_top = narrow(p.pad_top), params.pad_left = narrow(p.pad_left);
  const auto parts = [](Access access) {
    return StepArgument::Member{offsetof(Params, parts), {Place::workspace, access}};
  };
  const StepArgument::Member result{offsetof(Params, dw), {w, Access::write}};
  const bool sums = c.result == Result::parts;
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(n.results() * t.shares);
  shape.cluster[0] = static_cast<unsigned>(c.pair == Pair::neither ? t.cluster : 2);
  shape.block[0] = static_cast<unsigned>(threads(c));
  shape.overlaps_previous = true;
  const StepArgument::Member target = sums ? parts(Access::write) : result;
  std::vector<StepArgument> arguments;
  if (t.kind == Kind::fetch) {
    params.plane = narrow(inner.h * inner.w / 4), params.images = narrow(inner.n);
    arguments = {
        value(params,
              {target, {offsetof(Params, x), {x, Access::read}}, {offsetof(Params, dy), {y, Access::read}}})};
  } else {
    TiledMap x_shape = x_map(p, c), y_shape = y_map(t, p, c);
    x_shape.rounds_to_tf32 = y_shape.rounds_to_tf32 = c.element == Element::f32 && c.parts == Parts::one;
    arguments = {mapped({{x_shape, {x, Access::read}}}), mapped({{y_shape, {y, Access::read}}}),
                 value(params, {target})};
    if (t.form == Form::runs) arguments.push_back(value(narrow(p.q())));
  }
  recipe.steps.push_back(launch("weights_gradient", source(t, problem), shape, std::move(arguments)));
  if (sums) recipe.steps.push_back(sum_step(t, problem, c, params, {parts(Access::read), result}));
  if (turns_result(t, problem))
    recipe.steps.push_back(sm90::to_planes("weights' gradient to NCHW", problem.dtype, problem.k,
                                           problem.c / problem.groups, problem.r * problem.s, w, Place::w));
  return recipe;
}

}  // namespace faltung::weights_gradient_sm90
