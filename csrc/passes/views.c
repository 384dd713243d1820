/* Elements of a view that has its buffer's extents but for ones are written and read as the buffer's: what one name writes and
 * another reads is seen to be one thing, and can be computed where it is read.
 *
 *     temp T: f32[N, 4]   temp V: f32[N, 1, 4] view T        V[i, 0, j]   becomes   T[i, j] */
#include <stdlib.h>

#include "passes/access.h"
#include "passes/passes.h"

static bool lies_in_rows(const dc_container *k) { return k->shape && !k->strides && !k->is_host && k->storage == DC_STORE_HEAP; }

static bool is_plain(const dc_graph *graph, dc_cid view, dc_cid root) {
  const dc_dtype type = (dc_dtype)dc_cont(graph, root)->dtype;
  bool plain = lies_in_rows(dc_cont(graph, root));
  for (dc_cid c = view; c != root && plain; c = dc_cont(graph, c)->alias_of)
    plain = lies_in_rows(dc_cont(graph, c)) && !dc_cont(graph, c)->alias_offset && dc_cont(graph, c)->dtype == type;
  return plain;
}

typedef struct {
  dc_graph *graph;
  dc_cid *root; /* by container: the buffer that stands for it; 0: none */
} renaming;

static dc_ex rename_read(void *context, dc_pool *pool, dc_ex leaf) {
  const renaming *r = context;
  const dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK], to[DC_MAX_RANK];
  if (node.op != DC_EX_READ || !r->root[node.ref]) return leaf;
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, leaf, d);
  dc_access_index_but_ones(r->graph, node.ref, r->root[node.ref], index, to);
  return dc_ex_read(pool, (dc_dtype)node.dtype, r->root[node.ref], to, dc_cont(r->graph, r->root[node.ref])->rank);
}

static void rename_write(const renaming *r, dc_nid id) {
  const dc_tasklet *t = &dc_node_at(r->graph, id)->tasklet;
  const dc_cid view = t->out, root = r->root[view];
  if (!root) return;
  const uint32_t rank = dc_cont(r->graph, root)->rank;
  dc_ex *index = DC_NEW_ARRAY(&r->graph->arena, dc_ex, rank ? rank : 1);
  dc_access_index_but_ones(r->graph, view, root, t->index, index);
  dc_tasklet *to = &dc_node_at(r->graph, id)->tasklet;
  to->out = root, to->index = index, to->rank = rank;
}

static void rename_writes(const renaming *r, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(r->graph, scope->v[k]);
    if (node->kind == DC_NODE_MAP) rename_writes(r, &node->map.body);
    else if (node->kind == DC_NODE_TASKLET) rename_write(r, scope->v[k]);
  }
}

dc_status dc_pass_views(dc_graph *graph) {
  renaming r = {graph, calloc(graph->containers.n, sizeof *r.root)};
  bool any = false;
  if (!r.root) abort();
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_cid root = dc_container_root(graph, c);
    if (root != c && is_plain(graph, c, root) && dc_access_same_but_ones(graph, c, root)) r.root[c] = root, any = true;
  }
  for (uint32_t s = 0; s < graph->states.n && any; s++) {
    const dc_scope scope = graph->states.v[s].scope;
    rename_writes(&r, &scope);
    for (uint32_t k = 0; k < scope.n; k++) dc_node_rewrite(graph, scope.v[k], rename_read, &r);
  }
  free(r.root);
  if (any) dc_graph_drop_unused_views(graph);
  return DC_OK;
}
