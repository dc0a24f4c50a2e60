#include "src/algorithms/gathered_product.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/algorithms/packing.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::gpu {
namespace {

using i64 = std::int64_t;

i64 packed_elements(const Problem& p, i64 out_pad) {
  return p.groups * p.r * p.s * gathered_product(p).in * out_pad;
}

// The same for every tile and epilogue.
Step pack_step(const Problem& p, const std::string& kernel, i64 out_pad, const DeviceInfo& device) {
  constexpr int kThreads = 64;
  const Constants own = {direction_constant(p),
                         {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                         {"THREADS", std::to_string(kThreads)}};
  return launch(
      "pack weights",
      source(device, kernel, "pack_weights.cl", "pack_weights", constants(without_epilogue(p), own)),
      one_dimension(packed_elements(p, out_pad), kThreads),
      {in(Place::w), out(Place::packed), number(out_pad), value(sizes(p))});
}

}  // namespace

GatheredProduct gathered_product(const Problem& p) {
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups;
  if (p.direction == Direction::forward) return {p.n * p.p() * p.q(), group_c, group_k, p.groups};
  return {p.n * ceil_div(p.h, p.stride_h) * ceil_div(p.w, p.stride_w), group_k, group_c,
          p.groups * p.stride_h * p.stride_w};
}

std::size_t packed_bytes(const Problem& p, i64 out_pad, const DeviceInfo& device) {
  // As floats where the kernel has COMPACT.
  const int element = device.has("runs_on_cpu") ? size_of(DType::f32) : size_of(p.dtype);
  return static_cast<std::size_t>(packed_elements(p, out_pad) * element);
}

Support fits_a_grid(const Problem& p, i64 block_channels) {
  const GatheredProduct g = gathered_product(p);
  if (ceil_div(g.out, block_channels) <= kMostBlocks && g.products <= kMostBlocks)
    return Support::supported();
  return Support::declined(
      fmt::format("{} channels and {} groups or phases: at most {} blocks of each are launched at once",
                  g.out, g.products, kMostBlocks));
}

Support weights_fit_a_grid(const Problem& p, i64 block_channels) {
  if (ceil_div(p.k / p.groups, block_channels) <= kMostBlocks && p.groups <= kMostBlocks)
    return Support::supported();
  return Support::declined(
      fmt::format("{} channels in {} groups: at most {} blocks of each are launched at once", p.k, p.groups,
                  kMostBlocks));
}

i64 blocks_of(const Problem& p, i64 pixels, i64 channels) {
  const GatheredProduct g = gathered_product(p);
  return ceil_div(g.pixels, pixels) * ceil_div(g.out, channels) * g.products;
}

std::vector<int> splits_of(const Problem& p, i64 blocks, i64 steps, const DeviceInfo& device) {
  std::vector<int> all = {1};
  for (const int splits : {2, 3, 4, 6, 8}) {
    if (blocks * splits > 4 * std::max(1, device.units) || steps < 4 * splits) break;
    if (gathered_product(p).products * splits <= kMostBlocks) all.push_back(splits);
  }
  return all;
}

PackedWeights packed_weights(const Problem& p, const std::string& kernel, i64 out_pad,
                             const DeviceInfo& device) {
  return {packed_bytes(p, out_pad, device), pack_step(p, kernel, out_pad, device)};
}

Recipe gathered_recipe(const Problem& p, const std::string& kernel, jit::Source product,
                       const GatheredLaunch& launched, PackedWeights weights, const DeviceInfo& device) {
  const auto& [out_pad, splits, shape, own_sizes] = launched;
  Recipe recipe;
  recipe.workspace_bytes = shared_sum_bytes(p, splits);
  recipe.packed_bytes = weights.bytes;
  recipe.packing = packing_of(p);
  recipe.pack.push_back(std::move(weights.pack));
  recipe.steps.push_back(launch("product", std::move(product), shape,
                                {in(gathered_place(p)), in(Place::packed), out(shared_sum(p, splits)),
                                 in(Place::bias), in(Place::residual), in(Place::slopes), number(out_pad),
                                 number(splits), value(own_sizes.value_or(sizes(p)))}));
  if (splits > 1) recipe.steps.push_back(finish_step(p, kernel, splits, device));
  return recipe;
}

std::vector<int> weights_splits_of(std::int64_t room, std::int64_t blocks, std::int64_t most) {
  std::vector<int> all;
  for (const std::int64_t rounds : {1, 2, 4}) {
    const std::int64_t splits =
        std::clamp<std::int64_t>(rounds * room / blocks, 1, std::max<std::int64_t>(1, most));
    if (all.empty() || all.back() != splits) all.push_back(static_cast<int>(splits));
  }
  return all;
}

}  // namespace faltung::gpu
