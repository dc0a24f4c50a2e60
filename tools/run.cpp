// faltung run: one convolution on .npy files.
#include <fmt/format.h>

#include <cstring>

#include "src/finder/engine.hpp"
#include "src/finder/oracle.hpp"
#include "src/problem/npy.hpp"
#include "src/problem/problem.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

struct RunCommandOptions {
  Arguments arguments;
  std::string x, w, y, bias, residual, relu, sums, scale, shift, slopes;
  bool check = false;
};

// An array's shape: the sizes in the layout's memory order.
std::vector<std::int64_t> npy_shape(const Problem& p, const TensorShape& s) {
  std::vector<std::int64_t> shape = {s.d, s.h, s.w};
  shape.erase(shape.begin(), shape.end() - p.dimensions);
  shape.insert(p.layout == Layout::nchw ? shape.begin() : shape.end(), s.c);
  shape.insert(shape.begin(), s.n);
  return shape;
}

// Host data of the tensors that the direction reads.
class Inputs {
 public:
  Inputs(const Problem& problem, const RunCommandOptions& options) : problem_(problem) {
    const Epilogue& e = problem.epilogue;
    const bool forward = problem.direction == Direction::forward;
    if (problem.direction != Direction::backward_data) read("x", options.x, x_shape(problem), tensors.x);
    if (problem.direction != Direction::backward_weights) read("w", options.w, w_shape(problem), tensors.w);
    if (!forward) read("y", options.y, conv_shape(problem), tensors.y);
    void* pointer = nullptr;
    if (e.bias) read("bias", options.bias, {problem.k}, bias_dtype(problem), pointer), tensors.bias = pointer;
    if (e.residual)
      read("residual", options.residual, conv_shape(problem), pointer), tensors.residual = pointer;
    if (problem.training == Training::drelu)
      read("relu", options.relu, x_shape(problem), pointer), tensors.relu = pointer;
    else if (!options.relu.empty())
      refuse("relu", "drelu");
    for (const auto& [name, file, to] :
         {std::tuple{"scale", &options.scale, &tensors.scale}, {"shift", &options.shift, &tensors.shift}}) {
      if (has_affine(problem))
        read(name, *file, {problem.c}, DType::f32, pointer), *to = pointer;
      else if (!file->empty())
        refuse(name, faltung::name(Affine::affine));
    }
    if (has_slopes(problem))
      read("slopes", options.slopes, {problem.k}, DType::f32, pointer), tensors.slopes = pointer;
    else if (!options.slopes.empty())
      refuse("slopes", faltung::name(Activation::prelu));
    if (sums_of_channel(problem) == 0 && !options.sums.empty())
      refuse("sums", problem.direction == Direction::forward ? "stats" : "dbias");
    if (!e.bias && !options.bias.empty()) refuse("bias");
    if (!e.residual && !options.residual.empty()) refuse("residual");
  }

  Tensors tensors;

 private:
  // word: of the problem that has the tensor, where it is not the tensor's name.
  [[noreturn]] void refuse(const std::string& name, const std::string& word = "") const {
    throw Error(Status::bad_problem,
                fmt::format("--{0} is given, but {1} has no {0}; add ':{2}' to the problem", name,
                            to_string(problem_), word.empty() ? name : word));
  }
  void read(const std::string& name, const std::string& file, const TensorShape& shape, void*& pointer) {
    read(name, file, npy_shape(problem_, shape), problem_.dtype, pointer);
  }
  void read(const std::string& name, const std::string& file, const std::vector<std::int64_t>& shape,
            DType dtype, void*& pointer) {
    if (file.empty()) {
      throw Error(Status::bad_problem,
                  fmt::format("{} needs the tensor {}; give --{} FILE.npy", to_string(problem_), name, name));
    }
    arrays_.push_back(std::make_unique<NpyArray>(read_npy(file)));
    check_npy(*arrays_.back(), file, name, dtype, shape);
    pointer = arrays_.back()->data.data();
  }

  const Problem& problem_;
  std::vector<std::unique_ptr<NpyArray>> arrays_;
};

