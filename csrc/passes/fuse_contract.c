/* Temporaries of one node: forwarded into their readers, accumulated in place, shrunk to
 * registers, or dropped.
 *
 * All uses of a private temporary lie under one node.  What is written and read in the same
 * iteration need not be memory: a value with a simple reader moves into it, one that is indexed
 * by the enclosing loops loses those dimensions, and a small rest becomes a register array; memory that a
 * sequential loop meets slice by slice becomes one slice. */
#include "passes/fuse.h"

enum { MAX_SINGLE = 200, MAX_SHARED = 12 };

typedef struct {
  dc_graph *graph;
  dc_nid top;
  const dc_use_count *users;
  dc_site_table *t;
} contraction;

static const dc_access *at(const contraction *c, uint32_t k) { return &c->t->accesses.v[k]; }
static dc_tasklet tasklet_of(const contraction *c, const dc_access *a) { return dc_node_at(c->graph, a->node)->tasklet; }
static bool is_private(const contraction *c, dc_cid root) { return c->users[root].nodes == 1; }
static bool is_tasklet(const contraction *c, const dc_access *a) { return dc_node_at(c->graph, a->node)->kind == DC_NODE_TASKLET; }

static void rebuild(contraction *c) { dc_sites_build(c->graph, c->t->arena, &c->top, 1, c->t); }

/* Does a REDUCE map around this body have anything to reduce? */
static bool accumulates(const contraction *c, const dc_scope *body) {
  for (uint32_t k = 0; k < body->n; k++) {
    const dc_node *node = dc_node_at(c->graph, body->v[k]);
    if (node->kind == DC_NODE_TASKLET ? node->tasklet.wcr != DC_WCR_NONE
                                      : node->map.schedule != DC_MAP_REDUCE && accumulates(c, &node->map.body))
      return true;
  }
  return false;
}

static void remove_node(contraction *c, dc_nid node) {
  dc_nid parent = c->t->parent[node];
  if (!parent) return;
  dc_map *map = &dc_node_at(c->graph, parent)->map;
  dc_scope_remove(&map->body, node);
  if (map->schedule == DC_MAP_REDUCE && !accumulates(c, &map->body)) map->schedule = DC_MAP_PARALLEL;
  if (map->body.n == 0) remove_node(c, parent);
}

static bool in_reduce(const contraction *c, dc_nid node) {
  for (dc_nid m = c->t->parent[node]; m; m = c->t->parent[m])
    if (dc_node_at(c->graph, m)->map.schedule == DC_MAP_REDUCE) return true;
  return false;
}

uint32_t dc_fuse_tree_size(const dc_pool *pool, dc_ex e, uint32_t limit) {
  uint32_t n = 1;
  for (uint32_t k = 0; k < dc_ex_node(pool, e)->nargs && n < limit; k++) n += dc_fuse_tree_size(pool, dc_ex_arg(pool, e, k), limit - n);
  return n;
}

/* ---- forwarding ---- */

/* The unguarded tasklet that alone writes the container, seen before all its readers, which read
 * the very element that it writes. */
static const dc_access *writer_before_readers(const contraction *c, dc_cid root) {
  const dc_access *writer = NULL;
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (!is_tasklet(c, a) || (a->writes && (writer || a->reads || a->initialised || tasklet_of(c, a).guard))) return NULL;
    if (a->writes) writer = a;
  }
  if (!writer) return NULL;
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (a == writer) continue;
    if (a->element != writer->element || c->t->order[a->node] <= c->t->order[writer->node]) return NULL;
    if (!dc_site_is_under(c->t, a->node, c->t->parent[writer->node])) return NULL;
  }
  return writer;
}

typedef struct {
  uint32_t n, last; /* readers; order up to which the value must hold */
  bool nested;      /* some reader is in a loop inside the writer's scope */
} readers;

static readers readers_of(const contraction *c, const dc_access *writer) {
  readers r = {0, 0, false};
  dc_nid scope = c->t->parent[writer->node], previous = 0;
  DC_EACH_SITE(c->t, writer->root, k) {
    const dc_access *a = at(c, k);
    if (a == writer) continue;
    dc_nid child = a->node;
    while (c->t->parent[child] != scope) child = c->t->parent[child];
    uint32_t until = child == a->node ? c->t->order[child] : c->t->end[child];
    r.nested |= child != a->node;
    r.n += a->node != previous;
    r.last = until > r.last ? until : r.last;
    previous = a->node;
  }
  return r;
}

