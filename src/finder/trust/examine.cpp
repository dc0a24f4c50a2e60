#include "src/finder/trust/examine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "src/backend/runtime_compiler.hpp"
#include "src/finder/shipped.hpp"

namespace faltung {
namespace {

// What the tensors, the packed weights and the workspace take together.
double memory_needed(const PlanImpl& plan) {
  const Problem& p = plan.problem();
  double bytes = min_bytes(p);
  if (p.epilogue.residual) bytes += static_cast<double>(bytes_of(p, conv_shape(p)));
  return bytes + static_cast<double>(plan.workspace_bytes(false));
}

// A run's result, with packed weights where the kernel packs them: as it will be used.
class Repeated {
 public:
  Repeated(const PlanImpl& plan, const Oracle& oracle) : plan_(plan), arena_(plan.device(), oracle, 0, 2) {
    const bool packs = plan.recipe().packed_bytes > 0;
    if (packs) weights_ = plan.pack_weights(arena_.first().w, {});
    workspace_ = plan.device().allocate(plan.workspace_bytes(packs) + 1);
    options_.weights = weights_.get();
    options_.workspace = workspace_.pointer;
    result_bytes_ = static_cast<std::size_t>(oracle.result_bytes());
    poison_.assign(result_bytes_ + bytes(plan.problem(), Tensor::sums), std::byte{0xff});
    content_.resize(poison_.size());
  }

  // times launches into a result full of NaN; the result, and the sums behind it.
  const std::vector<std::byte>& run(int times) {
    Device& device = plan_.device();
    const Buffer result{nullptr, result_pointer(plan_.problem(), arena_.first()), result_bytes_};
    const Buffer sums{nullptr, arena_.first().sums, poison_.size() - result_bytes_};
    device.copy_in(result, poison_.data(), result.bytes);
    if (sums.bytes > 0) device.copy_in(sums, poison_.data(), sums.bytes);
    for (int i = 0; i < times; ++i) plan_.run(arena_.first(), options_);
    device.synchronize({});
    device.copy_out(content_.data(), result, result.bytes);
    if (sums.bytes > 0) device.copy_out(content_.data() + result_bytes_, sums, sums.bytes);
    return content_;
  }

