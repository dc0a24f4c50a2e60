#include "lines.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <opencv2/imgproc.hpp>
#include <span>
#include <sstream>
#include <stdexcept>

namespace ocr {
namespace {

constexpr int kHeight = 48;           // of the networks' input
constexpr int kDirectionWidth = 192;  // of the classifier's
constexpr int kLeastWidth = 320;      // of the recognizer's
constexpr float kTurned = 0.9f;       // so sure must the classifier be
constexpr std::size_t kBatch = 6;

double ratio(const cv::Mat& line) { return static_cast<double>(line.cols) / line.rows; }

// Narrow ones first, so that a batch has lines of like widths.
std::vector<std::size_t> by_ratio(const std::vector<cv::Mat>& lines) {
  std::vector<std::size_t> order(lines.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return ratio(lines[i]); });
  return order;
}

// Calls run(indices) for a batch after the other.
template <class Run>
void in_batches(const std::vector<std::size_t>& order, const Run& run) {
  const std::span all(order);
  for (std::size_t begin = 0; begin < all.size(); begin += kBatch)
    run(all.subspan(begin, std::min(kBatch, all.size() - begin)));
}

Values input_of(const std::vector<cv::Mat>& lines, std::span<const std::size_t> indices, int width) {
  Values input = blank(indices.size(), kHeight, width);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const cv::Mat& line = lines[indices[i]];
    cv::Mat resized;
    cv::resize(line, resized, {std::min(width, static_cast<int>(std::ceil(kHeight * ratio(line)))), kHeight});
    put(resized, i, input);
  }
  return input;
}

}  // namespace

cv::Mat cut_out(const cv::Mat& image, const Box& box) {
  const auto side = [&](std::size_t a, std::size_t b) {
    return std::hypot(box[a].x - box[b].x, box[a].y - box[b].y);
  };
  const cv::Size size(static_cast<int>(std::max(side(0, 1), side(2, 3))),
                      static_cast<int>(std::max(side(0, 3), side(1, 2))));
  const auto width = static_cast<float>(size.width), height = static_cast<float>(size.height);
  const Box upright{cv::Point2f(0, 0), {width, 0}, {width, height}, {0, height}};
  cv::Mat line;
  cv::warpPerspective(image, line, cv::getPerspectiveTransform(box.data(), upright.data()), size,
                      cv::INTER_CUBIC, cv::BORDER_REPLICATE);
  if (line.rows >= 1.5 * line.cols) cv::rotate(line, line, cv::ROTATE_90_COUNTERCLOCKWISE);
  return line;
}

void turn_upright(Model& classifier, std::vector<cv::Mat>& lines) {
  in_batches(by_ratio(lines), [&](std::span<const std::size_t> indices) {
    const Values output = classifier.run(input_of(lines, indices, kDirectionWidth));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const float upright = output.data.at(2 * i), turned = output.data.at(2 * i + 1);
      cv::Mat& line = lines[indices[i]];
      if (turned > upright && turned > kTurned) cv::rotate(line, line, cv::ROTATE_180);
    }
  });
}

Recognizer::Recognizer(Model& model) : model_(model), characters_{""} {
  const std::string* const all = model.metadata("character");
  if (all == nullptr) throw std::runtime_error("the recognition network does not say its characters");
  std::istringstream stream(*all);
  for (std::string character; std::getline(stream, character);) characters_.push_back(character);
  characters_.push_back(" ");
}

std::vector<Reading> Recognizer::read(const std::vector<cv::Mat>& lines) {
  std::vector<Reading> readings(lines.size());
  in_batches(by_ratio(lines), [&](std::span<const std::size_t> indices) {
    const double widest = std::max(ratio(lines[indices.back()]), static_cast<double>(kLeastWidth) / kHeight);
    const Values output = model_.run(input_of(lines, indices, static_cast<int>(kHeight * widest)));
    const std::int64_t steps = output.sizes.at(1), characters = output.sizes.at(2);
    if (characters != static_cast<std::int64_t>(characters_.size()))
      throw std::runtime_error("the recognition network tells " + std::to_string(characters) +
                               " characters, but names " + std::to_string(characters_.size()));
    for (std::size_t i = 0; i < indices.size(); ++i)
      readings[indices[i]] =
          decode(output.data.data() + static_cast<std::int64_t>(i) * steps * characters, steps, characters);
  });
  return readings;
}

// Of each step the likeliest; what is said several times in a row is said once, unless nothing is between.
Reading Recognizer::decode(const float* probabilities, std::int64_t steps, std::int64_t characters) const {
  Reading reading;
  std::int64_t last = 0;
  int count = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const float* const at = probabilities + step * characters;
    const std::int64_t best = std::max_element(at, at + characters) - at;
    if (best != 0 && best != last) {
      reading.text += characters_[static_cast<std::size_t>(best)];
      reading.score += at[best];
      ++count;
    }
    last = best;
  }
  if (count > 0) reading.score /= count;
  return reading;
}

}  // namespace ocr
