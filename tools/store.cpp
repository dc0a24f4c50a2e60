// faltung store: what the engine remembers; list it, share it, forget it.
#include "src/store/store.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "src/finder/lock.hpp"
#include "src/finder/records.hpp"
#include "src/finder/trust/verdicts.hpp"
#include "src/jit/session.hpp"
#include "src/problem/text.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

struct StoreOptions {
  Machine machine;
  std::string kind, file, kernel;
  bool lock = false, verdicts = false, nondeterministic = false;
};

// The record's kernel matches --kernel; records without a kernel only match where none is given.
bool is_meant(const Record& record, const std::string& pattern) {
  if (pattern.empty()) return true;
  const std::optional<Verdict> known = parse_verdict(record.payload);
  return known && (matches(pattern, known->report.kernel) ||
                   matches(pattern, known->report.kernel.substr(0, known->report.kernel.find('/'))));
}

// Of a misspelt kind there would be no records.
void check_kind(const std::string& kind) {
  const std::vector<std::string> kinds = {kTrials, kVerified,  kQuarantine, kCeilings,
                                          kRates,  jit::kCode, kLock};
  if (kind.empty() || std::ranges::find(kinds, kind) != kinds.end()) return;
  throw Error(Status::bad_problem, "no kind of record is called '" + kind + "'; " + suggestion(kind, kinds));
}

std::vector<Record> meant(const Store& store, const StoreOptions& options) {
  std::vector<Record> records = store.list(options.kind);
  std::erase_if(records, [&](const Record& record) { return !is_meant(record, options.kernel); });
  return records;
}

// What a person looks for in a verdict, of records that are one.
std::string summary(const Record& record) {
  const std::optional<Verdict> known = parse_verdict(record.payload);
  if (!known) return record.key;
  const Report& r = known->report;
  return fmt::format("{} on {} ({}): {} on {}{}{}", r.kernel, known->device, known->description,
                     name(r.outcome), known->problem, r.why.empty() ? "" : ": ", r.why);
}

int list(StoreOptions& options) {
  bool all = true;  // was readable
  const Store store("", [&](const std::string& line) {
    print_warning(line);
    all = false;
  });
  options.machine.open({"kind", "key", "modified", "payload"});
  const std::vector<Record> records = meant(store, options);
  const Table table({{"kind", 10}, {"modified (UTC)", 19}, {"bytes", 6, true}, {"key", 0}});
  const bool talks = options.machine.for_people();
  if (talks) {
    fmt::print("{}: {} records{}\n", shown(store.directory()), records.size(),
               store.readonly() ? ", read-only" : "");
    if (!records.empty()) table.header();
  }
  for (const Record& record : records) {
    const std::string when =
        fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(record.modified_ms / 1000)));
    options.machine.row({record.kind, record.key, when, record.payload});
    if (talks) table.row({record.kind, when, std::to_string(record.payload.size()), summary(record)});
  }
  options.machine.close();
  return all ? 0 : 1;
}

// Each of them alone says what is exported.
void check_export(const StoreOptions& options) {
  const bool narrowed = !options.kind.empty() || !options.kernel.empty();
  if (options.lock && (narrowed || options.verdicts))
    throw Error(Status::bad_problem, "--lock exports every choice; leave out KIND, --kernel and --verdicts");
  if (options.verdicts && !options.kind.empty())
    throw Error(Status::bad_problem,
                "--verdicts are the kinds verified and quarantine; leave it or KIND out");
  if (options.nondeterministic && !options.lock)
    throw Error(Status::bad_problem, "--nondeterministic says what --lock may lock; give both");
}

int export_to(const StoreOptions& options) {
  check_export(options);
  const Store store("", print_warning);
  std::vector<Record> records =
      options.lock
          ? lock_records(store, options.nondeterministic ? Repeatable::may_differ : Repeatable::same_bits)
          : meant(store, options);
  if (options.verdicts)
    std::erase_if(records, [](const Record& r) { return r.kind != kVerified && r.kind != kQuarantine; });
  const std::size_t count = records.size();
  const auto locked =
      std::count_if(records.begin(), records.end(), [](const Record& r) { return r.kind == kLock; });
  if (options.lock && locked == 0) {
    throw Error(
        Status::bad_problem,
        store.directory() + " has no measured problem to lock; run `faltung find` for those you need");
  }
  Store::export_records(options.file, std::move(records));
  fmt::print("{}: {} records exported{}\n", shown(options.file), count,
             options.lock ? fmt::format(", {} problems locked; use it with FALTUNG_STORE={}:readonly", locked,
                                        shown(options.file))
                          : "");
  return 0;
}

int import_from(const StoreOptions& options) {
  Store store("", print_warning);
  const Store::Imported done = store.import_from(options.file);
  fmt::print("{}: {} records added, {} replaced, {} unchanged, {} damaged and left out\n",
             shown(store.directory()), done.added, done.replaced, done.unchanged, done.damaged);
  return done.damaged > 0 ? 1 : 0;
}

int clear(const StoreOptions& options) {
  Store store("", print_warning);
  if (store.readonly())
    throw Error(Status::bad_file, "store: " + store.directory() + " is read-only, as asked");
  int records = 0;
  if (options.kernel.empty()) {
    records = store.clear(options.kind);
  } else {
    for (const Record& record : meant(store, options)) records += store.erase(record.kind, record.key);
  }
  fmt::print("{}: {} records removed\n", shown(store.directory()), records);
  return 0;
}

void declare_store(const Command& command) {
  const auto options = std::make_shared<StoreOptions>();
  const auto add = [&](const char* name, const char* help, const auto& run) {
    const Command sub = command.subcommand(name, help);
    sub.runs([options, run] {
      check_kind(options->kind);
      return run(*options);
    });
    return sub;
  };
  const auto add_kind = [&](const Command& sub) {
    sub.option("kind", options->kind, "Of this kind alone, e.g. trials or quarantine").type("KIND");
    sub.option("--kernel", options->kernel, "Verdicts on kernels that match").type("PATTERN");
  };
  const Command list_command = add("list", "Every record", list);
  add_kind(list_command);
  options->machine.add_options(list_command);
  const Command export_command = add("export", "Records into one JSON file", export_to);
  export_command.option("file", options->file).required().type("FILE");
  add_kind(export_command);
  export_command.flag("--lock", options->lock,
                      "The chosen kernel of every measured problem, for runs that must not choose another");
  export_command.flag("--nondeterministic", options->nondeterministic,
                      "Kernels whose bits vary from run to run may be locked");
  export_command.flag("--verdicts", options->verdicts,
                      "On kernels alone, good and bad: to spare others with the same device the trials");
  const Command import_command = add("import", "Merge such a file; newer records win", import_from);
  import_command.option("file", options->file).required().type("FILE");
  add_kind(add("clear", "Forget", clear));
}

const Subcommand kStore("store", "What the engine remembers: list, export, import, clear", declare_store);

}  // namespace
}  // namespace faltung::tools
