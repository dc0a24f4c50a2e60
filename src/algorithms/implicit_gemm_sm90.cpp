// Forward convolution on Hopper's matrix units; the kernels are kernels/sm90/implicit_gemm.cu, whose input
// is NHWC with pixels of a multiple of 16 bytes (what comes otherwise is brought into that form by a step
// before it), and shift_gemm.cu, which takes 16-bit NCHW as it is.
#include "src/algorithms/implicit_gemm_sm90.hpp"

#include <algorithm>
#include <limits>

#include "src/algorithms/implicit_gemm_sm90_maps.hpp"
#include "src/algorithms/implicit_gemm_sm90_steps.hpp"
#include "src/algorithms/registry.hpp"
#include "src/backend/cuda.hpp"
#include "src/jit/jit.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace sm90 {
namespace {

// As in the kernels.
struct Params {
  const void* bias;
  const void* residual;
  void* y;
  int k, p, q;
  int pixels;
  int tiles, k_tiles, c_blocks;
  int tiles_w, tiles_h;
  int pad_top, pad_left, stride_h, stride_w;
  float slope;
  const void* x;
  int c, h, w;
  int step;
  unsigned per_image;
};

struct ShiftParams {
  const void* bias;
  const void* residual;
  void* y;
  int k, p, q;
  int strips, k_tiles, c_blocks;
  int windows, tiles_h;
  int pad_top;
  float slope;
};

struct ShiftMaps {
  TensorMap y, y_aside, residual, residual_aside;
};

}  // namespace
}  // namespace sm90

namespace {

using sm90::Tiling;
using std::int64_t;

class ImplicitGemmSm90 : public Algorithm {
 public:
  std::string_view name() const override { return "implicit_gemm_sm90"; }
  std::string_view description() const override {
    return "implicit GEMM on Hopper's matrix units, forward; fp32 by three tf32 products";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& p, const Target& target) const override {
    if (!target.device.info().has("sm_90a"))
      return Support::declined("needs a Hopper GPU (compute capability 9.0)");
    if (!target.device.info().has("nvrtc")) return Support::declined("needs NVRTC to compile its kernels");
    return serves(p);
  }

  // Three products of rounded parts leave out up to 2^-21 of each term, eight times fp32's rounding unit; the
  // matrix units cut, not round, each partial sum. A chain of this many fp32 multiply-adds may be as far off.
  static constexpr int64_t kShortest = 48;

  // What does not depend on the device.
  static Support serves(const Problem& p) {
    if (p.direction != Direction::forward) return Support::declined("forward only");
    if (p.groups != 1) return Support::declined("no groups");
    if (p.dtype != DType::f32 && p.math == Math::f32)
      return Support::declined("16-bit tensors in f16 or bf16 math only");
    if (p.dtype == DType::f32 && p.math == Math::f32 && reduction_length(p) < kShortest)
      return Support::declined("in three tf32 products a sum of fewer than " + std::to_string(kShortest) +
                               " terms is not as good as fp32");
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    if (p.n * p.p() * p.q() > kMost / 2 || p.n > kMost || p.k > kMost / 2)
      return Support::declined("more than 2^30 output pixels or channels");
    if (sm90::tilings(convolution(p)).empty()) {
      Tiling small;
      small.im2col = p.stride_h != 1 || p.stride_w != 1;
      small.height = 8;
      if (small.im2col) small.width = 64, small.height = 1, small.slots = small.stages = 2;
      const std::string why = sm90::unfit(small, convolution(p));
      return Support::declined(why.empty() ? "no tiling fits" : why);
    }
    return Support::supported();
  }

