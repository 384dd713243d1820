/* Unions of parts of containers over the ranges of maps. */
#include "ir/flow_box.h"

dc_box dc_box_whole(dc_graph *graph, dc_arena *arena, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  if (!k->shape) return (dc_box){.is_all = true};
  dc_box box = {k->rank, DC_NEW_ARRAY(arena, dc_box_range, k->rank), false};
  for (uint32_t d = 0; d < box.rank; d++) box.range[d] = (dc_box_range){dc_ex_int(&graph->pool, 0), dc_cont(graph, c)->shape[d], 0, false};
  return box;
}

bool dc_box_needs_index(dc_graph *graph, dc_cid c, uint32_t d, dc_ex index) {
  dc_pool *pool = &graph->pool;
  if (dc_ex_uses_op(pool, index, DC_EX_READ)) return true;
  dc_ex extent = dc_cont(graph, c)->shape ? dc_cont(graph, c)->shape[d] : 0;
  if (!extent) return false;
  dc_ex below = dc_ix_sub(pool, dc_ex_int(pool, -1), index), above = dc_ix_sub(pool, index, extent);
  return dc_ix_proves_ge(pool, below, 0) || dc_ix_proves_ge(pool, above, 0);
}

dc_box dc_box_of_index(dc_graph *graph, dc_arena *arena, dc_cid c, const dc_ex *index) {
  dc_box box = dc_box_whole(graph, arena, c);
  for (uint32_t d = 0; d < box.rank; d++)
    if (!dc_box_needs_index(graph, c, d, index[d]))
      box.range[d] = (dc_box_range){index[d], dc_ix_add(&graph->pool, index[d], dc_ex_int(&graph->pool, 1)), 0, true};
  return box;
}

static void whole_dimension(dc_graph *graph, dc_box *box, uint32_t d, dc_cid c) {
  box->range[d] = (dc_box_range){dc_ex_int(&graph->pool, 0), dc_cont(graph, c)->shape[d], 0, false};
}

/* The value of an end of the range at the parameter's first or last value, whichever is nearer to that end; 0: unknown. */
static dc_ex extreme(dc_graph *graph, dc_ex e, dc_param p, bool least) {
  dc_pool *pool = &graph->pool;
  dc_parameter range = pool->params.v[p];
  dc_ex slope, rest;
  if (!dc_ex_uses_param(pool, e, p)) return e;
  bool reads = dc_ex_uses_op(pool, range.begin, DC_EX_READ) || dc_ex_uses_op(pool, range.end, DC_EX_READ);
  if (reads || !dc_ix_split(pool, e, p, &slope, &rest)) return 0;
  bool rises = dc_ix_proves_ge(pool, slope, 0), falls = !rises && dc_ix_proves_ge(pool, dc_ix_sub(pool, dc_ex_int(pool, 0), slope), 0);
  if (!rises && !falls) return 0;
  dc_ex span = dc_ix_sub(pool, dc_ix_sub(pool, range.end, range.begin), dc_ex_int(pool, 1));
  dc_ex last = dc_ix_add(pool, range.begin, dc_ix_mul(pool, dc_ix_div(pool, span, range.step), range.step));
  return dc_ix_add(pool, rest, dc_ix_mul(pool, slope, rises == least ? range.begin : last));
}

void dc_box_spread(dc_graph *graph, dc_box *box, dc_cid c, const dc_param *params, uint32_t n) {
  for (uint32_t d = 0; d < box->rank; d++)
    for (uint32_t k = n; k-- > 0;) {
      dc_box_range *r = &box->range[d];
      if (!dc_ex_uses_param(&graph->pool, r->begin, params[k]) && !dc_ex_uses_param(&graph->pool, r->end, params[k])) continue;
      dc_ex begin = extreme(graph, r->begin, params[k], true), end = extreme(graph, r->end, params[k], false);
      if (begin && end) *r = (dc_box_range){begin, end, 0, false};
      else whole_dimension(graph, box, d, c);
    }
}

void dc_box_join(dc_graph *graph, dc_box *to, const dc_box *more, dc_cid c) {
  dc_pool *pool = &graph->pool;
  if (to->is_all || more->is_all) {
    to->is_all = true, to->rank = 0;
    return;
  }
  for (uint32_t d = 0; d < to->rank; d++) {
    dc_box_range *a = &to->range[d];
    dc_box_range b = more->range[d];
    if (a->begin == b.begin && a->end == b.end) continue;
    bool a_first = dc_ix_proves_ge(pool, dc_ix_sub(pool, b.begin, a->begin), 0);
    bool b_first = dc_ix_proves_ge(pool, dc_ix_sub(pool, a->begin, b.begin), 0);
    bool a_last = dc_ix_proves_ge(pool, dc_ix_sub(pool, a->end, b.end), 0);
    bool b_last = dc_ix_proves_ge(pool, dc_ix_sub(pool, b.end, a->end), 0);
    if ((a_first || b_first) && (a_last || b_last)) *a = (dc_box_range){a_first ? a->begin : b.begin, a_last ? a->end : b.end, 0, false};
    else whole_dimension(graph, to, d, c);
  }
}

void dc_box_clip(dc_graph *graph, dc_box *box, dc_cid c) {
  dc_pool *pool = &graph->pool;
  for (uint32_t d = 0; d < box->rank; d++) {
    dc_box_range *r = &box->range[d];
    if (r->is_point) continue;
    dc_ex extent = dc_cont(graph, c)->shape[d];
    if (!dc_ix_proves_ge(pool, r->begin, 0)) r->begin = dc_ix_max(pool, r->begin, dc_ex_int(pool, 0));
    if (!dc_ix_proves_ge(pool, dc_ix_sub(pool, extent, r->end), 0)) r->end = dc_ix_min(pool, r->end, extent);
  }
}
