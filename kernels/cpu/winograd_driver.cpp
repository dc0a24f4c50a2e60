#include "kernels/cpu/winograd_driver.hpp"

#include <algorithm>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/stretch.hpp"
#include "kernels/cpu/with_dtype.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A stride between positions that is an odd number of cache lines, so that the positions of one tile and
// channel spread over all sets of a cache.
i64 spread(i64 floats) {
  constexpr i64 kLine = 16;
  return (ceil_div(floats, kLine) | 1) * kLine;
}

// C (rows x columns) = A B, with A's rows a_row_stride apart and its columns side by side.
struct Product {
  i64 rows, columns, length;
  const float* a;
  i64 a_row_stride;
  const float* b;
  i64 b_step;
  float* c;
  i64 c_row_stride;
};

// columns is a number of whole vectors, at most `vectors` of them.
void multiply_panel(const Product& p, int vectors, Stretch& next) {
  constexpr i64 kGroup = 7;  // rows of a tile that brgemm takes from one address
  const BrgemmSegment segment{0, 0};
  const i64 tiles = ceil_div(p.rows, brgemm_max_rows(vectors));
  BrgemmCall call;
  call.a_row_stride = p.a_row_stride;
  call.b = p.b;
  call.b_step = p.b_step;
  call.segments = &segment;
  call.segment_count = 1;
  call.length = p.length;
  call.c_row_stride = p.c_row_stride;
  call.columns = static_cast<int>(p.columns);
  for (i64 tile = 0; tile < tiles; ++tile) {
    const Range rows = share(p.rows, static_cast<int>(tile), static_cast<int>(tiles));
    const float* a = p.a + rows.begin * p.a_row_stride;
    call.a0 = a;
    call.a1 = a + kGroup * p.a_row_stride;
    call.c0 = p.c + rows.begin * p.c_row_stride;
    call.c1 = call.c0 + kGroup * p.c_row_stride;
    call.ahead = next.next(), call.ahead_step = next.step();
    brgemm_kernel(BrgemmRows::strided, static_cast<int>(rows.end - rows.begin), vectors)(call);
  }
}

}  // namespace

WinogradDriver::WinogradDriver(const WinogradShape& shape, i64 groups, i64 block, int workers)
    : shape_(shape),
      groups_(groups),
      c_(shape.x_channels / groups),
      k_(shape.y_channels / groups),
      shared_(block == 0),
      workers_(workers),
      lanes_(brgemm_lanes()),
      input_kernel_(winograd_input_kernel(shape)),
      output_kernel_(winograd_output_kernel(shape)) {
  block_ = shape.tiles();
  if (!shared_) {
    // Even blocks, as many for each worker, and none larger than asked for.
    const i64 blocks = round_up(ceil_div(block_, block), workers);
    block_ = ceil_div(block_, blocks);
    if (shape.layout == Layout::nchw) block_ = std::min(block, round_up(block_, lanes_));
  }
  width_ = static_cast<int>(std::min<i64>(2, ceil_div(k_, lanes_))) * lanes_;
  scratch_ = winograd_scratch(shape, block_);
  // Blocks of filters as even as whole panels allow. M lies beside V in half of a level-2 cache of a megabyte
  // or two; tiles shared by all workers are read once each, whatever becomes of M.
  constexpr i64 kFloats = 128 << 10;
  const i64 part = shared_ ? ceil_div(k_, workers) : k_;
  const i64 fits = shared_ ? part : kFloats / (shape.positions() * round_up(block_, lanes_));
  const i64 blocks = ceil_div(part, std::max<i64>(width_, fits));
  filter_block_ = round_up(ceil_div(part, blocks), width_);
}

i64 WinogradDriver::v_position(i64 tiles) const {
  return spread(shape_.layout == Layout::nhwc ? tiles * round_up(c_, lanes_) : c_ * round_up(tiles, lanes_));
}
i64 WinogradDriver::m_position(i64 tiles) const {
  return spread(shape_.layout == Layout::nhwc ? tiles * filter_block_
                                              : filter_block_ * round_up(tiles, lanes_));
}
i64 WinogradDriver::u_position() const {
  return spread(shape_.layout == Layout::nhwc ? packed_brgemm_b_elements(c_, k_, width_) : k_ * c_);
}

