// Watches threads that are meant to end: when nothing moves any more it says where each of them stands.
#ifndef FALTUNG_TESTS_HOSTILE_WATCH_HPP_
#define FALTUNG_TESTS_HOSTILE_WATCH_HPP_

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <system_error>
#include <thread>

namespace faltung::hostile {

// The calls that the thread is in, as addresses of the program: for a handler of signals.
inline void print_calls() {
  void* calls[64];
  ::backtrace_symbols_fd(calls, ::backtrace(calls, 64), STDERR_FILENO);
}

// What a thread does at present.
class Doing {
 public:
  void step(const char* what, const char* with = "") {
    what_ = what;
    with_ = with;
    steps_.fetch_add(1, std::memory_order_relaxed);
  }
  const char* what() const { return what_; }
  const char* with() const { return with_; }
  long steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  std::atomic<const char*> what_{"starting"}, with_{""};
  std::atomic<long> steps_{0};
};

class Watched {
 public:
  Watched() {
    void* none[1];
    ::backtrace(none, 1);  // what it loads is loaded before anybody is in a handler
    struct sigaction action {};
    action.sa_handler = [](int) { print_calls(); };
    ::sigaction(SIGUSR2, &action, nullptr);
  }

  // False if the system has no thread for it.
  bool start(const std::function<void(Doing&)>& body) {
    One& one = all_.emplace_back();
    try {
      one.thread = std::thread([&one, body] {
        body(one.doing);
        one.doing.step("ended");
        one.ended = true;
      });
      return true;
    } catch (const std::system_error&) {
      all_.pop_back();
      return false;
    }
  }

  void signal_each(int signal) {
    for (One& one : all_) ::pthread_kill(one.thread.native_handle(), signal);
  }

  // To be called often. Ends the program if no thread has gone a step further for longer than any single step
  // can take: by the steps, not by the time that is over, for a machine may be as slow as it likes.
  void look() {
    long steps = 0;
    for (const One& one : all_) steps += one.doing.steps();
    const auto now = std::chrono::steady_clock::now();
    if (steps != steps_) {
      steps_ = steps;
      moved_ = now;
    } else if (now - moved_ > kPatience) {
      say_and_end();
    }
  }

  void join() {
    for (One& one : all_) {
      while (!one.ended) {
        look();
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      one.thread.join();
    }
  }

 private:
  static constexpr std::chrono::seconds kPatience{300};

  struct One {
    Doing doing;
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  [[noreturn]] void say_and_end() {
    std::fprintf(stderr, "nothing has moved for %d s:\n", static_cast<int>(kPatience.count()));
    int number = 0;
    for (One& one : all_) {
      std::fprintf(stderr, "thread %d after %ld steps: %s %s\n", number++, one.doing.steps(),
                   one.doing.what(), one.doing.with());
      if (one.ended) continue;
      ::pthread_kill(one.thread.native_handle(), SIGUSR2);
      ::usleep(200'000);
    }
    ::_exit(1);
  }

  std::deque<One> all_;
  long steps_ = -1;
  std::chrono::steady_clock::time_point moved_;
};

}  // namespace faltung::hostile

#endif  // FALTUNG_TESTS_HOSTILE_WATCH_HPP_
