// Runs a fuzzer without libFuzzer, in every test run: over each file of its corpus, then over mutations of
// them, the same ones every time.
//
//   <name>_fuzz CORPUS_DIRECTORY_OR_FILE... [MUTATIONS]
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace {

using Inputs = std::vector<std::string>;

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const std::string& input) {
  // A copy of its own, so that a sanitizer sees a read past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Mutator {
 public:
  explicit Mutator(const Inputs& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string s = seed();
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(s);
    return s;
  }

 private:
  std::size_t below(std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random_() % limit);
  }
  const std::string& seed() { return seeds_[below(seeds_.size())]; }

  void change(std::string& s) {
    static const char* const kNumbers[] = {"0",
                                           "-1",
                                           "1",
                                           "2",
                                           "255",
                                           "65536",
                                           "2147483648",
                                           "1099511627776",
                                           "1099511627777",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "-9223372036854775808",
                                           "1e999",
                                           "0.5",
                                           "nan",
                                           ""};
    const std::size_t at = below(s.size() + 1), length = below(std::min<std::size_t>(s.size() - at, 12) + 1);
    switch (below(6)) {
      case 0:  // a byte becomes another
        if (at < s.size()) s[at] = static_cast<char>(random_());
        break;
      case 1:  // a bit
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 2:
        s.erase(at, length);
        break;
      case 3:  // something is there twice
        s.insert(at, s.substr(below(s.size()), length));
        break;
      case 4: {  // a number becomes an extreme one
        const std::size_t digit = s.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = std::min(s.find_first_not_of("0123456789", digit), s.size());
        s.replace(digit, end - digit, kNumbers[below(std::size(kNumbers))]);
        break;
      }
      default: {  // a part of another seed
        const std::string& other = seed();
        const std::size_t from = below(other.size());
        s.replace(at, length, other.substr(from, 1 + below(16)));
      }
    }
  }

  const Inputs& seeds_;
  std::mt19937_64 random_{20240229};
};

}  // namespace

int main(int argc, char** argv) {
  Inputs seeds;
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
  Mutator mutator(seeds);
  for (long i = 0; i < mutations; ++i) run(mutator.next());
  std::printf("%zu seeds, %ld mutations, %ld times parsed\n", seeds.size(), mutations, faltung::accepted);
}
