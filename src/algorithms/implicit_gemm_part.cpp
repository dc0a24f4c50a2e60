#include "src/algorithms/implicit_gemm_part.hpp"

#include <algorithm>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/pack.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

void ImplicitGemmPart::pack_block(const PackedBlock& block, const void* w) const {
  const std::int64_t taps = static_cast<std::int64_t>(t_.taps.size());
  const std::int64_t row0 = block.block * kPackedRows, rows = std::min(kPackedRows, block.length - row0);
  const auto packed_at = [&](const Panel& panel, std::int64_t tap) {
    return block.to + taps * block.length * panel.first + (tap * block.length + row0) * panel.width;
  };
  for (const Panel& panel : packed_panels_) {
    const Panel& next = &panel == &packed_panels_.back() ? panel : (&panel)[1];
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const FilterView view = filter_view(filter_, t_.taps[static_cast<std::size_t>(tap)], block.group);
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

}  // namespace faltung
