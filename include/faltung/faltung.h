/* faltung: a convolution engine. The C interface (C99); faltung.hpp is the C++ one, and says more.
 *
 * Every function that can fail returns a status; faltung_last_error() then has one line that says what was
 * wrong, where, and what would be right. No exception leaves the library. NULL is accepted by every
 * *_destroy. */
#ifndef FALTUNG_FALTUNG_H_
#define FALTUNG_FALTUNG_H_

#include <stddef.h>
#include <stdint.h>

#ifndef FALTUNG_API
#define FALTUNG_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum faltung_status {
  FALTUNG_OK = 0,
  FALTUNG_BAD_PROBLEM = 1,   /* sizes, text or options that make no sense */
  FALTUNG_UNSUPPORTED = 2,   /* nothing allowed can compute it */
  FALTUNG_BAD_FILE = 3,      /* a file that cannot be read, written or parsed */
  FALTUNG_OUT_OF_MEMORY = 4, /* on the device or on the host */
  FALTUNG_DEVICE_ERROR = 5,  /* the device or its driver failed */
  FALTUNG_INTERNAL = 6,      /* a defect of faltung's own */
  FALTUNG_CANCELLED = 7      /* by the caller's faltung_progress */
} faltung_status;

/* The last failure on this thread; "" if there was none. Valid until the thread's next call of faltung. */
FALTUNG_API const char* faltung_last_error(void);
/* e.g. "0.1.0" */
FALTUNG_API const char* faltung_version(void);

/* ---------------------------------------------------------------------------------------------- problem */

/* A problem is its text, e.g. "fwd:n4c64h32w32k64r3s3:pad1:f32:nchw:bias:relu" (docs/problem.md has the
 * grammar); a `MIOpenDriver conv` line, a benchdnn problem string and a line that oneDNN wrote under
 * ONEDNN_VERBOSE are read too. */
typedef struct faltung_problem faltung_problem;

FALTUNG_API faltung_status faltung_problem_create(const char* text, faltung_problem** problem);
FALTUNG_API void faltung_problem_destroy(faltung_problem* problem);
/* The canonical text; lives as long as the problem. */
FALTUNG_API const char* faltung_problem_text(const faltung_problem* problem);

typedef enum faltung_tensor {
  FALTUNG_X = 0,        /* n c h w */
  FALTUNG_W = 1,        /* the filter: k, c/groups, r, s */
  FALTUNG_Y = 2,        /* n k, and the output's height and width after pooling, if there is any */
  FALTUNG_BIAS = 3,     /* 1 k 1 1 */
  FALTUNG_RESIDUAL = 4, /* n k p q, before pooling */
  FALTUNG_RELU = 5,     /* n c h w, of drelu */
  FALTUNG_SUMS = 6,     /* of dbias 1 k 1 1, of stats 2 k 1 1: float, whatever the dtype */
  FALTUNG_SCALE = 7,    /* 1 c 1 1, of affine: float, whatever the dtype */
  FALTUNG_SHIFT = 8,    /* likewise */
  FALTUNG_SLOPES = 9    /* 1 k 1 1, of prelu: float, whatever the dtype */
} faltung_tensor;

/* The tensor's sizes in the letters' order above, whatever the layout in memory. Of one dimension the height
 * is 1; of three FALTUNG_BAD_PROBLEM: ask faltung_problem_shape. */
FALTUNG_API faltung_status faltung_problem_sizes(const faltung_problem* problem, faltung_tensor tensor,
                                                 int64_t sizes[4]);

/* A tensor's sizes, whatever the layout in memory and however many dimensions there are: 1 where there is
 * none. The filter's are k c/groups t r s, those of a transposed convolution's c k/groups t r s. */
typedef struct faltung_shape {
  size_t size;    /* sizeof(faltung_shape) */
  int dimensions; /* of the problem, spatial ones: 1, 2 or 3 */
  int64_t n, c, d, h, w;
} faltung_shape;

/* shape->size must be set. */
FALTUNG_API faltung_status faltung_problem_shape(const faltung_problem* problem, faltung_tensor tensor,
                                                 faltung_shape* shape);
