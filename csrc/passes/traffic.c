/* Traffic: what a device would write to memory only to read it once more.
 *
 *     map i { D[i] = Y[i] * s[] } .. map i { D[i] sum= Z[i] }   becomes   .. map i { D[i] = Y[i] * s[] + Z[i] }
 *     map i { T[i] = f(i) } .. map i { R[i] = T[i] }            becomes   map i { R[i] = f(i) } .., where R is a result
 *     D[..] = call(..) .. map i { D[i] sum= Z[i] }              becomes   .. map i { S[i] = D[i] + Z[i] }, which readers can compute
 *
 * In the last case, besides, a kernel that reads and writes D could load no element before it has stored the one before.
 * Does nothing where machine->teams is 0: a processor's caches hold more beside its arithmetic. */
#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_graph *graph;
  dc_scope *scope;
  bool *shared; /* by buffer: another container has it too */
  bool *called; /* by container: a call has made it */
  dc_cid *now;  /* by container: what stands for it in the nodes that follow; 0: itself */
  dc_cid stale; /* a container of a node for which another stands */
} walk;

/* A map that writes all of a container of its own buffer, or adds to all of it. */
static dc_tasklet *whole_write(const walk *w, dc_nid id) {
  dc_node *node = dc_node_at(w->graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || node->map.body.n != 1) return NULL;
  dc_node *inner = dc_node_at(w->graph, node->map.body.v[0]);
  if (inner->kind != DC_NODE_TASKLET || w->shared[dc_container_root(w->graph, inner->tasklet.out)]) return NULL;
  return dc_access_is_whole(w->graph, &node->map, &inner->tasklet, UINT32_MAX) ? &inner->tasklet : NULL;
}

static bool uses(const walk *w, dc_nid node, unsigned how, dc_cid c) {
  return dc_node_touches_one(w->graph, node, how, dc_container_root(w->graph, c));
}

/* ---- sums ---- */

typedef struct {
  const walk *w;
  const dc_map *map;
  uint32_t from, to; /* nodes between which a value moves */
  uint32_t large; /* reads of as many elements as the map has iterations */
  bool fails;
} value_search;

static void look_at_read(void *context, const dc_pool *pool, dc_ex read) {
  value_search *s = context;
  uint32_t moved = 0;
  const dc_exnode *node = dc_ex_node(pool, read);
  if (node->op != DC_EX_READ) {
    s->fails |= node->op == DC_RAND;
    return;
  }
  for (uint32_t k = 0; k < s->map->n_params; k++) moved += dc_ex_uses_param(pool, read, s->map->params[k]);
  s->large += moved == s->map->n_params;
  for (uint32_t k = s->from; k <= s->to && !s->fails; k++) s->fails = uses(s->w, s->w->scope->v[k], DC_USE_WRITE, node->ref);
}

typedef struct {
  dc_cid of;
  bool found;
} read_search;

static void find_read(void *context, const dc_pool *pool, dc_ex x) {
  read_search *s = context;
  s->found |= dc_ex_node(pool, x)->op == DC_EX_READ && dc_ex_node(pool, x)->ref == s->of;
}

static bool reads(const dc_pool *pool, dc_ex x, dc_cid c) {
  read_search s = {c, false};
  dc_ex_walk(pool, x, find_read, &s);
  return s.found;
}

/* Does the next node that uses the container add to all of it, and may it compute what stands there itself? */
static bool move_into_sum(walk *w, uint32_t at) {
  dc_pool *pool = &w->graph->pool;
  const dc_tasklet *from = whole_write(w, w->scope->v[at]);
  const dc_map map = from ? dc_node_at(w->graph, w->scope->v[at])->map : (dc_map){0};
  uint32_t to = at + 1;
  if (!from || from->wcr) return false;
  while (to < w->scope->n && !uses(w, w->scope->v[to], DC_USE_READ | DC_USE_WRITE, from->out)) to++;
  dc_tasklet *sum = to < w->scope->n ? whole_write(w, w->scope->v[to]) : NULL;
  if (!sum || sum->out != from->out || sum->wcr != DC_WCR_SUM || reads(pool, sum->value, from->out)) return false;
  value_search s = {.w = w, .map = &map, .from = at + 1, .to = to};
  dc_ex_walk(pool, from->value, look_at_read, &s);
  if (s.fails || s.large > 1 || dc_ex_work(pool, from->value).cost > w->graph->machine.cached_ns) return false;
  dc_param params[DC_MAX_RANK];
  dc_ex indices[DC_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t d = 0; d < from->rank; d++)
    if (dc_ex_node(pool, from->index[d])->op == DC_EX_PARAM)
      params[n] = dc_ex_node(pool, from->index[d])->ref, indices[n++] = sum->index[d];
  const dc_dtype type = (dc_dtype)dc_cont(w->graph, from->out)->dtype, compute = dc_dtype_compute(type);
  dc_ex value = dc_ex_cast(pool, compute, dc_ex_cast(pool, type, dc_ex_subst(pool, from->value, params, indices, n)));
  sum->value = dc_ex_prim2(pool, DC_ADD, value, dc_ex_cast(pool, compute, sum->value));
  sum->wcr = DC_WCR_NONE;
  return true;
}

static bool is_temporary(const walk *w, dc_cid c) {
  const dc_container *k = dc_cont(w->graph, c);
  return k->role == DC_ROLE_TEMP && !k->alias_of && !k->is_host && !k->known && !w->shared[c];
}

