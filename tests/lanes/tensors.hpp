// What the programs beside this share: tensors of small integers with NaN around, and what becomes of a
// comparison. After a kernel, whose dtype they have.
#pragma once
#include <cstdio>
#include <random>

#include "tests/lanes/lanes.hpp"

namespace {

constexpr int kGuard = 64;

u16 element(float v) {
  u16 bits;
  F_STORE(&bits, 0, v);
  return bits;
}
float number(u16 bits) { return F_LOAD(&bits, 0); }
float number(float v) { return v; }

// On 16 bytes, with NaN around.
template <class T>
struct Tensor {
  explicit Tensor(std::size_t size, T fill) : all(size + 2 * kGuard, fill) {
    const std::size_t beyond = bits_of<std::uintptr_t>(all.data() + kGuard) % 16 / sizeof(T);
    data = all.data() + kGuard - beyond;
    count = size;
  }
  std::vector<T> all;
  T* data;
  std::size_t count;
};

Tensor<u16> small_integers(std::size_t size, std::mt19937& engine) {
  Tensor<u16> t(size, element(NAN));
  for (std::size_t i = 0; i < size; ++i) t.data[i] = element(static_cast<float>(engine() % 5) - 2);
  return t;
}

int wrong = 0;
void expect(double got, double want, const char* what, std::size_t at) {
  if (got == want || wrong++ > 4) return;
  std::printf("%s %zu: %g, not %g\n", what, at, got, want);
}

std::size_t at(int n, int h, int w, int c, int height, int width, int channels) {
#ifdef LAYOUT_nchw
  return ((static_cast<std::size_t>(n) * channels + c) * height + h) * width + w;
#else
  return ((static_cast<std::size_t>(n) * height + h) * width + w) * channels + c;
#endif
}

// Nothing was written beside the tensor.
template <class T>
void expect_guards(const Tensor<T>& tensor) {
  for (const T* v = tensor.all.data(); v != tensor.all.data() + tensor.all.size(); ++v) {
    if ((v < tensor.data || v >= tensor.data + tensor.count) &&
        !std::isnan(sizeof *v == 2 ? number(static_cast<u16>(*v)) : static_cast<float>(*v)))
      expect(0, 1, "written beyond", 0);
  }
}

}  // namespace
