// implicit_gemm_matrix.cl with NVIDIA's matrix units on the CPU beside plain loops, on small
// integers: exactly equal, or it says where not. clang compiles the OpenCL C; what it calls is here.
// tests/implicit_gemm_matrix_test.py defines what the host would, and the sizes.
#include <utility>

#include "tests/lanes/lanes.hpp"

#include "kernels/gpu/convolution.h"

#include "tests/lanes/tensors.hpp"

namespace {

#ifdef DTYPE_f32
using Element = float;
float value_of(float v) { return v; }
Element element_of(float v) { return v; }
#else
using Element = u16;
float value_of(u16 v) { return number(v); }
Element element_of(float v) { return element(v); }
#endif
#ifdef DIRECTION_bwd_d
constexpr bool kGradient = true;
#else
constexpr bool kGradient = false;
#endif
constexpr int kPerWord = 4 / sizeof(Element), kSteps = 8 * kPerWord;

float part_of_word(u32 word, int which) {
#ifdef DTYPE_f32
  return bits_of<float>(word);
#else
  return number(static_cast<u16>(word >> 16 * which));
#endif
}

struct Copy {
  void* to;
  const void* from;
  bool wanted;
};
thread_local std::vector<Copy> open;
thread_local std::vector<std::vector<Copy>> closed;
const unsigned char* rows[64][lanes::kWarp];

}  // namespace

std::size_t get_local_id(unsigned) { return static_cast<std::size_t>(lanes::thread); }
std::size_t get_group_id(unsigned axis) {
  const int blocks[] = {(OUT_PIXELS + BP - 1) / BP, OUT_PAD / BC};
  const int b = lanes::block;
  return static_cast<std::size_t>(axis == 0   ? b % blocks[0]
                                  : axis == 1 ? b / blocks[0] % blocks[1]
                                              : b / blocks[0] / blocks[1]);
}
void barrier(unsigned) { lanes::own->all->arrive_and_wait(); }
extern "C" {
float lanes_load_half(std::size_t i, const _Float16* p) asm("_Z10vload_halfmPU8CLglobalKDh");
float lanes_load_half(std::size_t i, const _Float16* p) { return static_cast<float>(p[i]); }
float lanes_load_private_half(std::size_t i, const _Float16* p) asm("_Z10vload_halfmPU9CLprivateKDh");
float lanes_load_private_half(std::size_t i, const _Float16* p) { return static_cast<float>(p[i]); }
void lanes_store_half(float v, std::size_t i, _Float16* p) asm("_Z15vstore_half_rtefmPU8CLglobalDh");
void lanes_store_half(float v, std::size_t i, _Float16* p) { p[i] = static_cast<_Float16>(v); }
void lanes_store_private_half(float v, std::size_t i, _Float16* p) asm("_Z15vstore_half_rtefmPU9CLprivateDh");
void lanes_store_private_half(float v, std::size_t i, _Float16* p) { p[i] = static_cast<_Float16>(v); }
int lanes_min(int a, int b) asm("_Z3minii");
int lanes_min(int a, int b) { return a < b ? a : b; }
int lanes_max(int a, int b) asm("_Z3maxii");
int lanes_max(int a, int b) { return a > b ? a : b; }

// PTX: an m16n8k16 product of 16-bit elements, or m16n8k8 of 32-bit ones. Row g of a, column g of b, and
// words t and t + 4 of each along the sum are of lane 4 g + t.
void lanes_multiply(const u32* a, const u32* b, float* d) {
  u32(*const shown)[8] = lanes::mine();
  const int lane = lanes::thread % lanes::kWarp;
  std::memcpy(shown[lane], a, 16);
  std::memcpy(shown[lane] + 4, b, 8);
  lanes::together();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < kSteps; ++k) {
      const int word = k / kPerWord;
      d[i] += part_of_word(shown[row % 8 * 4 + word % 4][row / 8 + word / 4 * 2], k % kPerWord) *
              part_of_word(shown[column * 4 + word % 4][4 + word / 4], k % kPerWord);
    }
  }
  lanes::together();
}
// PTX: row r of matrix i is where lane 8 i + r says; lane 4 r + t gets its word t.
void lanes_matrices(const void* from, u32* v) {
  const int lane = lanes::thread % lanes::kWarp;
  if (bits_of<std::uintptr_t>(from) % 16 != 0) std::abort();
  const auto& mine = rows[lanes::thread / lanes::kWarp];
  rows[lanes::thread / lanes::kWarp][lane] = static_cast<const unsigned char*>(from);
  lanes::together();
  for (int i = 0; i < 4; ++i) std::memcpy(v + i, mine[8 * i + lane / 4] + lane % 4 * 4, 4);
  lanes::together();
}
// Copies arrive when they are waited for, no sooner.
void lanes_copy(void* to, const void* from, int wanted) {
  if (bits_of<std::uintptr_t>(to) % 16 != 0 || bits_of<std::uintptr_t>(from) % 16 != 0) std::abort();
  open.push_back({to, from, wanted != 0});
}
void lanes_close_copies() { closed.push_back(std::exchange(open, {})); }
void lanes_wait_for_copies(int pending) {
  for (; closed.size() > static_cast<std::size_t>(pending); closed.erase(closed.begin())) {
    for (const Copy& copy : closed.front()) {
      if (copy.wanted)
        std::memcpy(copy.to, copy.from, 16);
      else
        std::memset(copy.to, 0, 16);
    }
  }
}
void implicit_gemm_matrix(const Element* in, std::size_t, const Element* packed, std::size_t, void* result,
                          std::size_t, const Element* bias, std::size_t, const Element* residual, std::size_t,
                          const float* slopes, std::size_t, int out_pad, int splits, Sizes z);
}

