/* Plan: a chosen kernel, ready to run; Weights: packed for it. call.c calls it with arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c/plan.h"

PyTypeObject *plan_type, *weights_type;

static int has_field(const char* text, const char* field) {
  const size_t length = strlen(field);
  for (const char* at = strchr(text, ':'); at != NULL; at = strchr(at + 1, ':')) {
    if (strncmp(at + 1, field, length) == 0 && (at[1 + length] == ':' || at[1 + length] == '\0')) return 1;
  }
  return 0;
}

/* What the problem says of a tensor; of the bias [1, k, 1, ...]. */
static faltung_status expect(Plan* self, faltung_tensor tensor) {
  faltung_shape shape;
  shape.size = sizeof shape;
  const faltung_status status = faltung_problem_shape(self->problem, tensor, &shape);
  if (status != FALTUNG_OK) return status;
  Expected* e = &self->expected[tensor];
  self->dimensions = 2 + shape.dimensions;
  const int64_t image[3] = {shape.d, shape.h, shape.w};
  e->bytes = faltung_problem_bytes(self->problem, tensor);
  e->shape[0] = shape.n;
  e->shape[1] = shape.c;
  memcpy(e->shape + 2, image + 3 - shape.dimensions, (size_t)shape.dimensions * sizeof *image);
  int64_t stride = self->channels_last ? shape.c : 1;
  for (int i = self->dimensions - 1; i >= 2; stride *= e->shape[i--]) e->strides[i] = stride;
  e->strides[1] = self->channels_last ? 1 : stride;
  e->strides[0] = self->channels_last ? stride : stride * shape.c;
  return FALTUNG_OK;
}

