/* Operator: what PyTorch's dispatcher calls for a convolution. A call that ran before on tensors of the same
 * shapes, strides, dtype and device, with the same other arguments, is one look-up, one allocation by PyTorch
 * and one run; everything else is done in Python, which tells by `remember` what may be repeated. Of a
 * constant (weights, and what is folded into them) its address and PyTorch's count of its changes must be the
 * same, too: what was made of constants is then used in their place. */
#include "c/operator.h"

PyTypeObject* operator_type;

static void* address(const DLExchangeApi* api, PyObject* tensor) {
  DLTensor told;
  if (tensor == NULL || api->tensor_from_object(tensor, &told) != 0) return NULL;
  return (char*)told.data + told.byte_offset;
}

PyObject* repeat(const Operator* self, PyObject* entry, Call* call) {
  Plan* plan = (Plan*)PyTuple_GetItem(entry, PLAN);
  PyObject *weights = PyTuple_GetItem(entry, WEIGHTS), *allocate = PyTuple_GetItem(entry, ALLOCATE),
           *keywords = PyTuple_GetItem(entry, KEYWORDS);
  PyObject *w = PyTuple_GetItem(entry, MADE_W), *bias = PyTuple_GetItem(entry, MADE_BIAS);
  if (w != Py_None) call->data[FALTUNG_W] = address(call->api, w);
  if (bias != Py_None) call->data[FALTUNG_BIAS] = address(call->api, bias);
  PyObject* result = PyObject_Call(allocate, PyTuple_GetItem(entry, RESULT), keywords);
  PyObject *workspace = NULL, *done = NULL;
  void *stream = NULL, *space = NULL;
  call->data[self->result] = address(call->api, result);
  int good = call->data[self->result] != NULL;
  if (good && call->on_cuda) good = call->api->current_stream(DL_CUDA, call->device_id, &stream) == 0;
  if (good && call->on_cuda && plan->workspace_bytes[weights != Py_None] > 0) {
    workspace = PyObject_Call(allocate, PyTuple_GetItem(entry, WORKSPACE), keywords);
    space = address(call->api, workspace);
    good = space != NULL;
  }
  if (good) {
    void** d = call->data;
    const faltung_tensors tensors = {
        sizeof tensors, d[FALTUNG_X], d[FALTUNG_W], d[FALTUNG_Y], d[FALTUNG_BIAS], d[FALTUNG_RESIDUAL], NULL,
        NULL,           NULL,         NULL,         NULL};
    done = run_plan(plan, &tensors, space, stream, weights == Py_None ? NULL : (const Weights*)weights,
                    FALTUNG_ADDRESSES_ON_DEVICE, PyTuple_GetItem(entry, RESTS) == Py_True);
  }
  Py_XDECREF(workspace);
  if (done == NULL) Py_CLEAR(result);
  Py_XDECREF(done);
  return result;
}

PyObject* entry_of(const Operator* self, PyObject* arguments, Call* call, int asks, int* has_key) {
  PyObject* key = key_of(self->slots, self->tensors, arguments, call, asks);
  if (has_key != NULL) *has_key = key != NULL;
  if (key == NULL) return NULL;
  PyObject* entry = PyDict_GetItemWithError(self->remembered, key);
  Py_XINCREF(entry);
  Py_DECREF(key);
  return entry;
}

/* other: called with what has no key. */
static PyObject* run(Operator* self, PyObject* arguments, PyObject* other) {
  Call call;
  int has_key;
  /* Layers come here directly; everything else was asked before, or comes from the dispatcher, which
   * resolves. */
  PyObject* entry = entry_of(self, arguments, &call, self->has_constants, &has_key);
  if (entry == NULL)
    return PyErr_Occurred() != NULL ? NULL : PyObject_CallObject(has_key ? self->compute : other, arguments);
  PyObject* result = repeat(self, entry, &call);
  Py_DECREF(entry);
  return result;
}

/* run(*arguments): below autograd. */
static PyObject* operator_run(Operator* self, PyObject* arguments) {
  return run(self, arguments, self->compute);
}

