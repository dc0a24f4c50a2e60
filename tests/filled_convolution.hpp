// A convolution with its tensors, among whose values are zeros and denormals, and the algorithms that compute
// it.
#ifndef FALTUNG_TESTS_FILLED_CONVOLUTION_HPP_
#define FALTUNG_TESTS_FILLED_CONVOLUTION_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/algorithms/algorithm.hpp"
#include "src/problem/dtype.hpp"
#include "tests/scratch.hpp"

namespace faltung {

// Random numbers, among them zeros and denormals.
inline std::vector<std::byte> values_with_denormals(DType dtype, std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::size_t i = 0; i < bytes / static_cast<std::size_t>(size_of(dtype)); ++i) {
    const float value = uniform(random);
    store_element(dtype, out.data(), static_cast<std::int64_t>(i),
                  random() % 16 == 0 ? value * 1e-39f : value);
  }
  return out;
}

// Of a tensor in f32.
template <class Function>
void each_value(std::vector<std::byte>& tensor, const Function& function) {
  for (std::size_t i = 0; i < tensor.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, tensor.data() + sizeof value * i, sizeof value);
    value = function(value);
    std::memcpy(tensor.data() + sizeof value * i, &value, sizeof value);
  }
}

// A convolution with its tensors.
struct FilledConvolution {
  explicit FilledConvolution(const std::string& text) : problem(parse_problem(text)) {
    const Problem& p = problem;
    for (const Tensor t : {Tensor::x, Tensor::w, Tensor::y, Tensor::bias}) {
      memory.push_back(values_with_denormals(p.dtype, bytes(p, t), static_cast<unsigned>(t)));
    }
    tensors = {memory[0].data(), memory[1].data(), memory[2].data(), memory[3].data(), nullptr};
    result = p.direction == Direction::forward ? 2 : p.direction == Direction::backward_data ? 0 : 1;
  }
  std::vector<std::byte> run(const Plan& plan, const PackedWeights* weights,
                             const ParallelFor& parallel_for) {
    workspace.resize(plan.workspace_bytes() + 1);
    std::fill(memory[result].begin(), memory[result].end(), std::byte{0xff});
    RunOptions options;
    options.workspace = workspace.data();
    options.weights = weights;
    options.parallel_for = parallel_for;
    plan.run(tensors, options);
    return memory[result];
  }
  Problem problem;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte> workspace;
  Tensors tensors;
  std::size_t result;
};

class FilledConvolutions : public testing::Test {
 protected:
  // Every CPU algorithm that computes the problem.
  static std::vector<std::string> algorithms(const Problem& problem) {
    std::vector<std::string> names;
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() == "cpu" &&
          algorithm->supports(problem, {find_device("cpu")->info(), 2}).yes) {
        names.emplace_back(algorithm->name());
      }
    }
    return names;
  }
  static Request request(const std::string& algorithm, int threads) {
    Request request;
    request.only = {algorithm};
    request.threads = threads;
    return request;
  }
  const Scratch scratch_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_FILLED_CONVOLUTION_HPP_
