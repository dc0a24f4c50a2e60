// Times the cost model's first kernels of each problem on a GPU, in replayed graphs where there are such, in
// turn with one peer or several (then the ratio is to the fastest): to judge the kernels, and the model
// against them. Constant weights are packed beforehand; those of backward_data change, and are packed within
// the time. Writes CSV, a line each kernel; the last lines are the geometric means of each list's best.
// bench/gpu_tables.py makes tables of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "src/backend/stream_device.hpp"
#include "src/finder/selection.hpp"
#include "src/finder/trust/verify.hpp"
#include "src/plan/plan.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"
#include "tools/peer.hpp"

namespace faltung::tools {
namespace {

constexpr double kGraphMs = 4;
constexpr std::int64_t kLeastBytes = 260'000'000;  // of all sets of buffers together

// Random data in [-1, 1], of which all tensors are made.
const std::vector<char>& random_elements(DType dtype) {
  static std::map<DType, std::vector<char>> made;
  std::vector<char>& random = made[dtype];
  if (random.empty()) {
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    random.resize(std::size_t{1} << 24);
    const auto count = static_cast<std::int64_t>(random.size()) / size_of(dtype);
    for (std::int64_t i = 0; i < count; ++i) store_element(dtype, random.data(), i, uniform(engine));
  }
  return random;
}

// Buffers of it: sets of input, residual and output, used in turn; weights and bias.
class Buffers {
 public:
  Buffers(Device& device, const Problem& p) : device_(device), dtype_(p.dtype) {
    const std::int64_t x = bytes_of(p, x_shape(p)), y = bytes_of(p, conv_shape(p));
    const bool residual = p.epilogue.residual, relu = p.training == Training::drelu;
    const std::int64_t set = x * (relu ? 2 : 1) + y * (residual ? 2 : 1);
    const auto sets = std::max<std::int64_t>(2, (kLeastBytes + set - 1) / set);
    void* const w = make(bytes_of(p, w_shape(p)));
    void* const sums =
        sums_of_channel(p) > 0 ? make(static_cast<std::int64_t>(bytes(p, Tensor::sums))) : nullptr;
    const auto affine = [&] {
      return has_affine(p) ? make(static_cast<std::int64_t>(bytes(p, Tensor::scale)), DType::f32) : nullptr;
    };
    void *const scale = affine(), *const shift = affine();
    void* const slopes =
        has_slopes(p) ? make(static_cast<std::int64_t>(bytes(p, Tensor::slopes)), DType::f32) : nullptr;
    void* const bias = p.epilogue.bias ? make(static_cast<std::int64_t>(bytes(p, Tensor::bias))) : nullptr;
    for (std::int64_t i = 0; i < sets; ++i) {
      Tensors t;
      t.w = w;
      t.bias = bias;
      t.sums = sums;
      t.scale = scale, t.shift = shift;
      t.slopes = slopes;
      if (relu) t.relu = make(x);
      t.x = make(x);
      t.y = make(y);
      if (residual) t.residual = make(y);
      sets_.push_back(t);
    }
  }
  const Tensors& next() { return sets_[turn_++ % sets_.size()]; }
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  void* make(std::int64_t bytes) { return make(bytes, dtype_); }
  void* make(std::int64_t bytes, DType dtype) {
    const std::vector<char>& random = random_elements(dtype);
    buffers_.push_back(device_.allocate(static_cast<std::size_t>(bytes)));
    const Buffer& all = buffers_.back();
    for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(random.size())) {
      Buffer part = all;
      part.pointer = static_cast<char*>(all.pointer) + at;
      part.bytes = static_cast<std::size_t>(std::min(bytes - at, static_cast<std::int64_t>(random.size())));
      device_.copy_in(part, random.data(), part.bytes);
    }
    return all.pointer;
  }

  Device& device_;
  DType dtype_;
  std::vector<Buffer> buffers_;
  std::vector<Tensors> sets_;
  std::size_t turn_ = 0;
};

struct Entrant {
  std::string kernel;
  double predicted = 0;
  std::shared_ptr<const PlanImpl> plan;
  std::shared_ptr<const PackedWeights> weights;
  Buffer workspace;
  bool weights_rest = false;
  int launches = 0;
  std::vector<double> ms;

