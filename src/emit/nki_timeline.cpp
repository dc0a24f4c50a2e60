#include "src/emit/nki_timeline.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::nki {
namespace {

using i64 = std::int64_t;
constexpr i64 kPartitions = NkiCore::kPartitions;

double us(double cycles, double ghz) { return cycles / ghz * 1e-3; }

// The kernel's loops, instruction by instruction but for the taps, in its order. Buffers are taken in turn,
// each free once what was done with it before has ended; engines work their own instructions off in order.
class Walk {
 public:
  Walk(const Problem& p, const Schedule& s, const NkiCore& core)
      : p_(p), s_(s), core_(core), f32_(p.dtype == DType::f32), e_(size_of(p.dtype)) {
    x_free_.assign(s.x_buffers, 0), w_free_.assign(s.w_buffers, 0), y_free_.assign(s.y_buffers, 0);
    bank_free_.assign(Schedule::kBanks, 0);
  }

  void part(i64 c, i64 k) {
    c_ = c, k_ = k;
    if (s_.weights == Schedule::Weights::grouped && parts_ == 0)
      for (int raw = 0; raw < 2; ++raw) run(Engine::gpsimd, 0, kPartitions * p_.r * p_.s);
    const int buffer = parts_++ % s_.w_buffers;
    w_ready_ = load_weights(w_free_[buffer]);
    if (p_.epilogue.bias)
      for (i64 k0 = 0; k0 < k_; k0 += kPartitions)
        w_ready_ = std::max(w_ready_, copy(Engine::dma_in, 0, std::min(kPartitions, k_ - k0), e_, 1));
    w_buffer_ = buffer;
  }

  void images(i64 count) {
    for (i64 y0 = 0; y0 < p_.y_h(); y0 += s_.choice.rows) {
      const Range rows =
          of_y(y0, s_.choice.rows, p_.y_h(), p_.p(), pool().stride_h, pool().size_h, pool().pad_top);
      for (i64 z0 = 0; z0 < p_.y_w(); z0 += s_.choice.cols) {
        block(count, rows,
              of_y(z0, s_.choice.cols, p_.y_w(), p_.q(), pool().stride_w, pool().size_w, pool().pad_left));
      }
    }
  }

  double end() const { return end_; }
  // What is counted from now on counts so often.
  void weigh(i64 weight) { weight_ = weight; }
  void start_picture() { drawing_ = true; }

  std::array<Work, kEngines> work{};
  Work turning;
  struct Interval {
    Engine engine;
    double from, to;
  };
  std::vector<Interval> intervals;

 private:
  // Rows or columns: of y, of the convolution, and of the pool's window with its padding.
  struct Range {
    i64 y, conv_first, conv, window, before;
  };
  const Pool& pool() const { return p_.epilogue.pool; }
  static Range of_y(i64 y0, i64 most, i64 all, i64 conv, i64 stride, i64 size, i64 pad) {
    const i64 y = std::min(most, all - y0), from = y0 * stride - pad, window = (y - 1) * stride + size;
    const i64 first = std::max<i64>(0, from);
    return {y, first, std::min(conv, from + window) - first, window, first - from};
  }

  double take(Engine engine, double ready, double duration, i64 instructions, i64 amount) {
    const auto i = static_cast<std::size_t>(engine);
    const double begin = std::max(ready, free_[i]);
    free_[i] = begin + duration;
    work[i].instructions += weight_ * instructions;
    work[i].amount += weight_ * amount;
    work[i].busy_us += static_cast<double>(weight_) * duration;
    if (drawing_) intervals.push_back({engine, begin, begin + duration});
    end_ = std::max(end_, begin + duration);
    return begin + duration;
  }

  // One instruction on so many elements of each partition, `times` of which are taken a cycle.
  double run(Engine engine, double ready, i64 elements, double per_element = 1) {
    const double ghz = engine == Engine::vector   ? core_.vector_ghz
                       : engine == Engine::scalar ? core_.scalar_ghz
                                                  : core_.gpsimd_ghz;
    const double cycles = NkiCore::kAccessCycles + static_cast<double>(elements) * per_element;
    return take(engine, ready, us(cycles, ghz), 1, elements) + NkiCore::kSemaphoreUs;
  }

  // On so many partitions, pieces of run bytes each.
  double copy(Engine queue, double ready, i64 partitions, i64 run, i64 pieces) {
    const i64 bytes = partitions * run * pieces;
    const double engines =
        std::clamp<double>(static_cast<double>(ceil_div<i64>(partitions, 8)), 1, NkiCore::kDmaEngines);
    const double gbps = std::min(core_.hbm_gbps, engines * core_.dma_gbps);
    const double moved =
        static_cast<double>(bytes) + NkiCore::kDmaRunBytes * static_cast<double>(partitions * pieces);
    return take(queue, ready, moved / gbps * 1e-3, 1, bytes) + NkiCore::kDmaLatencyUs;
  }

