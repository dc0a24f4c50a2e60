/* A convolution layer with bias and ReLU, from C. */
#include <stdio.h>
#include <stdlib.h>

#include "faltung/faltung.h"

static void check(faltung_status status) {
  if (status == FALTUNG_OK) return;
  fprintf(stderr, "example: %s\n", faltung_last_error());
  exit(2);
}

/* Memory for one tensor of an f32 problem, filled with value. */
static float* make_tensor(const faltung_problem* problem, faltung_tensor tensor, float value) {
  const size_t bytes = faltung_problem_bytes(problem, tensor);
  float* data = malloc(bytes);
  if (data == NULL) exit(2);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) data[i] = value;
  return data;
}

int main(void) {
  /* 3x3 filters, 16 -> 32 channels, 20x24 pixels, padding 1, then bias and ReLU. */
  faltung_problem* problem;
  check(faltung_problem_create("fwd:n2c16h20w24k32r3s3:pad1:f32:nhwc:bias:relu", &problem));

  faltung_engine* engine;
  check(faltung_engine_create(NULL, &engine));
  faltung_request request = faltung_request_default();
  request.threads = 2;
  faltung_plan* plan;
  check(faltung_plan_create(engine, problem, &request, &plan));
  printf("%s\nruns on %s\n", faltung_problem_text(problem), faltung_plan_kernel(plan));

  faltung_tensors tensors = {.size = sizeof tensors};
  float* y = make_tensor(problem, FALTUNG_Y, 0.0f);
  float* bias = make_tensor(problem, FALTUNG_BIAS, -2.0f);
  tensors.x = make_tensor(problem, FALTUNG_X, 1.0f);
  tensors.w = make_tensor(problem, FALTUNG_W, 0.5f);
  tensors.y = y;
  tensors.bias = bias;

  /* Constant weights are packed once into the kernel's own order. */
  faltung_weights* weights;
  check(faltung_pack_weights(plan, tensors.w, NULL, &weights));

  faltung_run_options options = {0};
  options.size = sizeof options;
  options.weights = weights;
  options.workspace = malloc(faltung_plan_workspace_bytes(plan, 1) + 1);
  check(faltung_run(plan, &tensors, &options));

  /* Inside the image: 16 channels x 9 taps x 0.5 - 2 = 70. In the corner 4 taps remain: 30. */
  int64_t sizes[4];
  check(faltung_problem_sizes(problem, FALTUNG_Y, sizes));
  const float corner = y[0], inside = y[(5 * sizes[3] + 5) * sizes[1]];
  printf("corner %g, inside %g\n", corner, inside);

  free(options.workspace);
  free(tensors.x);
  free(tensors.w);
  free(bias);
  free(y);
  faltung_weights_destroy(weights);
  faltung_plan_destroy(plan);
  faltung_engine_destroy(engine);
  faltung_problem_destroy(problem);
  return corner == 30.0f && inside == 70.0f ? 0 : 1;
}
