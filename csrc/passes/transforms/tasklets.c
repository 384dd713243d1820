/* Tasklets that become one, and one that becomes several.
 *
 * What passes between two tasklets of a scope is an element of a temporary that only they use: a register inside a map.
 * Fusion puts the value where it is read; fission gives each operation of a value a tasklet and a register of its own. */
#include "passes/fuse.h"
#include "passes/transforms/transforms.h"

enum { MAX_VALUE = 2000, MAX_PARTS = 256 };

/* ---- TaskletFusion ---- */

typedef struct {
  const dc_transform *t;
  const dc_site_table *sites;
  dc_scope *scope;
} fusion;

static const dc_access *at(const fusion *f, uint32_t k) { return &f->sites->accesses.v[k]; }
static bool is_tasklet(const fusion *f, dc_nid node) { return dc_node_at(f->t->graph, node)->kind == DC_NODE_TASKLET; }

/* The tasklet that reads all that w writes, with which w stands in one scope; 0 if there is none. */
static dc_nid only_reader(const fusion *f, const dc_access *w) {
  dc_nid reader = 0;
  DC_EACH_SITE(f->sites, w->root, k) {
    const dc_access *a = at(f, k);
    if (a == w) continue;
    if (a->writes || a->element != w->element || !is_tasklet(f, a->node) || (reader && a->node != reader)) return 0;
    reader = a->node;
  }
  if (!reader || f->sites->parent[reader] != f->sites->parent[w->node] || f->sites->order[reader] <= f->sites->order[w->node]) return 0;
  return reader;
}

static bool try_fuse(const fusion *f, const dc_access *w) {
  dc_graph *graph = f->t->graph;
  if (!w->writes || w->reads || w->initialised || !is_tasklet(f, w->node) || w->container != w->root) return false;
  dc_tasklet first = dc_node_at(graph, w->node)->tasklet;
  dc_nid reader = only_reader(f, w);
  if (first.guard || first.wcr || !reader || !dc_transform_means(f->t, w->node) || !dc_transform_means(f->t, reader)) return false;
  if (dc_sites_overwrite(f->sites, first.value, f->sites->order[w->node], f->sites->order[reader])) return false;
  dc_tasklet second = dc_node_at(graph, reader)->tasklet;
  uint32_t sizes = dc_fuse_tree_size(&graph->pool, first.value, MAX_VALUE) + dc_fuse_tree_size(&graph->pool, second.value, MAX_VALUE);
  if (sizes > MAX_VALUE) return false; /* a value that is read twice is printed twice */
  dc_node_forward(graph, reader, w->element, dc_ex_cast(&graph->pool, (dc_dtype)dc_cont(graph, w->root)->dtype, first.value));
  dc_nid parent = f->sites->parent[w->node];
  dc_scope_remove(parent ? &dc_node_at(graph, parent)->map.body : f->scope, w->node);
  return true;
}

/* Uses by any top-level node of any state; the table of one state knows its own. */
static bool is_private(const fusion *f, const dc_use_count *users, dc_cid root) {
  uint32_t tops = 0, last = 0;
  DC_EACH_SITE(f->sites, root, k) {
    dc_nid top = at(f, k)->node;
    while (f->sites->parent[top]) top = f->sites->parent[top];
    tops += top != last, last = top;
  }
  return users[root].nodes == tops;
}

static bool fuse_one(const fusion *f, const dc_use_count *users) {
  for (uint32_t k = 0; k < f->sites->accesses.n; k++)
    if (at(f, k)->writes && is_private(f, users, at(f, k)->root) && try_fuse(f, at(f, k))) return true;
  return false;
}

dc_status dc_transform_tasklet_fusion(const dc_transform *t, uint32_t *count) {
  for (uint32_t s = 0; s < t->graph->states.n && !t->graph->subgraphs.n; s++) {
    dc_scope *scope = &t->graph->states.v[s].scope;
    for (bool again = true; again;) {
      dc_arena arena = {0};
      dc_site_table sites = {0};
      dc_sites_build(t->graph, &arena, scope->v, scope->n, &sites);
      again = fuse_one(&(fusion){t, &sites, scope}, dc_fuse_count_users(t->graph, &arena));
      *count += again;
      dc_arena_free(&arena);
    }
  }
  return DC_OK;
}

/* ---- TaskletFission ---- */

