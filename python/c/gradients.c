/* Gradients: of a convolution's input and of its weights, by two operators at once. What comes again, by the
 * same rules as with Operator, is one look-up and two runs; autograd's node enters it without Python. */
#include "c/operator.h"

typedef struct {
  PyObject_HEAD Operator* of[2]; /* of x: (dy, w, x's shape, ...), of w: (dy, x, w's shape, ...) */
  PyObject* not_channels;        /* the dimensions over which a bias' gradient is summed */
  PyObject* differentiated;      /* backward(ctx, dy), for what is not done here */
  PyObject* remembered;          /* {key: the entries of both operators, None of one that is not needed} */
} Gradients;

enum { OF_X, OF_W, OF_BIAS, BOTH = 2, DY = 0, GIVEN_X, GIVEN_W, NEEDS_X, NEEDS_W, ARGUMENTS };
static const int kSlots[] = {FALTUNG_Y, FALTUNG_X, FALTUNG_W};

/* Calls one of the two operators with (dy, the other tensor, shape, *rest). Returns its entry, too, or NULL
 * where it remembers none. */
static PyObject* compute(Operator* of, PyObject* dy, PyObject* other, PyObject* like, PyObject* rest,
                         PyObject** entry) {
  PyObject* shape = PyObject_GetAttr(like, torch.shape);
  if (shape == NULL) return NULL;
  PyObject* const first[] = {dy, other, shape};
  PyObject* arguments = tuple_before(first, 3, rest, 0);
  Py_DECREF(shape);
  PyObject* result = arguments == NULL ? NULL : PyObject_CallObject(of->compute, arguments);
  Call call;
  *entry = result == NULL ? NULL : entry_of(of, arguments, &call, 0, NULL);
  Py_XDECREF(arguments);
  return result;
}

/* All that is needed for the first time, into results. Returns the entries, or NULL where something is not
 * remembered, or with an exception. */
static PyObject* compute_both(const Gradients* self, PyObject* const* given, PyObject* rest,
                              PyObject** results) {
  PyObject* const tensors[BOTH] = {given[GIVEN_X], given[GIVEN_W]};
  PyObject* entries = PyTuple_New(BOTH);
  for (int i = 0; i < BOTH; ++i) {
    PyObject* entry = NULL;
    if (given[NEEDS_X + i] == Py_True) {
      results[i] = compute(self->of[i], given[DY], tensors[1 - i], tensors[i], rest, &entry);
      if (results[i] == NULL) break;
      if (entry == NULL) Py_CLEAR(entries);
    } else {
      entry = Py_NewRef(Py_None);
    }
    if (entries == NULL) {
      Py_XDECREF(entry);
    } else if (PyTuple_SetItem(entries, i, entry) < 0) {
      break;
    }
  }
  if (PyErr_Occurred() != NULL) Py_CLEAR(entries);
  return entries;
}

static void repeat_both(const Gradients* self, PyObject* entries, Call* call, PyObject** results) {
  void* const x = call->data[FALTUNG_X]; /* where the first result goes for the while of its run */
  for (int i = 0; i < BOTH; ++i) {
    PyObject* entry = PyTuple_GetItem(entries, i);
    if (entry == Py_None) continue;
    results[i] = repeat(self->of[i], entry, call);
    if (results[i] == NULL) return;
    call->data[FALTUNG_X] = x;
  }
}

/* (of x, of w, of the bias, None), None of what is not needed; None where something would look at a call, or
 * what is done is differentiated. needs: a tuple, in this order. */
static PyObject* gradients(Gradients* self, PyObject* dy, PyObject* x, PyObject* w, PyObject* needs,
                           PyObject* rest) {
  const int differentiates = !is_nothing(torch.is_grad_enabled);
  if (PyErr_Occurred() != NULL) return NULL;
  if (differentiates) return Py_NewRef(Py_None);
  PyObject* const given[ARGUMENTS] = {dy, x, w, PyTuple_GetItem(needs, OF_X), PyTuple_GetItem(needs, OF_W)};
  PyObject *of_bias = PyTuple_GetItem(needs, OF_BIAS), *results[] = {NULL, NULL, NULL};
  PyObject* arguments = of_bias == NULL ? NULL : tuple_before(given, ARGUMENTS, rest, 0);
  if (arguments == NULL) return NULL;
  const int plain = is_plain(arguments, NEEDS_X, 0, quiet_keys());
  if (plain <= 0) {
    Py_DECREF(arguments);
    return plain < 0 ? NULL : Py_NewRef(Py_None);
  }
  Call call;
  PyObject* key = key_of(kSlots, NEEDS_X, arguments, &call, 0);
  PyObject* entries = key == NULL ? NULL : PyDict_GetItemWithError(self->remembered, key);
  if (entries != NULL) {
    Py_INCREF(entries);
    repeat_both(self, entries, &call, results);
  } else if (PyErr_Occurred() == NULL) {
    entries = compute_both(self, given, rest, results);
    if (entries != NULL && key != NULL) keep_entry(self->remembered, key, entries);
  }
  Py_XDECREF(entries);
  Py_XDECREF(key);
  Py_DECREF(arguments);
  if (of_bias == Py_True && PyErr_Occurred() == NULL)
    results[OF_BIAS] = PyObject_CallMethodObjArgs(dy, torch.sum, self->not_channels, NULL);
  PyObject* made = PyErr_Occurred() != NULL ? NULL : PyTuple_New(4);
  for (int i = 0; made != NULL && i < 4; ++i) {
    PyObject* item = i < 3 && results[i] != NULL ? Py_NewRef(results[i]) : Py_NewRef(Py_None);
    if (PyTuple_SetItem(made, i, item) < 0) Py_CLEAR(made);
  }
  for (int i = 0; i < 3; ++i) Py_XDECREF(results[i]);
  return made;
}

