/* From a flat view to a state's scope: nodes in order, each scope by itself; what is built replaces the state at the end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/flow_build.h"

/* ---- messages ---- */

dc_status flow_fail(building *b, dc_fid n, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return dc_error(DC_ERR_MODEL, "%s: %s", dc_flow_describe(b->flow, n, b->scratch), text);
}

dc_status flow_fail_at_edge(building *b, dc_status status, dc_eid e) {
  const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
  if (!status) return DC_OK;
  if (edge->memlet.subset)
    return dc_error_at(status, "memlet %s[%s] on the %s", edge->memlet.data ? edge->memlet.data : "", edge->memlet.subset,
                       dc_flow_describe_edge(b->flow, e, b->scratch));
  return dc_error_at(status, "%s", dc_flow_describe_edge(b->flow, e, b->scratch));
}

/* ---- paths ---- */

static uint32_t slot_of(const building *b, dc_fid n, const char *conn) {
  return (uint32_t)dc_hash_bytes(n, conn, strlen(conn)) & (b->n_slots - 1);
}

static const char *passing_end(const building *b, dc_eid e, dc_fid *n) {
  const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
  if (edge->src && dc_flow_at(b->flow, edge->dst)->kind == DC_FLOW_ENTRY && edge->dst_conn) return *n = edge->dst, edge->dst_conn;
  if (edge->src && dc_flow_at(b->flow, edge->src)->kind == DC_FLOW_EXIT && edge->src_conn) return *n = edge->src, edge->src_conn;
  return NULL;
}

static dc_eid find_passing(const building *b, dc_fid n, const char *prefix, const char *name) {
  char conn[512];
  snprintf(conn, sizeof conn, "%s%s", prefix, name);
  for (uint32_t slot = slot_of(b, n, conn); b->slots[slot]; slot = (slot + 1) & (b->n_slots - 1)) {
    dc_fid at;
    const char *found = passing_end(b, b->slots[slot], &at);
    if (at == n && strcmp(found, conn) == 0) return b->slots[slot];
  }
  return 0;
}

/* An edge may be at both an exit and an entry; then it stands in the table for each. */
static dc_status note_passing(building *b) {
  b->n_slots = 16;
  while (b->n_slots < 4 * b->flow->edges.n) b->n_slots *= 2;
  b->slots = DC_NEW_ARRAY(b->scratch, dc_eid, b->n_slots);
  for (dc_eid e = 1; e < b->flow->edges.n; e++) {
    dc_fid n;
    const char *conn = passing_end(b, e, &n);
    if (!conn) continue;
    uint32_t slot = slot_of(b, n, conn);
    for (; b->slots[slot]; slot = (slot + 1) & (b->n_slots - 1)) {
      dc_fid other;
      const char *found = passing_end(b, b->slots[slot], &other);
      if (other == n && strcmp(found, conn) == 0) return flow_fail(b, n, "connector '%s' has more than one edge", conn);
    }
    b->slots[slot] = e;
  }
  return DC_OK;
}

static const char *shown(const char *conn) { return conn ? conn : ""; }

dc_status flow_source(building *b, dc_eid e, flow_end *out) {
  for (;;) {
    const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
    const dc_flow_node *src = dc_flow_at(b->flow, edge->src);
    *out = (flow_end){edge->src, e, edge->src_conn};
    if (src->kind == DC_FLOW_EXIT)
      return flow_fail(b, edge->src, "what leaves it, connector '%s', goes to %s instead of to an access node", shown(edge->src_conn),
                       dc_flow_describe(b->flow, edge->dst, b->scratch));
    if (src->kind != DC_FLOW_ENTRY) return DC_OK;
    if (!edge->src_conn || strncmp(edge->src_conn, "OUT_", 4))
      return flow_fail(b, edge->src, "an edge with a memlet leaves it by a connector OUT_..., not '%s'", shown(edge->src_conn));
    dc_eid before = find_passing(b, edge->src, "IN_", edge->src_conn + 4);
    if (!before) return flow_fail(b, edge->src, "connector '%s' has no edge into 'IN_%s'", edge->src_conn, edge->src_conn + 4);
    e = before;
  }
}

