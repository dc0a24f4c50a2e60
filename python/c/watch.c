/* What PyTorch is asked before a call is taken past its dispatcher. */
#include <dlfcn.h>
#include <string.h>

#include "c/operator.h"

TorchFunctions torch;

int is_nothing(PyObject* function) {
  PyObject* answer = PyObject_CallNoArgs(function);
  const int nothing = answer == Py_None || (answer != NULL && PyObject_Not(answer) == 1);
  Py_XDECREF(answer);
  return nothing;
}

/* What a thread has of its own in libc10, as differences from what every thread has: keys of the dispatcher
 * that it adds, and that it leaves out. NULL where there is no such thing. */
static const uint64_t* own_keys(void) {
  static _Thread_local const uint64_t* mine;
  if (mine == NULL) {
    static void* library;
    if (library == NULL) library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) mine = dlsym(library, "_ZN3c104impl26raw_local_dispatch_key_setE");
  }
  return mine;
}

int quiet_keys(void) {
  if (!torch.reads_keys) return 0;
  const uint64_t* keys = own_keys();
  return keys != NULL && (keys[0] | keys[1]) == 0;
}

PyObject* dispatch_keys(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  const uint64_t* keys = own_keys();
  return keys == NULL ? Py_NewRef(Py_None)
                      : Py_BuildValue("(KK)", (unsigned long long)keys[0], (unsigned long long)keys[1]);
}

/* Whether all functions answer so; 0 with an exception. */
static int are_nothing(PyObject* functions) {
  for (Py_ssize_t i = 0, count = PyTuple_Size(functions); i < count; ++i) {
    if (!is_nothing(PyTuple_GetItem(functions, i))) return 0;
  }
  return 1;
}

int is_plain(PyObject* arguments, int tensors, int outside, int keys) {
  for (int i = 0; i < tensors && i < PyTuple_Size(arguments); ++i) {
    PyObject* object = PyTuple_GetItem(arguments, i);
    PyObject* type = (PyObject*)Py_TYPE(object);
    if (object == Py_None) continue;
    if (type != torch.tensor && type != torch.parameter) return 0;
    const int negated = is_negated(object); /* the dispatcher resolves it */
    if (negated != 0) return negated < 0 ? -1 : 0;
  }
  const int quiet = (keys || (are_nothing(torch.inside) && (!outside || are_nothing(torch.outside)))) &&
                    (!outside || are_nothing(torch.before));
  if (!quiet) return PyErr_Occurred() != NULL ? -1 : 0;
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
  const int answer = is_plain(tensors, (int)PyTuple_Size(tensors), 0, quiet_keys());
  return answer < 0 ? NULL : PyBool_FromLong(answer);
}

PyObject* fit(PyObject* module, PyObject* arguments) {
  (void)module;
  enum { FIT_X, FIT_W, FIT_BIAS, FIT_TENSORS };
  const int unseen = is_plain(arguments, FIT_TENSORS, 1, quiet_keys());
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
  const int unseen = is_plain(arguments, CHANNELS_TENSORS, 0, quiet_keys());
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
  PyObject** const to[] = {&torch.tensor, &torch.parameter,           &torch.inside,          &torch.outside,
                           &torch.before, &torch.is_autocast_enabled, &torch.is_grad_enabled, &torch.threads,
                           &torch.tf32,   &torch.forward_ad};
  const Py_ssize_t count = sizeof to / sizeof *to;
  if (PyTuple_Size(arguments) != count + 1) {
    PyErr_SetString(PyExc_TypeError,
                    "use_torch: ten things of PyTorch's, and whether dispatch_keys is to be read");
    return NULL;
  }
  torch.reads_keys = PyTuple_GetItem(arguments, count) == Py_True;
  static const struct {
    PyObject** to;
    const char* text;
  } names[] = {{&torch.requires_grad, "requires_grad"},
               {&torch.version, "_version"},
               {&torch.current_level, "_current_level"},
               {&torch.saved_tensors, "saved_tensors"},
               {&torch.needs_input_grad, "needs_input_grad"},
               {&torch.to_save, "to_save"},
               {&torch.materialize_grads, "materialize_grads"},
               {&torch.rest, "rest"},
               {&torch.shape, "shape"},
               {&torch.sum, "sum"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (*names[i].to == NULL && (*names[i].to = PyUnicode_InternFromString(names[i].text)) == NULL)
      return NULL;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_XDECREF(*to[i]);
    *to[i] = Py_NewRef(PyTuple_GetItem(arguments, i));
  }
  return Py_NewRef(Py_None);
}
