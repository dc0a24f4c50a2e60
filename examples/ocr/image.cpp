#include "image.hpp"

#include <png.h>
#include <turbojpeg.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

namespace ocr {
namespace {

using File = std::vector<unsigned char>;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

File read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  File file{std::istreambuf_iterator<char>(stream), {}};
  if (file.empty()) fail(path, "cannot be read, or is empty");
  return file;
}

// The colours weighted by their opacity, over black where they are bright in the mean and over white where
// they are dark.
cv::Mat without_transparency(const cv::Mat& image) {
  double luminance = 0;
  std::int64_t visible = 0;
  for (const cv::Vec4b& p : cv::Mat_<cv::Vec4b>(image)) {
    if (p[3] == 0) continue;
    luminance += 0.299 * p[2] + 0.587 * p[1] + 0.114 * p[0];
    ++visible;
  }
  const bool bright = visible > 0 && luminance / static_cast<double>(visible) >= 128;
  const float background = bright ? 0.0f : 255.0f;
  cv::Mat_<cv::Vec3b> opaque(image.size());
  auto to = opaque.begin();
  for (const cv::Vec4b& p : cv::Mat_<cv::Vec4b>(image)) {
    const float alpha = static_cast<float>(p[3]) / 255;
    for (int c = 0; c < 3; ++c)
      (*to)[c] = static_cast<unsigned char>(static_cast<float>(p[c]) * alpha + background * (1 - alpha));
    ++to;
  }
  return opaque;
}

cv::Mat read_png(const File& file, const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) fail(path, png.message);
  const bool transparent = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = transparent ? PNG_FORMAT_BGRA : PNG_FORMAT_BGR;
  cv::Mat image(static_cast<int>(png.height), static_cast<int>(png.width), transparent ? CV_8UC4 : CV_8UC3);
  if (png_image_finish_read(&png, nullptr, image.data, static_cast<int>(image.step), nullptr) == 0)
    fail(path, png.message);
  return transparent ? without_transparency(image) : image;
}

cv::Mat read_jpeg(const File& file, const std::string& path) {
  const std::unique_ptr<void, int (*)(tjhandle)> jpeg(tjInitDecompress(), tjDestroy);
  int width = 0, height = 0, subsampling = 0, colours = 0;
  const auto size = static_cast<unsigned long>(file.size());
  if (tjDecompressHeader3(jpeg.get(), file.data(), size, &width, &height, &subsampling, &colours) != 0)
    fail(path, tjGetErrorStr2(jpeg.get()));
  cv::Mat image(height, width, CV_8UC3);
  if (tjDecompress2(jpeg.get(), file.data(), size, image.data, width, static_cast<int>(image.step), height,
                    TJPF_BGR, TJFLAG_ACCURATEDCT) != 0)
    fail(path, tjGetErrorStr2(jpeg.get()));
  return image;
}

}  // namespace

cv::Mat read_image(const std::string& path) {
  const File file = read_file(path);
  const auto begins = [&](std::initializer_list<unsigned char> bytes) {
    return file.size() > bytes.size() && std::equal(bytes.begin(), bytes.end(), file.begin());
  };
  if (begins({0x89, 'P', 'N', 'G'})) return read_png(file, path);
  if (begins({0xff, 0xd8})) return read_jpeg(file, path);
  fail(path, "neither a PNG nor a JPEG file");
}

void write_png(const cv::Mat& image, const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.cols);
  png.height = static_cast<png_uint_32>(image.rows);
  png.format = PNG_FORMAT_BGR;
  if (png_image_write_to_file(&png, path.c_str(), 0, image.data, static_cast<int>(image.step), nullptr) == 0)
    fail(path, png.message);
}

}  // namespace ocr