dc_eid flow_beyond(building *b, dc_eid e) {
  const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
  bool passes = dc_flow_at(b->flow, edge->dst)->kind == DC_FLOW_EXIT && edge->dst_conn && strncmp(edge->dst_conn, "IN_", 3) == 0;
  return passes ? find_passing(b, edge->dst, "OUT_", edge->dst_conn + 3) : 0;
}

dc_status flow_target(building *b, dc_eid e, flow_end *out) {
  for (;;) {
    const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
    const dc_flow_node *dst = dc_flow_at(b->flow, edge->dst);
    *out = (flow_end){edge->dst, e, edge->dst_conn};
    if (dst->kind != DC_FLOW_EXIT) return DC_OK;
    if (!edge->dst_conn || strncmp(edge->dst_conn, "IN_", 3))
      return flow_fail(b, edge->dst, "an edge with a memlet reaches it by a connector IN_..., not '%s'", shown(edge->dst_conn));
    dc_eid next = flow_beyond(b, e);
    if (!next) return flow_fail(b, edge->dst, "connector '%s' has no edge out of 'OUT_%s'", edge->dst_conn, edge->dst_conn + 3);
    e = next;
  }
}

/* ---- checks ---- */

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static dc_status check_end(building *b, dc_eid e, dc_fid n, const char *conn, bool is_input) {
  if (!conn || dc_flow_has_connector(b->flow, n, conn, is_input)) return DC_OK;
  return flow_fail_at_edge(b, flow_fail(b, n, "there is no %s connector '%s'", is_input ? "input" : "output", conn), e);
}

/* Each connector has its edges: an input one, an output at least one. */
static dc_status check_connectors(building *b, dc_fid n, bool is_input) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  const dc_flow_names *names = is_input ? &node->in : &node->out;
  uint32_t n_edges = is_input ? node->into.n : node->from.n;
  bool passes = node->kind == DC_FLOW_ENTRY || node->kind == DC_FLOW_EXIT;
  for (uint32_t k = 0; !passes && k < names->n; k++) {
    uint32_t found = 0;
    for (uint32_t j = 0; j < n_edges; j++) {
      const dc_flow_edge *e = dc_flow_edge_at(b->flow, is_input ? node->into.v[j] : node->from.v[j]);
      found += same(is_input ? e->dst_conn : e->src_conn, names->v[k]);
    }
    if (!found) return flow_fail(b, n, "connector '%s' is not connected", names->v[k]);
    if (is_input && found > 1) return flow_fail(b, n, "connector '%s' has %u edges; one was expected", names->v[k], found);
  }
  return DC_OK;
}

static dc_status find_containers(building *b) {
  for (dc_fid n = 1; n < b->flow->nodes.n; n++) {
    const dc_flow_node *node = dc_flow_at(b->flow, n);
    if (node->kind != DC_FLOW_ACCESS) continue;
    b->container[n] = dc_container_find(b->graph, node->label);
    if (!b->container[n]) return flow_fail(b, n, "there is no array of that name");
  }
  return DC_OK;
}

/* ---- nodes ---- */

void flow_emit(building *b, dc_nid node) { dc_scope_push(b->graph, b->out, node); }

dc_cid flow_local(building *b, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape) {
  dc_cid c = dc_container_add(b->graph, name, type, rank, shape, DC_ROLE_TEMP);
  if (b->scope && !rank) dc_cont(b->graph, c)->storage = DC_STORE_REGISTER;
  return c;
}

/* What it was derived from gives it its name and origin. */
static void keep_origin(building *b, dc_nid from, dc_nid to) {
  if (from) dc_node_take_origin(b->graph, to, from);
}

/* Values that come from other access nodes, and those that leave the map into another container. */
static dc_status build_access(building *b, dc_fid n) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  for (uint32_t k = 0; k < node->into.n; k++) {
    flow_end from;
    const dc_flow_edge *e = dc_flow_edge_at(b->flow, node->into.v[k]);
    if (!e->has_memlet || dc_flow_at(b->flow, e->src)->kind == DC_FLOW_EXIT) continue;
    DC_TRY(flow_source(b, node->into.v[k], &from));
    if (dc_flow_at(b->flow, from.node)->kind == DC_FLOW_ACCESS)
      DC_TRY(flow_copy_edge(b, node->into.v[k], b->container[from.node], b->container[n]));
  }
  for (uint32_t k = 0; k < node->from.n; k++) {
    flow_end to;
    const dc_flow_edge *e = dc_flow_edge_at(b->flow, node->from.v[k]);
    if (!e->has_memlet || dc_flow_at(b->flow, e->dst)->kind != DC_FLOW_EXIT) continue;
    DC_TRY(flow_target(b, node->from.v[k], &to));
    if (dc_flow_at(b->flow, to.node)->kind != DC_FLOW_ACCESS)
      return flow_fail(b, n, "its values leave the map for %s, not an access node", dc_flow_describe(b->flow, to.node, b->scratch));
    DC_TRY(flow_copy_edge(b, node->from.v[k], b->container[n], b->container[to.node]));
  }
  return DC_OK;
}

