/* Memory planning: liveness over the step list, then places for the largest first, in the saved block and else in the arena. */
#include "backends/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/chains.h"
#include "backends/limits.h"
#include "backends/placement.h"
#include "base/memory.h"

/* Of one container: sums of as many as there can be stay below 2^64. */
static const uint64_t MAX_BYTES = (uint64_t)1 << 42;
/* What any machine has; more is asked for only after a look. */
static const uint64_t MODEST_BYTES = (uint64_t)1 << 26;

typedef struct {
  dc_cid cid; /* 0: scratch of a step */
  uint32_t step;
  dc_block at;
} block;

typedef struct {
  const dc_graph *graph;
  dc_plan *plan;
  uint32_t *begin, *end; /* by step: 1 + the first and the last of those that are under way with it */
  uint32_t step;
} liveness;

static dc_status size_of(const dc_graph *graph, dc_cid c, const int64_t *symbols, uint64_t *out) {
  const dc_container *k = dc_cont(graph, c);
  uint64_t bytes = (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype);
  bool empty = false, large = false;
  for (uint32_t d = 0; k->shape && d < k->rank; d++) {
    int64_t extent = dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
    if (extent < 0) return dc_error(DC_ERR_SHAPE, "'%s': dimension %u is %lld", dc_cont_name(graph, c), d, (long long)extent);
    empty |= extent == 0;
    large |= __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes) || bytes > MAX_BYTES;
  }
  if (large && !empty) return dc_error(DC_ERR_MEMORY, "'%s' is too large", dc_cont_name(graph, c));
  return *out = empty ? 0 : bytes, DC_OK;
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
  if (!l->plan->first[root]) l->plan->first[root] = l->begin[l->step];
  l->plan->last[root] = l->end[l->step];
}

static void list_spans(const dc_plan_task *task, dc_arena *arena, liveness *l) {
  l->begin = DC_NEW_ARRAY(arena, uint32_t, task->n_steps), l->end = DC_NEW_ARRAY(arena, uint32_t, task->n_steps);
  for (uint32_t k = 0; k < task->n_steps; k++) l->begin[k] = l->end[k] = k + 1;
  for (uint32_t c = 0; task->chains && c < task->chains->n; c++)
    for (uint32_t k = task->chains->v[c].first; k < task->chains->v[c].end; k++)
      l->begin[k] = task->chains->v[c].first + 1, l->end[k] = task->chains->v[c].end;
}

/* Of one size in the order of time, in which they need no more room than lives at once. */
static int larger_first(const void *a, const void *b) {
  const block *x = a, *y = b;
  if (x->at.bytes != y->at.bytes) return (x->at.bytes < y->at.bytes) - (x->at.bytes > y->at.bytes);
  if (x->at.first != y->at.first) return (x->at.first > y->at.first) - (x->at.first < y->at.first);
  return (x->cid > y->cid) - (x->cid < y->cid);
}

/* What lives in the arena. */
static uint32_t list_blocks(const dc_graph *graph, const liveness *l, const uint64_t *scratch, dc_plan *plan, block *blocks) {
  uint32_t n = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool temp = k->role == DC_ROLE_TEMP && !k->is_output && k->storage == DC_STORE_HEAP && plan->root[c] == c && plan->first[c];
    plan->planned[c] = temp;
    if (temp) blocks[n++] = (block){c, 0, {dc_memory_aligned(plan->bytes[c]), 0, plan->first[c], plan->last[c]}};
  }
  for (uint32_t s = 0; scratch && s < l->step; s++)
    if (scratch[s]) blocks[n++] = (block){0, s, {dc_memory_aligned(scratch[s]), 0, l->begin[s], l->end[s]}};
  return n;
}

/* Saved values lie one after the other. */
static void place_saved(const dc_graph *graph, dc_plan *plan) {
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    if (!plan->saved[c] || plan->root[c] != c) continue;
    plan->offset[c] = plan->saved_bytes;
    plan->saved_bytes += dc_memory_aligned(plan->bytes[c]);
  }
}

/* When the saved block holds what: from the first write on, or, in a block that is lent, until the last read. */
static uint64_t open_block(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const dc_plan *plan, dc_placement *in_block) {
  const dc_lent *lent = task->lent;
  for (uint32_t k = 0; lent && k < lent->n; k++) {
    dc_cid c = lent->v[k].c;
    if (!plan->last[c]) continue;
    dc_block *b = DC_NEW(in_block->arena, dc_block);
    *b = (dc_block){dc_memory_aligned(plan->bytes[c]), lent->v[k].offset, 1, plan->last[c]};
    dc_placement_enter(in_block, b);
  }
  for (dc_cid c = 1; c < graph->containers.n && task->fills_block; c++) {
    if (!plan->saved[c] || plan->root[c] != c) continue;
    dc_block *b = DC_NEW(in_block->arena, dc_block);
    *b = (dc_block){dc_memory_aligned(plan->bytes[c]), plan->offset[c], plan->first[c], l->step};
    dc_placement_enter(in_block, b);
  }
  return lent ? lent->bytes : task->fills_block ? plan->saved_bytes : 0;
}

