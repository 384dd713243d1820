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
/* Of an arena, that are worth a second look. */
static const uint64_t WORTHY_BYTES = (uint64_t)1 << 20;

typedef struct {
  dc_cid cid; /* 0: scratch of a step */
  uint32_t step;
  bool in_block; /* where it lies, once it is placed */
  dc_block at;
  uint64_t crowd; /* bytes of all that live at once, at the worst of its steps */
} block;

typedef int block_order(const void *, const void *);

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

/* Of what lies by strides within another buffer: from its first element to its last one. */
static uint64_t bytes_spanned(const dc_graph *graph, dc_cid c, const int64_t *symbols, uint64_t bytes) {
  const dc_container *k = dc_cont(graph, c);
  int64_t last = 0;
  for (uint32_t d = 0; d < k->rank && k->strides && bytes; d++) {
    int64_t step = dc_ix_eval(&graph->pool, k->strides[d], symbols, NULL), n = dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL) - 1;
    if (step < 0 || __builtin_mul_overflow(step, n, &step) || __builtin_add_overflow(last, step, &last)) return UINT64_MAX;
  }
  const uint64_t size = (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype);
  return !k->strides || !bytes || !size ? bytes : (uint64_t)last < MAX_BYTES / size ? ((uint64_t)last + 1) * size : UINT64_MAX;
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
    const bool begins = plan->view[c] >= 0 && (uint64_t)plan->view[c] <= plan->bytes[at];
    if (!begins || (at != c && bytes_spanned(graph, c, symbols, plan->bytes[c]) > plan->bytes[at] - (uint64_t)plan->view[c]))
      return dc_error(DC_ERR_MODEL, "'%s' is a view beyond '%s'", dc_cont_name(graph, c), dc_cont_name(graph, at));
  }
  return DC_OK;
}

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  liveness *l = context;
  dc_cid root = l->plan->root[c];
  (void)by;
  if (use == DC_USE_WRITE && dc_cont(l->graph, root)->role == DC_ROLE_SAVED) l->plan->saved[root] = true;
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

/* Of one size in the order of time, in which they need no more room than lives at once; or the other way round. */
static int by_size(const block *x, const block *y, bool late) {
  if (x->at.bytes != y->at.bytes) return (x->at.bytes < y->at.bytes) - (x->at.bytes > y->at.bytes);
  const int order = (x->at.first > y->at.first) - (x->at.first < y->at.first);
  return order ? late ? -order : order : (x->cid > y->cid) - (x->cid < y->cid);
}

static int by_crowd(const block *x, const block *y, bool late) {
  return x->crowd != y->crowd ? (x->crowd < y->crowd) - (x->crowd > y->crowd) : by_size(x, y, late);
}

static int larger_first(const void *a, const void *b) { return by_size(a, b, false); }
static int larger_and_late_first(const void *a, const void *b) { return by_size(a, b, true); }
static int crowded_first(const void *a, const void *b) { return by_crowd(a, b, false); }
static int crowded_and_late_first(const void *a, const void *b) { return by_crowd(a, b, true); }

/* What lives in the arena. */
static uint32_t list_blocks(const dc_graph *graph, const liveness *l, const uint64_t *scratch, dc_plan *plan, block *blocks) {
  uint32_t n = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool temp = k->role == DC_ROLE_TEMP && !k->is_output && !k->is_once && k->storage == DC_STORE_HEAP && plan->root[c] == c && plan->first[c];
    plan->planned[c] = temp;
    if (temp) blocks[n++] = (block){.cid = c, .at = {dc_memory_aligned(plan->bytes[c]), 0, plan->first[c], plan->last[c]}};
  }
  for (uint32_t s = 0; scratch && s < l->step; s++)
    if (scratch[s]) blocks[n++] = (block){.step = s, .at = {dc_memory_aligned(scratch[s]), 0, l->begin[s], l->end[s]}};
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

/* Bytes of the saved block that what is planned may lie in. */
static uint64_t room_of_block(const dc_plan_task *task, const dc_plan *plan) {
  return task->lent ? task->lent->bytes : task->fills_block ? plan->saved_bytes : 0;
}

/* When the saved block holds what: from the first write on, or, in a block that is lent, until the last read. */
static void open_block(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const dc_plan *plan, dc_placement *in_block) {
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
}