/* ---- library nodes ---- */

static dc_status position_of(building *b, dc_fid n, dc_nid lib, const char *conn, bool is_input, uint32_t *out) {
  char name[256];
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  uint32_t limit = 1024 + node->in.n + node->out.n;
  for (uint32_t k = 0; k < limit && b->params.name(b->params.context, b->graph, lib, is_input, k, name, sizeof name); k++)
    if (strcmp(name, conn) == 0) return *out = k, DC_OK;
  const dc_node *of = dc_node_at(b->graph, lib);
  return flow_fail(b, n, "%s has no %s '%s'", dc_name_text(&b->graph->names, of->lib.op), is_input ? "input" : "output", conn);
}

typedef DC_VEC(dc_cid) cid_list;

static void put_at(building *b, cid_list *list, uint32_t at, dc_cid c) {
  while (list->n <= at) DC_PUSH(b->scratch, list, 0);
  list->v[at] = c;
}

static void extents_of(building *b, const dc_box *box, dc_ex *shape, uint32_t *rank) {
  *rank = 0;
  for (uint32_t d = 0; d < box->rank; d++)
    if (!box->range[d].is_point) shape[(*rank)++] = flow_extent(b, &box->range[d]);
}

/* Does the operator combine all elements into a result without dimensions? It may go into an array of one element. */
static bool gives_scalar(const building *b, dc_nid lib, const cid_list *in) {
  const char *op = dc_name_text(&b->graph->names, dc_node_at(b->graph, lib)->lib.op);
  const dc_attr *kept = dc_node_attr(b->graph, lib, "keepdims"), *axes = dc_node_attr(b->graph, lib, "axes");
  if (strncmp(op, "Reduce", 6) || !kept || kept->kind != DC_ATTR_INT || kept->i || in->n != 1 || !in->v[0]) return false;
  const dc_container *data = dc_cont(b->graph, in->v[0]);
  return !axes || (axes->kind == DC_ATTR_INTS && data->shape && axes->n == data->rank);
}

/* The container itself, or a copy of the part that the memlet says; is_scalar: a part without dimensions is wanted. */
static dc_status part_for_library(building *b, dc_eid e, dc_cid c, bool is_scalar, dc_cid *out, dc_box *box) {
  dc_ex shape[DC_MAX_RANK];
  uint32_t rank;
  DC_TRY(flow_memlet(b, e, c, box));
  extents_of(b, box, shape, &rank);
  if (flow_is_whole(b, box, c) && !(is_scalar && !rank && box->rank)) return *out = c, DC_OK;
  uint32_t at;
  if (flow_is_outside(b, box, c, false, &at))
    return flow_fail_at_edge(b, dc_error(DC_ERR_MODEL, "dimension %u leaves array '%s'", at, dc_cont_name(b->graph, c)), e);
  for (uint32_t d = 0; d < rank; d++)
    if (dc_ex_uses_op(&b->graph->pool, shape[d], DC_EX_PARAM))
      return flow_fail_at_edge(b, dc_error(DC_ERR_UNSUPPORTED, "extent %u of the operator's part changes with the map", d), e);
  const char *name = dc_arena_printf(b->scratch, "%s_part", dc_cont_name(b->graph, c));
  *out = flow_local(b, name, (dc_dtype)dc_cont(b->graph, c)->dtype, rank, shape);
  return DC_OK;
}

static dc_status library_input(building *b, dc_fid n, dc_eid e, dc_cid *out) {
  flow_end from;
  dc_box box;
  DC_TRY(flow_source(b, e, &from));
  if (b->carried[from.edge]) return *out = b->carried[from.edge], DC_OK;
  dc_cid c = b->container[from.node];
  if (!c) return flow_fail(b, n, "its input comes from %s, not from an access node", dc_flow_describe(b->flow, from.node, b->scratch));
  DC_TRY(part_for_library(b, e, c, false, out, &box));
  if (*out == c) return DC_OK;
  dc_box whole = dc_box_whole(b->graph, b->scratch, *out);
  return flow_fail_at_edge(b, flow_copy(b, *out, &whole, c, &box, DC_WCR_NONE), e);
}