static bool is_simple(const dc_pool *pool, dc_ex e) {
  while (dc_ex_node(pool, e)->op == DC_EX_CAST) e = dc_ex_arg(pool, e, 0);
  return dc_ex_node(pool, e)->op == DC_EX_READ || dc_ex_node(pool, e)->nargs == 0;
}

static bool worth_forwarding(const contraction *c, dc_ex value, readers r) {
  const dc_pool *pool = &c->graph->pool;
  if (is_simple(pool, value)) return true;
  if (r.nested) return false;
  uint32_t limit = r.n == 1 ? MAX_SINGLE : MAX_SHARED;
  return dc_fuse_tree_size(pool, value, limit + 1) <= limit;
}

static bool try_forward(contraction *c, dc_cid root) {
  const dc_access *w = writer_before_readers(c, root);
  if (!w || !c->t->parent[w->node]) return false;
  dc_tasklet t = tasklet_of(c, w);
  readers r = readers_of(c, w);
  if (!r.n || !worth_forwarding(c, t.value, r) || dc_sites_overwrite(c->t, t.value, c->t->order[w->node], r.last)) return false;
  dc_ex value = dc_ex_cast(&c->graph->pool, (dc_dtype)dc_cont(c->graph, root)->dtype, t.value);
  DC_EACH_SITE(c->t, root, k)
    if (at(c, k) != w) dc_node_forward(c->graph, at(c, k)->node, w->element, value);
  remove_node(c, w->node);
  return true;
}

/* ---- dead stores ---- */

static bool try_drop(contraction *c, dc_cid root) {
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (!a->writes || !is_tasklet(c, a) || !c->t->parent[a->node]) return false;
  }
  DC_EACH_SITE(c->t, root, k) remove_node(c, at(c, k)->node);
  return true;
}

/* ---- sums that are taken twice ---- */

/* Do the tasklets of one REDUCE map combine the same values in the same way?  What they combine into stays in place while it runs. */
static bool are_twins(const contraction *c, dc_nid a, dc_nid b) {
  const dc_node *x = dc_node_at(c->graph, a), *y = dc_node_at(c->graph, b);
  if (a == b || y->kind != DC_NODE_TASKLET || x->tasklet.wcr != y->tasklet.wcr) return false;
  if (x->tasklet.value != y->tasklet.value || x->tasklet.guard != y->tasklet.guard) return false;
  return dc_cont(c->graph, x->tasklet.out)->dtype == dc_cont(c->graph, y->tasklet.out)->dtype;
}

/* Moves a tasklet behind the map that it is in, where it copies `element`. */
static void copy_behind(contraction *c, dc_nid node, dc_ex element) {
  dc_nid map = c->t->parent[node];
  dc_scope *scope = &dc_node_at(c->graph, c->t->parent[map])->map.body;
  dc_scope_remove(&dc_node_at(c->graph, map)->map.body, node);
  dc_scope_push(c->graph, scope, node);
  for (uint32_t k = scope->n - 1; scope->v[k - 1] != map; k--) scope->v[k] = scope->v[k - 1], scope->v[k - 1] = node;
  dc_tasklet *copy = &dc_node_at(c->graph, node)->tasklet;
  copy->value = element, copy->wcr = DC_WCR_NONE, copy->guard = 0;
}

/* reduce { S += a; T += a }  becomes  reduce { S += a } T = S. */
static bool try_twin(contraction *c, dc_cid root) {
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    dc_nid map = c->t->parent[a->node];
    if (!a->initialised || !c->t->parent[map] || dc_node_at(c->graph, map)->map.schedule != DC_MAP_REDUCE) continue;
    const dc_scope *body = &dc_node_at(c->graph, map)->map.body;
    for (uint32_t j = 0; j < body->n; j++)
      if (are_twins(c, a->node, body->v[j])) return copy_behind(c, body->v[j], a->element), true;
  }
  return false;
}

