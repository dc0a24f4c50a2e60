// Explicit GEMM: the input's patches are written out as a matrix (im2col), and the convolution is a product
// of matrices. One image and group at a time; the matrix is in the workspace.
#include <algorithm>
#include <new>
#include <optional>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_tiling.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/sole_kernel.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kSlack = 64;  // floats that a tile reads past the last row of B, and multiplies: zeros

// C[row][column] = sum over i in [0, length) of A[row * a_row + i * a_step] * B[i * b_step + column].
struct StridedProduct {
  i64 rows, columns, length;
  const float* a;
  i64 a_row, a_step;
  const float* b;
  i64 b_step;
  float* c;  // added to if adds
  i64 c_row;
  bool adds = false;
};

// Where a finished tile goes, if not to C: rows and columns of it are at from, from_row floats apart.
using Finish = FunctionRef<void(i64 row, i64 rows, i64 column, i64 columns, const float* from, i64 from_row)>;

void multiply(const Parallel& parallel, const StridedProduct& product,
              const std::optional<Finish>& finish = {}) {
  const int lanes = brgemm_lanes();
  const int vectors = static_cast<int>(std::min<i64>(2, ceil_div(product.columns, lanes)));
  const EvenSplit tiles(product.rows, brgemm_max_rows(vectors));
  const BrgemmRows kind = product.a_row == 1 ? BrgemmRows::contiguous : BrgemmRows::strided;
  const EvenSplit panels(ceil_div(product.columns, lanes), vectors);
  // Tiles below each other share a panel of B, which stays in cache.
  parallel.each(
      panels.parts() * tiles.parts(),
      [&](i64 index, int) {
        const i64 tile = index % tiles.parts(), panel = index / tiles.parts();
        const i64 row = tiles.begin(tile), column = panels.begin(panel) * lanes;
        alignas(64) float finished[14 * 64];
        const BrgemmSegment whole{0, 0};
        BrgemmCall call;
        call.a0 = product.a + row * product.a_row, call.a1 = product.a + (row + 7) * product.a_row;
        call.a_row_stride = product.a_row, call.a_step = product.a_step;
        call.b = product.b + column, call.b_step = product.b_step;
        call.segments = &whole, call.segment_count = 1, call.length = product.length;
        call.columns = static_cast<int>(std::min(panels.size(panel) * lanes, product.columns - column));
        float* const to = finish ? finished : product.c + row * product.c_row + column;
        call.c_row_stride = finish ? 64 : product.c_row;
        call.c0 = to, call.c1 = to + 7 * call.c_row_stride;
        if (product.adds) call.addend0 = call.c0, call.addend1 = call.c1;
        brgemm_kernel(kind, static_cast<int>(tiles.size(tile)), static_cast<int>(panels.size(panel)))(call);
        if (finish) (*finish)(row, tiles.size(tile), column, call.columns, finished, 64);
      },
      8);
}

// The sizes of one group's matrices, and where their elements are in the tensors.
class Shapes {
 public:
  explicit Shapes(const Problem& problem)
      : p(problem), x(x_shape(problem)), y(conv_shape(problem)), w(w_shape(problem)) {
    pixels = y.h * y.w, depth = w.c * p.r * p.s;
    channels = p.k / p.groups;
    nhwc = p.layout == Layout::nhwc;
    by_pixel = nhwc || p.direction == Direction::backward_weights;
  }
  i64 matrix_floats() const { return pixels * depth + kSlack; }
  std::size_t packed_bytes() const {
    if (p.direction == Direction::backward_weights) return 0;
    return aligned(static_cast<std::size_t>(p.k * depth + kSlack) * 4);
  }
  i64 gradient_floats() const { return pixels * channels + kSlack; }
  // Column (or row) of the matrix, in the order of the filter's memory.
  i64 place(i64 c, i64 r, i64 s) const { return nhwc ? (r * p.s + s) * w.c + c : (c * p.r + r) * p.s + s; }
  i64 row_of(i64 i, i64 r) const { return i * p.stride_h + r * p.dilation_h - p.pad_top; }
  i64 column_of(i64 j, i64 s) const { return j * p.stride_w + s * p.dilation_w - p.pad_left; }