int main() {
  Sizes z{};
  z.n = BATCH, z.c = z.x_pitch = SIZE_C, z.k = z.y_pitch = SIZE_K, z.h = SIZE_H, z.w = SIZE_W;
  z.pad_top = PAD_H, z.pad_left = PAD_W, z.p = SIZE_P, z.q = SIZE_Q;
  z.groups = GROUPS, z.group_c = SIZE_C / GROUPS * (ROWS ? FILTER_S : 1), z.group_k = SIZE_K / GROUPS;
  std::mt19937 engine(1);
  const auto drawn = [&](std::size_t size) {
    Tensor<Element> t(size, element_of(NAN));
    for (std::size_t i = 0; i < size; ++i) t.data[i] = element_of(static_cast<float>(engine() % 5) - 2);
    return t;
  };
  const int group_c = SIZE_C / GROUPS, chunk = 16 / static_cast<int>(sizeof(Element));
#ifdef LAYOUT_nchw
  const auto place = [](int n, int h, int w, int c, int height, int width, int channels) {
    return ((static_cast<std::size_t>(n) * channels + c) * height + h) * width + w;
  };
#else
  const auto place = at;
#endif
  const std::size_t y_size = static_cast<std::size_t>(z.n) * z.p * z.q * z.k;
  const Tensor<Element> x = drawn(static_cast<std::size_t>(z.n) * z.h * z.w * z.c), residual = drawn(y_size),
                        bias = drawn(SIZE_K),
                        w = drawn(static_cast<std::size_t>(z.k) * R * FILTER_S * group_c);
#ifdef DIRECTION_bwd_d
  const int in_group = z.group_k, phases = STRIDE_H * STRIDE_W;
#else
  const int in_group = z.group_c, phases = 1;
#endif
  // As kernels/gpu/pack_chunks.cl does.
  const int chunks = (in_group + chunk - 1) / chunk;
  Tensor<Element> packed(static_cast<std::size_t>(GROUPS) * R * S * chunks * OUT_PAD * chunk, element_of(0));
  for (int k = 0; k < z.k; ++k) {
    for (int r = 0; r < R; ++r) {
      for (int s = 0; s < FILTER_S; ++s) {
        for (int c = 0; c < group_c; ++c) {
          const int tap = ROWS ? r : r * S + s, of_x = ROWS ? s * group_c + c : c, group = k / z.group_k;
          const int step = kGradient ? k % z.group_k : of_x, row = kGradient ? c : k % z.group_k;
          packed.data[((((static_cast<std::size_t>(group) * R * S + tap) * chunks + step / chunk) * OUT_PAD) +
                       row) *
                          chunk +
                      step % chunk] = w.data[at(k, r, s, c, R, FILTER_S, group_c)];
        }
      }
    }
  }
  // Of each product of the convolution, where it belongs.
  const std::size_t x_size = static_cast<std::size_t>(z.n) * z.h * z.w * z.c,
                    out_size = kGradient ? x_size : y_size;
  const Tensor<Element> dy = drawn(y_size);
  std::vector<double> want(out_size);
  for (int n = 0; n < z.n; ++n) {
    for (int p = 0; p < z.p; ++p) {
      for (int q = 0; q < z.q; ++q) {
        for (int k = 0; k < z.k; ++k) {
          const std::size_t in_y = place(n, p, q, k, z.p, z.q, z.k);
          for (int r = 0; r < R; ++r) {
            for (int s = 0; s < FILTER_S; ++s) {
              const int h = p * STRIDE_H - PAD_H + r, v = q * STRIDE_W - PAD_W + s;
              if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
              for (int c = 0; c < group_c; ++c) {
                const std::size_t in_x = place(n, h, v, k / z.group_k * group_c + c, z.h, z.w, z.c);
                const double weight = value_of(w.data[at(k, r, s, c, R, FILTER_S, group_c)]);
                if (kGradient)
                  want[in_x] += weight * value_of(dy.data[in_y]);
                else
                  want[in_y] += weight * value_of(x.data[in_x]);
              }
            }
          }
          if (!kGradient)
            want[in_y] +=
                (HAS_BIAS ? value_of(bias.data[k]) : 0) + (HAS_RESIDUAL ? value_of(residual.data[in_y]) : 0);
        }
      }
    }
  }
#if SPLIT
  Tensor<float> result(out_size * PARTS, NAN);
#else
  Tensor<Element> result(out_size, element_of(NAN));
#endif
  const int blocks = (OUT_PIXELS + BP - 1) / BP * (OUT_PAD / BC) * GROUPS * phases * PARTS;
  lanes::launch(blocks, THREADS, [&] {
    closed.clear();
    implicit_gemm_matrix(kGradient ? dy.data : x.data, 0, packed.data, 0, result.data, 0, bias.data, 0,
                         residual.data, 0, nullptr, 0, OUT_PAD, PARTS, z);
  });
  for (std::size_t i = 0; i < out_size; ++i) {
    double sum = 0;
#if SPLIT
    for (int part = 0; part < PARTS; ++part) sum += result.data[part * out_size + i];
#else
    sum = value_of(result.data[i]);
#endif
    expect(sum, want[i], "result", i);
  }
#if !SPLIT && !defined(DTYPE_f32)
  expect_guards(result);
#endif
  return wrong == 0 ? 0 : 1;
}
