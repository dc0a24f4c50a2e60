// Runs a fuzzer without libFuzzer, in every test run: over each file of its corpus, then over mutations of
// them, the same ones every time.
//
//   <name>_fuzz CORPUS_DIRECTORY_OR_FILE... [MUTATIONS] [--flips INPUTS DIRECTORY_OR_FILE...]
//
// --flips: of files that may be larger, and need not be there, as real models: so many inputs, each one of
// them with a few bits flipped. FALTUNG_TEST_FULL=1: fifty times as many.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "tests/fuzz/mutator.hpp"

namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All files of a directory, or one file; none where there is none.
void add(std::vector<std::string>& texts, const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() != ".pb") files.push_back(entry.path());  // results beside models
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) texts.push_back(read(file));
  } else if (std::filesystem::exists(path)) {
    texts.push_back(read(path));
  }
}

void run(const std::string& input) {
  // A copy of its own, so that a sanitizer sees a read past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// A few bits flipped of one of them at a time.
void run_flipped(const std::vector<std::string>& files, long inputs) {
  std::mt19937_64 random(20240229);
  for (long i = 0; i < inputs; ++i) {
    std::string input = files[static_cast<std::size_t>(i) % files.size()];
    for (std::size_t flips = 1 + random() % 8; flips > 0 && !input.empty(); --flips) {
      char& byte = input[random() % input.size()];
      byte = static_cast<char>(byte ^ (1 << random() % 8));
    }
    run(input);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds, flipped;
  long mutations = 5000, flips = -1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--flips") == 0 && i + 1 < argc) {
      flips = std::atol(argv[++i]) * (std::getenv("FALTUNG_TEST_FULL") != nullptr ? 50 : 1);
    } else if (flips >= 0) {
      add(flipped, argv[i]);
    } else if (std::filesystem::exists(argv[i])) {
      add(seeds, argv[i]);
    } else {
      mutations = std::atol(argv[i]);
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no seeds; give the corpus's directory\n", argv[0]);
    return 2;
  }
  std::sort(seeds.begin(), seeds.end());
  for (const std::string& seed : seeds) run(seed);
  faltung::require(faltung::accepted > 0, "the parser took none of the seeds");
  run("");
  faltung::Mutator mutator(seeds);
  for (long i = 0; i < mutations; ++i) run(mutator.next());
  std::printf("%zu seeds, %ld mutations, %ld times parsed\n", seeds.size(), mutations, faltung::accepted);
  if (flipped.empty()) return 0;
  const long before = faltung::accepted;
  for (const std::string& file : flipped) run(file);
  run_flipped(flipped, flips);
  std::printf("%zu files, %ld times a few bits of one flipped, %ld times parsed\n", flipped.size(), flips,
              faltung::accepted - before);
}
