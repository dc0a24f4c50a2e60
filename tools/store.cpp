// faltung store: what the engine remembers; list it, share it, forget it.
#include "src/store/store.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

struct Options {
  Machine machine;
  std::string kind, file;
};

int list(Options& options) {
  const Store store;
  options.machine.open({"kind", "key", "modified", "payload"});
  const std::vector<Record> records = store.list(options.kind);
  const Table table({{"kind", 10}, {"modified (UTC)", 19}, {"bytes", 6, true}, {"key", 0}});
  const bool talks = options.machine.for_people();
  if (talks) {
    fmt::print("{}: {} records{}\n", store.directory(), records.size(),
               store.readonly() ? ", read-only" : "");
    if (!records.empty()) table.header();
  }
  for (const Record& record : records) {
    const std::string when =
        fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(record.modified_ms / 1000)));
    options.machine.row({record.kind, record.key, when, record.payload});
    if (talks) table.row({record.kind, when, std::to_string(record.payload.size()), record.key});
  }
  options.machine.close();
  return 0;
}

int export_to(const Options& options) {
  const Store store;
  fmt::print("{}: {} records exported\n", options.file, store.export_to(options.file));
  return 0;
}

int import_from(const Options& options) {
  Store store;
  const Store::Imported done = store.import_from(options.file);
  fmt::print("{}: {} records added, {} replaced, {} unchanged, {} damaged and left out\n", store.directory(),
             done.added, done.replaced, done.unchanged, done.damaged);
  return done.damaged > 0 ? 1 : 0;
}

int clear(const Options& options) {
  Store store;
  const int records = store.clear(options.kind);
  fmt::print("{}: {} records removed\n", store.directory(), records);
  return 0;
}

}  // namespace

Command add_store(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("store", "What the engine remembers: list, export, import, clear");
  command->require_subcommand(1);
  const auto add_kind = [&](CLI::App* sub) {
    sub->add_option("kind", options->kind, "Of this kind alone, e.g. trials")->type_name("KIND");
  };
  CLI::App* list_command = command->add_subcommand("list", "Every record");
  add_kind(list_command);
  options->machine.add_options(*list_command);
  CLI::App* export_command = command->add_subcommand("export", "Every record into one JSON file");
  export_command->add_option("file", options->file)->required()->type_name("FILE");
  CLI::App* import_command = command->add_subcommand("import", "Merge such a file; newer records win");
  import_command->add_option("file", options->file)->required()->type_name("FILE");
  CLI::App* clear_command = command->add_subcommand("clear", "Forget");
  add_kind(clear_command);
  return {command, [=] {
            if (list_command->parsed()) return list(*options);
            if (export_command->parsed()) return export_to(*options);
            if (import_command->parsed()) return import_from(*options);
            return clear(*options);
          }};
}

}  // namespace faltung::tools
