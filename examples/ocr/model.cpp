#include "model.hpp"

#include <chrono>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace ocr {
namespace {

faltung::NetworkRequest request_of(int threads) {
  faltung::NetworkRequest request;
  request.request.threads = threads;
  return request;
}

std::size_t count(const Sizes& sizes) {
  return static_cast<std::size_t>(
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>()));
}

}  // namespace

Model::Model(faltung::Engine& engine, const std::string& file, int threads)
    : network_(engine, file, request_of(threads)) {
  const auto& inputs = network_.inputs();
  if (inputs.size() != 1 || inputs[0].element != faltung::Element::f32 || inputs[0].sizes.size() != 4)
    throw std::runtime_error(file + ": not a network of one input of pictures in f32");
}

Values Model::run(const Values& input) {
  const auto begin = std::chrono::steady_clock::now();
  const faltung::NetworkPlan plan = network_.plan({input.sizes});  // kept, for sizes that were seen before
  Values output{plan.outputs().at(0).sizes, {}};
  output.data.resize(count(output.sizes));
  const void* const inputs[] = {input.data.data()};
  void* const outputs[] = {output.data.data()};
  plan.run(inputs, outputs);
  ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return output;
}

const std::string* Model::metadata(const std::string& key) const {
  const auto found = network_.metadata().find(key);
  return found == network_.metadata().end() ? nullptr : &found->second;
}

Values blank(std::size_t count, int height, int width) {
  Values input{{static_cast<std::int64_t>(count), 3, height, width}, {}};
  input.data.resize(ocr::count(input.sizes));
  return input;
}

void put(const cv::Mat& image, std::size_t index, Values& input) {
  const auto height = static_cast<std::size_t>(input.sizes[2]),
             width = static_cast<std::size_t>(input.sizes[3]);
  float* const planes = input.data.data() + index * 3 * height * width;
  for (int y = 0; y < image.rows; ++y) {
    const auto* const row = image.ptr<cv::Vec3b>(y);
    for (int x = 0; x < image.cols; ++x) {
      for (int c = 0; c < 3; ++c) {
        float* const plane = planes + static_cast<std::size_t>(c) * height * width;
        plane[static_cast<std::size_t>(y) * width + static_cast<std::size_t>(x)] =
            (static_cast<float>(row[x][c]) / 255 - 0.5f) / 0.5f;
      }
    }
  }
}

}  // namespace ocr
