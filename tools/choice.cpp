#include "tools/choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/finder/trust/verdicts.hpp"
#include "tools/units.hpp"

namespace faltung::tools {

std::vector<std::string> choice_columns() {
  return {"suite",
          "name",
          "problem",
          "device",
          "kernel",
          "verdict",
          "why",
          "predicted_ms",
          "ms",
          "ms_min",
          "ms_max",
          "ceiling_pct",
          "bound_by",
          "workspace_bytes",
          "error_growth",
          "rms_of_chain",
          "error_over_bound",
          "compile_ms",
          "source",
          "reproduce"};
}

void write_choice(Machine& machine, const Row& row, const Request& request, const Choice& choice) {
  const auto some = [](double value, double nothing = 0) { return value > nothing ? Cell(value) : Cell(); };
  for (const Report& t : choice.reports) {
    machine.row({row.suite,
                 row.name,
                 to_string(row.problem),
                 request.device,
                 t.kernel,
                 name(t.outcome),
                 t.why,
                 some(t.predicted_ms),
                 some(t.ms),
                 some(t.ms_min),
                 some(t.ms_max),
                 some(t.ceiling_pct),
                 t.bound_by,
                 static_cast<std::int64_t>(t.workspace_bytes),
                 some(t.error_growth),
                 some(t.rms_of_chain),
                 some(t.error_over_bound, -1),
                 t.compile_ms,
                 t.outcome == Outcome::chosen ? Cell(choice.source) : Cell(),
                 t.kernel.find('/') == std::string::npos  // all of an algorithm
                     ? Cell()
                     : Cell(reproduce(row.problem, t.kernel, request.device, request.threads, 1))});
  }
}

void print_choice(const Row& row, const Choice& choice) {
  fmt::print("{}{}{}\n", shown(row.name), row.name.empty() ? "" : "  ", to_string(row.problem));
  std::size_t width = 20;
  for (const Report& t : choice.reports) width = std::max(width, t.kernel.size());
  const Table table({{"  verdict", 14},
                     {"kernel", static_cast<int>(width)},
                     {"ms", 9, true},
                     {"model ms", 9, true},
                     {"%roof", 5, true},
                     {"bound by", 10},
                     {"workspace", 9, true},
                     {"error", 8, true},
                     {"rms", 5, true},
                     {"", 0}});
  table.header();
  for (const Report& t : choice.reports) {
    const bool ran = t.ms > 0 || t.predicted_ms > 0;
    const std::string why = t.outcome == Outcome::chosen
                                ? "from the " + choice.source + (t.why.empty() ? "" : "; " + t.why)
                                : t.why;
    if (!ran && t.bound_by.empty()) {  // it declined: there are no figures
      fmt::print("  {:<12}  {:<{}}  {}\n", name(t.outcome), t.kernel, width, why);
      continue;
    }
    table.row({std::string("  ") + name(t.outcome), t.kernel, t.ms > 0 ? show_ms(t.ms) : "-",
               t.predicted_ms > 0 ? show_ms(t.predicted_ms) : "-",
               t.ceiling_pct > 0 ? fmt::format("{:.0f}", t.ceiling_pct) : "-", t.bound_by,
               show_bytes(t.workspace_bytes), fmt::format("{:.3g}", t.error_growth),
               t.rms_of_chain > 0 ? fmt::format("{:.3g}", t.rms_of_chain) : "-", why});
  }
}

std::string workspace_menu(const Choice& choice) {
  std::vector<const Report*> measured;
  for (const Report& t : choice.reports) {
    if (t.ms > 0 && (t.outcome == Outcome::chosen || t.outcome == Outcome::slower)) measured.push_back(&t);
  }
  if (measured.empty()) return "";
  std::sort(measured.begin(), measured.end(), [](const Report* a, const Report* b) {
    return a->workspace_bytes != b->workspace_bytes ? a->workspace_bytes < b->workspace_bytes : a->ms < b->ms;
  });
  double fastest = measured.front()->ms;
  for (const Report* t : measured) fastest = std::min(fastest, t->ms);
  std::string menu;
  double best = 0;
  for (const Report* t : measured) {
    if (best > 0 && t->ms >= best) continue;
    best = t->ms;
    menu += fmt::format("{}{} {:.2f}x", menu.empty() ? "" : ", ", show_bytes(t->workspace_bytes),
                        t->ms / fastest);
  }
  return menu;
}

}  // namespace faltung::tools
