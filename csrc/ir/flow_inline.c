/* Nested graphs become part of the graph around them.
 *
 * Containers of the inner graph are parts of outer ones, or new ones.  A read or write of a part is one of the outer
 * container with other indices.  Who needs whole containers (operators, views) gets a copy of the part, which is copied
 * back at the end if it was written. */
#include <string.h>

#include "ir/flow.h"
#include "ir/flow_build.h"

enum { PART = 1u << 31 }; /* marks the id of an inner container in a READ whose indices are still those of the inner graph */

typedef struct {
  dc_cid outer;
  dc_box box;
  bool is_mapped, is_part;  /* is_part: indices change */
  bool is_read, is_written, by_whole; /* in the inner graph; by_whole: by operators, views, subgraphs */
} home_of;

typedef struct {
  dc_graph *graph;
  const dc_graph *inner;
  home_of *home;  /* by inner container */
  dc_ex *symbol;  /* by inner symbol */
  dc_ex *param;   /* by inner parameter */
  uint32_t *subgraph; /* by inner subgraph: 1 + the outer one */
  dc_arena scratch;
  dc_importer importer;
} inlining;

/* ---- expressions ---- */

static dc_ex import_leaf(void *context, const dc_pool *from, dc_ex leaf) {
  inlining *in = context;
  const dc_exnode *node = dc_ex_node(from, leaf);
  return node->op == DC_EX_SYM ? in->symbol[node->ref] : in->param[node->ref];
}

static uint32_t import_container(void *context, uint32_t c) {
  inlining *in = context;
  return in->home[c].is_part ? c | PART : in->home[c].outer;
}

/* The outer index of an element of a part. */
static void place(inlining *in, const home_of *h, const dc_ex *index, dc_ex *out) {
  dc_pool *pool = &in->graph->pool;
  uint32_t used = 0;
  for (uint32_t d = 0; d < h->box.rank; d++) {
    const dc_box_range *r = &h->box.range[d];
    if (r->is_point) out[d] = r->begin;
    else {
      dc_ex k = index[used++];
      out[d] = dc_ix_add(pool, r->begin, r->step ? dc_ix_mul(pool, k, r->step) : k);
    }
  }
}

static dc_ex place_read(void *context, dc_pool *pool, dc_ex leaf) {
  inlining *in = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK], out[DC_MAX_RANK];
  if (node.op != DC_EX_READ || !(node.ref & PART)) return leaf;
  const home_of *h = &in->home[node.ref & ~PART];
  for (uint32_t k = 0; k < node.nargs; k++) index[k] = dc_ex_arg(pool, leaf, k);
  place(in, h, index, out);
  const dc_container *c = dc_cont(in->graph, h->outer);
  return dc_ex_cast(pool, (dc_dtype)node.dtype, dc_ex_read(pool, (dc_dtype)c->dtype, h->outer, out, c->rank));
}

static dc_ex import(inlining *in, dc_ex e) {
  if (!e) return 0;
  return dc_ex_rewrite(&in->graph->pool, dc_ex_import(&in->graph->pool, &in->inner->pool, e, &in->importer), place_read, in);
}

static dc_ex *import_list(inlining *in, const dc_ex *items, uint32_t n) {
  dc_ex *out = DC_NEW_ARRAY(&in->graph->arena, dc_ex, n);
  for (uint32_t k = 0; k < n; k++) out[k] = import(in, items[k]);
  return out;
}

static dc_name import_name(inlining *in, dc_name name) { return dc_name_intern(&in->graph->names, dc_name_text(&in->inner->names, name)); }

/* ---- containers ---- */

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  inlining *in = context;
  home_of *h = &in->home[c];
  if (use == DC_USE_READ) h->is_read = true;
  else h->is_written = true;
  h->by_whole |= dc_node_at(in->inner, by)->kind == DC_NODE_LIBRARY;
}

