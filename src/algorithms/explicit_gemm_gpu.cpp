// Explicit GEMM: patches of some images at a time are written out as a matrix (im2col), and the convolution
// is a product of matrices. The matrices are in the workspace.
#include <algorithm>

#include <fmt/core.h>

#include "src/algorithms/matrix_product.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

using Tile = gpu::ProductTile;

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

double predicted_ms(const Matrices& m, const Tile& t, Device& device) {
  const Problem& p = m.problem;
  const DeviceInfo& info = device.info();
  const bool cpu = info.has("runs_on_cpu");
  const double useful = static_cast<double>(m.result_rows) * static_cast<double>(m.result_columns) /
                        (static_cast<double>(m.pitch_s) * static_cast<double>(m.pitch_v));
  const double busy = std::min(1.0, static_cast<double>(m.blocks * m.parts * p.groups) / info.units);
  const double reuse = 1 / (1 + 2.0 / t.ts + 2.0 / (t.vn * t.vw));
  // The matrices are written and read, by each unit at this rate.
  const double bytes_per_ms = info.units * (cpu ? 2e6 : 2e7);
  const double bytes = static_cast<double>(m.patches_elements * m.chunks) *
                       (p.direction == Direction::backward_data ? 8 : 4) * 2;
  constexpr double kLaunchMs = 0.005;
  return gpu::arithmetic_ms(p, device, (cpu ? 0.1 : 0.8) * useful * busy * reuse) + bytes / bytes_per_ms +
         2 * kLaunchMs * static_cast<double>(m.chunks);
}

