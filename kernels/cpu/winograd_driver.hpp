// Winograd's algorithm over a whole tensor: blocks of tiles, each transformed, multiplied and transformed
// back while it is in the cache.
#ifndef FALTUNG_KERNELS_CPU_WINOGRAD_DRIVER_HPP_
#define FALTUNG_KERNELS_CPU_WINOGRAD_DRIVER_HPP_

#include <cstdint>
#include <vector>

#include "kernels/cpu/winograd.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {

// What the transforms read and write besides V and M.
struct WinogradTensors {
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  ResidualOrder residual_order = ResidualOrder::before_activation;
  ActivationCall activation;
  const float* slopes = nullptr;   // prelu's
  PoolKind pool = PoolKind::none;  // of 2x2 at stride 2
};

class WinogradDriver {
 public:
  // block: at most so many tiles are transformed together by a worker, which then multiplies them by all
  // filters. 0: all tiles at once, shared by the workers, each of which multiplies them by its part of the
  // filters; for problems with few tiles, whose cost is reading the filters.
  WinogradDriver(const WinogradShape& shape, std::int64_t groups, std::int64_t block, int workers);

  std::int64_t block() const { return block_; }
  std::int64_t packed_floats() const;
  std::int64_t workspace_floats() const;

  // groups: how each group's filters lie in w.
  void pack(const void* w, const std::vector<StridedView>& groups, float* u, const Parallel& parallel) const;
  void run(const WinogradTensors& tensors, const float* u, float* workspace, const Parallel& parallel) const;

 private:
  struct Filters {  // a range of one group's output channels
    std::int64_t first, count;
  };
  std::int64_t u_position() const;
  std::int64_t v_position(std::int64_t tiles) const;
  std::int64_t m_position(std::int64_t tiles) const;
  WinogradInput input_of(const WinogradTensors& tensors, std::int64_t group, std::int64_t first_tile,
                         std::int64_t tiles, float* v, float* scratch) const;
  void multiply(const float* v, std::int64_t tiles, const float* u, std::int64_t group, Filters filters,
                float* m) const;
  void output(const WinogradTensors& tensors, std::int64_t group, std::int64_t first_tile, std::int64_t tiles,
              Filters filters, const float* m, float* scratch) const;
  void run_blocks(const WinogradTensors& tensors, const float* u, float* workspace,
                  const Parallel& parallel) const;
  void run_shared(const WinogradTensors& tensors, const float* u, float* workspace,
                  const Parallel& parallel) const;

  WinogradShape shape_;
  std::int64_t groups_, c_, k_;  // channels of one group
  std::int64_t block_;           // tiles
  std::int64_t filter_block_;    // filters multiplied before M is transformed back
  bool shared_;
  int workers_;
  int lanes_;
  int width_;  // nhwc: columns of a panel of U
  std::int64_t scratch_;
  WinogradInputKernel input_kernel_;
  WinogradOutputKernel output_kernel_;
};

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_WINOGRAD_DRIVER_HPP_
