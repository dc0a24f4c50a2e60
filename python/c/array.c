/* Arrays of other libraries, without copies: by DLPack, and by NumPy's array interface where that refuses
 * (arrays that are read-only, dtypes that are not NumPy's own). */
#include <stdio.h>
#include <string.h>

#include "c/common.h"
#include "c/dlpack.h"

const char* dtype_name(Dtype dtype) {
  static const char* const names[] = {"another type", "f32", "f16", "bf16"};
  return names[dtype];
}

static int no_array(PyObject* object, const char* what) {
  PyObject* type = PyObject_GetAttrString((PyObject*)Py_TYPE(object), "__name__");
  if (type != NULL) {
    PyErr_Format(PyExc_TypeError, "%s is a %U; give a NumPy array, or a tensor that has __dlpack__", what,
                 type);
    Py_DECREF(type);
  }
  return -1;
}

int take_tensor(const DLTensor* tensor, const char* what, Array* array) {
  if (tensor->ndim < 0 || tensor->ndim > MOST_DIMENSIONS) {
    return raise_bad_problem("%s has %d dimensions; a tensor here has at most %d", what, (int)tensor->ndim,
                             MOST_DIMENSIONS);
  }
  const int type = tensor->device.type;
  array->on_cuda = type == DL_CUDA || type == DL_CUDA_MANAGED;
  if (!array->on_cuda && type != DL_CPU && type != DL_CUDA_HOST) {
    return raise_bad_problem(
        "%s is on a device of DLPack's type %d; arrays are in the host's memory or on CUDA", what, type);
  }
  array->device_id = array->on_cuda ? tensor->device.id : 0;
  array->data = (char*)tensor->data + tensor->byte_offset;
  array->dimensions = tensor->ndim;
  int64_t stride = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    array->shape[i] = tensor->shape[i];
    array->strides[i] = tensor->strides != NULL ? tensor->strides[i] : stride;
    stride *= tensor->shape[i];
  }
  const unsigned code = tensor->dtype.code, bits = tensor->dtype.bits;
  array->code = code;
  array->bits = bits * tensor->dtype.lanes;
  array->dtype = tensor->dtype.lanes != 1          ? DTYPE_OTHER
                 : code == DL_FLOAT && bits == 32  ? DTYPE_F32
                 : code == DL_FLOAT && bits == 16  ? DTYPE_F16
                 : code == DL_BFLOAT && bits == 16 ? DTYPE_BF16
                                                   : DTYPE_OTHER;
  return 0;
}

typedef struct {
  PyTypeObject* type;
  const DLExchangeApi* api;
  PyObject* is_neg; /* its method, or NULL */
  int is_masked;    /* whether it is numpy.ma's, which alone has such a method */
} Seen;

static const Seen* seen_type(PyObject* object) {
  static Seen seen[4]; /* a model's tensors and parameters are two */
  static unsigned oldest;
  PyTypeObject* type = Py_TYPE(object);
  for (int i = 0; i < 4; ++i) {
    if (seen[i].type == type) return &seen[i];
  }
  PyObject* capsule = PyObject_GetAttrString((PyObject*)type, "__dlpack_c_exchange_api__");
  const DLExchangeApi* api = NULL;
  if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (api != NULL && api->version.major != 1) api = NULL;
  }
  PyErr_Clear();
  Py_XDECREF(capsule);
  PyObject* is_neg = PyObject_GetAttrString((PyObject*)type, "is_neg");
  PyErr_Clear();
  PyObject* harden_mask = PyObject_GetAttrString((PyObject*)type, "harden_mask");
  PyErr_Clear();
  Py_XDECREF(harden_mask);
  Seen* to = &seen[oldest++ % 4];
  Py_INCREF(type);
  Py_XDECREF(to->type);
  Py_XDECREF(to->is_neg);
  *to = (Seen){type, api, is_neg, harden_mask != NULL};
  return to;
}

const DLExchangeApi* exchange_api(PyObject* object) { return seen_type(object)->api; }

int is_negated(PyObject* object) {
  PyObject* const is_neg = seen_type(object)->is_neg;
  if (is_neg == NULL) return 0;
  PyObject* answer = PyObject_CallFunctionObjArgs(is_neg, object, NULL);
  Py_XDECREF(answer);
  return answer == NULL ? -1 : answer == Py_True;
}

