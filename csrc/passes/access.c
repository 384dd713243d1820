/* Accesses and the proofs about them.
 *
 * The one lemma: if  f = Q*p + r  and  g = Q*q + s  with |r - s| < Q, then f = g forces p = q.
 * With Q = 1 it covers plain indices, with Q > 1 the digits of flattened and grouped ones.  Q may be a symbol only where
 * its minimum is 1; two symbols may be equal or not, neither is counted on.  Parameters are taken to be inside their
 * ranges: of a loop that does not run everything is proven, and nothing is done. */
#include "passes/access.h"

/* ---- collection ---- */

typedef struct {
  dc_graph *graph;
  dc_arena *arena;
  dc_accesses *out;
  dc_nid by; /* whose expression is being walked */
} collector;

static void add(const collector *c, dc_access access) {
  access.root = dc_container_root(c->graph, access.container);
  DC_PUSH(c->arena, c->out, access);
}

static void add_read(void *context, const dc_pool *pool, dc_ex e) {
  const collector *c = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ) add(c, (dc_access){.container = node->ref, .element = e, .node = c->by, .reads = true});
}

static void add_reads(collector *c, dc_ex e, dc_nid by) {
  c->by = by;
  if (e) dc_ex_walk(&c->graph->pool, e, add_read, c);
}

static void collect_tasklet(collector *c, dc_nid id, bool in_reduce) {
  dc_tasklet t = dc_node_at(c->graph, id)->tasklet;
  add_reads(c, t.guard, id);
  add_reads(c, t.value, id);
  for (uint32_t d = 0; d < t.rank; d++) add_reads(c, t.index[d], id);
  dc_ex element = dc_ex_read(&c->graph->pool, (dc_dtype)dc_cont(c->graph, t.out)->dtype, t.out, t.index, t.rank);
  add(c, (dc_access){.container = t.out, .element = element, .node = id, .writes = true, .reads = t.wcr && !in_reduce,
                     .initialised = t.wcr && in_reduce});
}

static void collect(collector *c, dc_nid id, bool in_reduce) {
  dc_node node = *dc_node_at(c->graph, id);
  if (node.kind == DC_NODE_TASKLET) {
    collect_tasklet(c, id, in_reduce);
  } else if (node.kind == DC_NODE_LIBRARY) {
    for (uint32_t k = 0; k < node.lib.n_in; k++)
      if (node.lib.in[k]) add(c, (dc_access){.container = node.lib.in[k], .node = id, .reads = true});
    for (uint32_t k = 0; k < node.lib.n_out; k++)
      if (node.lib.out[k]) add(c, (dc_access){.container = node.lib.out[k], .node = id, .writes = true});
  } else {
    for (uint32_t k = 0; k < node.map.n_params; k++) {
      dc_parameter p = c->graph->pool.params.v[node.map.params[k]];
      add_reads(c, p.begin, id);
      add_reads(c, p.end, id);
    }
    for (uint32_t k = 0; k < node.map.body.n; k++) collect(c, node.map.body.v[k], in_reduce || node.map.schedule == DC_MAP_REDUCE);
  }
}

void dc_access_collect(dc_graph *graph, dc_arena *arena, dc_nid node, bool in_reduce, dc_accesses *out) {
  collector c = {graph, arena, out, node};
  collect(&c, node, in_reduce);
}

/* ---- parameters ---- */

typedef struct {
  const dc_param *set;
  uint32_t n;
  bool other;
} param_search;

bool dc_access_in_set(const dc_param *set, uint32_t n, dc_param p) {
  for (uint32_t k = 0; k < n; k++)
    if (set[k] == p) return true;
  return false;
}

static void look_at_param(void *context, const dc_pool *pool, dc_ex e) {
  param_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_PARAM && !dc_access_in_set(s->set, s->n, node->ref)) s->other = true;
}

bool dc_access_uses_other_param(const dc_pool *pool, dc_ex e, const dc_param *set, uint32_t n) {
  param_search s = {set, n, false};
  if (e) dc_ex_walk(pool, e, look_at_param, &s);
  return s.other;
}

bool dc_map_moves(const dc_pool *pool, dc_ex e, const dc_map *map) {
  for (uint32_t k = 0; e && k < map->n_params; k++)
    if (dc_ex_uses_param(pool, e, map->params[k])) return true;
  return false;
}

static bool begins_at_zero(const dc_pool *pool, dc_param p) {
  dc_parameter range = pool->params.v[p];
  int64_t begin, step;
  return dc_ex_is_int(pool, range.begin, &begin) && !begin && dc_ex_is_int(pool, range.step, &step) && step == 1;
}