static void note_uses(inlining *in) {
  for (uint32_t s = 0; s < in->inner->states.n; s++)
    for (uint32_t k = 0; k < in->inner->states.v[s].scope.n; k++) dc_node_uses(in->inner, in->inner->states.v[s].scope.v[k], note_use, in);
  for (dc_cid c = 1; c < in->inner->containers.n; c++)
    if (dc_cont(in->inner, c)->alias_of) {
      home_of *base = &in->home[dc_container_root(in->inner, c)];
      base->by_whole = true, base->is_read |= in->home[c].is_read, base->is_written |= in->home[c].is_written;
    }
  for (uint32_t k = 0; k < in->inner->subgraphs.n; k++)
    for (uint32_t j = 0; j < in->inner->subgraphs.v[k]->captures.n; j++) in->home[in->inner->subgraphs.v[k]->captures.v[j]].by_whole = true;
}

static bool uses_params(const dc_pool *pool, const dc_ex *items, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    if (dc_ex_uses_op(pool, items[k], DC_EX_PARAM) || dc_ex_uses_op(pool, items[k], DC_EX_READ)) return true;
  return false;
}

/* A container like the inner one. */
static dc_status add_like(inlining *in, dc_cid c, dc_role role, dc_cid *out) {
  dc_container k = *dc_cont(in->inner, c);
  dc_ex *shape = k.shape ? import_list(in, k.shape, k.rank) : NULL;
  if (shape && uses_params(&in->graph->pool, shape, k.rank))
    return dc_error(DC_ERR_UNSUPPORTED, "the shape of array '%s' of the nested graph depends on a parameter of a map around it",
                    dc_cont_name(in->inner, c));
  *out = dc_container_add(in->graph, dc_cont_name(in->inner, c), (dc_dtype)k.dtype, k.rank, shape, role);
  dc_container *made = dc_cont(in->graph, *out);
  if (!shape) made->shape = NULL;
  made->storage = k.storage, made->device = k.device, made->is_host = k.is_host;
  if (k.strides) made->strides = import_list(in, k.strides, k.rank);
  if (k.known) made->known = import_list(in, k.known, k.known_count), made->known_count = k.known_count;
  if (k.data) {
    void *data = dc_arena_copy(&in->graph->arena, k.data, k.data_bytes);
    dc_string *strings = data;
    for (uint64_t j = 0; k.dtype == DC_STRING && j < k.data_bytes / sizeof *strings; j++)
      strings[j].s = dc_arena_copy(&in->graph->arena, strings[j].s, strings[j].n);
    made->data = data, made->data_bytes = k.data_bytes;
  }
  return DC_OK;
}

static dc_status make_container(inlining *in, dc_cid c) {
  home_of *h = &in->home[c];
  dc_container k = *dc_cont(in->inner, c);
  if (h->is_mapped) return DC_OK;
  if (k.role == DC_ROLE_INPUT || k.role == DC_ROLE_PARAM)
    return dc_error(DC_ERR_MODEL, "input '%s' of the nested graph is not connected", dc_cont_name(in->inner, c));
  DC_TRY(add_like(in, c, k.role == DC_ROLE_CONST ? DC_ROLE_CONST : DC_ROLE_TEMP, &h->outer));
  if (!k.alias_of) return DC_OK;
  dc_cont(in->graph, h->outer)->alias_of = in->home[k.alias_of].outer;
  dc_ex offset = import(in, k.alias_offset);
  dc_cont(in->graph, h->outer)->alias_offset = offset;
  return DC_OK;
}

/* A view is made after what it views. */
static dc_status make_containers(inlining *in) {
  for (int views = 0; views < 2; views++)
    for (dc_cid c = 1; c < in->inner->containers.n; c++) {
      dc_cid chain[64];
      uint32_t n = 0;
      if ((dc_cont(in->inner, c)->alias_of != 0) != views) continue;
      for (dc_cid at = c; at && !in->home[at].outer && n < 64; at = dc_cont(in->inner, at)->alias_of) chain[n++] = at;
      while (n-- > 0) DC_TRY(make_container(in, chain[n]));
    }
  return DC_OK;
}

/* ---- nodes ---- */

static dc_cid outer_of(const inlining *in, dc_cid c) { return c ? in->home[c].outer : 0; }

