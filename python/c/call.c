/* A plan is called with arrays: each is what the problem says, or the exception tells what would be right. */
#include <string.h>

#include "c/plan.h"

static const char* const kNames[TENSORS] = {"x",    "w",    "y",     "bias",  "residual",
                                            "relu", "sums", "scale", "shift", "slopes"};

static PyObject* sizes_text(const int64_t* sizes, int count) {
  PyObject* text = PyUnicode_FromString("");
  for (int i = 0; i < count && text != NULL; ++i) {
    PyObject* longer = PyUnicode_FromFormat("%U%s%lld", text, i == 0 ? "" : ", ", (long long)sizes[i]);
    Py_DECREF(text);
    text = longer;
  }
  return text;
}

static int refuse_sizes(const char* what, const char* name, const int64_t* is, int count,
                        const int64_t* right, int right_count, const char* layout) {
  PyObject *a = sizes_text(is, count), *b = sizes_text(right, right_count);
  if (a != NULL && b != NULL) {
    raise_bad_problem("%s has the %s (%U); the plan takes (%U)%s", name, what, a, b, layout);
  }
  Py_XDECREF(a);
  Py_XDECREF(b);
  return -1;
}

/* Of stats [2, k], of dbias [k]. */
static int check_sums(const int64_t* shape, const Array* array) {
  const int rows = shape[0] > 1, count = 1 + rows;
  const int64_t* right = shape + 1 - rows;
  if (array->dimensions != count || memcmp(array->shape, right, (size_t)count * sizeof *right) != 0)
    return refuse_sizes("shape", "sums", array->shape, array->dimensions, right, count, "");
  if ((rows && array->strides[0] != shape[1]) || (array->strides[count - 1] != 1 && shape[1] > 1))
    return raise_bad_problem("sums is not contiguous");
  return 0;
}

int check_array(const Plan* self, const Array* array, int tensor) {
  const char* name = kNames[tensor];
  const Expected* e = &self->expected[tensor];
  const int is_vector = tensor == FALTUNG_BIAS || tensor > FALTUNG_SUMS;
  const Dtype dtype = tensor >= FALTUNG_SUMS   ? DTYPE_F32
                      : tensor == FALTUNG_BIAS ? self->bias_dtype
                                               : self->dtype;
  if (array->dtype != dtype) {
    return raise_bad_problem("%s is of %s; the plan computes %s", name, dtype_name(array->dtype),
                             dtype_name(dtype));
  }
  if (array->on_cuda != self->on_cuda || array->device_id != self->device_id) {
    return raise_bad_problem("%s is on %s; the plan runs on %s", name,
                             array->on_cuda ? "a CUDA device" : "the CPU", self->device);
  }
  if (is_vector && array->dimensions == 1) {
    if (array->shape[0] != e->shape[1])
      return refuse_sizes("shape", name, array->shape, 1, &e->shape[1], 1, "");
    if (array->strides[0] != 1 && array->shape[0] > 1) return raise_bad_problem("%s is not contiguous", name);
    return 0;
  }
  if (tensor == FALTUNG_SUMS) return check_sums(e->shape, array);
  const int count = self->dimensions;
  if (array->dimensions != count || memcmp(array->shape, e->shape, (size_t)count * sizeof *e->shape) != 0) {
    return refuse_sizes("shape", name, array->shape, array->dimensions, e->shape, count, "");
  }
  for (int i = 0; i < count; ++i) {
    if (array->shape[i] > 1 && array->strides[i] != e->strides[i]) {
      return refuse_sizes(
          "strides", name, array->strides, count, e->strides, count,
          self->channels_last ? " elements, which is channels_last" : " elements, which is contiguous");
    }
  }
  return 0;
}

enum { FIRST, SECOND, BIAS, RESIDUAL, OUT, STREAM, RELU, SUMS, SCALE, SHIFT, SLOPES, ARGUMENTS };

/* What `(first, second, /, bias=None, residual=None, out=None, stream=None, relu=None, sums=None, scale=None,
 * shift=None, slopes=None)` was called with, borrowed, NULL for None: PyArg_ParseTupleAndKeywords takes a
 * third of such a call. Returns -1 with an exception. */
static int take_arguments(PyObject* arguments, PyObject* keywords, PyObject* values[ARGUMENTS]) {
  static const char* const texts[ARGUMENTS] = {NULL,   NULL,   "bias",  "residual", "out",   "stream",
                                               "relu", "sums", "scale", "shift",    "slopes"};
  static PyObject* names[ARGUMENTS];
  for (int i = BIAS; i < ARGUMENTS; ++i) {
    if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(texts[i])) == NULL) return -1;
  }
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count <= SECOND || count > ARGUMENTS) {
    PyErr_Format(PyExc_TypeError, "a plan is called with 2 to %d arguments, its two inputs first; got %zd",
                 (int)ARGUMENTS, count);
    return -1;
  }
  for (int i = 0; i < ARGUMENTS; ++i) values[i] = i < count ? PyTuple_GetItem(arguments, i) : NULL;
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (keywords != NULL && PyDict_Next(keywords, &at, &name, &value)) {
    int i = BIAS;
    while (i < ARGUMENTS && names[i] != name) ++i; /* what a program spells is interned */
    if (i == ARGUMENTS) {
      i = BIAS;
      while (i < ARGUMENTS && PyUnicode_Compare(names[i], name) != 0) ++i;
    }
    if (i == ARGUMENTS || i < count) {
      PyErr_Format(PyExc_TypeError,
                   i < count ? "a plan got two values for %U"
                             : "a plan has no argument %U; it has bias, residual, out, stream, relu, sums, "
                               "scale, shift and slopes",
                   name);
      return -1;
    }
    values[i] = value;
  }
  for (int i = BIAS; i < ARGUMENTS; ++i) {
    if (values[i] == Py_None) values[i] = NULL;
  }
  return 0;
}

