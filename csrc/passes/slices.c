/* One slice for all iterations of a loop inside a node's outermost one:
 *
 *     map c in 0:64 {                         map c in 0:64 {
 *       map n in 0:N {                          sequential n in 0:N {
 *         map s in 0:H { T[n, c, s] = ... }       map s in 0:H { T[c, s] = ... }
 *         map s in 0:H { ... T[n, c, H - s] }     map s in 0:H { ... T[c, H - s] }
 *
 * Threads share the outermost loop, and each runs the loops inside in order; so what an iteration of those fills and reads alone needs
 * memory of one.  The loop is sequential from then on, which is why this comes after all that merges or moves loops.  Where
 * it walks along memory it stays as it is, for vectors; and where a device shares inner loops too, nothing is done.
 *
 * What an iteration of a sequential loop reads of the one before, and nobody later, is a register:
 *
 *     map c { sequential n { S[c, n] = (n >= 1 ? S[c, n - 1] : 0) + X[c, n]  Y[c, n] = S[c, n] } }   becomes
 *     map c { S = 0  sequential n { S = S + X[c, n]  Y[c, n] = S } }
 *
 * A sequential loop that stands alone is in a map that runs once then. */
#include "passes/fuse.h"

typedef struct {
  dc_graph *graph;
  const dc_use_count *users;
  dc_site_table *t;
  dc_nid top;
} slicing;

/* A temporary of this node alone, of whose elements all accesses tell the indices. */
static bool is_private(const slicing *s, dc_cid root) {
  const dc_container *k = dc_cont(s->graph, root);
  if (k->role != DC_ROLE_TEMP || k->is_output || k->storage != DC_STORE_HEAP || k->known || s->users[root].nodes != 1) return false;
  DC_EACH_SITE(s->t, root, j) {
    const dc_access *a = &s->t->accesses.v[j];
    if (a->container != root || !a->element || dc_node_at(s->graph, a->node)->kind != DC_NODE_TASKLET) return false;
  }
  return true;
}

/* The dimension that all accesses index by p alone; the rank if there is none.  Symbols: iterations of one loop differ in p,
 * whatever its range is. */
static uint32_t dimension_of(const slicing *s, dc_cid root, dc_param p) {
  const dc_pool *pool = &s->graph->pool;
  uint32_t rank = dc_cont(s->graph, root)->rank, d = 0;
  for (bool all = false; d < rank; d++) {
    all = true;
    DC_EACH_SITE(s->t, root, k) {
      const dc_exnode *index = dc_ex_node(pool, dc_ex_arg(pool, s->t->accesses.v[k].element, d));
      all &= index->op == DC_EX_PARAM && index->ref == p;
    }
    if (all) break;
  }
  return d;
}

/* Elements of the container in the dimensions but d. */
static dc_ex elements_without(dc_pool *pool, const dc_container *k, uint32_t d) {
  dc_ex n = dc_ex_int(pool, 1);
  for (uint32_t j = 0; j < k->rank; j++)
    if (j != d) n = dc_ix_mul(pool, n, k->shape[j]);
  return n;
}

/* What is left without the dimension lies together: in rows, or the slices lie one after the other. */
static bool stays_dense(slicing *s, dc_cid root, uint32_t d) {
  const dc_container *k = dc_cont(s->graph, root);
  return !k->strides || k->strides[d] == elements_without(&s->graph->pool, k, d);
}

static bool is_beside(const dc_pool *pool, const dc_container *k, uint32_t d) {
  int64_t stride;
  return k->strides ? dc_ex_is_int(pool, k->strides[d], &stride) && stride == 1 : d + 1 == k->rank;
}

/* Do neighbouring iterations of the loop meet neighbours in memory? */
static bool walks_along(const slicing *s, dc_nid loop, dc_param p) {
  const dc_pool *pool = &s->graph->pool;
  for (uint32_t k = 0; k < s->t->accesses.n; k++) {
    const dc_access *a = &s->t->accesses.v[k];
    const dc_container *c = dc_cont(s->graph, a->container);
    if (!a->element || !dc_site_is_under(s->t, a->node, loop)) continue;
    for (uint32_t d = 0; d < dc_ex_node(pool, a->element)->nargs; d++)
      if (is_beside(pool, c, d) && dc_ex_uses_param(pool, dc_ex_arg(pool, a->element, d), p)) return true;
  }
  return false;
}

