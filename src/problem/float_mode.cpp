#include "src/problem/float_mode.hpp"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace faltung {
namespace {

thread_local const FloatMode* innermost = nullptr;
thread_local int met = 0;

#if defined(__x86_64__)

constexpr std::uint32_t kUsual = 0x1f80;       // to nearest, nothing traps
constexpr std::uint32_t kFlush = 0x8040;       // results and operands
constexpr std::uint16_t kUsualX87 = 0x37f;     // likewise, in extended precision
static_assert(sizeof(FloatState::x87) == 28);  // as fnstenv stores it

std::uint16_t x87_control() {
  std::uint16_t word;
  asm volatile("fnstcw %0" : "=m"(word));
  return word;
}

FloatState state() {
  FloatState s;
  s.mxcsr = _mm_getcsr();
  s.x87_control = x87_control();
  return s;
}

// The x87 unit has its usual mode nearly always, and its environment is slow to keep.
void enter(FloatState& before, Denormals denormals) {
  before = state();
  const std::uint32_t own = kUsual | (denormals == Denormals::flush ? kFlush : 0);
  if (before.mxcsr != own) _mm_setcsr(own);
  if (before.x87_control == kUsualX87) return;
  asm volatile("fnstenv %0" : "=m"(before.x87));
  asm volatile("fldcw %0" : : "m"(kUsualX87));
}

int exceptions() { return static_cast<int>(_mm_getcsr() & 0x3f); }

void restore(const FloatState& s) {
  if (_mm_getcsr() != s.mxcsr) _mm_setcsr(s.mxcsr);
  if (s.x87_control != kUsualX87) {
    asm volatile("fldenv %0" : : "m"(s.x87));
  } else if (x87_control() != kUsualX87) {
    asm volatile("fldcw %0" : : "m"(kUsualX87));
  }
}

#elif defined(__aarch64__)

FloatState state() {
  FloatState s;
  asm volatile("mrs %0, fpcr" : "=r"(s.fpcr));
  asm volatile("mrs %0, fpsr" : "=r"(s.fpsr));
  return s;
}

int exceptions() { return static_cast<int>(state().fpsr & 0x1f); }

void restore(const FloatState& s) {
  asm volatile("msr fpcr, %0" : : "r"(s.fpcr));
  asm volatile("msr fpsr, %0" : : "r"(s.fpsr));
}

void enter(FloatState& before, Denormals denormals) {
  constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
  before = state();
  const std::uint64_t own = denormals == Denormals::flush ? kFlush : 0;
  if (before.fpcr != own) asm volatile("msr fpcr, %0" : : "r"(own));
}

#else

FloatState state() {
  FloatState s;
  std::fegetenv(&s.environment);
  return s;
}

int exceptions() { return std::fetestexcept(FE_ALL_EXCEPT); }

void restore(const FloatState& s) { std::fesetenv(&s.environment); }

// The processor's own way to flush denormals is not known here.
void enter(FloatState& before, Denormals) {
  before = state();
  std::fesetenv(FE_DFL_ENV);
}

#endif

}  // namespace

FloatMode::FloatMode(Denormals denormals) : outer_(innermost), denormals_(denormals) {
  enter(before_, denormals);
  innermost = this;
}

FloatMode::~FloatMode() {
  innermost = outer_;
  met |= exceptions();
  restore(before_);
}

Denormals FloatMode::denormals() { return innermost == nullptr ? Denormals::keep : innermost->denormals_; }

int FloatMode::exceptions_met() { return std::exchange(met, 0); }

CallersFloatMode::CallersFloatMode() : entered_(innermost != nullptr), library_(state()) {
  if (!entered_) return;
  const FloatMode* outermost = innermost;
  while (outermost->outer_ != nullptr) outermost = outermost->outer_;
  restore(outermost->before_);
}

CallersFloatMode::~CallersFloatMode() {
  if (entered_) restore(library_);
}

}  // namespace faltung
