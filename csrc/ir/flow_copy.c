/* Parts that memlets say, and copies between them. */
#include <string.h>

#include "ir/flow_build.h"

/* ---- reading ---- */

static dc_status index_part(building *b, dc_ex *out) {
  DC_TRY(dc_parser_or(&b->parser, out));
  dc_dtype type = dc_ex_dtype(&b->graph->pool, *out);
  if (!dc_dtype_is_integer(type)) return dc_parser_fail(&b->parser, "an integer index");
  *out = dc_ex_cast(&b->graph->pool, DC_I64, *out);
  return DC_OK;
}

static dc_status parse_range(building *b, dc_ex extent, dc_box_range *r) {
  dc_parser *p = &b->parser;
  bool took;
  *r = (dc_box_range){dc_ex_int(&b->graph->pool, 0), extent, 0, true};
  if (!dc_parser_is(p, ":")) DC_TRY(index_part(b, &r->begin));
  DC_TRY(dc_parser_accept(p, ":", &took));
  if (!took) {
    r->end = dc_ix_add(&b->graph->pool, r->begin, dc_ex_int(&b->graph->pool, 1));
    return DC_OK;
  }
  r->is_point = false;
  if (!dc_parser_is(p, ":") && !dc_parser_is(p, ",") && p->token.kind != TOK_END) DC_TRY(index_part(b, &r->end));
  if (!r->end) return dc_parser_fail(p, "an end, for the array has fewer dimensions");
  DC_TRY(dc_parser_accept(p, ":", &took));
  if (!took) return DC_OK;
  int64_t step;
  DC_TRY(index_part(b, &r->step));
  if (!dc_ex_is_int(&b->graph->pool, r->step, &step) || step < 1) return dc_parser_fail(p, "a positive constant step");
  if (step == 1) r->step = 0;
  return DC_OK;
}

static dc_status parse_box(building *b, const char *text, dc_cid c, dc_box *out) {
  dc_parser *p = &b->parser;
  const dc_container *k = dc_cont(b->graph, c);
  uint32_t n = 0, rank = k->rank;
  dc_box_range range[DC_MAX_RANK + 1];
  p->start = p->at = text, p->lets.n = 0;
  DC_TRY(dc_parser_next(p));
  for (bool more = p->token.kind != TOK_END; more;) {
    if (n > DC_MAX_RANK) return dc_parser_fail(p, "fewer dimensions");
    DC_TRY(parse_range(b, n < rank && k->shape ? dc_cont(b->graph, c)->shape[n] : 0, &range[n]));
    n++;
    DC_TRY(dc_parser_accept(p, ",", &more));
  }
  if (p->token.kind != TOK_END) return dc_parser_fail(p, "the end of the subset");
  bool scalar = rank == 0 && n == 1; /* "0" of a scalar */
  if (n != rank && !scalar)
    return dc_error(DC_ERR_MODEL, "array '%s' has %u dimensions, the subset has %u", dc_cont_name(b->graph, c), rank, n);
  *out = (dc_box){rank, dc_arena_copy(b->scratch, range, rank * sizeof *range), false};
  return DC_OK;
}

dc_status flow_subset(building *b, const char *text, dc_cid c, dc_box *out) {
  if (!text || !dc_cont(b->graph, c)->shape) {
    *out = dc_box_whole(b->graph, b->scratch, c);
    return DC_OK;
  }
  dc_parser_names names = b->parser.names;
  b->parser.names = (dc_parser_names){0};
  dc_status status = parse_box(b, text, c, out);
  b->parser.names = names;
  return dc_error_at(status, "subset [%s]", text);
}

static bool says(const building *b, const dc_memlet *m, dc_cid c) { return m->data && strcmp(m->data, dc_cont_name(b->graph, c)) == 0; }

