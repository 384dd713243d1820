/* Operators that write what they read. */
#include "ir/graph.h"

static bool reads(const dc_graph *graph, dc_nid id, dc_cid buffer) { return dc_node_touches_one(graph, id, DC_USE_READ, buffer); }

dc_nid dc_node_copy(dc_graph *graph, dc_cid from, dc_cid to) {
  dc_container c = *dc_cont(graph, to);
  dc_param params[DC_MAX_RANK];
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < c.rank; d++) {
    params[d] = dc_param_new(&graph->pool, "x", dc_ex_int(&graph->pool, 0), c.shape[d], 0);
    index[d] = dc_ex_par(&graph->pool, params[d]);
  }
  dc_ex value = dc_ex_read(&graph->pool, (dc_dtype)c.dtype, from, index, c.rank);
  return dc_node_wrap(graph, DC_MAP_PARALLEL, params, c.rank, dc_node_tasklet(graph, to, DC_WCR_NONE, index, c.rank, 0, value));
}

void dc_scope_separate(dc_graph *graph, dc_scope *scope) {
  dc_scope before = *scope, after = {0};
  bool any = false;
  for (uint32_t k = 0; k < before.n; k++) {
    dc_nid id = before.v[k];
    dc_library lib = dc_node_at(graph, id)->lib;
    bool is_library = dc_node_at(graph, id)->kind == DC_NODE_LIBRARY;
    dc_scope_push(graph, &after, id);
    for (uint32_t j = 0; is_library && j < lib.n_out; j++) {
      dc_cid out = lib.out[j];
      if (!out || (dc_cont(graph, out)->rank && !dc_cont(graph, out)->shape) || !reads(graph, id, dc_container_root(graph, out))) continue;
      dc_container c = *dc_cont(graph, out);
      dc_cid own = dc_container_add(graph, dc_cont_name(graph, out), (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_TEMP);
      lib.out[j] = own;
      dc_scope_push(graph, &after, dc_node_copy(graph, own, out));
      any = true;
    }
  }
  if (any) *scope = after;
}
