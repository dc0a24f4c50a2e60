// The C interface: networks.
#include "faltung/network.h"

#include <span>

#include "faltung/network.hpp"
#include "src/c_api.hpp"

using namespace faltung::c_api;

struct faltung_network {
  faltung::Network network;
};
struct faltung_network_plan {
  faltung::NetworkPlan plan;
};

namespace {

void describe(const std::vector<faltung::NetworkTensor>& all, std::size_t index,
              faltung_network_tensor* tensor, const char* what) {
  need(tensor, what);
  if (index >= all.size()) {
    throw faltung::Error(faltung::Status::bad_problem, std::string(what) + ": index is " +
                                                           std::to_string(index) + "; there are " +
                                                           std::to_string(all.size()));
  }
  const faltung::NetworkTensor& t = all[index];
  give({sizeof *tensor, t.name.c_str(), static_cast<faltung_element>(t.element), t.sizes.size(),
        t.sizes.data()},
       tensor, what);
}

}  // namespace

faltung_status faltung_network_create(faltung_engine* engine, const char* file,
                                      const faltung_request* request, faltung_network** network) {
  return faltung_network_create_in(engine, file, request, FALTUNG_ELEMENT_F32, network);
}

faltung_status faltung_network_create_in(faltung_engine* engine, const char* file,
                                         const faltung_request* request, faltung_element element,
                                         faltung_network** network) {
  return faltung_network_create_mixed(engine, file, request, element, nullptr, 0, network);
}

faltung_status faltung_network_create_mixed(faltung_engine* engine, const char* file,
                                            const faltung_request* request, faltung_element element,
                                            const char* const* keep_f32, size_t count,
                                            faltung_network** network) {
  return guarded([&] {
    need(network, "faltung_network_create: network");
    *network = nullptr;
    need(engine, "faltung_network_create: engine");
    need(file, "faltung_network_create: file");
    faltung::NetworkRequest asked;
    asked.request = request_of(request);
    if (element == FALTUNG_ELEMENT_F16 || element == FALTUNG_ELEMENT_BF16)
      asked.dtype = element == FALTUNG_ELEMENT_F16 ? faltung::DType::f16 : faltung::DType::bf16;
    else if (element != FALTUNG_ELEMENT_F32)
      throw faltung::Error(faltung::Status::bad_problem,
                           "faltung_network_create: element is none of f32, f16 and bf16");
    if (count > 0) need(keep_f32, "faltung_network_create_mixed: keep_f32");
    for (size_t i = 0; i < count; ++i) {
      need(keep_f32[i], "faltung_network_create_mixed: a name in keep_f32");
      asked.keep_f32.emplace_back(keep_f32[i]);
    }
    *network = new faltung_network{faltung::Network(engine->engine, file, asked)};
  });
}

void faltung_network_destroy(faltung_network* network) { delete network; }

size_t faltung_network_input_count(const faltung_network* network) {
  return network == nullptr ? 0 : network->network.inputs().size();
}

faltung_status faltung_network_input(const faltung_network* network, size_t index,
                                     faltung_network_tensor* tensor) {
  return guarded([&] {
    need(network, "faltung_network_input: network");
    describe(network->network.inputs(), index, tensor, "faltung_network_input: tensor");
  });
}

const char* faltung_network_metadata(const faltung_network* network, const char* key) {
  if (network == nullptr || key == nullptr) return nullptr;
  const auto& all = network->network.metadata();
  const auto found = all.find(key);
  return found == all.end() ? nullptr : found->second.c_str();
}

faltung_status faltung_network_plan_create(faltung_network* network, const int64_t* sizes, size_t count,
                                           faltung_network_plan** plan) {
  return guarded([&] {
    need(plan, "faltung_network_plan_create: plan");
    *plan = nullptr;
    need(network, "faltung_network_plan_create: network");
    if (count > 0) need(sizes, "faltung_network_plan_create: sizes");
    std::vector<std::vector<std::int64_t>> all;
    std::size_t next = 0;
    for (const faltung::NetworkTensor& input : network->network.inputs()) {
      const std::size_t rank = input.sizes.size();
      if (rank > count - next) break;
      all.emplace_back(sizes + next, sizes + next + rank);
      next += rank;
    }
    if (all.size() != network->network.inputs().size() || next != count) {
      std::size_t wanted = 0;
      for (const faltung::NetworkTensor& input : network->network.inputs()) wanted += input.sizes.size();
      throw faltung::Error(faltung::Status::bad_problem, "faltung_network_plan_create: the inputs have " +
                                                             std::to_string(wanted) + " sizes together; " +
                                                             std::to_string(count) + " are given");
    }
    *plan = new faltung_network_plan{network->network.plan(all)};
  });
}

void faltung_network_plan_destroy(faltung_network_plan* plan) { delete plan; }

size_t faltung_network_plan_output_count(const faltung_network_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.outputs().size();
}

faltung_status faltung_network_plan_output(const faltung_network_plan* plan, size_t index,
                                           faltung_network_tensor* tensor) {
  return guarded([&] {
    need(plan, "faltung_network_plan_output: plan");
    describe(plan->plan.outputs(), index, tensor, "faltung_network_plan_output: tensor");
  });
}

size_t faltung_network_plan_arena_bytes(const faltung_network_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.arena_bytes();
}

faltung_status faltung_network_run(const faltung_network_plan* plan, const void* const* inputs,
                                   void* const* outputs) {
  return faltung_network_run_on(plan, inputs, outputs, nullptr, nullptr);
}

faltung_status faltung_network_run_on(const faltung_network_plan* plan, const void* const* inputs,
                                      void* const* outputs, void* stream, void* arena) {
  return guarded([&] {
    need(plan, "faltung_network_run: plan");
    const std::size_t reads = plan->plan.inputs().size(), writes = plan->plan.outputs().size();
    if (reads > 0) need(inputs, "faltung_network_run: inputs");
    if (writes > 0) need(outputs, "faltung_network_run: outputs");
    plan->plan.run({inputs, reads}, {outputs, writes}, {stream, arena});
  });
}