PyObject* new_plan(faltung_problem* problem, faltung_plan* plan, const char* device) {
  Plan* self = PyObject_New(Plan, plan_type);
  if (self == NULL) {
    faltung_plan_destroy(plan);
    faltung_problem_destroy(problem);
    return NULL;
  }
  memset((char*)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
  self->problem = problem;
  self->plan = plan;
  snprintf(self->device, sizeof self->device, "%s", device);
  self->on_cuda = strncmp(device, "cuda:", 5) == 0;
  self->device_id = self->on_cuda ? atoi(device + 5) : 0;
  const char* text = faltung_problem_text(problem);
  self->direction = strncmp(text, "bwd_d:", 6) == 0   ? BACKWARD_DATA
                    : strncmp(text, "bwd_w:", 6) == 0 ? BACKWARD_WEIGHTS
                                                      : FORWARD;
  self->dtype = has_field(text, "f16") ? DTYPE_F16 : has_field(text, "bf16") ? DTYPE_BF16 : DTYPE_F32;
  self->channels_last = has_field(text, "nhwc");
  self->has[FALTUNG_X] = self->has[FALTUNG_W] = self->has[FALTUNG_Y] = 1;
  self->bias_dtype = has_field(text, "biasf32") ? DTYPE_F32 : self->dtype;
  self->has[FALTUNG_BIAS] = has_field(text, "bias") || has_field(text, "biasf32");
  self->has[FALTUNG_RESIDUAL] = has_field(text, "residual");
  self->has[FALTUNG_RELU] = has_field(text, "drelu");
  self->has[FALTUNG_SUMS] = has_field(text, "stats") || has_field(text, "dbias");
  self->has[FALTUNG_SCALE] = has_field(text, "affine") || has_field(text, "affine_relu");
  self->has[FALTUNG_SHIFT] = self->has[FALTUNG_SCALE];
  self->has[FALTUNG_SLOPES] = has_field(text, "prelu");
  for (int i = 0; i < TENSORS; ++i) {
    if (i >= FALTUNG_RELU && !self->has[i]) continue;
    const faltung_status status = expect(self, (faltung_tensor)i);
    if (status != FALTUNG_OK) {
      Py_DECREF(self);
      return raise_status(status);
    }
  }
  for (int packed = 0; packed < 2; ++packed) {
    self->workspace_bytes[packed] = faltung_plan_workspace_bytes(plan, packed);
  }
  return (PyObject*)self;
}

static void free_workspace(const Plan* self, void* pointer) {
  if (self->pool == NULL) {
    free(pointer);
  } else {
    faltung_memory_free(self->pool, pointer);
  }
}

static void plan_dealloc(Plan* self) {
  PyTypeObject* type = Py_TYPE(self);
  for (int i = 0; i < MOST_WORKSPACES; ++i) free_workspace(self, self->workspaces[i].pointer);
  faltung_memory_pool_destroy(self->pool);
  faltung_plan_destroy(self->plan);
  faltung_problem_destroy(self->problem);
  Py_CLEAR(self->allocate);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* A workspace that nobody else uses meanwhile, or NULL with an exception. It serves packed and plain weights.
 */
static Workspace* take_workspace(Plan* self, void* stream) {
  const size_t* each = self->workspace_bytes;
  const size_t bytes = each[0] > each[1] ? each[0] : each[1];
  for (int i = 0; i < MOST_WORKSPACES; ++i) {
    Workspace* one = &self->workspaces[i];
    if (one->pointer != NULL && (one->busy || one->stream != stream)) continue;
    if (one->pointer == NULL) {
      if (self->on_cuda) {
        faltung_status status = FALTUNG_OK;
        if (self->pool == NULL) status = faltung_memory_pool_create(self->device, SIZE_MAX, &self->pool);
        if (status == FALTUNG_OK) status = faltung_memory_allocate(self->pool, bytes, &one->pointer);
        if (status != FALTUNG_OK) return (Workspace*)raise_status(status);
      } else if ((one->pointer = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT)) ==
                 NULL) {
        return (Workspace*)PyErr_NoMemory();
      }
      one->stream = stream;
    }
    one->busy = 1;
    return one;
  }
  PyErr_Format(PyExc_RuntimeError,
               "%d calls of one plan at once; make a plan for each thread or stream, or give workspace",
               (int)MOST_WORKSPACES);
  return NULL;
}

PyObject* run_plan(Plan* self, const faltung_tensors* tensors, void* given_workspace, void* stream,
                   const Weights* weights, faltung_addresses addresses, int weights_rest) {
  faltung_run_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.stream = stream;
  options.workspace = given_workspace;
  options.weights = weights == NULL ? NULL : weights->weights;
  options.addresses = addresses;
  options.weights_rest = weights_rest;
  if (!self->on_cuda) options.parallel_for = callers_threads();
  Workspace* own = NULL;
  const size_t bytes = self->workspace_bytes[weights != NULL];
  if (given_workspace == NULL && bytes > 0) {
    own = take_workspace(self, stream);
    if (own == NULL) return NULL;
    options.workspace = own->pointer;
  }
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_run(self->plan, tensors, &options);
  Py_END_ALLOW_THREADS;
  if (own != NULL) own->busy = 0;
  if (status != FALTUNG_OK) return raise_status(status);
  return Py_NewRef(Py_None);
}

int pointer_of(PyObject* number, void** pointer) {
  if (number == Py_None) {
    *pointer = NULL;
    return 0;
  }
  *pointer = PyLong_AsVoidPtr(number);
  return *pointer == NULL && PyErr_Occurred() != NULL ? -1 : 0;
}

static int weights_of(PyObject* object, const Weights** weights) {
  *weights = NULL;
  if (object == NULL || object == Py_None) return 0;
  if (Py_TYPE(object) != weights_type) {
    PyErr_SetString(PyExc_TypeError, "weights: give what Plan.pack returned");
    return -1;
  }
  *weights = (const Weights*)object;
  return 0;
}

static PyObject* plan_run(Plan* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 7 || count > 13) {
    PyErr_SetString(PyExc_TypeError,
                    "run(x, w, y, bias, residual, workspace, stream, weights=None, relu=None, sums=None, "
                    "scale=None, shift=None, slopes=None): addresses");
    return NULL;
  }
  void *p[7], *more[5] = {NULL}; /* relu, sums, scale, shift, slopes */
  for (int i = 0; i < 7; ++i) {
    if (pointer_of(arguments[i], &p[i]) < 0) return NULL;
  }
  const Weights* weights;
  if (weights_of(count >= 8 ? arguments[7] : NULL, &weights) < 0) return NULL;
  for (Py_ssize_t i = 8; i < count; ++i) {
    if (pointer_of(arguments[i], &more[i - 8]) < 0) return NULL;
  }
  const faltung_tensors tensors = {sizeof tensors, p[0],    p[1],    p[2],    p[3],   p[4],
                                   more[0],        more[1], more[2], more[3], more[4]};
  return run_plan(self, &tensors, p[5], p[6], weights, FALTUNG_ADDRESSES_UNKNOWN, 0);
}

/* keeps: what holds the weights, or NULL for the caller's address. */
static PyObject* pack(Plan* self, void* w, PyObject* keeps, void* stream) {
  faltung_run_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.stream = stream;
  if (!self->on_cuda) options.parallel_for = callers_threads();
  faltung_weights* packed = NULL;
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_pack_weights(self->plan, w, &options, &packed);
  Py_END_ALLOW_THREADS;
  if (status != FALTUNG_OK) return raise_status(status);
  Weights* weights = PyObject_New(Weights, weights_type);
  if (weights == NULL) {
    faltung_weights_destroy(packed);
    return NULL;
  }
  weights->weights = packed;
  weights->plan = Py_NewRef((PyObject*)self);
  weights->plain = w;
  weights->keeps = keeps == NULL ? NULL : Py_NewRef(keeps);
  return (PyObject*)weights;
}

