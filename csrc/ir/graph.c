/* Graphs: creation, containers, nodes, attributes and clones.  Dataflow queries are in uses.c. */
#include "ir/graph.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

dc_graph *dc_graph_create(const char *name) {
  dc_graph *graph = calloc(1, sizeof *graph);
  if (!graph) abort();
  graph->references = 1, graph->machine = dc_machine_typical;
  graph->names.arena = &graph->arena;
  dc_pool_init(&graph->pool, &graph->arena, &graph->names);
  graph->name = dc_name_intern(&graph->names, name);
  DC_PUSH(&graph->arena, &graph->containers, (dc_container){0});
  DC_PUSH(&graph->arena, &graph->nodes, (dc_node){0});
  return graph;
}

void dc_graph_destroy(dc_graph *graph) {
  if (!graph || __atomic_sub_fetch(&graph->references, 1, __ATOMIC_ACQ_REL)) return;
  dc_graph_destroy(graph->origin);
  for (uint32_t i = 0; i < graph->subgraphs.n; i++) dc_graph_destroy(graph->subgraphs.v[i]);
  if (graph->release) graph->release(graph->owner);
  dc_arena_free(&graph->arena);
  free(graph);
}

/* ---- containers ---- */

const char *dc_cont_name(const dc_graph *graph, dc_cid c) { return dc_name_text(&graph->names, dc_cont(graph, c)->name); }

/* The table is not told of containers that go or get another name, so what it says is checked. */
static dc_cid owner_of(const dc_graph *graph, dc_name name) {
  dc_cid c = name < graph->named.n ? graph->named.v[name] : 0;
  return c && c < graph->containers.n && dc_cont(graph, c)->name == name ? c : 0;
}

dc_cid dc_container_find(const dc_graph *graph, const char *name) {
  dc_name id = dc_name_find(&graph->names, name);
  return id ? owner_of(graph, id) : 0;
}

void dc_container_rename(dc_graph *graph, dc_cid c, const char *name) {
  dc_name id = dc_name_intern(&graph->names, name);
  dc_cont(graph, c)->name = id;
  while (graph->named.n <= id) DC_PUSH(&graph->arena, &graph->named, 0);
  if (!owner_of(graph, id)) graph->named.v[id] = c;
}

void dc_container_forget(dc_graph *graph, dc_cid c) { *dc_cont(graph, c) = (dc_container){.role = DC_ROLE_TEMP}; }

/* A name that no container has. */
static const char *unique_name(dc_graph *graph, const char *wanted) {
  if (!*wanted) wanted = "t";
  dc_name found = dc_name_find(&graph->names, wanted);
  if (!found || !owner_of(graph, found)) return wanted;
  for (uint32_t k = graph->containers.n;; k++) {
    char *candidate = dc_arena_printf(&graph->arena, "%s_%u", wanted, k);
    if (!dc_name_find(&graph->names, candidate)) return candidate;
  }
}

dc_cid dc_container_add(dc_graph *graph, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape, dc_role role) {
  const char *unique = unique_name(graph, name);
  dc_container c = {.dtype = (uint8_t)type, .role = (uint8_t)role, .rank = rank};
  c.shape = dc_arena_copy(&graph->arena, shape, rank * sizeof *shape);
  DC_PUSH(&graph->arena, &graph->containers, c);
  dc_cid id = graph->containers.n - 1;
  dc_container_rename(graph, id, unique);
  if (role == DC_ROLE_INPUT) DC_PUSH(&graph->arena, &graph->inputs, id);
  return id;
}

dc_cid dc_container_add_const(dc_graph *graph, const char *name, dc_dtype type, uint32_t rank, const int64_t *dims,
                              const void *data, uint64_t data_bytes) {
  dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, rank);
  for (uint32_t d = 0; d < rank; d++) shape[d] = dc_ex_int(&graph->pool, dims[d]);
  dc_cid id = dc_container_add(graph, name, type, rank, shape, DC_ROLE_CONST);
  dc_container *c = dc_cont(graph, id);
  c->data = dc_arena_copy(&graph->arena, data, data_bytes);
  c->data_bytes = data_bytes;
  return id;
}

