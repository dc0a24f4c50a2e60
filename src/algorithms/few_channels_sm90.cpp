// Few input channels with a stride, a network's first layer, on Hopper's matrix units: tensors are read and
// written as they lie, in either layout (kernels/sm90/few_channels.cu, few_channels_weights.cu and
// few_channels_data.cu).
#include "src/algorithms/few_channels_sm90.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "kernels/sm90/layout.h"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/sm90/kernel_config.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/algorithms/sm90/wgmma.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace few_channels_sm90 {
namespace {

using i64 = std::int64_t;
using sm90::kSharedLimit;
using sm90::narrow;

// backward_data: rows of blocks as large as the stride that x's gradient has a part of, from this one on.
i64 first_row(const Problem& p) { return p.pad_top / p.stride_h; }
i64 end_row(const Problem& p) { return ceil_div(p.pad_top + p.h, p.stride_h); }

}  // namespace

Config config(const Tile& t, const Problem& p) {
  Config c;
  c.element = p.dtype == DType::bf16 ? Element::bf16 : Element::f16;
  c.nchw = p.layout == Layout::nchw;
  c.c = narrow(p.c), c.r = narrow(p.r), c.s = narrow(p.s);
  c.stride_h = narrow(p.stride_h), c.stride_w = narrow(p.stride_w), c.pad_left = narrow(p.pad_left);
  c.channels = t.channels, c.width = t.columns, c.height = t.rows, c.stages = t.stages;
  c.slopes = has_slopes(p);
  c.bias = p.epilogue.bias, c.f32_bias = p.epilogue.bias_element == BiasElement::f32;
  return c;
}

Counts counts(const Tile& t, const Problem& p, const DeviceInfo& device) {
  constexpr int kWarps = 16;  // of forward's, that a multiprocessor has registers for
  const i64 units = std::max(1, device.units);
  if (is_data(p)) {
    const i64 across = ceil_div(p.w, p.stride_w * t.columns),
              down = ceil_div(end_row(p) - first_row(p), i64{t.rows});
    return {1, across, down, p.n * across * down, std::min(units, p.n * across * down)};
  }
  Counts n{ceil_div(p.k, i64{t.channels}), ceil_div(p.q(), i64{t.columns}), ceil_div(p.p(), i64{t.rows}), 0,
           0};
  n.tiles = p.n * n.down * n.across;
  const i64 together = (is_weights(p) ? 1 : kWarps / t.rows) * units;
  const i64 room = std::max<i64>(1, together / n.k_tiles);
  n.blocks = n.k_tiles * std::min(n.tiles, room);
  return n;
}

