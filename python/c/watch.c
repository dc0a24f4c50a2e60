/* What PyTorch is asked before a call is taken past its dispatcher. */
#include <string.h>

#include "c/operator.h"

TorchFunctions torch;

int is_nothing(PyObject* function) {
  PyObject* answer = PyObject_CallNoArgs(function);
  const int nothing = answer == Py_None || (answer != NULL && PyObject_Not(answer) == 1);
  Py_XDECREF(answer);
  return nothing;
}

int is_plain(PyObject* arguments, int tensors, PyObject* quiet) {
  for (int i = 0; i < tensors && i < PyTuple_Size(arguments); ++i) {
    PyObject* object = PyTuple_GetItem(arguments, i);
    PyObject* type = (PyObject*)Py_TYPE(object);
    if (object == Py_None) continue;
    if (type != torch.tensor && type != torch.parameter) return 0;
    const int negated = is_negated(object); /* the dispatcher resolves it */
    if (negated != 0) return negated < 0 ? -1 : 0;
  }
  for (Py_ssize_t i = 0, count = PyTuple_Size(quiet); i < count; ++i) {
    if (!is_nothing(PyTuple_GetItem(quiet, i))) return PyErr_Occurred() != NULL ? -1 : 0;
  }
  PyObject* level = PyObject_GetAttr(torch.forward_ad, torch.current_level); /* -1: no tangents */
  const int no_tangents = level != NULL && PyLong_AsLong(level) < 0;
  Py_XDECREF(level);
  return PyErr_Occurred() != NULL ? -1 : no_tangents;
}

/* Whether it is a strided tensor in memory that kernels reach, of a dtype that they compute. */
static int look_at(PyObject* tensor, Array* array) {
  const DLExchangeApi* api = exchange_api(tensor);
  DLTensor told;
  memset(array, 0, sizeof *array);
  const int good = api != NULL && api->tensor_from_object(tensor, &told) == 0 &&
                   take_tensor(&told, "tensor", array) == 0 && array->dtype != DTYPE_OTHER;
  if (!good) PyErr_Clear();
  return good;
}

PyObject* unseen(PyObject* module, PyObject* tensors) {
  (void)module;
  const int answer = is_plain(tensors, (int)PyTuple_Size(tensors), torch.inside);
  return answer < 0 ? NULL : PyBool_FromLong(answer);
}

PyObject* fit(PyObject* module, PyObject* arguments) {
  (void)module;
  enum { FIT_X, FIT_W, FIT_BIAS, FIT_TENSORS };
  const int unseen = is_plain(arguments, FIT_TENSORS, torch.outside);
  if (unseen < 0) return NULL;
  PyObject *bias = PyTuple_GetItem(arguments, FIT_BIAS),
           *dimensions = PyTuple_GetItem(arguments, FIT_TENSORS);
  if (bias == NULL || dimensions == NULL) return NULL;
  const long wanted = PyLong_AsLong(dimensions);
  if (wanted == -1 && PyErr_Occurred() != NULL) return NULL;
  Array x, w, b;
  if (!unseen || !look_at(PyTuple_GetItem(arguments, FIT_X), &x) ||
      !look_at(PyTuple_GetItem(arguments, FIT_W), &w) || (bias != Py_None && !look_at(bias, &b)) ||
      x.dimensions != wanted || w.dimensions != wanted || x.on_cuda != w.on_cuda ||
      x.device_id != w.device_id) {
    return Py_NewRef(Py_None);
  }
  return PyBool_FromLong(x.dtype == w.dtype && (bias == Py_None || b.dtype == x.dtype));
}

PyObject* fit_channels(PyObject* module, PyObject* arguments) {
  (void)module;
  enum { CHANNELS_X, CHANNELS_BATCHES = 5, CHANNELS_TENSORS };
  if (PyTuple_Size(arguments) != CHANNELS_TENSORS) {
    PyErr_SetString(PyExc_TypeError,
                    "fit_channels: x, weight, bias, mean, variance and the counter of batches");
    return NULL;
  }
  const int unseen = is_plain(arguments, CHANNELS_TENSORS, torch.inside);
  if (unseen < 0) return NULL;
  Array x, each;
  if (!unseen || !look_at(PyTuple_GetItem(arguments, CHANNELS_X), &x) || x.dimensions < 2) Py_RETURN_FALSE;
  for (int i = CHANNELS_X + 1; i < CHANNELS_BATCHES; ++i) {
    if (!look_at(PyTuple_GetItem(arguments, i), &each) || each.dtype != DTYPE_F32 || each.dimensions != 1 ||
        each.shape[0] != x.shape[1] || each.strides[0] != 1 || each.on_cuda != x.on_cuda ||
        each.device_id != x.device_id)
      Py_RETURN_FALSE;
  }
  PyObject* batches = PyTuple_GetItem(arguments, CHANNELS_BATCHES);
  const DLExchangeApi* api = exchange_api(batches);
  DLTensor counter;
  const int counts = api != NULL && api->tensor_from_object(batches, &counter) == 0 && counter.ndim == 0 &&
                     counter.dtype.code == DL_INT && counter.dtype.bits == 64 &&
                     (counter.device.type != DL_CPU) == x.on_cuda &&
                     (!x.on_cuda || counter.device.id == x.device_id);
  PyErr_Clear();
  return PyBool_FromLong(counts);
}

PyObject* use_torch(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject** const to[] = {
      &torch.tensor,          &torch.parameter, &torch.inside, &torch.outside,   &torch.is_autocast_enabled,
      &torch.is_grad_enabled, &torch.threads,   &torch.tf32,   &torch.forward_ad};
  const Py_ssize_t count = sizeof to / sizeof *to;
  if (PyTuple_Size(arguments) != count) {
    PyErr_SetString(PyExc_TypeError, "use_torch: nine things of PyTorch's");
    return NULL;
  }
  if (torch.requires_grad == NULL) torch.requires_grad = PyUnicode_InternFromString("requires_grad");
  if (torch.version == NULL) torch.version = PyUnicode_InternFromString("_version");
  if (torch.current_level == NULL) torch.current_level = PyUnicode_InternFromString("_current_level");
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_XDECREF(*to[i]);
    *to[i] = Py_NewRef(PyTuple_GetItem(arguments, i));
  }
  return Py_NewRef(Py_None);
}
