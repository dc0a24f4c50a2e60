#include "src/algorithms/implicit_gemm_part.hpp"

#include <algorithm>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/pack.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

void ImplicitGemmPart::pack_column_phases(const PackedBlock& block, const void* w) const {
  const std::int64_t taps = static_cast<std::int64_t>(t_.taps.size());
  const std::int64_t row0 = block.block * kPackedRows, rows = std::min(kPackedRows, block.length - row0);
  const std::int64_t channels = t_.out_channels / t_.column_phases;
  for (const Panel& panel : packed_panels_) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      float* const to =
          block.to + taps * block.length * panel.first + (tap * block.length + row0) * panel.width;
      for (std::int64_t column = 0; column < panel.width; ++column) {
        const std::int64_t k = panel.first + column;
        Tap at = t_.taps[static_cast<std::size_t>(tap)];
        at.s += k / channels;
        const bool none = column >= panel.columns || at.s < 0 || at.s >= filter_.s;
        const FilterView view = none ? FilterView{} : filter_view(filter_, at, block.group);
        const std::int64_t from =
            view.base + (block.first + row0) * view.c_stride + k % channels * view.k_stride;
        for (std::int64_t row = 0; row < rows; ++row) {
          to[row * panel.width + column] = none ? 0 : load_element(p_.dtype, w, from + row * view.c_stride);
        }
      }
    }
  }
}

void ImplicitGemmPart::pack_block(const PackedBlock& block, const std::vector<Tap>& list,
                                  const void* w) const {
  if (t_.column_phases > 1) return pack_column_phases(block, w);
  const std::int64_t taps = static_cast<std::int64_t>(list.size());
  const std::int64_t row0 = block.block * kPackedRows, rows = std::min(kPackedRows, block.length - row0);
  const auto packed_at = [&](const Panel& panel, std::int64_t tap) {
    return block.to + taps * block.length * panel.first + (tap * block.length + row0) * panel.width;
  };
  for (const Panel& panel : packed_panels_) {
    const Panel& next = &panel == &packed_panels_.back() ? panel : (&panel)[1];
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const FilterView view = filter_view(filter_, list[static_cast<std::size_t>(tap)], block.group);
      PackCall call;
      call.dtype = p_.dtype;
      call.from = static_cast<const std::byte*>(w) +
                  (view.base + (block.first + row0) * view.c_stride + panel.first * view.k_stride) *
                      size_of(p_.dtype);
      call.row_stride = view.c_stride, call.column_stride = view.k_stride;
      call.rows = rows, call.columns = panel.columns, call.width = panel.width;
      call.to = packed_at(panel, tap);
      call.next = tap + 1 < taps ? packed_at(panel, tap + 1) : packed_at(next, 0);
      // What taps of the next panel read, where they share it: a part of it each.
      call.share = view.k_stride == 1 ? 0 : tap, call.shares = view.k_stride == 1 ? 1 : taps;
      pack_columns(call);
    }
  }
}

// Panels are what they are padded to.
double ImplicitGemmPart::busiest_share(int threads) const {
  constexpr std::int64_t kFewItems = 64;  // of more the last one counts little
  const std::int64_t count = items();
  if (count > kFewItems || packed_panels_.empty())
    return static_cast<double>(ceil_div(count, std::int64_t{threads})) / static_cast<double>(count);
  std::vector<std::int64_t> busy(static_cast<std::size_t>(threads), 0);
  std::int64_t all = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const WorkItem item = grid_.item(i);
    std::int64_t work = 0;
    for (std::int64_t panel = item.panel0; panel < item.panel1; ++panel)
      work += packed_panels_[static_cast<std::size_t>(panel)].width;
    work *= item.images * item.rows * item.columns;
    *std::min_element(busy.begin(), busy.end()) += work;
    all += work;
  }
  return static_cast<double>(*std::max_element(busy.begin(), busy.end())) / static_cast<double>(all);
}

}  // namespace faltung
