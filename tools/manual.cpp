// faltung manual: the manual page, in roff, made of what --help says.
#include <fmt/format.h>

#include <initializer_list>
#include <string>

#include "faltung/faltung.hpp"
#include "tools/command.hpp"

namespace faltung::tools {
namespace {

// roff takes a dash for a hyphen, and a line's first dot or quote for a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string synopsis(const CommandText& command) {
  std::string line = "\\fB" + roff(command.name) + "\\fR [\\fIOPTION\\fR]...";
  for (const CommandText::Option& option : command.options) {
    if (option.is_positional) line += " \\fI" + roff(option.value) + "\\fR";
  }
  return line;
}

void print_command(const CommandText& command) {
  for (const CommandText& sub : command.commands) print_command(sub);
  if (!command.commands.empty()) return;
  fmt::print(".SS {}\n{}\n.PP\n{}.\n", roff(command.name), synopsis(command), roff(command.help));
  for (const CommandText::Option& option : command.options) {
    if (option.name == "--help") continue;
    const std::string value = option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR";
    fmt::print(".TP\n{}\n{}\n",
               option.is_positional ? "\\fI" + roff(option.name) + "\\fR"
                                    : "\\fB" + roff(option.name) + "\\fR" + value,
               option.help.empty() ? "Required." : roff(option.help) + ".");
  }
}

struct ManualEntry {
  const char *name, *text;
};

void print_section(const char* title, std::initializer_list<ManualEntry> entries) {
  fmt::print(".SH {}\n", title);
  for (const ManualEntry& entry : entries)
    fmt::print(".TP\n\\fB{}\\fR\n{}\n", roff(entry.name), roff(entry.text));
}

int print_manual() {
  const CommandText faltung = described();
  fmt::print(".TH FALTUNG 1 \"\" \"faltung {}\" \"User Commands\"\n", version());
  fmt::print(".SH NAME\nfaltung \\- convolutions, right and close to the device's limit\n");
  fmt::print(".SH SYNOPSIS\n\\fBfaltung\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIPROBLEM\\fR]...\n");
  fmt::print(
      ".SH DESCRIPTION\n{}\n.PP\n{}\n",
      roff("Computes, times, chooses, explains and verifies convolutions with what surrounds them in a "
           "network, on CPUs and on GPUs. A problem is one line of text, such as"),
      roff("fwd:n4c64h32w32k64r3s3:st1:pad1:dil1:g1:f32:nchw:bias:relu."));
  fmt::print(".SH COMMANDS\n");
  for (const CommandText& command : faltung.commands) print_command(command);
  print_section("EXIT STATUS",
                {{"0", "Well."},
                 {"1", "A kernel gave a wrong result, or an imported file had damaged records."},
                 {"2", "Bad input; one line on standard error says what was wrong and what would be right."},
                 {"130", "Interrupted."}});
  print_section("ENVIRONMENT",
                {{"FALTUNG_STORE",
                  "Where timings, verdicts and compiled kernels are kept; NAME:readonly to "
                  "only read them, an exported lock among them."},
                 {"FALTUNG_ONLY, FALTUNG_SKIP", "Patterns of kernels to use, or never to use."},
                 {"FALTUNG_TRUST", "tested, all or none: which kernels are used without a trial."},
                 {"FALTUNG_DEADLINE", "The least time for a run on trial, in seconds."},
                 {"FALTUNG_WORKER", "The command that tries kernels for a program."},
                 {"FALTUNG_LOG", "find: says which kernel each plan has, and why."},
                 {"FALTUNG_NVRTC", "NVIDIA's run-time compiler."}});
  print_section("FILES", {{"~/.cache/faltung", "The store, unless XDG_CACHE_HOME or FALTUNG_STORE is set."}});
  fmt::print(".SH SEE ALSO\n{}\n", roff("The pages in share/doc/faltung: command.md has every column, "
                                        "problem.md the grammar of problems, faq.md what helps."));
  return 0;
}

void declare_manual(const Command& command) { command.runs(print_manual); }

const Subcommand kManual("manual", "Print the manual page, for man", declare_manual);

}  // namespace
}  // namespace faltung::tools
