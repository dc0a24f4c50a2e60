// Explicit GEMM: patches of some images at a time are written out as a matrix (im2col), and the convolution
// is a product of matrices. The matrices are in the workspace.
#include <algorithm>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/matrix_product.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace explicit_gemm_gpu {
namespace {

using i64 = std::int64_t;

using Tile = gpu::ProductTile;
constexpr TileTable<Tile> kTable("explicit_gemm_gpu", gpu::kProductTiles);

constexpr int kHelperThreads = 64;
constexpr int kElementsOfThread = 8;  // EACH of im2col.cl
// What the matrices of several images may take; on CPUs, to stay in a core's cache.
constexpr i64 kMatrixBytes = i64{256} << 20, kMatrixBytesOnCpu = i64{128} << 10;

// The matrices of one problem and tile, and where they are in the workspace.
struct Matrices {
  Matrices(const Problem& p, const Tile& t, const DeviceInfo& device) : problem(p) {
    const bool forward = p.direction == Direction::forward;
    weights = p.direction == Direction::backward_weights;
    channels = p.k / p.groups, rows = p.c / p.groups * p.r * p.s;
    const i64 image = p.p() * p.q(), element = size_of(p.dtype);
    // Of one image: what is as long as its pixels.
    const i64 per_image =
        image * p.groups * (forward ? rows * element : rows * (weights ? element : 4) + channels * element);
    images = std::clamp<i64>(
        (device.has("runs_on_cpu") ? kMatrixBytesOnCpu : kMatrixBytes) / std::max<i64>(1, per_image), 1, p.n);
    chunks = ceil_div(p.n, images);
    pixels = images * image;
    if (forward) {
      vector_pixels = p.layout == Layout::nchw;
      steps = rows;
      result_rows = vector_pixels ? channels : pixels, result_columns = vector_pixels ? pixels : channels;
    } else if (weights) {
      steps = pixels, result_rows = channels, result_columns = rows;
    } else {
      steps = channels, result_rows = rows, result_columns = pixels;
    }
    pitch_s = round_up(result_rows, t.scalars), pitch_v = round_up(result_columns, t.vectors);
    blocks = ceil_div(result_rows, t.scalars) * ceil_div(result_columns, t.vectors);
    if (weights) {
      const i64 wanted = ceil_div(2 * i64{device.units}, blocks * p.groups), longest = steps / (8 * t.steps);
      parts = std::clamp<i64>(std::min(wanted, longest), 1, std::max<i64>(1, 65535 / p.groups));
    }

    const auto bytes = [](i64 elements, i64 size) {
      return aligned(static_cast<std::size_t>(elements * size));
    };
    if (forward) {
      patches_elements = p.groups * rows * (vector_pixels ? pitch_v : pitch_s);
      packed = bytes(p.groups * rows * (vector_pixels ? pitch_s : pitch_v), element);
    } else if (weights) {
      patches_elements = p.groups * pixels * pitch_v;
      gradient = bytes(patches_elements, element);
      result = gradient + bytes(p.groups * pixels * pitch_s, element);
      total = result + bytes(chunks * parts * p.groups * channels * rows, 4);
    } else {
      patches_elements = p.groups * rows * pitch_v;
      result = bytes(p.groups * channels * pitch_v, element);
      total = result + bytes(patches_elements, 4);
      packed = bytes(p.groups * channels * pitch_s, element);
    }
    if (forward) total = bytes(patches_elements, element);
  }

