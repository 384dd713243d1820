/* The native libraries of a CUDA device, and what they share: where they are opened, and how they are told of TF32. */
#ifndef DCML_BACKENDS_CUDA_NATIVES_H
#define DCML_BACKENDS_CUDA_NATIVES_H

#include "backends/cuda/driver.h"
#include "backends/native/library.h"

/* What a library works on.  Its context is current when the library is opened, bound and run. */
typedef struct {
  const dc_driver *driver;
  int32_t ordinal;
  const uint32_t *modes; /* bits of dc_mode, read when a call is bound; NULL: none */
} dc_cuda_place;

static inline uint32_t dc_cuda_modes(const dc_cuda_place *place) {
  return place->modes ? __atomic_load_n(place->modes, __ATOMIC_RELAXED) : 0;
}

extern const dc_native_library dc_native_cublas, dc_native_cudnn;

/* Zeros, in the order of the stream. */
DC_MUST_USE dc_status dc_cuda_clear(const dc_driver *driver, void *memory, uint64_t bytes, void *stream);

#endif
