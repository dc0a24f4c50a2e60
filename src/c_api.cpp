// The C interface: each function calls the C++ one, and turns what it throws into a status and a message.
#include "faltung/faltung.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "faltung/faltung.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

struct faltung_problem {
  faltung::Problem problem;
  std::string text;
};
struct faltung_engine {
  faltung::Engine engine;
};
struct faltung_plan {
  faltung::Plan plan;
};
struct faltung_adopted {
  std::shared_ptr<void> buffer;
};
struct faltung_memory_pool {
  faltung::MemoryPool pool;
};
struct faltung_weights {
  std::shared_ptr<const faltung::PackedWeights> packed;
};
struct faltung_choice {
  faltung::Choice choice;
  std::string text;
};

namespace {

thread_local std::string last_error;

faltung_status fail(faltung_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {  // no memory for the message
    last_error.clear();
  }
  return status;
}

static_assert(static_cast<int>(faltung::Status::internal) == FALTUNG_INTERNAL &&
                  static_cast<int>(faltung::Outcome::too_large) == FALTUNG_TOO_LARGE &&
                  static_cast<int>(faltung::Tensor::residual) == FALTUNG_RESIDUAL,
              "enums have the same values in both languages");

// The caller's struct as this version knows it: members that the caller's version has not are zero.
template <class T>
T known(const T& given, const char* what) {
  T out{};
  constexpr std::size_t kFewest = sizeof(std::size_t);
  if (given.size < kFewest || given.size > 16 * sizeof(T)) {
    throw faltung::Error(faltung::Status::bad_problem,
                         std::string(what) + ": its size is " + std::to_string(given.size) +
                             "; set it to sizeof the struct, as the *_default functions do");
  }
  std::memcpy(&out, &given, std::min(given.size, sizeof(T)));
  return out;
}

// As much of it as the caller's version has.
template <class T>
void give(T from, T* to, const char* what) {
  from.size = known(*to, what).size;
  std::memcpy(to, &from, std::min(from.size, sizeof(T)));
}

// Calls body, which may throw; no exception passes.
template <class Body>
faltung_status guarded(Body&& body) noexcept {
  try {
    body();
    return FALTUNG_OK;
  } catch (const faltung::Error& error) {
    return fail(static_cast<faltung_status>(error.status()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(FALTUNG_OUT_OF_MEMORY, "out of memory on the host");
  } catch (const std::exception& error) {
    return fail(FALTUNG_INTERNAL, error.what());
  } catch (...) {
    return fail(FALTUNG_INTERNAL, "an exception of unknown type");
  }
}

// what: the function and its argument.
void need(const void* pointer, const char* what) {
  if (pointer == nullptr) throw faltung::Error(faltung::Status::bad_problem, std::string(what) + " is NULL");
}

std::vector<std::string> patterns(const char* text) {
  std::vector<std::string> all;
  if (text == nullptr) return all;
  for (const std::string& part : faltung::split(text, ',')) {
    if (const std::string_view pattern = faltung::trim(part); !pattern.empty()) all.emplace_back(pattern);
  }
  return all;
}

faltung::Request request_of(const faltung_request* given) {
  faltung::Request out;
  if (given == nullptr) return out;
  const faltung_request request = known(*given, "request");
  if (request.device != nullptr) out.device = request.device;
  out.threads = request.threads;
  out.workspace_limit = request.workspace_limit;
  out.deterministic = request.deterministic != 0;
  out.only = patterns(request.only);
  out.skip = patterns(request.skip);
  out.budget_ms = request.budget_ms;
  switch (request.trust) {
    case FALTUNG_TRUST_DEFAULT:
      break;
    case FALTUNG_TRUST_TESTED:
      out.trust = faltung::TrustPolicy::tested;
      break;
    case FALTUNG_TRUST_ALL:
      out.trust = faltung::TrustPolicy::all;
      break;
    case FALTUNG_TRUST_NONE:
      out.trust = faltung::TrustPolicy::none;
      break;
    default:
      throw faltung::Error(faltung::Status::bad_problem,
                           "request: trust is " + std::to_string(static_cast<int>(request.trust)) +
                               "; it is one of FALTUNG_TRUST_DEFAULT to FALTUNG_TRUST_NONE");
  }
  out.deadline_ms = request.deadline_ms;
  if (request.worker != nullptr) out.worker = request.worker;
  return out;
}

// One line for each report.
std::string text_of(const faltung::Choice& choice) {
  std::string text;
  for (const faltung::Report& report : choice.reports) {
    char times[96] = "";
    if (report.ms > 0) {
      std::snprintf(times, sizeof times, "  %.4g ms", report.ms);
    } else if (report.predicted_ms > 0) {
      std::snprintf(times, sizeof times, "  predicted %.4g ms", report.predicted_ms);
    }
    text += report.kernel + "  " + name(report.outcome) + times;
    if (!report.why.empty()) text += "  " + report.why;
    text += '\n';
  }
  return text;
}

faltung::Tensor tensor_of(faltung_tensor tensor) {
  if (tensor < FALTUNG_X || tensor > FALTUNG_RESIDUAL) {
    throw faltung::Error(
        faltung::Status::bad_problem,
        "no tensor " + std::to_string(static_cast<int>(tensor)) + "; they are FALTUNG_X to FALTUNG_RESIDUAL");
  }
  return static_cast<faltung::Tensor>(tensor);
}

// With texts that live as long as the process.
struct Described {
  faltung::DeviceDescription device;
  std::string features;
};
const std::vector<Described>& described() {
  static const std::vector<Described> all = [] {
    std::vector<Described> devices;
    for (faltung::DeviceDescription& device : faltung::devices()) {
      std::string features;
      for (const std::string& feature : device.features) features += (features.empty() ? "" : " ") + feature;
      devices.push_back({std::move(device), std::move(features)});
    }
    return devices;
  }();
  return all;
}

// The caller's callback as a ParallelFor. An exception must not cross the callback's C frames: the first one
// waits here until the callback has returned.
faltung::ParallelFor callers_parallel_for(faltung_parallel_for parallel_for, void* context) {
  return [parallel_for, context](int count, const std::function<void(int)>& body) {
    struct Call {
      const std::function<void(int)>& body;
      std::atomic_flag failed = ATOMIC_FLAG_INIT;
      std::exception_ptr error;
    } call{body, ATOMIC_FLAG_INIT, nullptr};
    parallel_for(
        context, count,
        [](int index, void* argument) {
          Call& call = *static_cast<Call*>(argument);
          try {
            call.body(index);
          } catch (...) {
            if (!call.failed.test_and_set()) call.error = std::current_exception();
          }
        },
        &call);
    if (call.error) std::rethrow_exception(call.error);
  };
}

faltung::RunOptions run_options_of(const faltung_run_options* given) {
  faltung::RunOptions run;
  if (given == nullptr) return run;
  const faltung_run_options options = known(*given, "run options");
  run.workspace = options.workspace;
  run.weights = options.weights == nullptr ? nullptr : options.weights->packed.get();
  if (options.parallel_for != nullptr) {
    run.parallel_for = callers_parallel_for(options.parallel_for, options.parallel_for_context);
  }
  run.stream = options.stream;
  return run;
}

}  // namespace

const char* faltung_last_error(void) { return last_error.c_str(); }

const char* faltung_version(void) {
  static const std::string version = faltung::version();
  return version.c_str();
}

faltung_status faltung_problem_create(const char* text, faltung_problem** problem) {
  return guarded([&] {
    need(problem, "faltung_problem_create: problem");
    *problem = nullptr;
    need(text, "faltung_problem_create: text");
    const faltung::Problem parsed = faltung::parse_problem(text);
    *problem = new faltung_problem{parsed, faltung::to_string(parsed)};
  });
}

void faltung_problem_destroy(faltung_problem* problem) { delete problem; }

const char* faltung_problem_text(const faltung_problem* problem) {
  return problem == nullptr ? "" : problem->text.c_str();
}

faltung_status faltung_problem_sizes(const faltung_problem* problem, faltung_tensor tensor,
                                     int64_t sizes[4]) {
  return guarded([&] {
    need(problem, "faltung_problem_sizes: problem");
    need(sizes, "faltung_problem_sizes: sizes");
    const faltung::TensorShape shape = shape_of(problem->problem, tensor_of(tensor));
    sizes[0] = shape.n;
    sizes[1] = shape.c;
    sizes[2] = shape.h;
    sizes[3] = shape.w;
  });
}

size_t faltung_problem_bytes(const faltung_problem* problem, faltung_tensor tensor) {
  size_t bytes = 0;
  guarded([&] {
    need(problem, "faltung_problem_bytes: problem");
    bytes = faltung::bytes(problem->problem, tensor_of(tensor));
  });
  return bytes;
}

faltung_status faltung_engine_create(const char* store, faltung_engine** engine) {
  return guarded([&] {
    need(engine, "faltung_engine_create: engine");
    *engine = nullptr;
    *engine = new faltung_engine{faltung::Engine(store == nullptr ? "" : store)};
  });
}

void faltung_engine_destroy(faltung_engine* engine) { delete engine; }

faltung_status faltung_engine_on_warning(faltung_engine* engine, faltung_warning warning, void* context) {
  return guarded([&] {
    need(engine, "faltung_engine_on_warning: engine");
    if (warning == nullptr) return engine->engine.on_warning({});
    engine->engine.on_warning([=](const std::string& line) { warning(context, line.c_str()); });
  });
}

faltung_request faltung_request_default(void) {
  const faltung::Request defaults;
  faltung_request request{};
  request.size = sizeof request;
  request.device = "cpu";
  request.workspace_limit = defaults.workspace_limit;
  request.deterministic = defaults.deterministic ? 1 : 0;
  request.budget_ms = defaults.budget_ms;
  return request;
}

int faltung_device_count(void) {
  int count = 0;
  guarded([&] { count = static_cast<int>(described().size()); });
  return count;
}

faltung_status faltung_device_get(int index, faltung_device* device) {
  return guarded([&] {
    need(device, "faltung_device_get: device");
    const std::vector<Described>& all = described();
    if (index < 0 || static_cast<std::size_t>(index) >= all.size()) {
      throw faltung::Error(faltung::Status::bad_problem, "faltung_device_get: index is " +
                                                             std::to_string(index) + "; there are " +
                                                             std::to_string(all.size()) + " devices");
    }
    const auto& [d, features] = all[static_cast<std::size_t>(index)];
    give({sizeof *device, d.id.c_str(), d.kind.c_str(), d.name.c_str(), d.driver.c_str(), features.c_str(),
          d.units, d.memory_bytes},
         device, "faltung_device_get: device");
  });
}

const char* faltung_outcome_name(faltung_outcome outcome) {
  return faltung::name(static_cast<faltung::Outcome>(outcome));
}

faltung_status faltung_find(faltung_engine* engine, const faltung_problem* problem,
                            const faltung_request* request, faltung_choice** choice) {
  return guarded([&] {
    if (choice != nullptr) *choice = nullptr;
    need(engine, "faltung_find: engine");
    need(problem, "faltung_find: problem");
    faltung::Choice found = engine->engine.find(problem->problem, request_of(request));
    std::string text = text_of(found);
    if (choice != nullptr) *choice = new faltung_choice{std::move(found), std::move(text)};
  });
}

faltung_status faltung_explain(faltung_engine* engine, const faltung_problem* problem,
                               const faltung_request* request, faltung_choice** choice) {
  return guarded([&] {
    need(choice, "faltung_explain: choice");
    *choice = nullptr;
    need(engine, "faltung_explain: engine");
    need(problem, "faltung_explain: problem");
    faltung::Choice explained = engine->engine.explain(problem->problem, request_of(request));
    std::string text = text_of(explained);
    *choice = new faltung_choice{std::move(explained), std::move(text)};
  });
}

void faltung_choice_destroy(faltung_choice* choice) { delete choice; }

const char* faltung_choice_kernel(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->choice.kernel.c_str();
}

const char* faltung_choice_source(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->choice.source.c_str();
}

size_t faltung_choice_count(const faltung_choice* choice) {
  return choice == nullptr ? 0 : choice->choice.reports.size();
}

faltung_status faltung_choice_report(const faltung_choice* choice, size_t index, faltung_report* report) {
  return guarded([&] {
    need(choice, "faltung_choice_report: choice");
    need(report, "faltung_choice_report: report");
    const std::vector<faltung::Report>& all = choice->choice.reports;
    if (index >= all.size()) {
      throw faltung::Error(faltung::Status::bad_problem, "faltung_choice_report: index is " +
                                                             std::to_string(index) + "; there are " +
                                                             std::to_string(all.size()) + " reports");
    }
    const faltung::Report& r = all[index];
    give({sizeof *report, r.kernel.c_str(), static_cast<faltung_outcome>(r.outcome), r.why.c_str(),
          r.predicted_ms, r.ms, r.ms_min, r.ms_max, r.error_over_bound, r.compile_ms, r.workspace_bytes,
          r.error_growth, r.bound_by.c_str(), r.ceiling_pct},
         report, "faltung_choice_report: report");
  });
}

const char* faltung_choice_text(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->text.c_str();
}

faltung_status faltung_plan_create(faltung_engine* engine, const faltung_problem* problem,
                                   const faltung_request* request, faltung_plan** plan) {
  return guarded([&] {
    need(plan, "faltung_plan_create: plan");
    *plan = nullptr;
    need(engine, "faltung_plan_create: engine");
    need(problem, "faltung_plan_create: problem");
    *plan = new faltung_plan{engine->engine.plan(problem->problem, request_of(request))};
  });
}

void faltung_plan_destroy(faltung_plan* plan) { delete plan; }

const char* faltung_plan_kernel(const faltung_plan* plan) {
  return plan == nullptr ? "" : plan->plan.kernel().c_str();
}

size_t faltung_plan_workspace_bytes(const faltung_plan* plan, int weights_are_packed) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes(weights_are_packed != 0);
}

size_t faltung_plan_packed_weights_bytes(const faltung_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.packed_weights_bytes();
}

faltung_status faltung_pack_weights(const faltung_plan* plan, const void* w,
                                    const faltung_run_options* options, faltung_weights** weights) {
  return guarded([&] {
    need(weights, "faltung_pack_weights: weights");
    *weights = nullptr;
    need(plan, "faltung_pack_weights: plan");
    *weights = new faltung_weights{plan->plan.pack_weights(w, run_options_of(options))};
  });
}

void faltung_weights_destroy(faltung_weights* weights) { delete weights; }

faltung_status faltung_run(const faltung_plan* plan, const faltung_tensors* tensors,
                           const faltung_run_options* options) {
  return guarded([&] {
    need(plan, "faltung_run: plan");
    need(tensors, "faltung_run: tensors");
    plan->plan.run({tensors->x, tensors->w, tensors->y, tensors->bias, tensors->residual},
                   run_options_of(options));
  });
}

faltung_status faltung_memory_pool_create(const char* device, size_t limit, faltung_memory_pool** pool) {
  return guarded([&] {
    need(pool, "faltung_memory_pool_create: pool");
    *pool = nullptr;
    *pool = new faltung_memory_pool{faltung::MemoryPool(device == nullptr ? "cpu" : device, limit)};
  });
}

void faltung_memory_pool_destroy(faltung_memory_pool* pool) { delete pool; }

faltung_status faltung_memory_allocate(faltung_memory_pool* pool, size_t bytes, void** pointer) {
  return guarded([&] {
    need(pointer, "faltung_memory_allocate: pointer");
    *pointer = nullptr;
    need(pool, "faltung_memory_allocate: pool");
    *pointer = pool->pool.allocate(bytes);
  });
}

faltung_status faltung_memory_free(faltung_memory_pool* pool, void* pointer) {
  return guarded([&] {
    need(pool, "faltung_memory_free: pool");
    pool->pool.free(pointer);
  });
}

faltung_status faltung_memory_copy_in(faltung_memory_pool* pool, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    need(pool, "faltung_memory_copy_in: pool");
    if (bytes > 0) need(from, "faltung_memory_copy_in: from");
    pool->pool.copy_in(to, from, bytes);
  });
}

