/* Keeping or recomputing: a minimum cut between what the backward has and what it needs.
 *
 * Each forward value that the backward may lack is an edge in -> out whose capacity is the price of
 * storing it; source -> in costs what computing it again costs; the values that a node reads flow
 * into what it writes; what the adjoints read flows into the sink.  A cut in -> out is a stored
 * value, a cut source -> in one that is computed again.  Prices are those of ir/work.h, for sizes that
 * are guessed, so that the choice never depends on those at run time.
 *
 * DC_KEEP_LEAST then cuts the forward nodes into segments, and keeps only what one hands to later ones. */
#include "autodiff/keep.h"

#include <stdlib.h>
#include <string.h>

#include "autodiff/flow.h"
#include "autodiff/segments.h"
#include "ir/work.h"

enum { FLOAT_BYTES = 4 };
#define PER_NS 1000 /* prices are whole numbers */
#define FOREVER ((int64_t)1 << 60) /* no price: must not be cut */
#define DEAREST ((int64_t)1 << 40)

typedef struct {
  const dc_keep_problem *p;
  dc_arena arena;
  dc_cid *group;         /* by container: values that one node writes, or one buffer, share a fate */
  int64_t *again, *size; /* by group: price to compute it; price to store it */
  bool *needed, *by_library, *in_memory, *wanted;
  bool *changes; /* by group: it cannot be computed again */
  int64_t *symbols; /* as guessed */
  dc_work *work;    /* by forward node */
  dc_cid first_write;
  dc_flow flow;
  dc_nid node;
  uint32_t at; /* its place in p->forward */
  bool needs_result;
  const bool *kept;
} cut;

static dc_cid group_of(const cut *w, dc_cid c) {
  while (w->group[c] != c) c = w->group[c] = w->group[w->group[c]];
  return c;
}

/* Of an operator that is no gradient; NULL. */
static const dc_row *row_of(const cut *w, const dc_node *n) {
  return n->kind == DC_NODE_LIBRARY && !n->lib.wrt ? dc_ops_row_of(w->p->ops, w->p->graph, &n->lib) : NULL;
}

static bool is_view(const cut *w, const dc_node *n) {
  const dc_row *row = row_of(w, n);
  return row && dc_row_is_alias(row);
}

/* Whoever reads what it moves reads it from where it was, unless a library does. */
static bool is_moved(const cut *w, const dc_node *n) {
  const dc_row *row = row_of(w, n);
  return row && !n->lib.by && dc_row_moves(row);
}

/* ---- prices ---- */

static int64_t price(double ns) { return ns * PER_NS < (double)DEAREST ? (int64_t)(ns * PER_NS) : DEAREST; }

/* Neither a library's, nor a reduction, a loop that runs in order or a scatter. */
static bool is_elementwise(const dc_graph *g, dc_nid id) {
  const dc_node *n = dc_node_at(g, id);
  if (n->kind != DC_NODE_MAP) return n->kind == DC_NODE_TASKLET && !n->tasklet.wcr;
  bool all = n->map.schedule == DC_MAP_PARALLEL;
  for (uint32_t k = 0; k < n->map.body.n && all; k++) all = is_elementwise(g, n->map.body.v[k]);
  return all;
}

/* Writing and reading back; half for what lies in memory anyway, more for a result of the caller's (a copy). */
static int64_t price_of_storing(const cut *w, dc_cid c) {
  int bytes = dc_dtype_bytes((dc_dtype)dc_cont(w->p->graph, c)->dtype);
  double elements = dc_container_elements(w->p->graph, c, w->symbols);
  int64_t all = price(elements * w->p->graph->machine.store_ns * (bytes < FLOAT_BYTES ? FLOAT_BYTES : bytes));
  return w->in_memory[c] ? all / 2 + 1 : all + 1;
}

/* ---- who reads and writes what ---- */

static bool is_ours(const cut *w, dc_cid c) { return c && c < w->p->n && !w->p->available[c]; }

static void join_writes(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  (void)by;
  if (use != DC_USE_WRITE || !is_ours(w, c)) return;
  if (!w->first_write) w->first_write = c;
  w->group[group_of(w, c)] = group_of(w, w->first_write);
}

/* Does a library take it by strides, wherever it lies? */
static bool takes_by_strides(const cut *w, dc_nid node, dc_cid c) {
  return dc_ops_takes_strides(w->p->ops, w->p->graph, &dc_node_at(w->p->graph, node)->lib, c);
}

static void note_memory(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  (void)use;
  if (c < w->p->n && !takes_by_strides(w, by, c)) w->in_memory[c] = true;
}