static uint32_t import_subgraph(inlining *in, uint32_t k) {
  if (in->subgraph[k]) return in->subgraph[k] - 1;
  dc_graph *clone = dc_graph_clone(in->inner->subgraphs.v[k]);
  for (uint32_t j = 0; j < clone->captures.n; j++) clone->captures.v[j] = outer_of(in, clone->captures.v[j]);
  DC_PUSH(&in->graph->arena, &in->graph->subgraphs, clone);
  in->subgraph[k] = in->graph->subgraphs.n;
  return in->graph->subgraphs.n - 1;
}

static dc_attr import_attr(inlining *in, const dc_attr *a) {
  dc_graph *g = in->graph;
  dc_attr out = *a;
  out.name = import_name(in, a->name);
  const char *name = dc_name_text(&g->names, out.name);
  switch ((dc_attr_kind)a->kind) {
    case DC_ATTR_STRING: return dc_attr_string(g, name, a->s, a->n);
    case DC_ATTR_INTS: return dc_attr_ints(g, name, a->ints, a->n);
    case DC_ATTR_FLOATS: return dc_attr_floats(g, name, a->floats, a->n);
    case DC_ATTR_TENSOR: out.i = outer_of(in, (dc_cid)a->i); return out;
    case DC_ATTR_GRAPH: out.i = import_subgraph(in, (uint32_t)a->i); return out;
    case DC_ATTR_STRINGS:
      out.strings = DC_NEW_ARRAY(&g->arena, const char *, a->n);
      for (uint32_t k = 0; k < a->n; k++) out.strings[k] = dc_arena_strdup(&g->arena, a->strings[k]);
      return out;
    default: return out;
  }
}

static dc_nid import_library(inlining *in, const dc_library *lib) {
  dc_cid *ins = DC_NEW_ARRAY(&in->scratch, dc_cid, lib->n_in), *outs = DC_NEW_ARRAY(&in->scratch, dc_cid, lib->n_out);
  dc_attr *attrs = DC_NEW_ARRAY(&in->scratch, dc_attr, lib->n_attr);
  for (uint32_t k = 0; k < lib->n_in; k++) ins[k] = outer_of(in, lib->in[k]);
  for (uint32_t k = 0; k < lib->n_out; k++) outs[k] = outer_of(in, lib->out[k]);
  for (uint32_t k = 0; k < lib->n_attr; k++) attrs[k] = import_attr(in, &lib->attr[k]);
  const dc_names *names = &in->inner->names;
  dc_nid id = dc_node_library(in->graph, dc_name_text(names, lib->op), dc_name_text(names, lib->domain), lib->since, ins, lib->n_in, outs,
                              lib->n_out,
                              attrs, lib->n_attr);
  dc_library *made = &dc_node_at(in->graph, id)->lib;
  made->wrt = lib->wrt, made->n_fwd_in = lib->n_fwd_in, made->n_fwd_out = lib->n_fwd_out;
  return id;
}

static dc_nid import_tasklet(inlining *in, const dc_tasklet *t) {
  const home_of *h = &in->home[t->out];
  dc_ex index[DC_MAX_RANK], out[DC_MAX_RANK];
  for (uint32_t k = 0; k < t->rank; k++) index[k] = import(in, t->index[k]);
  if (h->is_part) place(in, h, index, out);
  return dc_node_tasklet(in->graph, h->outer, (dc_wcr)t->wcr, h->is_part ? out : index, dc_cont(in->graph, h->outer)->rank,
                         import(in, t->guard), import(in, t->value));
}

static void import_scope(inlining *in, const dc_scope *from, dc_scope *to);

static dc_nid import_map(inlining *in, const dc_map *map) {
  dc_param *params = DC_NEW_ARRAY(&in->scratch, dc_param, map->n_params);
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter p = in->inner->pool.params.v[map->params[k]];
    const char *name = dc_name_text(&in->inner->names, p.name);
    params[k] = dc_param_new(&in->graph->pool, name, import(in, p.begin), import(in, p.end), import(in, p.step));
    in->param[map->params[k]] = dc_ex_par(&in->graph->pool, params[k]);
  }
  dc_scope body = {0};
  import_scope(in, &map->body, &body);
  dc_nid id = dc_node_map(in->graph, (dc_schedule)map->schedule, params, map->n_params);
  dc_node_at(in->graph, id)->map.body = body;
  return id;
}

