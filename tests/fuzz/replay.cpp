// Runs a fuzzer without libFuzzer, in every test run: over each file of its corpus, then over mutations of
// them, the same ones every time.
//
//   <name>_fuzz CORPUS_DIRECTORY_OR_FILE... [MUTATIONS]
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "tests/fuzz/mutator.hpp"

namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const std::string& input) {
  // A copy of its own, so that a sanitizer sees a read past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds;
  long mutations = 5000;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path = argv[i];
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) seeds.push_back(read(entry.path()));
    } else if (std::filesystem::exists(path)) {
      seeds.push_back(read(path));
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
}