namespace {

constexpr int kMostSteps = 12, kMostChannels = 64;  // what a thread has registers for: operands, sums
constexpr Tile kTiles[] = {
    {64, kColumns, 16, 4}, {64, kColumns, 8, 4}, {32, kColumns, 16, 4}, {32, kColumns, 8, 4}};
// backward_weights: of NHWC 16 pixels of a row, of planes 64.
constexpr Tile kWeightTiles[] = {
    {kGradientChannels, kColumns, 8, 6}, {kGradientChannels, 64, 4, 4}, {kGradientChannels, 64, 2, 6}};
// backward_data: rows of blocks as large as the stride. With six buffers one block fits on a multiprocessor:
// of grids below a round two would be put on one as the kernel before ends.
constexpr Tile kDataTiles[] = {{kGradientChannels, kDataWidth, 29, 6},
                               {kGradientChannels, kDataWidth, 15, 6},
                               {kGradientChannels, kDataWidth, 8, 6}};

constexpr int kMostColumns = 64, kMostReach = 8;  // backward_data
constexpr i64 kMostBox = 256;                     // elements and rows of the copy engine's
constexpr i64 kMostRun = 64, kMostC = 16;         // of what is worth asking: no size of a patch overflows

// Why no tile does; empty if one may.
std::string unfit(const Problem& p) {
  if (p.c > kMostC || p.c * p.r * p.s > kMostSteps * 16 || p.s * p.c > kMostRun)
    return "filters have up to " + std::to_string(kMostSteps * 16) + " weights for an output channel";
  if (p.stride_h > 8 || p.stride_w > 8) return "strides are up to 8";
  const Config c = config(kTiles[0], p);
  if (pixel_pitch(c) % 2 != 0)
    return "from a result's column to the next one it is an odd number of elements: a pair of them is no "
           "word";
  if (is_data(p)) {
    if (p.k > kGradientChannels) return "in backward_data there are up to 64 output channels";
    if (block_elements(c) > kBlockColumns || data_columns(c) > kMostColumns || reach_w(c) > kMostReach)
      return "in backward_data as many channels as a stride has pixels are 16 at most, filters four strides "
             "high";
  } else if (steps(c) > kMostSteps) {
    return "a filter's rows take " + std::to_string(steps(c)) + " products, operands of " +
           std::to_string(kMostSteps) + " are in registers";
  }
  const bool in = (c.nchw ? p.w : p.w * p.c) % 8 == 0, out = (c.nchw ? p.q() : p.k) % 8 == 0;
  if (!in || !out)
    return c.nchw ? "rows of the input and of the output are multiples of 8"
                  : "rows of the input, and output channels, are multiples of 8 elements";
  return "";
}

// Whether the tile is not much larger than the result, and fits.
bool serves(const Tile& t, const Problem& p) {
  const Config c = config(t, p);
  if (is_data(p)) return data_shared_bytes(c) <= kSharedLimit;
  const bool has_room = row_elements(c) <= kMostBox && patch_rows(c) <= kMostBox;
  if (is_weights(p))
    return has_room && (t.columns > kColumns) == c.nchw && weights_shared_bytes(c) <= kSharedLimit;
  return has_room && (t.channels == kMostChannels) == (p.k > kMostChannels / 2) &&
         shared_bytes(c) <= kSharedLimit;
}

std::string config_text(const Config& c) {
  sm90::ConfigText text;
  text.add("element", c.element == Element::bf16 ? "Element::bf16" : "Element::f16");
  text.add("nchw", c.nchw), text.add("c", c.c), text.add("r", c.r), text.add("s", c.s);
  text.add("stride_h", c.stride_h), text.add("stride_w", c.stride_w), text.add("pad_left", c.pad_left);
  text.add("channels", c.channels), text.add("width", c.width), text.add("height", c.height);
  text.add("stages", c.stages), text.add("bias", c.bias), text.add("f32_bias", c.f32_bias);
  text.add("slopes", c.slopes);
  return text.text();
}

jit::Source source(const Tile& t, const Problem& p) {
  const Config c = config(t, p);
  jit::Source source;
  source.name = "few_channels_sm90/" + config_name(t);
  source.text = config_text(c);
  using sm90::First;
  if (is_data(p)) {
    source.entry = "few_channels_data";
    source.text += sm90::wgmma_function(data_columns(c), p.dtype, First::shared, ", 0, 0");
    source.block_threads = data_threads(c), source.shared_bytes = data_shared_bytes(c);
  } else if (is_weights(p)) {
    source.entry = "few_channels_weights";
    // Pixels of the gradient lie one after the other in NHWC: not the depth, columns are side by side.
    source.text += sm90::wgmma_function(kGradientChannels, p.dtype, First::registers, c.nchw ? ", 0" : ", 1");
    source.block_threads = weights_threads(c), source.shared_bytes = weights_shared_bytes(c);
  } else {
    source.entry = "few_channels";
    source.text += "#include \"kernels/sm90/activations.cuh\"\n" +
                   sm90::activate_function(p.epilogue, p.dtype) +
                   sm90::wgmma_function(c.channels, p.dtype, First::registers, ", 0");
    source.block_threads = threads(c), source.shared_bytes = shared_bytes(c);
  }
  source.text += "#include \"kernels/sm90/" + source.entry + ".cu\"\n";
  return source;
}

// A box is a patch.
TiledMap x_map(const Problem& p, const Config& c) {
  TiledMap map;
  map.dtype = p.dtype;
  const i64 element = size_of(p.dtype), row = c.nchw ? p.w : p.w * p.c;
  map.size[0] = row, map.size[1] = p.h;
  map.box[0] = row_elements(c), map.box[1] = patch_rows(c);
  map.stride_bytes[0] = row * element, map.stride_bytes[1] = p.h * row * element;
  if (c.nchw) {
    map.rank = 4;
    map.size[2] = p.c, map.size[3] = p.n;
    map.box[2] = c.c, map.box[3] = 1;
    map.stride_bytes[2] = p.c * p.h * row * element;
  } else {
    map.rank = 3;
    map.size[2] = p.n, map.box[2] = 1;
  }
  return map;
}

// Of the output's gradient pixels of 64 channels, or 64 channels of pixels.
TiledMap gradient_map(const Problem& p, const Config& c) {
  TiledMap map;
  map.dtype = p.dtype;
  map.rank = 4;
  // Rows that warps turn are not swizzled.
  map.swizzle_bytes = is_data(p) && c.nchw ? 0 : 128;
  const i64 element = size_of(p.dtype), row = p.q() * element, plane = p.p() * row;
  const int pixels = is_data(p) ? row_pixels(c) : c.width;
  map.size[2] = p.p(), map.size[3] = p.n;
  map.box[2] = is_data(p) ? 1 : c.height, map.box[3] = 1;
  if (c.nchw) {
    map.size[0] = p.q(), map.size[1] = p.k;
    map.box[0] = pixels, map.box[1] = kGradientChannels;
    map.stride_bytes[0] = plane, map.stride_bytes[1] = row;
  } else {
    map.size[0] = p.k, map.size[1] = p.q();
    map.box[0] = kGradientChannels, map.box[1] = pixels;
    map.stride_bytes[0] = p.k * element, map.stride_bytes[1] = p.k * row;
  }
  map.stride_bytes[2] = p.k * plane;
  return map;
}

// A warp's results: 16 of a row, of all channels of a block.
TiledMap results_map(const Problem& p, const Config& c) {
  TiledMap map;
  map.dtype = p.dtype;
  map.rank = 4, map.swizzle_bytes = result_pitch(c);
  const i64 element = size_of(p.dtype), row = p.q() * element;
  map.size[3] = p.n, map.box[3] = 1;
  if (c.nchw) {
    map.size[0] = p.q(), map.size[1] = p.p(), map.size[2] = p.k;
    map.box[0] = kColumns, map.box[1] = 1, map.box[2] = c.channels;
    map.stride_bytes[0] = row, map.stride_bytes[1] = p.p() * row;
  } else {
    map.size[0] = p.k, map.size[1] = p.q(), map.size[2] = p.p();
    map.box[0] = c.channels, map.box[1] = kColumns, map.box[2] = 1;
    map.stride_bytes[0] = p.k * element, map.stride_bytes[1] = p.k * row;
  }
  map.stride_bytes[2] = p.k * p.p() * row;
  return map;
}

Recipe recipe(const Tile& t, const Problem& p, const DeviceInfo& device) {
  const Config c = config(t, p);
  const Counts n = counts(t, p, device);
  Params params{};
  params.k = narrow(p.k), params.p = narrow(p.p()), params.q = narrow(p.q());
  params.k_tiles = narrow(n.k_tiles), params.tiles = narrow(n.tiles);
  params.tiles_w = narrow(n.across), params.tiles_h = narrow(n.down);
  params.pad_top = narrow(p.pad_top), params.pad_left = narrow(p.pad_left);
  params.slope = p.epilogue.slope;
  const jit::Source program = source(t, p);
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(n.blocks);
  shape.block[0] = static_cast<unsigned>(program.block_threads);
  shape.overlaps_previous = true;
  Recipe recipe;
  recipe.alignment = 16;  // of the copy engine
  if (is_data(p)) {
    params.h = narrow(p.h), params.row = narrow(c.nchw ? p.w : p.w * p.c);
    params.first = narrow(first_row(p)), params.end = narrow(end_row(p));
    recipe.steps.push_back(launch("few channels", program, shape,
                                  {mapped({{gradient_map(p, c), {Place::y, Access::read}}}),
                                   value(params, {{offsetof(Params, w), {Place::w, Access::read}},
                                                  {offsetof(Params, y), {Place::x, Access::write}}})}));
    return recipe;
  }
  const StepArgument x = mapped({{x_map(p, c), {Place::x, Access::read}}});
  if (is_weights(p)) {
    const i64 parts = n.blocks / n.k_tiles;
    recipe.workspace_bytes = gpu::parts_bytes(p, parts);
    recipe.steps.push_back(
        launch("few channels", program, shape,
               {x, mapped({{gradient_map(p, c), {Place::y, Access::read}}}),
                value(params, {{offsetof(Params, parts), {Place::workspace, Access::write}}})}));
    recipe.steps.push_back(gpu::sum_many_parts_step(p, program.name, parts, device));
    return recipe;
  }
  StepArgument given = value(params, {{offsetof(Params, w), {Place::w, Access::read}},
                                      {offsetof(Params, bias), {Place::bias, Access::read}},
                                      {offsetof(Params, slopes), {Place::slopes, Access::read}}});
  given.rests = {{offsetof(Params, weights_rest), Place::w}};
  const StepArgument y = mapped({{results_map(p, c), {Place::y, Access::write}}});
  recipe.steps.push_back(launch("few channels", program, shape, {x, y, std::move(given)}));
  return recipe;
}

class FewChannelsSm90 : public Algorithm {
 public:
  FewChannelsSm90()
      : Algorithm({"few_channels_sm90",
                   "few input channels and a stride on Hopper's matrix units, the input as it lies", "gpu"}),
        table_(name(), kTiles),
        weights_table_(name(), kWeightTiles),
        data_table_(name(), kDataTiles) {}

