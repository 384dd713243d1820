/* Values computed again by the node that reads them, rather than stored by one node and loaded by another.
 *
 *     map i { T[i] = f(X[i]); S[] sum= T[i] } .. map i { R[i] = T[i] * S[] + X[i] }
 *     becomes  map i { S[] sum= f(X[i]) } .. map i { R[i] = f(X[i]) * S[] + X[i] }
 *
 * That pays where T is too large for a cache, f is cheaper than to write memory and to read it back, and the reader has
 * read what f reads anyway, or reads it instead of T.  A value that the reader first adds to is computed there, too:
 * T[i] = a(i) .. T[i] sum= b(i)  becomes  T[i] = a(i) + b(i). */
#include "ir/work.h"
#include "passes/fuse.h"

enum { FLOAT_BYTES = 4 };

typedef struct {
  dc_graph *graph;
  dc_site_table t;
  const dc_use_count *users;
  int64_t *symbols; /* as guessed */
  bool *dirty;      /* by top-level node: changed since the table was built */
} again;

static const dc_access *at(const again *a, uint32_t k) { return &a->t.accesses.v[k]; }

static dc_nid top_of(const again *a, const dc_access *x) {
  dc_nid node = x->node;
  while (a->t.parent[node]) node = a->t.parent[node];
  return node;
}

/* ---- what it costs ---- */

typedef struct {
  const again *a;
  dc_nid reader;
  dc_param fastest; /* of the loop that walks memory: what does not move with it is computed outside */
  double cost;
  uint32_t loads; /* of large arrays that the reader does not read otherwise */
  bool hidden;    /* an array that only the writer knows, and need not store */
} price;

static bool is_read_by(const again *a, dc_nid top, dc_cid root) {
  DC_EACH_SITE(&a->t, root, k)
    if (!at(a, k)->writes && top_of(a, at(a, k)) == top) return true;
  return false;
}

/* Writing an element and reading it back; 0 where a cache holds them all. */
static double price_of_memory(const again *a, dc_cid c) {
  int bytes = dc_dtype_bytes((dc_dtype)dc_cont(a->graph, c)->dtype);
  if (dc_container_elements(a->graph, c, a->symbols) * bytes < (double)a->graph->machine.l2_bytes) return 0;
  return a->graph->machine.store_ns * (bytes < FLOAT_BYTES ? FLOAT_BYTES : bytes);
}

static void add_part(void *context, const dc_pool *pool, dc_ex e) {
  price *p = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  dc_cid root = node->op == DC_EX_READ ? dc_container_root(p->a->graph, node->ref) : 0;
  if (root) p->hidden |= p->a->users[root].nodes == 1 && p->a->users[root].writers == 1;
  if (!dc_ex_uses_param(pool, e, p->fastest)) return;
  if (!root) p->cost += dc_ex_cost(pool, e);
  else if (!is_read_by(p->a, p->reader, root)) p->loads += price_of_memory(p->a, root) > 0;
}

/* The value at the element that x reads or updates; adds to *cost what computing it there costs. */
static bool value_for(const again *a, const dc_access *writer, const dc_access *x, dc_ex *value, double *cost) {
  const dc_pool *pool = &a->graph->pool;
  uint32_t d = dc_contiguous_dimension(a->graph, x->container);
  dc_fuse_value found;
  if (!x->element || dc_node_at(a->graph, x->node)->kind != DC_NODE_TASKLET || d >= dc_cont(a->graph, x->root)->rank) return false;
  const dc_exnode *index = dc_ex_node(pool, dc_ex_arg(pool, x->element, d));
  if (x->container != x->root || index->op != DC_EX_PARAM || !dc_fuse_reads_once(&a->t, x, 0)) return false;
  if (!dc_fuse_value_at(&a->t, writer, x->element, a->t.end[top_of(a, x)], &found)) return false;
  price p = {a, top_of(a, x), index->ref, 0, 0, false};
  dc_ex_walk(pool, found.value, add_part, &p);
  *value = found.value, *cost += p.cost;
  return p.loads <= 1 && !p.hidden;
}

/* ---- readers ---- */

/* Do all readers in other nodes read single elements, and does computing them there cost less than memory? */
static bool pays_for_readers(const again *a, const dc_access *writer) {
  double cost = 0;
  dc_ex value;
  uint32_t n = 0;
  DC_EACH_SITE(&a->t, writer->root, k) {
    if (top_of(a, at(a, k)) == top_of(a, writer)) continue;
    if (at(a, k)->writes || !value_for(a, writer, at(a, k), &value, &cost)) return false;
    n++;
  }
  return n && cost < price_of_memory(a, writer->root);
}

static bool compute_for_readers(const again *a, const dc_access *writer) {
  double cost = 0;
  dc_ex value;
  dc_dtype type = (dc_dtype)dc_cont(a->graph, writer->root)->dtype;
  if (!pays_for_readers(a, writer)) return false;
  DC_EACH_SITE(&a->t, writer->root, k) {
    const dc_access *x = at(a, k);
    if (top_of(a, x) != top_of(a, writer) && value_for(a, writer, x, &value, &cost))
      dc_node_forward(a->graph, x->node, x->element, dc_ex_cast(&a->graph->pool, type, value));
  }
  return true;
}