/* The loops around all uses of a container, but for the outermost. */
static bool try_slice(slicing *s, dc_cid root) {
  if (!is_private(s, root)) return false;
  for (dc_nid loop = dc_sites_home(s->t, root); loop && s->t->parent[loop]; loop = s->t->parent[loop]) {
    const dc_map *map = &dc_node_at(s->graph, loop)->map;
    bool in_order = map->schedule == DC_MAP_PARALLEL || map->schedule == DC_MAP_SEQUENTIAL;
    bool in_turn = in_order && map->n_params == 1 && dc_map_holds_maps(s->graph, map);
    uint32_t d = in_turn ? dimension_of(s, root, map->params[0]) : dc_cont(s->graph, root)->rank;
    if (d == dc_cont(s->graph, root)->rank || !stays_dense(s, root, d) || walks_along(s, loop, map->params[0])) continue;
    bool dropped[DC_MAX_RANK] = {false};
    dropped[d] = true;
    dc_sites_drop_dims(s->t, s->top, root, dropped);
    return dc_node_at(s->graph, loop)->map.schedule = DC_MAP_SEQUENTIAL, true;
  }
  return false;
}

/* ---- what the next iteration alone reads ---- */

typedef struct {
  dc_nid loop;
  dc_param p;
  dc_tasklet writer;
  dc_ex element, before; /* what is written, and what the iteration before wrote */
  dc_ex choice;          /* SELECT between that and something else; 0: none found */
  bool found;
} carrying;

static void find_before(void *context, const dc_pool *pool, dc_ex x) {
  carrying *c = context;
  c->found |= x == c->before;
  if (dc_ex_node(pool, x)->op == DC_EX_SELECT && dc_ex_arg(pool, x, 1) == c->before) c->choice = x;
}

static dc_ex at_place(dc_pool *pool, const carrying *c, dc_ex x, dc_ex place) { return x ? dc_ex_subst(pool, x, &c->p, &place, 1) : 0; }

/* The first iteration reads nothing of one before it. */
static bool begins_anew(dc_pool *pool, const carrying *c, dc_ex x) {
  const dc_ex begin = pool->params.v[c->p].begin;
  carrying first = {.before = at_place(pool, c, c->before, begin)};
  if (x) dc_ex_walk(pool, at_place(pool, c, x, begin), find_before, &first);
  return !first.found;
}

/* A loop of nothing but tasklets inside another, one of which writes an element of its own in each iteration. */
static bool find_carrying(slicing *s, dc_cid root, carrying *c) {
  dc_pool *pool = &s->graph->pool;
  *c = (carrying){.loop = dc_sites_home(s->t, root)};
  if (!c->loop || !s->t->parent[c->loop]) return false;
  const dc_map map = dc_node_at(s->graph, c->loop)->map;
  if (map.schedule != DC_MAP_SEQUENTIAL || map.n_params != 1 || dc_map_holds_maps(s->graph, &map)) return false;
  int64_t step;
  if (!dc_ex_is_int(pool, pool->params.v[map.params[0]].step, &step) || step != 1) return false;
  c->p = map.params[0];
  DC_EACH_SITE(s->t, root, k) {
    const dc_access *a = &s->t->accesses.v[k];
    if (!a->writes) continue;
    c->writer = dc_node_at(s->graph, a->node)->tasklet;
    if (c->element || a->reads || a->initialised || c->writer.guard) return false;
    c->element = a->element;
  }
  if (!c->element) return false;
  c->before = at_place(pool, c, c->element, dc_ix_sub(pool, dc_ex_par(pool, c->p), dc_ex_int(pool, 1)));
  return c->before != c->element;
}

/* Reads come before the next write to what they read. */
static bool is_carried(slicing *s, dc_cid root, const carrying *c) {
  dc_pool *pool = &s->graph->pool;
  uint32_t written = 0;
  bool any = false;
  DC_EACH_SITE(s->t, root, k)
    if (s->t->accesses.v[k].writes) written = s->t->order[s->t->accesses.v[k].node];
  DC_EACH_SITE(s->t, root, k) {
    const dc_access *a = &s->t->accesses.v[k];
    const uint32_t at = s->t->order[a->node];
    if (a->writes) continue;
    if (a->element != c->before && (a->element != c->element || at <= written)) return false;
    if (a->element != c->before) continue;
    const dc_tasklet *t = &dc_node_at(s->graph, a->node)->tasklet;
    if (at > written || !begins_anew(pool, c, t->value) || !begins_anew(pool, c, t->guard)) return false;
    any = true;
  }
  return any;
}