 private:
  Support accepts(const Problem& p, const Target& target) const override {
    if (!target.device.has("sm_90a")) return Support::declined("needs a Hopper GPU (compute capability 9.0)");
    if (!target.device.has("nvrtc")) return Support::declined("needs NVRTC to compile its kernels");
    if (p.dtype == DType::f32 || p.math == Math::f32)
      return Support::declined("16-bit tensors in f16 or bf16 math only");
    if (p.groups > 1 || p.dilation_h > 1 || p.dilation_w > 1)
      return Support::declined("filters have no groups and no dilation");
    if (p.epilogue.residual) return Support::declined("its epilogue has no residual");
    constexpr i64 kMost = std::numeric_limits<int>::max() / 2;
    for (const i64 size :
         {p.n * p.p() * p.q(), p.k, p.pad_top + p.h + p.pad_bottom, (p.pad_left + p.w + p.pad_right) * p.c}) {
      if (size > kMost) return Support::declined("more than 2^30 pixels, channels or elements of a row");
    }
    if (const std::string why = unfit(p); !why.empty()) return Support::declined(why);
    if (p.k > i64{kMostChannels} * target.device.units || !any_serves(p))
      return Support::declined("no tile has room for its patch, or a block for each of its output channels");
    return Support::supported();
  }
  bool any_serves(const Problem& p) const {
    const TileTable<Tile>& table = table_of(p.direction);
    return std::any_of(table.begin(), table.end(), [&](const Tile& t) { return serves(t, p); });
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& t : table_of(p.direction)) {
      if (serves(t, p)) all.push_back(candidate_of(p, t, target));
    }
    return all;
  }