faltung_status faltung_memory_copy_out(faltung_memory_pool* pool, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    need(pool, "faltung_memory_copy_out: pool");
    if (bytes > 0) need(to, "faltung_memory_copy_out: to");
    pool->pool.copy_out(to, from, bytes);
  });
}

faltung_status faltung_memory_trim(faltung_memory_pool* pool, size_t* returned) {
  return guarded([&] {
    if (returned != nullptr) *returned = 0;
    need(pool, "faltung_memory_trim: pool");
    const size_t bytes = pool->pool.trim();
    if (returned != nullptr) *returned = bytes;
  });
}

faltung_status faltung_memory_stats(const faltung_memory_pool* pool, faltung_memory_statistics* statistics) {
  return guarded([&] {
    need(pool, "faltung_memory_stats: pool");
    need(statistics, "faltung_memory_stats: statistics");
    const faltung::MemoryStats s = pool->pool.stats();
    *statistics = {s.in_use, s.reserved,    s.peak_in_use,       s.peak_reserved,
                   s.blocks, s.allocations, s.device_allocations};
  });
}

faltung_status faltung_adopt(const char* device, void* cl_mem, faltung_adopted** adopted) {
  return guarded([&] {
    need(adopted, "faltung_adopt: adopted");
    *adopted = nullptr;
    need(device, "faltung_adopt: device");
    *adopted = new faltung_adopted{faltung::adopt(device, cl_mem)};
  });
}

void* faltung_adopted_pointer(const faltung_adopted* adopted) {
  return adopted == nullptr ? nullptr : adopted->buffer.get();
}

void faltung_adopted_destroy(faltung_adopted* adopted) { delete adopted; }