/* The tensor's size in memory; 0 if problem is NULL. */
FALTUNG_API size_t faltung_problem_bytes(const faltung_problem* problem, faltung_tensor tensor);

/* ---------------------------------------------------------------------------------------------- devices */

/* Structs that this library fills or reads begin with their size in bytes, as the program was compiled; a
 * later version adds members at the end, and neither side touches what the other does not know. */

/* Texts live as long as the process. */
typedef struct faltung_device {
  size_t size;          /* sizeof(faltung_device) */
  const char* id;       /* "cpu", "cuda:0", "opencl:1": what faltung_request.device names */
  const char* kind;     /* "cpu" or "gpu" */
  const char* name;     /* the model, as its maker calls it */
  const char* driver;   /* version, in words */
  const char* features; /* of the instruction set, separated by spaces */
  int units;            /* cores or multiprocessors */
  size_t memory_bytes;
} faltung_device;

/* How many devices this machine has; 0 where they cannot be listed (faltung_last_error says why). Wakes every
 * driver. */
FALTUNG_API int faltung_device_count(void);
/* device->size must be set. FALTUNG_BAD_PROBLEM unless 0 <= index < faltung_device_count(). 0 is the CPU. */
FALTUNG_API faltung_status faltung_device_get(int index, faltung_device* device);

/* ----------------------------------------------------------------------------------------------- engine */

/* The store, the devices and the algorithms behind one handle; may be used from many threads. */
typedef struct faltung_engine faltung_engine;

/* store: a directory; NULL or "" for $FALTUNG_STORE, else $XDG_CACHE_HOME/faltung, else ~/.cache/faltung. */
FALTUNG_API faltung_status faltung_engine_create(const char* store, faltung_engine** engine);
FALTUNG_API void faltung_engine_destroy(faltung_engine* engine);
/* Called with one line for what a caller may want to know and need not act on, such as a kernel that was put
 * into quarantine; from any thread that uses the engine. NULL: nothing is said, as at first. */
typedef void (*faltung_warning)(void* context, const char* line);
FALTUNG_API faltung_status faltung_engine_on_warning(faltung_engine* engine, faltung_warning warning,
                                                     void* context);

/* Which kernels may be used without having been tried on the device first. */
typedef enum faltung_trust {
  FALTUNG_TRUST_DEFAULT = 0, /* what $FALTUNG_TRUST says, else tested */
  FALTUNG_TRUST_TESTED = 1,  /* those that the test suite ran on the same instruction set: the CPU's */
  FALTUNG_TRUST_ALL = 2,     /* all; nothing is refused either */
  FALTUNG_TRUST_NONE = 3     /* none */
} faltung_trust;

/* Called before each trial of a find, on the thread that called it: which of how many, and what is being
 * tried. Not 0 ends the find with FALTUNG_CANCELLED; what was measured until then is kept. */
typedef int (*faltung_progress)(void* context, int done, int total, const char* kernel);

/* What a caller wants of a choice. Begin with faltung_request_default(). */
typedef struct faltung_request {
  size_t size;            /* sizeof(faltung_request) */
  const char* device;     /* "cpu" */
  int threads;            /* CPU; 0: every processor this process may use */
  size_t workspace_limit; /* bytes; SIZE_MAX: none */
  int deterministic;      /* not 0: the same bits from every run of a plan */
  const char* only;       /* kernel-name patterns (* and ?) separated by commas; NULL or "" allows all */
  const char* skip;       /* kernel-name patterns never to use; NULL or "" skips none */
  double budget_ms;       /* of faltung_find */
  faltung_trust trust;
  double deadline_ms;        /* of a run on trial, at least; 0: what $FALTUNG_DEADLINE says, else 10 s */
  const char* worker;        /* the faltung command, which tries kernels; NULL: $FALTUNG_WORKER, else found */
  faltung_progress progress; /* of faltung_find; NULL: none */
  void* progress_context;
  int flush_denormals; /* CPU; not 0: values below the smallest normal fp32 number may be taken as zero */
} faltung_request;

FALTUNG_API faltung_request faltung_request_default(void);