static void note_needed(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  if (use != DC_USE_READ || !is_ours(w, c)) return;
  w->needed[group_of(w, c)] = w->wanted[c] = true;
  const bool library = dc_node_at(w->p->graph, by)->kind == DC_NODE_LIBRARY;
  if (library && !takes_by_strides(w, by, c)) w->by_library[group_of(w, c)] = true;
}

typedef struct {
  dc_cid read, written;
  bool one_each;
} copy;

static void note_copy(void *context, dc_cid c, dc_use use, dc_nid by) {
  copy *x = context;
  dc_cid *side = use == DC_USE_WRITE ? &x->written : &x->read;
  (void)by;
  x->one_each &= !*side;
  *side = c;
}

/* Does the node only copy what has a smaller type?  That is kept, if any. */
static bool is_widened(const cut *w, dc_cid written) {
  const dc_graph *g = w->p->graph;
  copy x = {.one_each = true};
  if (w->work[w->at].operations > 0 || !is_elementwise(g, w->node)) return false;
  dc_node_uses(g, w->node, note_copy, &x);
  if (!x.one_each || !x.read) return false;
  const dc_container *from = dc_cont(g, x.read), *to = dc_cont(g, written);
  return to->role == DC_ROLE_TEMP && dc_dtype_bytes((dc_dtype)from->dtype) < dc_dtype_bytes((dc_dtype)to->dtype);
}

static void price_write(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  (void)by;
  if (use != DC_USE_WRITE || !is_ours(w, c)) return;
  int64_t *again = &w->again[group_of(w, c)], one = 0;
  const dc_node *n = dc_node_at(w->p->graph, w->node);
  if (w->p->changing && dc_node_touches(w->p->graph, w->node, DC_USE_READ | DC_USE_WRITE, w->p->changing))
    one = FOREVER, w->changes[group_of(w, c)] = true;
  else if (is_view(w, n)) w->size[group_of(w, c)] = FOREVER;
  else if (w->p->strategy == DC_KEEP_RECOMPUTE) w->size[group_of(w, c)] = FOREVER;
  else if (w->p->strategy == DC_KEEP_STORE) one = FOREVER;
  else one = is_moved(w, n) ? 0 : is_elementwise(w->p->graph, w->node) ? price(w->work[w->at].cost) : FOREVER;
  if (one < FOREVER && is_widened(w, c)) w->size[group_of(w, c)] = FOREVER;
  *again = *again >= FOREVER || one >= FOREVER ? FOREVER : *again + one;
}

static uint32_t vertex_in(dc_cid c) { return 2 * c; }
static uint32_t vertex_out(dc_cid c) { return 2 * c + 1; }

typedef struct {
  cut *w;
  dc_cid from;
} reader;

static void link_write(void *context, dc_cid c, dc_use use, dc_nid by) {
  reader *l = context;
  (void)by;
  if (use != DC_USE_WRITE || !is_ours(l->w, c) || group_of(l->w, c) == l->from) return;
  dc_flow_edge(&l->w->flow, vertex_out(l->from), vertex_in(group_of(l->w, c)), FOREVER);
}

static void link_read(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  (void)by;
  if (use != DC_USE_READ || !is_ours(w, c)) return;
  reader l = {w, group_of(w, c)};
  dc_node_uses(w->p->graph, w->node, link_write, &l);
}

static void note_result(void *context, dc_cid c, dc_use use, dc_nid by) {
  cut *w = context;
  (void)by;
  if (use == DC_USE_WRITE && is_ours(w, c)) w->needs_result |= w->needed[group_of(w, c)] && !w->kept[group_of(w, c)];
}

/* ---- the decision ---- */

static void init(cut *w, const dc_keep_problem *p) {
  *w = (cut){.p = p};
  const dc_pool *pool = &p->graph->pool;
  w->group = DC_NEW_ARRAY(&w->arena, dc_cid, p->n);
  w->again = DC_NEW_ARRAY(&w->arena, int64_t, p->n), w->size = DC_NEW_ARRAY(&w->arena, int64_t, p->n);
  w->needed = DC_NEW_ARRAY(&w->arena, bool, p->n), w->by_library = DC_NEW_ARRAY(&w->arena, bool, p->n);
  w->in_memory = DC_NEW_ARRAY(&w->arena, bool, p->n), w->wanted = DC_NEW_ARRAY(&w->arena, bool, p->n);
  w->changes = DC_NEW_ARRAY(&w->arena, bool, p->n);
  w->symbols = DC_NEW_ARRAY(&w->arena, int64_t, pool->symbols.n), w->work = DC_NEW_ARRAY(&w->arena, dc_work, p->forward->n);
  dc_work_guess(pool, w->symbols);
  dc_work_count(p->graph, p->forward->v, p->forward->n, w->symbols, true, w->work);
  for (dc_cid c = 1; c < p->n; c++) w->group[c] = c;
  for (dc_cid c = 1; c < p->n; c++) {
    dc_cid base = dc_cont(p->graph, c)->alias_of;
    if (base && base < p->n && is_ours(w, c) && is_ours(w, base)) w->group[group_of(w, c)] = group_of(w, base);
  }
}

