#include "src/algorithms/sm90/channel_sums.hpp"

#include <algorithm>

#include "src/algorithms/sm90/kernel_config.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {

unsigned persistent_blocks(const Tiling& t, const Problem& p, int k_tiles, int tiles, const Chip& chip) {
  const int units = chip.multiprocessors;
  const int even = keeps_channels(t, p) ? units / k_tiles * k_tiles : units;
  return static_cast<unsigned>(std::min(tiles, std::max(even, k_tiles)));
}

ChannelSums channel_sums(const Tiling& t, const Problem& p, std::size_t taken, const Chip& chip) {
  ChannelSums sums;
  sums.workspace_bytes = taken;
  if (!sums_channels(t, p)) return sums;
  const int k_tiles = narrow(ceil_div(p.k, t.channels));
  const unsigned blocks = persistent_blocks(t, p, k_tiles, narrow(tiles(t, p)), chip);
  sums.parts = static_cast<int>(blocks) / k_tiles * channel_sum_parts(t);
  sums.columns = 2 * narrow(p.k);
  sums.at = faltung::aligned(taken);
  sums.workspace_bytes =
      sums.at + static_cast<std::size_t>(sums.parts) * sizeof(float) * static_cast<std::size_t>(sums.columns);
  return sums;
}

Step sum_channels(const ChannelSums& sums) {
  constexpr unsigned kColumns = 8, kThreads = 512;  // of a block, as the kernel has them
  jit::Source source;
  source.name = source.entry = "sum_channels";
  source.text = "#include \"kernels/sm90/sum_channels.cu\"\n";
  LaunchShape shape;
  shape.grid[0] = (static_cast<unsigned>(sums.columns) + kColumns - 1) / kColumns;
  shape.block[0] = kThreads;
  shape.overlaps_previous = true;
  return launch("sums of channels' parts", std::move(source), shape,
                {in({Place::workspace, sums.at}), out(Place::sums), value(sums.columns), value(sums.parts)});
}

}  // namespace faltung::sm90
