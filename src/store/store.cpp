#include "src/store/store.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace faltung {
namespace {

std::string default_directory() {
  for (const auto& [variable, suffix] :
       {std::pair{"FALTUNG_STORE", ""}, std::pair{"XDG_CACHE_HOME", "/faltung"},
        std::pair{"HOME", "/.cache/faltung"}}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
      return value + std::string(suffix);
  }
  return "/tmp/faltung";
}

}  // namespace

Store::Store(std::string directory)
    : directory_(directory.empty() ? default_directory() : std::move(directory)) {}

std::string Store::path(std::string_view kind, std::string_view key) const {
  return directory_ + "/" + std::string(kind) + "-" + std::to_string(std::hash<std::string_view>()(key)) +
         ".json";
}

std::optional<std::string> Store::get(std::string_view kind, std::string_view key) const {
  std::ifstream file(path(kind, key));
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || json.value("key", "") != key) return std::nullopt;
  return json.value("payload", "");
}

bool Store::put(std::string_view kind, std::string_view key, std::string_view payload) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const std::string temporary = path(kind, key) + "." + std::to_string(getpid());
  std::ofstream(temporary) << nlohmann::json{{"key", key}, {"payload", payload}}.dump();
  std::filesystem::rename(temporary, path(kind, key), error);
  return !error;
}

}  // namespace faltung
