/* torch's caching allocator as memory of programs: blocks are tensors that only the core sees.
 *
 * The one idea: a block is taken as a tensor of bytes by DLPack's exchange interface, on torch's current stream of the
 * thread that asks, and the handle that frees it lies on a shelf chosen by its address.  Nothing here needs the GIL. */
#include <pthread.h>
#include <stdlib.h>

#include "python/dlpack.h"
#include "python/placing.h"

enum { SHELVES = 64, GRANULE_BITS = 9 }; /* torch rounds blocks to 512 bytes */

typedef struct {
  pthread_mutex_t lock;
  DLManaged **v;
  uint32_t n, room;
} shelf;

typedef struct torch_memory {
  dc_allocator memory;
  const dc_allocator *device; /* copies as the device's own does */
  const DLExchange *api;
  struct torch_memory *next;
  shelf shelves[SHELVES];
} torch_memory;

static shelf *shelf_of(torch_memory *m, const void *block) {
  return &m->shelves[((uint64_t)(uintptr_t)block >> GRANULE_BITS) * UINT64_C(0x9E3779B97F4A7C15) >> 58];
}

/* torch's reason is not wanted: there is no memory. */
static void ignore_error(void *context, const char *kind, const char *text) { (void)context, (void)kind, (void)text; }

static void *take(void *self, uint64_t bytes, void *stream) {
  torch_memory *m = self;
  int64_t extent = (int64_t)bytes, stride = 1;
  DLTensor like = {NULL, {DL_CUDA, m->memory.ordinal}, 1, {DL_UINT, 8, 1}, &extent, &stride, 0};
  DLManaged *made = NULL;
  (void)stream; /* torch's current one, which the caller has asked for */
  if (!bytes || bytes > INT64_MAX || m->api->allocate(&like, &made, NULL, ignore_error) || !made) return NULL;
  shelf *s = shelf_of(m, made->tensor.data);
  pthread_mutex_lock(&s->lock);
  if (s->n == s->room) {
    DLManaged **larger = realloc(s->v, (2 * s->room + 4) * sizeof *s->v);
    if (larger) s->v = larger, s->room = 2 * s->room + 4;
  }
  bool kept = s->n < s->room;
  if (kept) s->v[s->n++] = made;
  pthread_mutex_unlock(&s->lock);
  if (kept) return made->tensor.data;
  made->deleter(made);
  return NULL;
}

static void give(void *self, void *block, uint64_t bytes, void *stream) {
  torch_memory *m = self;
  DLManaged *found = NULL;
  (void)bytes, (void)stream;
  if (!block) return;
  shelf *s = shelf_of(m, block);
  pthread_mutex_lock(&s->lock);
  for (uint32_t k = s->n; k-- > 0 && !found;)
    if (s->v[k]->tensor.data == block) found = s->v[k], s->v[k] = s->v[--s->n];
  pthread_mutex_unlock(&s->lock);
  if (found) found->deleter(found);
}

static dc_status fill(void *self, void *to, const void *from, uint64_t bytes, void *stream) {
  const dc_allocator *device = ((torch_memory *)self)->device;
  return device->fill(device->self, to, from, bytes, stream);
}

/* They are as many as there are GPUs, and stay: programs and tensors may outlive the module. */
const dc_allocator *torch_memory_of(module_state *state, const dc_allocator *device) {
  for (torch_memory *m = state->torch_memory; m; m = m->next)
    if (m->device == device) return &m->memory;
  torch_memory *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  for (int k = 0; k < SHELVES; k++) pthread_mutex_init(&m->shelves[k].lock, NULL);
  m->memory = (dc_allocator){device->device, device->ordinal, m, take, give, fill, device->reads};
  m->device = device, m->api = state->exchange, m->next = state->torch_memory;
  return state->torch_memory = m, &m->memory;
}
