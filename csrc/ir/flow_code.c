/* Tasklets: statements over connectors become tasklets of the graph, one for each edge that a value leaves by.
 *
 * All is read before anything is written: a value that is computed from a container which an earlier one of these tasklets
 * writes is kept in a register first. */
#include <string.h>

#include "ir/flow_build.h"

/* ---- connectors ---- */

typedef struct {
  const char *name;
  dc_cid c;
  dc_box box;
  dc_eid edge;
} source;

typedef struct {
  const char *name; /* of an output, or of something the tasklet keeps for itself */
  dc_ex value, guard;
} assigned;

typedef struct { /* an element of an output that is an array */
  const char *name;
  dc_ex *index;
  int n_index;
  dc_ex value, guard;
} stored;

typedef struct {
  building *b;
  dc_fid node;
  DC_VEC(source) sources;
  DC_VEC(assigned) names;
  DC_VEC(stored) stores;
  bool may_leave; /* a guard or a choice: an index outside may never be used */
} tasklet;

static bool is_long(building *b, const dc_box_range *r) {
  int64_t one = 0;
  return !r->is_point && !(dc_ex_is_int(&b->graph->pool, flow_extent(b, r), &one) && one == 1);
}

/* The element of a part that indices name: of all its dimensions, of those written as ranges, or of those longer than 1. */
static dc_status element_of(building *b, const dc_box *box, const dc_ex *index, int n, dc_ex *out) {
  dc_pool *pool = &b->graph->pool;
  uint32_t ranges = 0, lengths = 0, used = 0, wanted = n < 0 ? 0 : (uint32_t)n;
  for (uint32_t d = 0; d < box->rank; d++) ranges += !box->range[d].is_point, lengths += is_long(b, &box->range[d]);
  bool all = wanted == box->rank, by_range = wanted == ranges;
  if (n <= 0 && !all && !by_range && lengths)
    return dc_error(DC_ERR_MODEL, "it is an array of %u dimensions here, and an index was expected", ranges);
  if (!all && !by_range && wanted != lengths)
    return dc_error(DC_ERR_MODEL, "%u indices for a part with %u ranges", wanted, ranges);
  for (uint32_t d = 0; d < box->rank; d++) {
    const dc_box_range *r = &box->range[d];
    bool indexed = all || (by_range ? !r->is_point : is_long(b, r));
    out[d] = r->begin;
    if (!indexed) continue;
    dc_ex k = index[used++];
    if (!dc_dtype_is_integer(dc_ex_dtype(pool, k)))
      return dc_error(DC_ERR_DTYPE, "an index is %s, not an integer", dc_dtype_name(dc_ex_dtype(pool, k)));
    k = dc_ex_cast(pool, DC_I64, k);
    out[d] = dc_ix_add(pool, r->begin, r->step ? dc_ix_mul(pool, k, r->step) : k);
  }
  return DC_OK;
}

static dc_status read_source(building *b, const source *s, const dc_ex *index, int n, dc_ex *out) {
  dc_ex at[DC_MAX_RANK];
  DC_TRY(dc_error_at(element_of(b, &s->box, index, n, at), "connector '%s'", s->name));
  const dc_container *c = dc_cont(b->graph, s->c);
  if (c->is_host || !dc_dtype_bytes((dc_dtype)c->dtype))
    return dc_error(DC_ERR_DTYPE, "connector '%s': '%s' holds no numbers", s->name, dc_cont_name(b->graph, s->c));
  *out = dc_ex_read(&b->graph->pool, (dc_dtype)c->dtype, s->c, at, c->rank);
  return DC_OK;
}

/* What a name in the code stands for. */
static dc_status find_name(void *context, dc_parser *p, const char *name, const dc_ex *index, int n, dc_ex *out) {
  tasklet *t = context;
  (void)p;
  for (uint32_t k = t->names.n; k-- > 0;)
    if (n <= 0 && strcmp(t->names.v[k].name, name) == 0) return *out = t->names.v[k].value, DC_OK;
  for (uint32_t k = 0; k < t->sources.n; k++)
    if (strcmp(t->sources.v[k].name, name) == 0) return read_source(t->b, &t->sources.v[k], index, n, out);
  if (t->node && dc_flow_has_connector(t->b->flow, t->node, name, false))
    return dc_error(DC_ERR_MODEL, "output '%s' is read before it is written", name);
  return DC_OK;
}

