#include "tools/units.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "faltung/faltung.hpp"
#include "src/finder/settings.hpp"
#include "src/problem/text.hpp"

namespace faltung::tools {
namespace {

struct Unit {
  const char* name;
  double factor;
};

// A number that is finite and not negative, then one of the units.
template <std::size_t N>
double parse(std::string_view option, std::string_view whole, const Unit (&units)[N], const char* examples) {
  const std::string_view text = trim(whole);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string suffix(end, text.data() + text.size());
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (error == std::errc() && std::isfinite(value) && value >= 0) {
    for (const Unit& unit : units) {
      if (suffix == unit.name) return value * unit.factor;
    }
  }
  throw Error(Status::bad_problem,
              fmt::format("{}: '{}' is not understood; give {}", option, whole, examples));
}

}  // namespace

double parse_duration_ms(std::string_view option, std::string_view text) {
  constexpr Unit kUnits[] = {{"", 1e3}, {"s", 1e3}, {"ms", 1}, {"us", 1e-3}, {"m", 6e4}, {"min", 6e4}};
  const double ms = parse(option, text, kUnits, "a duration such as 500ms, 2s or 1m");
  if (ms > 1e10)
    throw Error(Status::bad_problem, fmt::format("{}: '{}' is longer than 100 days", option, text));
  return ms;
}

std::size_t parse_bytes(std::string_view option, std::string_view text) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  if (text == "unlimited") return kUnlimited;
  constexpr Unit kUnits[] = {{"", 1},         {"b", 1},       {"k", 0x1p10},   {"kb", 0x1p10},
                             {"kib", 0x1p10}, {"m", 0x1p20},  {"mb", 0x1p20},  {"mib", 0x1p20},
                             {"g", 0x1p30},   {"gb", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40},
                             {"tib", 0x1p40}};
  const double bytes = parse(option, text, kUnits, "a size such as 0, 512K, 64M or 2G");
  return bytes >= 0x1p63 ? kUnlimited : static_cast<std::size_t>(bytes);
}

double parse_number(std::string_view option, std::string_view text) {
  constexpr Unit kUnits[] = {{"", 1}};
  return parse(option, text, kUnits, "a number such as 1e-4");
}

std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw Error(Status::bad_problem,
                fmt::format("{}: '{}' is no whole number of at least {}", option, text, least));
  }
  return value;
}

int parse_threads(const std::string& text) {
  const std::int64_t threads = parse_count("--threads", text, 1);
  if (threads > kMostThreads)
    throw Error(Status::bad_problem, fmt::format("--threads: {} is more than {}", threads, kMostThreads));
  return static_cast<int>(threads);
}

std::string show_bytes(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return value < 10 && unit > 0 && value != std::floor(value) ? fmt::format("{:.1f} {}", value, kUnits[unit])
                                                              : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string show_ms(double ms) {
  const int digits = ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 10 ? 2 : ms >= 1 ? 3 : 4;
  return fmt::format("{:.{}f}", ms, digits);
}

}  // namespace faltung::tools