/* By block, a maximum over the steps of its life: of a tree whose leaves are steps. */
static void measure_crowds(block *blocks, uint32_t n, uint32_t n_steps, dc_arena *arena) {
  const uint32_t leaves = n_steps + 2;
  uint64_t *most = DC_NEW_ARRAY(arena, uint64_t, 2 * leaves);
  for (uint32_t k = 0; k < n; k++) {
    const dc_block *b = &blocks[k].at;
    most[leaves + b->first] += b->bytes, most[leaves + b->last + 1] -= b->bytes;
  }
  for (uint32_t s = 1; s < leaves; s++) most[leaves + s] += most[leaves + s - 1];
  for (uint32_t k = leaves; k-- > 1;) most[k] = most[2 * k] > most[2 * k + 1] ? most[2 * k] : most[2 * k + 1];
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t l = blocks[k].at.first + leaves, r = blocks[k].at.last + 1 + leaves; l < r; l /= 2, r /= 2) {
      if (l % 2 && most[l] > blocks[k].crowd) blocks[k].crowd = most[l];
      l += l % 2;
      if (r % 2 && most[--r] > blocks[k].crowd) blocks[k].crowd = most[r];
    }
}

/* Returns the bytes of the arena. */
static uint64_t arrange(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const dc_plan *plan, block_order *order,
                        block *blocks, uint32_t n) {
  dc_arena own = {0};
  dc_placement in_arena, in_block;
  uint64_t bytes = 0;
  qsort(blocks, n, sizeof *blocks, order);
  dc_placement_init(&in_arena, &own, l->step);
  dc_placement_init(&in_block, &own, l->step);
  const uint64_t room = room_of_block(task, plan);
  open_block(graph, task, l, plan, &in_block);
  for (uint32_t k = 0; k < n; k++) {
    block *b = &blocks[k];
    b->in_block = room && dc_placement_find(&in_block, room, true, &b->at);
    if (b->in_block) continue;
    dc_placement_find(&in_arena, bytes, false, &b->at);
    if (b->at.offset + b->at.bytes > bytes) bytes = b->at.offset + b->at.bytes;
  }
  dc_arena_free(&own);
  return bytes;
}

/* Of a few orders the one counts with which the arena is smallest, where that saves an eighth: halves may lie worse (placement.c). */
static block *arrange_better(const dc_graph *graph, const dc_plan_task *task, const liveness *l, dc_arena *arena, dc_plan *plan,
                             block *best, uint32_t n) {
  static block_order *const orders[] = {larger_and_late_first, crowded_first, crowded_and_late_first};
  uint64_t least = plan->arena_bytes / 8 * 7;
  measure_crowds(best, n, l->step, arena);
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
    block *other = dc_arena_copy(arena, best, n * sizeof *best);
    const uint64_t bytes = arrange(graph, task, l, plan, orders[k], other, n);
    if (bytes < least) plan->arena_bytes = least = bytes, best = other;
  }
  return best;
}

static void note_place(dc_plan *plan, const block *b, uint64_t room) {
  *(b->cid ? &plan->offset[b->cid] : &plan->scratch[b->step]) = b->at.offset;
  *(b->cid ? &plan->in_block[b->cid] : &plan->scratch_in_block[b->step]) = b->in_block;
  if (b->in_block) plan->block_bytes = room;
}

static void place(const dc_graph *graph, const dc_plan_task *task, const liveness *l, const uint64_t *scratch, dc_arena *arena,
                  dc_plan *plan) {
  block *blocks = DC_NEW_ARRAY(arena, block, graph->containers.n + (scratch ? l->step : 0));
  const uint32_t n = list_blocks(graph, l, scratch, plan, blocks);
  place_saved(graph, plan);
  plan->arena_bytes = arrange(graph, task, l, plan, larger_first, blocks, n);
  if (plan->arena_bytes > WORTHY_BYTES) blocks = arrange_better(graph, task, l, arena, plan, blocks, n);
  for (uint32_t k = 0; k < n; k++) note_place(plan, &blocks[k], room_of_block(task, plan));
}

/* Results, intermediate and saved values against the memory that there is, and that sense allows. */
static dc_status check_total(dc_graph *graph, const dc_nid *steps, dc_plan *plan) {
  uint64_t total = plan->arena_bytes + plan->saved_bytes;
  dc_cid largest = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool ours = k->is_output || k->is_once || plan->planned[c] || plan->saved[c];
    if (k->is_output || k->is_once) total += plan->bytes[c];
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
