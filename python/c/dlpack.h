/* DLPack's memory layout (ABI 1.x): what a `__dlpack__` capsule holds, and the table of C functions that a
 * tensor type offers as `__dlpack_c_exchange_api__`. */
#ifndef FALTUNG_PYTHON_DLPACK_H_
#define FALTUNG_PYTHON_DLPACK_H_

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct DLTensor {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: rows one after the other */
  uint64_t byte_offset;
} DLTensor;

/* The capsule "dltensor". */
typedef struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(struct DLManagedTensor*);
} DLManagedTensor;

/* The capsule "dlpack_exchange_api". The functions return 0, or -1 with a Python exception. */
typedef struct DLExchangeApi {
  struct {
    uint32_t major, minor;
  } version;
  struct DLExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, DLTensor* out); /* borrows: valid while the object is unchanged */
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
} DLExchangeApi;

#endif
