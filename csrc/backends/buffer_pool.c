/* Size classes of powers of two and their halves, a free list each. */
#include "backends/buffer_pool.h"

#include <pthread.h>
#include <stdlib.h>

enum { CLASSES = 96, HEADER = DC_MEMORY_ALIGN, PAGE = 4096, LARGE = 1 << 20 };

typedef struct header {
  struct header *next;
  uint64_t bytes; /* of the whole block */
  uint32_t class;
} header;

struct dc_buffer_pool {
  const dc_allocator *memory;
  pthread_mutex_t lock;
  header *idle[CLASSES];
  uint64_t idle_bytes, limit_bytes;
};

dc_buffer_pool *dc_buffer_pool_create(const dc_allocator *memory, uint64_t idle_limit_bytes) {
  dc_buffer_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pthread_mutex_init(&pool->lock, NULL);
  pool->memory = memory, pool->limit_bytes = idle_limit_bytes;
  return pool;
}

static uint32_t class_of(uint64_t bytes, uint64_t *rounded) {
  uint32_t k = 0;
  uint64_t size = 256;
  while (size < bytes && k + 2 < CLASSES) {
    k++;
    size = k & 1 ? size + size / 2 : size / 3 * 4;
  }
  *rounded = size;
  return k;
}

/* Bytes before the buffer, the header last.  A large buffer begins a page: behind the beginnings of NumPy's and torch's large arrays,
 * 16 and 64 bytes into theirs, the processor would take each store for one that the next load of such an operand waits for. */
static uint64_t lead_of(uint64_t rounded) { return rounded < LARGE ? HEADER : PAGE; }

void *dc_buffer_take(dc_buffer_pool *pool, uint64_t bytes) {
  uint64_t rounded;
  if (bytes > (uint64_t)1 << 46) return NULL;
  uint32_t k = class_of(bytes + HEADER, &rounded);
  if (rounded >= LARGE) k = class_of(bytes + PAGE, &rounded);
  pthread_mutex_lock(&pool->lock);
  header *h = pool->idle[k];
  if (h) pool->idle[k] = h->next, pool->idle_bytes -= h->bytes;
  pthread_mutex_unlock(&pool->lock);
  char *block = h ? NULL : pool->memory->take(pool->memory->self, rounded, NULL);
  if (block) h = (header *)(block + lead_of(rounded) - HEADER);
  if (!h) return NULL;
  h->bytes = rounded, h->class = k;
  return (char *)h + HEADER;
}

void dc_buffer_give(dc_buffer_pool *pool, void *buffer) {
  if (!buffer) return;
  header *h = (header *)((char *)buffer - HEADER);
  pthread_mutex_lock(&pool->lock);
  int keep = pool->idle_bytes + h->bytes <= pool->limit_bytes;
  if (keep) h->next = pool->idle[h->class], pool->idle[h->class] = h, pool->idle_bytes += h->bytes;
  pthread_mutex_unlock(&pool->lock);
  if (!keep) pool->memory->give(pool->memory->self, (char *)buffer - lead_of(h->bytes), h->bytes, NULL);
}