static int needs_gradient(const Operator* self, PyObject* arguments) {
  if (is_nothing(torch.is_grad_enabled)) return 0;
  for (int i = 0; i < self->tensors && i < PyTuple_Size(arguments); ++i) {
    PyObject* object = PyTuple_GetItem(arguments, i);
    if (object == Py_None) continue;
    PyObject* answer = PyObject_GetAttr(object, torch.requires_grad);
    const int needs = answer != Py_False;
    Py_XDECREF(answer);
    if (needs) return 1;
  }
  return 0;
}

PyObject* tuple_before(PyObject* const* given, int count, PyObject* items, Py_ssize_t from) {
  const Py_ssize_t more = PyTuple_Size(items) - from;
  PyObject* made = PyTuple_New(count + more);
  for (Py_ssize_t i = 0; made != NULL && i < count + more; ++i) {
    PyObject* item = i < count ? given[i] : PyTuple_GetItem(items, from + i - count);
    if (item == NULL || PyTuple_SetItem(made, i, Py_NewRef(item)) < 0) Py_CLEAR(made);
  }
  return made;
}

/* The other arguments than tensors, as a tuple; lists as tuples, too, since their owner may change them
 * before the backward pass. */
static PyObject* rest_of(const Operator* self, PyObject* arguments) {
  PyObject* rest = PyTuple_GetSlice(arguments, self->tensors, PyTuple_Size(arguments));
  for (Py_ssize_t i = 0, count = rest == NULL ? 0 : PyTuple_Size(rest); i < count; ++i) {
    PyObject* item = PyTuple_GetItem(rest, i);
    if (!PyList_Check(item)) continue;
    PyObject* fixed = PyList_AsTuple(item);
    if (fixed == NULL || PyTuple_SetItem(rest, i, fixed) < 0) {
      Py_DECREF(rest);
      return NULL;
    }
  }
  return rest;
}

/* Calls function with the tensors, and with the other arguments as one. */
static PyObject* call_recorded(const Operator* self, PyObject* function, PyObject* arguments) {
  PyObject *tensors[MOST_TENSORS + 1], *rest = rest_of(self, arguments);
  if (rest == NULL) return NULL;
  for (int i = 0; i < self->tensors; ++i) tensors[i] = PyTuple_GetItem(arguments, i);
  tensors[self->tensors] = rest;
  PyObject* call = tuple_before(tensors, self->tensors + 1, arguments, PyTuple_Size(arguments));
  Py_DECREF(rest);
  PyObject* result = call == NULL ? NULL : PyObject_CallObject(function, call);
  Py_XDECREF(call);
  return result;
}

/* saving(ctx, *tensors, rest): the forward of an autograd function. */
static PyObject* operator_saving(Operator* self, PyObject* given) {
  PyObject* tensors[MOST_TENSORS];
  for (int i = 0; i < self->tensors; ++i) {
    if ((tensors[i] = PyTuple_GetItem(given, 1 + i)) == NULL) return NULL;
  }
  PyObject *ctx = PyTuple_GetItem(given, 0), *rest = PyTuple_GetItem(given, 1 + self->tensors);
  if (rest == NULL || !PyTuple_Check(rest) || self->tensors < 2)
    return PyErr_Format(PyExc_TypeError, "saving(ctx, *tensors, rest), of two tensors at least");
  PyObject *arguments = tuple_before(tensors, self->tensors, rest, 0),
           *saved = PyTuple_Pack(2, tensors[0], tensors[1]);
  /* As ctx.save_for_backward and ctx.set_materialize_grads do it. */
  const int good = arguments != NULL && saved != NULL && PyObject_SetAttr(ctx, torch.to_save, saved) == 0 &&
                   PyObject_SetAttr(ctx, torch.rest, rest) == 0 &&
                   PyObject_SetAttr(ctx, torch.materialize_grads, Py_False) == 0;
  PyObject* result = good ? run(self, arguments, self->compute) : NULL;
  Py_XDECREF(saved);
  Py_XDECREF(arguments);
  return result;
}

static PyObject* differentiable(Operator* self, PyObject* arguments, int plain) {
  if (!plain) return PyObject_CallObject(self->differentiate, arguments);
  const int needs = needs_gradient(self, arguments);
  if (PyErr_Occurred() != NULL) return NULL;
  return needs ? call_recorded(self, self->record, arguments) : run(self, arguments, self->differentiate);
}