/* ---- updates in place ---- */

/* The next access to w's buffer after w itself; NULL if none follows in the same scope. */
static const dc_access *next_access(const contraction *c, const dc_access *w) {
  const dc_access *next = NULL;
  DC_EACH_SITE(c->t, w->root, k) {
    const dc_access *a = at(c, k);
    if (c->t->order[a->node] <= c->t->order[w->node]) continue;
    bool earlier = !next || c->t->order[a->node] < c->t->order[next->node];
    if (earlier || (a->node == next->node && a->writes)) next = a;
  }
  return next;
}

/* Does the tasklet read the buffer that it writes? */
static bool reads_own(const contraction *c, const dc_access *w) {
  DC_EACH_SITE(c->t, w->root, k)
    if (at(c, k)->node == w->node && at(c, k) != w) return true;
  return false;
}

/* What leaves every value as it is, the zero with a sign too. */
static double neutral(dc_wcr wcr, dc_dtype type) {
  return wcr == DC_WCR_SUM && dc_dtype_is_float(type) ? -0.0 : dc_wcr_identity(wcr, type);
}

/* a op b, or a where the guard does not hold.  a stands twice in it only if it is short: a chain of updates would double it at each. */
static dc_ex guarded_update(dc_pool *pool, const dc_tasklet *q, dc_dtype type, dc_ex a, dc_ex b) {
  dc_op op = dc_wcr_prim((dc_wcr)q->wcr);
  if (!q->guard) return dc_ex_prim2(pool, op, a, b);
  if (is_simple(pool, a)) return dc_ex_select(pool, q->guard, dc_ex_prim2(pool, op, a, b), a);
  return dc_ex_prim2(pool, op, a, dc_ex_select(pool, q->guard, b, dc_ex_const(pool, type, neutral((dc_wcr)q->wcr, type))));
}

/* What is updated next, as the container holds it; small floats are rounded once, after the update. */
static dc_ex before_update(dc_pool *pool, dc_dtype type, dc_ex value) {
  dc_dtype wide = dc_dtype_compute(type);
  return dc_ex_cast(pool, wide, dc_dtype_is_float(type) ? value : dc_ex_cast(pool, type, value));
}

/* T = a; T op= b  becomes  T = a op b;  T op= a; T op= b  becomes  T op= a op b. */
static bool combine_updates(contraction *c, const dc_access *w, const dc_access *next) {
  dc_pool *pool = &c->graph->pool;
  dc_tasklet p = tasklet_of(c, w), q = tasklet_of(c, next);
  dc_dtype type = (dc_dtype)dc_cont(c->graph, w->container)->dtype, wide = dc_dtype_compute(type);
  if (!q.wcr || p.guard || (p.wcr && (p.wcr != q.wcr || q.guard)) || type == DC_BOOL || reads_own(c, next)) return false;
  if (dc_sites_overwrite(c->t, p.value, c->t->order[w->node], c->t->order[next->node])) return false;
  dc_ex sum = guarded_update(pool, &q, wide, before_update(pool, type, p.value), dc_ex_cast(pool, wide, q.value));
  dc_tasklet *out = &dc_node_at(c->graph, next->node)->tasklet;
  out->value = sum, out->wcr = p.wcr, out->guard = 0;
  remove_node(c, w->node);
  return true;
}

/* T = a; T = f(T)  becomes  T = f(a). */
static bool replace_update(contraction *c, const dc_access *w, const dc_access *next) {
  dc_pool *pool = &c->graph->pool;
  dc_tasklet p = tasklet_of(c, w), q = tasklet_of(c, next);
  if (p.guard || p.wcr || q.guard || q.wcr) return false;
  if (dc_sites_overwrite(c->t, p.value, c->t->order[w->node], c->t->order[next->node])) return false;
  DC_EACH_SITE(c->t, w->root, k)
    if (at(c, k)->node == next->node && at(c, k)->element != w->element) return false;
  dc_ex value = dc_ex_cast(pool, (dc_dtype)dc_cont(c->graph, w->container)->dtype, p.value);
  if (reads_own(c, next) && dc_fuse_tree_size(pool, q.value, MAX_SINGLE) + dc_fuse_tree_size(pool, p.value, MAX_SINGLE) > MAX_SINGLE)
    return false;
  dc_node_forward(c->graph, next->node, w->element, value);
  remove_node(c, w->node);
  return true;
}

