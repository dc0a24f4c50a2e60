// The makers that registry.cpp lists, one for each algorithm.
#ifndef FALTUNG_SRC_ALGORITHMS_REGISTRY_HPP_
#define FALTUNG_SRC_ALGORITHMS_REGISTRY_HPP_

#include <memory>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

std::unique_ptr<Algorithm> make_depthwise_cpu();
std::unique_ptr<Algorithm> make_depthwise_diagonal_gpu();
std::unique_ptr<Algorithm> make_depthwise_gpu();
std::unique_ptr<Algorithm> make_depthwise_mma_gpu();
std::unique_ptr<Algorithm> make_depthwise_planes_gpu();
std::unique_ptr<Algorithm> make_direct_cpu();
std::unique_ptr<Algorithm> make_direct_gpu();
std::unique_ptr<Algorithm> make_explicit_gemm_cpu();
std::unique_ptr<Algorithm> make_explicit_gemm_gpu();
std::unique_ptr<Algorithm> make_few_channels_sm90();
std::unique_ptr<Algorithm> make_fft_cpu();
std::unique_ptr<Algorithm> make_fft_gpu();
std::unique_ptr<Algorithm> make_grouped_mma_gpu();
std::unique_ptr<Algorithm> make_implicit_gemm_cpu();
std::unique_ptr<Algorithm> make_implicit_gemm_gpu();
std::unique_ptr<Algorithm> make_implicit_gemm_matrix_gpu();
std::unique_ptr<Algorithm> make_implicit_gemm_mma_gpu();
std::unique_ptr<Algorithm> make_implicit_gemm_nki();
std::unique_ptr<Algorithm> make_implicit_gemm_sm90();
std::unique_ptr<Algorithm> make_reference_cpu();
std::unique_ptr<Algorithm> make_weights_gradient_sm90();
std::unique_ptr<Algorithm> make_winograd_cpu();
std::unique_ptr<Algorithm> make_winograd_gpu();

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_REGISTRY_HPP_
