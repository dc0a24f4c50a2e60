#include <stdarg.h>
#include <string.h>

#include "c/common.h"

static PyObject* classes[FALTUNG_CANCELLED + 1]; /* by status; [0]: their common base */

static const struct {
  const char* name;
  PyObject** builtin; /* what else it is, so that usual `except` clauses catch it */
  const char* doc;
} kinds[] = {
    {"faltung.Error", NULL,
     "Any failure of the library; its text is one line: what was wrong, where, what would be right."},
    {"faltung.BadProblem", &PyExc_ValueError, "Sizes, text, arrays or options that make no sense."},
    {"faltung.Unsupported", &PyExc_NotImplementedError, "Nothing that is allowed can compute it; says why."},
    {"faltung.BadFile", &PyExc_OSError, "A file that cannot be read, written or parsed."},
    {"faltung.OutOfMemory", &PyExc_MemoryError, "On the device or on the host."},
    {"faltung.DeviceError", &PyExc_RuntimeError, "The device or its driver failed."},
    {"faltung.InternalError", &PyExc_RuntimeError, "A defect of the library's own."},
    {"faltung.Cancelled", &PyExc_RuntimeError, "A find that its progress function ended."},
};

int add_exceptions(PyObject* module) {
  for (int i = 0; i <= FALTUNG_CANCELLED; ++i) {
    PyObject* bases = i == 0 ? NULL : PyTuple_Pack(2, classes[0], *kinds[i].builtin);
    if (i != 0 && bases == NULL) return -1;
    classes[i] = PyErr_NewExceptionWithDoc(kinds[i].name, kinds[i].doc, bases, NULL);
    Py_XDECREF(bases);
    if (classes[i] == NULL || PyModule_AddObjectRef(module, kinds[i].name + sizeof "faltung", classes[i]) < 0)
      return -1;
  }
  return 0;
}

PyObject* raise_status(faltung_status status) {
  if (PyErr_Occurred() != NULL) return NULL;
  const int known = status > FALTUNG_OK && status <= FALTUNG_CANCELLED;
  // A path in it need not be UTF-8.
  PyObject* text =
      PyUnicode_DecodeUTF8(faltung_last_error(), (Py_ssize_t)strlen(faltung_last_error()), "replace");
  if (text == NULL) return NULL;
  PyErr_SetObject(classes[known ? status : FALTUNG_INTERNAL], text);
  Py_DECREF(text);
  return NULL;
}

int raise_bad_problem(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyObject* text = PyUnicode_FromFormatV(format, arguments);
  va_end(arguments);
  if (text != NULL) {
    PyErr_SetObject(classes[FALTUNG_BAD_PROBLEM], text);
    Py_DECREF(text);
  }
  return -1;
}
