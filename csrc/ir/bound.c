/* Accesses of text that somebody wrote by hand stay inside their containers.
 *
 * Whoever wrote an index does not answer for it, so what the ranges of parameters do not prove is made safe here, once,
 * instead of in each backend. */
#include "ir/graph.h"

/* 0 <= index < extent by the ranges of symbols and parameters alone. */
static bool is_inside(dc_pool *pool, dc_ex index, dc_ex extent) {
  int64_t yes;
  return dc_ex_is_int(pool, dc_ex_in_range(pool, index, extent), &yes) && yes;
}

static dc_ex counted_from_end(dc_pool *pool, dc_ex index, dc_ex extent) {
  dc_ex negative = dc_ex_prim2(pool, DC_LT, index, dc_ex_int(pool, 0));
  return dc_ex_select(pool, negative, dc_ix_add(pool, index, extent), index);
}

/* An empty container has nothing that could be read instead: zero. */
static dc_ex unless_empty(dc_pool *pool, const dc_container *c, dc_ex read) {
  dc_ex filled = 0, zero = dc_ex_int(pool, 0);
  for (uint32_t d = 0; d < c->rank; d++) {
    if (is_inside(pool, zero, c->shape[d])) continue;
    dc_ex some = dc_ex_in_range(pool, zero, c->shape[d]);
    filled = filled ? dc_ex_prim2(pool, DC_AND, filled, some) : some;
  }
  return filled ? dc_ex_select(pool, filled, read, dc_ex_const(pool, (dc_dtype)c->dtype, 0)) : read;
}

static dc_ex bound_read(void *opaque, dc_pool *pool, dc_ex leaf) {
  const dc_graph *graph = opaque;
  dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op != DC_EX_READ) return leaf;
  const dc_container *c = dc_cont(graph, node.ref);
  dc_ex index[DC_MAX_RANK];
  bool changed = false;
  for (uint32_t d = 0; d < node.nargs; d++) {
    dc_ex at = index[d] = dc_ex_arg(pool, leaf, d);
    if (!c->shape || is_inside(pool, at, c->shape[d])) continue;
    dc_ex last = dc_ix_sub(pool, c->shape[d], dc_ex_int(pool, 1));
    index[d] = dc_ix_max(pool, dc_ix_min(pool, counted_from_end(pool, at, c->shape[d]), last), dc_ex_int(pool, 0));
    changed = true;
  }
  return changed ? unless_empty(pool, c, dc_ex_read(pool, (dc_dtype)node.dtype, node.ref, index, node.nargs)) : leaf;
}

static void bound_write(dc_graph *graph, dc_nid id) {
  dc_tasklet *t = &dc_node_at(graph, id)->tasklet;
  const dc_container *c = dc_cont(graph, t->out);
  for (uint32_t d = 0; c->shape && d < t->rank; d++) {
    if (is_inside(&graph->pool, t->index[d], c->shape[d])) continue;
    t->index[d] = counted_from_end(&graph->pool, t->index[d], c->shape[d]);
    dc_ex inside = dc_ex_in_range(&graph->pool, t->index[d], c->shape[d]);
    t->guard = t->guard ? dc_ex_prim2(&graph->pool, DC_AND, t->guard, inside) : inside;
  }
}

void dc_node_bound(dc_graph *graph, dc_nid node) {
  dc_node_kind kind = (dc_node_kind)dc_node_at(graph, node)->kind;
  if (kind == DC_NODE_TASKLET) {
    dc_node_rewrite(graph, node, bound_read, graph);
    bound_write(graph, node);
  }
  if (kind != DC_NODE_MAP) return;
  dc_scope body = dc_node_at(graph, node)->map.body;
  for (uint32_t k = 0; k < body.n; k++) dc_node_bound(graph, body.v[k]);
}