dc_cid dc_container_after(dc_graph *graph, dc_cid like, const char *suffix, dc_dtype type, uint32_t rank, const dc_ex *shape) {
  const char *name = dc_arena_printf(&graph->arena, "%s_%s", dc_cont_name(graph, like), suffix);
  return dc_container_add(graph, name, type, rank, shape, DC_ROLE_TEMP);
}

dc_cid dc_container_like(dc_graph *graph, dc_cid like, const char *suffix) {
  const dc_container *k = dc_cont(graph, like);
  return dc_container_after(graph, like, suffix, (dc_dtype)k->dtype, k->rank, k->shape);
}

dc_cid dc_container_root(const dc_graph *graph, dc_cid c) {
  while (dc_cont(graph, c)->alias_of) c = dc_cont(graph, c)->alias_of;
  return c;
}

bool dc_container_dims(const dc_graph *graph, dc_cid c, int64_t *dims) {
  const dc_container *container = dc_cont(graph, c);
  for (uint32_t d = 0; d < container->rank; d++)
    if (!dc_ex_is_int(&graph->pool, container->shape[d], &dims[d])) return false;
  return true;
}

bool dc_container_number(const dc_graph *graph, dc_cid c, int64_t *out) {
  const dc_container *k = dc_cont(graph, c);
  int32_t narrow;
  if (k->role != DC_ROLE_CONST || !k->data || (k->dtype != DC_I64 && k->dtype != DC_I32)) return false;
  if (k->data_bytes != (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype)) return false;
  if (k->dtype == DC_I64) return memcpy(out, k->data, sizeof *out), true;
  memcpy(&narrow, k->data, sizeof narrow);
  return *out = narrow, true;
}

void dc_graph_mark_output(dc_graph *graph, dc_cid c) {
  dc_cont(graph, c)->is_output = true;
  DC_PUSH(&graph->arena, &graph->outputs, c);
}

static void take_equal(dc_graph *graph, dc_equality e) {
  for (uint32_t k = 0; k < graph->equalities.n; k++)
    if (graph->equalities.v[k].a == e.a && graph->equalities.v[k].b == e.b) return;
  DC_PUSH(&graph->arena, &graph->equalities, e);
}

void dc_graph_take_equal(dc_graph *graph, dc_ex a, dc_ex b) { take_equal(graph, (dc_equality){a, b, false}); }
void dc_graph_take_broadcast(dc_graph *graph, dc_ex a, dc_ex b) { take_equal(graph, (dc_equality){a, b, true}); }

/* ---- nodes ---- */

static dc_nid add_node(dc_graph *graph, dc_node node) {
  DC_PUSH(&graph->arena, &graph->nodes, node);
  return graph->nodes.n - 1;
}

dc_nid dc_node_library(dc_graph *graph, const char *op, const char *domain, int since, const dc_cid *in, uint32_t n_in,
                       const dc_cid *out, uint32_t n_out, const dc_attr *attr, uint32_t n_attr) {
  dc_node node = {.kind = DC_NODE_LIBRARY};
  node.lib.op = dc_name_intern(&graph->names, op);
  node.lib.domain = dc_name_intern(&graph->names, domain);
  node.lib.since = since;
  node.lib.n_in = n_in, node.lib.n_out = n_out, node.lib.n_attr = n_attr;
  node.lib.in = dc_arena_copy(&graph->arena, in, n_in * sizeof *in);
  node.lib.out = dc_arena_copy(&graph->arena, out, n_out * sizeof *out);
  node.lib.attr = dc_arena_copy(&graph->arena, attr, n_attr * sizeof *attr);
  return add_node(graph, node);
}

dc_nid dc_node_map(dc_graph *graph, dc_schedule schedule, const dc_param *params, uint32_t n_params) {
  dc_node node = {.kind = DC_NODE_MAP};
  node.map.schedule = (uint8_t)schedule;
  node.map.n_params = n_params;
  node.map.params = dc_arena_copy(&graph->arena, params, n_params * sizeof *params);
  return add_node(graph, node);
}

