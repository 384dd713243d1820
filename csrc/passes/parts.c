/* Long reductions with few results, on a device: in parts that fill it, and a second map that combines those.
 *
 *     reduce n in 0:1048576 { s[] sum= X[n] }   becomes
 *     map part in 0:512 { reduce n in 0:2048 { s_parts[part] sum= X[2048*part + n] } }
 *     reduce part in 0:512 { s[] sum= s_parts[part] }
 *
 * The order of the sum is the graph's, so that results are the same bits in every run. */
#include "passes/access.h"
#include "passes/passes.h"

enum { LONG = 1 << 15, MOST_PARTS = 512, FEWEST = 8 };

/* A map at the top of a state: one reduction, perhaps inside one parallel map. */
typedef struct {
  dc_nid top, reduce;
  uint32_t split; /* position among the reduction's parameters */
  int64_t extent, parts;
} place;

/* Iterations if the range is 0 .. a constant, else 0. */
static int64_t trips(dc_pool *pool, dc_param p) {
  int64_t begin, end, step;
  dc_parameter range = pool->params.v[p];
  bool known = dc_ex_is_int(pool, range.begin, &begin) && dc_ex_is_int(pool, range.end, &end) && (!range.step || dc_ex_is_int(pool, range.step, &step));
  return known && begin == 0 && (!range.step || step == 1) && end > 0 ? end : 0;
}

static int64_t all_trips(dc_pool *pool, const dc_map *map) {
  int64_t all = 1;
  for (uint32_t k = 0; k < map->n_params; k++) {
    all *= trips(pool, map->params[k]);
    if (all > INT32_MAX) return INT32_MAX;
  }
  return all;
}

/* Combines into elements in memory that the loops of the reduction do not move, and reads none of them. */
static bool is_plain(const dc_graph *g, const dc_map *reduce, dc_nid node) {
  const dc_node *n = dc_node_at(g, node);
  if (n->kind != DC_NODE_TASKLET || !n->tasklet.wcr || dc_cont(g, n->tasklet.out)->storage != DC_STORE_HEAP) return false;
  for (uint32_t d = 0; d < n->tasklet.rank; d++) {
    if (dc_ex_uses_op(&g->pool, n->tasklet.index[d], DC_EX_READ)) return false;
    for (uint32_t k = 0; k < reduce->n_params; k++)
      if (dc_ex_uses_param(&g->pool, n->tasklet.index[d], reduce->params[k])) return false;
  }
  return true;
}

static int64_t parts_of(int64_t extent) {
  int64_t parts = extent < MOST_PARTS ? extent : MOST_PARTS;
  while (parts > 1 && extent % parts) parts--;
  return parts;
}

static bool find(dc_graph *g, dc_nid top, place *out) {
  const dc_node *n = dc_node_at(g, top);
  int64_t outer = 1;
  *out = (place){.top = top, .reduce = top};
  if (n->kind != DC_NODE_MAP || n->map.n_params >= DC_MAX_RANK) return false;
  if (n->map.schedule == DC_MAP_PARALLEL && n->map.body.n == 1) outer = all_trips(&g->pool, &n->map), out->reduce = n->map.body.v[0];
  const dc_node *reduce = dc_node_at(g, out->reduce);
  if (reduce->kind != DC_NODE_MAP || reduce->map.schedule != DC_MAP_REDUCE || !outer || outer >= g->machine.multiprocessors) return false;
  if (all_trips(&g->pool, &reduce->map) < LONG) return false;
  for (uint32_t k = 0; k < reduce->map.body.n; k++) {
    if (!is_plain(g, &reduce->map, reduce->map.body.v[k])) return false;
    if (dc_node_touches_one(g, top, DC_USE_READ, dc_container_root(g, dc_node_at(g, reduce->map.body.v[k])->tasklet.out))) return false;
  }
  for (uint32_t k = 0; k < reduce->map.n_params; k++) {
    int64_t extent = trips(&g->pool, reduce->map.params[k]), parts = parts_of(extent);
    if (parts > out->parts) out->split = k, out->extent = extent, out->parts = parts;
  }
  return out->parts >= FEWEST;
}

static dc_ex constant(dc_graph *g, int64_t value) { return dc_ex_int(&g->pool, value); }

/* The parts of one result, an element for each iteration of the map outside and each part. */
static dc_cid add_parts(dc_graph *g, const place *x, dc_cid of) {
  const dc_map outer = dc_node_at(g, x->top)->map;
  uint32_t n = x->top == x->reduce ? 0 : outer.n_params;
  dc_ex shape[DC_MAX_RANK];
  for (uint32_t k = 0; k < n; k++) shape[k] = constant(g, trips(&g->pool, outer.params[k]));
  shape[n] = constant(g, x->parts);
  const char *name = dc_arena_printf(&g->arena, "%s_parts", dc_cont_name(g, of));
  return dc_container_add(g, name, dc_dtype_compute((dc_dtype)dc_cont(g, of)->dtype), n + 1, shape, DC_ROLE_TEMP);
}

