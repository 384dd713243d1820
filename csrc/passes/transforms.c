/* The public transformations: restricted runs of the passes, with the number of places where they applied. */
#include <string.h>

#include "passes/fuse.h"
#include "passes/loops.h"
#include "passes/passes.h"

typedef struct {
  dc_ops *ops;
  dc_graph *graph;
  const dc_nid *nodes; /* only these top-level nodes; NULL: all */
  uint32_t n_nodes;
} request;

static bool is_meant(const request *r, dc_nid node) { return !r->nodes || dc_access_in_set(r->nodes, r->n_nodes, node); }

/* ---- operators that are one tasklet over their output ---- */

static bool is_elementwise(const dc_graph *graph, const dc_scope *scope) {
  if (scope->n != 1) return false;
  const dc_node *node = dc_node_at(graph, scope->v[0]);
  if (node->kind == DC_NODE_TASKLET) return true;
  return node->map.schedule == DC_MAP_PARALLEL && node->map.body.n == 1 && dc_node_at(graph, node->map.body.v[0])->kind == DC_NODE_TASKLET;
}

/* `meant` gets the ids of the maps that replace operators that were meant. */
static dc_status expand_elementwise(const request *r, dc_scope *meant) {
  for (uint32_t s = 0; s < r->graph->states.n; s++) {
    dc_scope before = r->graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      dc_nid node = before.v[k];
      dc_scope body = {0};
      const dc_library *lib = &dc_node_at(r->graph, node)->lib;
      bool simple = dc_node_at(r->graph, node)->kind == DC_NODE_LIBRARY && is_meant(r, node) && !lib->wrt && lib->n_out == 1;
      uint32_t containers = r->graph->containers.n;
      if (simple) DC_TRY(dc_ops_expand(r->ops, r->graph, node, &body));
      simple = simple && is_elementwise(r->graph, &body) && r->graph->containers.n == containers;
      if (!simple) r->graph->containers.n = containers; /* temporaries of an expansion that is not used */
      dc_nid now = simple ? body.v[0] : node;
      if (is_meant(r, node)) dc_scope_push(r->graph, meant, now);
      dc_scope_push(r->graph, &after, now);
    }
    r->graph->states.v[s].scope = after;
  }
  return DC_OK;
}

/* ---- the transformations ---- */

static void merge_and_contract(const request *r, const dc_fuse_options *options, dc_fuse_counts *counts) {
  dc_fuse_merge(r->graph, options, counts);
  dc_fuse_contract(r->graph, options, counts);
}

static dc_status tasklet_fusion(const request *r, uint32_t *count) {
  dc_scope meant = {0};
  dc_fuse_counts counts = {0};
  dc_cid blocked;
  DC_TRY(dc_pass_infer(r->ops, r->graph, &blocked));
  if (blocked) return dc_error(DC_ERR_MODEL, "the value of '%s' must be known to compute shapes", dc_cont_name(r->graph, blocked));
  DC_TRY(expand_elementwise(r, &meant));
  dc_fuse_options options = {.producers_only = true, .whole_only = true, .forward_only = true, .nodes = meant.v, .n_nodes = meant.n};
  merge_and_contract(r, &options, &counts);
  return *count = counts.forwarded, DC_OK;
}

static dc_status map_fusion(const request *r, uint32_t *count) {
  dc_fuse_counts counts = {0};
  merge_and_contract(r, &(dc_fuse_options){.producers_only = true, .nodes = r->nodes, .n_nodes = r->n_nodes}, &counts);
  return *count = counts.merged, DC_OK;
}

static dc_status subgraph_fusion(const request *r, uint32_t *count) {
  dc_fuse_counts counts = {0};
  merge_and_contract(r, &(dc_fuse_options){.nodes = r->nodes, .n_nodes = r->n_nodes}, &counts);
  return *count = counts.merged, DC_OK;
}

static dc_status vectorization(const request *r, uint32_t *count) {
  for (uint32_t s = 0; s < r->graph->states.n; s++)
    for (uint32_t k = 0; k < r->graph->states.v[s].scope.n; k++)
      if (is_meant(r, r->graph->states.v[s].scope.v[k])) *count += dc_loops_order(r->graph, r->graph->states.v[s].scope.v[k]);
  return DC_OK;
}

static dc_status trivial_ranges(const request *r, uint32_t *count) {
  for (uint32_t s = 0; s < r->graph->states.n; s++) {
    dc_scope before = r->graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      dc_scope one = {0};
      dc_scope_push(r->graph, &one, before.v[k]);
      if (is_meant(r, before.v[k])) *count += dc_loops_drop_trivial(r->graph, &one);
      for (uint32_t j = 0; j < one.n; j++) dc_scope_push(r->graph, &after, one.v[j]);
    }
    r->graph->states.v[s].scope = after;
  }
  return DC_OK;
}

static const struct {
  const char *name;
  dc_status (*apply)(const request *, uint32_t *);
} table[] = {
    {"MapFusion", map_fusion},         {"SubgraphFusion", subgraph_fusion},
    {"TaskletFusion", tasklet_fusion}, {"TrivialMapRangeElimination", trivial_ranges},
    {"Vectorization", vectorization},
};

dc_status dc_transform_apply(dc_ops *ops, dc_graph *graph, const char *name, const dc_nid *nodes, uint32_t n_nodes, uint32_t *count) {
  request r = {ops, graph, nodes, n_nodes};
  dc_text names = {0};
  *count = 0;
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    if (strcmp(table[k].name, name) == 0) {
      dc_text_free(&names);
      DC_TRY(dc_error_at(table[k].apply(&r, count), "transformation '%s'", name));
      return dc_error_at(dc_graph_verify(graph), "after transformation '%s'", name);
    }
    dc_text_printf(&names, "%s%s", k ? ", " : "", table[k].name);
  }
  dc_status status = dc_error(DC_ERR_VALUE, "there is no transformation '%s'; there are %s", name, names.s);
  dc_text_free(&names);
  return status;
}