/* What became of a kernel. */
typedef enum faltung_outcome {
  FALTUNG_NOT_MEASURED = 0,
  FALTUNG_CHOSEN = 1,
  FALTUNG_SLOWER = 2,
  FALTUNG_PASS = 3,          /* it was tried, and is right */
  FALTUNG_DECLINED = 4,      /* it does not compute the problem, which says nothing against it */
  FALTUNG_SKIPPED = 5,       /* by the request */
  FALTUNG_QUARANTINED = 6,   /* it failed on this device before */
  FALTUNG_SLOW = 7,          /* it is right, and far behind what its cost model says */
  FALTUNG_WRONG = 8,         /* its result is */
  FALTUNG_OUT_OF_BOUNDS = 9, /* it wrote outside of its buffers */
  FALTUNG_HANG = 10,
  FALTUNG_CRASH = 11,
  FALTUNG_COMPILE_ERROR = 12,
  FALTUNG_NO_MEMORY = 13, /* this time */
  FALTUNG_TOO_LARGE = 14  /* it needs more memory than the device has */
} faltung_outcome;
/* In words: "not measured"; "" for a number that is none. */
FALTUNG_API const char* faltung_outcome_name(faltung_outcome outcome);

/* What is known of one kernel on one problem. Texts live as long as the choice. */
typedef struct faltung_report {
  size_t size;        /* sizeof(faltung_report) */
  const char* kernel; /* the algorithm's name where all of it is meant */
  faltung_outcome outcome;
  const char* why;     /* in words, where there is more to say */
  double predicted_ms; /* by the cost model; 0 if it declined */
  double ms;           /* measured median; 0 if not measured */
  double ms_min, ms_max;
  double error_over_bound; /* worst element, in units of its bound; -1 if not verified */
  double compile_ms;
  size_t workspace_bytes;
  double error_growth;  /* the bound on the error, in units of 2^-24 times the sum of |products| */
  const char* bound_by; /* bytes, arithmetic or latency */
  double ceiling_pct;   /* share of the roofline, from ms if measured, else predicted */
  int deterministic;    /* not 0: the same bits from every run */
  /* Of f32: the root mean square error over random problems is at most so many times that of a chain of fp32
     multiply-adds; 0 where nothing is stated. */
  double rms_of_chain;
} faltung_report;

/* Reports, best first; every algorithm has at least one. */
typedef struct faltung_choice faltung_choice;

/* Measures within the budget, verifies what may win, and stores the result. request and choice may be NULL.
 */
FALTUNG_API faltung_status faltung_find(faltung_engine* engine, const faltung_problem* problem,
                                        const faltung_request* request, faltung_choice** choice);
/* Measures no kernel; the device's ceilings, of which shares are told, it measures where the store has none,
 * in some seconds. request may be NULL. */
FALTUNG_API faltung_status faltung_explain(faltung_engine* engine, const faltung_problem* problem,
                                           const faltung_request* request, faltung_choice** choice);
FALTUNG_API void faltung_choice_destroy(faltung_choice* choice);
/* The chosen kernel, and what chose it: "lock", "forced", "store" or "model". */
FALTUNG_API const char* faltung_choice_kernel(const faltung_choice* choice);
FALTUNG_API const char* faltung_choice_source(const faltung_choice* choice);
FALTUNG_API size_t faltung_choice_count(const faltung_choice* choice);
/* report->size must be set. */
FALTUNG_API faltung_status faltung_choice_report(const faltung_choice* choice, size_t index,
                                                 faltung_report* report);
/* One line a report; lives as long as the choice. */
FALTUNG_API const char* faltung_choice_text(const faltung_choice* choice);

/* ------------------------------------------------------------------------------------------------- plan */

/* A chosen kernel, ready to run many times, from many threads at once if each brings its own workspace and
 * result. On the CPU the plans of an engine that ask for as many threads share them: a run that finds them
 * busy is computed by its calling thread alone, to the same bits. May outlive its engine, and serves the
 * child of a fork, too. */
typedef struct faltung_plan faltung_plan;

