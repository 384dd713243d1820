/* Blocks: what makes the terms of a sum runs in the blocks that the sum was split into, so that the two can share their loops.
 *
 *     map n, w in 0:56 { D[n, w] = .. }                         map n, p in 0:2, w in 0:28 { D[n, 28*p + w] = .. }
 *     map p in 0:2 { reduce n, w in 0:28 {             becomes  map p in 0:2 { reduce n, w in 0:28 {
 *       S[p] sum= D[n, 28*p + w] } }                              S[p] sum= D[n, 28*p + w] } }
 *
 * Runs inside maps that both have become part of; merging follows.  Does nothing where machine->teams is 0: sums are split for a
 * device only (split.c).  Symbols: only a constant range is cut. */
#include <string.h>

#include "passes/access.h"
#include "passes/passes.h"

/* A dimension of what a map writes, indexed by one of its parameters alone; what a reader says of it. */
typedef struct {
  const dc_graph *graph;
  dc_cid container;
  uint32_t dimension;
  int64_t extent; /* the parameter's range is 0:extent */
  int64_t size;   /* of the blocks that a reader takes; 0: none found */
} search;

/* The size of the blocks in size * p + r, r in 0:size and p over all blocks of the extent; 0: it is no such. */
static int64_t size_of_blocks(dc_pool *pool, dc_ex index, int64_t extent) {
  const dc_exnode *node = dc_ex_node(pool, index);
  int64_t size = 0, within = 0, blocks = 0, by;
  if (node->op != DC_EX_LINEAR || node->nargs != 4 || node->i) return 0;
  for (uint32_t k = 0; k < 2; k++) {
    const dc_exnode *term = dc_ex_node(pool, dc_ex_arg(pool, index, 2 * k));
    int64_t range;
    if (!dc_ex_is_int(pool, dc_ex_arg(pool, index, 2 * k + 1), &by) || term->op != DC_EX_PARAM) return 0;
    if (!dc_param_counts_to(pool, term->ref, &range)) return 0;
    if (by == 1) within = range;
    else size = by, blocks = range;
  }
  return size > 1 && size == within && blocks * size == extent ? size : 0;
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_READ || node->ref != s->container || s->size || s->dimension >= node->nargs) return;
  s->size = size_of_blocks((dc_pool *)pool, dc_ex_arg(pool, e, s->dimension), s->extent);
}

static void look_at(search *s, dc_nid id) {
  const dc_node *node = dc_node_at(s->graph, id);
  if (node->kind == DC_NODE_TASKLET) dc_ex_walk(&s->graph->pool, node->tasklet.value, look_at_read, s);
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++) look_at(s, node->map.body.v[k]);
}

static void cut(dc_graph *graph, dc_nid id, uint32_t at, int64_t size, int64_t blocks) {
  dc_pool *pool = &graph->pool;
  const dc_map map = dc_node_at(graph, id)->map;
  const dc_param old = map.params[at];
  dc_ex zero = dc_ex_int(pool, 0);
  dc_param block = dc_param_new(pool, "p", zero, dc_ex_int(pool, blocks), 0);
  dc_param within = dc_param_new(pool, dc_name_text(&graph->names, pool->params.v[old].name), zero, dc_ex_int(pool, size), 0);
  dc_param *params = DC_NEW_ARRAY(&graph->arena, dc_param, map.n_params + 1);
  memcpy(params, map.params, (at + 1) * sizeof *params);
  memcpy(params + at + 1, map.params + at, (map.n_params - at) * sizeof *params);
  params[at] = block, params[at + 1] = within;
  dc_ex index = dc_ix_add(pool, dc_ix_mul(pool, dc_ex_par(pool, block), dc_ex_int(pool, size)), dc_ex_par(pool, within));
  dc_node_substitute(graph, id, old, index);
  dc_node_at(graph, id)->map.params = params, dc_node_at(graph, id)->map.n_params = map.n_params + 1;
}

/* Cuts one loop of a map, if something behind it in its scope reads what it writes in blocks of that loop. */
static bool cut_one(dc_graph *graph, const dc_scope *scope, uint32_t position) {
  const dc_map map = dc_node_at(graph, scope->v[position])->map;
  for (uint32_t j = 0; j < map.body.n; j++) {
    const dc_node *node = dc_node_at(graph, map.body.v[j]);
    for (uint32_t d = 0; node->kind == DC_NODE_TASKLET && d < node->tasklet.rank; d++)
      for (uint32_t k = 0; k < map.n_params; k++) {
        search s = {graph, node->tasklet.out, d, 0, 0};
        if (node->tasklet.index[d] != dc_ex_par(&graph->pool, map.params[k])) continue;
        if (!dc_param_counts_to(&graph->pool, map.params[k], &s.extent)) continue;
        for (uint32_t b = position + 1; b < scope->n && !s.size; b++) look_at(&s, scope->v[b]);
        if (s.size) return cut(graph, scope->v[position], k, s.size, s.extent / s.size), true;
      }
  }
  return false;
}

static void visit(dc_graph *graph, dc_nid id) {
  if (dc_node_at(graph, id)->kind != DC_NODE_MAP) return;
  const dc_scope scope = dc_node_at(graph, id)->map.body;
  for (uint32_t k = 0; k < scope.n; k++) {
    const dc_node *node = dc_node_at(graph, scope.v[k]);
    if (node->kind != DC_NODE_MAP) continue;
    if (node->map.schedule == DC_MAP_PARALLEL && node->map.n_params < DC_MAX_MAP_PARAMS) (void)cut_one(graph, &scope, k);
    visit(graph, scope.v[k]);
  }
}

dc_status dc_pass_blocks(dc_graph *graph) {
  for (uint32_t state = 0; state < graph->states.n && graph->machine.teams; state++) {
    const dc_scope scope = graph->states.v[state].scope;
    for (uint32_t k = 0; k < scope.n; k++) visit(graph, scope.v[k]);
  }
  return DC_OK;
}
