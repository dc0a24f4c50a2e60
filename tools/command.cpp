#include "tools/command.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

std::vector<const Subcommand*>& linked() {
  static std::vector<const Subcommand*> all;
  return all;
}

// What the command that was given does.
std::function<int()>& chosen() {
  static std::function<int()> run;
  return run;
}

// What run_program runs.
const CLI::App*& program() {
  static const CLI::App* app = nullptr;
  return app;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "faltung: %s\n", one_line(message).c_str());
  return 2;
}

std::vector<std::string> names_of_subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// "faltung" or "faltung store"
std::string full_name(const CLI::App& app) {
  return app.get_parent() != nullptr ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// What an unknown option or subcommand may have been meant to be.
std::string unknown(const CLI::App& app, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    return "no option '" + flag + "'; the nearest is " + nearest(flag, known) + ", see " + full_name(app) +
           " --help";
  }
  const std::vector<std::string> known = names_of_subcommands(app);
  if (known.empty()) return "no argument '" + word + "' is expected here, see " + full_name(app) + " --help";
  return "no command '" + word + "'; the nearest is " + nearest(word, known) + ", there are " +
         join_or(known) + "; " + full_name(app) + " --help says what each does";
}

// The first that must be given and is not, "FILE" or "--with COMPILER"; empty where all are.
std::string missing(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const std::string type = option->get_type_name();
    return option->get_positional() ? type : option->get_name() + " " + type;
  }
  return "";
}

// One line for what CLI11 rejected: it may have happened in the command or in a subcommand of it.
std::string rejected(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* deepest = &app;
  while (true) {
    const std::vector<std::string> rest = deepest->remaining();
    if (!rest.empty()) return unknown(*deepest, rest.front());
    const std::vector<CLI::App*> parsed = deepest->get_subcommands();
    if (parsed.empty()) break;
    deepest = parsed.front();
  }
  const std::vector<std::string> known = names_of_subcommands(*deepest);
  if (!known.empty())
    return "a command is missing; give " + full_name(*deepest) + " " + join_or(known) + "; " +
           full_name(*deepest) + " --help says what each does";
  if (const std::string what = missing(*deepest); !what.empty())
    return what + " is missing, see " + full_name(*deepest) + " --help";
  return error.what();
}

// A MIOpenDriver line that nobody quoted: what follows the program's name is one argument, with it. Options
// of ours stand before it.
std::vector<std::string> with_driver_line(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  const auto driver = std::find_if(words.begin(), words.end(),
                                   [](const std::string& word) { return word.ends_with("MIOpenDriver"); });
  if (driver == words.end()) return words;
  for (auto word = driver + 1; word != words.end(); ++word) *driver += " " + *word;
  words.erase(driver + 1, words.end());
  return words;
}

// The check of an option that is a number: CLI11 itself takes -1 for the largest, and no digits for 0.
template <class Number>
void check_number(CLI::Option* option, Number least, Number most) {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  const auto check = [=](const std::string& text) -> std::string {
    Number value = 0;
    const char* const behind = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), behind, value);
    if (error == std::errc() && end == behind && least <= value && value <= most) return "";
    return "'" + text + "' is no whole number from " + range;
  };
  option->check(check);
}

}  // namespace

const Option& Option::type(const char* name) const { return option_->type_name(name), *this; }
const Option& Option::required() const { return option_->required(), *this; }
const Option& Option::shows_default() const { return option_->capture_default_str(), *this; }
const Option& Option::within(int least, int most) const { return check_number(option_, least, most), *this; }
const Option& Option::excludes(const Option& other) const { return option_->excludes(other.option_), *this; }

Option Command::option(const std::string& name, std::string& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, int& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::uint64_t& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(name, value, help);
  check_number<std::uint64_t>(option, 0, std::numeric_limits<std::uint64_t>::max());
  return Option(option);
}
Option Command::option(const std::string& name, std::vector<std::string>& value,
                       const std::string& help) const {
  CLI::Option* const option = app_->add_option(name, value, help);
  if (name.starts_with("-")) option->allow_extra_args(false);  // one value each time that it is given
  return Option(option);
}
Option Command::flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Command Command::subcommand(const std::string& name, const std::string& help) const {
  app_->require_subcommand(1);
  return Command(app_->add_subcommand(name, help));
}

void Command::runs(std::function<int()> run) const {
  app_->final_callback([run = std::move(run)] { chosen() = run; });
}

void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::version(const std::string& text) const { app_->set_version_flag("--version", text); }

Subcommand::Subcommand(const char* its_name, const char* its_help, void (*its_declare)(const Command&))
    : name(its_name), help(its_help), declare(its_declare) {
  linked().push_back(this);
}

namespace {

CommandText text_of(const CLI::App& app) {
  CommandText text{full_name(app), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    const bool is_positional = option->get_positional();
    std::string value = option->get_items_expected_max() == 0 ? "" : option->get_type_name();
    value = value.substr(0, value.find(':'));  // what it must be follows
    std::string help = option->get_description();
    if (!option->get_default_str().empty()) help += " [" + option->get_default_str() + "]";
    text.options.push_back(
        {is_positional ? value : "--" + option->get_lnames().front(), value, help, is_positional});
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    text.commands.push_back(text_of(*command));
  return text;
}

}  // namespace

CommandText described() { return text_of(*program()); }

std::vector<const Subcommand*> subcommands() {
  std::vector<const Subcommand*> all = linked();
  std::sort(all.begin(), all.end(),
            [](const Subcommand* a, const Subcommand* b) { return std::strcmp(a->name, b->name) < 0; });
  return all;
}

namespace {

// A standard stream that the caller closed must not become the first file that is opened: what is written to
// it fails, but for messages, which are lost.
void open_standard_streams() {
  const std::pair<int, int> streams[] = {
      {STDIN_FILENO, O_RDONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_WRONLY}};
  for (const auto& [descriptor, mode] : streams) {
    if (::fcntl(descriptor, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", mode));  // the lowest is taken
  }
}

// What the command returns; a table that did not arrive is no success.
int ended(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return fail(std::string("standard output cannot be written: ") + std::strerror(errno));
}

}  // namespace

int run_program(const char* name, const char* description, const std::function<void(const Command&)>& declare,
                int argc, char** argv) {
  CLI::App app(description, name);
  program() = &app;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error that is told
  try {
    declare(Command(&app));
    std::vector<std::string> words = with_driver_line(argc, argv);
    words.erase(words.begin());
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
    return ended(chosen() ? chosen()() : 0);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return ended(app.exit(error));  // --help, --version
    return fail(rejected(app, error));
  } catch (const Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a smaller problem or batch, or fewer threads");
  } catch (const std::system_error& error) {  // fmt's, of a stream
    return fail(error.what());
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what());
  }
}

}  // namespace faltung::tools
