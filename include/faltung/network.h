/* Whole networks from ONNX files. The C interface (C99); network.hpp is the C++ one, and says more. */
#ifndef FALTUNG_NETWORK_H_
#define FALTUNG_NETWORK_H_

#include "faltung/faltung.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A network from a file; may be used from many threads. The engine must outlive it. */
typedef struct faltung_network faltung_network;
/* A network for given sizes; may be used from many threads, which take turns at the engine's threads. May
 * outlive its network. */
typedef struct faltung_network_plan faltung_network_plan;

typedef enum faltung_element {
  FALTUNG_ELEMENT_F32 = 0,
  FALTUNG_ELEMENT_BOOL = 1, /* a byte each */
  FALTUNG_ELEMENT_I32 = 2,
  FALTUNG_ELEMENT_I64 = 3,
  FALTUNG_ELEMENT_F16 = 4,
  FALTUNG_ELEMENT_BF16 = 5
} faltung_element;

/* An input or output. Texts and sizes live as long as what they were asked of. */
typedef struct faltung_network_tensor {
  size_t size; /* sizeof(faltung_network_tensor) */
  const char* name;
  faltung_element element;
  size_t rank;          /* how many sizes */
  const int64_t* sizes; /* -1: it is open, and settled by faltung_network_plan_create */
} faltung_network_tensor;

/* request: of which device, threads and the choices among kernels are read; may be NULL. FALTUNG_BAD_FILE for
 * what is no network, FALTUNG_UNSUPPORTED with all nodes that are not known. */
FALTUNG_API faltung_status faltung_network_create(faltung_engine* engine, const char* file,
                                                  const faltung_request* request, faltung_network** network);
/* The same, in elements of f32, f16 or bf16 between its inputs and outputs; 16 bits on a GPU alone. */
FALTUNG_API faltung_status faltung_network_create_in(faltung_engine* engine, const char* file,
                                                     const faltung_request* request, faltung_element element,
                                                     faltung_network** network);
/* The same; tensors of the file that are of f32 where the element is of 16 bits: count names. */
FALTUNG_API faltung_status faltung_network_create_mixed(faltung_engine* engine, const char* file,
                                                        const faltung_request* request,
                                                        faltung_element element, const char* const* keep_f32,
                                                        size_t count, faltung_network** network);
FALTUNG_API void faltung_network_destroy(faltung_network* network);
FALTUNG_API size_t faltung_network_input_count(const faltung_network* network);
/* tensor->size must be set. */
FALTUNG_API faltung_status faltung_network_input(const faltung_network* network, size_t index,
                                                 faltung_network_tensor* tensor);

/* What the file says of itself under that key (ONNX's metadata_props); lives as long as the network. NULL
 * where it says nothing. */
FALTUNG_API const char* faltung_network_metadata(const faltung_network* network, const char* key);

/* sizes: those of the first input, then those of the second, ...; count: of all numbers together. Sizes that
 * were asked for before are answered from the plans that are kept. */
FALTUNG_API faltung_status faltung_network_plan_create(faltung_network* network, const int64_t* sizes,
                                                       size_t count, faltung_network_plan** plan);
FALTUNG_API void faltung_network_plan_destroy(faltung_network_plan* plan);
FALTUNG_API size_t faltung_network_plan_output_count(const faltung_network_plan* plan);
FALTUNG_API faltung_status faltung_network_plan_output(const faltung_network_plan* plan, size_t index,
                                                       faltung_network_tensor* tensor);
/* What a run takes beside inputs and outputs; the plan keeps it. */
FALTUNG_API size_t faltung_network_plan_arena_bytes(const faltung_network_plan* plan);

/* Contiguous elements, one address an input and output, in the file's order: of a GPU device memory at
 * multiples of 16 bytes. A GPU's run is not waited for. */
FALTUNG_API faltung_status faltung_network_run(const faltung_network_plan* plan, const void* const* inputs,
                                               void* const* outputs);
/* On a GPU: on the caller's stream or queue (NULL: the device's own), in the caller's device memory of
 * faltung_network_plan_arena_bytes(), aligned to 64 bytes (NULL: the plan's own, one a stream). */
FALTUNG_API faltung_status faltung_network_run_on(const faltung_network_plan* plan, const void* const* inputs,
                                                  void* const* outputs, void* stream, void* arena);

#ifdef __cplusplus
}
#endif

#endif /* FALTUNG_NETWORK_H_ */
