// The text of Hopper's kernels: their constants, and wgmma as a function.
#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/jit/jit.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// One wgmma of 64 x n x 16 as a function of n / 2 sums a thread. turned: 1 of the first operand the rows, 2
// of the second the columns, not its depth, lie side by side.
std::string mma_function(int n, DType dtype, int turned) {
  const std::string type = dtype == DType::f32 ? "tf32" : name(dtype);
  std::string operands, outputs;
  const int sums = n / 2;
  for (int i = 0; i < sums; ++i) {
    operands += (i > 0 ? ", %" : "%") + std::to_string(i);
    outputs += (i > 0 ? ", \"+f\"(d[" : "\"+f\"(d[") + std::to_string(i) + "])";
  }
  const auto operand = [&](int i) { return "%" + std::to_string(sums + i); };
  return "__device__ __forceinline__ void mma(float (&d)[" + std::to_string(sums) +
         "], unsigned long long a, unsigned long long b, int accumulate) {\n"
         "  asm volatile(\"{.reg .pred p; setp.ne.b32 p, " +
         operand(2) + ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) +
         (dtype == DType::f32 ? "k8.f32." : "k16.f32.") + type + "." + type + " {" + operands + "}, " +
         operand(0) + ", " + operand(1) + ", p, 1, 1" +
         (dtype == DType::f32 ? ""
          : turned == 1       ? ", 1, 0"
          : turned == 2       ? ", 0, 1"
                              : ", 0, 0") +
         ";}\"\n      : " + outputs + "\n      : \"l\"(a), \"l\"(b), \"r\"(accumulate));\n}\n";
}

}  // namespace

int pixels_a_store(const Tiling& t, const Problem& p) {
  int v = 16 / size_of(p.dtype);
  const auto divides = [&](int by) {
    return t.im2col ? p.p() * p.q() % by == 0 : p.y_w() % by == 0 && pooled_extent(t.width, p) % by == 0;
  };
  while (!divides(v)) v /= 2;
  return v;
}

KernelSource kernel_source(const Tiling& t, const Problem& p) {
  std::string constants;
  const auto define = [&](const char* name, i64 value) {
    constants += "#define " + std::string(name) + " " + std::to_string(value) + "\n";
  };
  const i64 blocks = (padded_channels(p) + t.k_block - 1) / t.k_block;
  define("F_IM2COL", t.im2col);
  define("F_PLANES", t.planes), define("F_FETCH", t.fetch);
  define("F_WHOLE", fetch::whole_images(t, p) && t.split == 1);
  define("F_EVEN", (t.im2col ? p.p() * p.q() : p.q()) % 2 == 0);
  if (t.fetch)
    define("F_TAKEN", fetch::pixels_a_load(p)),
        define("F_STEP", fetch::pixels_a_load(p) > 1 ? p.stride_w : 1),
        define("F_ODD", fetch::odd_images(t, p));
  define("F_SWAP", t.pixels_on_m);
  define("F_COOP", t.cooperative);
  define("F_MT", t.m_blocks());
  define("F_NB", t.n_blocks());
  define("F_N", t.n());
  define("F_KB", t.k_block);
  define("F_TH", t.height);
  define("F_R", p.r);
  define("F_S", p.s);
  define("F_DIL_H", p.dilation_h);
  define("F_DIL_W", p.dilation_w);
  define("F_SLOTS", t.slots);
  define("F_STAGES", t.resident ? p.r * p.s * blocks : t.stages);
  define("F_RESIDENT", t.resident);
  // Of taps, or of their rows.
  define("F_UNROLL", !t.resident ? 1 : t.shift ? p.r : p.r * p.s <= 9 ? p.r * p.s : 1);
  define("F_U", t.unit());
  if (t.shift) {
    define("F_W", t.width), define("F_PAD_LEFT", p.pad_left);
    define("F_WALKS", shift::windows(t, p) > 1), define("F_BULK", shift::stores_in_bulk(p));
  }
  define("F_BF16", p.dtype == DType::bf16);
  define("F_BIAS", p.epilogue.bias);
  define("F_RESIDUAL", p.epilogue.residual);
  define("F_POOL", p.epilogue.pool.kind == PoolKind::none  ? 0
                   : p.epilogue.pool.kind == PoolKind::max ? 1
                                                           : 2);
  const Pool& pool = p.epilogue.pool;
  define("F_WINDOW", pool_window(p)), define("F_POOL_PAD", pool.pad_top);
  define("F_POOL_END_H", pool.pad_bottom), define("F_POOL_END_W", pool.pad_right);
  define("F_TF32", tf32_parts(p));
  define("F_PLAIN", plain_stores(p));
  define("F_NCHW", p.layout == Layout::nchw);
  define("F_V", pixels_a_store(t, p));
  if (!t.shift) define("F_BULK", stores_by_map(t, p));
  define("F_TURNED", t.turned), define("F_RAWS", t.raws);
  if (t.turned) define("F_PAD_LEFT", p.pad_left), define("F_RUN", pixels_turned_at_once(p));
  define("F_RAW_PITCH", t.raws > 0 ? raw_pitch(t, p) : 0), define("F_RAW_WHOLE", raw_whole(t, p));
  define("F_RAW_ALIKE", p.h * p.w * 2 % 16 == 0);
  define("F_DIRECT", t.direct), define("F_SPLIT", t.split), define("F_STAGED", t.staged);
  define("F_STRIDE_H", t.im2col ? 1 : p.stride_h), define("F_STRIDE_W", t.im2col ? 1 : p.stride_w);
  define("F_SMEM", shared_bytes(t, p));
  constants += "#define F_ACTIVATION(x, a) activate_" + std::string(name(p.epilogue.activation)) + "(x, a)\n";
  const int turned = t.planes && t.pixels_on_m ? 1 : t.planes || t.fetch || t.shift ? 2 : 0;
  constants += mma_function(t.n(), p.dtype, turned);
  KernelSource source;
  source.name = "implicit_gemm_sm90/" + to_string(t);
  source.block_threads = t.shift ? 384 : threads(t, p);
  source.shared_bytes = static_cast<int>(shared_bytes(t, p));
  source.entry = t.shift ? "shift_gemm" : "implicit_gemm";
  source.text = jit::translation_unit(constants, "kernels/sm90/" + source.entry + ".cu");
  return source;
}

}  // namespace faltung::sm90