 private:
  const PlanImpl& plan_;
  Arena arena_;
  std::shared_ptr<const PackedWeights> weights_;
  Buffer workspace_;
  RunOptions options_;
  std::size_t result_bytes_ = 0;
  std::vector<std::byte> poison_, content_;
};

// Launches in bursts, for a kernel may be right at first and go wrong later: state that is not reset, a race
// between two launches. Ends early, well past any first launches, where the kernel is slow.
Report repeat(const PlanImpl& plan, const Candidate& candidate, const Oracle& oracle,
              const Parallel& parallel, int launches, const Watch& watch) {
  constexpr int kBurst = 8;
  constexpr double kLongest = 5e3;  // ms
  watch(Phase::run);
  Repeated repeated(plan, oracle);
  const std::vector<std::byte> first = repeated.run(1);
  const auto begin = std::chrono::steady_clock::now();
  for (int done = 1; done < launches; done += kBurst) {
    watch(Phase::run);
    const std::vector<std::byte>& now = repeated.run(kBurst);
    if (now != first) {
      const std::string when = "after " + std::to_string(done + kBurst) + " launches ";
      const Finding finding = oracle.check(now.data(), candidate.accuracy, parallel);
      const bool differs = candidate.repeatable == Repeatable::same_bits;
      if (!finding.right() || differs) {
        Report report = report_of(
            Outcome::wrong,
            when + (finding.right() ? "the same inputs give other bits than at first" : finding.worst));
        report.error_over_bound = finding.error_over_bound;
        return report;
      }
    }
    if (std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() >
        kLongest) {
      break;
    }
  }
  return report_of(Outcome::pass, "");
}

void verify(const Task& task, const PlanImpl& plan, const Candidate& candidate, Verifier& verifier,
            const Watch& watch, Report& report) {
  Report found = verifier.kernel(plan, candidate, watch);
  report.error_over_bound = found.error_over_bound;
  if (passed(found) && task.launches > 0) {
    found = repeat(plan, candidate, verifier.oracle(Data::small_integers), verifier.parallel(), task.launches,
                   watch);
    if (!passed(found)) report.error_over_bound = found.error_over_bound;
  }
  report.outcome = found.outcome;
  report.why = found.why;
}

// A GPU's kernels know no threads of the host.
int threads_of(const Task& task, const Device& device) {
  return device.info().kind == "cpu" ? task.threads : 1;
}

// Of what inputs, references and buffers are made.
std::string kept_key(const Task& task) {
  return to_string(task.problem) + " " + task.device + " " + std::to_string(task.threads) + " " +
         std::to_string(task.seed) + " " + std::to_string(task.products) + " " +
         std::to_string(task.arena_bytes);
}

std::string plan_key(const Task& task) {
  return task.kernel + " " + to_string(task.problem) + " " + task.device + " " + std::to_string(task.units) +
         " " + std::to_string(task.threads);
}

DeviceInfo info_for(const Task& task, const Device& device) {
  DeviceInfo info = device.info();
  if (task.units > 0) info.units = task.units;
  return info;
}

}  // namespace

Report Examiner::examine(const Task& task, const Watch& watch) {
  Report report = report_of(Outcome::pass, "", task.kernel);
  Phase phase = Phase::open;
  const auto failed = [&](Outcome outcome, const std::string& why) {
    report.outcome = outcome;
    report.why = why;
  };
  try {
    examine(task, watch, report, phase);
  } catch (const NoCompiler&) {
    throw;
  } catch (const Error& error) {
    if (phase == Phase::open) throw;  // the device or the request, and not the kernel
    switch (error.status()) {
      case Status::out_of_memory:
        if (task.time_ms == 0 && timed_.arena) {  // what the last problem is timed on may be in its way
          timed_.arena.reset();
          return examine(task, watch);
        }
        failed(Outcome::out_of_memory, error.what());
        break;
      case Status::bad_problem:
      case Status::unsupported:
        failed(Outcome::declined, error.what());
        break;
      default:
        failed(phase == Phase::compile ? Outcome::compile_error : Outcome::crash, error.what());
    }
  } catch (const std::bad_alloc&) {
    failed(Outcome::out_of_memory, "the host's memory does not suffice");
  } catch (const std::length_error&) {
    failed(Outcome::out_of_memory, "it asks for more memory than can be addressed");
  }
  return report;
}

void Examiner::examine(const Task& task, const Watch& watch, Report& report, Phase& phase) {
  const Watch enter = [&](Phase next) {
    phase = next;
    if (watch) watch(next);
  };
  enter(Phase::open);
  std::future<double> unopened = compile_unopened(task);
  if (unopened.valid() && watch) watch(Phase::compile);
  const std::shared_ptr<Device> device = find_device(task.device);
  if (!task.device_key.empty() && task.device_key != device->info().key) {
    throw Error(Status::device_error, "the worker finds another device under " + task.device + ": " +
                                          device->info().key + ", not " + task.device_key +
                                          "; start the program with the same drivers for all its processes");
  }
  parse_kernel(task.kernel);  // throws for what is none
  const bool compiles_unopened = !device->info().code_key.empty();
  if (!compiles_unopened) device->synchronize({});
  Kept& kept = kept_for(task, device);
  if (task.next) {
    Task next = task;
    next.problem = *task.next;
    next_ = make_kept(next, device);
  }

  enter(Phase::compile);
  const DeviceInfo info = info_for(task, *device);
  const Candidate candidate = find_candidate(task.kernel, task.problem, {info, threads_of(task, *device)});
  const auto ahead = ahead_.extract(plan_key(task));
  // What needs no code is done while the compiler works: a driver takes 0.2 s to open a device.
  std::atomic<bool> opened = false;
  const auto memory = static_cast<double>(device->info().memory_bytes);
  const bool compiles = ahead.empty() && device->info().kind == "gpu";
  const std::launch now_or_later =
      compiles ? std::launch::async | std::launch::deferred : std::launch::deferred;
  std::future<void> meanwhile = std::async(now_or_later, [&] {
    device->synchronize({});
    opened = true;
    const auto make_references = [&](const Problem& problem, Kept& kept) {
      if (min_bytes(problem) > memory) return;
      for (const Data data : {Data::small_integers, Data::random}) kept.verifier->oracle(data);
    };
    if (!task.verify || task.time_ms > 0) return;
    make_references(task.problem, kept);
    if (task.next) make_references(*task.next, next_);
  });
  const auto wait = [&] {
    try {
      meanwhile.get();
    } catch (...) {
      if (!opened) phase = Phase::open;
      throw;
    }
  };
  std::shared_ptr<const PlanImpl> plan;
  try {
    if (unopened.valid()) report.compile_ms = unopened.get();
    plan = ahead.empty() ? plan_of(task, candidate, store(task.store)) : ahead.mapped();
  } catch (...) {
    wait();
    throw;
  }
  wait();
  report.compile_ms += plan->compile_ms();
  report.workspace_bytes = plan->workspace_bytes(plan->recipe().packed_bytes > 0);
  if (memory_needed(*plan) > memory) {
    report.outcome = Outcome::too_large;
    report.why = fmt::format(
        "it needs {:.0f} bytes for its tensors and its workspace of {}; {} has {} bytes of memory in all",
        memory_needed(*plan), plan->workspace_bytes(false), task.device, device->info().memory_bytes);
    return;
  }

  bool may_win = true;
  if (task.time_ms > 0) {
    enter(Phase::check);  // the host fills buffers
    if (!kept.oracle)
      kept.oracle.emplace(task.problem, Data::random, task.seed, 1, &kept.verifier->parallel());
    if (!kept.arena) kept.arena.emplace(*device, *kept.oracle, task.arena_bytes, 64, task.arena_ms);
    enter(Phase::run);
    Runner runner(plan, *kept.arena);
    runner.before_each([&] { enter(Phase::run); });
    const Timing timing = time_runner(runner, task.time_ms, task.best_ms);
    report.ms = timing.median, report.ms_min = timing.min, report.ms_max = timing.max;
    may_win = task.best_ms <= 0 || timing.median < kClose * task.best_ms;
  }
  if (task.verify && may_win) verify(task, *plan, candidate, *kept.verifier, enter, report);
}

Store& Examiner::store(const std::string& location) {
  const auto found = stores_.find(location);
  if (found != stores_.end()) return found->second;
  // What an engine says of it to its caller need not be said twice.
  const Store::Warn silent = [](const std::string&) {};
  Store& store = stores_.try_emplace(location, location).first->second;
  ship(store, open_shipped(silent));
  return store;
}

std::future<double> Examiner::compile_unopened(const Task& task) {
  if (task.compiler.empty() || !opened_.insert(task.device).second) return {};
  return std::async(std::launch::async | std::launch::deferred,
                    [&task, &store = store(task.store), workers = workers(1)]() -> double {
                      try {
                        const std::shared_ptr<Device> compiler = find_device(task.compiler);
                        const DeviceInfo device = info_for(task, *compiler);
                        const Candidate candidate = find_candidate(task.kernel, task.problem, {device, 1});
                        return make_plan(task.problem, candidate, compiler, jit::Session(*compiler, store),
                                         workers)
                            ->compile_ms();
                      } catch (const std::exception&) {  // will be said when it is compiled for the device
                        return 0;
                      }
                    });
}

Examiner::Kept& Examiner::kept_for(const Task& task, const std::shared_ptr<Device>& device) {
  const std::string what = kept_key(task);
  Kept& kept = task.time_ms > 0 ? timed_ : untimed_;
  if (kept.what == what) return kept;
  kept = next_.what == what ? std::move(next_) : make_kept(task, device);
  next_ = Kept();
  return kept;
}

Examiner::Kept Examiner::make_kept(const Task& task, const std::shared_ptr<Device>& device) {
  // Who computes the reference: the kernel's own workers, which sleep then, or on a GPU every processor.
  const int threads = device->info().kind == "cpu" ? task.threads : available_processors();
  workers(task.threads);
  workers(threads);
  Kept kept;
  kept.what = kept_key(task);
  kept.verifier.emplace(task.problem, device, workers_.at(threads), task.seed, task.products);
  return kept;
}

const std::shared_ptr<const Parallel>& Examiner::workers(int count) {
  std::shared_ptr<const Parallel>& workers = workers_[count];
  if (!workers) workers = std::make_shared<const Parallel>(count);
  return workers;
}

std::shared_ptr<const PlanImpl> Examiner::plan_of(const Task& task, const Candidate& candidate,
                                                  Store& store) const {
  const std::shared_ptr<Device> device = find_device(task.device);
  return make_plan(task.problem, candidate, device, jit::Session(*device, store), workers_.at(task.threads));
}

void Examiner::compile_ahead(const std::vector<Task>& tasks, const Watch& watch) {
  ahead_.clear();
  for (const Task& task : tasks) {
    find_device(task.device)->synchronize({});  // its driver wakes
    opened_.insert(task.device);
    workers(task.threads);
    store(task.store);
  }
  std::mutex mutex;
  std::condition_variable one_more;
  std::size_t done = 0;
  const auto compile = [&, this](const Task& task) {
    try {
      const std::shared_ptr<Device> device = find_device(task.device);
      const DeviceInfo info = info_for(task, *device);
      std::shared_ptr<const PlanImpl> plan =
          plan_of(task, find_candidate(task.kernel, task.problem, {info, threads_of(task, *device)}),
                  stores_.at(task.store));
      const std::lock_guard lock(mutex);
      ahead_.emplace(plan_key(task), std::move(plan));
    } catch (const std::exception&) {  // will be said when it is examined
    }
    const std::lock_guard lock(mutex);
    ++done;
    one_more.notify_one();
  };
  // A compiler may take hundreds of megabytes: more of them than processors would help nobody.
  std::atomic<std::size_t> next = 0;
  const auto compile_some = [&] {
    for (std::size_t i; (i = next++) < tasks.size();) compile(tasks[i]);
  };
  std::vector<std::thread> threads;
  threads.reserve(tasks.size());
  try {
    const auto most = static_cast<std::size_t>(available_processors());
    while (threads.size() < std::min(tasks.size(), most)) threads.emplace_back(compile_some);
  } catch (const std::exception&) {  // the process may have no more: those that there are do it all
  }
  for (std::unique_lock lock(mutex); !threads.empty() && done < tasks.size();) {
    if (watch) watch(Phase::compile);  // with each that is done the deadline starts anew
    const std::size_t before = done;
    one_more.wait(lock, [&] { return done > before; });
  }
  for (std::thread& thread : threads) thread.join();
}

void Examiner::probe(const Probe& probe) {
  const auto& [id, part] = probe;
  const std::shared_ptr<Device> device = find_device(id);
  if (part == Probe::Part::compiler) {
    jit::Source line;
    line.name = line.entry = "probe";
    line.text =
        "#include \"kernels/gpu/" + device->info().dialect +
        ".h\"\nF_KERNEL(64) probe(F_OUTPUT(int, to)) { F_OPEN_OUTPUT(int, to); to[F_THREAD()] = 1; }\n";
    device->compile(line.whole());
    return;
  }
  std::vector<std::uint32_t> there(1 << 16), back(there.size());
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<std::uint32_t>(i) * 2654435761u;
  const std::size_t bytes = there.size() * sizeof there[0];
  const Buffer buffer = device->allocate(bytes);
  device->copy_in(buffer, there.data(), bytes);
  device->synchronize({});
  device->copy_out(back.data(), buffer, bytes);
  if (back != there)
    throw Error(Status::device_error, id + ": what is written to its memory does not come back");
}

}  // namespace faltung