  Problem p;
  TensorShape x, y, w;
  i64 pixels, depth, channels;
  bool nhwc;
  bool by_pixel;  // the matrix has a row for each pixel; else one for each filter element
};

const void* element(DType dtype, const void* data, i64 i) {
  return static_cast<const std::byte*>(data) + i * size_of(dtype);
}

// One image's and group's patches as a matrix.
void im2col(const Parallel& parallel, const Shapes& s, i64 image, i64 group, const void* x, float* matrix) {
  const Problem& p = s.p;
  const auto inside = [&](i64 h, i64 w) { return h >= 0 && h < s.x.h && w >= 0 && w < s.x.w; };
  if (s.by_pixel) {
    parallel.each(
        s.pixels,
        [&](i64 pixel, int) {
          float* const to = matrix + pixel * s.depth;
          for (i64 r = 0; r < p.r; ++r) {
            for (i64 t = 0; t < p.s; ++t) {
              const i64 h = s.row_of(pixel / s.y.w, r), w = s.column_of(pixel % s.y.w, t);
              const i64 from = s.x.offset(image, group * s.w.c, h, w);
              if (s.nhwc && inside(h, w)) {
                convert_to_float(p.dtype, element(p.dtype, x, from), to + s.place(0, r, t), s.w.c);
                continue;
              }
              for (i64 c = 0; c < s.w.c; ++c) {
                to[s.place(c, r, t)] = inside(h, w) ? load_element(p.dtype, x, from + c * s.x.stride_c) : 0;
              }
            }
          }
        },
        16);
    return;
  }
  parallel.each(s.depth, [&](i64 row, int) {
    const i64 c = row / (p.r * p.s), r = row / p.s % p.r, t = row % p.s;
    for (i64 i = 0; i < s.y.h; ++i) {
      float* const to = matrix + row * s.pixels + i * s.y.w;
      const i64 h = s.row_of(i, r);
      for (i64 j = 0; j < s.y.w; ++j) {
        const i64 w = s.column_of(j, t);
        to[j] = inside(h, w) ? load_element(p.dtype, x, s.x.offset(image, group * s.w.c + c, h, w)) : 0;
      }
    }
  });
}

// The matrix of gradients added up into x's gradient: each element gathers from the patches it was in.
void col2im(const Parallel& parallel, const Shapes& s, i64 image, i64 group, const float* matrix, void* x) {
  const Problem& p = s.p;
  parallel.each(
      s.x.h * s.w.c,
      [&](i64 index, int) {
        const i64 h = index / s.w.c, c = index % s.w.c;
        for (i64 w = 0; w < s.x.w; ++w) {
          float sum = 0;
          for (i64 r = 0; r < p.r; ++r) {
            const i64 i = h + p.pad_top - r * p.dilation_h;
            if (i < 0 || i % p.stride_h != 0 || i / p.stride_h >= s.y.h) continue;
            for (i64 t = 0; t < p.s; ++t) {
              const i64 j = w + p.pad_left - t * p.dilation_w;
              if (j < 0 || j % p.stride_w != 0 || j / p.stride_w >= s.y.w) continue;
              const i64 pixel = i / p.stride_h * s.y.w + j / p.stride_w, place = s.place(c, r, t);
              sum += matrix[s.by_pixel ? pixel * s.depth + place : place * s.pixels + pixel];
            }
          }
          store_element(p.dtype, x, s.x.offset(image, group * s.w.c + c, h, w), sum);
        }
      },
      8);
}