/* differentiable(*arguments): at autograd's place in the dispatcher. */
static PyObject* operator_differentiable(Operator* self, PyObject* arguments) {
  const int plain = is_plain(arguments, self->tensors, 0, quiet_keys());
  return plain < 0 ? NULL : differentiable(self, arguments, plain);
}

/* Past the dispatcher where nothing in it would look, else by dispatch, which knows the schema. keys: what
 * quiet_keys said. */
static PyObject* enter(Operator* self, PyObject* arguments, PyObject* keywords, PyObject* dispatch,
                       int keys) {
  if (PyTuple_Size(arguments) != self->count || (keywords != NULL && PyDict_Size(keywords) > 0))
    return PyObject_Call(dispatch, arguments, keywords);
  const int plain = is_plain(arguments, self->tensors, 1, keys);
  if (plain < 0) return NULL;
  if (!plain) return PyObject_CallObject(dispatch, arguments);
  const int autocast = !keys && !is_nothing(torch.is_autocast_enabled);
  if (PyErr_Occurred() != NULL) return NULL;
  return autocast ? call_recorded(self, self->autocast, arguments) : differentiable(self, arguments, 1);
}

/* Operator(...)(*arguments): torch.ops.faltung.<name> */
static PyObject* operator_call(Operator* self, PyObject* arguments, PyObject* keywords) {
  return enter(self, arguments, keywords, self->dispatch, quiet_keys());
}

/* enter_overload(*arguments): torch.ops.faltung.<name>.default, which modes call with keys left out that they
 * have seen to. */
static PyObject* operator_enter_overload(Operator* self, PyObject* arguments, PyObject* keywords) {
  return quiet_keys() ? enter(self, arguments, keywords, self->overload, 1)
                      : PyObject_Call(self->overload, arguments, keywords);
}

int keep_entry(PyObject* remembered, PyObject* key, PyObject* entry) {
  /* A program with ever new shapes must not fill the memory. */
  if (PyDict_Size(remembered) >= MOST_REMEMBERED) PyDict_Clear(remembered);
  return PyDict_SetItem(remembered, key, entry);
}

/* remember(arguments, plan, weights, allocate, result, workspace, keywords, made_w, made_bias, rests) -> key,
 * or None */
static PyObject* operator_remember(Operator* self, PyObject* given) {
  PyObject *arguments = PyTuple_GetItem(given, 0), *entry = PyTuple_GetSlice(given, 1, PyTuple_Size(given));
  if (arguments == NULL || entry == NULL) return NULL;
  PyObject *plan = PyTuple_GetItem(entry, PLAN), *weights = PyTuple_GetItem(entry, WEIGHTS);
  if (PyTuple_Size(entry) != ENTRY || !PyTuple_Check(arguments) || Py_TYPE(plan) != plan_type ||
      (weights != Py_None && Py_TYPE(weights) != weights_type)) {
    Py_DECREF(entry);
    PyErr_SetString(PyExc_TypeError, "remember: arguments, a Plan, Weights or None, and eight more");
    return NULL;
  }
  Call call;
  PyObject* key = key_of(self->slots, self->tensors, arguments, &call, 1);
  if (key == NULL) {
    Py_DECREF(entry);
    return Py_NewRef(Py_None);
  }
  const int failed = keep_entry(self->remembered, key, entry) < 0;
  Py_DECREF(entry);
  if (failed) Py_CLEAR(key);
  return key;
}

/* forget(key): nothing happens if there is no such call. */
static PyObject* operator_forget(Operator* self, PyObject* key) {
  if (PyDict_DelItem(self->remembered, key) < 0) {
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) return NULL;
    PyErr_Clear();
  }
  return Py_NewRef(Py_None);
}

