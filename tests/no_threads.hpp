// A process that can start no thread, so that nobody else's threads are taken to see what happens then.
#ifndef FALTUNG_TESTS_NO_THREADS_HPP_
#define FALTUNG_TESTS_NO_THREADS_HPP_

#include <pthread.h>

#include <cstddef>

namespace faltung {

// While it lives, threads have stacks of more address space than there is.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t beyond;
    pthread_getattr_default_np(&beyond);
    pthread_attr_setstacksize(&beyond, std::size_t{1} << 56);
    pthread_setattr_default_np(&beyond);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_NO_THREADS_HPP_
