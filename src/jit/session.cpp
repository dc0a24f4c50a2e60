#include "src/jit/session.hpp"

#include <condition_variable>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "src/backend/parallel.hpp"
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

// What this process has built, for all engines, by device and key. Never destroyed: the driver may be gone
// when the process ends.
struct Built {
  std::mutex mutex;
  std::map<std::string, Program> programs;
  std::set<std::string> compiling;
  std::condition_variable compiled;
};
Built& built() {
  static Built& built = *new Built;
  return built;
}

// A program's, among those of all devices: key is a session's.
std::string key_among_built(const Device& device, const std::string& key) {
  return device.info().id + "\n" + key;
}

// The compiling of one program, for which no two threads have a compiler at a time. One may take hundreds of
// megabytes: more of them than processors would help nobody.
class Turn {
 public:
  explicit Turn(std::string program) : program_(std::move(program)) {
    const auto most = static_cast<std::size_t>(available_processors());
    std::unique_lock lock(built().mutex);
    built().compiled.wait(
        lock, [&] { return built().compiling.size() < most && built().compiling.insert(program_).second; });
  }
  ~Turn() {
    {
      const std::lock_guard lock(built().mutex);
      built().compiling.erase(program_);
    }
    built().compiled.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const std::string program_;
};

}  // namespace

std::string Session::key(const Source& source) const {
  return device_.info().key_of_code() + "\n" + source.entry + "\n" + source.digest();
}

bool Session::knows(const Source& source) const {
  const std::string key = this->key(source);
  {
    const std::lock_guard lock(built().mutex);
    if (built().programs.contains(key_among_built(device_, key))) return true;
  }
  return store_.get(kCode, key).has_value();
}

void Session::keep(const Source& source) const {
  const std::string key = this->key(source);
  if (const std::optional<std::string> record = store_.get(kCode, key)) store_.put(kCode, key, *record);
}

// A record is the code in hexadecimal digits, a space, and the milliseconds that compiling took.
std::optional<Program> Session::known(const Source& source, const std::string& key) const {
  {
    const std::lock_guard lock(built().mutex);
    const auto found = built().programs.find(key_among_built(device_, key));
    if (found != built().programs.end()) return found->second;
  }
  const std::optional<std::string> record = store_.get(kCode, key);
  if (!record) return std::nullopt;
  const std::size_t space = record->find(' ');
  try {
    const KernelSource text = source.whole();
    Program program;
    program.kernel = device_.load({from_hex(record->substr(0, space)), "", 0}, text);
    program.compiled_before_ms = space == std::string::npos ? -1 : std::atof(record->c_str() + space);
    return remember(std::move(program), text, key);
  } catch (const Error&) {
    // damaged, or made by a driver that says it is the same and is not: compile again
    return std::nullopt;
  }
}

Program Session::compile(const Source& source, const std::string& key) const {
  const Turn turn(key_among_built(device_, key));
  if (std::optional<Program> program = known(source, key)) return *std::move(program);  // another thread's
  const KernelSource text = source.whole();
  const Binary binary = device_.compile(text);
  Program program;
  program.compile_ms = binary.compile_ms;
  program.kernel = device_.load(binary, text);
  store_.put(kCode, key, to_hex(binary.code) + " " + std::to_string(binary.compile_ms));
  return remember(std::move(program), text, key);
}

Program Session::remember(Program program, const KernelSource& text, const std::string& key) const {
  program.entry = text.entry;
  program.resources = device_.resources(*program.kernel, text);
  Program next = program;
  if (program.compile_ms > 0) next.compiled_before_ms = program.compile_ms;
  next.compile_ms = 0;
  const std::lock_guard lock(built().mutex);
  built().programs.emplace(key_among_built(device_, key), std::move(next));
  return program;
}

std::vector<Program> Session::build(const std::vector<const Source*>& sources) const {
  struct Missing {
    std::size_t at;
    std::string key;
    std::future<Program> program;
  };
  std::vector<Program> programs(sources.size());
  std::vector<Missing> missing;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::string key = this->key(*sources[i]);
    std::optional<Program> program = known(*sources[i], key);
    if (program) {
      programs[i] = *std::move(program);
    } else {
      missing.push_back({i, std::move(key), {}});
    }
  }
  std::set<std::string> compiling;
  for (Missing& m : missing) {
    // One that is asked for twice is known when its turn comes.
    const bool beside = missing.size() > 1 && compiling.insert(m.key).second;
    const std::launch policy = beside ? std::launch::async | std::launch::deferred : std::launch::deferred;
    m.program = std::async(policy, [this, &m, source = sources[m.at]] { return compile(*source, m.key); });
  }
  for (Missing& m : missing) programs[m.at] = m.program.get();
  return programs;
}

}  // namespace faltung::jit
