// The hostile suite: what an enemy, or a bad day, does to a program that uses faltung. Parts, each with a
// seed and a number of seconds; a part that finds something prints what repeats it and returns false.
#ifndef FALTUNG_TESTS_HOSTILE_HOSTILE_HPP_
#define FALTUNG_TESTS_HOSTILE_HOSTILE_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>

#include "faltung/faltung.h"

namespace faltung::hostile {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::uint64_t bits() { return random_(); }
  // In [first, last].
  int between(int first, int last) {
    return first + static_cast<int>(random_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<int>(values.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

struct Setting {
  std::uint64_t seed = 1;
  std::uint64_t only_turn = 0;  // of a part whose turns are numbered; 0: all that there is time for
  double seconds = 60;
  std::string device = "cpu";
  std::string values;     // of differential: one kind of inputs alone; empty: all
  std::string directory;  // of the part's own
};

// True until the part's time is over; counts the turns. A turn's number seeds all of it, so that it is
// repeated by itself.
class Clock {
 public:
  explicit Clock(const Setting& setting)
      : seconds_(setting.only_turn == 0 ? setting.seconds : 0),
        first_(setting.only_turn == 0 ? setting.seed * 1000003 : setting.only_turn) {}
  bool goes_on() {
    if (++turns_ == 1) return true;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() < seconds_;
  }
  std::uint64_t turn() const { return first_ + static_cast<std::uint64_t>(turns_) - 1; }
  int turns() const { return turns_ - 1; }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double seconds_;
  std::uint64_t first_;
  int turns_ = 0;
};

// The C interface's handles.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using ProblemHandle = std::unique_ptr<faltung_problem, Destroy<faltung_problem_destroy>>;
using EngineHandle = std::unique_ptr<faltung_engine, Destroy<faltung_engine_destroy>>;
using PlanHandle = std::unique_ptr<faltung_plan, Destroy<faltung_plan_destroy>>;
using WeightsHandle = std::unique_ptr<faltung_weights, Destroy<faltung_weights_destroy>>;
using ChoiceHandle = std::unique_ptr<faltung_choice, Destroy<faltung_choice_destroy>>;
using PoolHandle = std::unique_ptr<faltung_memory_pool, Destroy<faltung_memory_pool_destroy>>;

// A handle that make(&raw) makes; null if it does not, and faltung_last_error says why.
template <class Handle, class Make>
Handle made(const Make& make) {
  typename Handle::pointer raw = nullptr;
  return Handle(make(&raw) == FALTUNG_OK ? raw : nullptr);
}
inline EngineHandle engine_of(const std::string& store) {
  return made<EngineHandle>([&](auto** e) { return faltung_engine_create(store.c_str(), e); });
}
inline ProblemHandle problem_of(const std::string& text) {
  return made<ProblemHandle>([&](auto** p) { return faltung_problem_create(text.c_str(), p); });
}

// The text of a small problem, any field of which may be anything; it may be refused.
std::string roll_problem(Dice& dice);
// One that is not.
ProblemHandle roll_valid_problem(Dice& dice);

// Random problems on random kernels between guard pages, against the reference.
bool differential(const Setting& setting);
// Many threads on one engine, amid signals, and forks.
bool threads(const Setting& setting);
// Processes that may have next to nothing: memory, threads, descriptors, file sizes.
bool limits(const Setting& setting);
// Stores and locks whose checksums are right and whose content is not.
bool forged(const Setting& setting);
// Three processes on one store, that are killed now and then.
bool writers(const Setting& setting);

}  // namespace faltung::hostile

#endif  // FALTUNG_TESTS_HOSTILE_HOSTILE_HPP_