typedef struct {
  dc_eid edge;
  dc_cid to, from;
  dc_box box;
} late_copy;

/* Where the result of an output goes: into the first container that takes all of it, and from there to others. */
static dc_status library_output(building *b, dc_fid n, dc_eid e, bool is_scalar, dc_cid *out, late_copy *copy) {
  flow_end to;
  dc_cid part;
  dc_box box;
  *copy = (late_copy){0};
  DC_TRY(flow_target(b, e, &to));
  dc_cid c = b->container[to.node];
  if (!c) { /* straight into another node */
    if (!*out) {
      *out = dc_container_add(b->graph, dc_flow_at(b->flow, n)->label, DC_NOTYPE, 0, NULL, DC_ROLE_TEMP);
      dc_cont(b->graph, *out)->shape = NULL;
    }
    b->carried[to.edge] = *out;
    return DC_OK;
  }
  DC_TRY(part_for_library(b, e, c, is_scalar, &part, &box));
  if (!*out && part == c && !dc_flow_edge_at(b->flow, e)->memlet.wcr) return *out = c, DC_OK;
  const dc_container whole = *dc_cont(b->graph, c);
  if (!*out && part == c)
    part = flow_local(b, dc_arena_printf(b->scratch, "%s_new", dc_cont_name(b->graph, c)), (dc_dtype)whole.dtype, whole.rank, whole.shape);
  if (!*out) *out = part;
  *copy = (late_copy){e, c, *out, box};
  return DC_OK;
}

static dc_status build_library(building *b, dc_fid n) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  cid_list in = {0}, out = {0};
  uint32_t at;
  if (!node->node) return flow_fail(b, n, "it has no operator");
  for (uint32_t k = 0; k < node->into.n; k++) {
    const dc_flow_edge *e = dc_flow_edge_at(b->flow, node->into.v[k]);
    dc_cid c;
    if (!e->has_memlet) continue;
    if (!e->dst_conn) return flow_fail(b, n, "the edge from %s has no connector", dc_flow_describe(b->flow, e->src, b->scratch));
    DC_TRY(position_of(b, n, node->node, e->dst_conn, true, &at));
    DC_TRY(library_input(b, n, node->into.v[k], &c));
    put_at(b, &in, at, c);
  }
  late_copy *copies = DC_NEW_ARRAY(b->scratch, late_copy, node->from.n);
  for (uint32_t k = 0; k < node->from.n; k++) {
    const dc_flow_edge *e = dc_flow_edge_at(b->flow, node->from.v[k]);
    if (!e->has_memlet) continue;
    if (!e->src_conn) return flow_fail(b, n, "the edge to %s has no connector", dc_flow_describe(b->flow, e->dst, b->scratch));
    DC_TRY(position_of(b, n, node->node, e->src_conn, false, &at));
    dc_cid c = at < out.n ? out.v[at] : 0;
    DC_TRY(library_output(b, n, node->from.v[k], gives_scalar(b, node->node, &in), &c, &copies[k]));
    put_at(b, &out, at, c);
  }
  dc_node made = *dc_node_at(b->graph, node->node);
  dc_nid id = dc_node_library(b->graph, "", "", 0, in.v, in.n, out.v, out.n, made.lib.attr, made.lib.n_attr);
  dc_node *to = dc_node_at(b->graph, id);
  if (made.lib.wrt && (in.n > made.lib.n_in || out.n != 1)) return flow_fail(b, n, "a gradient's inputs are those of its operator");
  made.lib.in = to->lib.in, made.lib.out = to->lib.out, made.lib.attr = to->lib.attr;
  if (made.lib.wrt) { /* the last of its inputs may be absent */
    made.lib.in = DC_NEW_ARRAY(&b->graph->arena, dc_cid, made.lib.n_in);
    memcpy(made.lib.in, in.v, in.n * sizeof *in.v);
  } else made.lib.n_in = in.n;
  made.lib.n_out = out.n;
  *to = made;
  flow_emit(b, id);
  b->made[n] = id;
  for (uint32_t k = 0; k < node->from.n; k++) {
    if (!copies[k].edge) continue;
    dc_box whole = dc_box_whole(b->graph, b->scratch, copies[k].from);
    dc_wcr wcr = (dc_wcr)dc_flow_edge_at(b->flow, copies[k].edge)->memlet.wcr;
    DC_TRY(flow_fail_at_edge(b, flow_copy(b, copies[k].to, &copies[k].box, copies[k].from, &whole, wcr), copies[k].edge));
  }
  return DC_OK;
}

