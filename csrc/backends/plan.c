/* Memory planning: liveness over the step list, then best fit of the largest first. */
#include "backends/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { ALIGN = 64 };
/* Of one container: sums of as many as there can be stay below 2^64. */
static const uint64_t MAX_BYTES = (uint64_t)1 << 42;
/* What any machine has; more is asked for only after a look. */
static const uint64_t MODEST_BYTES = (uint64_t)1 << 26;

typedef struct {
  dc_cid cid;
  uint64_t bytes, offset;
  uint32_t first, last; /* steps */
} block;

typedef struct {
  const dc_graph *graph;
  dc_plan *plan;
  uint32_t *first, *last; /* by root: 1 + step, 0 unused */
  uint32_t step;
} liveness;

static dc_status size_of(const dc_graph *graph, dc_cid c, const int64_t *symbols, uint64_t *out) {
  const dc_container *k = dc_cont(graph, c);
  uint64_t bytes = (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype);
  for (uint32_t d = 0; k->shape && d < k->rank; d++) {
    int64_t extent = dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
    if (extent < 0) return dc_error(DC_ERR_SHAPE, "'%s': dimension %u is %lld", dc_cont_name(graph, c), d, (long long)extent);
    if (__builtin_mul_overflow(bytes, (uint64_t)extent, &bytes) || bytes > MAX_BYTES)
      return dc_error(DC_ERR_MEMORY, "'%s' is too large", dc_cont_name(graph, c));
  }
  return *out = bytes, DC_OK;
}

static dc_status resolve_views(const dc_graph *graph, const int64_t *symbols, dc_plan *plan) {
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    dc_cid at = c;
    plan->view[c] = 0;
    for (; dc_cont(graph, at)->alias_of; at = dc_cont(graph, at)->alias_of) {
      const dc_container *k = dc_cont(graph, at);
      if (k->alias_offset) plan->view[c] += dc_ix_eval(&graph->pool, k->alias_offset, symbols, NULL) * dc_dtype_bytes((dc_dtype)k->dtype);
    }
    plan->root[c] = at;
    if (plan->view[c] < 0 || (at != c && (uint64_t)plan->view[c] + plan->bytes[c] > plan->bytes[at]))
      return dc_error(DC_ERR_MODEL, "'%s' is a view beyond '%s'", dc_cont_name(graph, c), dc_cont_name(graph, at));
  }
  return DC_OK;
}

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  liveness *l = context;
  dc_cid root = l->plan->root[c];
  (void)by;
  if (use == DC_USE_WRITE && dc_cont(l->graph, c)->role == DC_ROLE_SAVED) l->plan->saved[c] = true;
  if (!l->first[root]) l->first[root] = l->step + 1;
  l->last[root] = l->step + 1;
}

static int larger_first(const void *a, const void *b) {
  const block *x = a, *y = b;
  return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : (x->cid > y->cid) - (x->cid < y->cid);
}

static int by_offset(const void *a, const void *b) {
  uint64_t x = (*(const block *const *)a)->offset, y = (*(const block *const *)b)->offset;
  return (x > y) - (x < y);
}

/* The smallest gap that fits among the placed blocks whose lives overlap. */
static uint64_t best_offset(const block *b, const block *placed, uint32_t n, const block **scratch) {
  uint32_t m = 0;
  for (uint32_t k = 0; k < n; k++)
    if (placed[k].first <= b->last && b->first <= placed[k].last) scratch[m++] = &placed[k];
  qsort(scratch, m, sizeof *scratch, by_offset);
  uint64_t end = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  for (uint32_t k = 0; k < m; k++) {
    if (scratch[k]->offset >= end + b->bytes && scratch[k]->offset - end < best_gap) best = end, best_gap = scratch[k]->offset - end;
    if (scratch[k]->offset + scratch[k]->bytes > end) end = scratch[k]->offset + scratch[k]->bytes;
  }
  return best != UINT64_MAX ? best : end;
}

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1); }

static dc_status place(const dc_graph *graph, const liveness *l, dc_arena *arena, dc_plan *plan) {
  block *blocks = DC_NEW_ARRAY(arena, block, graph->containers.n);
  const block **scratch = DC_NEW_ARRAY(arena, const block *, graph->containers.n);
  uint32_t n = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool temp = k->role == DC_ROLE_TEMP && !k->is_output && k->storage == DC_STORE_HEAP && plan->root[c] == c && l->first[c];
    plan->planned[c] = temp;
    if (temp) blocks[n++] = (block){c, aligned(plan->bytes[c]), 0, l->first[c], l->last[c]};
  }
  qsort(blocks, n, sizeof *blocks, larger_first);
  for (uint32_t k = 0; k < n; k++) {
    blocks[k].offset = best_offset(&blocks[k], blocks, k, scratch);
    plan->offset[blocks[k].cid] = blocks[k].offset;
    uint64_t end = blocks[k].offset + blocks[k].bytes;
    if (end > plan->arena_bytes) plan->arena_bytes = end;
  }
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    if (!plan->saved[c] || plan->root[c] != c) continue;
    plan->offset[c] = plan->saved_bytes;
    plan->saved_bytes += aligned(plan->bytes[c]);
  }
  return DC_OK;
}

/* Results, intermediate and saved values against the memory that there is. */
static dc_status check_total(const dc_graph *graph, const dc_plan *plan) {
  uint64_t total = plan->arena_bytes + plan->saved_bytes;
  dc_cid largest = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    bool ours = dc_cont(graph, c)->is_output || plan->planned[c] || plan->saved[c];
    if (dc_cont(graph, c)->is_output) total += plan->bytes[c];
    if (ours && (!largest || plan->bytes[c] > plan->bytes[largest])) largest = c;
  }
  if (total <= MODEST_BYTES) return DC_OK;
  uint64_t available = dc_memory_available_bytes();
  if (total <= available) return DC_OK;
  return dc_error(DC_ERR_MEMORY, "the graph needs %llu MB, '%s' alone %llu MB, but only %llu MB of memory are available", (unsigned long long)(total >> 20),
                  dc_cont_name(graph, largest), (unsigned long long)(plan->bytes[largest] >> 20), (unsigned long long)(available >> 20));
}

dc_status dc_plan_make(const dc_graph *graph, const dc_nid *steps, uint32_t n_steps, const int64_t *symbols, dc_arena *arena, dc_plan *out) {
  uint32_t n = graph->containers.n;
  *out = (dc_plan){.bytes = DC_NEW_ARRAY(arena, uint64_t, n), .offset = DC_NEW_ARRAY(arena, uint64_t, n), .root = DC_NEW_ARRAY(arena, dc_cid, n),
                   .view = DC_NEW_ARRAY(arena, int64_t, n), .planned = DC_NEW_ARRAY(arena, bool, n), .saved = DC_NEW_ARRAY(arena, bool, n)};
  for (dc_cid c = 1; c < n; c++) DC_TRY(size_of(graph, c, symbols, &out->bytes[c]));
  DC_TRY(resolve_views(graph, symbols, out));
  liveness l = {graph, out, DC_NEW_ARRAY(arena, uint32_t, n), DC_NEW_ARRAY(arena, uint32_t, n), 0};
  for (; l.step < n_steps; l.step++) dc_node_uses(graph, steps[l.step], note_use, &l);
  DC_TRY(place(graph, &l, arena, out));
  return check_total(graph, out);
}