static void import_scope(inlining *in, const dc_scope *from, dc_scope *to) {
  for (uint32_t k = 0; k < from->n; k++) {
    const dc_node *node = dc_node_at(in->inner, from->v[k]);
    dc_nid id = node->kind == DC_NODE_LIBRARY ? import_library(in, &node->lib)
                : node->kind == DC_NODE_MAP   ? import_map(in, &node->map)
                                              : import_tasklet(in, &node->tasklet);
    dc_node *made = dc_node_at(in->graph, id);
    dc_name name = import_name(in, node->name), tag = import_name(in, node->tag_op);
    made->name = name, made->tag_op = tag, made->tag_wrt = node->tag_wrt;
    dc_scope_push(in->graph, to, id);
  }
}

/* ---- parts ---- */

static building copier(inlining *in, dc_scope *scope) { return (building){.graph = in->graph, .scratch = &in->scratch, .out = scope}; }

static dc_status check_mapped(const inlining *in, const dc_inlined *m) {
  const dc_container *c = dc_cont(in->inner, m->inner);
  uint32_t ranges = 0;
  for (uint32_t d = 0; d < m->box.rank; d++) ranges += !m->box.range[d].is_point;
  if (m->box.is_all || !c->shape || ranges == c->rank) return DC_OK;
  return dc_error(DC_ERR_MODEL, "array '%s' of the nested graph has %u dimensions; the part of '%s' that it is has %u",
                  dc_cont_name(in->inner, m->inner), c->rank,
                  dc_cont_name(in->graph, m->outer), ranges);
}

/* Makes indices ranges of one element where the inner array has extents of one, until there are as many as it has dimensions. */
static void unsqueeze(const inlining *in, dc_inlined *m) {
  const dc_container *c = dc_cont(in->inner, m->inner);
  uint32_t ranges = 0, at = 0;
  if (m->box.is_all || !c->shape) return;
  for (uint32_t d = 0; d < m->box.rank; d++) ranges += !m->box.range[d].is_point;
  for (uint32_t d = 0; d < m->box.rank && at < c->rank && ranges < c->rank; d++) {
    int64_t one;
    if (m->box.range[d].is_point) {
      if (!dc_ex_is_int(&in->inner->pool, c->shape[at], &one) || one != 1) continue;
      m->box.range[d].is_point = false, ranges++;
    }
    at++;
  }
}

/* Drops ranges of one element, last first, until there are as many as the inner array has dimensions. */
static void squeeze(const inlining *in, dc_inlined *m) {
  uint32_t ranges = 0, rank = dc_cont(in->inner, m->inner)->rank;
  for (uint32_t d = 0; d < m->box.rank; d++) ranges += !m->box.range[d].is_point;
  for (uint32_t d = 0; d < m->box.rank && ranges > rank; d++) {
    int64_t one;
    dc_box_range *r = &m->box.range[d];
    if (r->is_point || r->step || !dc_ex_is_int(&in->graph->pool, dc_ix_sub(&in->graph->pool, r->end, r->begin), &one) || one != 1)
      continue;
    r->is_point = true, ranges--;
  }
}

static dc_status take_containers(inlining *in, dc_scope *scope, const dc_inlined *containers, uint32_t n) {
  building b = copier(in, scope);
  for (uint32_t k = 0; k < n; k++) {
    dc_inlined m = containers[k];
    home_of *h = &in->home[m.inner];
    m.box.range = dc_arena_copy(&in->scratch, m.box.range, m.box.rank * sizeof *m.box.range);
    squeeze(in, &m);
    unsqueeze(in, &m);
    DC_TRY(check_mapped(in, &m));
    h->outer = m.outer, h->box = m.box, h->is_mapped = true;
    bool same_type = dc_cont(in->graph, m.outer)->dtype == dc_cont(in->inner, m.inner)->dtype || !dc_cont(in->inner, m.inner)->dtype;
    bool whole = m.box.is_all || (flow_is_whole(&b, &m.box, m.outer) && same_type);
    if (whole || !h->by_whole) {
      h->is_part = !whole;
      continue;
    }
    DC_TRY(add_like(in, m.inner, DC_ROLE_TEMP, &h->outer));
    dc_box all = dc_box_whole(in->graph, &in->scratch, h->outer);
    bool only_written = dc_cont(in->inner, m.inner)->role != DC_ROLE_INPUT && !h->is_read;
    if (!only_written) DC_TRY(flow_copy(&b, h->outer, &all, m.outer, &m.box, DC_WCR_NONE));
  }
  return DC_OK;
}

