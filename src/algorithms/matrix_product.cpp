#include "src/algorithms/matrix_product.hpp"

#include "src/problem/integers.hpp"

namespace faltung::gpu {
bool serves(const ProductTile& t, const DeviceInfo& device) {
  // On CPUs a large tile only takes long to compile.
  if (device.has("runs_on_cpu") && t.ts * t.tv > 16) return false;
  return t.threads() <= device.block_threads && t.local_bytes() <= device.local_bytes;
}

jit::Source product_source(const DeviceInfo& device, const std::string& kernel, Problem p,
                           const ProductTile& t, ProductResult result, VectorsAlong vectors) {
  const auto n = [](int v) { return std::to_string(v); };
  const bool to_output = result == ProductResult::output;
  if (!to_output) p = without_epilogue(p);
  // Not the filter's: the matrices hide it.
  p.r = p.s = p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
  return source(device, kernel, "matrix_product.cl", "matrix_product",
                constants(p, {{"TO_OUTPUT", to_output ? "1" : "0"},
                              {"RESULT_T", to_output ? "element_t" : "float"},
                              {"VECTOR_PIXELS", vectors == VectorsAlong::pixels ? "1" : "0"},
                              {"BS", n(t.scalars)},
                              {"BV", n(t.vectors)},
                              {"BK", n(t.steps)},
                              {"TS", n(t.ts)},
                              {"VN", n(t.tv / t.vw)},
                              {"VW", n(t.vw)},
                              {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                              {"THREADS", n(t.threads())}}));
}

Step product_step(jit::Source source, const ProductTile& tile, const Product& p, const Sizes& z) {
  return launch(
      "product", std::move(source),
      grid(ceil_div(p.rows, tile.scalars) * ceil_div(p.columns, tile.vectors), z.groups * p.parts, 1,
           tile.threads()),
      {in(p.scalars), in(p.vectors), out(p.result), in(Place::bias), in(Place::residual), in(Place::slopes),
       number(p.steps), number(p.pitch_s), number(p.pitch_v), number(p.rows), number(p.columns),
       number(p.pitch_out), number(p.first_part), number(p.parts), number(p.first_image), value(z)});
}

}  // namespace faltung::gpu
