#include "src/algorithms/registry.hpp"

#include <utility>
#include <vector>

#include "src/algorithms/registered.hpp"

namespace faltung {

namespace {

std::vector<std::unique_ptr<Algorithm>>& algorithms() {
  static std::vector<std::unique_ptr<Algorithm>> algorithms = [] {
    std::vector<std::unique_ptr<Algorithm>> all;
    all.push_back(make_depthwise_cpu());
    all.push_back(make_depthwise_diagonal_gpu());
    all.push_back(make_depthwise_gpu());
    all.push_back(make_depthwise_mma_gpu());
    all.push_back(make_depthwise_planes_gpu());
    all.push_back(make_direct_cpu());
    all.push_back(make_direct_gpu());
    all.push_back(make_explicit_gemm_cpu());
    all.push_back(make_explicit_gemm_gpu());
    all.push_back(make_few_channels_sm90());
    all.push_back(make_fft_cpu());
    all.push_back(make_fft_gpu());
    all.push_back(make_grouped_mma_gpu());
    all.push_back(make_implicit_gemm_cpu());
    all.push_back(make_implicit_gemm_gpu());
    all.push_back(make_implicit_gemm_matrix_gpu());
    all.push_back(make_implicit_gemm_mma_gpu());
    all.push_back(make_implicit_gemm_nki());
    all.push_back(make_implicit_gemm_sm90());
    all.push_back(make_reference_cpu());
    all.push_back(make_weights_gradient_sm90());
    all.push_back(make_winograd_cpu());
    all.push_back(make_winograd_gpu());
    return all;
  }();
  return algorithms;
}

}  // namespace

const std::vector<std::unique_ptr<Algorithm>>& registry() { return algorithms(); }

void add_to_registry(std::unique_ptr<Algorithm> algorithm) { algorithms().push_back(std::move(algorithm)); }

Registered::Registered(std::unique_ptr<Algorithm> algorithm) : algorithm_(algorithm.get()) {
  add_to_registry(std::move(algorithm));
}

Registered::~Registered() {
  std::erase_if(algorithms(), [this](const auto& algorithm) { return algorithm.get() == algorithm_; });
}

}  // namespace faltung
