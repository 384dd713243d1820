/* Random operators without a seed draw from streams of their own: the first from that of seed 0, the next from that of
 * seed 1, and so on.  ONNX leaves the choice; this one gives the same numbers at each call. */
#include <string.h>

#include "ops/ops.h"

/* The seed among a row's attributes; NULL: it draws nothing. */
static const dc_row_attr *seed_of(dc_ops *ops, const dc_graph *graph, const dc_library *lib) {
  const dc_row *row = dc_ops_row_of(ops, graph, lib);
  const dc_row_attr *attrs = NULL;
  uint32_t n = row ? dc_row_attrs(row, &attrs) : 0;
  for (uint32_t k = 0; k < n; k++)
    if (!attrs[k].required && strcmp(attrs[k].name, "seed") == 0) return &attrs[k];
  return NULL;
}

static void add_attr(dc_graph *graph, dc_nid node, dc_attr attr) {
  dc_library *lib = &dc_node_at(graph, node)->lib;
  dc_attr *all = DC_NEW_ARRAY(&graph->arena, dc_attr, lib->n_attr + 1);
  if (lib->n_attr) memcpy(all, lib->attr, lib->n_attr * sizeof *all);
  all[lib->n_attr++] = attr;
  lib->attr = all;
}

static void seed_graph(dc_ops *ops, dc_graph *graph, uint32_t *drawn) {
  for (dc_nid id = 1; id < graph->nodes.n; id++) {
    const dc_node *n = dc_node_at(graph, id);
    const dc_row_attr *seed = n->kind == DC_NODE_LIBRARY ? seed_of(ops, graph, &n->lib) : NULL;
    if (!seed || dc_node_attr(graph, id, "seed")) continue;
    bool is_float = strcmp(seed->fallback, "none") == 0;
    if (*drawn) add_attr(graph, id, is_float ? dc_attr_float(graph, "seed", (float)*drawn) : dc_attr_int(graph, "seed", *drawn));
    ++*drawn;
  }
  for (uint32_t k = 0; k < graph->subgraphs.n; k++) seed_graph(ops, graph->subgraphs.v[k], drawn);
}

void dc_ops_seed(dc_ops *ops, dc_graph *graph) {
  uint32_t drawn = 0;
  seed_graph(ops, graph, &drawn);
}