/* The container and part behind an edge into a connector. */
static dc_status open_source(building *b, dc_eid e, const char *conn, source *out) {
  flow_end from;
  *out = (source){.name = conn, .edge = e};
  DC_TRY(flow_source(b, e, &from));
  out->c = b->carried[from.edge];
  if (out->c) {
    out->box = dc_box_whole(b->graph, b->scratch, out->c);
    if (!out->box.is_all) return DC_OK;
    return flow_fail_at_edge(b, dc_error(DC_ERR_SHAPE, "nothing says what shape the value has; an access node between the two does"), e);
  }
  out->c = b->container[from.node];
  if (!out->c) return flow_fail_at_edge(b, flow_fail(b, from.node, "an edge with a memlet leaves it without a connector"), e);
  DC_TRY(flow_memlet(b, e, out->c, &out->box));
  if (out->box.is_all)
    return flow_fail_at_edge(b, dc_error(DC_ERR_SHAPE, "the shape of '%s' is not known", dc_cont_name(b->graph, out->c)), e);
  return DC_OK;
}

static dc_status open_sources(tasklet *t) {
  const dc_flow_node *node = dc_flow_at(t->b->flow, t->node);
  for (uint32_t k = 0; k < node->into.n; k++) {
    source s;
    const dc_flow_edge *e = dc_flow_edge_at(t->b->flow, node->into.v[k]);
    if (node->kind == DC_FLOW_ENTRY && e->dst_conn && strncmp(e->dst_conn, "IN_", 3) == 0) continue;
    if (!e->has_memlet) continue;
    if (!e->dst_conn)
      return flow_fail(t->b, t->node, "the edge from %s has a memlet and no connector",
                       dc_flow_describe(t->b->flow, e->src, t->b->scratch));
    DC_TRY(open_source(t->b, node->into.v[k], e->dst_conn, &s));
    DC_PUSH(t->b->scratch, &t->sources, s);
  }
  return DC_OK;
}

/* ---- statements ---- */

static void note_choice(void *context, const dc_pool *pool, dc_ex e) {
  if (dc_ex_node(pool, e)->op == DC_EX_SELECT) *(bool *)context = true;
}

static dc_ex zero_of(dc_pool *pool, dc_dtype type) { return type == DC_BOOL ? dc_ex_bool(pool, false) : dc_ex_const(pool, type, 0); }

/* A later assignment wins where its guard holds. */
static void assign(tasklet *t, const char *name, bool is_output, dc_ex value, dc_ex guard) {
  dc_pool *pool = &t->b->graph->pool;
  assigned a = {name, value, guard};
  const assigned *before = NULL;
  for (uint32_t k = 0; k < t->names.n; k++)
    if (strcmp(t->names.v[k].name, name) == 0) before = &t->names.v[k];
  if (guard && before) {
    dc_ex old = dc_ex_cast(pool, dc_ex_dtype(pool, value), before->value);
    a.value = dc_ex_select(pool, guard, value, old);
    a.guard = before->guard ? dc_ex_prim2(pool, DC_OR, guard, before->guard) : 0;
  } else if (guard && !is_output) {
    a.value = dc_ex_select(pool, guard, value, zero_of(pool, dc_ex_dtype(pool, value))), a.guard = 0;
  }
  DC_PUSH(t->b->scratch, &t->names, a);
}

static dc_status parse_statement(tasklet *t) {
  dc_parser *p = &t->b->parser;
  dc_ex_list index = {0};
  dc_ex value, guard = 0;
  char *name;
  bool indexed, took;
  DC_TRY(dc_parser_name(p, &name));
  DC_TRY(dc_parser_accept(p, "[", &indexed));
  if (indexed) DC_TRY(dc_parser_list(p, "]", &index));
  DC_TRY(dc_parser_expect(p, "="));
  DC_TRY(dc_parser_expr(p, &value));
  DC_TRY(dc_parser_accept(p, "if", &took));
  if (took) DC_TRY(dc_parser_expr(p, &guard));
  if (guard) guard = dc_ex_cast(&t->b->graph->pool, DC_BOOL, guard), t->may_leave = true;
  dc_ex_walk(&t->b->graph->pool, value, note_choice, &t->may_leave);
  DC_TRY(dc_parser_accept(p, ";", &took));
  bool is_output = dc_flow_has_connector(t->b->flow, t->node, name, false);
  if (!index.n) return assign(t, name, is_output, value, guard), DC_OK;
  if (!is_output) return dc_error(DC_ERR_MODEL, "'%s' is written by index and no output", name);
  stored s = {name, index.v, (int)index.n, value, guard};
  DC_PUSH(t->b->scratch, &t->stores, s);
  return DC_OK;
}

enum { MAX_CODE = 1 << 16 }; /* bytes that somebody writes: expressions are walked by recursion */

