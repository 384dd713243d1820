/* Memory of a device: where programs get theirs, and how what lies on the host comes there. */
#ifndef DCML_BACKENDS_ALLOCATOR_H
#define DCML_BACKENDS_ALLOCATOR_H

#include "ir/graph.h"

/* What happens to memory happens in the order of a stream of the device; NULL: its default one, and always on the host. */
typedef struct dc_allocator {
  dc_device device;
  int32_t ordinal; /* of several of a kind */
  void *self;      /* what the functions are given first */
  /* Aligned to DC_MEMORY_ALIGN; NULL when there is none.  What it holds is undefined.  0 bytes give NULL. */
  void *(*take)(void *self, uint64_t bytes, void *stream);
  void (*give)(void *self, void *memory, uint64_t bytes, void *stream); /* as many as were taken; NULL is allowed */
  dc_status (*fill)(void *self, void *to, const void *from, uint64_t bytes,
                    void *stream); /* from the host's memory, which is free after it */
  bool (*reads)(const void *data); /* may kernels use the host's memory at this address as it stands? */
} dc_allocator;

enum { DC_MEMORY_ALIGN = 64 };
static inline uint64_t dc_memory_aligned(uint64_t bytes) { return (bytes + DC_MEMORY_ALIGN - 1) & ~(uint64_t)(DC_MEMORY_ALIGN - 1); }

extern const dc_allocator dc_host_memory;

#endif
