#include "kernels/cpu/ceilings.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/features.hpp"

#include "kernels/cpu/each_target.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// rounds × 12 independent multiply-adds; returns the operations done (two a multiply-add).
double RunFma(long rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  // Different starts: equal chains would be computed once.
  const auto start = [&](int i) { return hn::Set(d, static_cast<float>(i)); };
  V s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5), s6 = start(6),
    s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (long i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b),
    s3 = hn::MulAdd(s3, a, b);
    s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b), s6 = hn::MulAdd(s6, a, b),
    s7 = hn::MulAdd(s7, a, b);
    s8 = hn::MulAdd(s8, a, b), s9 = hn::MulAdd(s9, a, b), s10 = hn::MulAdd(s10, a, b),
    s11 = hn::MulAdd(s11, a, b);
  }
  const V sum = hn::Add(
      hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
      hn::Add(hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)), hn::Add(hn::Add(s8, s9), hn::Add(s10, s11))));
  *sink = hn::GetLane(sum);
  return 2.0 * 12 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {
namespace {

HWY_EXPORT(RunFma);

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Of one run of work(worker), which returns how much it did: amount a second, all workers together.
template <class Work>
double rate(const Parallel& parallel, const Work& work) {
  std::vector<double> amounts(static_cast<std::size_t>(parallel.workers()));
  const auto begin = Clock::now();
  parallel.run([&](int worker) { amounts[static_cast<std::size_t>(worker)] = work(worker); });
  const double seconds = seconds_since(begin);
  return std::accumulate(amounts.begin(), amounts.end(), 0.0) / seconds;
}

// Of the best run. Runs are short and many: on a machine that others use, what slows one may last as long as
// ten of them.
template <class Run>
double best_of_many(const Run& run) {
  constexpr double kSeconds = 0.3;
  double best = 0;
  const auto first = Clock::now();
  while (best == 0 || seconds_since(first) < kSeconds) best = std::max(best, run());
  return best;
}

double multiply_adds(long rounds) {
  float sink;
  return HWY_DYNAMIC_DISPATCH(RunFma)(rounds, &sink);
}

#if defined(__x86_64__)
// Not in Highway 1.0.3, so the instruction itself. Two products a lane and instruction, four operations.
__attribute__((target("avx512f"))) double run_bf16_dot(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    asm volatile(
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm0\n vdpbf16ps %%zmm12, %%zmm13, %%zmm1\n"
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm2\n vdpbf16ps %%zmm12, %%zmm13, %%zmm3\n"
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm4\n vdpbf16ps %%zmm12, %%zmm13, %%zmm5\n"
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm6\n vdpbf16ps %%zmm12, %%zmm13, %%zmm7\n"
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm8\n vdpbf16ps %%zmm12, %%zmm13, %%zmm9\n"
        "vdpbf16ps %%zmm12, %%zmm13, %%zmm10\n vdpbf16ps %%zmm12, %%zmm13, %%zmm11\n" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
              "xmm11");
  }
  return 4.0 * 12 * 16 * static_cast<double>(rounds);
}
#endif

// So many additions, each of what the one before it gave: a cycle each.
void add_in_turn(long count) {
  std::uint64_t sum = 0;
  const std::uint64_t one = 1;
  for (long i = 0; i < count; i += 10) {
#if defined(__x86_64__)
    asm volatile(
        "add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n"
        "add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n"
        : "+r"(sum)
        : "r"(one));
#elif defined(__aarch64__)
    asm volatile(
        "add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n"
        "add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n"
        : "+r"(sum)
        : "r"(one));
#endif
  }
}

// The clock that a processor has behind such work, before it can change: the highest of a few times, since
// others disturb. 0 where no such chain is written.
template <class Work>
double mhz_after(const Parallel& parallel, const Work& work) {
  double best = 0;
#if defined(__x86_64__) || defined(__aarch64__)
  constexpr long kAdditions = 30'000;
  for (int run = 0; run < 10; ++run) {
    parallel.run([&](int worker) {
      work();
      if (worker != 0) return;
      const auto begin = Clock::now();
      add_in_turn(kAdditions);
      best = std::max(best, 1e-6 * kAdditions / seconds_since(begin));
    });
  }
#endif
  return best;
}

}  // namespace

Ceilings measure_cpu_ceilings(const Parallel& parallel) {
  Ceilings ceilings;
  constexpr long kRounds = 1'000'000;
  const Rate f32{best_of_many([&] { return multiply_add_gflops(parallel, kRounds); }),
                 mhz_after(parallel, [] { multiply_adds(kRounds); })};
  ceilings.f32 = ceilings.tf32 = ceilings.f16 = ceilings.bf16 = f32;
#if defined(__x86_64__)
  if (has_avx512_bf16()) {
    // Some cores have the instruction at so low a rate that converting to fp32 is the faster way.
    const double bf16 =
        best_of_many([&] { return 1e-9 * rate(parallel, [](int) { return run_bf16_dot(kRounds); }); });
    if (bf16 > f32.gflops) ceilings.bf16 = {bf16, mhz_after(parallel, [] { run_bf16_dot(kRounds); })};
  }
#endif
  Copies copies;
  ceilings.copy_gbps = best_of_many([&] { return copies.gbps(parallel, Copies::kBytes); });
  return ceilings;
}

double Copies::gbps(const Parallel& parallel, std::size_t bytes) {
  if (next_ + bytes > kBytes) next_ = 0;
  const std::size_t begin = std::exchange(next_, next_ + bytes);
  return 1e-9 * rate(parallel, [&](int worker) {
           const Range part = share(static_cast<std::int64_t>(bytes), worker, parallel.workers());
           const std::size_t size = static_cast<std::size_t>(part.end - part.begin);
           std::memcpy(to_.data() + begin + part.begin, from_.data() + begin + part.begin, size);
           return 2.0 * static_cast<double>(size);
         });
}

double multiply_add_gflops(const Parallel& parallel, long rounds) {
  return 1e-9 * rate(parallel, [rounds](int) { return multiply_adds(rounds); });
}

}  // namespace faltung
#endif  // HWY_ONCE