/* 1: read; 0: it refuses, and says so by an exception of a kind that means "not by DLPack"; -1: another
 * exception. */
static int read_dlpack(PyObject* object, const char* what, void* stream, Array* array) {
  static PyObject* name;
  if (name == NULL && (name = PyUnicode_InternFromString("__dlpack__")) == NULL) return -1;
  PyObject* method = PyObject_GetAttr(object, name);
  if (method == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject* capsule;
  if (stream == NULL) {
    capsule = PyObject_CallObject(method, NULL);
  } else {
    PyObject* arguments = PyTuple_New(0);
    PyObject* keywords = Py_BuildValue("{s:n}", "stream", (Py_ssize_t)stream);
    capsule = arguments != NULL && keywords != NULL ? PyObject_Call(method, arguments, keywords) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
  }
  Py_DECREF(method);
  if (capsule == NULL) {
    return PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
                   PyErr_ExceptionMatches(PyExc_RuntimeError)
               ? 0
               : -1;
  }
  const DLManagedTensor* managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (managed == NULL || take_tensor(&managed->tensor, what, array) < 0) {
    Py_DECREF(capsule);
    return -1;
  }
  array->keeps = capsule; /* not renamed: with it the producer's tensor goes */
  return 1;
}

static Dtype dtype_of(PyObject* object, const char* typestr) {
  if (strcmp(typestr, "<f4") == 0) return DTYPE_F32;
  if (strcmp(typestr, "<f2") == 0) return DTYPE_F16;
  Dtype found = DTYPE_OTHER; /* ml_dtypes' bfloat16 calls itself two bytes */
  PyObject* dtype = PyObject_GetAttrString(object, "dtype");
  PyObject* name = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "name");
  if (name != NULL && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0) found = DTYPE_BF16;
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  return found;
}

static int64_t item_bytes(const char* typestr) {
  const char* digits = typestr + strcspn(typestr, "0123456789");
  int64_t bytes = 0;
  for (; *digits >= '0' && *digits <= '9'; ++digits) bytes = 10 * bytes + (*digits - '0');
  return bytes;
}

/* 1: read; 0: the object has none; -1: an exception. */
static int read_interface(PyObject* object, const char* what, Array* array) {
  PyObject *type, *value, *traceback; /* DLPack's refusal, which is told if there is nothing else */
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* interface = PyObject_GetAttrString(object, "__array_interface__");
  if (interface == NULL) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return PyErr_Occurred() != NULL ? -1 : 0;
  }
  Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
  int result = -1;
  const char* typestr = NULL;
  Py_ssize_t address = 0;
  PyObject* shape = PyDict_GetItemString(interface, "shape"); /* borrowed */
  PyObject* strides = PyDict_GetItemString(interface, "strides");
  PyObject* data = PyDict_GetItemString(interface, "data");
  PyObject* name = PyDict_GetItemString(interface, "typestr");
  if (shape == NULL || data == NULL || name == NULL || !PyTuple_Check(shape) || !PyTuple_Check(data)) {
    no_array(object, what);
  } else if (PyTuple_Size(shape) > MOST_DIMENSIONS) {
    raise_bad_problem("%s has %zd dimensions; a tensor here has at most %d", what, PyTuple_Size(shape),
                      MOST_DIMENSIONS);
  } else if ((typestr = PyUnicode_AsUTF8AndSize(name, NULL)) != NULL &&
             PyArg_ParseTuple(data, "np", &address, &array->read_only)) {
    array->data = (void*)address;
    array->dtype = dtype_of(object, typestr);
    array->dimensions = (int)PyTuple_Size(shape);
    const int64_t bytes = item_bytes(typestr);
    const char kind = typestr[strcspn(typestr, "biufcV")];
    array->code = array->dtype == DTYPE_BF16 ? DL_BFLOAT
                  : kind == 'b'              ? DL_BOOL
                  : kind == 'i'              ? DL_INT
                  : kind == 'u'              ? DL_UINT
                  : kind == 'f'              ? DL_FLOAT
                                             : DL_COMPLEX;
    array->bits = (unsigned)(8 * bytes);
    int64_t stride = 1;
    for (int i = array->dimensions - 1; i >= 0; --i) {
      array->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
      array->strides[i] = stride;
      stride *= array->shape[i];
      if (strides != NULL && PyTuple_Check(strides) && bytes > 0) {
        const int64_t apart = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
        array->strides[i] = apart % bytes == 0 ? apart / bytes : INT64_MAX; /* which no layout has */
      }
    }
    if (PyErr_Occurred() == NULL) result = 1;
  }
  if (result == 1) {
    array->keeps = interface;
  } else {
    Py_DECREF(interface);
  }
  return result;
}