/* Does a condition hold in all iterations but the first? */
static bool holds_later(dc_pool *pool, const carrying *c, dc_ex condition) {
  const dc_exnode node = *dc_ex_node(pool, condition);
  if ((node.op != DC_GE && node.op != DC_LT) || dc_ex_dtype(pool, dc_ex_arg(pool, condition, 0)) != DC_I64) return false;
  const dc_parameter range = pool->params.v[c->p];
  const dc_param later = dc_param_new(pool, "later", dc_ix_add(pool, range.begin, dc_ex_int(pool, 1)), range.end, 0);
  const dc_ex a = at_place(pool, c, dc_ex_arg(pool, condition, 0), dc_ex_par(pool, later)),
              b = at_place(pool, c, dc_ex_arg(pool, condition, 1), dc_ex_par(pool, later));
  return node.op == DC_GE ? dc_ix_proves_ge(pool, dc_ix_sub(pool, a, b), 0) : dc_ix_proves_ge(pool, dc_ix_sub(pool, b, a), 1);
}

static bool try_carry(slicing *s, dc_cid root) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  carrying c;
  double first = 0;
  if (!is_private(s, root) || !find_carrying(s, root, &c) || !is_carried(s, root, &c)) return false;
  dc_ex_walk(pool, c.writer.value, find_before, &c);
  const bool replaces = c.choice && dc_ex_is_const(pool, dc_ex_arg(pool, c.choice, 2), &first) &&
                        holds_later(pool, &c, dc_ex_arg(pool, c.choice, 0));
  dc_exchange exchange = {c.choice, c.before};
  dc_scope body = dc_node_at(graph, c.loop)->map.body;
  for (uint32_t k = 0; replaces && k < body.n; k++) {
    dc_tasklet *t = &dc_node_at(graph, body.v[k])->tasklet;
    t->value = dc_ex_transform(pool, t->value, dc_ex_exchange, &exchange);
  }
  bool dropped[DC_MAX_RANK];
  for (uint32_t d = 0; d < DC_MAX_RANK; d++) dropped[d] = true;
  dc_sites_drop_dims(s->t, s->top, root, dropped);
  dc_container *k = dc_cont(graph, root);
  k->storage = DC_STORE_REGISTER, k->strides = NULL;
  dc_ex value = dc_ex_const(pool, dc_dtype_compute((dc_dtype)k->dtype), replaces ? first : 0);
  dc_nid fill = dc_node_tasklet(graph, root, DC_WCR_NONE, NULL, 0, 0, value);
  dc_node origin = *dc_node_at(graph, c.loop), *made = dc_node_at(graph, fill);
  made->name = origin.name, made->tag_op = origin.tag_op, made->tag_wrt = origin.tag_wrt;
  dc_scope around = {0}, *scope = &dc_node_at(graph, s->t->parent[c.loop])->map.body;
  for (uint32_t j = 0; j < scope->n; j++) {
    if (scope->v[j] == c.loop) dc_scope_push(graph, &around, fill);
    dc_scope_push(graph, &around, scope->v[j]);
  }
  return *scope = around, true;
}

static bool slice_once(slicing *s) {
  dc_sites_build(s->graph, s->t->arena, &s->top, 1, s->t);
  for (uint32_t k = 0; k < s->t->accesses.n; k++) {
    const dc_cid root = s->t->accesses.v[k].root;
    if (s->t->accesses.v[k].writes && (try_slice(s, root) || try_carry(s, root))) return true;
  }
  return false;
}

/* What stands alone is put into a map that runs once, which can hold a register. */
static dc_nid around(dc_graph *graph, dc_nid loop) {
  const dc_nid once = dc_node_map(graph, DC_MAP_PARALLEL, NULL, 0);
  dc_node_take_origin(graph, once, loop);
  dc_scope_push(graph, &dc_node_at(graph, once)->map.body, loop);
  return once;
}

dc_status dc_pass_slices(dc_graph *graph) {
  dc_arena arena = {0};
  dc_site_table t = {0};
  if (graph->machine.multiprocessors) return DC_OK;
  slicing s = {graph, dc_fuse_count_users(graph, &arena), &t, 0};
  t.graph = graph, t.arena = &arena;
  for (uint32_t k = 0; k < graph->states.n; k++)
    for (uint32_t j = 0; j < graph->states.v[k].scope.n; j++) {
      const dc_nid top = graph->states.v[k].scope.v[j];
      const dc_node *node = dc_node_at(graph, top);
      const bool shared = node->kind == DC_NODE_MAP && node->map.schedule == DC_MAP_PARALLEL && node->map.n_params;
      const bool alone = node->kind == DC_NODE_MAP && node->map.schedule == DC_MAP_SEQUENTIAL;
      bool any = false;
      s.top = alone ? around(graph, top) : top;
      while ((shared || alone) && slice_once(&s)) any = true;
      if (any) graph->states.v[k].scope.v[j] = s.top;
    }
  dc_graph_drop_unused_views(graph);
  dc_arena_free(&arena);
  return DC_OK;
}
