// The C interface: each function calls the C++ one, and turns what it throws into a status and a message.
#include "src/c_api.hpp"

#include <atomic>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace {

thread_local std::string last_error;

}  // namespace

namespace faltung::c_api {

faltung_status fail(faltung_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {  // no memory for the message
    last_error.clear();
  }
  return status;
}

namespace {

std::vector<std::string> patterns(const char* text) {
  std::vector<std::string> all;
  if (text == nullptr) return all;
  for (const std::string& part : faltung::split(text, ',')) {
    if (const std::string_view pattern = faltung::trim(part); !pattern.empty()) all.emplace_back(pattern);
  }
  return all;
}

}  // namespace

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
  out.flush_denormals = request.flush_denormals != 0;
  return out;
}

}  // namespace faltung::c_api

using namespace faltung::c_api;

namespace {

static_assert(static_cast<int>(faltung::Status::internal) == FALTUNG_INTERNAL &&
                  static_cast<int>(faltung::Outcome::too_large) == FALTUNG_TOO_LARGE &&
                  static_cast<int>(faltung::Tensor::slopes) == FALTUNG_SLOPES,
              "enums have the same values in both languages");

faltung::Tensor tensor_of(faltung_tensor tensor) {
  if (tensor < FALTUNG_X || tensor > FALTUNG_SLOPES) {
    throw faltung::Error(
        faltung::Status::bad_problem,
        "no tensor " + std::to_string(static_cast<int>(tensor)) + "; they are FALTUNG_X to FALTUNG_SLOPES");
  }
  return static_cast<faltung::Tensor>(tensor);
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
  run.weights_rest = options.weights_rest != 0;
  switch (options.addresses) {
    case FALTUNG_ADDRESSES_UNKNOWN:
      return run;
    case FALTUNG_ADDRESSES_ON_DEVICE:
      run.addresses = faltung::Addresses::on_device;
      return run;
  }
  throw faltung::Error(faltung::Status::bad_problem,
                       "run options: addresses is " + std::to_string(static_cast<int>(options.addresses)) +
                           "; it is FALTUNG_ADDRESSES_UNKNOWN or FALTUNG_ADDRESSES_ON_DEVICE");
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
    if (problem->problem.dimensions > 2) {
      throw faltung::Error(faltung::Status::bad_problem,
                           "faltung_problem_sizes: " + problem->text +
                               " has three spatial dimensions; ask faltung_problem_shape");
    }
    const faltung::TensorShape shape = shape_of(problem->problem, tensor_of(tensor));
    sizes[0] = shape.n;
    sizes[1] = shape.c;
    sizes[2] = shape.h;
    sizes[3] = shape.w;
  });
}

faltung_status faltung_problem_shape(const faltung_problem* problem, faltung_tensor tensor,
                                     faltung_shape* shape) {
  return guarded([&] {
    need(problem, "faltung_problem_shape: problem");
    need(shape, "faltung_problem_shape: shape");
    const faltung::TensorShape s = shape_of(problem->problem, tensor_of(tensor));
    give({sizeof *shape, problem->problem.dimensions, s.n, s.c, s.d, s.h, s.w}, shape,
         "faltung_problem_shape: shape");
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
    const faltung_tensors t = known(*tensors, "faltung_tensors");
    plan->plan.run({t.x, t.w, t.y, t.bias, t.residual, t.relu, t.sums, t.scale, t.shift, t.slopes},
                   run_options_of(options));
  });
}