dc_nid dc_node_tasklet(dc_graph *graph, dc_cid out, dc_wcr wcr, const dc_ex *index, uint32_t rank, dc_ex guard, dc_ex value) {
  int64_t truth;
  if (guard && dc_ex_is_int(&graph->pool, guard, &truth) && truth) guard = 0;
  dc_node node = {.kind = DC_NODE_TASKLET};
  node.tasklet.out = out;
  node.tasklet.wcr = (uint8_t)wcr;
  node.tasklet.rank = rank;
  node.tasklet.index = dc_arena_copy(&graph->arena, index, rank * sizeof *index);
  node.tasklet.guard = guard, node.tasklet.value = value;
  return add_node(graph, node);
}

void dc_node_take_origin(dc_graph *graph, dc_nid to, dc_nid from) {
  dc_node *node = dc_node_at(graph, to);
  const dc_node *origin = dc_node_at(graph, from);
  node->name = origin->name, node->tag_op = origin->tag_op, node->tag_wrt = origin->tag_wrt;
}

dc_nid dc_node_wrap(dc_graph *graph, dc_schedule schedule, const dc_param *params, uint32_t n, dc_nid inner) {
  if (n == 0 && schedule != DC_MAP_REDUCE) return inner;
  dc_nid map = dc_node_map(graph, schedule, params, n);
  dc_node_take_origin(graph, map, inner);
  dc_scope_push(graph, &dc_node_at(graph, map)->map.body, inner);
  return map;
}

void dc_scope_push(dc_graph *graph, dc_scope *scope, dc_nid node) {
  /* The scope may live inside the node array; pushing to a scope adds no node, so it stays put. */
  DC_PUSH(&graph->arena, scope, node);
}

dc_state *dc_state_add(dc_graph *graph, const char *name) {
  DC_PUSH(&graph->arena, &graph->states, ((dc_state){.name = dc_name_intern(&graph->names, name)}));
  return &graph->states.v[graph->states.n - 1];
}

dc_status dc_graph_each_map(dc_graph *graph, dc_map_fn put, void *context) {
  for (uint32_t state = 0; state < graph->states.n; state++) {
    dc_scope before = graph->states.v[state].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      if (dc_node_at(graph, before.v[k])->kind == DC_NODE_MAP) DC_TRY(put(context, graph, before.v[k], &after));
      else dc_scope_push(graph, &after, before.v[k]);
    }
    graph->states.v[state].scope = after;
  }
  return DC_OK;
}

dc_scope *dc_graph_scope(dc_graph *graph) {
  if (graph->states.n == 0) dc_state_add(graph, "main");
  return &graph->states.v[graph->states.n - 1].scope;
}

const char *dc_node_describe(dc_graph *graph, dc_nid node) {
  const dc_node *n = dc_node_at(graph, node);
  const char *name = dc_name_text(&graph->names, n->name);
  if (n->kind == DC_NODE_LIBRARY) {
    const char *op = dc_name_text(&graph->names, n->lib.op);
    const char *first = n->lib.n_out && n->lib.out[0] ? dc_cont_name(graph, n->lib.out[0]) : "";
    if (*name) return dc_arena_printf(&graph->arena, "node '%s' (%s)", name, op);
    return dc_arena_printf(&graph->arena, "node %s (output '%s')", op, first);
  }
  const char *tag = dc_name_text(&graph->names, n->tag_op);
  if (n->kind == DC_NODE_MAP) return dc_arena_printf(&graph->arena, "map '%s'%s%s", name, *tag ? " of " : "", tag);
  return dc_arena_printf(&graph->arena, "tasklet that writes '%s'", dc_cont_name(graph, n->tasklet.out));
}

/* ---- attributes ---- */

