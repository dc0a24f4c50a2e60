// faltung network: whole networks from ONNX files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>

#include "src/network/verify.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/temporary_folder.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/network_data.hpp"
#include "tools/peer.hpp"
#include "tools/race.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct NetworkOptions {
  std::string model, device = "cpu", dtype = "f32", threads, math = "f32", bound, peer, repeat = "9",
                     least = "200ms", find;
  std::vector<std::string> sizes, inputs, outputs;
  std::uint64_t seed = 1;
};

// A network, planned for the sizes that were asked for, with data.
struct Loaded {
  explicit Loaded(const NetworkOptions& options) {
    print_warnings(engine);
    if (!options.threads.empty())
      request.request.threads =
          static_cast<int>(std::min<std::int64_t>(4096, parse_count("--threads", options.threads, 1)));
    request.request.device = options.device;
    request.dtype = parse_dtype(options.dtype);
    request.math = parse_math(options.math);
    const auto begin = Clock::now();
    network.emplace(engine, options.model, request);
    load_ms = ms_since(begin);
    const std::vector<NamedArray> arrays = read_arrays(options.inputs);
    sizes = network_sizes(network->inputs(), options.sizes, arrays);
    if (!options.find.empty()) {
      find_all(network->plan(sizes).report(), parse_duration_ms("--find", options.find));
      network.emplace(engine, options.model, request);
    }
    const auto planned = Clock::now();
    plan.emplace(network->plan(sizes));
    plan_ms = ms_since(planned);
    in.emplace(plan->inputs(), options.device);
    out.emplace(plan->outputs(), options.device);
    in->draw(options.seed);
    in->read(arrays);
    in->upload();
  }

  Device& device() const { return NetworkInternals::impl(*plan).device(); }
  int threads() const {
    return request.request.threads > 0 ? request.request.threads : available_processors();
  }
  // Runs it, and waits.
  void once() const {
    plan->run(in->reads(), out->writes());
    device().synchronize({});
  }

  // Measures the convolutions and products in either layout: both the choice of kernels and that of layouts
  // are made by what was measured.
  void find_all(const NetworkReport& report, double budget_ms) {
    Request each = request.request;
    each.budget_ms = budget_ms;
    std::set<std::string> done;
    for (const NetworkStepReport& step : report.steps) {
      if (step.problem.empty()) continue;
      Problem p = parse_problem(step.problem);
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        if (p.h * p.w == 1 && layout != p.layout) continue;  // the same in memory
        Problem other = p;
        other.layout = layout;
        if (!done.insert(to_string(other)).second) continue;
        try {
          engine.find(other, each);
        } catch (const Error& error) {
          if (error.status() != Status::unsupported) throw;
        }
      }
    }
  }

  Engine engine;
  NetworkRequest request;
  std::optional<Network> network;
  std::optional<NetworkPlan> plan;
  std::vector<std::vector<std::int64_t>> sizes;
  std::optional<NetworkBuffers> in, out;
  double load_ms = 0, plan_ms = 0;
};

std::string show_sizes(const std::vector<std::int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, "x"));
}

int run(const NetworkOptions& options) {
  Loaded l(options);
  const auto begin = Clock::now();
  l.once();
  const double ms = ms_since(begin);
  l.out->download();
  l.out->write(options.outputs);
  for (std::size_t i = 0; i < l.plan->outputs().size(); ++i) {
    const NetworkTensor& tensor = l.plan->outputs()[i];
    if (tensor.element != Element::f32) continue;
    std::string range;
    if (tensor.element == Element::f32) {
      const auto* const from = reinterpret_cast<const float*>(l.out->data(i));
      std::size_t count = 1;
      for (const std::int64_t size : tensor.sizes) count *= static_cast<std::size_t>(size);
      if (count > 0) {
        const auto [least, most] = std::minmax_element(from, from + count);
        range = fmt::format(", {:.6g} to {:.6g}", *least, *most);
      }
    }
    fmt::print("{} {}{}\n", tensor.name, show_sizes(tensor.sizes), range);
  }
  fmt::print("loaded in {} ms, planned in {} ms, first run {} ms\n", show_ms(l.load_ms), show_ms(l.plan_ms),
             show_ms(ms));
  return 0;
}