static dc_status parse_code(tasklet *t) {
  dc_parser *p = &t->b->parser;
  const char *code = dc_flow_at(t->b->flow, t->node)->code;
  if (code && !dc_flow_at(t->b->flow, t->node)->python && strlen(code) > MAX_CODE)
    return flow_fail(t->b, t->node, "its code is longer than %d bytes", MAX_CODE);
  p->start = p->at = code ? code : "", p->lets.n = 0, p->depth = 0;
  p->names = (dc_parser_names){find_name, t};
  dc_status status = dc_parser_next(p);
  while (!status && p->token.kind != TOK_END) status = parse_statement(t);
  p->names = (dc_parser_names){0};
  return dc_error_at(status, "code of %s", dc_flow_describe(t->b->flow, t->node, t->b->scratch));
}

/* ---- writing ---- */

typedef struct {
  dc_cid c;
  dc_ex index[DC_MAX_RANK];
  dc_wcr wcr;
  dc_ex value, guard;
} write;

typedef DC_VEC(write) write_list;

static dc_status add_write(tasklet *t, dc_eid e, write_list *writes, dc_ex value, dc_ex guard, const dc_ex *index, int n) {
  building *b = t->b;
  flow_end to;
  write w = {.value = value, .guard = guard, .wcr = (dc_wcr)dc_flow_edge_at(b->flow, e)->memlet.wcr};
  dc_box box;
  DC_TRY(flow_target(b, e, &to));
  w.c = b->container[to.node];
  if (!w.c) { /* a tasklet or a library node takes the value */
    if (n > 0)
      return flow_fail_at_edge(b, dc_error(DC_ERR_MODEL, "a value that goes straight to %s is a scalar",
                                           dc_flow_describe(b->flow, to.node, b->scratch)), e);
    if (guard)
      w.value = dc_ex_select(&b->graph->pool, guard, value, zero_of(&b->graph->pool, dc_ex_dtype(&b->graph->pool, value))), w.guard = 0;
    w.c = b->carried[to.edge] = flow_local(b, dc_flow_edge_at(b->flow, e)->src_conn, dc_ex_dtype(&b->graph->pool, value), 0, NULL);
    w.wcr = DC_WCR_NONE;
    DC_PUSH(b->scratch, writes, w);
    return DC_OK;
  }
  DC_TRY(flow_memlet(b, e, w.c, &box));
  if (box.is_all) return flow_fail_at_edge(b, dc_error(DC_ERR_SHAPE, "the shape of '%s' is not known", dc_cont_name(b->graph, w.c)), e);
  for (dc_eid next = e; !w.wcr && (next = flow_beyond(b, next));) w.wcr = (dc_wcr)dc_flow_edge_at(b->flow, next)->memlet.wcr;
  uint32_t at;
  if (flow_is_outside(b, &box, w.c, t->may_leave, &at))
    return flow_fail_at_edge(b, dc_error(DC_ERR_MODEL, "dimension %u leaves array '%s'", at, dc_cont_name(b->graph, w.c)), e);
  DC_TRY(flow_fail_at_edge(b, element_of(b, &box, index, n, w.index), e));
  DC_PUSH(b->scratch, writes, w);
  return DC_OK;
}

static dc_status add_writes(tasklet *t, write_list *writes) {
  const dc_flow_node *node = dc_flow_at(t->b->flow, t->node);
  for (uint32_t k = 0; k < node->from.n; k++) {
    const dc_flow_edge *e = dc_flow_edge_at(t->b->flow, node->from.v[k]);
    const assigned *last = NULL;
    bool found = false;
    if (!e->has_memlet) continue;
    if (!e->src_conn)
      return flow_fail(t->b, t->node, "the edge to %s has a memlet and no connector", dc_flow_describe(t->b->flow, e->dst, t->b->scratch));
    for (uint32_t j = 0; j < t->names.n; j++)
      if (strcmp(t->names.v[j].name, e->src_conn) == 0) last = &t->names.v[j];
    if (last) DC_TRY(add_write(t, node->from.v[k], writes, last->value, last->guard, NULL, 0));
    for (uint32_t j = 0; j < t->stores.n; j++) {
      const stored *s = &t->stores.v[j];
      if (strcmp(s->name, e->src_conn)) continue;
      DC_TRY(add_write(t, node->from.v[k], writes, s->value, s->guard, s->index, s->n_index));
      found = true;
    }
    if (!last && !found) return flow_fail(t->b, t->node, "its code does not write '%s'", e->src_conn);
  }
  return DC_OK;
}

typedef struct {
  const dc_graph *graph;
  const write_list *writes;
  uint32_t n;
  bool found;
} hazard;

static void note_hazard(void *context, const dc_pool *pool, dc_ex e) {
  hazard *h = context;
  if (dc_ex_node(pool, e)->op != DC_EX_READ) return;
  for (uint32_t k = 0; k < h->n; k++)
    if (dc_container_root(h->graph, h->writes->v[k].c) == dc_container_root(h->graph, dc_ex_node(pool, e)->ref)) h->found = true;
}