// One image's and group's output gradient as floats: a row a pixel in nhwc, a row a channel in nchw.
void copy_gradient(const Shapes& s, i64 image, i64 group, const void* y, float* to) {
  const i64 rows = s.nhwc ? s.pixels : s.channels, columns = s.nhwc ? s.channels : s.pixels;
  const i64 stride = s.nhwc ? s.y.stride_w : s.y.stride_c;
  for (i64 row = 0; row < rows; ++row) {
    const i64 from = s.y.offset(image, group * s.channels, 0, 0) + row * stride;
    convert_to_float(s.p.dtype, element(s.p.dtype, y, from), to + row * columns, columns);
  }
}

// Buffers in the workspace.
struct Buffers {
  explicit Buffers(const Shapes& s) {
    const auto bytes = [](i64 floats) { return aligned(static_cast<std::size_t>(floats) * 4); };
    gradient.offset = bytes(s.matrix_floats());
    sums.offset = gradient.offset + (s.p.direction == Direction::forward ? 0 : bytes(s.gradient_floats()));
    bias.offset =
        sums.offset + (s.p.direction == Direction::backward_weights ? bytes(s.channels * s.depth) : 0);
    total = bias.offset + (s.p.epilogue.bias ? bytes(s.p.k) : 0);
  }
  Slot matrix = Place::workspace, gradient = matrix, sums = matrix, bias = matrix;
  std::size_t total;
};

float* floats(const Memory& m, Slot slot) { return reinterpret_cast<float*>(m.at(slot)); }

// The matrix or the gradient, with zeros behind its last row.
float* matrix_b(const Memory& m, Slot slot, i64 elements) {
  float* const b = floats(m, slot);
  std::fill_n(b + elements, kSlack, 0.0f);
  return b;
}

void run_forward(const Shapes& s, const Buffers& buffers, const Memory& m, const Parallel& parallel) {
  const Problem& p = s.p;
  float* const matrix = matrix_b(m, buffers.matrix, s.pixels * s.depth);
  float* const bias = floats(m, buffers.bias);
  const float* const slopes = floats(m, Place::slopes);
  if (p.epilogue.bias) convert_to_float(p.dtype, m[Place::bias], bias, p.k);
  for (i64 image = 0; image < p.n; ++image) {
    for (i64 group = 0; group < p.groups; ++group) {
      im2col(parallel, s, image, group, m[Place::x], matrix);
      const float* weights = floats(m, Place::packed) + group * s.channels * s.depth;
      StridedProduct product{};
      product.length = s.depth;
      if (s.nhwc) {  // pixels x channels; weights [depth][channels]
        product.rows = s.pixels, product.columns = s.channels;
        product.a = matrix, product.a_row = s.depth, product.a_step = 1;
        product.b = weights, product.b_step = s.channels;
      } else {  // channels x pixels; weights [channels][depth]
        product.rows = s.channels, product.columns = s.pixels;
        product.a = weights, product.a_row = s.depth, product.a_step = 1;
        product.b = matrix, product.b_step = s.pixels;
      }
      multiply(parallel, product,
               [&](i64 row, i64 rows, i64 column, i64 columns, const float* from, i64 from_row) {
                 const i64 k = group * s.channels + (s.nhwc ? column : row), pixel = s.nhwc ? row : column;
                 const i64 to = s.y.offset(image, k, 0, 0) + pixel * s.y.stride_w;
                 EpilogueCall end;
                 end.from = from, end.from_stride = from_row, end.rows = rows, end.columns = columns;
                 if (p.epilogue.bias) (s.nhwc ? end.column_bias : end.row_bias) = bias + k;
                 if (p.epilogue.residual) end.residual = element(p.dtype, m[Place::residual], to);
                 if (has_slopes(p)) (s.nhwc ? end.column_slopes : end.row_slopes) = slopes + k;
                 end.activation = activation_of(p.epilogue), end.dtype = p.dtype;
                 end.residual_order = p.epilogue.residual_order;
                 end.to = m[Place::y] + to * size_of(p.dtype);
                 end.to_stride = s.nhwc ? s.y.stride_w : s.y.stride_c;
                 epilogue_store(end);
               });
    }
  }
}