static bool try_update(contraction *c, const dc_access *w) {
  if (!w->writes || !w->element || !is_tasklet(c, w) || in_reduce(c, w->node)) return false;
  const dc_access *next = next_access(c, w);
  if (!next || !next->writes || next->element != w->element || !is_tasklet(c, next)) return false;
  if (c->t->parent[next->node] != c->t->parent[w->node] || !c->t->parent[w->node]) return false;
  for (uint32_t d = 0; d < tasklet_of(c, w).rank; d++)
    if (dc_ex_uses_op(&c->graph->pool, tasklet_of(c, w).index[d], DC_EX_READ)) return false;
  return combine_updates(c, w, next) || replace_update(c, w, next);
}

/* ---- shrinking ---- */

typedef struct {
  dc_param v[DC_MAX_LOOPS];
  uint32_t n;
} around_params;

static void collect_around(const contraction *c, dc_nid home, around_params *out) {
  out->n = 0;
  for (dc_nid m = home; m; m = c->t->parent[m]) {
    dc_map map = dc_node_at(c->graph, m)->map;
    for (uint32_t k = 0; k < map.n_params; k++) out->v[out->n++] = map.params[k];
  }
}

/* Is the index the same wherever the container is used, and fixed by the loops around `home`?  Symbols: the same index
 * is the same expression, for all values of what is in it. */
static bool is_fixed_dim(const contraction *c, dc_cid root, dc_nid home, uint32_t d) {
  const dc_pool *pool = &c->graph->pool;
  dc_ex index = 0;
  DC_EACH_SITE(c->t, root, k) {
    dc_ex here = dc_ex_arg(pool, at(c, k)->element, d);
    if (index && here != index) return false;
    index = here;
  }
  around_params around;
  collect_around(c, home, &around);
  return index && !dc_ex_uses_op(pool, index, DC_EX_READ) && !dc_access_uses_other_param(pool, index, around.v, around.n);
}

/* The first access in each iteration of home writes the element, whatever happened before. */
static bool starts_fresh(const contraction *c, dc_cid root, dc_nid home) {
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (!a->writes || a->reads || tasklet_of(c, a).guard) return false;
    if (!a->initialised) return c->t->parent[a->node] == home;
    dc_nid reduce = c->t->parent[a->node];
    return c->t->parent[reduce] == home && dc_node_at(c->graph, reduce)->map.schedule == DC_MAP_REDUCE;
  }
  return false;
}

static bool carries_over(const contraction *c, dc_nid home) {
  for (dc_nid m = home; m; m = c->t->parent[m]) {
    uint8_t schedule = dc_node_at(c->graph, m)->map.schedule;
    if (schedule == DC_MAP_SEQUENTIAL || schedule == DC_MAP_SCATTER) return true;
  }
  return false;
}

/* Written first and read then, as the verifier wants of a register; of what nobody reads nothing says so. */
static bool is_read_after_write(const contraction *c, dc_cid root) {
  const dc_access *first = at(c, c->t->first[root] - 1);
  bool read = false;
  DC_EACH_SITE(c->t, root, k) read |= !at(c, k)->writes;
  return first->writes && !first->reads && read;
}

/* Symbols: a dimension that stays has a constant extent, for a register's size is known to the compiler. */
static bool shrink_to(contraction *c, dc_cid root, int64_t limit) {
  bool dropped[DC_MAX_RANK] = {false};
  const dc_container *k = dc_cont(c->graph, root);
  dc_nid home = dc_sites_home(c->t, root);
  int64_t elements = 1, extent;
  if (!home || k->storage == DC_STORE_REGISTER || !is_read_after_write(c, root)) return false;
  bool carried = carries_over(c, home);
  if (carried && !starts_fresh(c, root, home)) return false;
  for (uint32_t d = 0; d < k->rank; d++) {
    dropped[d] = is_fixed_dim(c, root, home, d);
    if (dropped[d]) continue;
    if (carried) return false; /* only one element is known to be written anew */
    if (!dc_ex_is_int(&c->graph->pool, k->shape[d], &extent) || extent > limit) return false;
    elements *= extent;
    if (elements > limit) return false;
  }
  dc_sites_drop_dims(c->t, c->top, root, dropped);
  dc_cont(c->graph, root)->storage = DC_STORE_REGISTER, dc_cont(c->graph, root)->strides = NULL;
  return true;
}