/* ---- scopes ---- */

static dc_status build_scope(building *b, dc_fid entry, dc_scope *out);

static dc_status build_map(building *b, dc_fid n) {
  dc_flow_node *node = dc_flow_at(b->flow, n);
  dc_param *params = DC_NEW_ARRAY(b->scratch, dc_param, node->n_ranges);
  uint32_t outer = b->parser.n_params;
  DC_TRY(flow_map_ranges(b, n, params));
  if (b->parser.n_params == outer) {
    if (outer == DC_MAX_LOOPS) return flow_fail(b, n, "more than %d loops", DC_MAX_LOOPS);
    b->parser.params[b->parser.n_params++] = 0;
  }
  dc_scope body = {0};
  DC_TRY(build_scope(b, n, &body));
  b->parser.n_params = outer;
  dc_nid map = dc_node_map(b->graph, node->schedule ? (dc_schedule)(node->schedule - 1) : DC_MAP_PARALLEL, params, node->n_ranges);
  dc_node_at(b->graph, map)->map.body = body;
  if (node->schedule <= 1 + DC_MAP_PARALLEL) DC_PUSH(b->scratch, &b->maps, ((drafted_map){map, node->schedule}));
  if (node->node) keep_origin(b, node->node, map);
  else dc_node_at(b->graph, map)->name = dc_name_intern(&b->graph->names, node->label);
  flow_emit(b, map);
  b->made[n] = b->made[node->other] = map;
  return DC_OK;
}

static dc_status build_node(building *b, dc_fid n) {
  const dc_flow_node *node = dc_flow_at(b->flow, n);
  uint32_t before = b->out->n;
  DC_TRY(check_connectors(b, n, true));
  DC_TRY(check_connectors(b, n, false));
  switch ((dc_flow_kind)node->kind) {
    case DC_FLOW_ACCESS: return build_access(b, n);
    case DC_FLOW_ENTRY: return build_map(b, n);
    case DC_FLOW_LIBRARY: return build_library(b, n);
    case DC_FLOW_TASKLET:
      DC_TRY(flow_tasklet(b, n));
      for (uint32_t k = before; k < b->out->n; k++) {
        if (node->node) keep_origin(b, node->node, b->out->v[k]);
        else dc_node_at(b->graph, b->out->v[k])->name = dc_name_intern(&b->graph->names, node->label);
      }
      if (b->out->n > before) b->made[n] = b->out->v[b->out->n - 1];
      return DC_OK;
    case DC_FLOW_NESTED: return flow_nested(b, n);
    default: return flow_fail(b, n, "it is out of place");
  }
}

static void mark_unit(building *b, dc_fid n, uint32_t unit) {
  b->unit[n] = unit;
  if (dc_flow_at(b->flow, n)->kind != DC_FLOW_ENTRY) return;
  b->unit[dc_flow_at(b->flow, n)->other] = unit;
  for (dc_fid k = b->first[n]; k; k = b->next[k]) mark_unit(b, k, unit);
}

static dc_status build_scope(building *b, dc_fid entry, dc_scope *out) {
  dc_scope *around = b->out;
  dc_fid scope = b->scope;
  b->out = out, b->scope = entry;
  for (dc_fid n = b->first[entry]; n; n = b->next[n]) {
    uint32_t before = out->n, unit = dc_flow_at(b->flow, n)->unit;
    for (uint32_t k = 0; !entry && unit && k < b->flow->units.v[unit].n; k++) flow_emit(b, b->flow->units.v[unit].v[k]);
    if (!entry && unit) continue;
    DC_TRY(build_node(b, n));
    if (!entry) mark_unit(b, n, out->n > before ? dc_flow_add_unit(b->flow, out->v + before, out->n - before) : 0);
  }
  b->out = around, b->scope = scope;
  return DC_OK;
}