void run_backward_data(const Shapes& s, const Buffers& buffers, const Memory& m, const Parallel& parallel) {
  float* const matrix = matrix_b(m, buffers.matrix, s.pixels * s.depth);
  float* const gradient = matrix_b(m, buffers.gradient, s.pixels * s.channels);
  for (i64 image = 0; image < s.p.n; ++image) {
    for (i64 group = 0; group < s.p.groups; ++group) {
      copy_gradient(s, image, group, m[Place::y], gradient);
      const float* weights = floats(m, Place::packed) + group * s.channels * s.depth;
      StridedProduct product{};
      product.length = s.channels, product.c = matrix;
      if (s.nhwc) {  // pixels x depth
        product.rows = s.pixels, product.columns = s.depth;
        product.a = gradient, product.a_row = s.channels, product.a_step = 1;
        product.b = weights, product.b_step = s.depth;
      } else {  // depth x pixels
        product.rows = s.depth, product.columns = s.pixels;
        product.a = weights, product.a_row = 1, product.a_step = s.depth;
        product.b = gradient, product.b_step = s.pixels;
      }
      product.c_row = product.columns;
      multiply(parallel, product);
      col2im(parallel, s, image, group, matrix, m[Place::x]);
    }
  }
}

void run_backward_weights(const Shapes& s, const Buffers& buffers, const Memory& m,
                          const Parallel& parallel) {
  float* const matrix = matrix_b(m, buffers.matrix, s.pixels * s.depth);
  float* const gradient = matrix_b(m, buffers.gradient, s.pixels * s.channels);
  float* const sums = floats(m, buffers.sums);
  for (i64 group = 0; group < s.p.groups; ++group) {
    for (i64 image = 0; image < s.p.n; ++image) {
      im2col(parallel, s, image, group, m[Place::x], matrix);
      copy_gradient(s, image, group, m[Place::y], gradient);
      StridedProduct product{};  // channels x depth
      product.rows = s.channels, product.columns = s.depth, product.length = s.pixels;
      product.a = gradient;
      product.a_row = s.nhwc ? 1 : s.pixels, product.a_step = s.nhwc ? s.channels : 1;
      product.b = matrix, product.b_step = s.depth;
      product.c = sums, product.c_row = s.depth;
      product.adds = image > 0;
      multiply(parallel, product);
    }
    const i64 first = group * s.channels * s.depth;
    std::byte* const to = m[Place::w] + first * size_of(s.p.dtype);
    convert_from_float(s.p.dtype, sums, to, s.channels * s.depth);
  }
}

// The weights as floats: [channels][depth] for each group as they are in memory, or [depth][channels].
void pack(const Shapes& s, const Memory& m, const Parallel& parallel) {
  float* const to = floats(m, Place::packed);
  const DType dtype = s.p.dtype;
  const bool transposed = s.nhwc && s.p.direction == Direction::forward;
  parallel.each(s.p.groups, [&](i64 group, int) {
    const i64 first = group * s.channels * s.depth;
    const void* from = element(dtype, m[Place::w], first);
    if (transposed) {
      transpose_to_float(dtype, from, s.depth, s.channels, s.depth, to + first, s.channels);
    } else {
      convert_to_float(dtype, from, to + first, s.channels * s.depth);
    }
  });
  std::fill_n(to + s.p.k * s.depth, kSlack, 0.0f);
}

// Of one image's and group's product on one core, by the cost model: tiles as multiply makes them, which read
// their rows' operand again for each panel.
double product_ns(const Shapes& s) {
  const bool forward = s.p.direction == Direction::forward,
             weights = s.p.direction == Direction::backward_weights;
  const i64 inner = forward ? s.channels : s.depth, length = weights   ? s.pixels
                                                             : forward ? s.depth
                                                                       : s.channels;
  const i64 rows = weights ? s.channels : s.nhwc ? s.pixels : inner;
  const i64 columns = weights ? s.depth : s.nhwc ? inner : s.pixels;
  const i64 lanes = brgemm_lanes(), vectors = std::min<i64>(2, ceil_div(columns, lanes));
  const EvenSplit tiles(rows, brgemm_max_rows(static_cast<int>(vectors)));
  const TileTime tile =
      tile_time(TileReads::strided, static_cast<int>(tiles.largest()), static_cast<int>(vectors));
  const double panels = static_cast<double>(ceil_div(columns, lanes)) / static_cast<double>(vectors);
  const double bytes = 4 * static_cast<double>(rows * length);
  constexpr double kFarBytes = 2;  // its rows lie apart: as measured with AVX-512
  return panels * (static_cast<double>(tiles.parts()) * tile.of(static_cast<double>(length)) +
                   bytes * kFarBytes * far_byte_ns());
}

