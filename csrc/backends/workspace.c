/* A few idle blocks; what is too small for a run makes room for what it takes. */
#include "backends/workspace.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_IDLE = 4 };

struct dc_workspace {
  const dc_allocator *memory;
  pthread_mutex_t lock;
  dc_work_block idle[MAX_IDLE];
  uint32_t n;
};

dc_workspace *dc_workspace_create(const dc_allocator *memory) {
  dc_workspace *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->memory = memory;
  pthread_mutex_init(&w->lock, NULL);
  return w;
}

void dc_workspace_destroy(dc_workspace *w) {
  if (!w) return;
  dc_workspace_trim(w, 0);
  pthread_mutex_destroy(&w->lock);
  free(w);
}

static dc_work_block remove_at(dc_workspace *w, uint32_t k) {
  dc_work_block block = w->idle[k];
  w->idle[k] = w->idle[--w->n];
  return block;
}

/* The smallest that is large enough, or else the largest; n must not be 0. */
static uint32_t best_of(const dc_workspace *w, uint64_t bytes) {
  uint32_t best = 0;
  for (uint32_t k = 1; k < w->n; k++) {
    bool fits = w->idle[k].bytes >= bytes, best_fits = w->idle[best].bytes >= bytes;
    bool smaller = w->idle[k].bytes < w->idle[best].bytes;
    if (fits != best_fits ? fits : fits == smaller) best = k;
  }
  return best;
}

dc_work_block dc_workspace_take(dc_workspace *w, uint64_t bytes) {
  dc_work_block block = {NULL, 0};
  pthread_mutex_lock(&w->lock);
  if (w->n) block = remove_at(w, best_of(w, bytes));
  pthread_mutex_unlock(&w->lock);
  if (block.data && block.bytes >= bytes) return block;
  w->memory->give(w->memory->self, block.data, block.bytes, NULL);
  return (dc_work_block){w->memory->take(w->memory->self, bytes, NULL), bytes};
}

void dc_workspace_give(dc_workspace *w, dc_work_block block) {
  dc_work_block smallest = {NULL, 0};
  if (!block.data) return;
  pthread_mutex_lock(&w->lock);
  if (w->n == MAX_IDLE) smallest = remove_at(w, best_of(w, 0));
  w->idle[w->n++] = block;
  pthread_mutex_unlock(&w->lock);
  w->memory->give(w->memory->self, smallest.data, smallest.bytes, NULL);
}

void dc_workspace_trim(dc_workspace *w, uint64_t bytes) {
  pthread_mutex_lock(&w->lock);
  for (uint32_t k = w->n; k-- > 0;)
    if (w->idle[k].bytes >= bytes) {
      dc_work_block gone = remove_at(w, k);
      w->memory->give(w->memory->self, gone.data, gone.bytes, NULL);
    }
  pthread_mutex_unlock(&w->lock);
}