int explain(const NetworkOptions& options) {
  Loaded l(options);
  const NetworkReport report = l.plan->report(l.in->reads(), l.out->writes(), 5);
  double total = 0, convolutions = 0, predicted = 0;
  for (const NetworkStepReport& step : report.steps) {
    const bool is_product = !step.problem.empty() || step.kernel == "layer";
    total += step.ms, convolutions += is_product ? step.ms : 0;
    predicted += step.predicted_ms;
  }
  const Table table({{"ms", 9, true},
                     {"predicted", 9, true},
                     {"share", 6, true},
                     {"layout", 6},
                     {"offset", 10, true},
                     {"kernel", 34},
                     {"step", 0}});
  table.header();
  for (const NetworkStepReport& step : report.steps) {
    const bool callers = step.offset == static_cast<std::size_t>(-1);
    table.row({fmt::format("{:.4f}", step.ms),
               step.predicted_ms == 0 ? "" : fmt::format("{:.4f}", step.predicted_ms),
               fmt::format("{:.1f}%", 100 * step.ms / total), step.layout == Layout::nhwc ? "nhwc" : "nchw",
               callers ? "caller's" : fmt::format("{}", step.offset), step.kernel,
               step.problem.empty() ? step.name : step.name + "  " + step.problem});
  }
  fmt::print(
      "\n{} steps, {} ms ({} predicted); convolutions and products by constants {:.1f} %; {} values turned "
      "between layouts\n",
      report.steps.size(), show_ms(total), show_ms(predicted), 100 * convolutions / total, report.turned);
  fmt::print("arena {}, {:.3f} of the least that is possible\n", show_bytes(report.arena_bytes),
             report.arena_bound == 0
                 ? 1.0
                 : static_cast<double>(report.arena_bytes) / static_cast<double>(report.arena_bound));
  return 0;
}

Peer::Answer prepare(Peer& peer, const Loaded& l, const NetworkOptions& options) {
  return peer.prepare_network(options.model, l.plan->inputs(), l.threads());
}

// What a network's roundings come to, relative to a tensor's largest element: usual depths, each layer's
// error in units of the type's roundoff.
double usual_bound(DType dtype) { return dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 1e-2 : 8e-2; }

// What the peer makes of the same inputs, beside ours: the network's outputs of f32.
void verify_peer(Loaded& l, const NetworkOptions& options, const std::vector<network::Array>& expected) {
  Peer peer(options.peer);
  const Peer::Answer answer = prepare(peer, l, options);
  if (!answer.yes) throw Error(Status::unsupported, "peer " + options.peer + " declines: " + answer.text);
  const TemporaryFolder folder;
  const auto file = [&](const char* what, std::size_t i) {
    return fmt::format("{}/{}{}.npy", folder.path(), what, i);
  };
  for (std::size_t i = 0; i < l.plan->inputs().size(); ++i)
    write_npy(file("input", i), DType::f32, l.plan->inputs()[i].sizes, l.in->data(i));
  if (const Peer::Answer done = peer.outputs(folder.path()); !done.yes)
    throw Error(Status::unsupported, "peer " + options.peer + ": its results cannot be had: " + done.text);
  l.once();
  l.out->download();
  fmt::print("outputs, relative to each one's largest element:\n");
  const Table table({{"worst", 9, true}, {"rms", 9, true}, {"output", 40}, {"by", 0}});
  table.header();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const NetworkTensor& tensor = l.plan->outputs()[i];
    const NpyArray theirs = read_npy(file("output", i));
    check_npy(theirs, file("output", i), tensor.name, DType::f32, tensor.sizes);
    for (const auto& [by, data] : {std::pair{"faltung " + std::string(version()), l.out->data(i)},
                                   std::pair{peer.version(), theirs.data.data()}}) {
      const network::TensorError e =
          network::compare(expected[i], network::decode({network::Type::f32, tensor.sizes, nullptr, data}));
      table.row({fmt::format("{:.2e}", e.worst), fmt::format("{:.2e}", e.rms), tensor.name, by});
    }
  }
}

