// Variations of texts, the same ones every time.
#ifndef FALTUNG_TESTS_FUZZ_MUTATOR_HPP_
#define FALTUNG_TESTS_FUZZ_MUTATOR_HPP_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace faltung {

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  // One of the seeds with a few changes.
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

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20240229};
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_FUZZ_MUTATOR_HPP_
