// Pictures in files.
#ifndef FALTUNG_EXAMPLES_OCR_IMAGE_HPP_
#define FALTUNG_EXAMPLES_OCR_IMAGE_HPP_

#include <opencv2/core.hpp>
#include <string>

namespace ocr {

// A PNG or JPEG file, by what it holds, as blue, green and red of 8 bits. What is transparent comes to lie on
// white or black, whichever differs more from what is drawn on it. Throws std::runtime_error for any other.
cv::Mat read_image(const std::string& path);

// image: as read_image gives it.
void write_png(const cv::Mat& image, const std::string& path);

}  // namespace ocr

#endif  // FALTUNG_EXAMPLES_OCR_IMAGE_HPP_