/* Gradients(...)(dy, x, w, needs, rest) */
static PyObject* gradients_call(Gradients* self, PyObject* given, PyObject* keywords) {
  PyObject *dy, *x, *w, *needs, *rest;
  if (keywords != NULL && PyDict_Size(keywords) > 0)
    return PyErr_Format(PyExc_TypeError, "gradients are called with (dy, x, w, needs, rest)");
  if (!PyArg_ParseTuple(given, "OOOO!O!", &dy, &x, &w, &PyTuple_Type, &needs, &PyTuple_Type, &rest))
    return NULL;
  return gradients(self, dy, x, w, needs, rest);
}

/* The backward pass of a node; pair: Gradients and the node. */
static PyObject* node_backward(PyObject* pair, PyObject* dy) {
  Gradients* self = (Gradients*)PyTuple_GetItem(pair, 0);
  PyObject *ctx = PyTuple_GetItem(pair, 1), *result = Py_NewRef(Py_None);
  if (dy != Py_None) {
    PyObject *needs = NULL, *rest = NULL, *saved = PyObject_GetAttr(ctx, torch.saved_tensors);
    if (saved != NULL) needs = PyObject_GetAttr(ctx, torch.needs_input_grad);
    if (needs != NULL) rest = PyObject_GetAttr(ctx, torch.rest);
    Py_DECREF(result);
    result = rest == NULL
                 ? NULL
                 : gradients(self, dy, PyTuple_GetItem(saved, 0), PyTuple_GetItem(saved, 1), needs, rest);
    Py_XDECREF(saved);
    Py_XDECREF(needs);
    Py_XDECREF(rest);
  }
  if (result != Py_None) return result;
  Py_DECREF(result);
  return PyObject_CallFunctionObjArgs(self->differentiated, ctx, dy, NULL);
}

static PyMethodDef apply = {"apply", node_backward, METH_O, NULL};

/* As an attribute of the class of autograd's nodes: what the node's engine calls with dy. */
static PyObject* gradients_get(PyObject* self, PyObject* ctx, PyObject* type) {
  (void)type;
  if (ctx == NULL) return Py_NewRef(self);
  PyObject* pair = PyTuple_Pack(2, self, ctx);
  PyObject* bound = pair == NULL ? NULL : PyCFunction_New(&apply, pair);
  Py_XDECREF(pair);
  return bound;
}

static PyObject* gradients_new(PyTypeObject* type, PyObject* given, PyObject* keywords) {
  (void)keywords;
  PyObject *of_x, *of_w, *not_channels;
  if (!PyArg_ParseTuple(given, "O!O!O", operator_type, &of_x, operator_type, &of_w, &not_channels))
    return NULL;
  const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Gradients* self = (Gradients*)allocate(type, 0);
  if (self == NULL) return NULL;
  self->of[OF_X] = (Operator*)Py_NewRef(of_x);
  self->of[OF_W] = (Operator*)Py_NewRef(of_w);
  self->not_channels = Py_NewRef(not_channels);
  self->differentiated = Py_NewRef(Py_None);
  self->remembered = PyDict_New();
  if (self->remembered == NULL) Py_CLEAR(self);
  return (PyObject*)self;
}

static int gradients_traverse(Gradients* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject*)self->of[OF_X]);
  Py_VISIT((PyObject*)self->of[OF_W]);
  Py_VISIT(self->not_channels);
  Py_VISIT(self->differentiated);
  Py_VISIT(self->remembered);
  return 0;
}

static int gradients_clear(Gradients* self) {
  Py_CLEAR(self->of[OF_X]);
  Py_CLEAR(self->of[OF_W]);
  Py_CLEAR(self->not_channels);
  Py_CLEAR(self->differentiated);
  Py_CLEAR(self->remembered);
  return 0;
}

static void gradients_dealloc(Gradients* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  gradients_clear(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static int gradients_set_differentiated(Gradients* self, PyObject* value, void* unused) {
  (void)unused;
  Py_XDECREF(self->differentiated);
  self->differentiated = Py_NewRef(value == NULL ? Py_None : value);
  return 0;
}

static PyGetSetDef attributes[] = {
    {"differentiated", NULL, (setter)gradients_set_differentiated,
     "backward(ctx, dy), where what it does is differentiated, or something would look at it.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot type_slots[] = {
    {Py_tp_new, gradients_new},
    {Py_tp_dealloc, gradients_dealloc},
    {Py_tp_traverse, gradients_traverse},
    {Py_tp_clear, gradients_clear},
    {Py_tp_call, gradients_call},
    {Py_tp_descr_get, gradients_get},
    {Py_tp_getset, attributes},
    {Py_tp_doc,
     "Gradients(of_x, of_w, not_channels): called with (dy, x, w, needs, rest), the gradients of x, w and "
     "the "
     "bias that are needed, and None; None where something would look at a call, or it is differentiated."},
    {0, NULL}};
static PyType_Spec type_spec = {"faltung._c.Gradients", sizeof(Gradients), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, type_slots};

int add_gradients_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&type_spec);
  if (type == NULL) return -1;
  const int added = PyModule_AddObjectRef(module, "Gradients", type);
  Py_DECREF(type);
  return added;
}
