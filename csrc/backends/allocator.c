/* The host's memory: large blocks straight from the system, in huge pages where it has them. */
#include "backends/allocator.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { VECTOR_ALIGN = 16 }; /* what kernels assume of any buffer */
static const uint64_t LARGE_BYTES = 1u << 20;

static void *take(void *self, uint64_t bytes, void *stream) {
  (void)self, (void)stream;
  void *memory = NULL;
  if (!bytes) return NULL;
  if (bytes < LARGE_BYTES) return posix_memalign(&memory, DC_MEMORY_ALIGN, bytes) ? NULL : memory;
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

static void give(void *self, void *memory, uint64_t bytes, void *stream) {
  (void)self, (void)stream;
  if (bytes < LARGE_BYTES) free(memory);
  else if (memory) (void)munmap(memory, bytes);
}

static dc_status fill(void *self, void *to, const void *from, uint64_t bytes, void *stream) {
  (void)self, (void)stream;
  memcpy(to, from, bytes);
  return DC_OK;
}

/* Data from files need not be aligned. */
static bool reads(const void *data) { return (uintptr_t)data % VECTOR_ALIGN == 0; }

const dc_allocator dc_host_memory = {DC_HOST, 0, NULL, take, give, fill, reads};