/* A view costs nothing: what holds for it holds for its base. */
static void pass_through_views(cut *w) {
  const dc_keep_problem *p = w->p;
  for (uint32_t k = p->forward->n; k-- > 0;) {
    const dc_node *n = dc_node_at(p->graph, p->forward->v[k]);
    if (!is_view(w, n) || !is_ours(w, n->lib.out[0]) || !is_ours(w, n->lib.in[0])) continue;
    w->in_memory[n->lib.in[0]] |= w->in_memory[n->lib.out[0]];
    w->by_library[group_of(w, n->lib.in[0])] |= w->by_library[group_of(w, n->lib.out[0])];
  }
}

static void build(cut *w) {
  const dc_keep_problem *p = w->p;
  for (uint32_t k = 0; k < p->forward->n; k++) {
    const dc_node *n = dc_node_at(p->graph, p->forward->v[k]);
    w->first_write = 0;
    dc_node_uses(p->graph, p->forward->v[k], join_writes, w);
    if (n->kind == DC_NODE_LIBRARY && !is_view(w, n) && !is_moved(w, n)) dc_node_uses(p->graph, p->forward->v[k], note_memory, w);
  }
  for (uint32_t k = 0; k < p->adjoint->n; k++) dc_node_uses(p->graph, p->adjoint->v[k], note_needed, w);
  pass_through_views(w);
  for (dc_cid c = 1; c < p->n; c++)
    if (is_ours(w, c) && dc_cont(p->graph, c)->role == DC_ROLE_TEMP) w->size[group_of(w, c)] += price_of_storing(w, c);
  for (w->at = 0; w->at < p->forward->n; w->at++) dc_node_uses(p->graph, w->node = p->forward->v[w->at], price_write, w);
  dc_flow_init(&w->flow, &w->arena, 2 * p->n + 2);
  for (uint32_t k = 0; k < p->forward->n; k++) dc_node_uses(p->graph, w->node = p->forward->v[k], link_read, w);
  uint32_t source = 2 * p->n, sink = source + 1;
  for (dc_cid c = 1; c < p->n; c++) {
    if (!is_ours(w, c) || group_of(w, c) != c) continue;
    int64_t again = w->again[c];
    if (w->by_library[c] && again < FOREVER && w->size[c] < FOREVER) again += 2 * w->size[c]; /* to memory again */
    dc_flow_edge(&w->flow, source, vertex_in(c), again);
    dc_flow_edge(&w->flow, vertex_in(c), vertex_out(c), w->size[c]);
    if (w->needed[c]) dc_flow_edge(&w->flow, vertex_out(c), sink, FOREVER);
  }
  dc_flow_solve(&w->flow, source, sink);
}

/* ---- the least memory ---- */

typedef struct {
  cut *w;
  uint32_t *born, *last; /* by group */
  int64_t *bytes;
  bool *begun;
} lives;

static void note_life(void *context, dc_cid c, dc_use use, dc_nid by) {
  lives *l = context;
  (void)use, (void)by;
  if (!is_ours(l->w, c)) return;
  dc_cid group = group_of(l->w, c);
  if (!l->begun[group]) l->born[group] = l->w->at;
  l->begun[group] = true, l->last[group] = l->w->at;
}

/* Who reads a view reads its base. */
static void carry_to_bases(const lives *l) {
  cut *w = l->w;
  for (uint32_t k = w->p->forward->n; k-- > 0;) {
    const dc_node *n = dc_node_at(w->p->graph, w->p->forward->v[k]);
    if (!is_view(w, n) || !is_ours(w, n->lib.out[0])) continue;
    dc_cid view = group_of(w, n->lib.out[0]), base = group_of(w, n->lib.in[0]);
    l->bytes[view] = 0;
    if (l->last[view] > l->last[base]) l->last[base] = l->last[view];
  }
}

static lives find_lives(cut *w) {
  const dc_keep_problem *p = w->p;
  lives l = {w, DC_NEW_ARRAY(&w->arena, uint32_t, p->n), DC_NEW_ARRAY(&w->arena, uint32_t, p->n), DC_NEW_ARRAY(&w->arena, int64_t, p->n),
             DC_NEW_ARRAY(&w->arena, bool, p->n)};
  for (w->at = 0; w->at < p->forward->n; w->at++) dc_node_uses(p->graph, p->forward->v[w->at], note_life, &l);
  for (dc_cid c = 1; c < p->n; c++) {
    if (!is_ours(w, c) || dc_cont(p->graph, c)->alias_of || w->changes[group_of(w, c)]) continue;
    double bytes = dc_container_elements(p->graph, c, w->symbols) * dc_dtype_bytes((dc_dtype)dc_cont(p->graph, c)->dtype);
    l.bytes[group_of(w, c)] += bytes < (double)DEAREST ? (int64_t)bytes : DEAREST;
  }
  carry_to_bases(&l);
  return l;
}