/* ---- the whole ---- */

static void list_children(building *b, const dc_fid *order, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) {
    const dc_flow_node *node = dc_flow_at(b->flow, order[k]);
    if (node->kind == DC_FLOW_EXIT) continue;
    if (b->last[node->scope]) b->next[b->last[node->scope]] = order[k];
    else b->first[node->scope] = order[k];
    b->last[node->scope] = order[k];
  }
}

static dc_status build(building *b, dc_scope *out) {
  dc_fid *order;
  uint32_t n;
  for (dc_eid e = 1; e < b->flow->edges.n; e++) {
    const dc_flow_edge *edge = dc_flow_edge_at(b->flow, e);
    if (!edge->src) continue;
    DC_TRY(check_end(b, e, edge->src, edge->src_conn, false));
    DC_TRY(check_end(b, e, edge->dst, edge->dst_conn, true));
  }
  DC_TRY(dc_flow_order(b->flow, b->scratch, &order, &n));
  DC_TRY(find_containers(b));
  DC_TRY(note_passing(b));
  list_children(b, order, n);
  return build_scope(b, 0, out);
}

/* What is known of a node from now on. */
static void settle(building *b) {
  for (dc_fid n = 1; n < b->flow->nodes.n; n++) {
    dc_flow_node *node = dc_flow_at(b->flow, n);
    if (!node->kind) continue;
    if (b->made[n]) node->node = b->made[n];
    if (!node->unit) node->unit = b->unit[n];
    if (node->kind != DC_FLOW_ACCESS) node->key = (dc_flow_key){node->kind, node->node, 0, 0};
  }
  for (dc_fid n = 1; n < b->flow->nodes.n; n++) {
    dc_flow_node *node = dc_flow_at(b->flow, n);
    if (node->kind != DC_FLOW_ACCESS) continue;
    dc_nid writer = 0;
    for (uint32_t k = 0; k < node->into.n; k++) {
      const dc_flow_edge *e = dc_flow_edge_at(b->flow, node->into.v[k]);
      if (e->has_memlet && dc_flow_at(b->flow, e->src)->node) writer = dc_flow_at(b->flow, e->src)->node;
    }
    node->key = (dc_flow_key){DC_FLOW_ACCESS, b->container[n], writer, node->scope ? dc_flow_at(b->flow, node->scope)->node : 0};
  }
  b->flow->is_draft = false;
}

dc_status dc_flow_build(dc_flow *flow, dc_graph *graph, uint32_t state, dc_flow_params params) {
  dc_arena scratch = {0};
  dc_scope out = {0};
  if (state >= graph->states.n)
    return dc_error(DC_ERR_VALUE, "graph '%s' has no state %u", dc_name_text(&graph->names, graph->name), state);
  building *b = DC_NEW(&scratch, building);
  uint32_t n = flow->nodes.n + 1;
  *b = (building){.flow = flow, .graph = graph, .params = params, .scratch = &scratch};
  b->parser.graph = graph, b->parser.scratch = &scratch, b->parser.is_loose = true;
  b->container = DC_NEW_ARRAY(&scratch, dc_cid, n), b->made = DC_NEW_ARRAY(&scratch, dc_nid, n);
  b->unit = DC_NEW_ARRAY(&scratch, uint32_t, n);
  b->first = DC_NEW_ARRAY(&scratch, dc_fid, n), b->last = DC_NEW_ARRAY(&scratch, dc_fid, n), b->next = DC_NEW_ARRAY(&scratch, dc_fid, n);
  b->carried = DC_NEW_ARRAY(&scratch, dc_cid, flow->edges.n + 1);
  dc_nid first = graph->nodes.n;
  dc_cid first_container = graph->containers.n;
  dc_status status = build(b, &out);
  if (!status) {
    dc_homes homes;
    dc_homes_start(&homes, graph, &scratch);
    for (uint32_t k = 0; k < graph->states.n; k++) dc_homes_add(&homes, k == state ? &out : &graph->states.v[k].scope);
    flow_schedules(b, &homes);
    flow_privatize(b, &homes, &out, first, first_container);
    graph->states.v[state].scope = out;
    settle(b);
  }
  dc_arena_free(&scratch);
  return dc_error_at(status, "state '%s'", dc_name_text(&graph->names, graph->states.v[state].name));
}
