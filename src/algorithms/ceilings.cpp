#include "src/algorithms/ceilings.hpp"

#include <algorithm>
#include <compare>

#include "kernels/cpu/ceilings.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/sm90/wgmma.hpp"
#include "src/backend/nki.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

constexpr int kMeterThreads = 256;

jit::Source source(const DeviceInfo& device, const char* entry, gpu::Constants constants,
                   const std::string& file) {
  constants.push_back({"THREADS", std::to_string(kMeterThreads)});
  return gpu::source(device, "ceilings", file, entry, constants);
}

class Gpu {
 public:
  explicit Gpu(const jit::Session& session)
      : session_(session), device_(session.device()), info_(device_.info()) {}

  Ceilings measure() const {
    // Scalars for what runs as one lane of many, vectors for devices whose work-items own vectors.
    Rate f32 = arithmetic("float", "float");
    if (info_.dialect == "opencl") f32 = std::max(f32, arithmetic(slow() ? "float16" : "float4", "float"));
    Rate tf32 = f32, f16 = f32, bf16 = f32;
    if (info_.has("fp16")) f16 = std::max(f32, arithmetic("half2", "half"));
    if (info_.has("sm_90a") || info_.has("mma_sync")) {
      tf32 = products(DType::f32), f16 = products(DType::f16), bf16 = products(DType::bf16);
    }
    return {f32, tf32, f16, bf16, copy()};
  }

 private:
  bool slow() const { return info_.has("runs_on_cpu"); }

  // The best of a few launches after a first one, each long enough that its beginning does not count, in
  // milliseconds. After each of them each(milliseconds) is called.
  template <class Each>
  void time_each(const jit::Source& source, unsigned blocks, std::initializer_list<Argument> arguments,
                 const Each& each) const {
    const jit::Program program = session_.build(source);
    LaunchShape shape;
    shape.grid[0] = blocks;
    shape.block[0] = static_cast<unsigned>(source.block_threads);
    shape.shared_bytes = static_cast<unsigned>(source.shared_bytes);
    for (int run = 0; run < 5; ++run) {
      const double ms = device_.time_ms({}, [&] { device_.launch(*program.kernel, shape, arguments, {}); });
      if (run > 0) each(ms);
    }
  }

  // Of a kernel of (float* sink, ...), a number a thread, that does so many operations. CUDA's leave the
  // clock of the first block in the first number.
  Rate best_rate(const jit::Source& source, unsigned blocks, double operations, const Buffer& sink,
                 std::initializer_list<Argument> arguments) const {
    Rate best;
    time_each(source, blocks, arguments, [&](double ms) {
      float mhz = 0;
      if (info_.kind == "gpu" && info_.dialect == "cuda") device_.copy_out(&mhz, sink, sizeof mhz);
      best = std::max(best, Rate{operations / ms * 1e-6, mhz});
    });
    return best;
  }

  // Far more than the cache holds.
  double copy() const {
    const std::size_t most = std::max<std::size_t>(info_.memory_bytes / 16, 1 << 20);
    const std::size_t bytes =
        std::min(std::max<std::size_t>(8 * info_.cache_bytes, std::size_t{64} << 20), most);
    constexpr std::size_t kBlock = 16 * kMeterThreads;
    const auto blocks = static_cast<unsigned>(bytes / kBlock);
    const Buffer from = device_.allocate(bytes), to = device_.allocate(bytes);
    double best = 0;
    time_each(source(info_, "copy", {}, "ceilings.cl"), blocks, {from.pointer, to.pointer},
              [&](double ms) { best = std::max(best, 2.0 * kBlock * blocks / ms * 1e-6); });
    return best;
  }

  Rate arithmetic(const std::string& number, const std::string& scalar) const {
    const int rounds = slow() ? 256 : 4096;
    const unsigned blocks = static_cast<unsigned>(info_.units) * (slow() ? 16 : 32);
    const int width = number == scalar ? 1 : std::stoi(number.substr(scalar.size()));
    const Buffer sink = device_.allocate(std::size_t{blocks} * kMeterThreads * 4);
    constexpr double kChains = 8;
    return best_rate(source(info_, "multiply_add", {{"NUMBER", number}, {"SCALAR", scalar}}, "ceilings.cl"),
                     blocks, 2.0 * kChains * width * rounds * kMeterThreads * blocks, sink,
                     {sink.pointer, rounds, 0.999f, 0.001f});
  }

  Rate products(DType dtype) const {
    const bool hopper = info_.has("sm_90a");
    const double of_block = hopper ? 2.0 * 64 * 256 * 128 / size_of(dtype)
                                   : kMeterThreads / 32 * 64 * 32 * (dtype == DType::f32 ? 8 : 16);
    constexpr int kRounds = 8192;
    const unsigned blocks = static_cast<unsigned>(info_.units) * (hopper ? 1 : 2);
    const Buffer sink = device_.allocate(std::size_t{blocks} * kMeterThreads * 4);
    return best_rate(matrix_products(info_, dtype), blocks, 2 * of_block * kRounds * blocks, sink,
                     {sink.pointer, kRounds});
  }

  const jit::Session& session_;
  Device& device_;
  const DeviceInfo& info_;
};

}  // namespace

jit::Source matrix_products(const DeviceInfo& device, DType dtype) {
  const std::string type = std::string("DTYPE_") + name(dtype);
  if (!device.has("sm_90a")) return source(device, "products", {{type, "1"}}, "ceilings_mma.cu");
  // As the kernel says: two warpgroups, four stages of 128-byte rows, and what aligns the first.
  constexpr int kStages = 4, kRow = 128, kSwizzled = 1024;
  jit::Source source;
  source.name = "ceilings (wgmma)";
  source.text = "#define " + type + " 1\n" +
                sm90::wgmma_function(256, dtype, sm90::First::shared, dtype == DType::f32 ? "" : ", 0, 0") +
                "#include \"kernels/sm90/ceilings.cu\"\n";
  source.entry = "products";
  source.block_threads = kMeterThreads;
  source.shared_bytes = kStages * (2 * 64 + 256) * kRow + kSwizzled;
  return source;
}

Ceilings measure_ceilings(const jit::Session& session, int threads) {
  if (session.device().info().kind == "nki") return stated_ceilings(nki_core(session.device().info().id));
  if (session.device().info().kind == "cpu") return measure_cpu_ceilings(Parallel(threads));
  return Gpu(session).measure();
}

}  // namespace faltung