/* Keeps an expression in a register if what it reads is written by the first n. */
static dc_ex kept(building *b, const write_list *writes, uint32_t n, dc_ex e) {
  hazard h = {b->graph, writes, n, false};
  if (e) dc_ex_walk(&b->graph->pool, e, note_hazard, &h);
  if (!h.found) return e;
  dc_dtype type = dc_ex_dtype(&b->graph->pool, e);
  dc_cid c = flow_local(b, "r", type, 0, NULL);
  flow_emit(b, dc_node_tasklet(b->graph, c, DC_WCR_NONE, NULL, 0, 0, e));
  return dc_ex_read(&b->graph->pool, type, c, NULL, 0);
}

dc_status flow_tasklet(building *b, dc_fid n) {
  tasklet t = {.b = b, .node = n};
  write_list writes = {0};
  DC_TRY(open_sources(&t));
  DC_TRY(parse_code(&t));
  for (uint32_t k = 0; k < t.sources.n; k++) {
    uint32_t at;
    const source *s = &t.sources.v[k];
    if (flow_is_outside(b, &s->box, s->c, t.may_leave, &at))
      return flow_fail_at_edge(b, dc_error(DC_ERR_MODEL, "dimension %u leaves array '%s'", at, dc_cont_name(b->graph, s->c)), s->edge);
  }
  DC_TRY(add_writes(&t, &writes));
  for (uint32_t k = 1; k < writes.n; k++) {
    write *w = &writes.v[k];
    w->value = kept(b, &writes, k, w->value), w->guard = kept(b, &writes, k, w->guard);
    for (uint32_t d = 0; d < dc_cont(b->graph, w->c)->rank; d++) w->index[d] = kept(b, &writes, k, w->index[d]);
  }
  for (uint32_t k = 0; k < writes.n; k++) {
    const write *w = &writes.v[k];
    flow_emit(b, dc_node_tasklet(b->graph, w->c, w->wcr, w->index, dc_cont(b->graph, w->c)->rank, w->guard, w->value));
  }
  return DC_OK;
}

/* ---- ranges of maps ---- */

static dc_status parse_bound(tasklet *t, const char *text, dc_ex *out) {
  dc_parser *p = &t->b->parser;
  p->start = p->at = text, p->lets.n = 0, p->depth = 0;
  p->names = (dc_parser_names){find_name, t};
  dc_status status = dc_parser_next(p);
  if (!status) status = dc_parser_expr(p, out);
  if (!status && p->token.kind != TOK_END) status = dc_parser_fail(p, "the end");
  p->names = (dc_parser_names){0};
  if (status) return status;
  if (!dc_dtype_is_integer(dc_ex_dtype(&t->b->graph->pool, *out))) return dc_error(DC_ERR_DTYPE, "'%s' is no integer", text);
  *out = dc_ex_cast(&t->b->graph->pool, DC_I64, *out);
  return DC_OK;
}

dc_status flow_expression(building *b, const char *text, dc_ex *out) {
  tasklet t = {.b = b};
  return parse_bound(&t, text, out);
}

static dc_status parse_range(tasklet *t, const dc_flow_range *r, dc_param *out) {
  building *b = t->b;
  dc_ex begin, end, step;
  int64_t value;
  DC_TRY(parse_bound(t, r->begin, &begin));
  DC_TRY(parse_bound(t, r->end, &end));
  DC_TRY(parse_bound(t, r->step && *r->step ? r->step : "1", &step));
  if (!dc_ex_is_int(&b->graph->pool, step, &value) || value < 1)
    return dc_error(DC_ERR_MODEL, "step '%s' is no positive constant", r->step);
  if (b->parser.n_params == DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d loops", DC_MAX_LOOPS);
  *out = dc_param_new(&b->graph->pool, r->param, begin, end, step);
  b->parser.params[b->parser.n_params++] = *out;
  return DC_OK;
}

dc_status flow_map_ranges(building *b, dc_fid entry, dc_param *params) {
  tasklet t = {.b = b, .node = entry};
  const dc_flow_node *node = dc_flow_at(b->flow, entry);
  DC_TRY(open_sources(&t));
  for (uint32_t k = 0; k < node->n_ranges; k++) {
    const dc_flow_range *r = &node->range[k];
    DC_TRY(dc_error_at(parse_range(&t, r, &params[k]), "%s: range %s in %s:%s", dc_flow_describe(b->flow, entry, b->scratch), r->param,
                       r->begin, r->end));
  }
  return DC_OK;
}