dc_status flow_memlet(building *b, dc_eid e, dc_cid c, dc_box *out) {
  const dc_memlet *m = &dc_flow_edge_at(b->flow, e)->memlet;
  if (m->data && !says(b, m, c)) {
    const char *problem = dc_container_find(b->graph, m->data) ? "is not on the path of the edge" : "is no array";
    return flow_fail_at_edge(b, dc_error(DC_ERR_MODEL, "'%s' %s; expected '%s'", m->data, problem, dc_cont_name(b->graph, c)), e);
  }
  return flow_fail_at_edge(b, flow_subset(b, m->subset, c, out), e);
}

/* An index counts as a range of one: "0" of a dimension of one element is all of it. */
bool flow_is_whole(building *b, const dc_box *box, dc_cid c) {
  int64_t zero;
  for (uint32_t d = 0; d < box->rank; d++) {
    const dc_box_range *r = &box->range[d];
    if (r->step || !dc_ex_is_int(&b->graph->pool, r->begin, &zero) || zero || r->end != dc_cont(b->graph, c)->shape[d])
      return false;
  }
  return true;
}

/* ---- bounds ---- */

/* Of a sum of parameters with constant ranges, where each bound is reached; else false. */
static bool reached(const dc_pool *pool, dc_ex e, int64_t *lo, int64_t *hi) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_INT) return *lo = *hi = node->i, true;
  if (node->op == DC_EX_PARAM) {
    dc_parameter p = pool->params.v[node->ref];
    int64_t begin, end, step;
    if (!dc_ex_is_int(pool, p.begin, &begin) || !dc_ex_is_int(pool, p.end, &end) || !dc_ex_is_int(pool, p.step, &step) || end <= begin)
      return false;
    return *lo = begin, *hi = begin + (end - 1 - begin) / step * step, true;
  }
  if (node->op != DC_EX_LINEAR) return false;
  *lo = *hi = node->i;
  for (uint32_t k = 0; k < node->nargs; k += 2) {
    int64_t a, z, least, most, c = dc_ex_node(pool, dc_ex_arg(pool, e, k + 1))->i;
    if (dc_ex_node(pool, dc_ex_arg(pool, e, k))->op != DC_EX_PARAM || !reached(pool, dc_ex_arg(pool, e, k), &a, &z)) return false;
    if (__builtin_mul_overflow(c, c < 0 ? z : a, &least) || __builtin_mul_overflow(c, c < 0 ? a : z, &most)) return false;
    if (__builtin_add_overflow(*lo, least, lo) || __builtin_add_overflow(*hi, most, hi)) return false;
  }
  return true;
}

bool flow_is_outside(building *b, const dc_box *box, dc_cid c, bool always, uint32_t *at) {
  const dc_pool *pool = &b->graph->pool;
  for (uint32_t d = 0; d < box->rank; d++) {
    int64_t first, first_last, end_first, end, extent = INT64_MAX;
    bool low = reached(pool, box->range[d].begin, &first, &first_last), high = reached(pool, box->range[d].end, &end_first, &end);
    dc_ex_is_int(pool, dc_cont(b->graph, c)->shape[d], &extent);
    *at = d;
    if (extent == 0 || (low && high && !box->range[d].is_point && end <= first)) continue; /* nothing is there, or taken */
    if (low && (always ? first >= extent : first < 0)) return true;
    if (high && (always ? end <= 0 : end > extent)) return true;
  }
  return false;
}

/* ---- copies ---- */

dc_ex flow_extent(building *b, const dc_box_range *r) {
  dc_pool *pool = &b->graph->pool;
  if (r->is_point) return dc_ex_int(pool, 1);
  if (r->step) return dc_ix_extent(pool, r->begin, r->end, r->step);
  return dc_ix_sub(pool, r->end, r->begin);
}

/* Dimensions that are more than one element. */
static uint32_t long_dimensions(building *b, const dc_box *box, uint32_t *at, dc_ex *extent) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < box->rank; d++) {
    int64_t one = 0;
    dc_ex e = flow_extent(b, &box->range[d]);
    if (box->range[d].is_point || (dc_ex_is_int(&b->graph->pool, e, &one) && one == 1)) continue;
    at[n] = d, extent[n++] = e;
  }
  return n;
}

