// The CPU's workers: faltung's own threads, or the caller's parallel_for.
#ifndef FALTUNG_SRC_BACKEND_PARALLEL_HPP_
#define FALTUNG_SRC_BACKEND_PARALLEL_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "faltung/faltung.hpp"

namespace faltung {

// How many processors this process may use, by its affinity and by the quotas of its control groups.
int available_processors();

// A callable that is borrowed for the time of a call: unlike std::function it never allocates.
template <class Signature>
class FunctionRef;

template <class... Arguments>
class FunctionRef<void(Arguments...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable&& callable)  // implicit: made from a lambda at the call
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* target, Arguments... arguments) {
          (*static_cast<std::remove_reference_t<Callable>*>(target))(arguments...);
        }) {}
  void operator()(Arguments... arguments) const { call_(callable_, arguments...); }

 private:
  void* callable_;
  void (*call_)(void*, Arguments...);
};

class Parallel {
 public:
  // workers threads, the calling one among them. With a parallel_for of the caller's, no thread is created.
  explicit Parallel(int workers, ParallelFor parallel_for = {});
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  int workers() const { return workers_; }
  // How many threads do their work, the calling one among them: fewer than workers() where not all could be
  // started. With a parallel_for of the caller's, workers().
  int threads() const;

  // Calls body(0) ... body(workers() - 1), possibly at the same time. The number is the worker's, for its
  // part of the work and of the scratch memory. The first exception is rethrown here. If another thread is
  // using these workers, the calls are made one after the other on this thread: never more threads than were
  // asked for. All compute in the library's floating-point mode, with denormals as the caller has them, and a
  // parallel_for of the caller's is called in the mode that its thread entered the library with.
  void run(FunctionRef<void(int worker)> body) const;

  // Calls body(index, worker) for every index in [0, count), `grain` at a time: each worker those of its own
  // part of the indices in order, so that what one step writes is in the caches of who reads it in the next,
  // and then what is left of others' parts. Which worker gets which index varies from run to run, so results
  // must not depend on it.
  void each(std::int64_t count, FunctionRef<void(std::int64_t index, int worker)> body,
            std::int64_t grain = 1) const;

 private:
  class Pool;
  int workers_;
  ParallelFor parallel_for_;
  std::unique_ptr<Pool> pool_;
};

// The part of [0, count) that worker gets when the work is split evenly.
struct Range {
  std::int64_t begin, end;
};
inline Range share(std::int64_t count, int worker, int workers) {
  return {count * worker / workers, count * (worker + 1) / workers};
}

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_PARALLEL_HPP_