  Problem problem;
  bool weights = false, vector_pixels = false;
  i64 channels, rows;  // of a group: out channels, elements of a filter
  i64 images, chunks;  // at a time, and how often
  i64 pixels, steps, result_rows, result_columns, pitch_s, pitch_v, blocks, parts = 1;
  i64 patches_elements;
  std::size_t gradient = 0, result = 0, total = 0, packed = 0;  // the patches are at 0
};

std::string limit(const Matrices& m) {
  constexpr i64 kMost = 0x3fffffff, kMostBlocks = 65535;
  const i64 largest = std::max({m.patches_elements, m.problem.groups * m.steps * m.pitch_s,
                                m.problem.groups * m.steps * m.pitch_v, m.pixels});
  if (largest > kMost) {
    return fmt::format("a matrix of one image has {} elements: at most {} are indexed", largest, kMost);
  }
  if (m.problem.groups * m.parts <= kMostBlocks && m.blocks <= kMost) return "";
  return fmt::format("{} groups: at most {} are launched at once", m.problem.groups, kMostBlocks);
}

double predicted_ms(const Matrices& m, const Tile& t, const DeviceInfo& device) {
  const Problem& p = m.problem;
  const bool cpu = device.has("runs_on_cpu");
  const double useful = static_cast<double>(m.result_rows) * static_cast<double>(m.result_columns) /
                        (static_cast<double>(m.pitch_s) * static_cast<double>(m.pitch_v));
  const double busy = std::min(1.0, static_cast<double>(m.blocks * m.parts * p.groups) / device.units);
  const double reuse = 1 / (1 + 2.0 / t.ts + 2.0 / t.tv);
  // The matrices are written and read, by each unit at this rate.
  const double bytes_per_ms = device.units * (cpu ? 2e6 : 2e7);
  const double bytes = static_cast<double>(m.patches_elements * m.chunks) *
                       (p.direction == Direction::backward_data ? 8 : 4) * 2;
  constexpr double kLaunchMs = 0.005;
  return gpu::arithmetic_ms(p, device, (cpu ? 0.1 : 0.8) * useful * busy * reuse) + bytes / bytes_per_ms +
         2 * kLaunchMs * static_cast<double>(m.chunks);
}

class ExplicitGemmGpu : public Algorithm {
 public:
  ExplicitGemmGpu()
      : Algorithm({"explicit_gemm_gpu", "im2col into the workspace, then a matrix product", "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const Support product = gpu::fits_a_product(p);
    if (!product.yes) return product;
    Support answer = gpu::no_tile_fits(target.device);
    for (const Tile& tile : kTable) {
      if (!gpu::serves(tile, target.device)) continue;
      const std::string why = limit(Matrices(p, tile, target.device));
      if (why.empty()) return Support::supported();
      answer = Support::declined(why);
    }
    return answer;
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& tile : kTable) {
      const Matrices m(p, tile, target.device);
      if (gpu::serves(tile, target.device) && limit(m).empty())
        all.push_back(candidate_of(m, tile, target.device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }

  static Maker maker(const Tile& tile) {
    return [tile](const Problem& p, const Target& target) {
      return candidate_of(Matrices(p, tile, target.device), tile, target.device);
    };
  }

  static Candidate candidate_of(const Matrices& m, const Tile& tile, const DeviceInfo& device) {
    Candidate c;
    c.config = config_name(tile);
    c.cost = {predicted_ms(m, tile, device), Bound::arithmetic};
    c.workspace_bytes = m.total;
    c.packed_bytes = m.packed;
    c.accuracy = dot_product_accuracy(m.problem);
    c.recipe = [m, tile, &device] { return recipe(m, tile, device); };
    c.maker = maker(tile);
    return c;
  }

  static Recipe recipe(const Matrices& m, const Tile& tile, const DeviceInfo& device) {
    const Problem& p = m.problem;
    const std::string kernel = "explicit_gemm_gpu/" + config_name(tile);
    Recipe recipe;
    recipe.workspace_bytes = m.total;
    recipe.packed_bytes = m.packed;
    if (!m.weights) {
      const bool forward = p.direction == Direction::forward;
      const i64 pitch = forward && !m.vector_pixels ? m.pitch_v : m.pitch_s;
      recipe.packing = packing_of(p);
      recipe.pack.push_back(
          launch("weights", matrix_source("weights_matrix", p, !forward, kernel, device),
                 elements(p.groups * m.steps * pitch),
                 {in(Place::w), out(Place::packed), gpu::number(pitch), value(gpu::sizes(p))}));
    }
    // A chunk of images after the other: the matrix, the product, and the way back.
    const Sources sources{m, tile, kernel, device};
    for (i64 first = 0; first < p.n; first += m.images) add_chunk(recipe.steps, m, tile, sources, first);
    if (m.weights) {
      recipe.steps.push_back(
          gpu::sum_parts_step(p, kernel, {Place::workspace, m.result}, m.chunks * m.parts, device));
    }
    return recipe;
  }

  // What the steps of every chunk launch.
  struct Sources {
    Sources(const Matrices& m, const Tile& tile, const std::string& kernel, const DeviceInfo& device)
        : patches(matrix_source("im2col", m.problem, false, kernel, device)),
          gradient(matrix_source("im2col", m.problem, true, kernel, device)),
          product(
              gpu::product_source(device, kernel, m.problem, tile,
                                  m.problem.direction == Direction::forward ? gpu::ProductResult::output
                                                                            : gpu::ProductResult::matrix,
                                  m.vector_pixels ? gpu::VectorsAlong::pixels : gpu::VectorsAlong::channels)),
          back(matrix_source("col2im", m.problem, false, kernel, device)) {}
    jit::Source patches, gradient, product, back;
  };

  static LaunchShape elements(i64 count) { return gpu::one_dimension(count, kHelperThreads); }

  // The images from `first` on.
  static void add_chunk(std::vector<Step>& steps, const Matrices& m, const Tile& tile, const Sources& sources,
                        i64 first) {
    const Problem& p = m.problem;
    const bool forward = p.direction == Direction::forward, row_pixels = forward && !m.vector_pixels;
    const i64 images = std::min(m.images, p.n - first), pixels = images * p.p() * p.q();
    const Slot y_matrix{Place::workspace, m.gradient};
    const Slot result = forward ? Slot(Place::y) : Slot(Place::workspace, m.result);
    // How a matrix is made of a tensor, or the other way round.
    const auto turn = [&](const char* name, const jit::Source& source, i64 threads, Slot from, Slot to,
                          i64 pitch) {
      steps.push_back(launch(name, source, elements(threads),
                             {in(from), out(to), gpu::number(first), gpu::number(images), gpu::number(pitch),
                              value(gpu::sizes(p))}));
    };
    // The last chunk may have fewer pixels.
    gpu::Product all{Place::packed,
                     Place::packed,
                     result,
                     m.weights ? pixels : m.steps,
                     m.pitch_s,
                     m.pitch_v,
                     row_pixels ? pixels : m.result_rows,
                     m.weights || row_pixels ? m.result_columns : pixels};
    if (forward || m.weights) {
      turn("im2col", sources.patches, ceil_div(m.patches_elements, kElementsOfThread), Place::x,
           Place::workspace, row_pixels ? m.pitch_s : m.pitch_v);
      (row_pixels ? all.scalars : all.vectors) = Place::workspace;
    }
    if (!forward) {
      const i64 pitch = m.weights ? m.pitch_s : m.pitch_v;
      turn("matrix of y", sources.gradient, ceil_div(p.groups * m.steps * pitch, kElementsOfThread), Place::y,
           y_matrix, pitch);
      (m.weights ? all.scalars : all.vectors) = y_matrix;
    }
    all.pitch_out = m.weights ? m.rows : m.pitch_v;
    all.first_part = m.weights ? first / m.images * m.parts : 0;
    all.parts = m.parts, all.first_image = first;
    steps.push_back(gpu::product_step(sources.product, tile, all, gpu::sizes(p)));
    if (p.direction == Direction::backward_data)
      turn("col2im", sources.back, images * p.c * p.h * p.w, result, Place::x, m.pitch_v);
  }

  // The matrices are the same for every epilogue.
  static jit::Source matrix_source(const char* entry, const Problem& p, bool of_y, const std::string& kernel,
                                   const DeviceInfo& device) {
    const bool weights = p.direction == Direction::backward_weights;
    return gpu::source(device, kernel, "im2col.cl", entry,
                       gpu::constants(gpu::without_epilogue(p),
                                      {{"OF_Y", of_y ? "1" : "0"},
                                       {"STEP_IS_PIXEL", weights ? "1" : "0"},
                                       {"FILTER_ORDER", weights && p.layout == Layout::nchw ? "1" : "0"},
                                       {"THREADS", std::to_string(kHelperThreads)}}));
  }
};

}  // namespace
}  // namespace explicit_gemm_gpu

std::unique_ptr<Algorithm> make_explicit_gemm_gpu() {
  return std::make_unique<explicit_gemm_gpu::ExplicitGemmGpu>();
}

}  // namespace faltung