  double median() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

double replay(Device& device, Buffers& buffers, const Entrant& e, int launches, int replays) {
  const auto work = [&](const Stream& stream) {
    RunOptions options;
    options.stream = stream.native;
    options.weights = e.weights.get();
    options.workspace = e.workspace.pointer;
    options.weights_rest = e.weights_rest;
    for (int i = 0; i < launches; ++i) e.plan->run(buffers.next(), options);
  };
  std::vector<double> ms;
  if (auto* const streams = dynamic_cast<StreamDevice*>(&device)) {
    ms = streams->time_replays(work, replays);
  } else {
    for (int i = 0; i < replays; ++i) ms.push_back(device.time_ms({}, [&] { work({}); }));
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2] / launches;
}

struct Options {
  Arguments arguments;
  int first = 8, rounds = 5, most_rows = 0;
  bool weights_rest = false;
  std::vector<std::string> peers;
};

int sweep(const Options& options) {
  const auto& [arguments, first, rounds, most_rows, weights_rest, peer_names] = options;
  const std::shared_ptr<Device> device = arguments.device();
  if (device->info().kind == "cpu")
    throw Error(Status::unsupported, "sweep times GPUs' kernels; faltung-regret those of the CPU");
  Store store;
  const jit::Session session(*device, store);
  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& name : peer_names) peers.push_back(std::make_unique<Peer>(name));
  std::string suite;
  double logs = 0, lowest = 0, total = 0, peer_total = 0, regret = 0;
  int count = 0, of_list = 0;
  const auto close = [&] {
    if (count > 0) {
      fmt::print(
          "# {}: {} rows, geometric mean {:.3f}, lowest {:.3f}; a pass {:.4f} ms, the peer {:.4f}; the "
          "model's "
          "first choice {:.1f} % from the best\n",
          suite, count, std::exp(logs / count), lowest, total, peer_total,
          100 * (std::exp(regret / count) - 1));
    }
    logs = total = peer_total = regret = 0;
    count = of_list = 0;
  };
  fmt::print("name,kernel,ms,min_ms,predicted_ms,tflops,peer_ms,ratio,count");
  for (const std::string& name : peer_names) fmt::print(",{}_ms", name);
  fmt::print("\n");
  for (const Row& row : arguments.rows()) {
    if (row.suite != suite) close();
    suite = row.suite;
    if (most_rows > 0 && of_list == most_rows) continue;
    ++of_list;
    const Problem& p = row.problem;
    const Selection selection = select(Settled(p, arguments.request()));
    Buffers buffers(*device, p);
    std::vector<Entrant> entrants;
    for (const Candidate& c : selection.candidates) {
      if (static_cast<int>(entrants.size()) == first) break;
      Entrant e;
      e.kernel = c.kernel();
      e.predicted = c.cost.ms;
      e.plan = make_plan(p, c, device, session, nullptr);
      if (packs_beforehand(p, e.plan->recipe())) e.weights = e.plan->pack_weights(buffers.next().w, {});
      if (weights_rest) device->synchronize({}), e.weights_rest = true;
      const std::size_t bytes = e.plan->workspace_bytes(e.weights != nullptr);
      if (bytes > 0) e.workspace = device->allocate(bytes);
      e.launches = std::clamp(static_cast<int>(kGraphMs / replay(*device, buffers, e, 2, 2)), 1, 1000);
      entrants.push_back(std::move(e));
    }
    if (entrants.empty()) {
      fmt::print("# {}: no kernel\n", row.label());
      continue;
    }
    std::vector<std::vector<double>> peer_ms(peers.size());
    std::vector<char> peer_runs(peers.size());
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const Peer::Answer answer = peers[i]->prepare(p, arguments.device_id(), 1, buffers.sets(), "");
      peer_runs[i] = answer.yes;
      if (!answer.yes) fmt::print("# {}: {}: {}\n", row.label(), peers[i]->name(), answer.text);
    }
    for (int round = 0; round < rounds; ++round) {
      for (Entrant& e : entrants) e.ms.push_back(replay(*device, buffers, e, e.launches, 3));
      for (std::size_t i = 0; i < peers.size(); ++i) {
        if (peer_runs[i]) peer_ms[i].push_back(peers[i]->run(3 * kGraphMs).median);
      }
    }
    double peer_median = 0;  // the fastest peer's
    std::string all_peers;
    for (std::vector<double>& ms : peer_ms) {
      std::sort(ms.begin(), ms.end());
      const double median = ms.empty() ? 0 : ms[ms.size() / 2];
      if (!ms.empty()) peer_median = peer_median > 0 ? std::min(peer_median, median) : median;
      all_peers += ms.empty() ? "," : fmt::format(",{:.4f}", median);
    }
    const Entrant* best = &entrants.front();
    for (const Entrant& e : entrants) {
      const double ms = e.median();
      if (ms < best->median()) best = &e;
      fmt::print("{},{},{:.4f},{:.4f},{:.4f},{:.0f},{:.4f},{:.3f},{}{}\n", row.label(), e.kernel, ms,
                 *std::min_element(e.ms.begin(), e.ms.end()), e.predicted, flops(p) / ms * 1e-9, peer_median,
                 peer_median / ms, row.count, all_peers);
    }
    std::fflush(stdout);
    ++count;
    const double ms = best->median(), ratio = peer_median / ms;
    lowest = count == 1 ? ratio : std::min(lowest, ratio);
    if (peer_median > 0) logs += std::log(ratio);
    total += ms * static_cast<double>(row.count);
    peer_total += peer_median * static_cast<double>(row.count);
    regret += std::log(entrants.front().median() / ms);
  }
  close();
  return 0;
}

void declare(const Command& command) {
  const auto options = std::make_shared<Options>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  command.option("--first", options->first, "So many kernels of each problem");
  command.option("--rounds", options->rounds, "Of all kernels and the peer in turn");
  command.option("--vs", options->peers, "A peer; repeatable");
  command.flag("--weights-rest", options->weights_rest,
               "Weights that are not packed in the time are known to rest");
  command.option("--rows", options->most_rows, "So many problems of each list; 0 is all");
  command.runs([options] { return sweep(*options); });
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) {
  return faltung::tools::run_program("faltung-sweep",
                                     "Time the cost model's first kernels in turn with a peer",
                                     faltung::tools::declare, argc, argv);
}
