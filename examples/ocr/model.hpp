// A network of one input and one output of f32, whose sizes change from run to run.
#ifndef FALTUNG_EXAMPLES_OCR_MODEL_HPP_
#define FALTUNG_EXAMPLES_OCR_MODEL_HPP_

#include <cstdint>
#include <faltung/network.hpp>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

namespace ocr {

using Sizes = std::vector<std::int64_t>;

struct Values {
  Sizes sizes;
  std::vector<float> data;  // contiguous, the last size fastest
};

class Model {
 public:
  Model(faltung::Engine& engine, const std::string& file, int threads);

  Values run(const Values& input);
  const std::string* metadata(const std::string& key) const;  // null: the file does not say
  double ms() const { return ms_; }                           // spent in runs since the last reset()
  void reset() { ms_ = 0; }

 private:
  faltung::Network network_;
  double ms_ = 0;
};

// Pictures of one size as a network's input, (count, 3, height, width), all 0.
Values blank(std::size_t count, int height, int width);
// The picture `image` into the place of that index, from the left on, the colours from -1 to 1.
void put(const cv::Mat& image, std::size_t index, Values& input);

}  // namespace ocr

#endif  // FALTUNG_EXAMPLES_OCR_MODEL_HPP_