bool dc_param_counts(const dc_pool *pool, dc_param p) {
  dc_ex end = pool->params.v[p].end;
  return begins_at_zero(pool, p) && !dc_ex_uses_op(pool, end, DC_EX_PARAM) && !dc_ex_uses_op(pool, end, DC_EX_READ);
}

bool dc_param_counts_to(const dc_pool *pool, dc_param p, int64_t *extent) {
  return begins_at_zero(pool, p) && dc_ex_is_int(pool, pool->params.v[p].end, extent);
}

bool dc_param_same_range(const dc_pool *pool, dc_param p, dc_param q) {
  dc_parameter a = pool->params.v[p], b = pool->params.v[q];
  return a.begin == b.begin && a.end == b.end && a.step == b.step;
}

bool dc_access_covers(const dc_pool *pool, dc_param p, dc_ex extent) {
  dc_parameter range = pool->params.v[p];
  int64_t begin, step;
  return dc_ex_is_int(pool, range.begin, &begin) && begin == 0 && dc_ex_is_int(pool, range.step, &step) && step == 1 && range.end == extent;
}

/* ---- proofs ---- */

bool dc_access_conflicts(const dc_access *a, const dc_access *b) { return a->root == b->root && (a->writes || b->writes); }

dc_ex dc_access_address(dc_graph *graph, dc_cid c, const dc_ex *index) {
  dc_pool *pool = &graph->pool;
  dc_ex sum = dc_ex_int(pool, 0), stride = dc_ex_int(pool, 1);
  for (uint32_t d = dc_cont(graph, c)->rank; d-- > 0;) {
    const dc_container *k = dc_cont(graph, c);
    sum = dc_ix_add(pool, sum, dc_ix_mul(pool, index[d], k->strides ? k->strides[d] : stride));
    stride = dc_ix_mul(pool, stride, dc_cont(graph, c)->shape[d]);
  }
  for (; dc_cont(graph, c)->alias_of; c = dc_cont(graph, c)->alias_of)
    if (dc_cont(graph, c)->alias_offset) sum = dc_ix_add(pool, sum, dc_cont(graph, c)->alias_offset);
  return sum;
}

static dc_ex flat_address(dc_graph *graph, dc_ex element) {
  const dc_exnode node = *dc_ex_node(&graph->pool, element);
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(&graph->pool, element, d);
  return dc_access_address(graph, node.ref, index);
}

typedef struct {
  dc_ex f, g; /* indices of one dimension */
} dimension;

/* Number of comparable dimensions of two accesses; different views compare as flat memory. */
static uint32_t dimensions(const dc_graph *graph, const dc_access *a, const dc_access *b) {
  if (!a->element || !b->element) return 0;
  return a->container == b->container ? dc_cont(graph, a->container)->rank : 1;
}

static dimension dimension_at(dc_graph *graph, const dc_access *a, const dc_access *b, uint32_t d) {
  if (a->container != b->container) {
    dc_ex f = flat_address(graph, a->element);
    return (dimension){f, flat_address(graph, b->element)};
  }
  return (dimension){dc_ex_arg(&graph->pool, a->element, d), dc_ex_arg(&graph->pool, b->element, d)};
}

static bool reads_data(const dc_pool *pool, dimension x) {
  return dc_ex_uses_op(pool, x.f, DC_EX_READ) || dc_ex_uses_op(pool, x.g, DC_EX_READ);
}

bool dc_access_disjoint(dc_graph *graph, const dc_access *a, const dc_access *b) {
  dc_pool *pool = &graph->pool;
  for (uint32_t d = 0; d < dimensions(graph, a, b); d++) {
    dimension x = dimension_at(graph, a, b, d);
    if (reads_data(pool, x)) continue;
    dc_ex difference = dc_ix_sub(pool, x.f, x.g);
    if (dc_ix_proves_ge(pool, difference, 1) || dc_ix_proves_ge(pool, dc_ix_sub(pool, x.g, x.f), 1)) return true;
  }
  return false;
}

static bool digit_forces_equal(dc_pool *pool, dimension x, const dc_param_pair *pair) {
  dc_ex cf, cg, r, s;
  if (reads_data(pool, x) || !dc_ix_split(pool, x.f, pair->p, &cf, &r) || !dc_ix_split(pool, x.g, pair->q, &cg, &s) || cf != cg)
    return false;
  if (!dc_ix_proves_ge(pool, cf, 1)) {
    cf = dc_ix_sub(pool, dc_ex_int(pool, 0), cf);
    if (!dc_ix_proves_ge(pool, cf, 1)) return false;
  }
  dc_ex room = dc_ix_sub(pool, cf, dc_ex_int(pool, 1)), difference = dc_ix_sub(pool, r, s);
  return dc_ix_proves_ge(pool, dc_ix_sub(pool, room, difference), 0) && dc_ix_proves_ge(pool, dc_ix_add(pool, room, difference), 0);
}

