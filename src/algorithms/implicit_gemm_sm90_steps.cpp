#include "src/algorithms/implicit_gemm_sm90_steps.hpp"

#include <algorithm>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/algorithms/implicit_gemm_sm90_maps.hpp"
#include "src/jit/jit.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::sm90 {

using i64 = std::int64_t;

namespace {

// A step's kernel, named as its file; what compiling took is added to the recipe's.
std::shared_ptr<Kernel> build(CudaDevice& device, const std::string& entry, const std::string& constants,
                              Recipe& recipe) {
  KernelSource source;
  source.entry = source.name = entry;
  source.text = jit::translation_unit(constants, "kernels/sm90/" + entry + ".cu");
  const jit::Built built = jit::build(device, source);
  recipe.compile_ms += built.compile_ms;
  return built.kernel;
}

std::string define(const char* constant, i64 value) {
  return "#define " + std::string(constant) + " " + std::to_string(value) + "\n";
}

// What gathers few channels, of the input or of the filter, knows of the problem.
std::string gathered(const Problem& p, const Problem& inner) {
  return define("F_BYTES", size_of(p.dtype)) + define("F_NCHW", p.layout == Layout::nchw) +
         define("F_C", p.c) + define("F_TO", padded_channels(inner));
}

}  // namespace

Step to_pixels(const std::string& name, CudaDevice& device, const Problem& p, bool filter, Place from,
               Place to, Recipe& recipe) {
  const bool thin = !filter && thins(p);
  const i64 images = filter ? p.k : p.n, plane = filter ? p.r * p.s : p.h * p.w;
  const i64 pixels = thin ? p.p() * p.q() : plane, c_to = padded_channels(p);
  const int element = size_of(p.dtype), per_chunk = 16 / element, step = thin ? narrow(p.stride_w) : 1;
  // Planes of many channels go through shared memory; few channels, or rows to be padded, directly.
  const bool turn = thin || (p.layout == Layout::nchw && c_to > 2 * per_chunk);
  std::string constants = define("F_BYTES", element);
  int v = 1;  // pixels a load
  if (turn) {
    for (const int wider : {2, 4}) {
      const bool divides = thin ? p.q() % wider == 0 && p.w % (wider * step) == 0 : pixels % wider == 0;
      if (divides && (step == 1 || step == 2) && wider * step * element <= 16) v = wider;
    }
    constants += define("F_V", v) + define("F_STEP", step);
  } else {
    constants += define("F_NCHW", p.layout == Layout::nchw);
  }
  const auto kernel = build(device, turn ? "to_nhwc" : "pad_channels", constants, recipe);
  LaunchShape shape;
  shape.block[0] = 256;
  shape.overlaps_previous = true;
  // Tiles of up to 64 pixels, alike.
  const i64 across = (pixels + 63) / 64, tile = ((pixels + across - 1) / across + v - 1) / v * v;
  if (turn) {
    const i64 channels = 128 / element;
    shape.grid[0] =
        static_cast<unsigned>(images * ((pixels + tile - 1) / tile) * ((c_to + channels - 1) / channels));
  } else {
    const i64 chunks = images * pixels * (c_to / per_chunk);
    shape.grid[0] = static_cast<unsigned>(std::min<i64>((chunks + 255) / 256, device.info().units * 32));
  }
  return {name, [=, &device, c = narrow(p.c), down = narrow(p.stride_h * p.w),
                 columns = narrow(p.q())](const Invocation& invocation) {
            void *source_pointer = from(invocation), *target_pointer = to(invocation);
            int image_count = narrow(images), have = c, want = narrow(c_to), pixel_count = narrow(pixels);
            if (!turn) {
              device.launch(*kernel, shape,
                            {source_pointer, target_pointer, image_count, have, want, pixel_count},
                            invocation.stream);
              return;
            }
            int tile_pixels = narrow(tile), in_plane = narrow(plane), across_row = columns,
                to_next_row = down;
            device.launch(*kernel, shape,
                          {source_pointer, target_pointer, image_count, have, want, pixel_count, tile_pixels,
                           in_plane, across_row, to_next_row},
                          invocation.stream);
          }};
}

Step gather(const std::string& name, CudaDevice& device, const Problem& p, bool filter, Place from, Place to,
            Recipe& recipe) {
  const std::string constants =
      gathered(p, folded(p)) + define("F_TAPS", p.s) + define("F_DILATION", filter ? 1 : p.dilation_w);
  const auto kernel = build(device, "gather_rows", constants, recipe);
  const int h = narrow(filter ? p.r : p.h), w = narrow(filter ? p.s : p.w);
  const int lines = narrow(filter ? p.k : p.n) * h, columns = narrow(filter ? 1 : p.q());
  const int stride = narrow(filter ? 1 : p.stride_w), pad = narrow(filter ? 0 : p.pad_left);
  LaunchShape shape;
  shape.block[0] = 256;
  // Several lines a block, where that leaves every multiprocessor some blocks.
  const int most_blocks = device.info().units * 8;
  const int group = lines >= most_blocks * 4 ? 8 : std::max(1, lines / most_blocks);
  shape.grid[0] = static_cast<unsigned>(std::min((lines + group - 1) / group, most_blocks));
  shape.overlaps_previous = true;
  return {name, [=, &device](const Invocation& invocation) {
            void *source_pointer = from(invocation), *target_pointer = to(invocation);
            device.launch(*kernel, shape,
                          {source_pointer, target_pointer, lines, h, w, columns, stride, pad, group},
                          invocation.stream);
          }};
}

Step space_to_depth(const std::string& name, CudaDevice& device, const Problem& p, bool filter, Place from,
                    Place to, Recipe& recipe) {
  const Problem inner = deepened(p);
  const std::string constants =
      gathered(p, inner) + define("F_DOWN", p.stride_h) + define("F_ACROSS", p.stride_w);
  const auto kernel = build(device, "space_to_depth", constants, recipe);
  const int h = narrow(filter ? p.r : p.h), w = narrow(filter ? p.s : p.w);
  const int h_to = narrow(filter ? inner.r : inner.h), w_to = narrow(filter ? inner.s : inner.w);
  const int pixels = narrow((filter ? p.k : p.n) * h_to * w_to);
  const int pad_top = narrow(filter ? 0 : p.pad_top), pad_left = narrow(filter ? 0 : p.pad_left);
  LaunchShape shape;
  shape.block[0] = 256;
  shape.grid[0] = static_cast<unsigned>(std::min((pixels - 1) / 256 + 1, device.info().units * 32));
  shape.overlaps_previous = true;
  return {name, [=, &device](const Invocation& invocation) {
            void *source_pointer = from(invocation), *target_pointer = to(invocation);
            device.launch(*kernel, shape,
                          {source_pointer, target_pointer, pixels, h, w, h_to, w_to, pad_top, pad_left},
                          invocation.stream);
          }};
}

Step split(CudaDevice& device, const Problem& p, Place from, Recipe& recipe) {
  const auto kernel = build(device, "split_tf32", define("F_TF32", tf32_parts(p)), recipe);
  const i64 elements = p.k * p.r * p.s * padded_channels(p);
  LaunchShape shape;
  shape.block[0] = 256;
  shape.grid[0] = static_cast<unsigned>(std::min<i64>((elements + 255) / 256, device.info().units * 8));
  shape.overlaps_previous = true;
  return {"split weights", [=, &device](const Invocation& invocation) {
            void *source_pointer = from(invocation), *target_pointer = invocation.packed;
            i64 count = elements;
            device.launch(*kernel, shape, {source_pointer, target_pointer, count}, invocation.stream);
          }};
}

}  // namespace faltung::sm90
