// The words of the portable kernels for the CPU, a thread for each of a block's, one block after the other:
// to run kernels of CUDA's whose instructions for matrices tests/lanes/kernels/gpu/ says in C++.
#pragma once
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
struct uint4 {
  u32 x, y, z, w;
};

namespace lanes {
constexpr int kWarp = 32, kMostBlocks = 8;  // of a cluster, which run side by side
// What a block has.
struct Block {
  alignas(128) unsigned char memory[256 << 10];
  u32 words[64][kWarp][8];  // what the lanes of a warp show each other
  std::unique_ptr<std::barrier<>> all;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
};
inline Block blocks[kMostBlocks];
inline std::unique_ptr<std::barrier<>> cluster;
inline thread_local int thread = 0, block = 0;
inline thread_local Block* own = nullptr;

inline u32 (*mine())[8] { return own->words[thread / kWarp]; }
inline void together() { own->warps[static_cast<std::size_t>(thread / kWarp)]->arrive_and_wait(); }

// Local memory is NaN when a block begins. `side` blocks are a cluster, which `count` is a multiple of. The
// last is first: what a block writes behind its own results the next one does not write over.
template <class Kernel>
void launch(int count, int threads, Kernel kernel, int side = 1) {
  cluster = std::make_unique<std::barrier<>>(side * threads);
  for (int rank = 0; rank < side; ++rank) {
    Block& b = blocks[rank];
    b.all = std::make_unique<std::barrier<>>(threads);
    b.warps.clear();
    for (int i = 0; i < threads / kWarp; ++i) b.warps.push_back(std::make_unique<std::barrier<>>(kWarp));
  }
  std::vector<std::thread> pool;
  for (int i = 0; i < side * threads; ++i) {
    pool.emplace_back([=] {
      const int rank = i / threads;
      thread = i % threads, own = &blocks[rank];
      for (block = count - side + rank; block >= 0; block -= side) {
        if (thread == 0) std::memset(own->memory, 0xff, sizeof own->memory);
        cluster->arrive_and_wait();
        kernel();
        cluster->arrive_and_wait();
      }
    });
  }
  for (std::thread& t : pool) t.join();
}
}  // namespace lanes

#define local_memory lanes::own->memory
#define __align__(bytes) alignas(bytes)
#define F_GLOBAL
#define F_LOCAL
#define F_DEVICE [[maybe_unused]] static
#define F_KERNEL(threads) static void
#define F_DENSE_KERNEL(threads, blocks) static void
#define F_INPUT(type, name) const type* name##_buffer
#define F_OUTPUT(type, name) type* name##_buffer
#define F_OPEN_INPUT(type, name) const type* const name = name##_buffer
#define F_OPEN_OUTPUT(type, name) type* const name = name##_buffer
#define F_BARRIER() lanes::own->all->arrive_and_wait()
#define F_FOLLOW_PREVIOUS()
#define F_LET_NEXT_BEGIN()
#define F_WAIT_FOR_PREVIOUS()
#define F_BLOCK(axis) lanes::block
#define F_THREAD() lanes::thread
#define F_ALIGNED16 alignas(16)
#define F_UNROLL
#define F_UNROLL_TWICE
#define F_NO_UNROLL
#define F_EXP(x) expf(x)
#define F_ERF(x) erff(x)
#define F_TANH(x) tanhf(x)

template <class To, class From>
To bits_of(From v) {
  To to;
  static_assert(sizeof to == sizeof v);
  std::memcpy(&to, &v, sizeof v);
  return to;
}
#define F_BITS(x) bits_of<u32>(x)
#define F_FROM_BITS(x) bits_of<float>(x)

inline float load_f16(const u16* p, i64 i) { return static_cast<float>(bits_of<_Float16>(p[i])); }
inline void store_f16(u16* p, i64 i, float v) { p[i] = bits_of<u16>(static_cast<_Float16>(v)); }
inline float low_f16(u32 word) { return static_cast<float>(bits_of<_Float16>(static_cast<u16>(word))); }
inline float high_f16(u32 word) { return low_f16(word >> 16); }
inline u32 pair_f16(float low, float high) {
  return bits_of<u16>(static_cast<_Float16>(low)) |
         static_cast<u32>(bits_of<u16>(static_cast<_Float16>(high))) << 16;
}
inline void load4_u16(const u16* p, u16* v) { std::memcpy(v, p, 8); }
inline void store4_u16(u16* p, const u16* v) { std::memcpy(p, v, 8); }
inline void load8_u16(const u16* p, u16* v) { std::memcpy(v, p, 16); }
inline void store8_u16(u16* p, const u16* v) { std::memcpy(p, v, 16); }
