// Where there is text: a network's probabilities for each pixel, and boxes of them (differentiable
// binarization, DB).
#ifndef FALTUNG_EXAMPLES_OCR_DETECTION_HPP_
#define FALTUNG_EXAMPLES_OCR_DETECTION_HPP_

#include <array>
#include <opencv2/core.hpp>
#include <vector>

#include "model.hpp"

namespace ocr {

using Box = std::array<cv::Point2f, 4>;  // clockwise from the top left

// Boxes in an image of that size, of probabilities (f32) that a network gave for it at any other.
std::vector<Box> boxes_of(const cv::Mat& probabilities, cv::Size image);

// As one reads: line by line, each from left to right.
std::vector<Box> in_reading_order(std::vector<Box> boxes);

std::vector<Box> detect(Model& detector, const cv::Mat& image);

}  // namespace ocr

#endif  // FALTUNG_EXAMPLES_OCR_DETECTION_HPP_
