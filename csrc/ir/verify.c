/* The verifier: what every pass may rely on, a rule a row.
 *
 * A rule looks at one item (container or node in its scope) and says what is wrong, or NULL. */
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

typedef struct {
  const dc_graph *graph;
  dc_arena *scratch;
  dc_nid node;
  dc_param params[DC_MAX_LOOPS]; /* of the enclosing maps; 0 for a map without any */
  bool moves[DC_MAX_LOOPS];      /* with the iterations of the innermost REDUCE map */
  uint32_t n_params;
  dc_nid reduce; /* the innermost REDUCE map around, or 0 */
  bool *written;         /* by container: so far */
  uint32_t *accumulates; /* by container: depth and WCR of the REDUCE map around that combines into it, or 0 ... */
  dc_nid *accumulator;   /* ... and a tasklet that does */
  const char *problem;  /* of the expression being walked */
} context;

/* ---- expressions ---- */

/* Is this the very element that the REDUCE map around combines into? */
static bool is_accumulator(const context *c, dc_cid cid, const dc_ex *index, uint32_t rank) {
  if (!c->accumulates[cid]) return false;
  const dc_tasklet *t = &dc_node_at(c->graph, c->accumulator[cid])->tasklet;
  return t->rank == rank && memcmp(t->index, index, rank * sizeof *index) == 0;
}

