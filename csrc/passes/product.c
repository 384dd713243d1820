/* See product.h. */
#include "passes/product.h"

#include <math.h>

#include "ir/work.h"
#include "passes/access.h"

bool dc_product_find(const dc_graph *graph, dc_nid top, dc_nid tasklet, const dc_nid *maps, uint32_t n_maps, dc_map *reduce,
                     dc_product_place *out) {
  const dc_tasklet *t = &dc_node_at(graph, tasklet)->tasklet;
  dc_ex a, b;
  const dc_term term = dc_ex_term(&graph->pool, t->value, &a, &b);
  if (n_maps < 2 || t->wcr != DC_WCR_SUM || t->guard || !term) return false;
  const dc_map *outer = &dc_node_at(graph, maps[n_maps - 2])->map;
  *reduce = dc_node_at(graph, maps[n_maps - 1])->map;
  if (reduce->schedule != DC_MAP_REDUCE || outer->schedule != DC_MAP_PARALLEL || !outer->n_params) return false;
  *out = (dc_product_place){top, outer->params[outer->n_params - 1], reduce, maps, n_maps - 1, term, {a, b}};
  return true;
}

bool dc_product_moves_by_one(dc_pool *pool, dc_ex index, dc_param p) {
  dc_ex by, rest;
  int64_t one;
  return dc_ix_split(pool, index, p, &by, &rest) && dc_ex_is_int(pool, by, &one) && one == 1 && !dc_ex_uses_op(pool, rest, DC_EX_READ);
}

double dc_product_reads_of_each(dc_graph *graph, const dc_product_place *p, dc_ex read) {
  dc_pool *pool = &graph->pool;
  double times = 1;
  for (uint32_t k = 0; k < p->n_maps; k++) {
    const dc_map *map = &dc_node_at(graph, p->maps[k])->map;
    for (uint32_t j = 0; j < map->n_params; j++)
      if (!dc_ex_uses_param(pool, read, map->params[j])) times *= fmin(dc_param_trips(pool, map->params[j]), graph->machine.few_rows);
  }
  return times;
}

bool dc_product_writes(const dc_graph *graph, const dc_product_place *p, dc_cid c) {
  return dc_node_touches_one(graph, p->top, DC_USE_WRITE, dc_container_root(graph, c));
}

bool dc_product_copy_pays(dc_graph *graph, const dc_product_place *p, dc_ex read, dc_ex other) {
  const dc_pool *pool = &graph->pool;
  const dc_exnode *x = dc_ex_node(pool, read), *y = dc_ex_node(pool, other);
  bool are_reads = x->op == DC_EX_READ && y->op == DC_EX_READ && (x->dtype == DC_F32 || x->dtype == DC_F64);
  if (!are_reads || dc_ex_uses_param(pool, other, p->column)) return false;
  const dc_container *c = dc_cont(graph, x->ref);
  return c->storage == DC_STORE_HEAP && !c->strides && dc_product_reads_of_each(graph, p, read) >= graph->machine.few_rows &&
         !dc_product_writes(graph, p, x->ref);
}