typedef struct {
  dc_graph *graph;
  const dc_tasklet *whole;
  bool in_map;
  dc_scope *out;
  dc_ex from[MAX_PARTS], to[MAX_PARTS]; /* an operation and the READ of its register */
  uint32_t n, open; /* done, and waiting for their parts */
} fission;

static dc_ex split(fission *f, dc_ex e);

/* Is it more than a leaf, converted perhaps?  Index arithmetic on 64-bit integers is one. */
static bool is_operation(const dc_pool *pool, dc_ex e) {
  while (dc_ex_node(pool, e)->op == DC_EX_CAST || dc_ex_node(pool, e)->op == DC_EX_BITS) e = dc_ex_arg(pool, e, 0);
  return dc_ex_node(pool, e)->op < DC_PRIM_COUNT || dc_ex_node(pool, e)->op == DC_EX_SELECT;
}

/* The value in a register of its own. */
static dc_ex part(fission *f, dc_ex e) {
  dc_graph *graph = f->graph;
  if (!is_operation(&graph->pool, e)) return e;
  for (uint32_t k = 0; k < f->n; k++)
    if (f->from[k] == e) return f->to[k];
  if (f->n + f->open == MAX_PARTS) return e;
  f->open++;
  dc_ex value = split(f, e);
  dc_dtype type = dc_ex_dtype(&graph->pool, e);
  dc_cid c = dc_container_add(graph, "part", type, 0, NULL, DC_ROLE_TEMP);
  if (f->in_map) dc_cont(graph, c)->storage = DC_STORE_REGISTER;
  dc_scope_push(graph, f->out, dc_node_tasklet(graph, c, DC_WCR_NONE, NULL, 0, f->whole->guard, value));
  f->open--;
  f->from[f->n] = e, f->to[f->n] = dc_ex_read(&graph->pool, type, c, NULL, 0);
  return f->to[f->n++];
}

/* The same operation on parts.  What only one side of a condition computes stays there: it may read outside otherwise. */
static dc_ex split(fission *f, dc_ex e) {
  dc_pool *pool = &f->graph->pool;
  dc_exnode node = *dc_ex_node(pool, e);
  if (node.op == DC_EX_CAST) return dc_ex_cast(pool, (dc_dtype)node.dtype, split(f, dc_ex_arg(pool, e, 0)));
  if (node.op == DC_EX_BITS) return dc_ex_bits(pool, (dc_dtype)node.dtype, split(f, dc_ex_arg(pool, e, 0)));
  if (!is_operation(pool, e)) return e;
  dc_ex a = part(f, dc_ex_arg(pool, e, 0));
  if (node.op == DC_EX_SELECT) return dc_ex_select(pool, a, dc_ex_arg(pool, e, 1), dc_ex_arg(pool, e, 2));
  if (node.nargs == 1) return dc_ex_prim1(pool, (dc_op)node.op, a);
  dc_ex b = dc_ex_arg(pool, e, 1);
  return dc_ex_prim2(pool, (dc_op)node.op, a, dc_prims[node.op].kind == DC_PRIM_LOGIC ? b : part(f, b));
}

static void split_tasklets(const dc_transform *t, dc_scope *scope, bool in_map, uint32_t *count) {
  dc_scope out = {0};
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k];
    dc_node node = *dc_node_at(t->graph, id);
    if (node.kind == DC_NODE_MAP) {
      split_tasklets(t, &node.map.body, true, count);
      dc_node_at(t->graph, id)->map.body = node.map.body;
    } else if (node.kind == DC_NODE_TASKLET && dc_transform_means(t, id) && !dc_ex_uses_op(&t->graph->pool, node.tasklet.value, DC_RAND)) {
      fission f = {.graph = t->graph, .whole = &node.tasklet, .in_map = in_map, .out = &out};
      dc_ex value = split(&f, node.tasklet.value);
      dc_node_at(t->graph, id)->tasklet.value = value;
      *count += f.n;
    }
    dc_scope_push(t->graph, &out, id);
  }
  *scope = out;
}

dc_status dc_transform_tasklet_fission(const dc_transform *t, uint32_t *count) {
  for (uint32_t s = 0; s < t->graph->states.n; s++) {
    dc_scope scope = t->graph->states.v[s].scope;
    split_tasklets(t, &scope, false, count);
    t->graph->states.v[s].scope = scope;
  }
  return DC_OK;
}