const dc_attr *dc_node_attr(const dc_graph *graph, dc_nid node, const char *name) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  dc_name id = dc_name_find(&graph->names, name);
  for (uint32_t k = 0; id && k < lib->n_attr; k++)
    if (lib->attr[k].name == id) return &lib->attr[k];
  return NULL;
}

bool dc_map_holds_maps(const dc_graph *graph, const dc_map *map) {
  for (uint32_t k = 0; k < map->body.n; k++)
    if (dc_node_at(graph, map->body.v[k])->kind == DC_NODE_MAP) return true;
  return false;
}

int64_t dc_node_attr_int(const dc_graph *graph, dc_nid node, const char *name, int64_t fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_INT ? a->i : fallback;
}

bool dc_attr_is_wish(const dc_graph *graph, const dc_attr *attr) { return strncmp(dc_name_text(&graph->names, attr->name), "__", 2) == 0; }

const char *dc_node_wish(const dc_graph *graph, dc_nid node) {
  const dc_attr *own = dc_node_attr(graph, node, "__implementation"), *backward = dc_node_attr(graph, node, "__backward_implementation");
  const dc_attr *a = dc_node_at(graph, node)->lib.wrt && backward ? backward : own;
  return a && a->kind == DC_ATTR_STRING ? a->s : NULL;
}

static dc_attr attr_of(dc_graph *graph, const char *name, dc_attr_kind kind, uint32_t n) {
  return (dc_attr){.name = dc_name_intern(&graph->names, name), .kind = (uint8_t)kind, .n = n};
}

dc_attr dc_attr_int(dc_graph *graph, const char *name, int64_t value) {
  dc_attr a = attr_of(graph, name, DC_ATTR_INT, 1);
  a.i = value;
  return a;
}

dc_attr dc_attr_float(dc_graph *graph, const char *name, double value) {
  dc_attr a = attr_of(graph, name, DC_ATTR_FLOAT, 1);
  a.f = value;
  return a;
}

dc_attr dc_attr_string(dc_graph *graph, const char *name, const char *value, size_t length) {
  dc_attr a = attr_of(graph, name, DC_ATTR_STRING, (uint32_t)length);
  char *copy = dc_arena_alloc(&graph->arena, length + 1);
  a.s = length ? memcpy(copy, value, length) : copy;
  return a;
}

dc_attr dc_attr_ints(dc_graph *graph, const char *name, const int64_t *values, uint32_t n) {
  dc_attr a = attr_of(graph, name, DC_ATTR_INTS, n);
  a.ints = dc_arena_copy(&graph->arena, values, n * sizeof *values);
  return a;
}

dc_attr dc_attr_floats(dc_graph *graph, const char *name, const double *values, uint32_t n) {
  dc_attr a = attr_of(graph, name, DC_ATTR_FLOATS, n);
  a.floats = dc_arena_copy(&graph->arena, values, n * sizeof *values);
  return a;
}

/* ---- WCR ---- */

static const char *const wcr_names[] = {
    [DC_WCR_NONE] = "", [DC_WCR_SUM] = "sum", [DC_WCR_PROD] = "prod", [DC_WCR_MIN] = "min", [DC_WCR_MAX] = "max"};

const char *dc_device_name(dc_device device) { return device == DC_HOST ? "the host" : device == DC_CUDA ? "cuda" : "an unknown device"; }

const char *dc_wcr_name(dc_wcr wcr) { return wcr_names[wcr]; }

dc_op dc_wcr_prim(dc_wcr wcr) {
  static const dc_op prims[] = {[DC_WCR_SUM] = DC_ADD, [DC_WCR_PROD] = DC_MUL, [DC_WCR_MIN] = DC_MIN, [DC_WCR_MAX] = DC_MAX};
  return prims[wcr];
}

double dc_wcr_identity(dc_wcr wcr, dc_dtype type) {
  bool inf = dc_dtype_is_float(type);
  switch (wcr) {
    case DC_WCR_PROD: return 1;
    case DC_WCR_MIN: return inf ? INFINITY : dc_dtype_max(type);
    case DC_WCR_MAX: return inf ? -INFINITY : dc_dtype_min(type);
    default: return 0;
  }
}