bool dc_access_forces_equal(dc_graph *graph, const dc_access *a, const dc_access *b, const dc_param_pair *pair,
                            const dc_param_pair *known, uint32_t n_known) {
  dc_pool *pool = &graph->pool;
  for (uint32_t d = 0; d < dimensions(graph, a, b); d++) {
    dimension x = dimension_at(graph, a, b, d);
    for (uint32_t k = 0; k < n_known; k++) {
      dc_ex p = dc_ex_par(pool, known[k].p);
      x.g = dc_ex_subst(pool, x.g, &known[k].q, &p, 1);
    }
    if (digit_forces_equal(pool, x, pair)) return true;
  }
  return false;
}

uint32_t dc_contiguous_dimension(const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  int64_t stride;
  if (!k->rank) return 0;
  uint32_t d = k->rank - 1;
  if (!k->strides) return d;
  while (d + 1 && !(dc_ex_is_int(&graph->pool, k->strides[d], &stride) && stride == 1)) d--;
  return d + 1 ? d : k->rank;
}

bool dc_access_runs_over(const dc_graph *graph, const dc_map *map, dc_cid c, const dc_ex *index, uint32_t skip, dc_param *out) {
  const dc_pool *pool = &graph->pool;
  const dc_container *k = dc_cont(graph, c);
  uint32_t seen = 0;
  for (uint32_t d = 0; d < k->rank; d++) {
    const dc_exnode *i = dc_ex_node(pool, index[d]);
    out[d] = 0;
    if (d == skip || (i->op == DC_EX_INT && i->i == 0 && dc_ex_is_one(pool, k->shape[d]))) continue;
    if (i->op != DC_EX_PARAM || !dc_access_in_set(map->params, map->n_params, i->ref)) return false;
    if (!dc_access_covers(pool, i->ref, k->shape[d]) || dc_access_in_set(out, d, i->ref)) return false;
    out[d] = i->ref, seen++;
  }
  return seen == map->n_params;
}

bool dc_access_is_whole(const dc_graph *graph, const dc_map *map, const dc_tasklet *t, uint32_t skip) {
  dc_param params[DC_MAX_RANK];
  return !t->guard && dc_access_runs_over(graph, map, t->out, t->index, skip, params);
}

const dc_tasklet *dc_access_only_copy(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || node->map.body.n != 1) return NULL;
  const dc_node *inner = dc_node_at(graph, node->map.body.v[0]);
  const bool copies = inner->kind == DC_NODE_TASKLET && !inner->tasklet.wcr && !inner->tasklet.guard;
  return copies && dc_ex_node(&graph->pool, inner->tasklet.value)->op == DC_EX_READ ? &inner->tasklet : NULL;
}

const dc_tasklet *dc_access_copy(const dc_graph *graph, dc_nid id) {
  const dc_tasklet *t = dc_access_only_copy(graph, id);
  const bool alike = t && dc_ex_node(&graph->pool, t->value)->nargs == t->rank;
  return alike && dc_access_is_whole(graph, &dc_node_at(graph, id)->map, t, UINT32_MAX) ? t : NULL;
}

bool dc_access_same_but_ones(const dc_graph *graph, dc_cid a, dc_cid b) {
  const dc_container *v = dc_cont(graph, a), *r = dc_cont(graph, b);
  uint32_t d = 0;
  for (uint32_t k = 0; k < v->rank; k++) {
    if (dc_ex_is_one(&graph->pool, v->shape[k])) continue;
    while (d < r->rank && dc_ex_is_one(&graph->pool, r->shape[d])) d++;
    if (d == r->rank || r->shape[d++] != v->shape[k]) return false;
  }
  while (d < r->rank && dc_ex_is_one(&graph->pool, r->shape[d])) d++;
  return d == r->rank;
}

void dc_access_index_but_ones(dc_graph *graph, dc_cid from, dc_cid to, const dc_ex *index, dc_ex *out) {
  const dc_ex zero = dc_ex_int(&graph->pool, 0);
  const dc_container *f = dc_cont(graph, from), *t = dc_cont(graph, to);
  for (uint32_t d = 0, k = 0; d < t->rank; d++) {
    out[d] = zero;
    if (dc_ex_is_one(&graph->pool, t->shape[d])) continue;
    while (dc_ex_is_one(&graph->pool, f->shape[k])) k++;
    out[d] = index[k++];
  }
}
