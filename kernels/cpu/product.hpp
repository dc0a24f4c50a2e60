// Products of matrices that are both made as the network runs, in fp32, in batches. The functions here
// compute on elements of f32; a GPU has kernels for the others.
#ifndef FALTUNG_KERNELS_CPU_PRODUCT_HPP_
#define FALTUNG_KERNELS_CPU_PRODUCT_HPP_

#include <cstdint>
#include <vector>

#include "kernels/cpu/map.hpp"

namespace faltung {

// y[m][n] = the sum over k of a[m][k] b[k][n]; all three contiguous, rows last. The matrices of batch i begin
// at these elements of a and b, and at i * m * n of y.
struct ProductCall {
  std::int64_t m = 1, n = 1, k = 1;
  std::vector<std::int64_t> a, b;
  MapElement a_element = MapElement::f32, b_element = MapElement::f32, y_element = MapElement::f32;
};

std::int64_t product_tasks(const ProductCall& call);
void product_task(const ProductCall& call, const float* a, const float* b, float* y, std::int64_t task);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_PRODUCT_HPP_