/* The result that the caller gave, or one that is made like the first input. New reference. */
static PyObject* result_of(Plan* self, PyObject* out, PyObject* like, int tensor) {
  if (out != NULL) return Py_NewRef(out);
  if (self->allocate == NULL) {
    PyErr_SetString(PyExc_TypeError, "out: give the array that the result goes to");
    return NULL;
  }
  const Expected* e = &self->expected[tensor];
  return PyObject_CallFunction(self->allocate, "ONN", like, tuple_of(e->shape, self->dimensions),
                               tuple_of(e->strides, self->dimensions));
}

/* Whether the tensor, if there is one, has memory of its own that may be written; 0 with an exception. */
static int may_write(const Plan* self, PyObject* const* given, const Array* arrays, int tensor) {
  if (given[tensor] == NULL) return 1;
  const char* to = arrays[tensor].data;
  for (int i = 0; i < TENSORS; ++i) {
    if (i == tensor || given[i] == NULL) continue;
    const char* from = arrays[i].data;
    if (from < to + self->expected[tensor].bytes && to < from + self->expected[i].bytes) {
      raise_bad_problem("%s overlaps %s in memory; a result needs memory of its own", kNames[tensor],
                        kNames[i]);
      return 0;
    }
  }
  if (arrays[tensor].read_only) {
    raise_bad_problem("%s, which %s, is read-only", kNames[tensor],
                      tensor == FALTUNG_SUMS ? "is written" : "the result goes to");
    return 0;
  }
  return 1;
}

PyObject* plan_call(Plan* self, PyObject* arguments, PyObject* keywords) {
  PyObject *given[TENSORS] = {NULL}, *values[ARGUMENTS];
  if (take_arguments(arguments, keywords, values) < 0) return NULL;
  static const int inputs[3][2] = {{FALTUNG_X, FALTUNG_W}, {FALTUNG_Y, FALTUNG_W}, {FALTUNG_X, FALTUNG_Y}};
  static const int results[3] = {FALTUNG_Y, FALTUNG_X, FALTUNG_W};
  const int result = results[self->direction];
  void* stream = NULL;
  if (values[STREAM] != NULL && pointer_of(values[STREAM], &stream) < 0) return NULL;
  const Weights* weights = NULL;
  given[inputs[self->direction][0]] = values[FIRST];
  given[inputs[self->direction][1]] = values[SECOND];
  given[FALTUNG_BIAS] = values[BIAS];
  given[FALTUNG_RESIDUAL] = values[RESIDUAL];
  given[FALTUNG_RELU] = values[RELU];
  given[FALTUNG_SUMS] = values[SUMS];
  given[FALTUNG_SCALE] = values[SCALE];
  given[FALTUNG_SHIFT] = values[SHIFT];
  given[FALTUNG_SLOPES] = values[SLOPES];
  for (int i = FALTUNG_BIAS; i < TENSORS; ++i) {
    if ((given[i] != NULL) == self->has[i]) continue;
    raise_bad_problem(
        self->has[i] ? "%s is missing: the problem has it" : "%s was given, but the problem has none",
        kNames[i]);
    return NULL;
  }
  if (result != FALTUNG_W && Py_TYPE(given[FALTUNG_W]) == weights_type) {
    weights = (const Weights*)given[FALTUNG_W];
    given[FALTUNG_W] = NULL;
  }
  PyObject* made = given[result] = result_of(self, values[OUT], values[FIRST], result);
  if (made == NULL) return NULL;
  Array arrays[TENSORS];
  int read[TENSORS] = {0}, good = 1;
  for (int i = 0; i < TENSORS && good; ++i) {
    if (given[i] == NULL) continue;
    read[i] = read_array(given[i], kNames[i], &stream, &arrays[i]) == 0;
    good = read[i] && check_array(self, &arrays[i], i) == 0;
  }
  good = good && may_write(self, given, arrays, result) && may_write(self, given, arrays, FALTUNG_SUMS);
  PyObject* none = NULL;
  if (good) {
#define DATA(i) (given[i] == NULL ? NULL : arrays[i].data)
    const faltung_tensors tensors = {
        sizeof tensors,      DATA(FALTUNG_X),     weights != NULL ? weights->plain : DATA(FALTUNG_W),
        DATA(FALTUNG_Y),     DATA(FALTUNG_BIAS),  DATA(FALTUNG_RESIDUAL),
        DATA(FALTUNG_RELU),  DATA(FALTUNG_SUMS),  DATA(FALTUNG_SCALE),
        DATA(FALTUNG_SHIFT), DATA(FALTUNG_SLOPES)};
#undef DATA
    /* check_array has seen that the arrays are on the plan's device. */
    none = run_plan(self, &tensors, NULL, stream, weights, FALTUNG_ADDRESSES_ON_DEVICE, 0);
  }
  for (int i = 0; i < TENSORS; ++i) {
    if (read[i]) release_array(&arrays[i]);
  }
  if (none == NULL) Py_CLEAR(made);
  Py_XDECREF(none);
  return made;
}
