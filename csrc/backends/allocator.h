/* Memory of a device: where programs get theirs, and how what lies on the host comes there. */
#ifndef DCML_BACKENDS_ALLOCATOR_H
#define DCML_BACKENDS_ALLOCATOR_H

#include "ir/graph.h"

typedef struct {
  dc_device device;
  /* Aligned to DC_MEMORY_ALIGN; NULL when there is none.  What it holds is undefined.  0 bytes give NULL. */
  void *(*take)(uint64_t bytes);
  void (*give)(void *memory, uint64_t bytes); /* as many as were taken; NULL is allowed */
  void (*fill)(void *to, const void *from, uint64_t bytes); /* from the host's memory */
  bool (*reads)(const void *data); /* may kernels use the host's memory at this address as it stands? */
} dc_allocator;

enum { DC_MEMORY_ALIGN = 64 };

extern const dc_allocator dc_host_memory;

#endif