static bool try_scalar(contraction *c, dc_cid root) { return shrink_to(c, root, 1); }
static bool try_array(contraction *c, dc_cid root) { return shrink_to(c, root, c->graph->machine.local_elements); }

/* ---- one slice for all iterations ---- */

/* Each iteration of the loop has its own index: p + rest or rest - p.  Symbols: they may be in the rest, which is the
 * same in all iterations, but not beside p: times 0 all iterations would meet. */
static bool tells_apart(dc_pool *pool, dc_ex index, dc_param p) {
  dc_ex by, rest;
  int64_t step;
  return dc_ix_split(pool, index, p, &by, &rest) && dc_ex_is_int(pool, by, &step) && (step == 1 || step == -1) &&
         !dc_ex_uses_op(pool, rest, DC_EX_PARAM) && !dc_ex_uses_op(pool, rest, DC_EX_READ);
}

/* The dimension that a sequential loop around all uses walks: an iteration meets only what it has written itself. */
static bool is_step(const contraction *c, dc_cid root, dc_nid home, uint32_t d, dc_ex index) {
  bool stepped = false;
  for (dc_nid m = home; m && !stepped; m = c->t->parent[m]) {
    const dc_map *map = &dc_node_at(c->graph, m)->map;
    stepped = map->schedule == DC_MAP_SEQUENTIAL && map->n_params == 1 && tells_apart(&c->graph->pool, index, map->params[0]);
  }
  return stepped && is_fixed_dim(c, root, home, d);
}

static bool try_slice(contraction *c, dc_cid root) {
  bool dropped[DC_MAX_RANK] = {false}, any = false;
  const dc_container *k = dc_cont(c->graph, root);
  dc_nid home = dc_sites_home(c->t, root);
  dc_ex element = 0;
  if (!home || k->storage == DC_STORE_REGISTER || k->strides || k->known) return false;
  DC_EACH_SITE(c->t, root, j) {
    if (at(c, j)->container != root || !at(c, j)->element) return false;
    element = at(c, j)->element;
  }
  for (uint32_t d = 0; d < k->rank; d++) any |= dropped[d] = is_step(c, root, home, d, dc_ex_arg(&c->graph->pool, element, d));
  if (any) dc_sites_drop_dims(c->t, c->top, root, dropped);
  return any;
}

/* ---- sharing the result's buffer ---- */

/* Symbols: equal extents are the same expression. */
static bool same_shape(const dc_graph *graph, dc_cid a, dc_cid b) {
  const dc_container *x = dc_cont(graph, a), *y = dc_cont(graph, b);
  if (x->dtype != y->dtype || x->rank != y->rank || !x->strides != !y->strides) return false;
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->shape[d] != y->shape[d] || (x->strides && x->strides[d] != y->strides[d])) return false;
  return true;
}

/* Where the loops around decide an index of the store, root is indexed in the same way: so each of
 * their iterations keeps to the part of the buffer that it writes in the end. */
static bool keeps_to_part(const contraction *c, dc_cid root, dc_nid home, dc_tasklet store) {
  const dc_pool *pool = &c->graph->pool;
  around_params around;
  collect_around(c, home, &around);
  for (uint32_t d = 0; d < store.rank; d++) {
    bool outer = false;
    for (uint32_t k = 0; k < around.n && !outer; k++) outer = dc_ex_uses_param(pool, store.index[d], around.v[k]);
    if (!outer) continue;
    DC_EACH_SITE(c->t, root, k)
      if (dc_ex_arg(pool, at(c, k)->element, d) != store.index[d]) return false;
  }
  return true;
}

