/* Launches of CUDA functions that PyTorch has loaded, of which every parameter has 8 bytes. */
#include <dlfcn.h>

#include "c/common.h"

enum { MOST_PARAMETERS = 24, FIXED = 5 };
typedef int Launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);

static Launch* driver_launch(void) {
  static Launch* found = NULL;
  if (found == NULL) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver != NULL) *(void**)&found = dlsym(driver, "cuLaunchKernel");
    if (found == NULL)
      PyErr_SetString(PyExc_RuntimeError, "faltung: there is no CUDA driver (libcuda.so.1) to launch with");
  }
  return found;
}

/* launch(function, blocks_x, blocks_y, threads, stream, *parameters): ints (addresses, too) and floats, which
 * the function takes as long long and double. */
PyObject* launch(PyObject* module, PyObject* const* given, Py_ssize_t count) {
  (void)module;
  union {
    long long whole;
    double real;
  } values[MOST_PARAMETERS];
  void* addresses[MOST_PARAMETERS];
  unsigned long long fixed[FIXED];
  Launch* const run = driver_launch();
  if (run == NULL) return NULL;
  if (count < FIXED || count > FIXED + MOST_PARAMETERS) {
    PyErr_Format(PyExc_TypeError, "launch takes %d to %d arguments, not %zd", FIXED, FIXED + MOST_PARAMETERS,
                 count);
    return NULL;
  }
  for (int i = 0; i < FIXED; ++i) fixed[i] = PyLong_AsUnsignedLongLong(given[i]);
  for (Py_ssize_t i = FIXED; i < count; ++i) {
    const Py_ssize_t to = i - FIXED;
    addresses[to] = &values[to];
    if (PyFloat_Check(given[i]))
      values[to].real = PyFloat_AsDouble(given[i]);
    else
      values[to].whole = PyLong_AsLongLong(given[i]);
  }
  if (PyErr_Occurred()) return NULL;
  const int status = run((void*)(uintptr_t)fixed[0], (unsigned)fixed[1], (unsigned)fixed[2], 1,
                         (unsigned)fixed[3], 1, 1, 0, (void*)(uintptr_t)fixed[4], addresses, NULL);
  if (status != 0)
    return PyErr_Format(PyExc_RuntimeError, "faltung: CUDA's driver refused a launch with its error %d",
                        status);
  Py_RETURN_NONE;
}