  const TileTable<Tile>& table_of(Direction direction) const {
    return direction == Direction::forward            ? table_
           : direction == Direction::backward_weights ? weights_table_
                                                      : data_table_;
  }
  Maker parse(const std::string& config, Direction direction) const override {
    return maker(*table_of(direction).parse(config).tile);
  }
  Maker maker(const Tile& t) const {
    return [this, t](const Problem& p, const Target& target) {
      if (serves(t, p)) return candidate_of(p, t, target);
      throw Error(Status::bad_problem, std::string(name()) + "/" + config_name(t) + " does not compute " +
                                           to_string(p) + ": it has more channels, or too large a patch");
    };
  }

  Candidate candidate_of(const Problem& p, const Tile& t, const Target& target) const {
    const DeviceInfo& device = target.device;
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    c.cost = cost(t, p, target);
    if (is_weights(p)) {
      const Counts n = counts(t, p, device);
      c.workspace_bytes = gpu::parts_bytes(p, n.blocks / n.k_tiles);
      c.accuracy.zeros_meet = ZerosMeet::channel;  // tiles reach beyond the result's gradient
    } else if (is_data(p)) {
      // A block has all taps that one of its elements has.
      c.accuracy.filter_unit_h = narrow(p.stride_h);
      c.accuracy.zeros_beside_w = narrow(p.stride_w) - 1;
    } else {
      // What octets have beside a run.
      const Config of = config(t, p);
      const int after = octets_of_run(of) * 8 - run_elements(of) - before_run(of);
      c.accuracy.zeros_beside_w = divided(std::max(before_run(of), after), of.nchw ? 1 : of.c);
    }
    c.recipe = [t, p, &device] { return recipe(t, p, device); };
    c.maker = maker(t);
    return c;
  }

  TileTable<Tile> table_, weights_table_, data_table_;
};

}  // namespace
}  // namespace few_channels_sm90

std::unique_ptr<Algorithm> make_few_channels_sm90() {
  return std::make_unique<few_channels_sm90::FewChannelsSm90>();
}

}  // namespace faltung
