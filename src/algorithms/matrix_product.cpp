#include "src/algorithms/matrix_product.hpp"

#include <fmt/core.h>

namespace faltung::gpu {
namespace {

constexpr ProductTile kTiles[] = {{128, 128, 8, 8, 2, 4}, {64, 64, 16, 4, 1, 4}, {16, 64, 16, 2, 1, 4}};

unsigned blocks(std::int64_t count, int size) { return static_cast<unsigned>((count + size - 1) / size); }

}  // namespace

std::string ProductTile::name() const { return fmt::format("b{}x{}k{}", scalars, vectors, steps); }

std::span<const ProductTile> product_tiles() { return kTiles; }

bool serves(const ProductTile& t, const DeviceInfo& device) {
  // On CPUs a large tile only takes long to compile.
  if (device.has("runs_on_cpu") && t.ts * t.vn * t.vw > 16) return false;
  return t.threads() <= device.block_threads && t.local_bytes() <= device.local_bytes;
}

jit::Built build_product(Device& device, const std::string& kernel, Problem p, const ProductTile& t,
                         bool to_output, bool vector_pixels) {
  const auto n = [](int v) { return std::to_string(v); };
  if (!to_output) p.epilogue = Epilogue{};
  // Not the filter's: the matrices hide it.
  p.r = p.s = p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
  return build(device, kernel, "matrix_product.cl", "matrix_product",
               constants(p, {{"TO_OUTPUT", to_output ? "1" : "0"},
                             {"RESULT_T", to_output ? "element_t" : "float"},
                             {"VECTOR_PIXELS", vector_pixels ? "1" : "0"},
                             {"BS", n(t.scalars)},
                             {"BV", n(t.vectors)},
                             {"BK", n(t.steps)},
                             {"TS", n(t.ts)},
                             {"VN", n(t.vn)},
                             {"VW", n(t.vw)},
                             {"COMPACT", device.info().has("runs_on_cpu") ? "1" : "0"},
                             {"THREADS", n(t.threads())}}));
}

void launch_product(Device& device, const Kernel& kernel, const ProductTile& tile, const Product& p,
                    const Tensors& tensors, const Sizes& z, const Stream& stream) {
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  LaunchShape shape;
  shape.grid[0] = blocks(p.rows, tile.scalars) * blocks(p.columns, tile.vectors);
  shape.grid[1] = static_cast<unsigned>(z.groups * p.parts);
  shape.block[0] = static_cast<unsigned>(tile.threads());
  device.launch(kernel, shape,
                {p.scalars, p.vectors, p.result, tensors.bias, tensors.residual, number(p.steps),
                 number(p.pitch_s), number(p.pitch_v), number(p.rows), number(p.columns), number(p.pitch_out),
                 number(p.first_part), number(p.parts), number(p.first_image), z},
                stream);
}

}  // namespace faltung::gpu