/* ---- copies ---- */

typedef struct {
  DC_VEC(dc_param) from;
  DC_VEC(dc_ex) to;
} renaming;

/* Copies without renaming; the maps' own parameters are renewed by the caller. */
static dc_nid copy_tree(dc_graph *graph, dc_nid id) {
  dc_node node = *dc_node_at(graph, id);
  if (node.kind == DC_NODE_LIBRARY) {
    node.lib.in = dc_arena_copy(&graph->arena, node.lib.in, node.lib.n_in * sizeof *node.lib.in);
    node.lib.out = dc_arena_copy(&graph->arena, node.lib.out, node.lib.n_out * sizeof *node.lib.out);
    return add_node(graph, node);
  }
  if (node.kind == DC_NODE_TASKLET) {
    node.tasklet.index = dc_arena_copy(&graph->arena, node.tasklet.index, node.tasklet.rank * sizeof(dc_ex));
    return add_node(graph, node);
  }
  dc_scope body = node.map.body;
  node.map.body = (dc_scope){0};
  node.map.params = dc_arena_copy(&graph->arena, node.map.params, node.map.n_params * sizeof(dc_param));
  dc_nid copy = add_node(graph, node);
  for (uint32_t k = 0; k < body.n; k++) {
    dc_nid child = copy_tree(graph, body.v[k]);
    dc_scope_push(graph, &dc_node_at(graph, copy)->map.body, child);
  }
  return copy;
}

/* Gives every map of the tree parameters of its own; `r` collects those of the enclosing maps. */
static void renew_params(dc_graph *graph, dc_nid id, renaming *r) {
  dc_substitution s = {r->from.v, r->to.v, r->from.n};
  if (dc_node_at(graph, id)->kind == DC_NODE_TASKLET) dc_node_rewrite(graph, id, dc_ex_substitute, &s);
  if (dc_node_at(graph, id)->kind != DC_NODE_MAP) return;
  dc_map map = dc_node_at(graph, id)->map;
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter p = graph->pool.params.v[map.params[k]];
    dc_ex begin = dc_ex_subst(&graph->pool, p.begin, r->from.v, r->to.v, r->from.n);
    dc_ex end = dc_ex_subst(&graph->pool, p.end, r->from.v, r->to.v, r->from.n);
    dc_param fresh = dc_param_new(&graph->pool, dc_name_text(&graph->names, p.name), begin, end, p.step);
    DC_PUSH(&graph->arena, &r->from, map.params[k]);
    DC_PUSH(&graph->arena, &r->to, dc_ex_par(&graph->pool, fresh));
    map.params[k] = fresh;
  }
  for (uint32_t k = 0; k < map.body.n; k++) renew_params(graph, map.body.v[k], r);
  r->from.n -= map.n_params, r->to.n -= map.n_params;
}

dc_nid dc_node_clone(dc_graph *graph, dc_nid node) {
  dc_nid copy = copy_tree(graph, node);
  renaming r = {0};
  renew_params(graph, copy, &r);
  return copy;
}

static void *copied(dc_graph *to, const void *items, size_t bytes) { return items ? dc_arena_copy(&to->arena, items, bytes) : NULL; }
#define COPY_VEC(to, from, field)                                                                                                          \
  ((to)->field.v = copied((to), (from)->field.v, (from)->field.n * sizeof(*(from)->field.v)),                                              \
   (to)->field.n = (to)->field.cap = (from)->field.n)

static void copy_scope(dc_graph *to, dc_scope *scope) {
  scope->v = copied(to, scope->v, scope->n * sizeof(dc_nid));
  scope->cap = scope->n;
}

static void clone_container(dc_graph *to, dc_container *c) {
  c->shape = copied(to, c->shape, c->rank * sizeof(dc_ex));
  c->strides = copied(to, c->strides, c->rank * sizeof(dc_ex));
  c->known = copied(to, c->known, c->known_count * sizeof(dc_ex));
}

