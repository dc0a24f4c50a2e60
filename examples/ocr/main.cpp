// ocr --models FOLDER PICTURE...: prints the lines of text in pictures, with their boxes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "image.hpp"
#include "reader.hpp"

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of so many readings, each in the state that the one before left, the median.
void print_times(ocr::Reader& reader, const cv::Mat& picture, int runs) {
  std::vector<double> whole, detection, direction, recognition;
  for (int run = 0; run < runs; ++run) {
    reader.reset_times();
    const auto begin = std::chrono::steady_clock::now();
    reader.read(picture);
    whole.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    const ocr::Times times = reader.times();
    detection.push_back(times.detection);
    direction.push_back(times.direction);
    recognition.push_back(times.recognition);
  }
  std::printf("# %.1f ms: detection %.1f, direction %.1f, recognition %.1f\n", median(whole),
              median(detection), median(direction), median(recognition));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Lines of text in pictures: score, corners from the top left on, text.");
  std::string models, drawing;
  std::vector<std::string> pictures;
  int threads = 0, runs = 0;
  app.add_option("--models", models, "folder with the networks of the Python package rapidocr")->required();
  app.add_option("--draw", drawing, "a copy of the last picture with its boxes, as PNG");
  app.add_option("--threads", threads, "0: all processors");
  app.add_option("--time", runs,
                 "also the median time of so many readings of each picture, in ms: whole, networks")
      ->check(CLI::NonNegativeNumber);
  app.add_option("pictures", pictures, "PNG or JPEG files")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    faltung::Engine engine;
    ocr::Reader reader(engine, models, threads);
    for (const std::string& path : pictures) {
      const cv::Mat picture = ocr::read_image(path);
      const std::vector<ocr::Line> lines = reader.read(picture);
      std::printf("# %s: %zu lines\n", path.c_str(), lines.size());
      for (const ocr::Line& line : lines) {
        std::printf("%.3f\t", line.reading.score);
        for (const cv::Point2f& p : line.box) std::printf("%.0f,%.0f ", p.x, p.y);
        std::printf("\t%s\n", line.reading.text.c_str());
      }
      if (runs > 0) print_times(reader, picture, runs);
      if (!drawing.empty()) ocr::write_png(ocr::drawn(picture, lines), drawing);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ocr: %s\n", error.what());
    return 2;
  }
}
