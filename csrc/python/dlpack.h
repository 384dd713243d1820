/* The DLPack 1.x exchange interface, as its specification lays it out in memory. */
#ifndef DCML_PYTHON_DLPACK_H
#define DCML_PYTHON_DLPACK_H

#include <stdint.h>

typedef struct {
  uint32_t major, minor;
} DLVersion;
typedef struct {
  int32_t type, id;
} DLDevice;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6, DL_CPU = 1, DL_CUDA = 2 };

typedef struct DLManaged {
  DLVersion version;
  void *context;
  void (*deleter)(struct DLManaged *self);
  uint64_t flags;
  DLTensor tensor;
} DLManaged;

typedef struct DLExchangeHeader {
  DLVersion version;
  struct DLExchangeHeader *previous;
} DLExchangeHeader;
typedef struct {
  DLExchangeHeader header;
  int (*allocate)(DLTensor *prototype, DLManaged **out, void *context, void (*set_error)(void *, const char *, const char *));
  int (*from_object)(void *object, DLManaged **out);
  int (*to_object)(DLManaged *tensor, void **out);
  int (*borrow)(void *object, DLTensor *out);
  int (*current_stream)(int32_t type, int32_t id, void **out);
} DLExchange;

#endif