static void clone_attr(dc_graph *to, dc_attr *a) {
  if (a->kind == DC_ATTR_STRING) a->s = copied(to, a->s, (size_t)a->n + 1);
  if (a->kind == DC_ATTR_INTS) a->ints = copied(to, a->ints, a->n * sizeof *a->ints);
  if (a->kind == DC_ATTR_FLOATS) a->floats = copied(to, a->floats, a->n * sizeof *a->floats);
  if (a->kind != DC_ATTR_STRINGS) return;
  a->strings = copied(to, a->strings, a->n * sizeof *a->strings);
  for (uint32_t k = 0; k < a->n; k++) a->strings[k] = dc_arena_strdup(&to->arena, a->strings[k]);
}

static void clone_node(dc_graph *to, dc_node *n) {
  if (n->kind == DC_NODE_MAP) {
    n->map.params = copied(to, n->map.params, n->map.n_params * sizeof(dc_param));
    copy_scope(to, &n->map.body);
  } else if (n->kind == DC_NODE_TASKLET) {
    n->tasklet.index = copied(to, n->tasklet.index, n->tasklet.rank * sizeof(dc_ex));
  } else if (n->kind == DC_NODE_LIBRARY) {
    n->lib.in = copied(to, n->lib.in, n->lib.n_in * sizeof(dc_cid));
    n->lib.out = copied(to, n->lib.out, n->lib.n_out * sizeof(dc_cid));
    n->lib.attr = copied(to, n->lib.attr, n->lib.n_attr * sizeof(dc_attr));
    for (uint32_t k = 0; k < n->lib.n_attr; k++) clone_attr(to, &n->lib.attr[k]);
  }
}

/* Ids are indices, so the flat arrays copy as they are; only what they point to is renewed. */
dc_graph *dc_graph_clone(const dc_graph *graph) {
  dc_graph *to = calloc(1, sizeof *to);
  if (!to) abort();
  to->references = 1;
  to->origin = (dc_graph *)graph; /* constant data stays there */
  __atomic_add_fetch(&to->origin->references, 1, __ATOMIC_RELAXED);
  to->name = graph->name, to->opset = graph->opset, to->machine = graph->machine, to->trained = graph->trained;
  to->names = graph->names, to->names.arena = &to->arena;
  COPY_VEC(to, graph, names.names);
  for (uint32_t k = 0; k < to->names.names.n; k++) to->names.names.v[k] = dc_arena_strdup(&to->arena, to->names.names.v[k]);
  to->names.slots = copied(to, graph->names.slots, graph->names.slot_count * sizeof(uint32_t));
  to->pool = graph->pool, to->pool.arena = &to->arena, to->pool.names = &to->names;
  COPY_VEC(to, graph, pool.nodes);
  COPY_VEC(to, graph, pool.args);
  COPY_VEC(to, graph, pool.symbols);
  COPY_VEC(to, graph, pool.named);
  COPY_VEC(to, graph, pool.params);
  to->pool.slots = copied(to, graph->pool.slots, graph->pool.slot_count * sizeof(uint32_t));
  COPY_VEC(to, graph, containers);
  COPY_VEC(to, graph, named);
  for (dc_cid c = 1; c < to->containers.n; c++) clone_container(to, dc_cont(to, c));
  COPY_VEC(to, graph, nodes);
  for (dc_nid n = 1; n < to->nodes.n; n++) clone_node(to, dc_node_at(to, n));
  COPY_VEC(to, graph, states);
  for (uint32_t s = 0; s < to->states.n; s++) copy_scope(to, &to->states.v[s].scope);
  COPY_VEC(to, graph, inputs);
  COPY_VEC(to, graph, outputs);
  COPY_VEC(to, graph, captures);
  COPY_VEC(to, graph, equalities);
  for (uint32_t k = 0; k < graph->subgraphs.n; k++) DC_PUSH(&to->arena, &to->subgraphs, dc_graph_clone(graph->subgraphs.v[k]));
  return to;
}