/* Reads what the store has just written, in the same iteration. */
static bool reads_back(const contraction *c, const dc_access *a, const dc_access *store) {
  dc_tasklet t = tasklet_of(c, store);
  dc_ex stored = dc_ex_read(&c->graph->pool, (dc_dtype)dc_cont(c->graph, store->container)->dtype, store->container, t.index, t.rank);
  return !a->writes && is_tasklet(c, a) && a->element == stored && c->t->parent[a->node] == c->t->parent[store->node] &&
         c->t->order[a->node] > c->t->order[store->node];
}

/* The only tasklet that touches `result` in this node, but for what reads it back, if nothing of `root` is used after it and it
 * reads of root just the element that it writes. */
static bool may_hold(const contraction *c, dc_cid root, const dc_access *store) {
  dc_tasklet t = tasklet_of(c, store);
  if (t.guard || t.wcr || !same_shape(c->graph, root, store->container) || store->container != store->root) return false;
  dc_ex same = dc_ex_read(&c->graph->pool, (dc_dtype)dc_cont(c->graph, root)->dtype, root, t.index, t.rank);
  dc_nid loop = store->node, home = dc_sites_home(c->t, root);
  while (c->t->parent[loop] && c->t->parent[loop] != home) loop = c->t->parent[loop];
  if (c->t->parent[loop] != home || loop == store->node || !keeps_to_part(c, root, home, t)) return false;
  if (dc_cont(c->graph, store->container)->role == DC_ROLE_INPUT && !dc_sites_store_all(c->t, store, home)) return false;
  DC_EACH_SITE(c->t, store->root, k)
    if (at(c, k) != store && !reads_back(c, at(c, k), store)) return false;
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (a->node == store->node ? a->element != same : c->t->order[a->node] >= c->t->order[loop]) return false;
  }
  return true;
}

/* Softmax's exponentials live where its result will be.  The result must have no other writer. */
static bool try_share(contraction *c, dc_cid root) {
  if (dc_cont(c->graph, root)->storage == DC_STORE_REGISTER) return false;
  for (uint32_t k = 0; k < c->t->accesses.n; k++) {
    const dc_access *a = at(c, k);
    bool alone = c->users[a->root].writers == 1;
    if (!a->writes || !is_tasklet(c, a) || a->root == root || !alone || !may_hold(c, root, a)) continue;
    dc_cid to = a->root;
    dc_nid store = a->node;
    dc_tasklet t = tasklet_of(c, a);
    bool copies = t.value == dc_ex_read(&c->graph->pool, (dc_dtype)dc_cont(c->graph, root)->dtype, root, t.index, t.rank);
    dc_node_rename(c->graph, c->top, root, to);
    if (copies) remove_node(c, store);
    DC_EACH_SITE(c->t, root, j) /* what is written by a view, too */
      if (at(c, j)->writes) dc_node_at(c->graph, at(c, j)->node)->tasklet.out = to;
    return true;
  }
  return false;
}

/* ---- updates far from what they update ---- */

/* Each element is written once, by a plain tasklet, and in a later loop of the same map updated once: the two accesses. */
static bool is_written_then_updated(const contraction *c, dc_cid root, const dc_access **w, const dc_access **update) {
  *w = *update = NULL;
  DC_EACH_SITE(c->t, root, k) {
    const dc_access *a = at(c, k);
    if (!a->writes || a->container != root || !is_tasklet(c, a) || a->initialised || tasklet_of(c, a).guard || *update) return false;
    *(a->reads ? update : w) = a;
    if (!*w) return false;
  }
  dc_nid home = dc_sites_home(c->t, root);
  return *update && home && dc_sites_store_all(c->t, *w, home) && dc_sites_store_all(c->t, *update, home);
}

/* A few operations are cheaper than to store their result and to load it again from a cache, twice. */
static bool is_cheap(const contraction *c, const dc_fuse_value *v) { return v->cost <= 2 * c->graph->machine.cached_ns && v->reads <= 3; }

