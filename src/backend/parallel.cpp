#include "src/backend/parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/backend/cpu_quota.hpp"
#include "src/backend/processor.hpp"
#include "src/problem/float_mode.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace faltung {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // its "yield" does nothing on most cores
#endif
}

// Waits for done() to hold: spinning for as long as a convolution's next step takes to come, then asleep on
// value.
template <class T, class Done>
void wait_until(std::atomic<T>& value, const Done& done) {
  constexpr int kSpins = 4000;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (done(value.load(std::memory_order_acquire))) return;
    pause_briefly();
  }
  for (T seen = value.load(std::memory_order_acquire); !done(seen);
       seen = value.load(std::memory_order_acquire)) {
    value.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace

int available_processors() {
  static const int quota = cpu_quota();  // of the process, as a rule for its life
  return std::max(1, std::min(allowed_processors(), quota));
}

namespace {

// Threads that do the work of some number of workers, one by one where they are fewer.
class Crew {
 public:
  // As many helpers as can be started, at most one less than workers.
  explicit Crew(int workers) : workers_(workers), taken_(static_cast<std::size_t>(workers)) {
    threads_.reserve(static_cast<std::size_t>(workers - 1));
    try {
      while (threads() < workers) threads_.emplace_back([this, first = threads()] { serve(first); });
    } catch (const std::system_error&) {  // the process may have no more
    } catch (const std::bad_alloc&) {     // or no memory for one
    }
  }

  ~Crew() {
    stopping_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // The calling one among them.
  int threads() const { return static_cast<int>(threads_.size()) + 1; }

  // By one caller at a time. The first exception that was thrown.
  std::exception_ptr run(FunctionRef<void(int)> body) {
    body_ = &body;
    callers_processor_.store(this_processor(), std::memory_order_relaxed);
    running_.store(workers_, std::memory_order_relaxed);
    const std::uint32_t epoch = epoch_.fetch_add(1, std::memory_order_release) + 1;
    epoch_.notify_all();
    call_from(0, threads(), epoch);
    call_from(1, 1, epoch);  // those whose threads are late: asleep still, or without a processor
    wait_until(running_, [](int running) { return running == 0; });
    return std::exchange(error_, nullptr);
  }

 private:
  // Every worker from `first` on in steps of `stride` that nobody has begun in this run. (A thread's own and
  // its share of those that have no thread: no run begins before all threads are there.)
  void call_from(int first, int stride, std::uint32_t epoch) {
    for (int worker = first; worker < workers_; worker += stride) {
      std::uint32_t last = epoch - 1;  // whoever is later than this run finds another number
      if (!taken_[static_cast<std::size_t>(worker)].run.compare_exchange_strong(last, epoch,
                                                                                std::memory_order_acq_rel))
        continue;
      call(worker);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
    }
  }

  void call(int worker) {
    try {
      (*body_)(worker);
    } catch (...) {
      const std::lock_guard guard(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  void serve(int first) {
    std::uint32_t seen = 0;
    while (true) {
      wait_until(epoch_, [&](std::uint32_t epoch) { return epoch != seen; });
      seen = epoch_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_relaxed)) return;
      leave_the_caller_its_processor();
      call_from(first, threads(), seen);
    }
  }

  // While other processes have the other processors, a thread is woken where its caller is. Both would take
  // turns there, in twice the time, until the system moves one.
  void leave_the_caller_its_processor() const {
    const int callers = callers_processor_.load(std::memory_order_relaxed);
    if (callers == this_processor() && threads() <= processors_) leave_processor(callers);
  }

  struct alignas(64) Taken {
    std::atomic<std::uint32_t> run{0};
  };

  const int workers_;
  const int processors_ = available_processors();
  std::vector<Taken> taken_;  // the run in which each worker was last begun: by the epoch
  std::vector<std::thread> threads_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  const FunctionRef<void(int)>* body_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<int> callers_processor_{-1};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<int> running_{0};
};

// Numbers this process among its forefathers, from 1: a fork's child has the memory and not the threads.
unsigned generation() {
  static std::atomic<unsigned> forks{1};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(registered);  // without the memory for it there is no counting, as before a fork
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

// A crew of this process: the child of a fork gets another when it first needs one.
class Parallel::Pool {
 public:
  explicit Pool(int workers)
      : workers_(workers), generation_(generation()), crew_(std::make_unique<Crew>(workers)) {}

  ~Pool() {
    if (generation_ != generation()) abandon();
  }

  int threads() const { return crew_->threads(); }

  // False if the pool is in use.
  bool try_run(FunctionRef<void(int)> body) {
    // No mutex: a body that calls run again is on the thread that has it already. Who had it before a fork
    // has it no more.
    const unsigned now = generation();
    unsigned holder = holder_.load(std::memory_order_relaxed);
    if (holder == now || !holder_.compare_exchange_strong(holder, now, std::memory_order_acquire))
      return false;
    if (generation_ != now) {
      abandon();
      crew_ = std::make_unique<Crew>(workers_);
      generation_ = now;
    }
    const std::exception_ptr error = crew_->run(body);
    holder_.store(0, std::memory_order_release);
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  // Its threads can be neither joined nor woken, and its mutex may be held for ever.
  void abandon() { static_cast<void>(crew_.release()); }

  const int workers_;
  std::atomic<unsigned> holder_{0};  // the generation that runs, 0 for none
  unsigned generation_;              // of the crew
  std::unique_ptr<Crew> crew_;
};

Parallel::Parallel(int workers, ParallelFor parallel_for)
    : workers_(std::max(1, workers)), parallel_for_(std::move(parallel_for)) {
  if (!parallel_for_ && workers_ > 1) pool_ = std::make_unique<Pool>(workers_);
}

Parallel::~Parallel() = default;

int Parallel::threads() const { return pool_ ? pool_->threads() : parallel_for_ ? workers_ : 1; }

void Parallel::run(FunctionRef<void(int)> body) const {
  const auto in_mode = [body, denormals = FloatMode::denormals()](int worker) {
    const FloatMode mode(denormals);
    body(worker);
  };
  if (parallel_for_) {
    const CallersFloatMode callers;
    parallel_for_(workers_, [&in_mode](int worker) { in_mode(worker); });
    return;
  }
  if (pool_ && pool_->try_run(in_mode)) return;
  for (int worker = 0; worker < workers_; ++worker) in_mode(worker);
}

void Parallel::each(std::int64_t count, FunctionRef<void(std::int64_t, int)> body, std::int64_t grain) const {
  if (count <= grain) {  // not worth waking anybody
    const FloatMode mode(FloatMode::denormals());
    for (std::int64_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  struct alignas(64) Part {  // in a cache line of its own
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  constexpr int kMostParts = 64;
  Part parts[kMostParts];
  const int part_count = std::min(workers_, kMostParts);
  const std::int64_t grains = (count + grain - 1) / grain;
  for (int i = 0; i < part_count; ++i) {
    const Range range = share(grains, i, part_count);
    parts[i].next.store(range.begin * grain, std::memory_order_relaxed);
    parts[i].end = std::min(count, range.end * grain);
  }
  run([&](int worker) {
    for (int i = 0; i < part_count; ++i) {
      Part& part = parts[(worker + i) % part_count];
      while (part.next.load(std::memory_order_relaxed) < part.end) {
        const std::int64_t begin = part.next.fetch_add(grain, std::memory_order_relaxed);
        for (std::int64_t index = begin; index < std::min(part.end, begin + grain); ++index)
          body(index, worker);
      }
    }
  });
}

}  // namespace faltung
