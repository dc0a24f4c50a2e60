/* The C header as C99 sees it, and every function of it once. Returns 0, or the number of the line that
 * failed; c_api_test.cpp calls it. */
#include <stdlib.h>
#include <string.h>

#include "faltung/faltung.h"

int c_api_c99(const char* store);

#define EXPECT(condition) \
  if (!(condition)) return __LINE__

static void serially(void* context, int count, void (*body)(int index, void* argument), void* argument) {
  for (int i = count - 1; i >= 0; --i) body(i, argument);
  *(int*)context += count;
}

static int run(faltung_engine* engine, const faltung_problem* problem) {
  faltung_plan* plan = NULL;
  faltung_request request = faltung_request_default();
  request.threads = 3;
  EXPECT(faltung_plan_create(engine, problem, &request, &plan) == FALTUNG_OK);
  EXPECT(strchr(faltung_plan_kernel(plan), '/') != NULL);

  /* 1 channel in and out, 1x1 filter of value 3, bias 1: y = relu(3 x + 1). */
  float x[] = {-1, 0, 1, 2}, w[] = {3}, bias[] = {1}, y[] = {9, 9, 9, 9};
  faltung_tensors tensors = {.size = sizeof tensors};
  tensors.x = x;
  tensors.w = w;
  tensors.y = y;
  tensors.bias = bias;
  faltung_weights* weights = NULL;
  EXPECT(faltung_pack_weights(plan, w, NULL, &weights) == FALTUNG_OK);
  (void)faltung_plan_packed_weights_bytes(plan);

  int calls = 0;
  for (int packed = 0; packed < 2; ++packed) {
    faltung_run_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.weights = packed ? weights : NULL;
    options.workspace = malloc(faltung_plan_workspace_bytes(plan, packed) + 1);
    options.parallel_for = packed ? serially : NULL;
    options.parallel_for_context = &calls;
    memset(y, 0xff, sizeof y);
    const faltung_status status = faltung_run(plan, &tensors, &options);
    free(options.workspace);
    EXPECT(status == FALTUNG_OK);
    EXPECT(y[0] == 0 && y[1] == 1 && y[2] == 4 && y[3] == 7);
  }
  EXPECT(calls > 0);
  faltung_weights_destroy(weights);
  faltung_plan_destroy(plan);
  return 0;
}

int c_api_c99(const char* store) {
  EXPECT(strlen(faltung_version()) > 0);

  faltung_problem* problem = NULL;
  EXPECT(faltung_problem_create("fwd:n1c1h2w2k1r1s1:f32:nchw:bias:relu", &problem) == FALTUNG_OK);
  EXPECT(strcmp(faltung_problem_text(problem), "fwd:n1c1h2w2k1r1s1:f32:nchw:bias:relu") == 0);
  int64_t sizes[4];
  EXPECT(faltung_problem_sizes(problem, FALTUNG_Y, sizes) == FALTUNG_OK);
  EXPECT(sizes[0] == 1 && sizes[1] == 1 && sizes[2] == 2 && sizes[3] == 2);
  EXPECT(faltung_problem_bytes(problem, FALTUNG_X) == 16);

  faltung_engine* engine = NULL;
  EXPECT(faltung_engine_create(store, &engine) == FALTUNG_OK);
  const int line = run(engine, problem);
  if (line != 0) return line;

  faltung_choice* choice = NULL;
  EXPECT(faltung_explain(engine, problem, NULL, &choice) == FALTUNG_OK);
  EXPECT(strcmp(faltung_choice_source(choice), "model") == 0);
  EXPECT(strstr(faltung_choice_text(choice), "chosen") != NULL);
  faltung_choice_destroy(choice);
  faltung_request quick = faltung_request_default();
  quick.budget_ms = 20;
  EXPECT(faltung_find(engine, problem, &quick, &choice) == FALTUNG_OK);
  EXPECT(strcmp(faltung_choice_source(choice), "store") == 0);
  EXPECT(faltung_choice_count(choice) > 1);
  faltung_report report;
  report.size = sizeof report;
  EXPECT(faltung_choice_report(choice, 0, &report) == FALTUNG_OK);
  EXPECT(report.outcome == FALTUNG_CHOSEN && report.ms > 0);
  EXPECT(strcmp(report.kernel, faltung_choice_kernel(choice)) == 0);
  EXPECT(strcmp(faltung_outcome_name(report.outcome), "chosen") == 0);
  faltung_choice_destroy(choice);

  faltung_device device;
  device.size = sizeof device;
  EXPECT(faltung_device_count() > 0);
  EXPECT(faltung_device_get(0, &device) == FALTUNG_OK);
  EXPECT(strcmp(device.id, "cpu") == 0 && device.memory_bytes > 0);

  faltung_engine_destroy(engine);
  faltung_problem_destroy(problem);
  return 0;
}
