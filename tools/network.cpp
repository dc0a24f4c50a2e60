// faltung network: whole networks from ONNX files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "tools/command.hpp"
#include "tools/network.hpp"
#include "tools/race.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPeers = "onnxruntime, openvino, ncnn, torch, torch-compiled or torch-graph";

std::string show_sizes(const std::vector<std::int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, "x"));
}

int run(const NetworkOptions& options) {
  LoadedNetwork l(options);
  const auto begin = Clock::now();
  l.once();
  const double ms = ms_since(begin);
  l.out->download();
  l.out->write(options.outputs);
  for (std::size_t i = 0; i < l.plan->outputs().size(); ++i) {
    const NetworkTensor& tensor = l.plan->outputs()[i];
    std::string range;
    if (const std::vector<double> numbers = l.out->numbers(i); !numbers.empty()) {
      const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
      range = fmt::format(", {:.6g} to {:.6g}", *least, *most);
    }
    fmt::print("{} {}{}\n", tensor.name, show_sizes(tensor.sizes), range);
  }
  fmt::print("loaded in {} ms, planned in {} ms, first run {} ms\n", show_ms(l.load_ms), show_ms(l.plan_ms),
             show_ms(ms));
  return 0;
}

int explain(const NetworkOptions& options) {
  LoadedNetwork l(options);
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
               step.name + (step.problem.empty() ? "" : "  " + step.problem) +
                   (step.note.empty() ? "" : "  (" + step.note + ")")});
  }
  fmt::print(
      "\n{} steps, {} ms ({} predicted); convolutions and products by constants {:.1f} %; {} values turned "
      "between layouts\n",
      report.steps.size(), show_ms(total), show_ms(predicted), 100 * convolutions / total, report.turned);
  fmt::print("arena {} = {} bytes, {:.3f} of the least that is possible, {} bytes\n",
             show_bytes(report.arena_bytes), report.arena_bytes,
             report.arena_bound == 0
                 ? 1.0
                 : static_cast<double>(report.arena_bytes) / static_cast<double>(report.arena_bound),
             report.arena_bound);
  return 0;
}

// What a network's roundings come to, relative to a tensor's largest element: usual depths, each layer's
// error in units of the type's roundoff.
double usual_bound(DType dtype) { return dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 1e-2 : 8e-2; }

// What the peer makes of the same inputs, beside ours.
void verify_peer(LoadedNetwork& l, const NetworkOptions& options,
                 const std::vector<network::Array>& expected) {
  NetworkPeer other(l, options);
  const std::vector<network::TensorError> ours = output_errors(l, expected),
                                          theirs = output_errors(other.peer, l, expected);
  fmt::print("outputs, relative to each one's largest element:\n");
  const Table table({{"worst", 9, true}, {"rms", 9, true}, {"output", 40}, {"by", 0}});
  table.header();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (const auto& [by, e] : {std::pair{"faltung " + std::string(version()), ours[i]},
                                std::pair{other.peer.version(), theirs[i]}})
      table.row({show_worst(e), fmt::format("{:.2e}", e.rms), l.plan->outputs()[i].name, by});
  }
}

int verify(const NetworkOptions& options) {
  const bool is_usual = options.bound.empty();
  const double asked = is_usual ? 0 : parse_number("--bound", options.bound);  // before the file is read
  LoadedNetwork l(options);
  const double bound = is_usual ? usual_bound(l.request.dtype) : asked;
  const auto [errors, outputs, beyond] = network::verify(NetworkInternals::impl(*l.network),
                                                         NetworkInternals::impl(*l.plan), l.in->host_reads());
  const Table table({{"worst", 9, true}, {"rms", 9, true}, {"tensor", 40}, {"step", 0}});
  table.header();
  bool right = !errors.empty();
  for (const network::TensorError& e : errors) {
    const bool fits = e.finite && e.worst <= bound;
    right = right && fits;
    table.row({show_worst(e), fmt::format("{:.2e}", e.rms), e.name + (e.is_output ? " (output)" : ""),
               e.step + (fits ? "" : "  BEYOND THE BOUND")});
  }
  fmt::print("\n{} tensors against a run in double precision, relative to each one's largest element: {}\n",
             errors.size(),
             right ? fmt::format("all within {}", bound) : fmt::format("WRONG, beyond {}", bound));
  if (!beyond.empty())
    fmt::print("{} holds no elements as large as these tensors have; in f32 they are right: --keep-f32 {}\n",
               options.dtype, fmt::join(beyond, " --keep-f32 "));
  if (!options.peer.empty()) verify_peer(l, options, outputs);
  return right ? 0 : 1;
}

// What every one of them asks: which network, of which sizes, where and how.
Command with_network(const Command& command, const char* name, const char* help, NetworkOptions& options) {
  const Command sub = command.subcommand(name, help);
  sub.option("model", options.model, "An ONNX file").type("MODEL.onnx").required();
  sub.option("--size", options.sizes,
             "Of an input whose sizes are open and that no file gives, e.g. x=1x3x640x640; repeatable")
      .type("NAME=SIZES");
  sub.option("--device", options.device, "Where to run; see faltung devices").type("ID").shows_default();
  sub.option("--dtype", options.dtype, "Of what lies between its inputs and outputs: f32, f16 or bf16")
      .type("DTYPE")
      .shows_default();
  sub.option("--keep-f32", options.keep_f32,
             "With 16 bits: a tensor that is of f32 none the less, as verify names it; repeatable")
      .type("TENSOR");
  sub.option("--math", options.math, "Of convolutions and products: f32 or fast; on a GPU tf32 too")
      .type("MATH")
      .shows_default();
  return sub;
}

void declare_network(const Command& command) {
  const auto add = [&](const char* name, const char* help, int (*run)(const NetworkOptions&),
                       const std::function<void(const Command&, NetworkOptions&)>& more) {
    const auto options = std::make_shared<NetworkOptions>();
    const Command sub = with_network(command, name, help, *options);
    sub.option("--threads", options->threads, "CPU threads; every processor unless given").type("N");
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
                   "What another engine makes of the same inputs, too: " + std::string(kPeers))
            .type("PEER");
      });
  add("bench", "Time it, also beside another engine", bench_network,
      [](const Command& sub, NetworkOptions& o) {
        sub.option("--vs", o.peer, "Another engine, timed in turn: " + std::string(kPeers)).type("PEER");
        sub.option("--repeat", o.repeat, "Blocks of runs").type("N").shows_default();
        sub.option("--min-time", o.least, "Of runs in all blocks together, at least")
            .type("TIME")
            .shows_default();
        sub.flag("--check", o.check, "Tell its errors even where the run in double precision takes long");
        sub.flag("--no-check", o.no_check, "Do not tell its errors");
      });
  const auto options = std::make_shared<NetworkOptions>();
  const auto how = std::make_shared<PrepareOptions>();
  const Command prepare = with_network(
      command, "prepare", "Compile and try what it needs on a GPU before it is planned", *options);
  how->add_options(prepare);
  prepare.runs([options, how] { return prepare_network(*options, *how); });
}

const Subcommand kNetwork("network", "Run, time, explain, verify and prepare whole networks",
                          declare_network);

}  // namespace
}  // namespace faltung::tools
