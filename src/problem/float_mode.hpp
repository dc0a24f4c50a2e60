// The floating-point mode of the calling thread. What the library computes must not depend on what its caller
// set there, nor may the caller find it changed.
#ifndef FALTUNG_SRC_PROBLEM_FLOAT_MODE_HPP_
#define FALTUNG_SRC_PROBLEM_FLOAT_MODE_HPP_

#include <cfenv>
#include <cstddef>
#include <cstdint>

namespace faltung {

// Numbers smaller than the smallest normal one: computed with, or taken and given as zero.
enum class Denormals : std::uint8_t { keep, flush };

// What the thread's registers hold: how it rounds, what traps, and which exceptions have been.
struct FloatState {
#if defined(__x86_64__)
  std::uint32_t mxcsr = 0;
  std::uint16_t x87_control = 0;
  std::byte x87[28]{};  // where the control word is another than usual
#elif defined(__aarch64__)
  std::uint64_t fpcr = 0, fpsr = 0;
#else
  std::fenv_t environment;
#endif
};

// While it lives the thread rounds to nearest, nothing traps, and denormals are as said; then all is as it
// was. Every entry of the library has one, and so has every worker.
class FloatMode {
 public:
  explicit FloatMode(Denormals denormals = Denormals::keep);
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

  // Of the innermost on this thread; keep where there is none.
  static Denormals denormals();
  // The exceptions (FE_INVALID and the like; on x86 2 for a denormal operand) that computing met on this
  // thread, in modes that have ended since this was asked last. Nobody else learns of them.
  static int exceptions_met();

 private:
  friend class CallersFloatMode;
  FloatState before_;
  const FloatMode* outer_;
  Denormals denormals_;
};

// While it lives the thread has the mode that it entered the library with: for what calls back.
class CallersFloatMode {
 public:
  CallersFloatMode();
  ~CallersFloatMode();
  CallersFloatMode(const CallersFloatMode&) = delete;
  CallersFloatMode& operator=(const CallersFloatMode&) = delete;

 private:
  bool entered_;  // the library, on this thread
  FloatState library_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_FLOAT_MODE_HPP_
