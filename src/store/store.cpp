#include "src/store/store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <tuple>
#include <utility>

#include "src/problem/environment.hpp"
#include "src/store/files.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReadonly = ":readonly", kLockEnding = ".lock";

// Empty if there is nowhere to store.
std::string default_directory() {
  if (const std::string given = environment("FALTUNG_STORE"); !given.empty()) return given;
  // The XDG specification wants a relative path ignored.
  if (const std::string cache = environment("XDG_CACHE_HOME"); cache.starts_with("/"))
    return cache + "/faltung";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/faltung";
  return "";
}

bool by_kind_and_key(const Record& a, const Record& b) {
  return std::tie(a.kind, a.key) < std::tie(b.kind, b.key);
}

}  // namespace

Store::Store(const std::string& directory, Warn warn)
    : directory_(directory.empty() ? default_directory() : directory), warn_(std::move(warn)) {
  if (directory_.ends_with(kReadonly)) {
    readonly_ = true;
    directory_.resize(directory_.size() - kReadonly.size());
  }
  if (!warn_) {
    warn_ = [](const std::string& message) {
      std::fprintf(stderr, "faltung: warning: %s\n", message.c_str());
    };
  }
  const bool must_be_there = readonly_ || directory_.ends_with(kLockEnding);
  std::error_code ignored;
  if (fs::is_regular_file(directory_, ignored)) {
    open_file(must_be_there);
  } else if (must_be_there && !fs::is_directory(directory_, ignored)) {
    throw Error(Status::bad_file,
                directory_ +
                    (fs::exists(directory_, ignored) ? ": is neither a directory nor a file"
                                                     : ": there is no such store") +
                    "; it must be a store's directory or a file that `faltung store export` "
                    "wrote");
  }
}

void Store::open_file(bool must_be_one) {
  try {
    if (Pack::is(directory_)) {
      pack_ = std::make_shared<const Pack>(directory_);
      readonly_ = true;
      return;
    }
    auto records = std::make_shared<std::vector<Record>>(
        decode_export(read_file(directory_).value_or(FileContent{}).bytes, [&](const std::string& what) {
          throw Error(Status::bad_file, what);  // a store in one file is all there or not to be trusted
        }));
    std::sort(records->begin(), records->end(), by_kind_and_key);
    file_ = std::move(records);
    readonly_ = true;
  } catch (const Error& error) {
    if (!must_be_one) return;         // no directory can be made there: said when it is tried
    if (Pack::is(directory_)) throw;  // it says of which file
    throw Error(Status::bad_file, directory_ + ": is no directory and no export of a store: " + error.what());
  }
}

std::string Store::path(const std::string& kind, const std::string& key) const {
  return directory_ + "/" + kind + "/" + record_file(kind, key);
}

void Store::warn_once(const std::string& about, const std::string& message) const {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(about).second) return;
  }
  warn_("store: " + message);
}

void Store::ship(std::shared_ptr<const Store> shipped, std::vector<std::string> kinds) {
  shipped_ = std::move(shipped);
  shipped_kinds_ = std::move(kinds);
}

std::optional<std::string> Store::get(const std::string& kind, const std::string& key) const {
  std::optional<std::string> found = own(kind, key);
  const bool ships = shipped_ != nullptr &&
                     std::find(shipped_kinds_.begin(), shipped_kinds_.end(), kind) != shipped_kinds_.end();
  return found || !ships ? found : shipped_->get(kind, key);
}

std::optional<std::string> Store::own(const std::string& kind, const std::string& key) const {
  if (pack_) {
    try {
      std::optional<Record> record = pack_->get(kind, key);
      return record ? std::optional(std::move(record->payload)) : std::nullopt;
    } catch (const Error& error) {
      warn_once("pack", std::string(error.what()) + "; taken as missing");
      return std::nullopt;
    }
  }
  if (file_) {
    const auto found = std::lower_bound(
        file_->begin(), file_->end(), std::tie(kind, key),
        [](const Record& record, const auto& wanted) { return std::tie(record.kind, record.key) < wanted; });
    const bool here = found != file_->end() && found->kind == kind && found->key == key;
    return here ? std::optional(found->payload) : std::nullopt;
  }
  const std::string file = path(kind, key);
  try {
    const std::optional<FileContent> content = read_file(file);
    if (!content) return std::nullopt;
    Record record = decode_record(content->bytes);
    if (record.kind != kind || record.key != key)
      throw Error(Status::bad_file, "it is the record of another key");
    return std::move(record.payload);
  } catch (const Error& error) {
    const std::string what = error.what();
    warn_once(file, (what.starts_with(file) ? "" : file + ": ") + what + "; taken as missing");
    return std::nullopt;
  }
}