  // A transpose on the tensor engine, of so many partitions; its bank is emptied by the vector engine.
  double turn(double ready, i64 partitions) {
    const double cycles = static_cast<double>(std::max<i64>(NkiCore::kLeastColumns, partitions)) *
                          (f32_ ? NkiCore::kF32TurnPasses : 1);
    const double duration = us(cycles, core_.tensor_ghz);
    turning.instructions += weight_, turning.amount += weight_ * partitions;
    turning.busy_us += static_cast<double>(weight_) * duration;
    return take(Engine::tensor, ready, duration, 0, 0) + NkiCore::kSemaphoreUs;
  }
  double empty_turned(double ready, i64 elements) {
    return run(Engine::vector, ready, elements, f32_ ? 1 : 1.0 / core_.copy_16bit);
  }
  double pair(double ready, i64 elements, bool is_16bit) {
    return run(Engine::vector, ready, elements, 2.0 / (is_16bit ? core_.vector_16bit : 1));
  }

  double load_weights(double buffer_free) {
    const i64 taps = p_.r * p_.s;
    double ready = buffer_free;
    if (s_.weights == Schedule::Weights::depthwise) {
      const double there = copy(Engine::dma_in, buffer_free, c_, taps * e_, 1);
      for (i64 tap = 0; tap < taps; ++tap) ready = run(Engine::vector, there, c_);
      return ready;
    }
    const bool planes = p_.layout == Layout::nchw;
    for (i64 k = 0; k < k_; k += kPartitions) {
      const i64 kw = std::min(kPartitions, k_ - k);
      for (i64 c = 0; c < c_; c += kPartitions) {
        const i64 cn = std::min(kPartitions, c_ - c), lie_together = planes ? cn * taps : cn;
        double there = 0;
        if (s_.weights == Schedule::Weights::grouped) {
          const i64 kg = p_.k / p_.groups, cg = p_.c / p_.groups;
          for (i64 g = 0; g < c_ / cg; ++g)
            there = copy(Engine::dma_in, buffer_free, kg, (planes ? cg * taps : cg) * e_, planes ? 1 : taps);
        } else {
          there = copy(Engine::dma_in, buffer_free, kw, lie_together * e_, planes ? 1 : taps);
        }
        for (i64 tap = 0; tap < taps; tap += 4) {
          const i64 tn = std::min<i64>(4, taps - tap);
          double turned = 0;
          for (i64 t = 0; t < tn; ++t) turned = turn(there, kw);
          ready = empty_turned(turned, tn * kw);
        }
      }
    }
    return ready;
  }

  // A tensor's window into SBUF, channels on partitions. width: of the tensor's rows.
  double load(double ready, i64 count, i64 channels, i64 rows, i64 cols, i64 width) {
    double there = ready;
    if (rows <= 0 || cols <= 0) return there;
    if (p_.layout == Layout::nchw) {
      const bool whole = cols == width;
      for (i64 c = 0; c < channels; c += kPartitions)
        there = copy(Engine::dma_in, ready, std::min(kPartitions, channels - c),
                     (whole ? rows * cols : cols) * e_, count * (whole ? 1 : rows));
      return there;
    }
    const i64 at_once = cols == width && width <= kPartitions ? kPartitions / width : 1;
    for (i64 i = 0; i < count; ++i) {
      for (i64 h = 0; h < rows; h += at_once) {
        for (i64 v = 0; v < cols; v += kPartitions) {
          const i64 pixels = std::min(at_once, rows - h) * std::min(kPartitions, cols - v);
          const double came = copy(Engine::dma_in, ready, pixels, channels * e_, 1);
          for (i64 c = 0; c < channels; c += kPartitions) there = empty_turned(turn(came, pixels), pixels);
        }
      }
    }
    return there;
  }

  void store(double ready, i64 count, i64 channels, i64 rows, i64 cols, double& free) {
    const i64 width = p_.y_w();
    if (p_.layout == Layout::nchw) {
      const bool whole = cols == width;
      free = copy(Engine::dma_out, ready, channels, (whole ? rows * cols : cols) * e_,
                  count * (whole ? 1 : rows));
      return;
    }
    const i64 at_once = cols == width && width <= kPartitions ? kPartitions / width : 1;
    for (i64 i = 0; i < count; ++i) {
      for (i64 h = 0; h < rows; h += at_once) {
        for (i64 v = 0; v < cols; v += kPartitions) {
          const i64 pixels = std::min(at_once, rows - h) * std::min(kPartitions, cols - v);
          free =
              copy(Engine::dma_out, empty_turned(turn(ready, channels), channels), pixels, channels * e_, 1);
        }
      }
    }
  }

