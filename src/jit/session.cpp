#include "src/jit/session.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "src/jit/embedded.hpp"
#include "src/store/hex.hpp"
#include "src/store/sha256.hpp"

namespace faltung::jit {

KernelSource Source::whole() const {
  KernelSource source;
  source.name = name;
  source.text = expanded(text);
  source.entry = entry;
  source.options = options;
  source.block_threads = block_threads;
  source.shared_bytes = shared_bytes;
  return source;
}

std::string Source::digest() const {
  std::string all = entry + "\n" + std::to_string(block_threads) + " " + std::to_string(shared_bytes) + "\n";
  for (const std::string& option : options) all += option + "\n";
  for (const std::string& file : included(text)) all += unit_digest(file) + "\n";
  return sha256(all + text);
}

namespace {

// A record is the code in hexadecimal digits, a space, and the milliseconds that compiling took.
void load_stored(Device& device, const Store& store, const std::string& key, const KernelSource& source,
                 Program& program) {
  const std::optional<std::string> record = store.get("kernel", key);
  if (!record) return;
  const std::size_t space = record->find(' ');
  try {
    program.kernel = device.load({from_hex(record->substr(0, space)), "", 0}, source);
    program.compiled_before_ms = space == std::string::npos ? -1 : std::atof(record->c_str() + space);
  } catch (const Error&) {
    // damaged, or made by a driver that says it is the same and is not: compile again
  }
}

// What this process has built, for all engines. Never destroyed: the driver may be gone when the process
// ends.
struct Built {
  std::mutex mutex;
  std::map<std::string, Program> programs;
};
Built& built() {
  static Built& built = *new Built;
  return built;
}

}  // namespace

std::string Session::key(const Source& source) const {
  return device_.info().key_of_code() + "\n" + source.entry + "\n" + source.digest();
}

void Session::keep(const Source& source) const {
  const std::string key = this->key(source);
  if (const std::optional<std::string> record = store_.get("kernel", key)) store_.put("kernel", key, *record);
}

Program Session::build(const Source& source) const {
  const std::string key = this->key(source);
  const std::string here = device_.info().id + "\n" + key;
  {
    const std::lock_guard lock(built().mutex);
    if (const auto found = built().programs.find(here); found != built().programs.end()) return found->second;
  }
  const KernelSource text = source.whole();
  Program program;
  program.entry = source.entry;
  load_stored(device_, store_, key, text, program);
  if (program.kernel == nullptr) {
    const Binary binary = device_.compile(text);
    program.compile_ms = binary.compile_ms;
    program.kernel = device_.load(binary, text);
    store_.put("kernel", key, to_hex(binary.code) + " " + std::to_string(binary.compile_ms));
  }
  program.resources = device_.resources(*program.kernel, text);
  Program next = program;
  if (program.compile_ms > 0) next.compiled_before_ms = program.compile_ms;
  next.compile_ms = 0;
  const std::lock_guard lock(built().mutex);
  built().programs.emplace(here, std::move(next));
  return program;
}

}  // namespace faltung::jit