static PyObject* plan_pack(Plan* self, PyObject* const* arguments, Py_ssize_t count) {
  void* stream = NULL;
  if (count < 1 || count > 2 || (count == 2 && pointer_of(arguments[1], &stream) < 0)) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "pack(w, stream=None)");
    return NULL;
  }
  if (self->direction == BACKWARD_WEIGHTS) {
    raise_bad_problem("the gradient of the weights has no weights to pack");
    return NULL;
  }
  PyObject* w = arguments[0];
  if (PyLong_Check(w)) {
    void* pointer = PyLong_AsVoidPtr(w);
    return pointer == NULL && PyErr_Occurred() != NULL ? NULL : pack(self, pointer, NULL, stream);
  }
  Array array;
  if (read_array(w, "w", &stream, &array) < 0) return NULL;
  PyObject* result = check_array(self, &array, FALTUNG_W) < 0 ? NULL : pack(self, array.data, w, stream);
  release_array(&array);
  return result;
}

static void weights_dealloc(Weights* self) {
  PyTypeObject* type = Py_TYPE(self);
  faltung_weights_destroy(self->weights);
  Py_CLEAR(self->plan);
  Py_CLEAR(self->keeps);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* ------------------------------------------------------------------------------------------------- types */

static PyObject* plan_problem(Plan* self, void* unused) {
  (void)unused;
  return PyUnicode_FromString(faltung_problem_text(self->problem));
}

static PyObject* plan_kernel(Plan* self, void* unused) {
  (void)unused;
  return PyUnicode_FromString(faltung_plan_kernel(self->plan));
}

static PyObject* plan_device(Plan* self, void* unused) {
  (void)unused;
  return PyUnicode_FromString(self->device);
}

static PyObject* plan_packed_bytes(Plan* self, void* unused) {
  (void)unused;
  return PyLong_FromSize_t(faltung_plan_packed_weights_bytes(self->plan));
}

static PyObject* plan_workspace_bytes(Plan* self, void* unused) {
  (void)unused;
  return PyLong_FromSize_t(self->workspace_bytes[0]);
}

static PyObject* plan_packed_workspace_bytes(Plan* self, void* unused) {
  (void)unused;
  return PyLong_FromSize_t(self->workspace_bytes[1]);
}

static int plan_set_allocate(Plan* self, PyObject* value, void* unused) {
  (void)unused;
  Py_XDECREF(self->allocate);
  self->allocate = value == NULL ? NULL : Py_NewRef(value);
  return 0;
}

static PyObject* plan_repr(Plan* self) {
  return PyUnicode_FromFormat("<faltung.Plan %s on %s: %s>", faltung_problem_text(self->problem),
                              self->device, faltung_plan_kernel(self->plan));
}

static PyMethodDef plan_methods[] = {
    {"run", (PyCFunction)(void (*)(void))plan_run, METH_FASTCALL,
     "run(x, w, y, bias, residual, workspace, stream, weights=None, relu=None, sums=None, scale=None, "
     "shift=None, slopes=None)\n\n"
     "Runs on addresses (int, or None), of which CUDA's driver is asked whether they are the device's; "
     "workspace: at least workspace_bytes, None for the plan's own."},
    {"pack", (PyCFunction)(void (*)(void))plan_pack, METH_FASTCALL,
     "pack(w, stream=None) -> Weights\n\nThe weights in the order that the kernel reads them, to be given in "
     "place of w."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef plan_attributes[] = {
    {"problem", (getter)plan_problem, NULL, "The canonical text of the problem.", NULL},
    {"kernel", (getter)plan_kernel, NULL, "The name of the chosen kernel.", NULL},
    {"device", (getter)plan_device, NULL, "Where it runs: cpu, cuda:0, ...", NULL},
    {"workspace_bytes", (getter)plan_workspace_bytes, NULL, "What run needs beside the tensors, in bytes.",
     NULL},
    {"packed_workspace_bytes", (getter)plan_packed_workspace_bytes, NULL, "The same with packed weights.",
     NULL},
    {"packed_weights_bytes", (getter)plan_packed_bytes, NULL, "0: the kernel reads the weights as they are.",
     NULL},
    {"allocate", NULL, (setter)plan_set_allocate, "callable(like, shape, strides) for results.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot plan_slots[] = {{Py_tp_dealloc, plan_dealloc},
                                   {Py_tp_methods, plan_methods},
                                   {Py_tp_getset, plan_attributes},
                                   {Py_tp_call, plan_call},
                                   {Py_tp_repr, plan_repr},
                                   {Py_tp_doc, "A chosen kernel, ready to run many times."},
                                   {0, NULL}};
static PyType_Spec plan_spec = {"faltung.Plan", sizeof(Plan), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, plan_slots};

static PyType_Slot weights_slots[] = {
    {Py_tp_dealloc, weights_dealloc}, {Py_tp_doc, "Weights packed by Plan.pack; immutable."}, {0, NULL}};
static PyType_Spec weights_spec = {"faltung.Weights", sizeof(Weights), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, weights_slots};

int add_plan_types(PyObject* module) {
  plan_type = (PyTypeObject*)PyType_FromSpec(&plan_spec);
  weights_type = (PyTypeObject*)PyType_FromSpec(&weights_spec);
  if (plan_type == NULL || weights_type == NULL) return -1;
  if (PyModule_AddObjectRef(module, "Plan", (PyObject*)plan_type) < 0) return -1;
  return PyModule_AddObjectRef(module, "Weights", (PyObject*)weights_type);
}
