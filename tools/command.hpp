// A command of the command line: its options, what --help says of them, and what it does. CLI11, which takes
// five seconds to compile wherever it is included, is known to command.cpp alone.
#ifndef FALTUNG_TOOLS_COMMAND_HPP_
#define FALTUNG_TOOLS_COMMAND_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace faltung::tools {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  const Option& type(const char* name) const;  // what --help calls its value
  const Option& required() const;
  const Option& shows_default() const;
  const Option& within(int least, int most) const;
  const Option& excludes(const Option& other) const;

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  // Sets `value`, which must live until the command has run. A name without dashes is that of a positional
  // argument; an option with a list may be repeated.
  Option option(const std::string& name, std::string& value, const std::string& help = "") const;
  Option option(const std::string& name, int& value, const std::string& help) const;
  Option option(const std::string& name, std::uint64_t& value, const std::string& help) const;
  Option option(const std::string& name, std::vector<std::string>& value, const std::string& help) const;
  Option flag(const std::string& name, bool& value, const std::string& help) const;
  // One of several, of which one must be given.
  Command subcommand(const std::string& name, const std::string& help) const;
  // What it does; the value is the exit code: 0, or 1 if something is wrong.
  void runs(std::function<int()> run) const;
  void footer(const std::string& text) const;
  void version(const std::string& text) const;

 private:
  CLI::App* app_;
};

// A subcommand of faltung. One such object in a file of its own is all that a new one needs.
struct Subcommand {
  Subcommand(const char* name, const char* help, void (*declare)(const Command&));
  const char* name;
  const char* help;
  void (*declare)(const Command&);
};

// All that are linked, in the order of their names.
std::vector<const Subcommand*> subcommands();

// A command in words: for its manual and for shells.
struct CommandText {
  struct Option {
    std::string name;   // --csv; of a positional argument the name of its value
    std::string value;  // what --help calls it; empty for a flag
    std::string help;
    bool is_positional;
  };
  std::string name, help;  // faltung store list
  std::vector<Option> options;
  std::vector<CommandText> commands;
};

// The program that run_program runs.
CommandText described();

// Parses the arguments and runs what they ask for. The exit code: 0 well, 1 something measured or checked is
// wrong, 2 bad input, which standard error then names in a line.
int run_program(const char* name, const char* description, const std::function<void(const Command&)>& declare,
                int argc, char** argv);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_COMMAND_HPP_
