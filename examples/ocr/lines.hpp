// Lines of text cut out of a picture: which way up they are, and what they say.
#ifndef FALTUNG_EXAMPLES_OCR_LINES_HPP_
#define FALTUNG_EXAMPLES_OCR_LINES_HPP_

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "detection.hpp"
#include "model.hpp"

namespace ocr {

struct Reading {
  std::string text;  // UTF-8
  double score = 0;  // the mean of the characters' probabilities
};

// A box as an upright rectangle; one that is much higher than wide comes turned by 90°.
cv::Mat cut_out(const cv::Mat& image, const Box& box);

// Lines that stand on their head are turned.
void turn_upright(Model& classifier, std::vector<cv::Mat>& lines);

class Recognizer {
 public:
  // model: its metadata say the characters, one a line ("character").
  explicit Recognizer(Model& model);
  std::vector<Reading> read(const std::vector<cv::Mat>& lines);

 private:
  // probabilities: by step and character.
  Reading decode(const float* probabilities, std::int64_t steps, std::int64_t characters) const;

  Model& model_;
  std::vector<std::string> characters_;  // the first is none, the last a space
};

}  // namespace ocr

#endif  // FALTUNG_EXAMPLES_OCR_LINES_HPP_
