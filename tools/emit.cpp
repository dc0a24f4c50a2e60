// faltung emit: a kernel as text, for a target that is not here.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/algorithms/algorithm.hpp"
#include "src/emit/nki_source.hpp"
#include "tools/command.hpp"

namespace faltung::tools {
namespace {

struct EmitOptions {
  std::string problem, output, target = "trn2", kernel;
};

// The chosen kernel's, or the best by the model.
std::string text_of(const EmitOptions& options, const NkiCore& core) {
  if (nki::is_plain_kernel(options.problem)) {
    if (!options.kernel.empty()) throw Error(Status::bad_problem, "--kernel: a plain kernel has no other");
    return nki::plain_source(options.problem, core);
  }
  const Problem problem = with_math(parse_problem(options.problem));
  const std::shared_ptr<Device> device = make_nki_device(core.id);
  const Target target{device->info(), 1};
  std::string why;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != device->info().kind) continue;
    if (!options.kernel.empty() && parse_kernel(options.kernel).algorithm != algorithm.get()) continue;
    const Support support = algorithm->supports(problem, target);
    if (!support.yes) {
      why += (why.empty() ? "" : "; ") + support.why;
      continue;
    }
    const Candidate candidate = options.kernel.empty() ? algorithm->candidates(problem, target).front()
                                                       : find_candidate(options.kernel, problem, target);
    return std::get<Launch>(candidate.recipe().steps.front().work).source.text;
  }
  throw Error(Status::unsupported,
              fmt::format("no kernel is emitted for {} on {}: {}", to_string(problem), core.id,
                          why.empty() ? options.kernel + " is none of its kernels" : why));
}

int run(const EmitOptions& options) {
  const std::string text = text_of(options, nki_core("nki:" + options.target));
  if (options.output.empty() || options.output == "-") {
    fmt::print("{}", text);
    return 0;
  }
  std::FILE* file = std::fopen(options.output.c_str(), "w");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written) throw Error(Status::bad_file, options.output + " cannot be written: " + std::strerror(errno));
  return 0;
}

void declare_emit(const Command& command) {
  const auto options = std::make_shared<EmitOptions>();
  const Command nki =
      command.subcommand("nki", "For AWS's Trainium, as a Python file for the Neuron SDK's NKI");
  nki.option("problem", options->problem,
             "A problem string, or add:<rows>x<columns>, transpose:<batch>x<rows>x<columns>")
      .type("PROBLEM")
      .required();
  nki.option("-o,--output", options->output, "Where to write it; standard output unless given").type("FILE");
  nki.option("--target", options->target, "trn2 or trn1").type("CHIP").shows_default();
  nki.option("--kernel", options->kernel, "This kernel, not the best by the model").type("NAME");
  nki.runs([options] { return run(*options); });
}

const Subcommand kEmit("emit", "A kernel as text, for a target that is not here", declare_emit);

}  // namespace
}  // namespace faltung::tools