std::string Store::write(const Record& record, Lasting lasting) {
  if (directory_.empty()) return "there is no directory for it; set FALTUNG_STORE";
  if (readonly_) return directory_ + " is read-only, as asked";
  const std::string bytes = encode_record(record);
  std::error_code error;
  fs::create_directories(directory_ + "/" + record.kind, error);
  if (error) return directory_ + " cannot be made: " + error.message();
  try {
    replace_file(path(record.kind, record.key), bytes, record.modified_ms, lasting);
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

bool Store::put(const std::string& kind, const std::string& key, const std::string& payload) {
  bool sweep_now;
  {
    const std::lock_guard lock(mutex_);
    sweep_now = !std::exchange(swept_, true);
  }
  if (sweep_now) sweep();
  const std::string why = write({kind, key, payload, 0});
  if (!why.empty() && !readonly_) warn_once("write", why + "; nothing is stored");
  return why.empty();
}

bool Store::erase(const std::string& kind, const std::string& key) {
  return !readonly_ && ::unlink(path(kind, key).c_str()) == 0;
}

std::vector<std::string> Store::kinds(const std::string& kind) const {
  if (!kind.empty() && !is_kind(kind)) {
    throw Error(Status::bad_problem, "store: '" + kind + "' is no kind of record; it is a word of a-z 0-9 _");
  }
  if (!kind.empty()) return {kind};
  std::vector<std::string> out;
  for (const std::string& name : readable_names(directory_)) {
    if (is_kind(name)) out.push_back(name);
  }
  return out;
}

std::vector<std::string> Store::readable_names(const std::string& directory) const {
  try {
    return names_in(directory);
  } catch (const Error& error) {
    warn_once(directory, std::string(error.what()) + "; left out");
    return {};
  }
}

bool Store::holds(const std::string& kind) const {
  if (pack_) return pack_->holds(kind);
  if (file_) {
    return std::any_of(file_->begin(), file_->end(), [&](const Record& r) { return r.kind == kind; });
  }
  const std::vector<std::string> names = names_in(directory_ + "/" + kind);
  return std::any_of(names.begin(), names.end(), is_record_file);
}

std::vector<Record> Store::list(const std::string& kind) const {
  std::vector<Record> out;
  if (pack_) {
    out = pack_->list(kind, [this](const std::string& what) { warn_once("pack", what + "; left out"); });
    std::sort(out.begin(), out.end(), by_kind_and_key);
    return out;
  }
  if (file_) {
    std::copy_if(file_->begin(), file_->end(), std::back_inserter(out),
                 [&](const Record& record) { return kind.empty() || record.kind == kind; });
    return out;
  }
  for (const std::string& k : kinds(kind)) {
    const std::string folder = directory_ + "/" + k;
    for (const std::string& name : readable_names(folder)) {
      if (!is_record_file(name)) continue;
      const std::string file = folder + "/" + name;
      try {
        const std::optional<FileContent> content = read_file(file);
        if (!content) continue;  // erased since
        Record record = decode_record(content->bytes);
        if (record.kind != k || record_file(k, record.key) != name) {
          throw Error(Status::bad_file, "it is the record of another key");
        }
        record.modified_ms = record_time(content->modified_ms);
        out.push_back(std::move(record));
      } catch (const Error& error) {
        const std::string what = error.what();
        warn_once(file, (what.starts_with(file) ? "" : file + ": ") + what + "; left out");
      }
    }
  }
  std::sort(out.begin(), out.end(), by_kind_and_key);
  return out;
}

int Store::clear(const std::string& kind) {
  int erased = 0;
  if (readonly_) return erased;
  for (const std::string& k : kinds(kind)) {
    for (const std::string& name : readable_names(directory_ + "/" + k)) {
      if (is_record_file(name) && ::unlink((directory_ + "/" + k + "/" + name).c_str()) == 0) ++erased;
    }
  }
  sweep();
  return erased;
}

int Store::export_to(const std::string& file) const {
  std::vector<Record> records = list();
  const int count = static_cast<int>(records.size());
  export_records(file, std::move(records));
  return count;
}

void Store::export_records(const std::string& file, std::vector<Record> records) {
  write_file(file, file.ends_with(".pack") ? Pack::encode(records) : encode_export(std::move(records)));
}

Store::Imported Store::import_from(const std::string& file) {
  const std::optional<FileContent> content = read_file(file);
  if (!content) throw Error(Status::bad_file, file + ": there is no such file");
  Imported done;
  std::vector<Record> records;
  try {
    const auto damaged = [&](const std::string& what) {
      ++done.damaged;
      warn_once(what, what + "; left out");
    };
    records = Pack::is(file) ? Pack(file).list("", damaged)
                             : decode_export(content->bytes,
                                             [&](const std::string& what) { damaged(file + ": " + what); });
  } catch (const Error& error) {
    if (Pack::is(file)) throw;  // it says of which file
    throw Error(Status::bad_file, file + ": is no export of a store: " + error.what());
  }
  for (const Record& record : records) {
    std::optional<Record> here;
    try {
      if (const auto existing = read_file(path(record.kind, record.key))) {
        here = decode_record(existing->bytes);
        here->modified_ms = record_time(existing->modified_ms);
      }
    } catch (const Error&) {  // damaged: to be replaced
    }
    if (here && (here->payload == record.payload || here->modified_ms >= record.modified_ms)) {
      ++done.unchanged;
      continue;
    }
    // New ones together: each by itself, thousands would wait for the disk thousands of times. What is
    // replaced is there at any time.
    if (const std::string why = write(record, here ? Lasting::at_once : Lasting::later); !why.empty())
      throw Error(Status::bad_file, "store: " + why);
    ++(here ? done.replaced : done.added);
  }
  if (done.added + done.replaced > 0) make_lasting(directory_);
  return done;
}

void Store::sweep(std::chrono::seconds older_than) {
  if (readonly_) return;
  const std::time_t now = std::time(nullptr);
  for (const std::string& kind : kinds("")) {
    for (const std::string& name : readable_names(directory_ + "/" + kind)) {
      if (!is_temporary(name)) continue;
      const std::string file = directory_ + "/" + kind + "/" + name;
      struct stat status;
      if (::stat(file.c_str(), &status) == 0 && now - status.st_ctim.tv_sec >= older_than.count()) {
        ::unlink(file.c_str());
      }
    }
  }
}

}  // namespace faltung
