#include "src/algorithms/config_name.hpp"

#include <atomic>

namespace faltung {
namespace {

std::atomic<std::size_t> texts_read{0};

}  // namespace

std::size_t names_read() { return texts_read; }

NameReader::NameReader(std::string_view text) : parts_(split(text, '_')) { ++texts_read; }

bool NameReader::take(std::string_view key, std::size_t count, std::vector<int>& numbers) {
  std::string_view part = next();
  if (!part.starts_with(key)) return false;
  part.remove_prefix(key.size());
  std::vector<int> read;
  for (const std::string& digits : split(part, 'x')) {
    if (digits.empty() || digits.size() > 4 || digits.front() == '0') return false;
    if (digits.find_first_not_of("0123456789") != std::string::npos) return false;
    read.push_back(std::stoi(digits));
  }
  if (read.size() != count) return false;
  numbers = read;
  ++at_;
  return true;
}

}  // namespace faltung