static PyObject* operator_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  (void)keywords;
  PyObject *slots, *compute, *differentiate = Py_None, *dispatch = Py_None, *autocast = Py_None;
  int result, count;
  if (!PyArg_ParseTuple(arguments, "O!iiO|OOO", &PyTuple_Type, &slots, &result, &count, &compute,
                        &differentiate, &dispatch, &autocast)) {
    return NULL;
  }
  const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Operator* self = (Operator*)allocate(type, 0);
  if (self == NULL) return NULL;
  self->result = result;
  self->count = count;
  self->compute = Py_NewRef(compute);
  self->differentiate = Py_NewRef(differentiate);
  self->dispatch = Py_NewRef(dispatch);
  self->record = Py_NewRef(Py_None);
  self->overload = Py_NewRef(Py_None);
  self->autocast = Py_NewRef(autocast);
  self->remembered = PyDict_New();
  self->tensors = (int)PyTuple_Size(slots);
  int good = self->remembered != NULL && self->tensors <= MOST_TENSORS && result >= 0 && result < TENSORS;
  for (int i = 0; good && i < self->tensors; ++i) {
    self->slots[i] = (int)PyLong_AsLong(PyTuple_GetItem(slots, i));
    good = self->slots[i] >= CONSTANT && self->slots[i] < TENSORS;
    if (self->slots[i] == CONSTANT) self->has_constants = 1;
  }
  if (good) return (PyObject*)self;
  if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "slots and result are numbers of tensors");
  Py_DECREF(self);
  return NULL;
}

static int operator_traverse(Operator* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->compute);
  Py_VISIT(self->differentiate);
  Py_VISIT(self->dispatch);
  Py_VISIT(self->record);
  Py_VISIT(self->overload);
  Py_VISIT(self->autocast);
  Py_VISIT(self->remembered);
  return 0;
}

static int operator_clear(Operator* self) {
  Py_CLEAR(self->compute);
  Py_CLEAR(self->differentiate);
  Py_CLEAR(self->dispatch);
  Py_CLEAR(self->record);
  Py_CLEAR(self->overload);
  Py_CLEAR(self->autocast);
  Py_CLEAR(self->remembered);
  return 0;
}

static void operator_dealloc(Operator* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  operator_clear(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)operator_run, METH_VARARGS, "run(*arguments): below autograd."},
    {"differentiable", (PyCFunction)operator_differentiable, METH_VARARGS,
     "differentiable(*arguments): at autograd's place."},
    {"enter_overload", (PyCFunction)(void (*)(void))operator_enter_overload, METH_VARARGS | METH_KEYWORDS,
     "enter_overload(*arguments): as torch.ops.faltung.<name>.default."},
    {"saving", (PyCFunction)operator_saving, METH_VARARGS,
     "saving(ctx, *tensors, rest): runs, and has ctx save the first two tensors and rest for a backward "
     "pass."},
    {"remember", (PyCFunction)operator_remember, METH_VARARGS,
     "remember(arguments, plan, weights, allocate, result, workspace, keywords, made_w, made_bias, rests) -> "
     "key, or None: "
     "what repeats the call; result and workspace: what allocate takes for them; made_w, made_bias: tensors "
     "in "
     "place of those of the call, or None; rests: whether the weights do, as faltung_run_options has it."},
    {"forget", (PyCFunction)operator_forget, METH_O, "forget(key): of a call that was remembered."},
    {NULL, NULL, 0, NULL}};

static int set(PyObject** to, PyObject* value) {
  PyObject* before = *to;
  *to = Py_NewRef(value == NULL ? Py_None : value);
  Py_XDECREF(before);
  return 0;
}

static int operator_set_record(Operator* self, PyObject* value, void* unused) {
  (void)unused;
  return set(&self->record, value);
}

static int operator_set_overload(Operator* self, PyObject* value, void* unused) {
  (void)unused;
  return set(&self->overload, value);
}

static PyGetSetDef attributes[] = {
    {"record", NULL, (setter)operator_set_record, "record(*tensors, rest): where a gradient is needed.",
     NULL},
    {"overload", NULL, (setter)operator_set_overload, "What enter_overload stands before.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot type_slots[] = {
    {Py_tp_new, operator_new},
    {Py_tp_dealloc, operator_dealloc},
    {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_clear},
    {Py_tp_call, operator_call},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_tp_doc,
     "Operator(slots, result, count, compute, differentiate, dispatch, autocast): "
     "slots and result: which of x, w, y, bias, "
     "residual the first arguments and the result are, -1: a constant."},
    {0, NULL}};
static PyType_Spec type_spec = {"faltung._c.Operator", sizeof(Operator), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, type_slots};

int add_operator_type(PyObject* module) {
  operator_type = (PyTypeObject*)PyType_FromSpec(&type_spec);
  return operator_type == NULL ? -1 : PyModule_AddObjectRef(module, "Operator", (PyObject*)operator_type);
}
