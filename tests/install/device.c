/* device DEVICE: one convolution on DEVICE, a GPU or an OpenCL driver for the CPU, by the C interface and its
 * memory pool. */
#include <stdio.h>
#include <stdlib.h>

#include "faltung/faltung.h"

static void check(faltung_status status) {
  if (status == FALTUNG_OK) return;
  fprintf(stderr, "%s\n", faltung_last_error());
  exit(2);
}

static void say(void* context, const char* line) {
  (void)context;
  fprintf(stderr, "warning: %s\n", line);
}

/* Device memory for one tensor of an f32 problem, filled with value. */
static void* make_tensor(faltung_memory_pool* pool, const faltung_problem* problem, faltung_tensor tensor,
                         float value) {
  const size_t bytes = faltung_problem_bytes(problem, tensor);
  void* device;
  float* host = malloc(bytes);
  if (host == NULL) exit(2);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) host[i] = value;
  check(faltung_memory_allocate(pool, bytes, &device));
  check(faltung_memory_copy_in(pool, device, host, bytes));
  free(host);
  return device;
}

int main(int argc, char** argv) {
  faltung_engine* engine;
  faltung_problem* problem;
  faltung_plan* plan;
  faltung_memory_pool* pool;
  faltung_tensors tensors = {.size = sizeof tensors};
  faltung_run_options options = {0};
  options.size = sizeof options;
  faltung_request request = faltung_request_default();
  float y[2 * 4 * 4];
  if (argc != 2) return 2;
  request.device = argv[1];
  check(faltung_engine_create(NULL, &engine));
  check(faltung_engine_on_warning(engine, say, NULL));
  check(faltung_problem_create("fwd:n1c8h6w6k2r3s3", &problem));
  check(faltung_plan_create(engine, problem, &request, &plan));
  check(faltung_memory_pool_create(argv[1], SIZE_MAX, &pool));
  tensors.x = make_tensor(pool, problem, FALTUNG_X, 1.0f);
  tensors.w = make_tensor(pool, problem, FALTUNG_W, 0.5f);
  tensors.y = make_tensor(pool, problem, FALTUNG_Y, 0.0f);
  check(faltung_memory_allocate(pool, faltung_plan_workspace_bytes(plan, 0) + 1, &options.workspace));
  check(faltung_run(plan, &tensors, &options));
  check(faltung_memory_copy_out(pool, y, tensors.y, sizeof y)); /* in the device's order: after the run */
  printf("%s on %s: %g\n", faltung_plan_kernel(plan), argv[1], y[0]);
  faltung_plan_destroy(plan);
  faltung_memory_pool_destroy(pool);
  faltung_problem_destroy(problem);
  faltung_engine_destroy(engine);
  return y[0] == 36.0f && y[31] == 36.0f ? 0 : 1; /* 8 channels x 9 taps x 0.5 */
}
