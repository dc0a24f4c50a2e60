#include "src/algorithms/registry.hpp"

namespace faltung {

const std::vector<std::unique_ptr<Algorithm>>& registry() {
  static const std::vector<std::unique_ptr<Algorithm>> algorithms = [] {
    std::vector<std::unique_ptr<Algorithm>> all;
    all.push_back(make_depthwise_cpu());
    all.push_back(make_depthwise_gpu());
    all.push_back(make_direct_cpu());
    all.push_back(make_direct_gpu());
    all.push_back(make_explicit_gemm_cpu());
    all.push_back(make_fft_cpu());
    all.push_back(make_implicit_gemm_cpu());
    all.push_back(make_implicit_gemm_gpu());
    all.push_back(make_implicit_gemm_sm90());
    all.push_back(make_reference_cpu());
    all.push_back(make_winograd_cpu());
    return all;
  }();
  return algorithms;
}

}  // namespace faltung
