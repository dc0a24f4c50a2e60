// What a person at a terminal sees of a command that takes its time, and Ctrl-C.
#ifndef FALTUNG_TOOLS_LIVE_HPP_
#define FALTUNG_TOOLS_LIVE_HPP_

#include <string>

namespace faltung::tools {

// One line on a terminal's standard error that is written over; nothing elsewhere.
class LiveLine {
 public:
  LiveLine();
  void show(const std::string& text);
  void clear() { show(""); }

 private:
  bool terminal_;
};

// From here on Ctrl-C is noted, for the command to end in good order; a second one ends it at once.
void catch_interrupts();
bool interrupted();

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_LIVE_HPP_