i64 WinogradDriver::packed_floats() const { return groups_ * shape_.positions() * u_position(); }

i64 WinogradDriver::workspace_floats() const {
  const i64 v = shape_.positions() * v_position(block_), m = shape_.positions() * m_position(block_);
  return shared_ ? v + workers_ * (m + spread(scratch_)) : workers_ * (v + m + spread(scratch_));
}

void WinogradDriver::pack(const void* w, const std::vector<StridedView>& groups, float* u,
                          const Parallel& parallel) const {
  // Some filters at a time: those beside each other in a panel fill whole cache lines, or in nchw channels.
  const bool nhwc = shape_.layout == Layout::nhwc;
  const i64 width = nhwc ? width_ : 1, blocks = ceil_div(k_, width), channels = nhwc ? 1 : kMostFilters;
  parallel.each(groups_ * blocks, [&](i64 index, int) {
    const i64 group = index / blocks, k0 = index % blocks * width;
    const StridedView& filters = groups[static_cast<std::size_t>(group)];
    float* const to = u + group * shape_.positions() * u_position() + k0 * c_;
    float taps[9 * kMostFilters] = {};
    for (i64 c = 0; c < c_; c += channels) {
      const i64 known = nhwc ? std::min(width, k_ - k0) : std::min(channels, c_ - c);
      with_dtype(shape_.dtype, [&](auto type) {
        for (i64 j = 0; j < known; ++j) {
          for (int t = 0; t < 9; ++t)
            taps[t * kMostFilters + j] =
                load_element(type, w, filters.at(nhwc ? k0 + j : k0, nhwc ? c : c + j, t / 3, t % 3));
        }
      });
      winograd_filters(shape_.m, nhwc ? width : known, taps, to + c * width, u_position());
    }
  });
}

void WinogradDriver::multiply(const float* v, i64 tiles, const float* u, i64 group, Filters filters,
                              float* m) const {
  // What a level-2 cache does not hold beside V and M is read ahead, a position at a time.
  constexpr i64 kCached = 256 << 10;  // floats
  const bool far = shape_.positions() * filters.count * c_ > kCached;
  const bool nhwc = shape_.layout == Layout::nhwc;
  const i64 v_row = round_up(nhwc ? c_ : block_, lanes_), m_row = nhwc ? filter_block_ : v_row;
  const i64 step = nhwc ? width_ : 2 * lanes_, count = nhwc ? filters.count : tiles;
  const int most_rows = brgemm_max_rows(static_cast<int>(std::min(step / lanes_, ceil_div(count, lanes_))));
  const i64 calls = ceil_div(count, step) * ceil_div(nhwc ? tiles : filters.count, most_rows);
  for (int position = 0; position < shape_.positions(); ++position) {
    const float* u_at = u + (group * shape_.positions() + position) * u_position() + filters.first * c_;
    const float* v_at = v + position * v_position(block_);
    float* m_at = m + position * m_position(block_);
    const float* u_next = far && position + 1 < shape_.positions() ? u_at + u_position() : nullptr;
    Stretch next;
    if (u_next != nullptr) next = Stretch(u_next, 4 * filters.count * c_, calls, c_);
    for (i64 i = 0; i < count; i += step) {
      const i64 columns = std::min(step, round_up(count - i, lanes_));
      const int vectors = static_cast<int>(columns / lanes_);
      if (nhwc) {
        multiply_panel({tiles, columns, c_, v_at, v_row, u_at + i * c_, width_, m_at + i, m_row}, vectors,
                       next);
      } else {
        multiply_panel({filters.count, columns, c_, u_at, c_, v_at + i, v_row, m_at + i, m_row}, vectors,
                       next);
      }
    }
  }
}