/* for p { T[p] = a(p) } ... for q { T[q] += b(q) }  becomes  for q { T[q] = a(q) + b(q) }: memory is written once. */
static bool try_defer(contraction *c, dc_cid root) {
  dc_pool *pool = &c->graph->pool;
  const dc_access *w, *update;
  dc_fuse_value first;
  if (dc_cont(c->graph, root)->storage != DC_STORE_HEAP || c->users[root].writers != 1) return false;
  if (!is_written_then_updated(c, root, &w, &update) || in_reduce(c, update->node)) return false;
  dc_nid home = dc_sites_home(c->t, root), loop = update->node;
  while (c->t->parent[loop] != home) loop = c->t->parent[loop];
  if (loop == update->node || !dc_fuse_value_at(c->t, w, update->element, c->t->end[loop], &first) || !is_cheap(c, &first)) return false;
  dc_tasklet q = tasklet_of(c, update);
  dc_dtype type = (dc_dtype)dc_cont(c->graph, root)->dtype, wide = dc_dtype_compute(type);
  if (type == DC_BOOL || carries_over(c, c->t->parent[update->node])) return false;
  dc_ex sum = guarded_update(pool, &q, wide, before_update(pool, type, first.value), dc_ex_cast(pool, wide, q.value));
  dc_tasklet *out = &dc_node_at(c->graph, update->node)->tasklet;
  out->value = sum, out->wcr = DC_WCR_NONE;
  remove_node(c, w->node);
  return true;
}

static bool over_buffers(contraction *c, bool (*attempt)(contraction *, dc_cid)) {
  for (uint32_t k = 0; k < c->t->accesses.n; k++) {
    dc_access a = *at(c, k);
    if (a.writes && a.container == a.root && a.element && attempt(c, a.root)) return rebuild(c), true;
  }
  return false;
}

/* ---- the order of attempts ---- */

static bool try_recompute(contraction *c, dc_cid root) {
  return dc_cont(c->graph, root)->storage == DC_STORE_HEAP && dc_fuse_recompute(c->t, root);
}

static bool over_temporaries(contraction *c, bool (*attempt)(contraction *, dc_cid)) {
  for (uint32_t k = 0; k < c->t->accesses.n; k++) {
    dc_access a = *at(c, k);
    if (a.writes && a.container == a.root && a.element && is_private(c, a.root) && attempt(c, a.root)) {
      rebuild(c);
      return true;
    }
  }
  return false;
}

static bool over_updates(contraction *c) {
  for (uint32_t k = 0; k < c->t->accesses.n; k++)
    if (try_update(c, at(c, k))) {
      rebuild(c);
      return true;
    }
  return false;
}

static bool contract_once(contraction *c) {
  return over_temporaries(c, try_twin) || over_buffers(c, try_twin) || over_temporaries(c, try_forward) || over_temporaries(c, try_drop) ||
         over_updates(c) || over_temporaries(c, try_scalar) || over_temporaries(c, try_recompute) || over_buffers(c, try_defer) ||
         over_temporaries(c, try_share) || over_temporaries(c, try_array) || over_temporaries(c, try_slice);
}

static void contract_node(dc_site_table *t, dc_nid node, const dc_use_count *users, bool registers_only) {
  contraction c = {.graph = t->graph, .top = node, .users = users, .t = t};
  if (dc_node_at(t->graph, node)->kind != DC_NODE_MAP) return;
  rebuild(&c);
  while (registers_only ? over_temporaries(&c, try_scalar) : contract_once(&c)) {}
}

/* ---- the pass ---- */

void dc_fuse_contract(dc_graph *graph, const dc_fuse_options *options) {
  dc_arena arena = {0};
  const dc_use_count *users = dc_fuse_count_users(graph, &arena);
  dc_site_table t = {.graph = graph, .arena = &arena};
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope *scope = &graph->states.v[s].scope;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < scope->n; k++) {
      dc_nid node = scope->v[k];
      contract_node(&t, node, users, options->registers_only);
      if (!dc_fuse_is_empty(graph, node)) scope->v[kept++] = node;
    }
    scope->n = kept;
  }
  dc_graph_drop_unused_views(graph);
  dc_arena_free(&arena);
}

dc_status dc_pass_contract(dc_graph *graph) {
  dc_fuse_contract(graph, &(dc_fuse_options){0});
  return DC_OK;
}
