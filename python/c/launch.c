/* Launches of CUDA functions that are loaded already, of which every parameter has 8 bytes. */
#include <dlfcn.h>

#include "c/common.h"

enum { MOST_PARAMETERS = 24, FIXED = 6, PROGRAMMATIC_SERIALIZATION = 6 };

/* CUlaunchAttribute and CUlaunchConfig */
typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int flag;
  } value;
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned attribute_count;
} Config;
typedef int Launch(const Config*, void*, void**, void**);

static Launch* driver_launch(void) {
  static Launch* found = NULL;
  if (found == NULL) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver != NULL) *(void**)&found = dlsym(driver, "cuLaunchKernelEx");
    if (found == NULL)
      PyErr_SetString(
          PyExc_RuntimeError,
          "faltung: there is no CUDA driver (libcuda.so.1, of CUDA 11.8 or later) to launch with");
  }
  return found;
}

/* The parameter's 8 bytes. Returns -1 with an exception. */
static int read_parameter(PyObject* given, void* to) {
  if (PyFloat_Check(given)) {
    *(double*)to = PyFloat_AsDouble(given);
    return 0;
  }
  if (PyLong_Check(given)) {
    *(long long*)to = PyLong_AsLongLong(given);
    return *(long long*)to == -1 && PyErr_Occurred() != NULL ? -1 : 0;
  }
  const DLExchangeApi* const api = exchange_api(given);
  DLTensor tensor;
  if (api == NULL) {
    PyErr_SetString(PyExc_TypeError, "launch takes ints, floats and PyTorch's tensors");
    return -1;
  }
  if (api->tensor_from_object(given, &tensor) != 0) return -1;
  *(void**)to = (char*)tensor.data + tensor.byte_offset;
  return 0;
}

PyObject* launch(PyObject* module, PyObject* const* given, Py_ssize_t count) {
  (void)module;
  long long values[MOST_PARAMETERS];
  void* addresses[MOST_PARAMETERS];
  unsigned long long fixed[FIXED];
  Launch* const run = driver_launch();
  if (run == NULL) return NULL;
  if (count < FIXED || count > FIXED + MOST_PARAMETERS)
    return PyErr_Format(PyExc_TypeError, "launch takes %d to %d arguments, not %zd", FIXED,
                        FIXED + MOST_PARAMETERS, count);
  for (int i = 0; i < FIXED; ++i) {
    fixed[i] = PyLong_AsUnsignedLongLong(given[i]);
    if (fixed[i] == (unsigned long long)-1 && PyErr_Occurred() != NULL) return NULL;
  }
  for (Py_ssize_t i = 0; i < count - FIXED; ++i) {
    addresses[i] = &values[i];
    if (read_parameter(given[FIXED + i], &values[i]) < 0) return NULL;
  }
  Attribute overlaps = {.id = PROGRAMMATIC_SERIALIZATION, .value.flag = 1};
  const Config config = {{(unsigned)fixed[1], (unsigned)fixed[2], 1},
                         {(unsigned)fixed[3], 1, 1},
                         0,
                         (void*)(uintptr_t)fixed[4],
                         &overlaps,
                         fixed[5] != 0};
  const int status = run(&config, (void*)(uintptr_t)fixed[0], addresses, NULL);
  if (status != 0)
    return PyErr_Format(PyExc_RuntimeError, "faltung: CUDA's driver refused a launch with its error %d",
                        status);
  Py_RETURN_NONE;
}
