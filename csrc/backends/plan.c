/* Memory planning: liveness over the step list, then best fit of the largest first, in gaps of the saved block and then in
 * the arena. */
#include "backends/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/limits.h"
#include "base/memory.h"

enum { MAX_NEIGHBOURS = 512 };
/* Of one container: sums of as many as there can be stay below 2^64. */
static const uint64_t MAX_BYTES = (uint64_t)1 << 42;
/* What any machine has; more is asked for only after a look. */
static const uint64_t MODEST_BYTES = (uint64_t)1 << 26;

typedef struct {
  dc_cid cid; /* 0: scratch of the one step that it lives at */
  uint64_t bytes, offset;
  uint32_t first, last; /* 1 + step */
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
  if (!l->first[root]) l->first[root] = l->step + 1;
  l->last[root] = l->step + 1;
}

/* Of one size in the order of time, in which they need no more room than lives at once. */
static int larger_first(const void *a, const void *b) {
  const block *x = a, *y = b;
  if (x->bytes != y->bytes) return (x->bytes < y->bytes) - (x->bytes > y->bytes);
  return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (x->cid > y->cid) - (x->cid < y->cid);
}

static int by_offset(const void *a, const void *b) {
  uint64_t x = (*(const block *const *)a)->offset, y = (*(const block *const *)b)->offset;
  return (x > y) - (x < y);
}

/* ---- blocks by the time of their lives ---- */

typedef struct {
  const block *b;
  uint32_t next; /* the entry before, 0 at the end */
} entry;

/* A tree over the steps: node 1 stands for all, node k for what 2k and 2k + 1 stand for, node `leaves` + s for step s.
 * A life is entered at the few nodes that make it up. */
typedef struct {
  dc_arena *arena;
  uint32_t leaves;
  DC_VEC(entry) entries;          /* [0] unused */
  uint32_t *whole, *starting;     /* by tree node: lives entered there; by step: lives that start there */
  uint64_t *whole_top, *some_top; /* by tree node: the highest end of what lives at all its steps, or at some */
} calendar;

