// Attention on a GPU's matrix units (kernels/gpu/attention.cu): how many queries and keys a block takes at a
// time.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// As the kernel has them; blocks: that are to fit on a unit by their registers.
struct AttentionTile {
  int warps, tiles_q, sides, keys, blocks;
  int queries() const { return warps * tiles_q * 16; }
  int threads() const { return 32 * warps * sides; }
  int local_bytes(i64 depth) const {
    const int row = static_cast<int>(round_up(depth, 16)) * 2 + 16;
    const int parts = sides == 1 ? 0 : queries() * keys * sides * 4;
    return (queries() + 4 * keys) * row + parts;
  }
};

// A warp with more queries reads less of keys and values from local memory; with fewer there are more blocks.
AttentionTile tile_of(const AttentionCall& call, const DeviceInfo& device) {
  const auto fills = [&](const AttentionTile& tile) {
    return ceil_div(call.queries, tile.queries()) * call.batches * call.heads >= device.units;
  };
  if (call.depth > 256) {
    constexpr AttentionTile kMany{4, 1, 2, 32, 1}, kFew{2, 1, 2, 32, 1};
    return fills(kMany) ? kMany : kFew;
  }
  if (call.depth > 160) return {4, 1, 1, 32, 1};
  if (call.depth > 80) {
    constexpr AttentionTile kMany{4, 1, 1, 64, 2}, kFew{2, 1, 2, 64, 3};
    return fills(kMany) || call.depth % 32 != 0 ? kMany : kFew;
  }
  const bool is_long = call.depth > 64;
  const AttentionTile many{4, 2, 1, is_long ? 32 : 64, 2}, few{4, 1, 1, 64, is_long ? 2 : 3};
  return fills(many) ? many : few;
}

}  // namespace

bool computes_attention(const AttentionCall& call, const DeviceInfo& device) {
  if (device.dialect != "cuda" || !device.has("mma_sync") || !is_half(call.element)) return false;
  constexpr i64 kMostBatches = 65535, kMostRows = i64{1} << 30, kReserved = 1024;
  if (call.batches * call.heads > kMostBatches || std::max(call.queries, call.keys) > kMostRows) return false;
  if (std::min({call.batches, call.heads, call.queries, call.keys, call.depth}) < 1) return false;
  if (call.depth % (call.depth > 256 ? 32 : 8) != 0 || call.depth > 512) return false;
  for (const AttentionCall::Strides& s : {call.q, call.k, call.v, call.y}) {
    if (s.batch % 8 != 0 || s.head % 8 != 0 || s.row % 8 != 0) return false;
  }
  if (!(call.scale > 0) || !std::isfinite(call.scale)) return false;
  return device.unit.known() &&
         tile_of(call, device).local_bytes(call.depth) + kReserved <= device.unit.local_bytes;
}

std::vector<faltung::Step> attention_steps(const AttentionCall& call, const DeviceSlots& slots,
                                           const DeviceInfo& device) {
  const AttentionTile tile = tile_of(call, device);
  const i64 last = std::max({call.queries * std::max(call.q.row, call.y.row),
                             call.keys * std::max(call.k.row, call.v.row), tile.queries() * call.q.row});
  const gpu::Constants own = {{call.element == MapElement::f16 ? "DTYPE_f16" : "DTYPE_bf16", "1"},
                              {"DEPTH", std::to_string(call.depth)},
                              {"WARPS", std::to_string(tile.warps)},
                              {"TILES_Q", std::to_string(tile.tiles_q)},
                              {"SIDES", std::to_string(tile.sides)},
                              {"KEYS", std::to_string(tile.keys)},
                              {"THREADS", std::to_string(tile.threads())},
                              {"BLOCKS", std::to_string(tile.blocks)},
                              {"WIDE", is_wide(last) ? "1" : "0"}};
  std::vector<StepArgument> arguments{in(slots.reads[0]), in(slots.reads[1]), in(slots.reads[2]),
                                      out(slots.write)};
  for (const i64 number : {call.heads, call.queries, call.keys}) arguments.push_back(value(number));
  arguments.push_back(value(static_cast<float>(call.scale * std::numbers::log2e)));
  for (const AttentionCall::Strides& s : {call.q, call.k, call.v, call.y}) arguments.push_back(value(s));
  return {
      launch("attention",
             gpu::source(device, "attention", "attention.cu", "attention", own, tile.local_bytes(call.depth)),
             gpu::grid(ceil_div(call.queries, tile.queries()), call.batches * call.heads, 1, tile.threads()),
             std::move(arguments))};
}

}  // namespace faltung::network