static dc_cid another_like(dc_graph *graph, dc_cid c) {
  dc_cid made = dc_container_like(graph, c, "sum");
  const dc_container *of = dc_cont(graph, c);
  dc_container *to = dc_cont(graph, made);
  to->device = of->device, to->storage = of->storage, to->strides = of->strides;
  return made;
}

/* Does it add to all of what a call has made?  Then the sum gets an array of its own. */
static void take_apart(walk *w, uint32_t at) {
  dc_pool *pool = &w->graph->pool;
  dc_tasklet *sum = whole_write(w, w->scope->v[at]);
  if (!sum || sum->wcr != DC_WCR_SUM || sum->guard || !w->called[sum->out] || reads(pool, sum->value, sum->out)) return;
  const dc_cid old = sum->out;
  if (!is_temporary(w, old) || dc_cont(w->graph, old)->is_output) return;
  const dc_cid fresh = another_like(w->graph, old);
  const dc_dtype type = (dc_dtype)dc_cont(w->graph, old)->dtype, compute = dc_dtype_compute(type);
  sum = whole_write(w, w->scope->v[at]);
  dc_ex before = dc_ex_cast(pool, compute, dc_ex_read(pool, type, old, sum->index, sum->rank));
  sum->value = dc_ex_prim2(pool, DC_ADD, before, dc_ex_cast(pool, compute, sum->value));
  sum->wcr = DC_WCR_NONE, sum->out = fresh;
  w->now[old] = fresh, w->called[fresh] = true; /* what is added next is taken apart, too */
}

static void note_call(void *context, dc_cid c, dc_use how, dc_nid by) {
  walk *w = context;
  (void)by;
  if (how & DC_USE_WRITE) w->called[c] = true;
}

static void find_stale(void *context, dc_cid c, dc_use how, dc_nid by) {
  walk *w = context;
  (void)how, (void)by;
  if (w->now[c]) w->stale = c;
}

static dc_cid stale_in(walk *w, dc_nid node) {
  w->stale = 0;
  dc_node_uses(w->graph, node, find_stale, w);
  return w->stale;
}

/* In one sweep, in which nodes behind a sum come to use what stands for it now. */
static void take_all_apart(walk *w) {
  for (uint32_t k = 0; k < w->scope->n; k++) {
    const dc_nid id = w->scope->v[k];
    for (dc_cid old; (old = stale_in(w, id));) dc_node_rename(w->graph, id, old, w->now[old]);
    if (dc_node_at(w->graph, id)->kind == DC_NODE_LIBRARY) dc_node_uses(w->graph, id, note_call, w);
    else take_apart(w, k);
  }
}

/* ---- results ---- */

static bool lie_alike(const dc_container *a, const dc_container *b) {
  bool alike =
      a->dtype == b->dtype && a->rank == b->rank && a->device == b->device && a->storage == b->storage && !a->strides == !b->strides;
  for (uint32_t d = 0; alike && d < a->rank; d++) alike = a->shape[d] == b->shape[d] && (!a->strides || a->strides[d] == b->strides[d]);
  return alike;
}

/* A result that is a copy of a temporary takes its place from the start. */
static bool take_place(walk *w, uint32_t at) {
  dc_pool *pool = &w->graph->pool;
  const dc_tasklet *copy = whole_write(w, w->scope->v[at]);
  if (!copy || copy->wcr || dc_ex_node(pool, copy->value)->op != DC_EX_READ) return false;
  const dc_cid to = copy->out, from = dc_ex_node(pool, copy->value)->ref;
  if (from == to || !is_temporary(w, to) || !is_temporary(w, from) || !dc_cont(w->graph, to)->is_output ||
      dc_cont(w->graph, from)->is_output)
    return false;
  if (!lie_alike(dc_cont(w->graph, to), dc_cont(w->graph, from))) return false;
  for (uint32_t d = 0; d < copy->rank; d++)
    if (dc_ex_arg(pool, copy->value, d) != copy->index[d]) return false;
  for (uint32_t k = 0; k < w->scope->n; k++) {
    dc_nid id = w->scope->v[k];
    if (k < at && uses(w, id, DC_USE_READ | DC_USE_WRITE, to)) return false;
    if (k > at && (uses(w, id, DC_USE_WRITE, to) || uses(w, id, DC_USE_WRITE, from))) return false;
  }
  for (uint32_t k = 0; k < w->scope->n; k++)
    if (k != at) dc_node_rename(w->graph, w->scope->v[k], from, to);
  return true;
}

/* ---- the pass ---- */

static void drop(dc_scope *scope, uint32_t at) {
  for (scope->n--; at < scope->n; at++) scope->v[at] = scope->v[at + 1];
}

dc_status dc_pass_traffic(dc_graph *graph) {
  if (!graph->machine.teams || graph->states.n != 1) return DC_OK;
  dc_arena arena = {0};
  dc_scope *scope = &graph->states.v[0].scope;
  const uint32_t most = graph->containers.n + scope->n; /* with one more for each node */
  walk w = {.graph = graph, .scope = scope};
  w.shared = DC_NEW_ARRAY(&arena, bool, most), w.called = DC_NEW_ARRAY(&arena, bool, most), w.now = DC_NEW_ARRAY(&arena, dc_cid, most);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (dc_cont(graph, c)->alias_of) w.shared[c] = w.shared[dc_container_root(graph, c)] = true;
  for (uint32_t k = 0; k < w.scope->n;) {
    if (take_place(&w, k) || move_into_sum(&w, k)) drop(w.scope, k);
    else k++;
  }
  take_all_apart(&w);
  dc_arena_free(&arena);
  return DC_OK;
}
