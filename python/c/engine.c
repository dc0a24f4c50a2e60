/* Engine: the store, the devices and the algorithms; what it says of a problem, and the module itself. */
#include <stdlib.h>

#include "c/common.h"

typedef struct {
  PyObject_HEAD faltung_engine* engine;
  PyObject* on_warning; /* callable(line), or NULL */
} Engine;

static PyTypeObject* engine_type;

/* From any thread that uses the engine, all of which released the GIL. */
static void say(void* context, const char* line) {
  Engine* self = context;
  const PyGILState_STATE state = PyGILState_Ensure();
  if (self->on_warning != NULL) {
    PyObject *type, *value, *traceback; /* of the progress function, which may have been interrupted */
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* result = PyObject_CallFunction(self->on_warning, "s", line);
    if (result == NULL) PyErr_WriteUnraisable(self->on_warning);
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
  }
  PyGILState_Release(state);
}

static PyObject* engine_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"store", "on_warning", NULL};
  const char* store = NULL;
  PyObject* on_warning = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|zO", names, &store, &on_warning)) return NULL;
  const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Engine* self = (Engine*)allocate(type, 0);
  if (self == NULL) return NULL;
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_engine_create(store, &self->engine);
  Py_END_ALLOW_THREADS;
  if (status == FALTUNG_OK && on_warning != Py_None) {
    self->on_warning = Py_NewRef(on_warning);
    status = faltung_engine_on_warning(self->engine, say, self);
  }
  if (status != FALTUNG_OK) {
    Py_DECREF(self);
    return raise_status(status);
  }
  return (PyObject*)self;
}

static void engine_dealloc(Engine* self) {
  PyTypeObject* type = Py_TYPE(self);
  faltung_engine_destroy(self->engine);
  Py_CLEAR(self->on_warning);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* The problem and what is wanted of a choice. */
typedef struct {
  faltung_problem* problem;
  faltung_request request;
  PyObject* progress; /* borrowed */
} Question;

/* (problem, device, threads, workspace_limit, deterministic, only, skip, budget_ms, trust, deadline_ms,
 * worker, progress) */
static int read_question(PyObject* arguments, Question* q) {
  const char* text;
  Py_ssize_t workspace;
  int trust;
  q->request = faltung_request_default();
  q->progress = Py_None;
  if (!PyArg_ParseTuple(arguments, "ssinpzzdidzO", &text, &q->request.device, &q->request.threads, &workspace,
                        &q->request.deterministic, &q->request.only, &q->request.skip, &q->request.budget_ms,
                        &trust, &q->request.deadline_ms, &q->request.worker, &q->progress)) {
    return -1;
  }
  if (workspace >= 0) q->request.workspace_limit = (size_t)workspace;
  q->request.trust = (faltung_trust)trust;
  const faltung_status status = faltung_problem_create(text, &q->problem);
  if (status == FALTUNG_OK) return 0;
  raise_status(status);
  return -1;
}

static PyObject* engine_plan(Engine* self, PyObject* arguments) {
  Question q;
  if (read_question(arguments, &q) < 0) return NULL;
  faltung_plan* plan = NULL;
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_plan_create(self->engine, q.problem, &q.request, &plan);
  Py_END_ALLOW_THREADS;
  if (status == FALTUNG_OK) return new_plan(q.problem, plan, q.request.device);
  faltung_problem_destroy(q.problem);
  return raise_status(status);
}

/* (kernel, source, [report, ...], text); a report is a tuple in the order of faltung_report. Takes the
 * choice. */
static PyObject* choice_tuple(faltung_choice* choice) {
  PyObject* reports = PyList_New(0);
  for (size_t i = 0; reports != NULL && i < faltung_choice_count(choice); ++i) {
    faltung_report r;
    r.size = sizeof r;
    if (faltung_choice_report(choice, i, &r) != FALTUNG_OK) break;
    PyObject* report = Py_BuildValue("(sssddddddndsdd)", r.kernel, faltung_outcome_name(r.outcome), r.why,
                                     r.predicted_ms, r.ms, r.ms_min, r.ms_max, r.error_over_bound,
                                     r.compile_ms, (Py_ssize_t)r.workspace_bytes, r.error_growth, r.bound_by,
                                     r.ceiling_pct, r.rms_of_chain);
    if (report == NULL || PyList_Append(reports, report) < 0) Py_CLEAR(reports);
    Py_XDECREF(report);
  }
  PyObject* result = reports == NULL
                         ? NULL
                         : Py_BuildValue("(ssNs)", faltung_choice_kernel(choice),
                                         faltung_choice_source(choice), reports, faltung_choice_text(choice));
  faltung_choice_destroy(choice);
  return result;
}

/* Lets Ctrl-C, and an exception of the caller's function, end the find. */
static int watch(void* context, int done, int total, const char* kernel) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* progress = context;
  int end = PyErr_CheckSignals() < 0;
  if (!end && progress != Py_None) {
    PyObject* result = PyObject_CallFunction(progress, "iis", done, total, kernel);
    end = result == NULL || result == Py_False;
    Py_XDECREF(result);
  }
  PyGILState_Release(state);
  return end;
}

static PyObject* engine_find(Engine* self, PyObject* arguments) {
  Question q;
  if (read_question(arguments, &q) < 0) return NULL;
  q.request.progress = watch;
  q.request.progress_context = q.progress;
  faltung_choice* choice = NULL;
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_find(self->engine, q.problem, &q.request, &choice);
  Py_END_ALLOW_THREADS;
  faltung_problem_destroy(q.problem);
  if (status != FALTUNG_OK) return raise_status(status);
  if (PyErr_CheckSignals() < 0) { /* during the last trial */
    faltung_choice_destroy(choice);
    return NULL;
  }
  return choice_tuple(choice);
}

static PyObject* engine_explain(Engine* self, PyObject* arguments) {
  Question q;
  if (read_question(arguments, &q) < 0) return NULL;
  faltung_choice* choice = NULL;
  faltung_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = faltung_explain(self->engine, q.problem, &q.request, &choice);
  Py_END_ALLOW_THREADS;
  faltung_problem_destroy(q.problem);
  return status == FALTUNG_OK ? choice_tuple(choice) : raise_status(status);
}

static PyMethodDef engine_methods[] = {{"plan", (PyCFunction)engine_plan, METH_VARARGS, NULL},
                                       {"find", (PyCFunction)engine_find, METH_VARARGS, NULL},
                                       {"explain", (PyCFunction)engine_explain, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyObject* engine_address(Engine* self, void* unused) {
  (void)unused;
  return PyLong_FromVoidPtr(self->engine);
}

static PyGetSetDef engine_attributes[] = {
    {"address", (getter)engine_address, NULL, "Of the faltung_engine, for calls of the C interface.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot engine_slots[] = {{Py_tp_new, engine_new},
                                     {Py_tp_dealloc, engine_dealloc},
                                     {Py_tp_methods, engine_methods},
                                     {Py_tp_getset, engine_attributes},
                                     {0, NULL}};
static PyType_Spec engine_spec = {"faltung._c.Engine", sizeof(Engine), 0, Py_TPFLAGS_DEFAULT, engine_slots};

int add_engine_type(PyObject* module) {
  engine_type = (PyTypeObject*)PyType_FromSpec(&engine_spec);
  return engine_type == NULL ? -1 : PyModule_AddObjectRef(module, "Engine", (PyObject*)engine_type);
}
