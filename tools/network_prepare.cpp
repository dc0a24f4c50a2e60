// faltung network prepare: compiles and tries all that a network needs on a GPU, before it is planned there.
#include <filesystem>

#include "tools/network.hpp"

namespace faltung::tools {

int prepare_network(const NetworkOptions& options, PrepareOptions& how) {
  Engine engine;
  print_warnings(engine);
  const NetworkRequest request = request_of(options);
  Network network(engine, options.model, request);
  network::Survey survey =
      NetworkInternals::impl(network).survey(network_sizes(network.inputs(), options.sizes, {}));
  const std::string suite = std::filesystem::path(options.model).stem().string();
  std::vector<Row> rows;
  for (Problem& problem : survey.problems)
    rows.push_back({suite, std::to_string(rows.size()), std::move(problem)});
  return Preparation(how, request.request, std::move(rows), std::move(survey.programs)).run();
}

}  // namespace faltung::tools