static dc_ex element(building *b, const dc_box_range *r, dc_ex k) {
  return dc_ix_add(&b->graph->pool, r->begin, r->step ? dc_ix_mul(&b->graph->pool, k, r->step) : k);
}

/* The index of the q-th element in row-major order. */
static void index_of(building *b, const dc_box *box, const uint32_t *at, const dc_ex *extent, uint32_t n, dc_ex q, dc_ex *index) {
  for (uint32_t d = 0; d < box->rank; d++) index[d] = box->range[d].begin;
  for (uint32_t k = n; k-- > 0;) {
    dc_ex digit = k ? dc_ix_mod(&b->graph->pool, q, extent[k]) : q;
    index[at[k]] = element(b, &box->range[at[k]], digit);
    if (k) q = dc_ix_div(&b->graph->pool, q, extent[k]);
  }
}

static dc_ex volume(building *b, const dc_ex *extent, uint32_t n) {
  dc_ex v = dc_ex_int(&b->graph->pool, 1);
  for (uint32_t k = 0; k < n; k++) v = dc_ix_mul(&b->graph->pool, v, extent[k]);
  return v;
}

static void emit_copy(building *b, dc_cid to, const dc_ex *to_index, dc_cid from, const dc_ex *from_index, const dc_param *loops,
                      uint32_t n, dc_wcr wcr) {
  dc_graph *g = b->graph;
  dc_ex value = dc_ex_read(&g->pool, (dc_dtype)dc_cont(g, from)->dtype, from, from_index, dc_cont(g, from)->rank);
  dc_nid tasklet = dc_node_tasklet(g, to, wcr, to_index, dc_cont(g, to)->rank, 0, value);
  flow_emit(b, dc_node_wrap(g, DC_MAP_PARALLEL, loops, n, tasklet));
}

dc_status flow_copy(building *b, dc_cid to, const dc_box *to_box, dc_cid from, const dc_box *from_box, dc_wcr wcr) {
  dc_pool *pool = &b->graph->pool;
  uint32_t to_at[DC_MAX_RANK], from_at[DC_MAX_RANK], at;
  dc_ex to_extent[DC_MAX_RANK], from_extent[DC_MAX_RANK], to_index[DC_MAX_RANK], from_index[DC_MAX_RANK];
  dc_param loops[DC_MAX_RANK];
  if (to_box->is_all || from_box->is_all)
    return dc_error(DC_ERR_SHAPE, "the shape of '%s' is not known", dc_cont_name(b->graph, to_box->is_all ? to : from));
  if (flow_is_outside(b, to_box, to, false, &at))
    return dc_error(DC_ERR_MODEL, "dimension %u leaves array '%s'", at, dc_cont_name(b->graph, to));
  if (flow_is_outside(b, from_box, from, false, &at))
    return dc_error(DC_ERR_MODEL, "dimension %u leaves array '%s'", at, dc_cont_name(b->graph, from));
  uint32_t n = long_dimensions(b, to_box, to_at, to_extent), m = long_dimensions(b, from_box, from_at, from_extent);
  bool alike = n == m;
  for (uint32_t k = 0; alike && k < n; k++) {
    int64_t x, y;
    alike = !dc_ex_is_int(pool, to_extent[k], &x) || !dc_ex_is_int(pool, from_extent[k], &y) || x == y;
  }
  dc_ex all = volume(b, to_extent, n);
  if (!alike && all != volume(b, from_extent, m))
    return dc_error(DC_ERR_SHAPE, "a copy from '%s' to '%s' has other extents at its two ends", dc_cont_name(b->graph, from),
                    dc_cont_name(b->graph, to));
  if (!alike) {
    loops[0] = dc_param_new(pool, "i", dc_ex_int(pool, 0), all, 0);
    index_of(b, to_box, to_at, to_extent, n, dc_ex_par(pool, loops[0]), to_index);
    index_of(b, from_box, from_at, from_extent, m, dc_ex_par(pool, loops[0]), from_index);
    emit_copy(b, to, to_index, from, from_index, loops, 1, wcr);
    return DC_OK;
  }
  for (uint32_t d = 0; d < to_box->rank; d++) to_index[d] = to_box->range[d].begin;
  for (uint32_t d = 0; d < from_box->rank; d++) from_index[d] = from_box->range[d].begin;
  for (uint32_t k = 0; k < n; k++) {
    loops[k] = dc_param_new(pool, "i", dc_ex_int(pool, 0), to_extent[k], 0);
    to_index[to_at[k]] = element(b, &to_box->range[to_at[k]], dc_ex_par(pool, loops[k]));
    from_index[from_at[k]] = element(b, &from_box->range[from_at[k]], dc_ex_par(pool, loops[k]));
  }
  emit_copy(b, to, to_index, from, from_index, loops, n, wcr);
  return DC_OK;
}

