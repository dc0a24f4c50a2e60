#include "src/jit/jit.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "src/store/sha256.hpp"
#include "src/store/store.hpp"

namespace faltung::jit {

extern const EmbeddedFile kEmbeddedFiles[];

namespace {

std::string_view embedded(std::string_view path) {
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
    if (file->path == path) return file->text;
  }
  throw Error(Status::internal, "no kernel source '" + std::string(path) + "' in the library");
}

// included: files with `#pragma once` that are in already; the others (lists of macros) come every time.
void append(std::string& out, std::string_view path, std::set<std::string>& included) {
  std::string_view text = embedded(path);
  constexpr std::string_view kOnce = "#pragma once\n", kInclude = "#include \"";
  if (text.find(kOnce) != std::string_view::npos && !included.insert(std::string(path)).second) return;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(kInclude)) {
      append(out, line.substr(kInclude.size(), line.rfind('"') - kInclude.size()), included);
    } else if (line != kOnce.substr(0, kOnce.size() - 1)) {
      out.append(line).push_back('\n');
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

}  // namespace

std::string translation_unit(const std::string& constants, const std::string& path) {
  std::string text = constants;
  std::set<std::string> included;
  append(text, path, included);
  return text;
}

namespace {

// A record's payload is text, a kernel's code is not.
std::string to_hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

std::string from_hex(const std::string& text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  return bytes;
}

// A record is the code in hexadecimal digits, a space, and the milliseconds that compiling took.
Built load_stored(Device& device, const Store& store, const std::string& key, const std::string& entry) {
  const std::optional<std::string> record = store.get("kernel", key);
  if (!record) return {};
  const std::size_t space = record->find(' ');
  try {
    const double ms = space == std::string::npos ? -1 : std::atof(record->c_str() + space);
    return {device.load({from_hex(record->substr(0, space)), "", 0}, entry), 0, ms};
  } catch (const Error&) {
    return {};  // damaged, or made by a driver that says it is the same and is not: compile again
  }
}

thread_local Collector* collector = nullptr;
thread_local std::function<void(const std::string&)> warnings;

Built collected(const Device& device, const KernelSource& source, Built built) {
  if (collector != nullptr) {
    collector->kernels.push_back(
        {source.entry, built.compile_ms, built.compiled_before_ms, device.resources(*built.kernel, source)});
  }
  return built;
}

}  // namespace

Collector::Collector() : outer_(collector) { collector = this; }
Collector::~Collector() {
  collector = outer_;
  if (outer_ != nullptr) outer_->kernels.insert(outer_->kernels.end(), kernels.begin(), kernels.end());
}

Warnings::Warnings(std::function<void(const std::string&)> warn)
    : outer_(std::exchange(warnings, std::move(warn))) {}
Warnings::~Warnings() { warnings = std::move(outer_); }

Built build(Device& device, const KernelSource& source) {
  // Never destroyed: the driver may be gone when the process ends.
  static std::mutex& mutex = *new std::mutex;
  static auto& kernels = *new std::map<std::string, Built>;
  std::string key = device.info().key + "\n" + source.entry;
  for (const std::string& option : source.options) key += "\n" + option;
  key += "\n" + sha256(source.text);  // and not the text, which is as long as the code
  const std::string here = device.info().id + "\n" + key;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = kernels.find(here); found != kernels.end()) {
      return collected(device, source, found->second);
    }
  }
  Store store("", warnings);
  Built built = load_stored(device, store, key, source.entry);
  if (built.kernel == nullptr) {
    const Binary binary = device.compile(source);
    built.compile_ms = binary.compile_ms;
    built.kernel = device.load(binary, source.entry);
    store.put("kernel", key, to_hex(binary.code) + " " + std::to_string(binary.compile_ms));
  }
  const std::lock_guard lock(mutex);
  kernels.emplace(here,
                  Built{built.kernel, 0, built.compile_ms > 0 ? built.compile_ms : built.compiled_before_ms});
  return collected(device, source, built);
}

}  // namespace faltung::jit