int run(const RunCommandOptions& options) {
  const std::vector<Row> rows = options.arguments.rows();
  if (rows.size() != 1) {
    throw Error(Status::bad_problem, fmt::format("run takes one problem, got {}", rows.size()));
  }
  const Problem& p = rows.front().problem;
  const Request request = options.arguments.request();
  const char* name = p.direction == Direction::forward         ? "y"
                     : p.direction == Direction::backward_data ? "x"
                                                               : "w";
  if (has_pitch(p))
    throw Error(Status::bad_problem,
                to_string(p) + ": a slice is no array of a file; leave xpitch and ypitch out");
  const std::string& file = name[0] == 'y' ? options.y : name[0] == 'x' ? options.x : options.w;
  if (file.empty()) {
    throw Error(Status::bad_problem,
                fmt::format("{} writes {}; give --{} FILE.npy", to_string(p), name, name));
  }
  if (sums_of_channel(p) > 0 && options.sums.empty())
    throw Error(Status::bad_problem, fmt::format("{} writes sums; give --sums FILE.npy", to_string(p)));
  if (!options.sums.empty())
    check_apart({{fmt::format("--{} {}", name, file), file}, {"--sums " + options.sums, options.sums}});
  const Inputs inputs(p, options);

  Engine engine;
  print_warnings(engine);
  const Plan plan = engine.plan(p, request);
  Device& device = Internals::impl(plan).device();
  MemoryPool pool(device.info().id);
  const auto upload = [&](const void* host, std::int64_t bytes) -> void* {
    if (host == nullptr) return nullptr;
    void* const pointer = pool.allocate(static_cast<std::size_t>(bytes));
    pool.copy_in(pointer, host, static_cast<std::size_t>(bytes));
    return pointer;
  };
  const TensorShape shape = result_shape(p);
  std::vector<std::byte> result(static_cast<std::size_t>(bytes_of(p, shape)));
  Tensors tensors;
  tensors.x = upload(inputs.tensors.x, bytes_of(p, x_shape(p)));
  tensors.w = upload(inputs.tensors.w, bytes_of(p, w_shape(p)));
  tensors.y = upload(inputs.tensors.y, bytes_of(p, conv_shape(p)));
  tensors.bias = upload(inputs.tensors.bias, static_cast<std::int64_t>(bytes(p, Tensor::bias)));
  tensors.residual = upload(inputs.tensors.residual, bytes_of(p, conv_shape(p)));
  tensors.relu = upload(inputs.tensors.relu, bytes_of(p, x_shape(p)));
  tensors.scale = upload(inputs.tensors.scale, static_cast<std::int64_t>(bytes(p, Tensor::scale)));
  tensors.shift = upload(inputs.tensors.shift, static_cast<std::int64_t>(bytes(p, Tensor::shift)));
  tensors.slopes = upload(inputs.tensors.slopes, static_cast<std::int64_t>(bytes(p, Tensor::slopes)));
  std::vector<float> sums(static_cast<std::size_t>(sums_of_channel(p) * p.k));
  if (!sums.empty())
    tensors.sums = upload(sums.data(), static_cast<std::int64_t>(sums.size() * sizeof(float)));
  void*& out = name[0] == 'y' ? tensors.y : name[0] == 'x' ? tensors.x : tensors.w;
  out = upload(result.data(), bytes_of(p, shape));
  RunOptions run_options;
  run_options.workspace = pool.allocate(plan.workspace_bytes());
  const double ms = device.time_ms({}, [&] { plan.run(tensors, run_options); });
  device.synchronize({});
  pool.copy_out(result.data(), out, result.size());
  write_npy(file, p.dtype, npy_shape(p, shape), result.data());
  if (!sums.empty()) {
    pool.copy_out(sums.data(), tensors.sums, sums.size() * sizeof(float));
    write_npy(options.sums, DType::f32, {sums_of_channel(p), p.k}, sums.data());
  }
  fmt::print("{}: {} by {}, {} ms with packing of the weights\n", file, to_string(p), plan.kernel(),
             show_ms(ms));

  if (!options.check) return 0;
  const Settled settled(p, request);
  const auto parallel = Internals::impl(engine).workers(available_processors());
  constexpr double kProducts = 1e10;  // all elements, unless it took minutes
  const Oracle oracle(p, inputs.tensors, options.arguments.seed(), kProducts);
  const Finding finding =
      oracle.check(result.data(), find_candidate(plan.kernel(), p, settled.target()).accuracy, *parallel);
  fmt::print("check: {}: {} of {} elements against the reference, worst error {:.3g} of its bound{}\n",
             finding.right() ? "pass" : "WRONG", finding.checked, shape.elements(), finding.error_over_bound,
             finding.right() ? "" : "; " + finding.worst);
  return finding.right() ? 0 : 1;
}

void declare_run(const Command& command) {
  const auto options = std::make_shared<RunCommandOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  options->arguments.add_seed(command);
  const auto file = [&](const char* flag, std::string& value, const char* text) {
    command.option(flag, value, text).type("FILE.npy");
  };
  file("--x", options->x, "Input; bwd_d writes it");
  file("--w", options->w, "Filter; bwd_w writes it");
  file("--y", options->y, "Output, which fwd writes; else its gradient");
  file("--bias", options->bias, "One value an output channel");
  file("--relu", options->relu, "Of drelu: x as forward read it");
  file("--sums", options->sums,
       "Of stats and dbias, which write it: fp32, a row of the output channels each");
  file("--scale", options->scale, "Of affine: fp32, one value an input channel");
  file("--shift", options->shift, "Likewise");
  file("--slopes", options->slopes, "Of prelu: fp32, one value an output channel");
  file("--residual", options->residual, "Of the convolution's output shape");
  command.flag("--check", options->check, "Compare with the reference");
  command.runs([options] { return run(*options); });
}

const Subcommand kRun("run", "Compute one convolution on .npy files", declare_run);

}  // namespace
}  // namespace faltung::tools