/* ---- updates ---- */

/* The first access of another node; NULL if there is none. */
static const dc_access *first_elsewhere(const again *a, const dc_access *writer) {
  DC_EACH_SITE(&a->t, writer->root, k)
    if (top_of(a, at(a, k)) != top_of(a, writer)) return at(a, k);
  return NULL;
}

static bool is_parallel(const again *a, dc_nid node) {
  for (dc_nid m = a->t.parent[node]; m; m = a->t.parent[m])
    if (dc_node_at(a->graph, m)->map.schedule != DC_MAP_PARALLEL) return false;
  return true;
}

/* What the writer's node still does with the container, it does with one of its own. */
static void set_apart(again *a, const dc_access *writer) {
  dc_container k = *dc_cont(a->graph, writer->root);
  dc_cid own = dc_container_add(a->graph, dc_cont_name(a->graph, writer->root), (dc_dtype)k.dtype, k.rank, k.shape, DC_ROLE_TEMP);
  dc_cont(a->graph, own)->strides = k.strides;
  dc_node_rename(a->graph, top_of(a, writer), writer->root, own);
  dc_node_at(a->graph, writer->node)->tasklet.out = own;
}

/* Symbols: the update meets every element, see dc_sites_store_all. */
static bool compute_for_update(again *a, const dc_access *writer) {
  double cost = 0;
  dc_ex value;
  dc_pool *pool = &a->graph->pool;
  const dc_access *u = first_elsewhere(a, writer);
  dc_dtype type = (dc_dtype)dc_cont(a->graph, writer->root)->dtype;
  if (!u || !u->writes || !u->reads || dc_node_at(a->graph, u->node)->kind != DC_NODE_TASKLET) return false;
  if (dc_dtype_compute(type) != type || type == DC_BOOL || dc_node_at(a->graph, u->node)->tasklet.guard || !is_parallel(a, u->node)) return false;
  if (!dc_sites_store_all(&a->t, u, 0) || !value_for(a, writer, u, &value, &cost) || cost >= price_of_memory(a, writer->root)) return false;
  dc_tasklet *t = &dc_node_at(a->graph, u->node)->tasklet;
  dc_ex sum = dc_ex_prim2(pool, dc_wcr_prim((dc_wcr)t->wcr), dc_ex_cast(pool, type, value), dc_ex_cast(pool, type, t->value));
  t->value = sum, t->wcr = DC_WCR_NONE;
  set_apart(a, writer);
  return true;
}

/* ---- the pass ---- */

/* Is every use of the buffer in this scope, after the one write of the writer's node, in nodes that have not changed? */
static bool is_candidate(const again *a, const dc_access *writer) {
  uint32_t n = 0;
  dc_nid last = 0;
  DC_EACH_SITE(&a->t, writer->root, k) {
    dc_nid top = top_of(a, at(a, k));
    bool early = at(a, k) != writer && a->t.order[at(a, k)->node] <= a->t.order[writer->node];
    if (early || a->dirty[top] || (at(a, k)->writes && at(a, k) != writer && top == top_of(a, writer))) return false;
    n += top != last, last = top;
  }
  return n > 1 && n == a->users[writer->root].nodes;
}

static void mark_dirty(again *a, dc_cid root) {
  DC_EACH_SITE(&a->t, root, k) a->dirty[top_of(a, at(a, k))] = true;
}

static bool again_round(dc_graph *graph, dc_arena *arena, const dc_scope *scope) {
  again a = {.graph = graph, .users = dc_fuse_count_users(graph, arena)};
  dc_sites_build(graph, arena, scope->v, scope->n, &a.t);
  a.symbols = DC_NEW_ARRAY(arena, int64_t, graph->pool.symbols.n), a.dirty = DC_NEW_ARRAY(arena, bool, graph->nodes.n);
  dc_work_guess(&graph->pool, a.symbols);
  bool changed = false;
  for (uint32_t k = a.t.accesses.n; k-- > 0;) { /* what is computed of others first, while they are in memory */
    const dc_access *w = at(&a, k);
    bool plain = w->writes && !w->reads && !w->initialised && w->element && w->container == w->root;
    if (!plain || dc_node_at(graph, w->node)->kind != DC_NODE_TASKLET || !is_candidate(&a, w)) continue;
    if (!compute_for_readers(&a, w) && !compute_for_update(&a, w)) continue;
    mark_dirty(&a, w->root);
    changed = true;
  }
  return changed;
}

enum { MAX_ROUNDS = 64 };

dc_status dc_pass_again(dc_graph *graph) {
  bool any = false;
  for (uint32_t s = 0; s < graph->states.n; s++) {
    bool changed = true;
    for (int round = 0; round < MAX_ROUNDS && changed; round++) {
      dc_arena arena = {0};
      changed = again_round(graph, &arena, &graph->states.v[s].scope);
      dc_arena_free(&arena);
      any |= changed;
    }
  }
  if (any) dc_fuse_contract(graph, &(dc_fuse_options){0});
  return DC_OK;
}