static void place(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const uint64_t *scratch, dc_arena *arena,
                  dc_plan *plan) {
  block *blocks = DC_NEW_ARRAY(arena, block, graph->containers.n + (scratch ? l->step : 0));
  dc_placement in_arena, in_block;
  uint32_t n = list_blocks(graph, l, scratch, plan, blocks);
  qsort(blocks, n, sizeof *blocks, larger_first);
  dc_placement_init(&in_arena, arena, l->step);
  dc_placement_init(&in_block, arena, l->step);
  place_saved(graph, plan);
  uint64_t room = open_block(graph, task, l, plan, &in_block);
  for (uint32_t k = 0; k < n; k++) {
    block *b = &blocks[k];
    bool fits = room && dc_placement_find(&in_block, room, true, &b->at);
    if (!fits) dc_placement_find(&in_arena, plan->arena_bytes, false, &b->at);
    *(b->cid ? &plan->offset[b->cid] : &plan->scratch[b->step]) = b->at.offset;
    *(b->cid ? &plan->in_block[b->cid] : &plan->scratch_in_block[b->step]) = fits;
    if (fits) plan->block_bytes = room;
    else if (b->at.offset + b->at.bytes > plan->arena_bytes) plan->arena_bytes = b->at.offset + b->at.bytes;
  }
}

/* Results, intermediate and saved values against the memory that there is, and that sense allows. */
static dc_status check_total(dc_graph *graph, const dc_nid *steps, dc_plan *plan) {
  uint64_t total = plan->arena_bytes + plan->saved_bytes;
  dc_cid largest = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool ours = k->is_output || plan->planned[c] || plan->saved[c];
    if (k->is_output) total += plan->bytes[c];
    if (ours && (!largest || plan->bytes[c] > plan->bytes[largest])) largest = c;
    if (k->role != DC_ROLE_TEMP && !plan->saved[c] && !k->alias_of) plan->held_bytes += plan->bytes[c];
  }
  if (total <= MODEST_BYTES) return DC_OK;
  uint64_t available = dc_memory_available_bytes();
  double justified = dc_limits_memory_bytes(plan->held_bytes);
  if (total <= available && (double)total <= justified) return DC_OK;
  char limit[160];
  unsigned long long all = total >> 20, one = plan->bytes[largest] >> 20, there = available >> 20;
  if (total > available) snprintf(limit, sizeof limit, "only %llu MB of memory are available", there);
  else snprintf(limit, sizeof limit, "%llu bytes of inputs and weights justify no more than %.0f MB; "
                                     "DCML_ALLOW=<factor> allows more", (unsigned long long)plan->held_bytes, justified / 0x1p20);
  dc_status status = dc_error(DC_ERR_MEMORY, "the graph needs %llu MB, '%s' alone %llu MB, but %s", all,
                              dc_cont_name(graph, largest), one, limit);
  uint32_t first = plan->first[plan->root[largest]];
  return first ? dc_error_at(status, "%s", dc_node_describe(graph, steps[first - 1])) : status;
}

dc_status dc_plan_make(dc_graph *graph, const dc_plan_task *task, const uint64_t *scratch, dc_arena *arena, dc_plan *out) {
  uint32_t n = graph->containers.n, n_steps = task->n_steps;
  *out = (dc_plan){.bytes = DC_NEW_ARRAY(arena, uint64_t, n), .offset = DC_NEW_ARRAY(arena, uint64_t, n), .root = DC_NEW_ARRAY(arena, dc_cid, n),
                   .view = DC_NEW_ARRAY(arena, int64_t, n), .first = DC_NEW_ARRAY(arena, uint32_t, n),
                   .last = DC_NEW_ARRAY(arena, uint32_t, n), .planned = DC_NEW_ARRAY(arena, bool, n), .saved = DC_NEW_ARRAY(arena, bool, n),
                   .scratch = DC_NEW_ARRAY(arena, uint64_t, n_steps), .in_block = DC_NEW_ARRAY(arena, bool, n),
                   .scratch_in_block = DC_NEW_ARRAY(arena, bool, n_steps)};
  for (dc_cid c = 1; c < n; c++) DC_TRY(size_of(graph, c, task->symbols, &out->bytes[c]));
  DC_TRY(resolve_views(graph, task->symbols, out));
  liveness l = {.graph = graph, .plan = out};
  list_spans(task, arena, &l);
  for (; l.step < n_steps; l.step++) dc_node_uses(graph, task->steps[l.step], note_use, &l);
  place(graph, task, &l, scratch, arena, out);
  return check_total(graph, task->steps, out);
}
