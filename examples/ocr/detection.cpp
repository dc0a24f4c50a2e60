#include "detection.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <opencv2/imgproc.hpp>
#include <polyclipping/clipper.hpp>

namespace ocr {
namespace {

// The networks' makers chose these.
constexpr int kShortSide = 736;     // of the detector's input, in pixels, at least
constexpr float kTextPixel = 0.3f;  // a pixel this likely is text
constexpr double kTextBox = 0.5;    // and a box that is so likely in the mean
constexpr double kUnclip = 1.6;     // text is this much larger than what is detected: area by circumference
constexpr float kSmallestSide = 3;  // in the network's pixels
constexpr std::size_t kMostBoxes = 1000;
constexpr float kLineHeight = 10;  // boxes that begin closer than that are on one line

struct Rectangle {
  Box box;
  float short_side;
};

// Left before right, then top before bottom.
Box clockwise(Box points) {
  const auto left = [](const cv::Point2f& a, const cv::Point2f& b) { return a.x < b.x; };
  std::stable_sort(points.begin(), points.end(), left);
  if (points[1].y <= points[0].y) std::swap(points[0], points[1]);
  if (points[3].y <= points[2].y) std::swap(points[2], points[3]);
  return {points[0], points[2], points[3], points[1]};
}

Rectangle smallest_rectangle(const std::vector<cv::Point>& outline) {
  const cv::RotatedRect rectangle = cv::minAreaRect(outline);
  Box points;
  rectangle.points(points.data());
  return {clockwise(points), std::min(rectangle.size.width, rectangle.size.height)};
}

double mean_inside(const cv::Mat& probabilities, const Box& box) {
  const auto [left, right] = std::minmax({box[0].x, box[1].x, box[2].x, box[3].x});
  const auto [top, bottom] = std::minmax({box[0].y, box[1].y, box[2].y, box[3].y});
  const int x0 = std::clamp(cvFloor(left), 0, probabilities.cols - 1);
  const int x1 = std::clamp(cvCeil(right), 0, probabilities.cols - 1);
  const int y0 = std::clamp(cvFloor(top), 0, probabilities.rows - 1);
  const int y1 = std::clamp(cvCeil(bottom), 0, probabilities.rows - 1);
  std::vector<cv::Point> corners;
  for (const cv::Point2f& p : box)
    corners.emplace_back(static_cast<int>(p.x - static_cast<float>(x0)),
                         static_cast<int>(p.y - static_cast<float>(y0)));
  const cv::Rect area(x0, y0, x1 - x0 + 1, y1 - y0 + 1);
  cv::Mat mask = cv::Mat::zeros(area.size(), CV_8U);
  cv::fillPoly(mask, std::vector{corners}, 1);
  return cv::mean(probabilities(area), mask)[0];
}

// The box as large as the text that it is the middle of; empty if nothing is left of it.
std::vector<cv::Point> unclipped(const Box& box) {
  double area = 0, length = 0;
  ClipperLib::Path path;
  for (std::size_t i = 0; i < 4; ++i) {
    const cv::Point2d a = box[i], b = box[(i + 1) % 4];
    area += a.cross(b) / 2;
    length += std::hypot(b.x - a.x, b.y - a.y);
    path << ClipperLib::IntPoint(static_cast<ClipperLib::cInt>(a.x), static_cast<ClipperLib::cInt>(a.y));
  }
  ClipperLib::ClipperOffset offset;
  offset.AddPath(path, ClipperLib::jtRound, ClipperLib::etClosedPolygon);
  ClipperLib::Paths larger;
  offset.Execute(larger, std::abs(area) * kUnclip / length);
  std::vector<cv::Point> points;
  for (const ClipperLib::Path& part : larger)
    for (const ClipperLib::IntPoint& p : part)
      points.emplace_back(static_cast<int>(p.X), static_cast<int>(p.Y));
  return points;
}

float distance(const cv::Point2f& a, const cv::Point2f& b) { return std::hypot(b.x - a.x, b.y - a.y); }

// A multiple of the network's own stride.
int rounded(double size) { return static_cast<int>(std::nearbyint(std::floor(size) / 32)) * 32; }

}  // namespace

std::vector<Box> boxes_of(const cv::Mat& probabilities, cv::Size image) {
  cv::Mat text;
  cv::dilate(probabilities > kTextPixel, text, cv::Mat::ones(2, 2, CV_8U));
  std::vector<std::vector<cv::Point>> outlines;
  cv::findContours(text, outlines, cv::RETR_LIST, cv::CHAIN_APPROX_SIMPLE);
  outlines.resize(std::min(outlines.size(), kMostBoxes));
  std::vector<Box> boxes;
  for (const std::vector<cv::Point>& outline : outlines) {
    const Rectangle inner = smallest_rectangle(outline);
    if (inner.short_side < kSmallestSide || mean_inside(probabilities, inner.box) < kTextBox) continue;
    const std::vector<cv::Point> larger = unclipped(inner.box);
    if (larger.empty()) continue;
    Rectangle outer = smallest_rectangle(larger);
    if (outer.short_side < kSmallestSide + 2) continue;
    const auto scaled = [](float at, int from, int to) {
      const float there = std::nearbyint(at / static_cast<float>(from) * static_cast<float>(to));
      return std::clamp(there, 0.0f, static_cast<float>(to));
    };
    for (cv::Point2f& p : outer.box)
      p = {scaled(p.x, probabilities.cols, image.width), scaled(p.y, probabilities.rows, image.height)};
    Box box = clockwise(outer.box);
    for (cv::Point2f& p : box) {
      p.x = std::min(p.x, static_cast<float>(image.width - 1));
      p.y = std::min(p.y, static_cast<float>(image.height - 1));
    }
    if (std::floor(distance(box[0], box[1])) > kSmallestSide &&
        std::floor(distance(box[0], box[3])) > kSmallestSide)
      boxes.push_back(box);
  }
  return boxes;
}

std::vector<Box> in_reading_order(std::vector<Box> boxes) {
  std::ranges::stable_sort(boxes, {}, [](const Box& box) { return box[0].y; });
  for (auto begin = boxes.begin(); begin != boxes.end();) {
    auto end = begin + 1;
    while (end != boxes.end() && (*end)[0].y - (*(end - 1))[0].y < kLineHeight) ++end;
    std::stable_sort(begin, end, [](const Box& a, const Box& b) { return a[0].x < b[0].x; });
    begin = end;
  }
  return boxes;
}

std::vector<Box> detect(Model& detector, const cv::Mat& image) {
  const int side = std::min(image.rows, image.cols);
  const double ratio = side < kShortSide ? static_cast<double>(kShortSide) / side : 1.0;
  const int height = rounded(image.rows * ratio), width = rounded(image.cols * ratio);
  cv::Mat resized;
  cv::resize(image, resized, {width, height});
  Values input = blank(1, height, width);
  put(resized, 0, input);
  Values output = detector.run(input);
  const cv::Mat probabilities(static_cast<int>(output.sizes.at(2)), static_cast<int>(output.sizes.at(3)),
                              CV_32F, output.data.data());
  return in_reading_order(boxes_of(probabilities, image.size()));
}

}  // namespace ocr
