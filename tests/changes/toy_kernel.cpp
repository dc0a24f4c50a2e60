#include "kernels/cpu/toy.hpp"

#include "src/problem/problem.hpp"

namespace faltung {

void toy_plane(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t channel) {
  const TensorShape x = x_shape(p), w = w_shape(p), y = y_shape(p);
  const std::int64_t first = channel / (p.k / p.groups) * w.c;
  for (std::int64_t i = 0; i < y.h; ++i) {
    for (std::int64_t j = 0; j < y.w; ++j) {
      float sum = 0;
      for (std::int64_t c = 0; c < w.c; ++c) {
        for (std::int64_t r = 0; r < p.r; ++r) {
          for (std::int64_t s = 0; s < p.s; ++s) {
            const std::int64_t h = i * p.stride_h - p.pad_top + r * p.dilation_h;
            const std::int64_t v = j * p.stride_w - p.pad_left + s * p.dilation_w;
            if (h < 0 || h >= p.h || v < 0 || v >= p.w) continue;
            sum += static_cast<const float*>(t.x)[x.offset(image, first + c, h, v)] *
                   static_cast<const float*>(t.w)[w.offset(channel, c, r, s)];
          }
        }
      }
      static_cast<float*>(t.y)[y.offset(image, channel, i, j)] = sum;
    }
  }
}

}  // namespace faltung
