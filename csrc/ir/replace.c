/* The contents of one graph in the place of a library node of another.
 *
 * They are inlined into a scope of their own first, so that an error leaves the state alone. */
#include "ir/replace.h"

#include "ir/inside.h"

static dc_ex same_symbol(void *context, const dc_pool *from, dc_ex leaf) {
  dc_pool *pool = context;
  dc_symbol s = from->symbols.v[dc_ex_node(from, leaf)->ref];
  return dc_ex_sym(pool, dc_symbol_get(pool, dc_name_text(from->names, s.name), s.min));
}

/* What has no type or shape yet takes them from what stands for it. */
static void take_type(dc_graph *graph, const dc_graph *inner, dc_cid c, dc_cid outer) {
  const dc_container *a = dc_cont(inner, c);
  dc_container *b = dc_cont(graph, outer);
  dc_importer importer = {same_symbol, NULL, &graph->pool}; /* extents hold no parameters and read nothing */
  dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, a->rank);
  for (uint32_t d = 0; d < a->rank; d++) shape[d] = dc_ex_import(&graph->pool, &inner->pool, a->shape[d], &importer);
  b->dtype = a->dtype, b->rank = a->rank, b->shape = shape;
}

static dc_status check_fit(dc_graph *graph, const dc_graph *inner, dc_cid c, dc_cid outer) {
  const dc_container *a = dc_cont(inner, c), *b = dc_cont(graph, outer);
  const char *name = dc_cont_name(inner, c), *other = dc_cont_name(graph, outer);
  if (a->dtype && a->shape && !b->shape && (!b->dtype || b->dtype == a->dtype)) return take_type(graph, inner, c, outer), DC_OK;
  if (a->dtype && a->dtype != b->dtype)
    return dc_error(DC_ERR_DTYPE, "array '%s' has type %s, but stands for '%s' of type %s", name, dc_dtype_name((dc_dtype)a->dtype), other,
                    dc_dtype_name((dc_dtype)b->dtype));
  if (!a->shape || !b->shape) return DC_OK; /* the operators inside will say */
  if (a->rank != b->rank)
    return dc_error(DC_ERR_SHAPE, "array '%s' has %u dimensions, but stands for '%s' with %u", name, a->rank, other, b->rank);
  for (uint32_t d = 0; d < a->rank; d++) {
    int64_t have, want;
    if (dc_ex_is_int(&inner->pool, a->shape[d], &have) && dc_ex_is_int(&graph->pool, b->shape[d], &want) && have != want)
      return dc_error(DC_ERR_SHAPE, "array '%s': dimension %u is %lld, but stands for '%s' with %lld", name, d, (long long)have, other,
                      (long long)want);
  }
  return DC_OK;
}

dc_status dc_node_replace(dc_graph *graph, dc_nid node, const dc_graph *inner, const dc_cid *map) {
  uint32_t n = 0, before = graph->nodes.n;
  dc_scope made = {0}, after = {0};
  dc_way way;
  if (!dc_node_way(graph, node, &way)) return dc_error(DC_ERR_VALUE, "node %u is in no state", node);
  for (uint32_t k = way.n_maps; k-- > 0;) DC_TRY(dc_map_run_in_order(graph, way.maps[k]));
  (void)dc_node_way(graph, node, &way); /* loops may stand between now */
  dc_inlined *containers = DC_NEW_ARRAY(&graph->arena, dc_inlined, inner->containers.n);
  for (dc_cid c = 1; c < inner->containers.n; c++) {
    if (!map[c]) continue;
    DC_TRY(check_fit(graph, inner, c, map[c]));
    containers[n++] = (dc_inlined){c, map[c], dc_box_whole(graph, &graph->arena, map[c])};
  }
  DC_TRY(dc_graph_inline(graph, &made, inner, containers, n, NULL, 0));
  for (dc_nid k = before; k < graph->nodes.n; k++)
    if (dc_node_at(graph, k)->kind != DC_NODE_LIBRARY && !dc_node_at(graph, k)->tag_op)
      dc_node_at(graph, k)->tag_op = dc_node_at(graph, node)->lib.op;
  dc_scope *scope = dc_way_scope(graph, &way);
  for (uint32_t k = 0; k < way.at; k++) dc_scope_push(graph, &after, scope->v[k]);
  for (uint32_t k = 0; k < made.n; k++) dc_scope_push(graph, &after, made.v[k]);
  for (uint32_t k = way.at + 1; k < scope->n; k++) dc_scope_push(graph, &after, scope->v[k]);
  *scope = after;
  return DC_OK;
}