class ExplicitGemmCpu : public SoleKernel {
 public:
  ExplicitGemmCpu()
      : SoleKernel({"explicit_gemm_cpu", "im2col into the workspace, then a matrix product", "cpu"},
                   "plain") {}

  Support accepts(const Problem&, const Target&) const override { return Support::supported(); }

 private:
  Candidate kernel(const Problem& p, const Target& target) const override {
    const Shapes shapes(p);
    const double times = static_cast<double>(p.n * p.groups);
    const double matrix = static_cast<double>(shapes.matrix_floats()) * times;
    // Where a pixel's channels lie apart the matrix is written element by element, and x's gradient is
    // gathered from it so: in so many cycles each. Elsewhere it is written a tap's channels at a time. In
    // reading it, it is a stream.
    constexpr double kElement = 13, kGathered = 22, kTap = 26, kBytes = 4;
    const bool gathers = p.direction == Direction::backward_data, by_element = p.layout == Layout::nchw;
    const double gradient = static_cast<double>(p.n * p.c * p.h * p.w);
    const double cycles = gathers      ? std::max(matrix, gradient) * kGathered
                          : by_element ? matrix * kElement
                                       : matrix / static_cast<double>(shapes.w.c) * kTap;
    const double copies = cycles * cycle_ns() + matrix * kBytes * far_byte_ns();
    const double arithmetic = (product_ns(shapes) * times + copies) * 1e-6 / target.threads;
    const double bytes = min_bytes(p) / 15e6;
    const double packed =
        weights_are_constant(p) ? 0 : static_cast<double>(shapes.packed_bytes()) / 4 * 0.5e-6;
    const double steps = 0.01 * times;
    Candidate c;
    c.cost = {arithmetic + bytes + packed + steps, arithmetic > bytes ? Bound::arithmetic : Bound::bytes};
    c.workspace_bytes = Buffers(shapes).total;
    c.packed_bytes = shapes.packed_bytes();
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [shapes] { return recipe(shapes); };
    return c;
  }

  static Recipe recipe(const Shapes& shapes) {
    const Buffers buffers(shapes);
    Recipe recipe;
    recipe.workspace_bytes = buffers.total;
    recipe.packed_bytes = shapes.packed_bytes();
    if (recipe.packed_bytes > 0) {
      recipe.packing = packing_of(shapes.p);
      recipe.pack.push_back(
          call("pack", {Place::w}, {Place::packed},
               [shapes](const Memory& m, const Parallel& parallel) { pack(shapes, m, parallel); }));
    }
    const auto add = [&](std::vector<Place> reads, auto* run) {
      recipe.steps.push_back(call("explicit_gemm", std::move(reads),
                                  {result_place(shapes.p), Place::workspace},
                                  [shapes, buffers, run](const Memory& m, const Parallel& parallel) {
                                    run(shapes, buffers, m, parallel);
                                  }));
    };
    switch (shapes.p.direction) {
      case Direction::forward:
        add({Place::x, Place::packed, Place::bias, Place::residual, Place::slopes}, run_forward);
        break;
      case Direction::backward_data:
        add({Place::y, Place::packed}, run_backward_data);
        break;
      case Direction::backward_weights:
        add({Place::x, Place::y}, run_backward_weights);
        break;
    }
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_explicit_gemm_cpu() { return std::make_unique<ExplicitGemmCpu>(); }

}  // namespace faltung