/* Where a part of the result of an iteration of the map `top` lies. */
static dc_ex *index_of(dc_graph *g, const place *x, dc_nid top, dc_param part) {
  const dc_map outer = dc_node_at(g, top)->map;
  uint32_t n = x->top == x->reduce ? 0 : outer.n_params;
  dc_ex *index = DC_NEW_ARRAY(&g->arena, dc_ex, n + 1);
  for (uint32_t k = 0; k < n; k++) index[k] = dc_ex_par(&g->pool, outer.params[k]);
  index[n] = dc_ex_par(&g->pool, part);
  return index;
}

static uint32_t rank_of(const dc_graph *g, dc_cid c) { return dc_cont(g, c)->rank; }

/* The map of parts: a copy whose reduction goes through one part. */
static dc_nid make_parts(dc_graph *g, const place *x, const dc_cid *parts) {
  const bool nested = x->top != x->reduce;
  dc_nid top = dc_node_clone(g, x->top), reduce = nested ? dc_node_at(g, top)->map.body.v[0] : top;
  dc_param whole = dc_node_at(g, reduce)->map.params[x->split];
  const char *name = dc_name_text(&g->names, g->pool.params.v[whole].name);
  dc_param part = dc_param_new(&g->pool, "part", constant(g, 0), constant(g, x->parts), 0);
  dc_param rest = dc_param_new(&g->pool, name, constant(g, 0), constant(g, x->extent / x->parts), 0);
  dc_node_at(g, reduce)->map.params[x->split] = rest;
  dc_ex value = dc_ix_add(&g->pool, dc_ix_mul(&g->pool, dc_ex_par(&g->pool, part), constant(g, x->extent / x->parts)), dc_ex_par(&g->pool, rest));
  dc_node_substitute(g, reduce, whole, value);
  dc_ex *index = index_of(g, x, top, part);
  for (uint32_t k = 0; k < dc_node_at(g, reduce)->map.body.n; k++) {
    dc_tasklet *t = &dc_node_at(g, dc_node_at(g, reduce)->map.body.v[k])->tasklet;
    t->out = parts[k], t->rank = rank_of(g, parts[k]), t->index = index;
  }
  if (!nested) return dc_node_wrap(g, DC_MAP_PARALLEL, &part, 1, reduce);
  dc_map *outer = &dc_node_at(g, top)->map;
  dc_param *params = DC_NEW_ARRAY(&g->arena, dc_param, outer->n_params + 1);
  for (uint32_t k = 0; k < outer->n_params; k++) params[k] = outer->params[k];
  params[outer->n_params++] = part, outer->params = params;
  return top;
}

/* The node itself combines the parts. */
static void combine(dc_graph *g, const place *x, const dc_cid *parts) {
  dc_param *part = DC_NEW(&g->arena, dc_param);
  *part = dc_param_new(&g->pool, "part", constant(g, 0), constant(g, x->parts), 0);
  dc_ex *index = index_of(g, x, x->top, *part);
  dc_node_at(g, x->reduce)->map.params = part, dc_node_at(g, x->reduce)->map.n_params = 1;
  for (uint32_t k = 0; k < dc_node_at(g, x->reduce)->map.body.n; k++) {
    dc_nid node = dc_node_at(g, x->reduce)->map.body.v[k];
    dc_ex value = dc_ex_read(&g->pool, (dc_dtype)dc_cont(g, parts[k])->dtype, parts[k], index, rank_of(g, parts[k]));
    dc_node_at(g, node)->tasklet.value = value, dc_node_at(g, node)->tasklet.guard = 0;
  }
}

static void split(dc_graph *g, const place *x, dc_scope *out) {
  uint32_t n = dc_node_at(g, x->reduce)->map.body.n;
  dc_cid *parts = DC_NEW_ARRAY(&g->arena, dc_cid, n);
  for (uint32_t k = 0; k < n; k++) parts[k] = add_parts(g, x, dc_node_at(g, dc_node_at(g, x->reduce)->map.body.v[k])->tasklet.out);
  dc_scope_push(g, out, make_parts(g, x, parts));
  combine(g, x, parts);
}

dc_status dc_pass_parts(dc_graph *graph) {
  if (!graph->machine.multiprocessors) return DC_OK;
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope before = graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      place x;
      if (find(graph, before.v[k], &x)) split(graph, &x, &after);
      dc_scope_push(graph, &after, before.v[k]);
    }
    graph->states.v[s].scope = after;
  }
  return DC_OK;
}