class ExplicitGemmGpu : public Algorithm {
 public:
  std::string_view name() const override { return "explicit_gemm_gpu"; }
  std::string_view description() const override { return "im2col into the workspace, then a matrix product"; }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& p, const Target& target) const override {
    const Support size = gpu::fits(p);
    if (!size.yes) return size;
    if (is_depthwise(p)) {
      return Support::declined("a depthwise group is a product with one row: nothing is shared");
    }
    const DeviceInfo& device = target.device.info();
    std::string why = fmt::format("a block has {} threads and {} bytes of local memory, too few for any tile",
                                  device.block_threads, device.local_bytes);
    for (const Tile& tile : gpu::product_tiles()) {
      if (!gpu::serves(tile, device)) continue;
      why = limit(Matrices(p, tile, device));
      if (why.empty()) return Support::supported();
    }
    return Support::declined(why);
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    for (const Tile& tile : gpu::product_tiles()) {
      const Matrices m(p, tile, target.device.info());
      if (!gpu::serves(tile, target.device.info()) || !limit(m).empty()) continue;
      configs.push_back({tile.name(), predicted_ms(m, tile, target.device), "arithmetic", m.total});
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    const Tile& tile = parse(config);
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, config);
    const Matrices m(p, tile, device.info());
    const bool forward = p.direction == Direction::forward;
    Problem bare = p;  // the matrices are the same for every epilogue
    bare.epilogue = Epilogue{};
    Recipe recipe;
    const auto build = [&](const char* file, const char* entry, const gpu::Constants& constants) {
      const jit::Built built = gpu::build(device, kernel, file, entry, constants);
      recipe.compile_ms += built.compile_ms;
      return built.kernel;
    };
    const auto matrix = [&](const char* entry, bool of_y) {
      return build("im2col.cl", entry, matrix_constants(bare, of_y));
    };
    const jit::Built product = gpu::build_product(device, kernel, p, tile, forward, m.vector_pixels);
    recipe.compile_ms += product.compile_ms;
    const gpu::Sizes z = gpu::sizes(p);
    recipe.workspace_bytes = m.total;
    recipe.packed_bytes = m.packed;
    if (!m.weights) {
      const i64 pitch = forward && !m.vector_pixels ? m.pitch_v : m.pitch_s;
      recipe.pack.push_back({"weights", [&device, kernel = matrix("weights_matrix", !forward), z,
                                         pitch = static_cast<std::int32_t>(pitch),
                                         shape = elements(p.groups * m.steps * pitch)](const Invocation& i) {
                               device.launch(*kernel, shape, {i.tensors.w, i.packed, pitch, z}, i.stream);
                             }});
    }
    // A chunk of images after the other: the matrix, the product, and the way back.
    struct Kernels {
      std::shared_ptr<Kernel> patches, gradient, product, back, sum;
    };
    Kernels k;
    k.product = product.kernel;
    if (forward || m.weights) k.patches = matrix("im2col", false);
    if (!forward) k.gradient = matrix("im2col", true);
    if (!forward && !m.weights) k.back = matrix("col2im", false);
    if (m.weights) {
      k.sum = build("sum_parts.cl", "sum_parts",
                    gpu::constants(bare, {{"THREADS", std::to_string(kHelperThreads)}}));
    }
    recipe.steps.push_back({"explicit_gemm", [&device, k, m, z, tile](const Invocation& i) {
                              for (i64 first = 0; first < m.problem.n; first += m.images) {
                                run(device, *k.product, k.patches.get(), k.gradient.get(), k.back.get(), m,
                                    tile, z, first, i);
                              }
                            }});
    if (m.weights) {
      recipe.steps.push_back(
          {"sum of the parts",
           [&device, kernel = k.sum, z, parts = static_cast<std::int32_t>(m.chunks * m.parts),
            from = m.result, shape = elements(w_shape(p).elements())](const Invocation& i) {
             device.launch(*kernel, shape, {i.workspace + from, i.tensors.w, parts, z}, i.stream);
           }});
    }
    return recipe;
  }

 private:
  static LaunchShape elements(i64 count) { return gpu::one_dimension(count, kHelperThreads); }

  // The images from `first` on.
  static void run(Device& device, const Kernel& product, const Kernel* patches, const Kernel* gradient,
                  const Kernel* back, const Matrices& m, const Tile& tile, const gpu::Sizes& z, i64 first,
                  const Invocation& v) {
    const auto number = [](i64 value) { return static_cast<std::int32_t>(value); };
    const Problem& p = m.problem;
    const bool forward = p.direction == Direction::forward;
    const std::int32_t first_image = number(first), images = number(std::min(m.images, p.n - first));
    const i64 pixels = images * p.p() * p.q();
    std::byte* const patch_matrix = v.workspace;
    std::byte* const y_matrix = v.workspace + m.gradient;
    void* const result = forward ? v.tensors.y : v.workspace + m.result;
    const void *scalars = v.packed, *vectors = v.packed;
    if (patches != nullptr) {
      const i64 pitch = forward && !m.vector_pixels ? m.pitch_s : m.pitch_v;
      device.launch(*patches, elements(ceil_div(m.patches_elements, kElementsOfThread)),
                    {v.tensors.x, patch_matrix, first_image, images, number(pitch), z}, v.stream);
      (forward && !m.vector_pixels ? scalars : vectors) = patch_matrix;
    }
    if (gradient != nullptr) {
      const i64 pitch = m.weights ? m.pitch_s : m.pitch_v;
      device.launch(*gradient, elements(ceil_div(p.groups * m.steps * pitch, kElementsOfThread)),
                    {v.tensors.y, y_matrix, first_image, images, number(pitch), z}, v.stream);
      (m.weights ? scalars : vectors) = y_matrix;
    }
    // The last chunk may have fewer pixels.
    const i64 steps = m.weights ? pixels : m.steps;
    const i64 rows = forward && !m.vector_pixels ? pixels : m.result_rows;
    const i64 columns = m.weights || (forward && !m.vector_pixels) ? m.result_columns : pixels;
    gpu::Product all{scalars, vectors, result, steps, m.pitch_s, m.pitch_v, rows, columns};
    all.pitch_out = m.weights ? m.rows : m.pitch_v;
    all.first_part = m.weights ? first / m.images * m.parts : 0;
    all.parts = m.parts, all.first_image = first;
    gpu::launch_product(device, product, tile, all, v.tensors, z, v.stream);
    if (back != nullptr) {
      device.launch(*back, elements(images * p.c * p.h * p.w),
                    {result, v.tensors.x, first_image, images, number(m.pitch_v), z}, v.stream);
    }
  }

  static gpu::Constants matrix_constants(const Problem& p, bool of_y) {
    const bool weights = p.direction == Direction::backward_weights;
    return gpu::constants(p, {{"OF_Y", of_y ? "1" : "0"},
                              {"STEP_IS_PIXEL", weights ? "1" : "0"},
                              {"FILTER_ORDER", weights && p.layout == Layout::nchw ? "1" : "0"},
                              {"THREADS", std::to_string(kHelperThreads)}});
  }

  static const Tile& parse(const std::string& config) {
    std::string names;
    for (const Tile& tile : gpu::product_tiles()) {
      if (config == tile.name()) return tile;
      names += (names.empty() ? "" : ", ") + tile.name();
    }
    throw Error(Status::bad_problem, "explicit_gemm_gpu has the configs " + names + "; not '" + config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_explicit_gemm_gpu() { return std::make_unique<ExplicitGemmGpu>(); }

}  // namespace faltung
