/* Operator, as operator.c (the type) and key.c (what tells one call from another) see it. */
#ifndef FALTUNG_PYTHON_OPERATOR_H_
#define FALTUNG_PYTHON_OPERATOR_H_

#include "c/plan.h"

enum { MOST_WORDS = 128, MOST_TENSORS = 8, CONSTANT = -1, MOST_REMEMBERED = 16384 };

/* What is asked of PyTorch, all from its Python interface. */
typedef struct {
  PyObject *tensor, *parameter; /* types: others may want to see the call themselves */
  PyObject* inside;  /* functions that answer None or 0 where nothing below autograd looks at calls */
  PyObject* outside; /* the same of all that the dispatcher, and what stands before it, does */
  PyObject *is_autocast_enabled, *is_grad_enabled, *threads, *tf32, *forward_ad;
  PyObject *requires_grad, *current_level, *version; /* names */
} TorchFunctions;
extern TorchFunctions torch;

typedef struct {
  PyObject_HEAD int tensors; /* the first arguments */
  int slots[MOST_TENSORS];   /* which of x, w, y, ... they are, or CONSTANT */
  int has_constants;
  int result;
  int count; /* of the arguments */
  PyObject *compute, *differentiate, *dispatch, *record, *autocast;
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

/* watch.c */
/* Whether a function without arguments answers None or 0. */
int is_nothing(PyObject* function);
/* Whether nothing would look at the call: all tensors, the first of the arguments, are PyTorch's own, without
 * tangents or the negative bit, and all functions of quiet answer so. -1 with an exception. */
int is_plain(PyObject* arguments, int tensors, PyObject* quiet);

/* key.c */
/* The call's key, or NULL, without an exception, for what is never remembered. New reference. asks: whether
 * tensors may have the negative bit, which nobody has looked for yet. */
PyObject* key_of(const Operator* self, PyObject* arguments, Call* call, int asks);

#endif