static void check_leaf(void *opaque, const dc_pool *pool, dc_ex e) {
  context *c = opaque;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ) {
    if (node->ref == 0 || node->ref >= c->graph->containers.n) c->problem = "reads a container that does not exist";
    else if (dc_cont(c->graph, node->ref)->rank != node->nargs) c->problem = "reads with an index count other than the container's rank";
    else if (dc_cont(c->graph, node->ref)->dtype != node->dtype) c->problem = "reads with a type other than the container's";
    else if (dc_cont(c->graph, node->ref)->storage == DC_STORE_REGISTER && !c->written[node->ref])
      c->problem = "reads a register that nothing wrote before";
    else if (is_accumulator(c, node->ref, pool->args.v + node->args, node->nargs))
      c->problem = "reads an accumulator inside its REDUCE map, where it is not complete";
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

static const char *container_rank_is_small(context *c, dc_cid id) {
  uint32_t rank = dc_cont(c->graph, id)->rank;
  return rank > DC_MAX_RANK ? dc_arena_printf(c->scratch, "has %u dimensions, more than %d", rank, DC_MAX_RANK) : NULL;
}

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

static const char *container_device_can_hold_it(context *c, dc_cid id) {
  const dc_container *container = dc_cont(c->graph, id);
  bool only_host = container->is_host || container->dtype == DC_STRING;
  return container->device != DC_HOST && only_host ? "lies on a device, and only the host can hold it" : NULL;
}

/* ---- REDUCE maps and registers ---- */

static void note_moving(void *opaque, const dc_pool *pool, dc_ex e) {
  context *c = opaque;
  const dc_exnode *node = dc_ex_node(pool, e);
  for (uint32_t k = 0; node->op == DC_EX_PARAM && k < c->n_params; k++)
    if (c->moves[k] && c->params[k] == node->ref) c->problem = "accumulates into an element that moves with its REDUCE map";
}

/* Does it differ between iterations of the innermost REDUCE map? */
static const char *moves_with_reduce(context *c, dc_ex e) {
  c->problem = NULL;
  dc_ex_walk(&c->graph->pool, e, note_moving, c);
  return c->problem;
}

static const char *write_suits_its_map(context *c, const dc_tasklet *t) {
  const char *problem;
  bool is_register = dc_cont(c->graph, t->out)->storage == DC_STORE_REGISTER;
  if (!t->wcr && is_accumulator(c, t->out, t->index, t->rank)) return "overwrites an accumulator inside its REDUCE map";
  for (uint32_t d = 0; t->wcr && c->reduce && d < t->rank; d++)
    if ((problem = moves_with_reduce(c, t->index[d]))) return problem;
  if (t->wcr && !c->reduce && is_register && !c->written[t->out]) return "accumulates into a register that nothing wrote before";
  c->written[t->out] = true;
  return NULL;
}

/* Enters what a REDUCE map at this depth combines into as `mark` + WCR, or takes it off again (mark 0). */
static const char *mark_accumulators(context *c, const dc_scope *body, uint32_t mark, int depth) {
  const char *problem = NULL;
  for (uint32_t k = 0; k < body->n && !problem && depth < DC_MAX_LOOPS; k++) {
    if (body->v[k] == 0 || body->v[k] >= c->graph->nodes.n) continue; /* reported where the scope is walked */
    const dc_node *n = dc_node_at(c->graph, body->v[k]);
    if (n->kind == DC_NODE_MAP && n->map.schedule != DC_MAP_REDUCE) problem = mark_accumulators(c, &n->map.body, mark, depth + 1);
    if (n->kind != DC_NODE_TASKLET || !n->tasklet.wcr || n->tasklet.out >= c->graph->containers.n) continue;
    uint32_t *at = &c->accumulates[n->tasklet.out];
    if (mark && *at && *at != mark + n->tasklet.wcr) problem = "combines into a container in two ways, or in two nested REDUCE maps";
    *at = mark ? mark + n->tasklet.wcr : 0;
    c->accumulator[n->tasklet.out] = body->v[k];
    c->written[n->tasklet.out] = true; /* the map sets it to the identity */
  }
  return problem;
}

typedef struct {
  bool *v; /* by container */
  uint32_t n;
} read_set;

static void note_read(void *opaque, dc_cid cid, dc_use use, dc_nid by) {
  read_set *reads = opaque;
  (void)by;
  if (use == DC_USE_READ && cid < reads->n) reads->v[cid] = true;
}

/* A reduction inside a REDUCE map starts anew in each of its iterations: one that stays in place and
 * that no iteration reads is a reduction of the last iteration only, never what was meant. */
static const char *inner_results_are_read(context *c, const dc_scope *body, const bool *reads, int depth) {
  const char *problem = NULL;
  for (uint32_t k = 0; k < body->n && !problem && depth < DC_MAX_LOOPS; k++) {
    if (body->v[k] == 0 || body->v[k] >= c->graph->nodes.n) continue;
    const dc_node *n = dc_node_at(c->graph, body->v[k]);
    if (n->kind == DC_NODE_MAP && n->map.schedule != DC_MAP_REDUCE) problem = inner_results_are_read(c, &n->map.body, reads, depth + 1);
    if (n->kind != DC_NODE_TASKLET || !n->tasklet.wcr || n->tasklet.out >= c->graph->containers.n || reads[n->tasklet.out]) continue;
    bool moves = false;
    for (uint32_t d = 0; d < n->tasklet.rank; d++) moves |= moves_with_reduce(c, n->tasklet.index[d]) != NULL;
    if (!moves) problem = "reduces anew in each iteration of the REDUCE map around it, which reads no result";
  }
  return problem;
}

static const char *nested_reduction_is_used(context *c, const dc_map *map, int depth) {
  read_set reads = {calloc(c->graph->containers.n, sizeof *reads.v), c->graph->containers.n};
  if (!reads.v) return NULL;
  dc_node_uses(c->graph, c->reduce, note_read, &reads);
  const char *problem = inner_results_are_read(c, &map->body, reads.v, depth);
  free(reads.v);
  return problem;
}

/* ---- nodes ---- */

/* An input may be written, in place; a weight belongs to somebody else. */
static const char *is_writable(const context *c, dc_cid out) {
  uint8_t role = dc_cont(c->graph, dc_container_root(c->graph, out))->role;
  return role == DC_ROLE_PARAM || role == DC_ROLE_CONST ? "writes a weight or a constant" : NULL;
}

static const char *tasklet_is_sound(context *c) {
  dc_tasklet t = dc_node_at(c->graph, c->node)->tasklet;
  const char *problem;
  if (t.out == 0 || t.out >= c->graph->containers.n) return "writes a container that does not exist";
  const dc_container *out = dc_cont(c->graph, t.out);
  if (out->rank != t.rank) return "writes with an index count other than the container's rank";
  if ((problem = is_writable(c, t.out))) return problem;
  for (uint32_t d = 0; d < t.rank; d++)
    if ((problem = check_ex(c, t.index[d], DC_I64))) return problem;
  if (t.guard && (problem = check_ex(c, t.guard, DC_BOOL))) return problem;
  if ((problem = check_ex(c, t.value, DC_NOTYPE))) return problem;
  return write_suits_its_map(c, &t);
}

static const char *library_refers_to_containers(context *c) {
  const dc_library *lib = &dc_node_at(c->graph, c->node)->lib;
  for (uint32_t k = 0; k < lib->n_in; k++)
    if (lib->in[k] >= c->graph->containers.n) return "reads a container that does not exist";
  for (uint32_t k = 0; k < lib->n_out; k++)
    if (lib->out[k] >= c->graph->containers.n) return "writes a container that does not exist";
  for (uint32_t k = 0; k < lib->n_out; k++)
    if (lib->out[k] && is_writable(c, lib->out[k])) return is_writable(c, lib->out[k]);
  for (uint32_t k = 0; k < lib->n_out; k++)
    if (lib->out[k]) c->written[lib->out[k]] = true;
  if (lib->wrt && lib->n_in != lib->n_fwd_in + 2 * lib->n_fwd_out) return "is a gradient with the wrong number of inputs";
  return lib->wrt && lib->n_out != 1 ? "is a gradient with other than one output" : NULL;
}

static const char *push_param(context *c, dc_param param, bool moves) {
  if (c->n_params == DC_MAX_LOOPS) return dc_arena_printf(c->scratch, "is nested too deeply: more than %d loops", DC_MAX_LOOPS);
  c->moves[c->n_params] = moves, c->params[c->n_params++] = param;
  return NULL;
}

/* Pushes the map's parameters; each range may use the ones before it. */
static const char *map_ranges_are_sound(context *c) {
  dc_map map = dc_node_at(c->graph, c->node)->map;
  if (!map.n_params) return push_param(c, 0, false);
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
    bool moves = map.schedule == DC_MAP_REDUCE || moves_with_reduce(c, p.begin) || moves_with_reduce(c, p.end);
    if ((problem = push_param(c, map.params[k], moves))) return problem;
  }
  return NULL;
}