static dc_status copy_back(inlining *in, dc_scope *scope, const dc_inlined *containers, uint32_t n) {
  building b = copier(in, scope);
  for (uint32_t k = 0; k < n; k++) {
    const home_of *h = &in->home[containers[k].inner];
    if (h->outer == containers[k].outer || !h->is_written) continue;
    dc_box all = dc_box_whole(in->graph, &in->scratch, h->outer);
    DC_TRY(flow_copy(&b, containers[k].outer, &h->box, h->outer, &all, DC_WCR_NONE));
  }
  return DC_OK;
}

static void take_symbols(inlining *in, const dc_inlined_symbol *symbols, uint32_t n) {
  for (dc_sym s = 1; s < in->inner->pool.symbols.n; s++) {
    const char *name = dc_name_text(&in->inner->names, in->inner->pool.symbols.v[s].name);
    for (uint32_t k = 0; k < n; k++)
      if (strcmp(symbols[k].name, name) == 0) in->symbol[s] = symbols[k].value;
    if (!in->symbol[s])
      in->symbol[s] = dc_ex_sym(&in->graph->pool, dc_symbol_get(&in->graph->pool, name, in->inner->pool.symbols.v[s].min));
  }
}

static dc_status run(inlining *in, dc_scope *scope, const dc_inlined *containers, uint32_t n, const dc_inlined_symbol *symbols,
                     uint32_t n_symbols) {
  take_symbols(in, symbols, n_symbols);
  note_uses(in);
  DC_TRY(take_containers(in, scope, containers, n));
  DC_TRY(make_containers(in));
  for (uint32_t s = 0; s < in->inner->states.n; s++) import_scope(in, &in->inner->states.v[s].scope, scope);
  for (uint32_t k = 0; k < in->inner->equalities.n; k++)
    dc_graph_take_equal(in->graph, import(in, in->inner->equalities.v[k].a), import(in, in->inner->equalities.v[k].b));
  return copy_back(in, scope, containers, n);
}

dc_status dc_graph_inline(dc_graph *graph, dc_scope *scope, const dc_graph *inner, const dc_inlined *containers, uint32_t n,
                          const dc_inlined_symbol *symbols, uint32_t n_symbols) {
  inlining in = {.graph = graph, .inner = inner};
  in.importer = (dc_importer){import_leaf, import_container, &in};
  in.home = DC_NEW_ARRAY(&in.scratch, home_of, inner->containers.n);
  in.symbol = DC_NEW_ARRAY(&in.scratch, dc_ex, inner->pool.symbols.n), in.param = DC_NEW_ARRAY(&in.scratch, dc_ex, inner->pool.params.n);
  in.subgraph = DC_NEW_ARRAY(&in.scratch, uint32_t, inner->subgraphs.n);
  dc_status status = run(&in, scope, containers, n, symbols, n_symbols);
  dc_arena_free(&in.scratch);
  return dc_error_at(status, "nested graph '%s'", dc_name_text(&inner->names, inner->name));
}

/* ---- by name ---- */

static dc_status find_named(building *b, const dc_graph *inner, const dc_inlined_name *name, dc_inlined *out) {
  *out = (dc_inlined){.inner = dc_container_find(inner, name->inner), .outer = dc_container_find(b->graph, name->outer)};
  if (!out->inner) return dc_error(DC_ERR_MODEL, "the nested graph has no array '%s'", name->inner);
  if (!out->outer) return dc_error(DC_ERR_MODEL, "there is no array '%s'", name->outer);
  return flow_subset(b, name->subset, out->outer, &out->box);
}