int read_array(PyObject* object, const char* what, void** stream, Array* array) {
  memset(array, 0, sizeof *array);
  const int negated = is_negated(object);
  if (negated < 0) return -1;
  if (negated) {
    return raise_bad_problem(
        "%s has PyTorch's negative bit: its memory holds the opposite numbers; give %s.resolve_neg()", what,
        what);
  }
  if (seen_type(object)->is_masked) {
    return raise_bad_problem(
        "%s is a masked array, whose mask would be passed over; give what its filled() makes", what);
  }
  const DLExchangeApi* api = exchange_api(object);
  if (api != NULL && api->tensor_from_object != NULL) {
    DLTensor tensor;
    if (api->tensor_from_object(object, &tensor) != 0 || take_tensor(&tensor, what, array) < 0) return -1;
    if (array->on_cuda && *stream == NULL && api->current_stream != NULL) {
      return api->current_stream(DL_CUDA, array->device_id, stream);
    }
    return 0;
  }
  const int read = read_dlpack(object, what, *stream, array);
  if (read != 0) return read < 0 ? -1 : 0;
  const int other = read_interface(object, what, array);
  if (other != 0) return other < 0 ? -1 : 0;
  return no_array(object, what);
}

void release_array(Array* array) { Py_CLEAR(array->keeps); }

PyObject* tuple_of(const int64_t* numbers, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject* number = PyLong_FromLongLong(numbers[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject* device_text(const Array* array) {
  return array->on_cuda ? PyUnicode_FromFormat("cuda:%d", array->device_id) : PyUnicode_FromString("cpu");
}

PyObject* describe(PyObject* module, PyObject* object) {
  (void)module;
  void* stream = NULL;
  Array array;
  if (read_array(object, "the array", &stream, &array) < 0) return NULL;
  PyObject* result =
      Py_BuildValue("(NNsN)", tuple_of(array.shape, array.dimensions),
                    tuple_of(array.strides, array.dimensions), dtype_name(array.dtype), device_text(&array));
  release_array(&array);
  return result;
}

static int is_contiguous(const Array* array) {
  int64_t stride = 1;
  for (int i = 0; i < array->dimensions; ++i) {
    if (array->shape[i] == 0) return 1; /* of nothing, whatever its strides */
  }
  for (int i = array->dimensions - 1; i >= 0; stride *= array->shape[i--]) {
    if (array->shape[i] > 1 && array->strides[i] != stride) return 0;
  }
  return 1;
}

/* As NumPy calls it: float32, bool. */
static PyObject* type_text(const Array* array) {
  static const char* const kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex"};
  if (array->code == DL_BOOL && array->bits == 8) return PyUnicode_FromString("bool");
  const int known = array->code < sizeof kinds / sizeof *kinds;
  return PyUnicode_FromFormat("%s%u", known ? kinds[array->code] : "another", array->bits);
}

PyObject* locate(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject *object, *on;
  const char* what;
  if (!PyArg_ParseTuple(arguments, "OsO", &object, &what, &on)) return NULL;
  void* stream = NULL;
  if (on != Py_None && (stream = PyLong_AsVoidPtr(on)) == NULL && PyErr_Occurred() != NULL) return NULL;
  Array array;
  if (read_array(object, what, &stream, &array) < 0) return NULL;
  PyObject* result =
      Py_BuildValue("(NNNNNN)", PyLong_FromVoidPtr(array.data), tuple_of(array.shape, array.dimensions),
                    PyBool_FromLong(is_contiguous(&array)), type_text(&array), device_text(&array),
                    PyBool_FromLong(!array.read_only));
  release_array(&array);
  return result;
}