/* request may be NULL. */
FALTUNG_API faltung_status faltung_plan_create(faltung_engine* engine, const faltung_problem* problem,
                                               const faltung_request* request, faltung_plan** plan);
FALTUNG_API void faltung_plan_destroy(faltung_plan* plan);
/* The kernel's name; lives as long as the plan. */
FALTUNG_API const char* faltung_plan_kernel(const faltung_plan* plan);
/* What faltung_run needs beside the tensors; weights_are_packed: whether it will be given packed weights. */
FALTUNG_API size_t faltung_plan_workspace_bytes(const faltung_plan* plan, int weights_are_packed);

/* What packed weights take; 0: the kernel reads the weights as they are, and packing changes nothing. */
FALTUNG_API size_t faltung_plan_packed_weights_bytes(const faltung_plan* plan);

/* Weights in the order the plan's kernel reads them, packed once; may be used from many threads, and by every
 * plan for the same filter on the device whose kernel is the same or reads that order, where packing does not
 * depend on batch and image. */
typedef struct faltung_weights faltung_weights;

FALTUNG_API void faltung_weights_destroy(faltung_weights* weights);

/* Device pointers, aligned as allocations are: some kernels take multiples of 16 bytes alone, and say so.
 * Which are read and which written follows from the direction:
 *
 *   fwd    reads x, w (bias, residual); writes y
 *   bwd_d  reads y (the output's gradient), w; writes x (the input's gradient)
 *   bwd_w  reads x, y (the output's gradient); writes w (the weights' gradient)
 *
 * Besides, stats (fwd) and dbias (bwd_w) write sums, drelu (bwd_d) reads relu, x as forward read it, and
 * affine (fwd and bwd_w) reads scale and shift, and prelu (fwd) reads slopes.
 * What is only read may overlap; the result overlaps nothing, the residual and the workspace included:
 * faltung_run refuses it. Elements are in the host's byte order: f32 is float; f16 is IEEE's binary16
 * (_Float16, half) and bf16 the upper half of a float (__bf16), both two bytes, for which uint16_t serves
 * where the compiler has no such type. The bias has the problem's dtype, like all, but
 * for biasf32: float. */
typedef struct faltung_tensors {
  size_t size; /* sizeof(faltung_tensors) */
  void* x;
  void* w;
  void* y;
  const void* bias;
  const void* residual;
  const void* relu;
  void* sums;
  const void* scale;
  const void* shift;
  const void* slopes;
} faltung_tensors;

/* The caller's threads in place of faltung's own: calls body(0, argument) ... body(count - 1, argument), each
 * once, possibly at the same time, and returns when all have returned. */
typedef void (*faltung_parallel_for)(void* context, int count, void (*body)(int index, void* argument),
                                     void* argument);

/* What the caller knows of the addresses that it hands over. */
typedef enum faltung_addresses {
  FALTUNG_ADDRESSES_UNKNOWN = 0,  /* a GPU's driver is asked for each, so that a host pointer is refused */
  FALTUNG_ADDRESSES_ON_DEVICE = 1 /* memory of the plan's device, as arrays say that know theirs: it is not */
} faltung_addresses;

/* Zero-initialise what is not used. */
typedef struct faltung_run_options {
  size_t size;                       /* sizeof(faltung_run_options) */
  void* workspace;                   /* at least faltung_plan_workspace_bytes */
  const faltung_weights* weights;    /* packed; then w is read only if packed_weights_bytes is 0 */
  faltung_parallel_for parallel_for; /* CPU; NULL for faltung's own threads */
  void* parallel_for_context;
  /* GPU: the caller's CUstream or cl_command_queue, in whose order it runs; NULL: CUDA's default stream,
   * OpenCL's one of faltung's. */
  void* stream;
  faltung_addresses addresses; /* of the tensors and the workspace */
  /* GPU, 0 or 1: the weights, packed or not, were written, and the host has waited for it, before whatever
   * the device may still have to do was submitted. Kernels may read them while those in front still run. */
  int weights_rest;
} faltung_run_options;

/* On options' stream, for which it does not wait, or by its parallel_for; the rest of options is not read.
 * options may be NULL. */