static dc_ex elements(building *b, dc_cid c) { return volume(b, dc_cont(b->graph, c)->shape, dc_cont(b->graph, c)->rank); }

/* Of container c, what a part of another is copied to or from: all, if it is as large as all of the other, else as many
 * elements from the start. */
static dc_status other_box(building *b, const dc_box *given, dc_cid of, dc_cid c, dc_box *out) {
  dc_pool *pool = &b->graph->pool;
  uint32_t at[DC_MAX_RANK], n = 0;
  *out = dc_box_whole(b->graph, b->scratch, c);
  if (out->is_all || given->is_all || (flow_is_whole(b, given, of) && elements(b, of) == elements(b, c))) return DC_OK;
  for (uint32_t d = 0; d < given->rank; d++)
    if (given->rank == out->rank || !given->range[d].is_point) at[n++] = d;
  for (uint32_t d = 0; n == out->rank && d < n; d++)
    out->range[d].end = flow_extent(b, &given->range[at[d]]), out->range[d].begin = dc_ex_int(pool, 0);
  return DC_OK;
}

dc_status flow_copy_edge(building *b, dc_eid e, dc_cid from, dc_cid to) {
  const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
  const dc_memlet *m = &edge->memlet;
  bool of_to = from != to && says(b, m, to);
  dc_box here, there;
  if (from == to && !m->other) return DC_OK; /* the value is there already */
  DC_TRY(flow_memlet(b, e, of_to ? to : from, &here));
  if (m->other) DC_TRY(flow_fail_at_edge(b, flow_subset(b, m->other, of_to ? from : to, &there), e));
  else DC_TRY(other_box(b, &here, of_to ? to : from, of_to ? from : to, &there));
  if (!of_to && dc_container_root(b->graph, from) == dc_container_root(b->graph, to)) { /* the parts may overlap */
    dc_ex shape[DC_MAX_RANK];
    for (uint32_t d = 0; d < here.rank; d++) shape[d] = flow_extent(b, &here.range[d]);
    dc_cid kept = dc_container_add(b->graph, dc_arena_printf(b->scratch, "%s_kept", dc_cont_name(b->graph, from)),
                                   (dc_dtype)dc_cont(b->graph, from)->dtype, here.rank, shape, DC_ROLE_TEMP);
    dc_box whole = dc_box_whole(b->graph, b->scratch, kept);
    DC_TRY(flow_fail_at_edge(b, flow_copy(b, kept, &whole, from, &here, DC_WCR_NONE), e));
    return flow_fail_at_edge(b, flow_copy(b, to, &there, kept, &whole, (dc_wcr)m->wcr), e);
  }
  return flow_fail_at_edge(b, flow_copy(b, to, of_to ? &here : &there, from, of_to ? &there : &here, (dc_wcr)m->wcr), e);
}