int verify(const NetworkOptions& options) {
  const bool is_usual = options.bound.empty();
  const double asked = is_usual ? 0 : parse_number("--bound", options.bound);  // before the file is read
  Loaded l(options);
  const double bound = is_usual ? usual_bound(l.request.dtype) : asked;
  const auto [errors, outputs] = network::verify(NetworkInternals::impl(*l.network),
                                                 NetworkInternals::impl(*l.plan), l.in->host_reads());
  const Table table({{"worst", 9, true}, {"rms", 9, true}, {"tensor", 40}, {"step", 0}});
  table.header();
  bool right = !errors.empty();
  for (const network::TensorError& e : errors) {
    const bool fits = e.finite && e.worst <= bound;
    right = right && fits;
    table.row({e.finite ? fmt::format("{:.2e}", e.worst) : "NaN, Inf", fmt::format("{:.2e}", e.rms),
               e.name + (e.is_output ? " (output)" : ""), e.step + (fits ? "" : "  BEYOND THE BOUND")});
  }
  fmt::print("\n{} tensors against a run in double precision, relative to each one's largest element: {}\n",
             errors.size(),
             right ? fmt::format("all within {}", bound) : fmt::format("WRONG, beyond {}", bound));
  if (!options.peer.empty()) verify_peer(l, options, outputs);
  return right ? 0 : 1;
}

// A contestant's block: runs for so many milliseconds, their median.
Block timed_block(double least_ms, const std::function<void()>& once) {
  std::vector<double> all;
  for (double total = 0; all.empty() || total < least_ms;) {
    const auto begin = Clock::now();
    once();
    all.push_back(ms_since(begin));
    total += all.back();
  }
  std::ranges::sort(all);
  return {all[all.size() / 2], all.front(), all.back(), static_cast<int>(all.size())};
}

// The same by the device's clock, some runs at a time.
Block device_block(Device& device, double least_ms, const std::function<void()>& once) {
  constexpr int kTogether = 10;
  std::vector<double> all;
  for (double total = 0; all.empty() || total < least_ms; total += kTogether * all.back()) {
    all.push_back(device.time_ms({}, [&] {
      for (int i = 0; i < kTogether; ++i) once();
    }) / kTogether);
  }
  std::ranges::sort(all);
  return {all[all.size() / 2], all.front(), all.back(), static_cast<int>(all.size()) * kTogether};
}

// How a GPU may run it beside NetworkPlan::run: a launch a step, and as one graph where there are such.
struct OtherWays {
  explicit OtherWays(Loaded& l) : device(l.device()) {
    if (device.info().kind == "cpu") return;
    void* const arena = l.in->pool().allocate(std::max<std::size_t>(1, l.plan->arena_bytes()));
    const auto run = [&l, arena](const Stream& stream) {
      NetworkRunOptions options;
      options.stream = stream.native, options.arena = arena;
      l.plan->run(l.in->reads(), l.out->writes(), options);
    };
    run({});
    device.synchronize({});
    graph = device.record(run);
    contestants.push_back([this, run](double ms) { return device_block(device, ms, [&] { run({}); }); });
    if (graph == nullptr) return;
    contestants.push_back([this](double ms) {
      std::vector<double> all;
      for (double total = 0; all.empty() || total < ms; total += all.back()) all.push_back(graph->time_ms());
      std::ranges::sort(all);
      return Block{all[all.size() / 2], all.front(), all.back(), static_cast<int>(all.size())};
    });
  }
  Device& device;
  std::unique_ptr<Recording> graph;
  std::vector<Contestant> contestants;
};