typedef struct {
  dc_cid group;
  uint32_t born;
  int64_t bytes;
} kept_value;

static int smaller_first(const void *a, const void *b) {
  const kept_value *x = a, *y = b;
  return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : (x->born > y->born) - (x->born < y->born);
}

/* Of what the cut keeps, the smallest values stay, a sixteenth of all: they would save little. */
static bool *small_values(cut *w, const lives *l, const bool *kept) {
  bool *stays = DC_NEW_ARRAY(&w->arena, bool, w->p->n);
  kept_value *v = DC_NEW_ARRAY(&w->arena, kept_value, w->p->n);
  int64_t rest = 0;
  uint32_t n = 0;
  for (dc_cid c = 1; c < w->p->n; c++)
    if (kept[c]) v[n++] = (kept_value){c, l->born[c], l->bytes[c]}, rest += l->bytes[c];
  qsort(v, n, sizeof *v, smaller_first);
  rest /= 16;
  for (uint32_t k = 0; k < n && v[k].bytes <= rest; k++) rest -= v[k].bytes, stays[v[k].group] = true;
  return stays;
}

static void keep_least(cut *w, bool *kept) {
  const dc_keep_problem *p = w->p;
  lives l = find_lives(w);
  uint32_t *segment = DC_NEW_ARRAY(&w->arena, uint32_t, p->forward->n);
  const bool *stays = small_values(w, &l, kept);
  dc_segments_choose(&(dc_segments){p->forward->n, p->n, l.born, l.last, l.bytes, kept}, segment);
  for (dc_cid c = 1; c < p->n; c++)
    if (!w->changes[c] && !stays[c]) kept[c] = l.bytes[c] && segment[l.born[c]] != segment[l.last[c]];
}

void dc_keep_decide(const dc_keep_problem *p, bool *store, bool *again) {
  cut w;
  init(&w, p);
  build(&w);
  bool *kept = DC_NEW_ARRAY(&w.arena, bool, p->n); /* by group */
  for (dc_cid c = 1; c < p->n; c++) kept[c] = dc_flow_reaches(&w.flow, vertex_in(c)) && !dc_flow_reaches(&w.flow, vertex_out(c));
  if (p->strategy == DC_KEEP_LEAST && p->forward->n) keep_least(&w, kept);
  for (uint32_t k = p->forward->n; k-- > 0;) { /* what is computed again needs its operands */
    w.needs_result = false, w.kept = kept;
    dc_node_uses(p->graph, p->forward->v[k], note_result, &w);
    again[k] = w.needs_result;
    if (again[k]) dc_node_uses(p->graph, p->forward->v[k], note_needed, &w);
  }
  for (dc_cid c = 1; c < p->n; c++) store[c] = w.wanted[c] && kept[group_of(&w, c)];
  dc_arena_free(&w.arena);
}

/* ---- when ---- */

typedef struct {
  const dc_graph *graph;
  uint32_t n, *need; /* by buffer: the first adjoint node that reads it, directly or not */
  uint32_t at;
} schedule;

static void note_need(void *context, dc_cid c, dc_use use, dc_nid by) {
  schedule *s = context;
  dc_cid root = dc_container_root(s->graph, c);
  (void)by;
  if (use == DC_USE_READ && root < s->n && s->at < s->need[root]) s->need[root] = s->at;
}

static void note_first_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  schedule *s = context;
  dc_cid root = dc_container_root(s->graph, c);
  (void)by;
  if (use == DC_USE_WRITE && root < s->n && s->need[root] < s->at) s->at = s->need[root];
}

void dc_keep_schedule(const dc_keep_problem *p, const bool *again, uint32_t *before) {
  dc_arena arena = {0};
  schedule s = {p->graph, p->n, DC_NEW_ARRAY(&arena, uint32_t, p->n), 0};
  for (dc_cid c = 0; c < p->n; c++) s.need[c] = p->adjoint->n;
  for (s.at = 0; s.at < p->adjoint->n; s.at++) dc_node_uses(p->graph, p->adjoint->v[s.at], note_need, &s);
  for (uint32_t k = p->forward->n; k-- > 0;) {
    if (!again[k]) continue;
    s.at = p->adjoint->n;
    dc_node_uses(p->graph, p->forward->v[k], note_first_use, &s);
    before[k] = s.at;
    dc_node_uses(p->graph, p->forward->v[k], note_need, &s);
  }
  dc_arena_free(&arena);
}