static void calendar_init(calendar *t, dc_arena *arena, uint32_t n_steps) {
  *t = (calendar){.arena = arena, .leaves = 2};
  while (t->leaves < n_steps + 2) t->leaves *= 2;
  DC_PUSH(arena, &t->entries, (entry){0});
  t->whole = DC_NEW_ARRAY(arena, uint32_t, 2 * t->leaves), t->starting = DC_NEW_ARRAY(arena, uint32_t, t->leaves);
  t->whole_top = DC_NEW_ARRAY(arena, uint64_t, 2 * t->leaves);
  t->some_top = DC_NEW_ARRAY(arena, uint64_t, 2 * t->leaves);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void enter(calendar *t, uint32_t *list, const block *b) {
  DC_PUSH(t->arena, &t->entries, ((entry){b, *list}));
  *list = t->entries.n - 1;
}

static void enter_at(calendar *t, uint32_t node, const block *b, uint64_t end) {
  enter(t, &t->whole[node], b);
  t->whole_top[node] = larger(t->whole_top[node], end);
  for (; node && t->some_top[node] < end; node /= 2) t->some_top[node] = end;
}

static void enter_life(calendar *t, const block *b) {
  uint64_t end = b->offset + b->bytes;
  enter(t, &t->starting[b->first], b);
  for (uint32_t l = b->first + t->leaves, r = b->last + 1 + t->leaves; l < r; l /= 2, r /= 2) {
    if (l % 2) enter_at(t, l++, b, end);
    if (r % 2) enter_at(t, --r, b, end);
  }
}

/* The highest end of what lives at some time of b's life. */
static uint64_t top_of(const calendar *t, const block *b) {
  uint64_t top = 0;
  for (uint32_t l = b->first + t->leaves, r = b->last + 1 + t->leaves; l < r; l /= 2, r /= 2) {
    if (l % 2) top = larger(top, t->some_top[l++]);
    if (r % 2) top = larger(top, t->some_top[--r]);
  }
  for (uint32_t l = b->first + t->leaves, r = b->last + t->leaves; l; l /= 2, r /= 2)
    top = larger(top, larger(t->whole_top[l], t->whole_top[r]));
  return top;
}

static uint32_t collect(const calendar *t, uint32_t list, const block **out, uint32_t n) {
  for (; list && n <= MAX_NEIGHBOURS; list = t->entries.v[list].next) out[n++] = t->entries.v[list].b;
  return n;
}

/* What lives at some time of b's life, if that is not more than MAX_NEIGHBOURS. */
static uint32_t neighbours_of(const calendar *t, const block *b, const block **out) {
  uint32_t n = 0;
  for (uint32_t node = b->first + t->leaves; node; node /= 2) n = collect(t, t->whole[node], out, n);
  for (uint32_t s = b->first + 1; s <= b->last && n <= MAX_NEIGHBOURS; s++) n = collect(t, t->starting[s], out, n);
  return n;
}

/* The smallest gap that fits among the placed blocks whose lives overlap; on top of them where they are very many. */
static uint64_t best_offset(const calendar *t, const block *b, const block **found) {
  uint32_t m = neighbours_of(t, b, found);
  if (m > MAX_NEIGHBOURS) return top_of(t, b);
  qsort(found, m, sizeof *found, by_offset);
  uint64_t end = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  for (uint32_t k = 0; k < m; k++) {
    if (found[k]->offset >= end + b->bytes && found[k]->offset - end < best_gap) best = end, best_gap = found[k]->offset - end;
    if (found[k]->offset + found[k]->bytes > end) end = found[k]->offset + found[k]->bytes;
  }
  return best != UINT64_MAX ? best : end;
}

/* What lives in the arena. */
static uint32_t list_blocks(const dc_graph *graph, const liveness *l, const uint64_t *scratch, dc_plan *plan, block *blocks) {
  uint32_t n = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool temp = k->role == DC_ROLE_TEMP && !k->is_output && k->storage == DC_STORE_HEAP && plan->root[c] == c && l->first[c];
    plan->planned[c] = temp;
    if (temp) blocks[n++] = (block){c, dc_memory_aligned(plan->bytes[c]), 0, l->first[c], l->last[c]};
  }
  for (uint32_t s = 0; scratch && s < l->step; s++)
    if (scratch[s]) blocks[n++] = (block){0, dc_memory_aligned(scratch[s]), 0, s + 1, s + 1};
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
static uint64_t open_block(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const dc_plan *plan, calendar *t) {
  const dc_lent *lent = task->lent;
  for (uint32_t k = 0; lent && k < lent->n; k++) {
    dc_cid c = lent->v[k].c;
    block *b = DC_NEW(t->arena, block);
    *b = (block){c, dc_memory_aligned(plan->bytes[c]), lent->v[k].offset, 1, l->last[c]};
    if (l->last[c]) enter_life(t, b);
  }
  for (dc_cid c = 1; c < graph->containers.n && task->fills_block; c++) {
    if (!plan->saved[c] || plan->root[c] != c) continue;
    block *b = DC_NEW(t->arena, block);
    *b = (block){c, dc_memory_aligned(plan->bytes[c]), plan->offset[c], l->first[c], l->step};
    enter_life(t, b);
  }
  return lent ? lent->bytes : task->fills_block ? plan->saved_bytes : 0;
}

static bool place_in_block(calendar *t, uint64_t bytes, block *b, const block **neighbours) {
  if (!bytes || b->bytes > bytes) return false;
  b->offset = best_offset(t, b, neighbours);
  if (b->offset > bytes - b->bytes) return false;
  return enter_life(t, b), true;
}

static void place(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const uint64_t *scratch, dc_arena *arena,
                  dc_plan *plan) {
  block *blocks = DC_NEW_ARRAY(arena, block, graph->containers.n + (scratch ? l->step : 0));
  const block *neighbours[MAX_NEIGHBOURS + 1];
  calendar in_arena, in_block;
  uint32_t n = list_blocks(graph, l, scratch, plan, blocks);
  qsort(blocks, n, sizeof *blocks, larger_first);
  calendar_init(&in_arena, arena, l->step);
  calendar_init(&in_block, arena, l->step);
  place_saved(graph, plan);
  uint64_t room = open_block(graph, task, l, plan, &in_block);
  for (uint32_t k = 0; k < n; k++) {
    block *b = &blocks[k];
    bool fits = place_in_block(&in_block, room, b, neighbours);
    if (!fits) b->offset = best_offset(&in_arena, b, neighbours), enter_life(&in_arena, b);
    *(b->cid ? &plan->offset[b->cid] : &plan->scratch[b->first - 1]) = b->offset;
    *(b->cid ? &plan->in_block[b->cid] : &plan->scratch_in_block[b->first - 1]) = fits;
    if (fits) plan->block_bytes = room;
    else plan->arena_bytes = larger(plan->arena_bytes, b->offset + b->bytes);
  }
}

/* Results, intermediate and saved values against the memory that there is, and that sense allows. */
static dc_status check_total(dc_graph *graph, const dc_nid *steps, const liveness *l, dc_plan *plan) {
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
  uint32_t first = l->first[plan->root[largest]];
  return first ? dc_error_at(status, "%s", dc_node_describe(graph, steps[first - 1])) : status;
}

dc_status dc_plan_make(dc_graph *graph, const dc_plan_task *task, const uint64_t *scratch, dc_arena *arena, dc_plan *out) {
  uint32_t n = graph->containers.n, n_steps = task->n_steps;
  *out = (dc_plan){.bytes = DC_NEW_ARRAY(arena, uint64_t, n), .offset = DC_NEW_ARRAY(arena, uint64_t, n), .root = DC_NEW_ARRAY(arena, dc_cid, n),
                   .view = DC_NEW_ARRAY(arena, int64_t, n), .planned = DC_NEW_ARRAY(arena, bool, n), .saved = DC_NEW_ARRAY(arena, bool, n),
                   .scratch = DC_NEW_ARRAY(arena, uint64_t, n_steps), .in_block = DC_NEW_ARRAY(arena, bool, n),
                   .scratch_in_block = DC_NEW_ARRAY(arena, bool, n_steps)};
  for (dc_cid c = 1; c < n; c++) DC_TRY(size_of(graph, c, task->symbols, &out->bytes[c]));
  DC_TRY(resolve_views(graph, task->symbols, out));
  liveness l = {graph, out, DC_NEW_ARRAY(arena, uint32_t, n), DC_NEW_ARRAY(arena, uint32_t, n), 0};
  for (; l.step < n_steps; l.step++) dc_node_uses(graph, task->steps[l.step], note_use, &l);
  place(graph, task, &l, scratch, arena, out);
  return check_total(graph, task->steps, &l, out);
}