void WinogradDriver::output(const WinogradTensors& tensors, i64 group, i64 first_tile, i64 tiles,
                            Filters filters, const float* m, float* scratch) const {
  WinogradOutput o;
  o.m = m;
  o.position_stride = m_position(block_);
  o.row_stride = shape_.layout == Layout::nhwc ? filter_block_ : round_up(block_, lanes_);
  o.first_tile = first_tile;
  o.tiles = tiles;
  o.first_channel = group * k_ + filters.first;
  o.channels = filters.count;
  o.y = tensors.y;
  o.bias = tensors.bias;
  o.residual = tensors.residual;
  o.residual_order = tensors.residual_order;
  o.activation = tensors.activation;
  o.slopes = tensors.slopes;
  o.pool = tensors.pool;
  o.scratch = scratch;
  output_kernel_(shape_, o);
}

WinogradInput WinogradDriver::input_of(const WinogradTensors& tensors, i64 group, i64 first_tile, i64 tiles,
                                       float* v, float* scratch) const {
  WinogradInput in;
  in.x = tensors.x;
  in.first_tile = first_tile;
  in.tiles = tiles;
  in.first_channel = group * c_;
  in.channels = c_;
  in.v = v;
  in.position_stride = v_position(block_);
  in.row_stride = round_up(shape_.layout == Layout::nhwc ? c_ : block_, lanes_);
  in.scratch = scratch;
  return in;
}

void WinogradDriver::run(const WinogradTensors& tensors, const float* u, float* workspace,
                         const Parallel& parallel) const {
  shared_ ? run_shared(tensors, u, workspace, parallel) : run_blocks(tensors, u, workspace, parallel);
}

void WinogradDriver::run_blocks(const WinogradTensors& tensors, const float* u, float* workspace,
                                const Parallel& parallel) const {
  const i64 v_floats = shape_.positions() * v_position(block_);
  const i64 m_floats = shape_.positions() * m_position(block_);
  const i64 blocks = ceil_div(shape_.tiles(), block_);
  parallel.each(blocks * groups_, [&](i64 index, int worker) {
    float* v = workspace + worker * (v_floats + m_floats + spread(scratch_));
    float* m = v + v_floats;
    float* scratch = m + m_floats;
    const i64 group = index % groups_, first = index / groups_ * block_;
    const i64 tiles = std::min(block_, shape_.tiles() - first);
    input_kernel_(shape_, input_of(tensors, group, first, tiles, v, scratch));
    for (i64 k = 0; k < k_; k += filter_block_) {
      const Filters filters{k, std::min(filter_block_, k_ - k)};
      multiply(v, tiles, u, group, filters, m);
      output(tensors, group, first, tiles, filters, m, scratch);
    }
  });
}

void WinogradDriver::run_shared(const WinogradTensors& tensors, const float* u, float* workspace,
                                const Parallel& parallel) const {
  const i64 v_floats = shape_.positions() * v_position(block_);
  const i64 m_floats = shape_.positions() * m_position(block_);
  const i64 tiles = shape_.tiles();
  const auto own = [&](int worker) { return workspace + v_floats + worker * (m_floats + spread(scratch_)); };
  for (i64 group = 0; group < groups_; ++group) {
    const WinogradInput all = input_of(tensors, group, 0, tiles, workspace, nullptr);
    // Whole vectors of channels or tiles a worker.
    parallel.run([&](int worker) {
      const Range part = share(ceil_div(c_, lanes_), worker, parallel.workers());
      WinogradInput in = all;
      in.first_channel += part.begin * lanes_;
      in.channels = std::min(c_, part.end * lanes_) - part.begin * lanes_;
      in.v += part.begin * lanes_ * (shape_.layout == Layout::nhwc ? 1 : in.row_stride);
      in.scratch = own(worker) + m_floats;
      if (in.channels > 0) input_kernel_(shape_, in);
    });
    parallel.each(ceil_div(k_, filter_block_), [&](i64 index, int worker) {
      float* m = own(worker);
      const Filters filters{index * filter_block_, std::min(filter_block_, k_ - index * filter_block_)};
      multiply(workspace, tiles, u, group, filters, m);
      output(tensors, group, 0, tiles, filters, m, m + m_floats);
    });
  }
}

}  // namespace faltung
