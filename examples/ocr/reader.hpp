// A picture in, lines of text with boxes out.
#ifndef FALTUNG_EXAMPLES_OCR_READER_HPP_
#define FALTUNG_EXAMPLES_OCR_READER_HPP_

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "detection.hpp"
#include "lines.hpp"
#include "model.hpp"

namespace ocr {

struct Line {
  Box box;  // in the picture's pixels
  Reading reading;
};

// Milliseconds of networks' runs.
struct Times {
  double detection = 0, direction = 0, recognition = 0;
};

class Reader {
 public:
  // models: a folder with the networks of the Python package rapidocr, as its wheel has them.
  Reader(faltung::Engine& engine, const std::string& models, int threads);

  // Lines whose score is 0.5 or more, as one reads them.
  std::vector<Line> read(const cv::Mat& picture);
  Times times() const { return {detector_.ms(), classifier_.ms(), recognition_.ms()}; }
  void reset_times();

 private:
  Model detector_, classifier_, recognition_;
  Recognizer recognizer_;
};

// A copy with the boxes drawn and numbered from 1 on.
cv::Mat drawn(const cv::Mat& picture, const std::vector<Line>& lines);

}  // namespace ocr

#endif  // FALTUNG_EXAMPLES_OCR_READER_HPP_