int bench(const NetworkOptions& options) {
  Loaded l(options);
  const auto first = Clock::now();
  l.once();
  const double first_ms = ms_since(first);
  const bool on_gpu = l.device().info().kind != "cpu";
  if (on_gpu && !options.peer.empty())
    throw Error(Status::unsupported, "peer " + options.peer + " runs networks on the CPU; take --device cpu");
  const std::vector<const void*> reads = l.in->reads();
  const auto once = [&] { l.plan->run(reads, l.out->writes()); };
  OtherWays others(l);
  RacePolicy policy;
  policy.blocks = static_cast<int>(parse_count("--repeat", options.repeat, 1));
  policy.least_ms = parse_duration_ms("--min-time", options.least);
  std::vector<Contestant> contestants{
      [&](double ms) { return on_gpu ? device_block(l.device(), ms, once) : timed_block(ms, once); }};
  contestants.insert(contestants.end(), others.contestants.begin(), others.contestants.end());
  std::optional<Peer> peer;
  if (!options.peer.empty()) {
    peer.emplace(options.peer);
    const Peer::Answer answer = prepare(*peer, l, options);
    if (!answer.yes) throw Error(Status::unsupported, "peer " + options.peer + " declines: " + answer.text);
    contestants.push_back([&](double ms) { return peer->run(ms); });
  }
  std::optional<Pace> pace;
  if (!on_gpu) {
    EngineImpl& engine = Internals::impl(l.engine);
    pace =
        pace_of(engine.workers(l.threads()), engine.ceilings(l.device(), l.threads()), 10 * policy.least_ms);
  }
  const std::vector<Standing> standings = race(contestants, policy, pace ? &*pace : nullptr);
  fmt::print("faltung {}: {} ms ({} to {}), loaded in {} ms, planned in {} ms, arena {}\n", version(),
             show_ms(standings[0].ms), show_ms(standings[0].ms_min), show_ms(standings[0].ms_max),
             show_ms(l.load_ms), show_ms(l.plan_ms), show_bytes(l.plan->report().arena_bytes));
  if (on_gpu) {
    fmt::print("launched step by step: {} ms ({} to {}); first run {} ms\n", show_ms(standings[1].ms),
               show_ms(standings[1].ms_min), show_ms(standings[1].ms_max), show_ms(first_ms));
  }
  if (others.graph != nullptr)
    fmt::print("in a graph of its own: {} ms ({} to {})\n", show_ms(standings[2].ms),
               show_ms(standings[2].ms_min), show_ms(standings[2].ms_max));
  if (!peer) return 0;
  fmt::print("{}: {} ms ({} to {})\n", peer->version(), show_ms(standings[1].ms),
             show_ms(standings[1].ms_min), show_ms(standings[1].ms_max));
  fmt::print("ratio {:.3f}\n", standings[1].ms / standings[0].ms);
  return 0;
}

void declare_network(const Command& command) {
  const auto add = [&](const char* name, const char* help, int (*run)(const NetworkOptions&),
                       const std::function<void(const Command&, NetworkOptions&)>& more) {
    const Command sub = command.subcommand(name, help);
    const auto options = std::make_shared<NetworkOptions>();
    sub.option("model", options->model, "An ONNX file").type("MODEL.onnx").required();
    sub.option("--size", options->sizes,
               "Of an input whose sizes are open and that no file gives, e.g. x=1x3x640x640; repeatable")
        .type("NAME=SIZES");
    sub.option("--device", options->device, "Where to run; see faltung devices").type("ID").shows_default();
    sub.option("--dtype", options->dtype, "Of what lies between its inputs and outputs: f32, f16 or bf16")
        .type("DTYPE")
        .shows_default();
    sub.option("--threads", options->threads, "CPU threads; every processor unless given").type("N");
    sub.option("--math", options->math, "Of convolutions and products: f32 or fast; on a GPU tf32 too")
        .type("MATH")
        .shows_default();
    sub.option("--input", options->inputs, "An input from a file; the others are drawn. Repeatable")
        .type("NAME=FILE.npy");
    sub.option("--seed", options->seed, "Of the inputs that are drawn").type("N").shows_default();
    sub.option(
           "--find", options->find,
           "Measure each convolution's kernels in either layout first, this long each: what is found is kept")
        .type("TIME");
    more(sub, *options);
    sub.runs([options, run] { return run(*options); });
  };
  add("run", "Run it once, and say what comes out", run, [](const Command& sub, NetworkOptions& o) {
    sub.option("--output", o.outputs, "An output to a file; repeatable").type("NAME=FILE.npy");
  });
  add("explain", "A line a step: kernel, time, layout, place in the arena", explain,
      [](const Command&, NetworkOptions&) {});
  add("verify", "Every tensor beside a run in double precision", verify,
      [](const Command& sub, NetworkOptions& o) {
        sub.option(
               "--bound", o.bound,
               "The worst error that is right, relative to a tensor's largest element; 1e-4 for f32, 1e-2 "
               "for f16 "
               "and 8e-2 for bf16 unless given")
            .type("X");
        sub.option("--vs", o.peer,
                   "What another engine makes of the same inputs, too: onnxruntime or openvino")
            .type("PEER");
      });
  add("bench", "Time it, also beside another engine", bench, [](const Command& sub, NetworkOptions& o) {
    sub.option("--vs", o.peer, "Another engine, timed in turn: onnxruntime or openvino").type("PEER");
    sub.option("--repeat", o.repeat, "Blocks of runs").type("N").shows_default();
    sub.option("--min-time", o.least, "Of runs in all blocks together, at least")
        .type("TIME")
        .shows_default();
  });
}

const Subcommand kNetwork("network", "Run, time, explain and verify whole networks", declare_network);

}  // namespace
}  // namespace faltung::tools
