/* Operator, as operator.c (the type), key.c (what tells one call from another) and gradients.c (two of a
 * convolution at once) see it. */
#ifndef FALTUNG_PYTHON_OPERATOR_H_
#define FALTUNG_PYTHON_OPERATOR_H_

#include "c/plan.h"

enum { MOST_WORDS = 128, MOST_TENSORS = 8, CONSTANT = -1, MOST_REMEMBERED = 16384 };

/* What is asked of PyTorch, all from its Python interface. */
typedef struct {
  PyObject *tensor, *parameter; /* types: others may want to see the call themselves */
  /* Functions that answer None or 0 where nothing looks at calls: below autograd, and at all that the
   * dispatcher does, of which its keys tell as well; and what stands before it. */
  PyObject *inside, *outside, *before;
  int reads_keys; /* whether quiet_keys answers */
  PyObject *is_autocast_enabled, *is_grad_enabled, *threads, *tf32, *forward_ad;
  PyObject *requires_grad, *current_level, *version; /* names */
  PyObject *saved_tensors, *needs_input_grad, *to_save, *materialize_grads, *rest, *shape, *sum;
} TorchFunctions;
extern TorchFunctions torch;

typedef struct {
  PyObject_HEAD int tensors; /* the first arguments */
  int slots[MOST_TENSORS];   /* which of x, w, y, ... they are, or CONSTANT */
  int has_constants;
  int result;
  int count; /* of the arguments */
  PyObject *compute, *differentiate, *dispatch, *record, *autocast, *overload;
  PyObject* remembered; /* {key: the entry, see remember} */
} Operator;

/* What an entry of `remembered`, a tuple, holds. */
enum { PLAN, WEIGHTS, ALLOCATE, RESULT, WORKSPACE, KEYWORDS, MADE_W, MADE_BIAS, RESTS, ENTRY };

/* What tells one call from another, and where its tensors lie. */
typedef struct {
  int64_t words[MOST_WORDS];
  int count;
  void* data[TENSORS];
  int on_cuda, device_id;
  const DLExchangeApi* api;
} Call;

/* operator.c */
extern PyTypeObject* operator_type;
/* The entry of a call that ran before, and what it was called with; NULL where there is none, or with an
 * exception. New reference. asks: as key_of has it. has_key: whether the call is of a kind that is
 * remembered, or NULL. */
PyObject* entry_of(const Operator* self, PyObject* arguments, Call* call, int asks, int* has_key);
/* The result of that call once more. */
PyObject* repeat(const Operator* self, PyObject* entry, Call* call);
/* Puts it into a dictionary of such, which does not grow without end. Returns -1 with an exception. */
int keep_entry(PyObject* remembered, PyObject* key, PyObject* entry);
/* A tuple: of what is given before its items, and then the items from one on. NULL with an exception. */
PyObject* tuple_before(PyObject* const* given, int count, PyObject* items, Py_ssize_t from);

/* watch.c */
/* Whether a function without arguments answers None or 0. */
int is_nothing(PyObject* function);
/* Whether this thread's dispatcher adds and leaves out the keys that every thread's does: then there are no
 * modes, transforms, tracing or autocast. 0 where that is not known. */
int quiet_keys(void);
/* Whether nothing would look at the call: all tensors, the first of the arguments, are PyTorch's own, without
 * tangents or the negative bit, and nothing below autograd does, or, outside, nothing at all. keys: what
 * quiet_keys said. -1 with an exception. */
int is_plain(PyObject* arguments, int tensors, int outside, int keys);

/* key.c */
/* The call's key, or NULL, without an exception, for what is never remembered. New reference. The first
 * arguments are tensors, slots: as Operator has them. asks: whether these may have the negative bit, which
 * nobody has looked for yet. */
PyObject* key_of(const int* slots, int tensors, PyObject* arguments, Call* call, int asks);

#endif
