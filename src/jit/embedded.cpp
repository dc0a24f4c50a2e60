#include "src/jit/embedded.hpp"

#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "faltung/faltung.hpp"
#include "src/store/sha256.hpp"

namespace faltung::jit {

extern const EmbeddedFile kEmbeddedFiles[];

namespace {

std::string_view embedded(std::string_view path) {
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
    if (file->path == path) return file->text;
  }
  throw Error(Status::internal, "no kernel source '" + std::string(path) + "' in the library");
}

constexpr std::string_view kOnce = "#pragma once", kInclude = "#include \"";

// visit(line) for each, without its end.
template <class Visit>
void for_lines(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

// What a line includes; empty if it does not.
std::string included_by(std::string_view line) {
  if (!line.starts_with(kInclude)) return "";
  return std::string(line.substr(kInclude.size(), line.rfind('"') - kInclude.size()));
}

// done: files with `#pragma once` that are in already; the others (lists of macros) come every time.
void append(std::string& out, std::string_view text, std::set<std::string>& done) {
  for_lines(text, [&](std::string_view line) {
    const std::string path = included_by(line);
    if (path.empty()) {
      if (line != kOnce) out.append(line).push_back('\n');
      return;
    }
    const std::string_view file = embedded(path);
    const bool once = file.find(std::string(kOnce) + "\n") != std::string_view::npos;
    if (!once || done.insert(path).second) append(out, file, done);
  });
}

}  // namespace

std::string expanded(const std::string& text) {
  std::string out;
  std::set<std::string> done;
  append(out, text, done);
  return out;
}

std::vector<std::string> included(const std::string& text) {
  std::vector<std::string> paths;
  for_lines(text, [&](std::string_view line) {
    if (const std::string path = included_by(line); !path.empty()) paths.push_back(path);
  });
  return paths;
}

const std::string& unit_digest(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::string> digests;
  const std::lock_guard lock(mutex);
  const auto found = digests.find(path);
  if (found != digests.end()) return found->second;
  return digests.emplace(path, sha256(expanded("#include \"" + path + "\"\n"))).first->second;
}

}  // namespace faltung::jit
