// What the engine remembers on disk: one small file a record.
#ifndef FALTUNG_SRC_STORE_STORE_HPP_
#define FALTUNG_SRC_STORE_STORE_HPP_

#include <optional>
#include <string>
#include <string_view>

namespace faltung {

class Store {
 public:
  // directory: empty for $FALTUNG_STORE, else $XDG_CACHE_HOME/faltung, else ~/.cache/faltung.
  explicit Store(std::string directory);
  const std::string& directory() const { return directory_; }
  std::optional<std::string> get(std::string_view kind, std::string_view key) const;
  // False if it could not be stored, which is no error: the engine works without.
  bool put(std::string_view kind, std::string_view key, std::string_view payload);

 private:
  std::string path(std::string_view kind, std::string_view key) const;
  std::string directory_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_STORE_HPP_