static dc_status inline_named(building *b, const dc_graph *inner, const dc_inlined_name *names, uint32_t n, const char *const *symbols,
                              const char *const *values, uint32_t n_symbols) {
  dc_inlined *containers = DC_NEW_ARRAY(b->scratch, dc_inlined, n);
  dc_inlined_symbol *given = DC_NEW_ARRAY(b->scratch, dc_inlined_symbol, n_symbols);
  for (uint32_t k = 0; k < n; k++) DC_TRY(dc_error_at(find_named(b, inner, &names[k], &containers[k]), "'%s'", names[k].inner));
  for (uint32_t k = 0; k < n_symbols; k++) {
    given[k].name = symbols[k];
    DC_TRY(dc_error_at(flow_expression(b, values[k], &given[k].value), "symbol '%s'", symbols[k]));
  }
  return dc_graph_inline(b->graph, b->out, inner, containers, n, given, n_symbols);
}

dc_status dc_graph_inline_named(dc_graph *graph, dc_scope *scope, const dc_graph *inner, const dc_inlined_name *containers, uint32_t n,
                                const char *const *symbols, const char *const *values, uint32_t n_symbols) {
  dc_arena scratch = {0};
  building *b = DC_NEW(&scratch, building);
  *b = (building){.graph = graph, .scratch = &scratch, .out = scope};
  b->parser.graph = graph, b->parser.scratch = &scratch, b->parser.is_loose = true;
  dc_status status = inline_named(b, inner, containers, n, symbols, values, n_symbols);
  dc_arena_free(&scratch);
  return status;
}

/* ---- nodes of a flow ---- */

static dc_status open_edges(building *b, dc_fid n, bool is_input, dc_inlined *containers, uint32_t *count) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  uint32_t n_edges = is_input ? node->into.n : node->from.n;
  for (uint32_t k = 0; k < n_edges; k++) {
    dc_eid e = is_input ? node->into.v[k] : node->from.v[k];
    const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
    const char *conn = is_input ? edge->dst_conn : edge->src_conn;
    flow_end end;
    dc_inlined m;
    if (!edge->has_memlet) continue;
    if (!conn) return flow_fail_at_edge(b, flow_fail(b, n, "the edge has no connector"), e);
    m.inner = dc_container_find(node->inner, conn);
    if (!m.inner) return flow_fail(b, n, "the nested graph has no array for connector '%s'", conn);
    if (is_input) DC_TRY(flow_source(b, e, &end));
    else DC_TRY(flow_target(b, e, &end));
    m.outer = b->container[end.node];
    if (!m.outer)
      return flow_fail(b, n, "connector '%s' leads to %s, not to an access node", conn, dc_flow_describe(b->flow, end.node, b->scratch));
    DC_TRY(flow_memlet(b, e, m.outer, &m.box));
    uint32_t at = 0;
    while (at < *count && containers[at].inner != m.inner) at++;
    if (at == *count) containers[(*count)++] = m;
    else if (containers[at].outer != m.outer)
      return flow_fail(b, n, "connector '%s' is '%s' on one side and '%s' on the other", conn, dc_cont_name(b->graph, containers[at].outer),
                       dc_cont_name(b->graph, m.outer));
  }
  return DC_OK;
}

dc_status flow_nested(building *b, dc_fid n) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  dc_inlined *containers = DC_NEW_ARRAY(b->scratch, dc_inlined, node->into.n + node->from.n);
  dc_inlined_symbol *symbols = DC_NEW_ARRAY(b->scratch, dc_inlined_symbol, node->symbol.n);
  uint32_t count = 0;
  DC_TRY(open_edges(b, n, true, containers, &count));
  DC_TRY(open_edges(b, n, false, containers, &count));
  for (uint32_t k = 0; k < node->symbol.n; k++) {
    symbols[k].name = node->symbol.v[k];
    DC_TRY(dc_error_at(flow_expression(b, node->value.v[k], &symbols[k].value), "%s: symbol '%s'", dc_flow_describe(b->flow, n, b->scratch),
                       symbols[k].name));
  }
  return dc_error_at(dc_graph_inline(b->graph, b->out, node->inner, containers, count, symbols, node->symbol.n), "%s",
                     dc_flow_describe(b->flow, n, b->scratch));
}
