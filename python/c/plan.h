/* Plan and Weights, as plan.c (what they are) and call.c (calls with arrays) see them. */
#ifndef FALTUNG_PYTHON_PLAN_H_
#define FALTUNG_PYTHON_PLAN_H_

#include "c/common.h"

enum { TENSORS = FALTUNG_SLOPES + 1, MOST_WORKSPACES = 16, ALIGNMENT = 64 };

/* What the plan expects of an array. */
typedef struct {
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS]; /* in elements, in the layout of the problem */
  size_t bytes;
} Expected;

/* The plan's own memory, for callers that bring none: on the CPU one call at a time has it, on a GPU one
 * stream. */
typedef struct {
  void *pointer, *stream;
  int busy;
} Workspace;

typedef struct {
  PyObject_HEAD faltung_problem* problem;
  faltung_plan* plan;
  faltung_memory_pool* pool; /* of a GPU; made when it is first needed */
  char device[32];
  int on_cuda, device_id;
  Dtype dtype, bias_dtype;
  enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS } direction;
  int channels_last;
  int dimensions; /* of x, w, y and residual: 3 to 5 */
  Expected expected[TENSORS];
  int has[TENSORS];          /* those beside x, w and y: whether the problem has them */
  size_t workspace_bytes[2]; /* by whether the weights are packed */
  Workspace workspaces[MOST_WORKSPACES];
  PyObject* allocate; /* callable(like, shape, strides) -> array, for results */
} Plan;

typedef struct {
  PyObject_HEAD faltung_weights* weights;
  PyObject* plan;
  void* plain;     /* what they were packed from, which a kernel reads that has no order of its own */
  PyObject* keeps; /* what holds that, or NULL */
} Weights;

/* plan.c */
extern PyTypeObject *plan_type, *weights_type;
/* Runs with the GIL released. given_workspace: NULL for the plan's own. addresses: what is known of those of
 * the tensors and the workspace. weights_rest: as faltung_run_options has it. */
PyObject* run_plan(Plan* self, const faltung_tensors* tensors, void* given_workspace, void* stream,
                   const Weights* weights, faltung_addresses addresses, int weights_rest);
/* An address, or None. Returns -1 with an exception. */
int pointer_of(PyObject* number, void** pointer);

/* call.c */
/* Whether the array is what the plan expects as that tensor; returns -1 with an exception that says why not.
 */
int check_array(const Plan* self, const Array* array, int tensor);
/* Plan.__call__ */
PyObject* plan_call(Plan* self, PyObject* arguments, PyObject* keywords);

#endif
