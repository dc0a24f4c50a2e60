/* PyTorch's threads in place of the library's own. Those of its OpenMP spin for milliseconds behind each
 * region, on the very processors that threads of ours would need; work of both on the same threads waits for
 * neither. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "c/common.h"

/* What GCC makes of "#pragma omp parallel", in GNU's runtime and LLVM's alike. */
typedef void (*GompParallel)(void (*body)(void*), void* argument, unsigned threads, unsigned flags);
static _Atomic(GompParallel) gomp_parallel;

typedef struct {
  void (*body)(int index, void* argument);
  void* argument;
  int count;
  atomic_int next;
} Region;

/* On each thread of the region: whoever comes late finds nothing left to do. */
static void work(void* given) {
  Region* region = given;
  for (int i; (i = atomic_fetch_add_explicit(&region->next, 1, memory_order_relaxed)) < region->count;)
    region->body(i, region->argument);
}

static void by_openmp(void* context, int count, void (*body)(int index, void* argument), void* argument) {
  (void)context;
  Region region = {body, argument, count, 0};
  const GompParallel parallel = count == 1 ? NULL : gomp_parallel;
  if (parallel == NULL) {
    work(&region);
  } else {
    parallel(work, &region, (unsigned)count, 0);
  }
}

/* OpenMP's threads are not in the child of a fork, where its runtime would wait for them. */
static void forget(void) { gomp_parallel = NULL; }

faltung_parallel_for callers_threads(void) { return gomp_parallel == NULL ? NULL : by_openmp; }

PyObject* use_openmp_of(PyObject* module, PyObject* path) {
  (void)module;
  const char* name = PyUnicode_AsUTF8AndSize(path, NULL);
  if (name == NULL) return NULL;
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD); /* looks in what it is linked to, too */
  GompParallel parallel = NULL;
  if (library != NULL) *(void**)&parallel = dlsym(library, "GOMP_parallel");
  static int registered;
  if (parallel != NULL && !registered) registered = pthread_atfork(NULL, NULL, forget) == 0;
  if (parallel != NULL && registered) gomp_parallel = parallel;
  if (library != NULL) dlclose(library); /* whoever loaded it holds it */
  return PyBool_FromLong(gomp_parallel != NULL);
}
