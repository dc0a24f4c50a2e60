// How durations, sizes and rates are typed and shown.
#ifndef FALTUNG_TOOLS_UNITS_HPP_
#define FALTUNG_TOOLS_UNITS_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace faltung::tools {

// "250ms", "2s", "1.5m" (minutes), "40us"; a bare number is seconds. Throws Error(bad_problem) naming the
// option.
double parse_duration_ms(std::string_view option, std::string_view text);
// "4096", "64K", "16M", "2G", "64MiB"; powers of 1024. "unlimited" is the largest size.
std::size_t parse_bytes(std::string_view option, std::string_view text);
// A whole number of at least `least`. Throws Error(bad_problem) naming the option.
std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least);
// Of --threads: such a number, as far as a request takes it.
int parse_threads(const std::string& text);
// A number that is finite and not negative.
double parse_number(std::string_view option, std::string_view text);

std::string show_bytes(std::size_t bytes);  // 0 B, 1.5 KiB, 64 MiB
std::string show_ms(double ms);             // four significant digits

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_UNITS_HPP_
