/* What the files of the extension share. The limited API of CPython 3.10: one binary for every later version.
 */
#ifndef FALTUNG_PYTHON_COMMON_H_
#define FALTUNG_PYTHON_COMMON_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "c/dlpack.h"
#include "faltung/faltung.h"

/* ------------------------------------------------------------------------------------------------ errors.c
 */

/* Adds the exception classes, one a status, to the module. */
int add_exceptions(PyObject* module);
/* Raises status' class with the library's own line, unless an exception is pending; returns NULL. */
PyObject* raise_status(faltung_status status);
/* Raises BadProblem with a line of this module's own; returns -1. */
int raise_bad_problem(const char* format, ...);

/* ------------------------------------------------------------------------------------------------- array.c
 */

enum { MOST_DIMENSIONS = 8 };
typedef enum { DTYPE_OTHER, DTYPE_F32, DTYPE_F16, DTYPE_BF16 } Dtype;
const char* dtype_name(Dtype dtype);

/* Somebody's array, borrowed: valid until release_array. */
typedef struct {
  void* data;
  int dimensions;
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS]; /* in elements */
  Dtype dtype;
  unsigned code, bits;    /* of the elements' type, as DLPack has it */
  int on_cuda, device_id; /* else in the host's memory */
  int read_only;
  PyObject* keeps; /* what holds it, or NULL */
} Array;

/* Reads NumPy's arrays and whatever has __dlpack__. what: its name in messages. stream: on which it will be
 * used (CUDA); where the array's library has a current stream, and *stream is NULL, it is set to that.
 * Returns -1 with an exception. */
int read_array(PyObject* object, const char* what, void** stream, Array* array);
void release_array(Array* array);
/* The table of C functions that the object's type offers, or NULL without an exception. Types live long: the
 * last ones are kept. */
const DLExchangeApi* exchange_api(PyObject* object);
/* Whether it is a tensor whose memory holds the opposite numbers, PyTorch's negative bit, of which DLPack
 * does not know. -1 with an exception. */
int is_negated(PyObject* object);
/* Fills array from what such a table's functions, or a capsule, told. Returns -1 with an exception. */
int take_tensor(const DLTensor* tensor, const char* what, Array* array);
/* A tuple of ints. NULL with an exception. */
PyObject* tuple_of(const int64_t* numbers, int count);
/* describe(array, /) -> (shape, strides, dtype, device) */
PyObject* describe(PyObject* module, PyObject* object);
/* locate(array, what, stream, /) -> (address, shape, contiguous, type, device, writable): what: its name in
 * messages; stream: an address on which it will be used, or None. The address is good as long as the array
 * is. */
PyObject* locate(PyObject* module, PyObject* arguments);

/* ------------------------------------------------------------------------------------- engine.c and plan.c
 */

int add_engine_type(PyObject* module);
int add_plan_types(PyObject* module);
/* Takes the problem and the plan; NULL with an exception. device: its id. */
PyObject* new_plan(faltung_problem* problem, faltung_plan* plan, const char* device);

/* ----------------------------------------------------------------------------------------------- threads.c
 */

/* use_openmp_of(path) -> bool: from now on work on the CPU is done by the threads of the OpenMP runtime to
 * which the library at that path, which is loaded, is linked. False, and nothing changes, where it has none.
 */
PyObject* use_openmp_of(PyObject* module, PyObject* path);
/* NULL for the library's own. */
faltung_parallel_for callers_threads(void);

/* ---------------------------------------------------------------------------------------------- operator.c
 */

int add_operator_type(PyObject* module);

/* -------------------------------------------------------------------------------------------- gradients.c
 */

int add_gradients_type(PyObject* module); /* after that of operators */

/* ------------------------------------------------------------------------------------------------- watch.c
 */

/* use_torch(Tensor, Parameter, ...): what operators ask of PyTorch in every call, in the order that it has
 * there.
 */
PyObject* use_torch(PyObject* module, PyObject* arguments);
/* dispatch_keys() -> what this thread has of its own of the dispatcher's keys: (added, left out), zero where
 * nothing; None where that is not to be read. */
PyObject* dispatch_keys(PyObject* module, PyObject* unused);
/* is_unseen(*tensors) -> bool: whether nothing below autograd would look at a call with them. */
PyObject* unseen(PyObject* module, PyObject* tensors);
/* fit(x, w, bias, dimensions) -> bool or None: whether they are of one dtype; None where something would look
 * at the call, or they are no tensors of so many dimensions that are computed, whatever their dtypes. */
PyObject* fit(PyObject* module, PyObject* arguments);
/* fit_channels(x, weight, bias, mean, variance, batches) -> bool: whether nothing would look at a call with
 * them, they are on one device, and those of batch norm one f32 number a channel of x, without gaps, and one
 * int64. */
PyObject* fit_channels(PyObject* module, PyObject* arguments);

/* ------------------------------------------------------------------------------------------------ launch.c
 */

/* launch(function, blocks_x, blocks_y, threads, stream, overlaps, *parameters): of a CUDA function that is
 * loaded. It takes ints as long long, floats as double, and of PyTorch's tensors their addresses. overlaps:
 * whether it may begin before the one in front of it has ended, for which it waits itself. */
PyObject* launch(PyObject* module, PyObject* const* given, Py_ssize_t count);

#endif
