#include "tools/live.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace faltung::tools {
namespace {

volatile std::sig_atomic_t interrupts = 0;

void on_interrupt(int) {
  if (interrupts != 0) _exit(130);
  interrupts = 1;
}

}  // namespace

LiveLine::LiveLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void LiveLine::show(const std::string& text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}", text.substr(0, 79));  // a longer one would wrap and stay
  std::fflush(stderr);
}

void catch_interrupts() { std::signal(SIGINT, on_interrupt); }
bool interrupted() { return interrupts != 0; }

}  // namespace faltung::tools