  // Where less than tf32 is allowed its two rounded operands come on top.
  Accuracy accuracy(const Problem& p, const std::string&) const override {
    constexpr double kRounded = 0x1p14 + 4;  // 2 2^-11 + 2^-22 in units of 2^-24
    const bool rounds = p.dtype == DType::f32 && p.math == Math::fast;
    return {dot_product_growth(p) + (rounds ? kRounded : 0), 0, 0};
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> all;
    list(p, Form::plain, target, all);
    if (sm90::folds(p)) list(p, Form::folded, target, all);
    if (sm90::deepens(p)) list(p, Form::deepened, target, all);
    std::stable_sort(all.begin(), all.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return all;
  }

  bool fuses_pool(const Problem& p, const std::string& config) const override {
    const Chosen chosen = choose(p, config);
    return fusable(p) && sm90::unfit(chosen.tiling, chosen.problem).empty();
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target& target) const override {
    const Chosen chosen = choose(problem, config);
    const Tiling t = chosen.tiling;
    const Problem p = chosen.problem;  // as the kernel sees it
    const bool gathers = chosen.form != Form::plain;
    const auto gather = chosen.form == Form::folded ? sm90::gather : sm90::space_to_depth;
    if (const std::string why = sm90::unfit(t, p); !why.empty())
      throw Error(Status::bad_problem,
                  "implicit_gemm_sm90/" + config + " cannot compute " + to_string(problem) + ": " + why);
    auto* device = dynamic_cast<CudaDevice*>(&target.device);
    if (device == nullptr) throw Error(Status::unsupported, "implicit_gemm_sm90 runs on CUDA devices alone");
    // Whatever the copy engine cannot address shows here, not in a run.
    void* const sample = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
    if (!sm90::reads_input(t, p)) sm90::x_map(*device, t, p, sample);
    sm90::w_map(*device, t, p, sample);
    if (sm90::stores_by_map(t, p)) sm90::y_map(*device, t, p, sample);

    Recipe recipe;
    recipe.alignment = 16;  // of the copy engine, and of the widest loads
    const jit::Built built = jit::build(*device, sm90::kernel_source(t, p));
    recipe.compile_ms = built.compile_ms;
    const bool splits = sm90::tf32_parts(p) > 0;
    const int64_t weight_bytes = p.k * p.r * p.s * sm90::padded_channels(p) * size_of(p.dtype);
    const sm90::Place weights = [](const Invocation& i) { return i.tensors.w; };
    const sm90::Place packed = [](const Invocation& i) { return static_cast<void*>(i.packed); };
    const bool turned = gathers || turns_weights(p);
    if (gathers) {
      recipe.packed_bytes = static_cast<std::size_t>(weight_bytes);
      recipe.pack.push_back(gather(std::string(verb(chosen.form)) + " weights", *device, problem, true,
                                   weights, packed, recipe));
    } else if (turned) {
      recipe.packed_bytes = static_cast<std::size_t>(weight_bytes);
      recipe.pack.push_back(sm90::to_pixels("weights to NHWC", *device, p, true, weights, packed, recipe));
    }
    if (splits) {
      recipe.packed_bytes = static_cast<std::size_t>(weight_bytes * sm90::tf32_parts(p));
      recipe.pack.push_back(sm90::split(*device, p, turned ? packed : weights, recipe));
    }
    const bool in_workspace = gathers || sm90::turns_input(t, p);
    if (gathers) {
      recipe.workspace_bytes = gathered_bytes(p);
      recipe.steps.push_back(gather(
          std::string(verb(chosen.form)) + " input", *device, problem, false,
          [](const Invocation& i) { return i.tensors.x; },
          [](const Invocation& i) { return static_cast<void*>(i.workspace); }, recipe));
    } else if (in_workspace) {
      recipe.workspace_bytes = pixel_bytes(t, p);
      recipe.steps.push_back(sm90::to_pixels(
          "input to NHWC", *device, problem, false, [](const Invocation& i) { return i.tensors.x; },
          [](const Invocation& i) { return static_cast<void*>(i.workspace); }, recipe));
    }
    const bool is_packed = turned || splits;
    recipe.steps.push_back({"implicit_gemm", [=, kernel = built.kernel](const Invocation& invocation) {
                              run(*device, *kernel, t, p, in_workspace, is_packed, invocation);
                            }});
    return recipe;
  }

 private:
  // How few channels become more before the kernel: by the rows of the filter's window, or by blocks of
  // pixels.
  enum class Form { plain, folded, deepened };
  static std::string_view prefix(Form form) {
    return form == Form::folded ? "fold_" : form == Form::deepened ? "s2d_" : "";
  }
  static std::string_view verb(Form form) { return form == Form::folded ? "fold" : "space to depth of"; }

  struct Chosen {
    Tiling tiling;
    Form form;
    Problem problem;  // as the kernel sees it
  };
  static Chosen choose(const Problem& p, const std::string& config) {
    Form form = Form::plain;
    for (const Form other : {Form::folded, Form::deepened}) {
      if (config.starts_with(prefix(other))) form = other;
    }
    if (form == Form::folded && !sm90::folds(p))
      throw Error(Status::bad_problem, config + " folds few channels, not " + std::to_string(p.c));
    if (form == Form::deepened && !sm90::deepens(p))
      throw Error(Status::bad_problem,
                  config + " takes few channels and strides no larger than the filter, no dilation");
    const Tiling tiling = sm90::parse_tiling(std::string_view(config).substr(prefix(form).size()));
    const bool takes_nchw = tiling.planes || tiling.shift || tiling.turned;
    if (form != Form::plain ? takes_nchw || tiling.fetch : sm90::thins(p) && takes_nchw)
      throw Error(Status::bad_problem,
                  config + ": gathered and thinned pixels are NHWC, as patch and im2col take them");
    return {tiling, form, tiling.fetch ? p : seen(p, form)};
  }
  // What the kernel computes where the input is gathered, or thinned, before it.
  static Problem seen(const Problem& p, Form form) {
    return form == Form::folded     ? sm90::folded(p)
           : form == Form::deepened ? sm90::deepened(p)
           : sm90::thins(p)         ? sm90::thinned(p)
                                    : p;
  }
  // The tilings with room for the pool, which is fused; where there are none, or windows of 3 make tiles
  // overlap, which may cost more than a step, also the others.
  static void list(const Problem& p, Form form, const Target& target, std::vector<Config>& all) {
    const Problem whole = seen(p, form), alone = convolution(whole), plain = convolution(p);
    const bool gathers = form != Form::plain, prepared = gathers || sm90::thins(p);
    const auto add = [&](const Tiling& t, const Problem& inner, double more_ms) {
      if (prepared && (t.planes || t.shift || t.turned || (t.fetch && &inner != &plain)))
        return;                 // the input is NHWC then
      Problem counted = inner;  // a step that gathers is counted apart
      if (gathers && inner.layout == Layout::nhwc) counted.c = sm90::padded_channels(inner);
      const sm90::Estimate e = sm90::estimate(t, counted, std::max(1, target.device.info().units));
      const double before_ms = gathers ? gather_ms(inner) : t.fetch ? 0 : skipped_ms(p, inner);
      const std::size_t bytes = gathers ? gathered_bytes(inner) : pixel_bytes(t, inner);
      all.push_back(
          {std::string(prefix(form)) + sm90::to_string(t), e.ms + before_ms + more_ms, e.bound_by, bytes});
    };
    const bool fuses = fusable(p);
    const std::size_t before = all.size();
    if (fuses) {
      for (const Tiling& t : sm90::tilings(whole)) add(t, whole, 0);
      if (all.size() > before && sm90::pool_window(p) == 2) return;
    }
    const double step_ms =
        fuses ? 0.0025 + static_cast<double>(bytes_of(p, conv_shape(p)) + bytes_of(p, y_shape(p))) / 2.65e9
              : 0;
    for (const Tiling& t : sm90::tilings(alone)) {
      if (!fuses || !sm90::unfit(t, whole).empty()) add(t, alone, step_ms);
    }
    // Gathering takes of a plane the pixels that the strides do.
    if (!gathers && sm90::thins(p)) {
      for (const Tiling& t : sm90::fetch::tilings(plain)) add(t, plain, step_ms);
    }
  }
  static std::size_t gathered_bytes(const Problem& inner) {
    return static_cast<std::size_t>(inner.n * inner.h * inner.w * sm90::padded_channels(inner) *
                                    size_of(inner.dtype));
  }
  static double gather_ms(const Problem& inner) {
    if (inner.layout == Layout::nchw) return 0;  // the estimate counts turning the input
    return 0.0016 + static_cast<double>(gathered_bytes(inner)) / 4e9;
  }

  // Thinning also reads what lies beside the pixels that it takes.
  static double skipped_ms(const Problem& p, const Problem& seen) {
    return sm90::thins(p) ? static_cast<double>(bytes_of(seen, x_shape(seen)) * (p.stride_w - 1)) / 2.65e9
                          : 0;
  }

  // A window of 2x2 lies in one thread's sums, one of 3x3 in a tile that overlaps its neighbours. Others are
  // pooled by a step of their own.
  static bool fusable(const Problem& p) {
    const Pool& pool = p.epilogue.pool;
    if (p.epilogue.residual) return false;
    if (pool == Pool{pool.kind, 2, 2, 2, 2, 0, 0, 0, 0}) return true;
    const bool three = pool.size_h == 3 && pool.size_w == 3 && pool.stride_h == 2 && pool.stride_w == 2;
    return three && pool.pad_top == pool.pad_left && p.dtype != DType::f32;
  }
  static Problem convolution(Problem p) {
    p.epilogue.pool = Pool{};
    return p;
  }

  static bool pads(const Problem& p) { return p.c != sm90::padded_channels(p); }
  static bool turns_weights(const Problem& p) {
    return pads(p) || (p.layout == Layout::nchw && p.c > 1 && p.r * p.s > 1);
  }
  static std::size_t pixel_bytes(const Tiling& t, const Problem& p) {
    if (!sm90::turns_input(t, p)) return 0;
    return static_cast<std::size_t>(p.n * p.h * p.w * sm90::padded_channels(p) * size_of(p.dtype));
  }

  static void run(CudaDevice& device, const Kernel& kernel, const Tiling& t, const Problem& p,
                  bool in_workspace, bool is_packed, const Invocation& invocation) {
    using sm90::narrow;
    const bool maps_output = sm90::stores_by_map(t, p);
    TensorMap w = sm90::w_map(device, t, p, is_packed ? invocation.packed : invocation.tensors.w);
    TensorMap x = sm90::reads_input(t, p)
                      ? w
                      : sm90::x_map(device, t, p, in_workspace ? invocation.workspace : invocation.tensors.x);
    TensorMap y = maps_output ? sm90::y_map(device, t, p, invocation.tensors.y) : x;
    const bool maps_residual = maps_output && p.epilogue.residual && p.dtype != DType::f32;
    TensorMap r = maps_residual ? sm90::y_map(device, t, p, invocation.tensors.residual) : y;
    if (t.shift) return run_shift(device, kernel, t, p, x, w, invocation);
    sm90::Params params{};
    params.bias = invocation.tensors.bias;
    params.residual = invocation.tensors.residual;
    params.y = invocation.tensors.y;
    params.k = narrow(p.k), params.p = narrow(p.p()), params.q = narrow(p.q());
    params.pixels = narrow(p.n * p.p() * p.q());
    params.tiles = narrow(sm90::tiles(t, p));
    params.k_tiles = narrow((p.k + t.channels - 1) / t.channels);
    params.c_blocks = narrow((sm90::padded_channels(p) + t.k_block - 1) / t.k_block);
    const int across = sm90::pooled_extent(t.width, p), down = sm90::pooled_extent(t.height, p);
    params.tiles_w = narrow(((t.planes ? p.p() * p.q() : p.y_w()) + across - 1) / across);
    params.tiles_h = narrow((p.y_h() + down - 1) / down);
    params.pad_top = narrow(p.pad_top), params.pad_left = narrow(p.pad_left);
    params.stride_h = narrow(p.stride_h), params.stride_w = narrow(p.stride_w);
    params.slope = p.epilogue.slope;
    params.x = invocation.tensors.x;
    params.c = narrow(p.c), params.h = narrow(p.h), params.w = narrow(p.w);
    params.step = narrow(sm90::fetch::step(t, p));
    const int64_t image = p.p() * p.q();
    params.per_image = static_cast<unsigned>(((int64_t{1} << 32) + image - 1) / image);
    LaunchShape shape;
    shape.grid[0] = t.split > 1 ? static_cast<unsigned>(params.tiles * t.split)
                                : persistent_blocks(device, t, params.k_tiles, params.tiles);
    shape.cluster[0] = static_cast<unsigned>(t.split);
    shape.block[0] = static_cast<unsigned>(threads(t, p));
    shape.shared_bytes = static_cast<unsigned>(sm90::shared_bytes(t, p));
    shape.overlaps_previous = true;
    device.launch(kernel, shape, {x, w, y, r, params}, invocation.stream);
  }

  static void run_shift(CudaDevice& device, const Kernel& kernel, const Tiling& t, const Problem& p,
                        TensorMap x, TensorMap w, const Invocation& invocation) {
    using sm90::narrow;
    sm90::ShiftParams params{};
    params.bias = invocation.tensors.bias;
    params.residual = invocation.tensors.residual;
    params.y = invocation.tensors.y;
    params.k = narrow(p.k), params.p = narrow(p.p()), params.q = narrow(p.q());
    params.strips = narrow(sm90::tiles(t, p));
    params.k_tiles = narrow((p.k + t.channels - 1) / t.channels);
    params.c_blocks = narrow((sm90::padded_channels(p) + t.k_block - 1) / t.k_block);
    params.windows = narrow(sm90::shift::windows(t, p));
    params.tiles_h = narrow((p.p() + t.height - 1) / t.height);
    params.pad_top = narrow(p.pad_top);
    params.slope = p.epilogue.slope;
    LaunchShape shape;
    shape.grid[0] = persistent_blocks(device, t, params.k_tiles, params.strips);
    shape.block[0] = 384;
    shape.shared_bytes = static_cast<unsigned>(sm90::shared_bytes(t, p));
    shape.overlaps_previous = true;
    sm90::ShiftMaps maps{x, x, x, x};
    if (sm90::shift::stores_in_bulk(p)) {
      maps.y = sm90::y_rows_map(device, t, p, invocation.tensors.y, t.width);
      maps.y_aside = sm90::y_rows_map(device, t, p, invocation.tensors.y, 16);
      if (p.epilogue.residual) {
        maps.residual = sm90::y_rows_map(device, t, p, invocation.tensors.residual, t.width);
        maps.residual_aside = sm90::y_rows_map(device, t, p, invocation.tensors.residual, 16);
      }
    }
    device.launch(kernel, shape, {x, w, maps, params}, invocation.stream);
  }

  // As many as there are multiprocessors; where weights stay, all tiles of a block must have the same
  // channels.
  static unsigned persistent_blocks(CudaDevice& device, const Tiling& t, int k_tiles, int tiles) {
    const int units = device.info().units, even = t.resident ? units / k_tiles * k_tiles : units;
    return static_cast<unsigned>(std::min(tiles, std::max(even, k_tiles)));
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_sm90() { return std::make_unique<ImplicitGemmSm90>(); }

}  // namespace faltung
