// A child process that is spoken to line by line. It does not outlive who started it, whatever happens to
// either.
#ifndef FALTUNG_SRC_FINDER_TRUST_PROCESS_HPP_
#define FALTUNG_SRC_FINDER_TRUST_PROCESS_HPP_

#include <sys/types.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

namespace faltung {

class LineProcess {
 public:
  // command: the program's path and its arguments. Its standard input and output are one socket; its standard
  // error is kept, for complaint(). Throws Error(device_error) if no process can be made.
  explicit LineProcess(std::vector<std::string> command);
  // Kills it and everything it started.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // False if it is gone.
  bool send(const std::string& line);
  enum class Got { line, end, nothing };
  // Waits so long for a line, what the process itself waited for a processor not counted; end: the process
  // closed its output.
  Got receive(std::string& line, double wait_ms);

  struct End {
    bool gone = true;  // false: not even a kill ended it; the system reaps it later
    int signal = 0;    // that ended it; 0 if it returned
    int code = 0;      // that it returned
    bool by_us = false;
    std::string words() const;  // "was ended by signal 11 (Segmentation fault)"
  };
  // Gives it a moment to end by itself, then kills it.
  End end(double grace_ms);

  // The last line that it wrote to standard error since the last send; may be empty.
  std::string complaint() const;
  pid_t pid() const { return pid_; }

 private:
  bool reap(End& end);
  struct Times {
    double ran_ms = 0, waited_ms = 0;  // on a processor, and for one
    bool is_runnable = false;          // does either now
  };
  Times times() const;

  int socket_ = -1, errors_ = -1;
  pid_t pid_ = -1;
  bool reaped_ = false;
  std::string buffer_;
  // The system ends a child with the *thread* that made it, so one thread is kept for that alone.
  std::thread keeper_;
  std::promise<void> release_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_PROCESS_HPP_
