// faltung completion: what a shell needs to complete a command line, made of what --help says.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "tools/command.hpp"

namespace faltung::tools {
namespace {

// A word that may stand where a command line has come so far.
struct Word {
  std::string text, help;
};

// Where a command line may have come: " store list" after that; "" at first.
struct Place {
  std::string at;
  std::vector<Word> words;
};

void add_places(const CommandText& command, std::vector<Place>& places) {
  Place place{command.name.substr(std::string_view("faltung").size()), {}};
  for (const CommandText& sub : command.commands)
    place.words.push_back({sub.name.substr(sub.name.rfind(' ') + 1), sub.help});
  for (const CommandText::Option& option : command.options) {
    if (!option.is_positional) place.words.push_back({option.name, option.help});
  }
  places.push_back(std::move(place));
  for (const CommandText& sub : command.commands) add_places(sub, places);
}

std::vector<Place> all_places() {
  std::vector<Place> places;
  add_places(described(), places);
  return places;
}

// text with each of the characters as its replacement.
std::string replaced(const std::string& text, char which, const std::string& replacement) {
  std::string out;
  for (const char c : text) out += c == which ? replacement : std::string(1, c);
  return out;
}
std::string shell_quoted(const std::string& text) { return "'" + replaced(text, '\'', "'\\''") + "'"; }

// ' bench'|' store'|' store list'
std::string patterns(const std::vector<Place>& places, const char* between) {
  std::string out;
  for (const Place& place : places) {
    if (!place.at.empty()) out += (out.empty() ? "" : between) + shell_quoted(place.at);
  }
  return out;
}

void print_bash(const std::vector<Place>& places) {
  fmt::print(R"(# Completion of faltung for bash; `faltung completion bash` made it.
_faltung() {{
  local at= known= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$at ${{COMP_WORDS[i]}}" in
      {}) at+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$at" in
)",
             patterns(places, "|"));
  for (const Place& place : places) {
    std::string words;
    for (const Word& word : place.words) words += (words.empty() ? "" : " ") + word.text;
    fmt::print("    {}) known={} ;;\n", shell_quoted(place.at), shell_quoted(words));
  }
  fmt::print(R"(  esac
  COMPREPLY=($(compgen -W "$known" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _faltung faltung
)");
}

void print_zsh(const std::vector<Place>& places) {
  fmt::print(R"(#compdef faltung
# Completion of faltung for zsh; `faltung completion zsh` made it.
_faltung() {{
  local at= word
  local -a known
  for word in ${{words[2,CURRENT-1]}}; do
    case "$at $word" in
      ({}) at+=" $word" ;;
    esac
  done
  case "$at" in
)",
             patterns(places, "|"));
  for (const Place& place : places) {
    fmt::print("    ({}) known=(\n", shell_quoted(place.at));
    for (const Word& word : place.words)
      fmt::print("      {}\n", shell_quoted(replaced(word.text, ':', "\\:") + ":" + word.help));
    fmt::print("    ) ;;\n");
  }
  fmt::print(R"(  esac
  _describe faltung known || _files
}}
_faltung "$@"
)");
}

void print_fish(const std::vector<Place>& places) {
  const auto quote = [](const std::string& text) {  // fish's own way
    return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
  };
  fmt::print(R"(# Completion of faltung for fish; `faltung completion fish` made it.
function __faltung_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case {}
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
)",
             patterns(places, " "));
  for (const Place& place : places) {
    const std::string here = quote("__faltung_at " + quote(place.at));
    for (const Word& word : place.words) {
      if (word.text.starts_with("--")) {
        fmt::print("complete -c faltung -n {} -l {} -d {}\n", here, word.text.substr(2), quote(word.help));
      } else {
        fmt::print("complete -c faltung -n {} -f -a {} -d {}\n", here, word.text, quote(word.help));
      }
    }
  }
}

int run(const std::string& shell) {
  if (shell == "bash") {
    print_bash(all_places());
  } else if (shell == "zsh") {
    print_zsh(all_places());
  } else if (shell == "fish") {
    print_fish(all_places());
  } else {
    throw Error(Status::bad_problem, "no completion for '" + shell + "'; there is bash, zsh and fish");
  }
  return 0;
}

void declare_completion(const Command& command) {
  const auto shell = std::make_shared<std::string>();
  command.option("shell", *shell, "bash, zsh or fish").type("SHELL").required();
  command.runs([shell] { return run(*shell); });
}

const Subcommand kCompletion("completion", "Print what a shell needs to complete command lines",
                             declare_completion);

}  // namespace
}  // namespace faltung::tools
