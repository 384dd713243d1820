/* The verifier: what every pass may rely on, a rule a row.
 *
 * A rule looks at one item (container or node in its scope) and says what is wrong, or NULL. */
#include <string.h>

#include "ir/graph.h"

enum { MAX_PARAMS = 256 };

typedef struct {
  const dc_graph *graph;
  dc_nid node;
  dc_param params[MAX_PARAMS]; /* of the enclosing maps */
  uint32_t n_params;
  const char *problem; /* of the expression being walked */
} context;

/* ---- expressions ---- */

static void check_leaf(void *opaque, const dc_pool *pool, dc_ex e) {
  context *c = opaque;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ) {
    if (node->ref == 0 || node->ref >= c->graph->containers.n) c->problem = "reads a container that does not exist";
    else if (dc_cont(c->graph, node->ref)->rank != node->nargs) c->problem = "reads with an index count other than the container's rank";
    else if (dc_cont(c->graph, node->ref)->dtype != node->dtype) c->problem = "reads with a type other than the container's";
  }
  if (node->op != DC_EX_PARAM) return;
  for (uint32_t k = 0; k < c->n_params; k++)
    if (c->params[k] == node->ref) return;
  c->problem = "uses a parameter outside its map";
}

static const char *check_ex(context *c, dc_ex e, dc_dtype type) {
  c->problem = NULL;
  if (!e || e >= c->graph->pool.nodes.n) return "lacks an expression";
  dc_ex_walk(&c->graph->pool, e, check_leaf, c);
  if (c->problem) return c->problem;
  return type && dc_ex_dtype(&c->graph->pool, e) != type ? "has an expression of the wrong type" : NULL;
}

/* ---- containers ---- */

static const char *container_shape_is_i64(context *c, dc_cid id) {
  const dc_container *container = dc_cont(c->graph, id);
  for (uint32_t d = 0; container->shape && d < container->rank; d++) {
    const char *problem = check_ex(c, container->shape[d], DC_I64);
    if (problem) return problem;
    if (dc_ex_uses_op(&c->graph->pool, container->shape[d], DC_EX_READ)) return "has an extent that reads data";
  }
  return NULL;
}

static const char *container_alias_is_acyclic(context *c, dc_cid id) {
  uint32_t steps = 0;
  for (dc_cid at = id; at; at = dc_cont(c->graph, at)->alias_of) {
    if (at >= c->graph->containers.n) return "is a view of a container that does not exist";
    if (++steps > c->graph->containers.n) return "is a view of itself";
  }
  return NULL;
}

static const char *container_const_has_data(context *c, dc_cid id) {
  const dc_container *container = dc_cont(c->graph, id);
  uint64_t bytes = (uint64_t)dc_dtype_bytes((dc_dtype)container->dtype);
  if (container->role == DC_ROLE_CONST && !container->data && container->dtype != DC_STRING) return "is const without data";
  if (!container->data || !container->shape || !bytes) return NULL;
  for (uint32_t d = 0; d < container->rank; d++) {
    int64_t extent;
    if (!dc_ex_is_int(&c->graph->pool, container->shape[d], &extent)) return "has data and a symbolic extent";
    if (extent < 0 || __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes)) return "has data and an impossible shape";
  }
  return bytes != container->data_bytes ? "has data of another size than its shape" : NULL;
}

static const char *container_register_is_small(context *c, dc_cid id) {
  const dc_container *container = dc_cont(c->graph, id);
  int64_t extent;
  for (uint32_t d = 0; container->storage == DC_STORE_REGISTER && d < container->rank; d++)
    if (!dc_ex_is_int(&c->graph->pool, container->shape[d], &extent)) return "is a register with a symbolic extent";
  return container->storage == DC_STORE_REGISTER && container->role != DC_ROLE_TEMP ? "is a register but not a temp" : NULL;
}

/* ---- nodes ---- */

static const char *tasklet_is_sound(context *c) {
  dc_tasklet t = dc_node_at(c->graph, c->node)->tasklet;
  const char *problem;
  if (t.out == 0 || t.out >= c->graph->containers.n) return "writes a container that does not exist";
  const dc_container *out = dc_cont(c->graph, t.out);
  if (out->rank != t.rank) return "writes with an index count other than the container's rank";
  if (out->role == DC_ROLE_INPUT || out->role == DC_ROLE_PARAM || out->role == DC_ROLE_CONST) return "writes an input or a constant";
  for (uint32_t d = 0; d < t.rank; d++)
    if ((problem = check_ex(c, t.index[d], DC_I64))) return problem;
  if (t.guard && (problem = check_ex(c, t.guard, DC_BOOL))) return problem;
  return check_ex(c, t.value, DC_NOTYPE);
}