  void block(i64 count, const Range& rows, const Range& cols) {
    const int xb = blocks_++ % s_.x_buffers;
    // The window on x, and what of it lies in the image.
    const auto inside = [](i64 first, i64 span, i64 size) {
      return std::min(size, first + span) - std::max<i64>(0, first);
    };
    const i64 hn = (rows.conv - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h + 1;
    const i64 wn = (cols.conv - 1) * p_.stride_w + (p_.s - 1) * p_.dilation_w + 1;
    const i64 h_in = std::clamp<i64>(inside(rows.conv_first * p_.stride_h - p_.pad_top, hn, p_.h), 0, hn);
    const i64 w_in = std::clamp<i64>(inside(cols.conv_first * p_.stride_w - p_.pad_left, wn, p_.w), 0, wn);
    double x_ready = x_free_[xb];
    if (h_in < hn || w_in < wn) {
      for (i64 c = 0; c < c_; c += kPartitions) x_ready = run(Engine::gpsimd, x_free_[xb], count * hn * wn);
    }
    x_ready = load(x_ready, count, c_, h_in, w_in, p_.w);

    for (i64 k = 0; k < k_; k += kPartitions) {
      const i64 kw = std::min(kPartitions, k_ - k);
      const int yb = tiles_++ % s_.y_buffers;
      double rest_ready = 0, values_ready = 0;
      double y_free = y_free_[yb];
      if (pads_pool()) y_free = run(Engine::gpsimd, y_free, count * s_.window_rows * s_.window_cols);
      if (p_.epilogue.residual) rest_ready = load(y_free_[yb], count, kw, rows.conv, cols.conv, p_.q());
      for (i64 h = 0; h < rows.conv; h += s_.group_rows) {
        const i64 sums = count * std::min(s_.group_rows, rows.conv - h) * cols.conv;
        values_ready = group(sums, x_ready, std::max(rest_ready, y_free));
        x_free_[xb] = std::max(x_free_[xb], free_[0]);
      }
      if (has_pool(p_)) values_ready = pool(values_ready, count, rows, cols);
      store(values_ready, count, kw, rows.y, cols.y, y_free_[yb]);
    }
    w_free_[w_buffer_] = free_[0];
  }

  // A bank's products, and what empties it.
  double group(i64 sums, double x_ready, double y_free) {
    const int bank = banks_++ % Schedule::kBanks;
    const i64 products = ceil_div(c_, kPartitions) * p_.r * p_.s;
    const double columns = static_cast<double>(std::max<i64>(sums, NkiCore::kLeastColumns));
    const double cycles = f32_ ? NkiCore::kF32Passes * columns + NkiCore::kF32LoadCycles : columns;
    const double ready = std::max({x_ready, w_ready_, bank_free_[bank]});
    const double summed =
        take(Engine::tensor, ready, static_cast<double>(products) * us(cycles, core_.tensor_ghz), products,
             products * sums) +
        NkiCore::kSemaphoreUs;
    return bank_free_[bank] = finish(std::max(summed, y_free), sums, banks_ - 1);
  }

  double finish(double ready, i64 sums, i64 turn) {
    const Epilogue& e = p_.epilogue;
    if (e.residual) {
      ready = pair(ready, sums, false);
      if (e.activation == Activation::none) return ready;
    } else if (s_.choice.emptying == Emptying::both && turn % 2 == 1) {
      return run(Engine::vector, ready, sums);
    } else {
      ready = run(Engine::scalar, ready, sums);
      if (!needs_scratch(p_)) return ready;
    }
    switch (e.activation) {
      case Activation::relu6:
        return run(Engine::vector, ready, sums);
      case Activation::leaky_relu:
        return pair(ready, sums, false);
      case Activation::hardswish:
        return pair(run(Engine::vector, run(Engine::vector, ready, sums), sums), sums, false);
      default:
        return run(Engine::scalar, ready, sums);
    }
  }

  double pool(double ready, i64 count, const Range& rows, const Range& cols) {
    const bool average = pool().kind == PoolKind::average, is_16bit = !average && !f32_;
    const i64 window = pool().size_h * pool().size_w;
    for (i64 i = 1; i < window; ++i) ready = pair(ready, count * rows.y * cols.y, is_16bit);
    if (window == 1) ready = run(Engine::vector, ready, count * rows.y * cols.y);
    if (!average) return ready;
    for (i64 i = cut(rows, pool().stride_h, pool().size_h, p_.p()); i > 0; --i)
      ready = run(Engine::vector, ready, count * cols.y);
    for (i64 j = cut(cols, pool().stride_w, pool().size_w, p_.q()); j > 0; --j)
      ready = run(Engine::vector, ready, count * rows.y);
    return run(Engine::vector, ready, count * rows.y * cols.y);
  }
  bool pads_pool() const {
    return pool().pad_top > 0 || pool().pad_bottom > 0 || pool().pad_left > 0 || pool().pad_right > 0;
  }
  // How many windows of a range the padding cuts.
  static i64 cut(const Range& range, i64 stride, i64 size, i64 all) {
    i64 count = 0;
    for (i64 i = 0; i < range.y; ++i) {
      const i64 from = range.conv_first - range.before + i * stride;
      count += from < 0 || from + size > all;
    }
    return count;
  }

  const Problem& p_;
  const Schedule& s_;
  const NkiCore& core_;
  const bool f32_;
  const i64 e_;
  i64 c_ = 0, k_ = 0, weight_ = 1;
  int parts_ = 0, blocks_ = 0, tiles_ = 0, banks_ = 0, w_buffer_ = 0;
  bool drawing_ = false;
  double w_ready_ = 0, end_ = 0;
  std::array<double, kEngines> free_{};
  std::vector<double> x_free_, w_free_, y_free_, bank_free_;
};

// How often what is alike comes: channels and filters of a part, images of a block.
struct Part {
  i64 c, k, times;
};
std::vector<Part> parts_of(const Problem& p, const Schedule& s) {
  std::vector<Part> parts;
  const auto add = [&](i64 c, i64 k, i64 times) {
    if (times > 0 && c > 0 && k > 0) parts.push_back({c, k, times});
  };
  const i64 whole = p.c / s.c_part, rest_c = p.c % s.c_part;
  const i64 rest_k = rest_c * (p.k / p.groups) / (p.c / p.groups);
  add(s.c_part, s.choice.filters, whole * (s.k_groups / s.choice.filters));
  add(s.c_part, s.k_groups % s.choice.filters, whole);
  add(rest_c, rest_k, 1);
  return parts;
}

// The busiest part of what is drawn.
void draw(const Walk& walk, double end, Prediction& out) {
  for (const Walk::Interval& i : walk.intervals) {
    auto& row = out.picture[static_cast<std::size_t>(i.engine)];
    const double slot = end / Prediction::kSlots;
    for (int s = static_cast<int>(i.from / slot); s < Prediction::kSlots && s * slot < i.to; ++s) {
      row[s] += (std::min(i.to, (s + 1) * slot) - std::max(i.from, s * slot)) / slot;
    }
  }
}

}  // namespace

Prediction predict(const Problem& p, const Schedule& s, const NkiCore& core) {
  const std::vector<Part> parts = parts_of(p, s);
  const i64 images = s.choice.images, blocks = p.n / images, rest = p.n % images;
  // The counts: each kind of part and of block once, as often as it comes.
  Walk counts(p, s, core);
  for (const Part& part : parts) {
    counts.weigh(part.times);
    counts.part(part.c, part.k);
    counts.weigh(part.times * blocks);
    counts.images(images);
    counts.weigh(part.times);
    if (rest > 0) counts.images(rest);
  }
  // The time: three blocks of images of two parts, and from there on as the last ones.
  constexpr i64 kImageBlocks = 3;
  Walk walk(p, s, core);
  walk.start_picture();
  const auto walked = [&] {
    walk.part(parts.front().c, parts.front().k);
    double before = walk.end();
    for (i64 i = 0; i < std::min(blocks, kImageBlocks); ++i) {
      before = walk.end();
      walk.images(images);
    }
    const double each = walk.end() - before;
    if (rest > 0 && blocks < kImageBlocks) walk.images(rest);
    const double more =
        static_cast<double>(blocks - kImageBlocks) + static_cast<double>(rest) / static_cast<double>(images);
    return blocks > kImageBlocks ? more * each : 0.0;
  };
  double total = walked();
  total += walk.end();
  double times = -1;  // of parts like the first, beyond it
  for (const Part& part : parts) {
    times += static_cast<double>(part.times) * static_cast<double>(part.c * part.k) /
             static_cast<double>(parts.front().c * parts.front().k);
  }
  const double shown = walk.end();
  if (times > 0) {
    const double first = walk.end(), more = walked();
    total += times * (walk.end() - first + more);
  }

  Prediction out;
  out.work = counts.work, out.turning = counts.turning;
  draw(walk, shown, out);
  const double bytes_us =
      out[Engine::dma_in].busy_us + out[Engine::dma_out].busy_us;  // they share the engines
  out.ms = 1e-3 * std::max(total, bytes_us);
  out.mfu = 100 * flops(p) / (out.ms * 1e9 * (p.dtype == DType::f32 ? core.f32_tflops : core.f16_tflops));
  double busiest = 0;
  for (std::size_t e = 0; e < kEngines; ++e) {
    const bool moves = e >= static_cast<std::size_t>(Engine::dma_in);
    const double busy = moves ? bytes_us : out.work[e].busy_us;
    if (busy > busiest) busiest = busy, out.bound = static_cast<Engine>(e);
  }
  return out;
}

}  // namespace faltung::nki
