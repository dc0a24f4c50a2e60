#include "reader.hpp"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

namespace ocr {
namespace {

constexpr int kShortest = 30, kLongest = 2000;  // sides of what is looked at, in pixels
constexpr int kFlattest = 8;                    // times as wide as high
constexpr double kReadable = 0.5;

// The picture as the detector wants it, and the way back to the picture's own pixels.
struct Page {
  cv::Mat image;
  cv::Point2f scale{1, 1};
  int above = 0;  // rows of black that were added
};

int rounded_side(double size) { return static_cast<int>(std::nearbyint(std::floor(size) / 32)) * 32; }

void resize(Page& page, double ratio) {
  const cv::Size from = page.image.size(),
                 to(rounded_side(from.width * ratio), rounded_side(from.height * ratio));
  if (to.empty()) throw std::runtime_error("the picture is too narrow to be read");
  cv::resize(page.image, page.image, to);
  page.scale = {static_cast<float>(static_cast<double>(from.width) / to.width),
                static_cast<float>(static_cast<double>(from.height) / to.height)};
}

Page page_of(const cv::Mat& picture) {
  Page page{picture.clone()};
  const auto [shorter, longer] = std::minmax(picture.rows, picture.cols);
  if (longer > kLongest) resize(page, static_cast<double>(kLongest) / longer);
  const int side = std::min(page.image.rows, page.image.cols);
  if (side < kShortest) resize(page, static_cast<double>(kShortest) / side);
  const int height = page.image.rows, width = page.image.cols;
  if (height <= kShortest || width > kFlattest * height) {
    page.above = std::abs(std::max(width / kFlattest, kShortest) * 2 - height) / 2;
    cv::copyMakeBorder(page.image, page.image, page.above, page.above, 0, 0, cv::BORDER_CONSTANT);
  }
  return page;
}

}  // namespace

Reader::Reader(faltung::Engine& engine, const std::string& models, int threads)
    : detector_(engine, models + "/PP-OCRv6_det_small.onnx", threads),
      classifier_(engine, models + "/ch_ppocr_mobile_v2.0_cls_mobile.onnx", threads),
      recognition_(engine, models + "/PP-OCRv6_rec_small.onnx", threads),
      recognizer_(recognition_) {}

std::vector<Line> Reader::read(const cv::Mat& picture) {
  const Page page = page_of(picture);
  const std::vector<Box> boxes = detect(detector_, page.image);
  std::vector<cv::Mat> cuts;
  for (const Box& box : boxes) cuts.push_back(cut_out(page.image, box));
  turn_upright(classifier_, cuts);
  const std::vector<Reading> readings = recognizer_.read(cuts);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (readings[i].score < kReadable || readings[i].text.find_first_not_of(' ') == std::string::npos)
      continue;
    Line line{boxes[i], readings[i]};
    for (cv::Point2f& p : line.box) {
      p.x = std::clamp(p.x * page.scale.x, 0.0f, static_cast<float>(picture.cols));
      p.y = std::clamp((p.y - static_cast<float>(page.above)) * page.scale.y, 0.0f,
                       static_cast<float>(picture.rows));
    }
    lines.push_back(line);
  }
  return lines;
}

void Reader::reset_times() { detector_.reset(), classifier_.reset(), recognition_.reset(); }

cv::Mat drawn(const cv::Mat& picture, const std::vector<Line>& lines) {
  cv::Mat copy = picture.clone();
  const int thickness = 1 + std::max(picture.rows, picture.cols) / 800;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<cv::Point> corners(lines[i].box.begin(), lines[i].box.end());
    cv::polylines(copy, corners, true, {60, 60, 230}, thickness, cv::LINE_AA);
    cv::putText(copy, std::to_string(i + 1), corners[0] + cv::Point(0, -2), cv::FONT_HERSHEY_SIMPLEX,
                0.4 * thickness, {200, 80, 20}, thickness, cv::LINE_AA);
  }
  return copy;
}

}  // namespace ocr
