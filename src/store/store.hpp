// What the engine remembers on disk: one small file a record, found by kind and key. Knows no convolution.
//
// A record is published by an atomic rename, without locks: safe among many processes, on NFS, and after a
// kill at any moment. Nothing here fails the caller's work: a damaged record is a miss, a directory that
// cannot be written stores nothing, and either is said once.
#ifndef FALTUNG_SRC_STORE_STORE_HPP_
#define FALTUNG_SRC_STORE_STORE_HPP_

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/store/files.hpp"
#include "src/store/pack.hpp"
#include "src/store/record.hpp"

namespace faltung {

class Store {
 public:
  using Warn = std::function<void(const std::string& message)>;

  // directory: empty for $FALTUNG_STORE, else $XDG_CACHE_HOME/faltung, else ~/.cache/faltung. It is made when
  // the first record is put. With `:readonly` at its end nothing is ever written. It may also be a file that
  // export_to wrote, which is read once, or a pack (pack.hpp), which is read as records are asked for;
  // neither is ever written. Throws Error(bad_file) for what is to be read only, or named like a lock
  // (*.lock), and is not there or is no such file: who relies on its content must know. warn: called at most
  // once for each thing that is wrong; by default it prints to stderr.
  explicit Store(const std::string& directory = "", Warn warn = {});

  const std::string& directory() const { return directory_; }
  bool readonly() const { return readonly_; }
  // What opens the same store, here or in another process.
  std::string location() const { return directory_ + (readonly_ ? ":readonly" : ""); }

  std::optional<std::string> get(const std::string& kind, const std::string& key) const;
  // Replaces what is there. False if it could not be stored.
  bool put(const std::string& kind, const std::string& key, const std::string& payload);
  // False if there is none.
  bool erase(const std::string& kind, const std::string& key);
  // In the order of kind and key; of one kind, or of all if it is empty. What cannot be read is left out,
  // with a warning.
  std::vector<Record> list(const std::string& kind = "") const;
  // Whether there are records of this kind, whole or damaged. Throws Error(bad_file) if that cannot be read.
  bool holds(const std::string& kind) const;
  // Erases the records of one kind, or all; returns how many.
  int clear(const std::string& kind = "");

  // What get() answers of these kinds where this store knows nothing: records that came with the package.
  void ship(std::shared_ptr<const Store> shipped, std::vector<std::string> kinds);

  // One JSON file of all records; a pack, where the file's name ends in .pack. Throws Error(bad_file) if it
  // cannot be written. Returns how many.
  int export_to(const std::string& file) const;
  static void export_records(const std::string& file, std::vector<Record> records);

  struct Imported {
    int added = 0;
    int replaced = 0;   // the file's record was newer than the store's
    int unchanged = 0;  // the store's is the same, or is not older
    int damaged = 0;    // left out, each with a warning
  };
  // Throws Error(bad_file) if the file is no export or the store cannot be written.
  Imported import_from(const std::string& file);

  // Removes what writers that were killed left behind; put does it too, once, for what is an hour old.
  void sweep(std::chrono::seconds older_than = std::chrono::hours(1));

 private:
  void open_file(bool must_be_one);
  std::string path(const std::string& kind, const std::string& key) const;
  std::vector<std::string> kinds(const std::string& kind) const;
  // names_in, or none and a warning.
  std::vector<std::string> readable_names(const std::string& directory) const;
  // Empty if it was written; else why not.
  std::string write(const Record& record, Lasting lasting = Lasting::at_once);
  void warn_once(const std::string& about, const std::string& message) const;

  std::string directory_;
  bool readonly_ = false;
  std::optional<std::string> own(const std::string& kind, const std::string& key) const;

  std::shared_ptr<const std::vector<Record>> file_;  // of an exported file, in the order of kind and key
  std::shared_ptr<const Pack> pack_;
  std::shared_ptr<const Store> shipped_;
  std::vector<std::string> shipped_kinds_;
  bool swept_ = false;
  Warn warn_;
  mutable std::mutex mutex_;  // of what follows and of swept_
  mutable std::set<std::string> warned_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_STORE_HPP_
