/* faltung._c: the C interface of the library for Python; the rest of the package is written over it. */
#include "c/common.h"

static PyObject* version(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyUnicode_FromString(faltung_version());
}

/* canonical(text) -> text */
static PyObject* canonical(PyObject* module, PyObject* given) {
  (void)module;
  const char* text = PyUnicode_AsUTF8AndSize(given, NULL);
  if (text == NULL) return NULL;
  faltung_problem* problem = NULL;
  const faltung_status status = faltung_problem_create(text, &problem);
  if (status != FALTUNG_OK) return raise_status(status);
  PyObject* result = PyUnicode_FromString(faltung_problem_text(problem));
  faltung_problem_destroy(problem);
  return result;
}

/* devices() -> [(id, kind, name, driver, features, units, memory_bytes), ...] */
static PyObject* devices(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  int count;
  Py_BEGIN_ALLOW_THREADS;
  count = faltung_device_count();
  Py_END_ALLOW_THREADS;
  if (count == 0) return raise_status(FALTUNG_DEVICE_ERROR);
  PyObject* list = PyList_New(0);
  for (int i = 0; list != NULL && i < count; ++i) {
    faltung_device d;
    d.size = sizeof d;
    const faltung_status status = faltung_device_get(i, &d);
    PyObject* device = status != FALTUNG_OK ? raise_status(status)
                                            : Py_BuildValue("(sssssin)", d.id, d.kind, d.name, d.driver,
                                                            d.features, d.units, (Py_ssize_t)d.memory_bytes);
    if (device == NULL || PyList_Append(list, device) < 0) Py_CLEAR(list);
    Py_XDECREF(device);
  }
  return list;
}

static PyMethodDef functions[] = {{"version", version, METH_NOARGS, NULL},
                                  {"canonical", canonical, METH_O, NULL},
                                  {"devices", devices, METH_NOARGS, NULL},
                                  {"describe", describe, METH_O, NULL},
                                  {"locate", locate, METH_VARARGS, NULL},
                                  {"use_torch", use_torch, METH_VARARGS, NULL},
                                  {"dispatch_keys", dispatch_keys, METH_NOARGS, NULL},
                                  {"is_unseen", unseen, METH_VARARGS, NULL},
                                  {"fit", fit, METH_VARARGS, NULL},
                                  {"fit_channels", fit_channels, METH_VARARGS, NULL},
                                  {"use_openmp_of", use_openmp_of, METH_O, NULL},
                                  {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, NULL},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "faltung._c", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__c(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (add_exceptions(module) < 0 || add_engine_type(module) < 0 || add_plan_types(module) < 0 ||
      add_operator_type(module) < 0 || add_gradients_type(module) < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