static const char *library_refers_to_containers(context *c) {
  const dc_library *lib = &dc_node_at(c->graph, c->node)->lib;
  for (uint32_t k = 0; k < lib->n_in; k++)
    if (lib->in[k] >= c->graph->containers.n) return "reads a container that does not exist";
  for (uint32_t k = 0; k < lib->n_out; k++)
    if (lib->out[k] >= c->graph->containers.n) return "writes a container that does not exist";
  if (lib->wrt && lib->n_in != lib->n_fwd_in + 2 * lib->n_fwd_out) return "is a gradient with the wrong number of inputs";
  return lib->wrt && lib->n_out != 1 ? "is a gradient with other than one output" : NULL;
}

/* Pushes the map's parameters; each range may use the ones before it. */
static const char *map_ranges_are_sound(context *c) {
  dc_map map = dc_node_at(c->graph, c->node)->map;
  for (uint32_t k = 0; k < map.n_params; k++) {
    if (map.params[k] == 0 || map.params[k] >= c->graph->pool.params.n) return "has a parameter that does not exist";
    for (uint32_t j = 0; j < c->n_params; j++)
      if (c->params[j] == map.params[k]) return "binds a parameter twice";
    dc_parameter p = c->graph->pool.params.v[map.params[k]];
    const char *problem = check_ex(c, p.begin, DC_I64);
    if (!problem) problem = check_ex(c, p.end, DC_I64);
    if (problem) return problem;
    int64_t step;
    if (!dc_ex_is_int(&c->graph->pool, p.step, &step) || step < 1) return "has a step that is not a positive constant";
    if (c->n_params == MAX_PARAMS) return "is nested too deeply";
    c->params[c->n_params++] = map.params[k];
  }
  return NULL;
}

/* ---- the table ---- */

typedef const char *(*container_rule)(context *, dc_cid);
static const container_rule container_rules[] = {container_shape_is_i64, container_alias_is_acyclic, container_const_has_data, container_register_is_small};

typedef const char *(*node_rule)(context *);
static const node_rule node_rules[] = {[DC_NODE_LIBRARY] = library_refers_to_containers, [DC_NODE_MAP] = map_ranges_are_sound, [DC_NODE_TASKLET] = tasklet_is_sound};

static dc_status verify_scope(context *c, const dc_scope *scope, int depth) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (scope->v[k] == 0 || scope->v[k] >= c->graph->nodes.n) return dc_error(DC_ERR_MODEL, "a scope holds a node that does not exist");
    uint32_t outer = c->n_params;
    c->node = scope->v[k];
    const dc_node *node = dc_node_at(c->graph, c->node);
    const char *problem = depth > 60 ? "is nested too deeply" : node_rules[node->kind](c);
    if (problem) {
      const char *what = node->kind == DC_NODE_LIBRARY ? dc_name_text(&c->graph->names, node->lib.op) : node->kind == DC_NODE_MAP ? "map" : "tasklet";
      return dc_error(DC_ERR_MODEL, "%s '%s' (node %u) %s", what, dc_name_text(&c->graph->names, node->name), c->node, problem);
    }
    if (node->kind == DC_NODE_MAP) DC_TRY(verify_scope(c, &node->map.body, depth + 1));
    c->n_params = outer;
  }
  return DC_OK;
}

static dc_status verify(context *c) {
  for (dc_cid id = 1; id < c->graph->containers.n; id++)
    for (size_t r = 0; r < sizeof container_rules / sizeof *container_rules; r++) {
      const char *problem = container_rules[r](c, id);
      if (problem) return dc_error(DC_ERR_MODEL, "container '%s' %s", dc_cont_name(c->graph, id), problem);
    }
  for (uint32_t s = 0; s < c->graph->states.n; s++) DC_TRY(verify_scope(c, &c->graph->states.v[s].scope, 0));
  for (uint32_t k = 0; k < c->graph->subgraphs.n; k++) DC_TRY(dc_graph_verify(c->graph->subgraphs.v[k]));
  return DC_OK;
}

dc_status dc_graph_verify(const dc_graph *graph) {
  context c = {.graph = graph};
  return dc_error_at(verify(&c), "graph '%s'", dc_name_text(&graph->names, graph->name));
}
