/* What tells one call of an operator from another, as bytes: of tensors all but what is in them, of constants
 * where they are and how often they were changed, of everything else the value. */
#include <string.h>

#include "c/operator.h"

static int add(Call* call, int64_t word) {
  if (call->count == MOST_WORDS) return 0;
  call->words[call->count++] = word;
  return 1;
}

/* How often the tensor was changed; PyTorch does not count the changes of inference tensors. */
static int add_version(Call* call, PyObject* tensor) {
  PyObject* version = PyObject_GetAttr(tensor, torch.version);
  const long long number = version == NULL ? 0 : PyLong_AsLongLong(version);
  Py_XDECREF(version);
  PyErr_Clear();
  return add(call, number);
}

static int add_tensor(Call* call, PyObject* object, int slot, int asks) {
  if (object == Py_None) return add(call, -1);
  if (asks && is_negated(object) != 0) return 0;
  const DLExchangeApi* api = exchange_api(object);
  DLTensor tensor;
  Array a;
  memset(&a, 0, sizeof a);
  if (api == NULL || api->tensor_from_object(object, &tensor) != 0 || take_tensor(&tensor, "tensor", &a) < 0)
    return 0;
  call->api = api;
  if (slot == CONSTANT) {
    if (!add(call, (int64_t)(intptr_t)a.data) || !add_version(call, object)) return 0;
  } else {
    call->data[slot] = a.data;
  }
  call->on_cuda = a.on_cuda;
  call->device_id = a.device_id;
  const int misaligned = ((uintptr_t)a.data & 15) != 0;
  if (!add(call, a.dimensions | a.dtype << 4 | misaligned << 8 | a.on_cuda << 9 | (int64_t)a.device_id << 16))
    return 0;
  for (int i = 0; i < a.dimensions; ++i) {
    if (!add(call, a.shape[i]) || !add(call, a.strides[i])) return 0;
  }
  return 1;
}

static int add_number(Call* call, PyObject* object) {
  const long long number = PyLong_AsLongLong(object);
  return (number != -1 || PyErr_Occurred() == NULL) && add(call, number);
}

static int add_argument(Call* call, PyObject* object) {
  if (PyLong_Check(object)) return add_number(call, object);
  if (PyFloat_Check(object)) {
    const double number = PyFloat_AsDouble(object);
    int64_t word;
    memcpy(&word, &number, sizeof word);
    return add(call, word);
  }
  if (PyUnicode_Check(object)) {
    Py_ssize_t length;
    const char* text = PyUnicode_AsUTF8AndSize(object, &length);
    if (text == NULL || !add(call, length)) return 0;
    for (; length > 0; length -= 8, text += 8) {
      int64_t word = 0;
      memcpy(&word, text, length < 8 ? (size_t)length : 8);
      if (!add(call, word)) return 0;
    }
    return 1;
  }
  const int is_list = PyList_Check(object);
  if (!is_list && !PyTuple_Check(object)) return 0;
  const Py_ssize_t count = is_list ? PyList_Size(object) : PyTuple_Size(object);
  if (!add(call, count)) return 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!add_number(call, is_list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i))) return 0;
  }
  return 1;
}

/* The answer of a function without arguments, which is an int or a bool. */
static int add_answer(Call* call, PyObject* function) {
  PyObject* answer = PyObject_CallNoArgs(function);
  const int added = answer != NULL && add_number(call, answer);
  Py_XDECREF(answer);
  return added;
}

PyObject* key_of(const int* slots, int tensors, PyObject* arguments, Call* call, int asks) {
  call->count = call->on_cuda = call->device_id = 0;
  call->api = NULL;
  memset(call->data, 0, sizeof call->data);
  int good = 1;
  for (Py_ssize_t i = 0, count = PyTuple_Size(arguments); i < count && good; ++i) {
    PyObject* argument = PyTuple_GetItem(arguments, i);
    good = i < tensors ? add_tensor(call, argument, slots[i], asks) : add_argument(call, argument);
  }
  good = good && call->api != NULL && add_answer(call, call->on_cuda ? torch.tf32 : torch.threads);
  PyObject* key =
      good ? PyBytes_FromStringAndSize((char*)call->words, call->count * (Py_ssize_t)sizeof(int64_t)) : NULL;
  if (key == NULL) PyErr_Clear();
  return key;
}