FALTUNG_API faltung_status faltung_pack_weights(const faltung_plan* plan, const void* w,
                                                const faltung_run_options* options,
                                                faltung_weights** weights);
/* Allocates nothing. On the CPU the result is there when it returns; on a GPU once the stream has come so
 * far. options may be NULL if the plan needs no workspace. FALTUNG_BAD_PROBLEM if a pointer that the problem
 * needs is NULL, is one that the kernel cannot use, or if the result or the workspace overlaps another. */
FALTUNG_API faltung_status faltung_run(const faltung_plan* plan, const faltung_tensors* tensors,
                                       const faltung_run_options* options);

/* ----------------------------------------------------------------------------------------------- memory */

/* Device memory for callers that have no allocator of their own: taken from the device in large pieces, and
 * kept when it is freed; may be used from many threads. What is freed may be handed out again at once: free
 * it when the work on it is done, or use what comes next in the same stream alone. */
typedef struct faltung_memory_pool faltung_memory_pool;

/* device: NULL for "cpu". limit: of what is taken from the device, in bytes; SIZE_MAX: none. */
FALTUNG_API faltung_status faltung_memory_pool_create(const char* device, size_t limit,
                                                      faltung_memory_pool** pool);
/* All memory goes back to the device, blocks that are in use too. */
FALTUNG_API void faltung_memory_pool_destroy(faltung_memory_pool* pool);

/* Aligned to 64 bytes. FALTUNG_OUT_OF_MEMORY where the limit or the device has no room. */
FALTUNG_API faltung_status faltung_memory_allocate(faltung_memory_pool* pool, size_t bytes, void** pointer);
/* FALTUNG_BAD_PROBLEM for a pointer that was not allocated, or was freed; NULL does nothing. */
FALTUNG_API faltung_status faltung_memory_free(faltung_memory_pool* pool, void* pointer);
/* From and to the host; return when it is done. The device's bytes must lie in one block that is in use. They
 * come after what ran with a NULL stream. They do not wait for other work: before a copy, wait for an OpenCL
 * queue of your own (clFinish), and for a CUDA stream that is non-blocking (cudaStreamSynchronize), as
 * PyTorch's are; CUDA's blocking streams wait by themselves. */
FALTUNG_API faltung_status faltung_memory_copy_in(faltung_memory_pool* pool, void* to, const void* from,
                                                  size_t bytes);
FALTUNG_API faltung_status faltung_memory_copy_out(faltung_memory_pool* pool, void* to, const void* from,
                                                   size_t bytes);
/* Gives back to the device the pieces of which no part is in use. returned: how many bytes; may be NULL. */
FALTUNG_API faltung_status faltung_memory_trim(faltung_memory_pool* pool, size_t* returned);

/* In bytes where nothing else is said. */
typedef struct faltung_memory_statistics {
  size_t size;     /* sizeof(faltung_memory_statistics) */
  size_t in_use;   /* in blocks that are handed out, each rounded up to a multiple of 256 */
  size_t reserved; /* taken from the device: in use, and kept for the next request */
  size_t peak_in_use, peak_reserved;
  size_t blocks;             /* how many are handed out */
  size_t allocations;        /* calls of faltung_memory_allocate that succeeded */
  size_t device_allocations; /* of them, those for which memory was taken from the device */
} faltung_memory_statistics;

FALTUNG_API faltung_status faltung_memory_stats(const faltung_memory_pool* pool,
                                                faltung_memory_statistics* statistics);

/* An OpenCL program's own buffer (a cl_mem) as a device pointer for tensors and workspace: one may add to it.
 * The buffer is held until it is released. CUDA's pointers are device pointers as they are. */
typedef struct faltung_adopted faltung_adopted;

FALTUNG_API faltung_status faltung_adopt(const char* device, void* cl_mem, faltung_adopted** adopted);
FALTUNG_API void* faltung_adopted_pointer(const faltung_adopted* adopted);
FALTUNG_API void faltung_adopted_destroy(faltung_adopted* adopted);

#ifdef __cplusplus
}
#endif

#endif /* FALTUNG_FALTUNG_H_ */