/* ---- the table ---- */

typedef const char *(*container_rule)(context *, dc_cid);
static const container_rule container_rules[] = {container_rank_is_small,  container_shape_is_i64,      container_alias_is_acyclic,
                                                 container_const_has_data, container_register_is_small, container_device_can_hold_it};

typedef const char *(*node_rule)(context *);
static const node_rule node_rules[] = {
    [DC_NODE_LIBRARY] = library_refers_to_containers, [DC_NODE_MAP] = map_ranges_are_sound, [DC_NODE_TASKLET] = tasklet_is_sound};

static dc_status verify_scope(context *c, const dc_scope *scope, int depth);

static dc_status complain(const context *c, const char *problem) {
  const dc_node *node = dc_node_at(c->graph, c->node);
  const char *what = node->kind == DC_NODE_LIBRARY ? dc_name_text(&c->graph->names, node->lib.op)
                     : node->kind == DC_NODE_MAP   ? "map"
                                                   : "tasklet";
  return dc_error(DC_ERR_MODEL, "%s '%s' (node %u) %s", what, dc_name_text(&c->graph->names, node->name), c->node, problem);
}

/* Inside a REDUCE map, only what moves with that map counts. */
static dc_status verify_reduction(context *c, const dc_map *map, uint32_t outer, int depth) {
  bool moves[DC_MAX_LOOPS];
  dc_nid around = c->reduce;
  const char *problem = mark_accumulators(c, &map->body, (uint32_t)(depth + 1) * 16, depth);
  if (!problem && around) problem = nested_reduction_is_used(c, map, depth);
  if (problem) return complain(c, problem);
  memcpy(moves, c->moves, sizeof moves);
  memset(c->moves, 0, outer * sizeof *c->moves);
  c->reduce = c->node;
  DC_TRY(verify_scope(c, &map->body, depth + 1));
  c->reduce = around;
  (void)mark_accumulators(c, &map->body, 0, depth);
  memcpy(c->moves, moves, sizeof moves);
  return DC_OK;
}

static dc_status verify_scope(context *c, const dc_scope *scope, int depth) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (scope->v[k] == 0 || scope->v[k] >= c->graph->nodes.n) return dc_error(DC_ERR_MODEL, "a scope holds a node that does not exist");
    uint32_t outer = c->n_params;
    c->node = scope->v[k];
    const dc_node *node = dc_node_at(c->graph, c->node);
    const char *problem = node_rules[node->kind](c);
    if (problem) return complain(c, problem);
    bool reduces = node->kind == DC_NODE_MAP && node->map.schedule == DC_MAP_REDUCE;
    if (reduces) DC_TRY(verify_reduction(c, &node->map, outer, depth));
    else if (node->kind == DC_NODE_MAP) DC_TRY(verify_scope(c, &node->map.body, depth + 1));
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
  dc_arena scratch = {0};
  context c = {.graph = graph, .scratch = &scratch, .written = DC_NEW_ARRAY(&scratch, bool, graph->containers.n),
               .accumulates = DC_NEW_ARRAY(&scratch, uint32_t, graph->containers.n),
               .accumulator = DC_NEW_ARRAY(&scratch, dc_nid, graph->containers.n)};
  dc_status status = verify(&c);
  dc_arena_free(&scratch);
  return dc_error_at(status, "graph '%s'", dc_name_text(&graph->names, graph->name));
}
