/* Transformations of one map: nests and lists of loops, blocks, loops of one iteration, the order of loops. */
#include <string.h>

#include "passes/loops.h"
#include "passes/transforms/transforms.h"

static bool is_map(const dc_graph *graph, dc_nid node) { return dc_node_at(graph, node)->kind == DC_NODE_MAP; }

/* A map of its own for what is inside. */
static dc_nid map_like(dc_graph *graph, dc_nid model, dc_schedule schedule, const dc_param *params, uint32_t n, dc_scope body) {
  dc_nid map = dc_node_map(graph, schedule, params, n);
  dc_node_take_origin(graph, map, model);
  dc_node_at(graph, map)->map.body = body;
  return map;
}

/* Further parameters, outside those that the map has. */
static void put_before(dc_graph *graph, dc_nid id, const dc_param *params, uint32_t n) {
  dc_map *map = &dc_node_at(graph, id)->map;
  dc_param *all = DC_NEW_ARRAY(&graph->arena, dc_param, n + map->n_params);
  memcpy(all, params, n * sizeof *all);
  memcpy(all + n, map->params, map->n_params * sizeof *all);
  map->params = all, map->n_params += n;
}

/* ---- MapExpansion ---- */

static void expand_maps(const dc_transform *t, dc_scope *scope, uint32_t *count) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (!is_map(t->graph, scope->v[k]) || !dc_transform_means(t, scope->v[k])) continue;
    dc_map map = dc_node_at(t->graph, scope->v[k])->map;
    if (map.n_params < 2 || map.schedule == DC_MAP_REDUCE) continue; /* one inside another would start anew */
    for (uint32_t j = map.n_params; --j;) {
      dc_nid inner = map_like(t->graph, scope->v[k], (dc_schedule)map.schedule, &map.params[j], 1, map.body);
      map.body = (dc_scope){0};
      dc_scope_push(t->graph, &map.body, inner);
    }
    map.n_params = 1;
    dc_node_at(t->graph, scope->v[k])->map = map;
    ++*count;
  }
}

dc_status dc_transform_map_expansion(const dc_transform *t, uint32_t *count) {
  return dc_transform_each_scope(t, expand_maps, count), DC_OK;
}

/* ---- MapCollapse ---- */

static bool uses_any(const dc_pool *pool, dc_ex e, const dc_param *params, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    if (dc_ex_uses_param(pool, e, params[k])) return true;
  return false;
}

static bool may_collapse(const dc_graph *graph, const dc_map *outer, const dc_map *inner) {
  if (outer->n_params + inner->n_params > DC_MAX_RANK || !outer->n_params || !inner->n_params) return false;
  for (uint32_t k = 0; k < inner->n_params; k++) {
    dc_parameter p = graph->pool.params.v[inner->params[k]];
    if (uses_any(&graph->pool, p.begin, outer->params, outer->n_params) || uses_any(&graph->pool, p.end, outer->params, outer->n_params))
      return false;
    if (dc_ex_uses_op(&graph->pool, p.begin, DC_EX_READ) || dc_ex_uses_op(&graph->pool, p.end, DC_EX_READ)) return false;
  }
  return outer->schedule == inner->schedule && outer->schedule != DC_MAP_REDUCE;
}

/* The map with the one inside it, which is done already. */
static bool collapse(const dc_transform *t, dc_nid id) {
  dc_map outer = dc_node_at(t->graph, id)->map;
  if (outer.body.n != 1 || !is_map(t->graph, outer.body.v[0])) return false;
  if (!dc_transform_means(t, id) && !dc_transform_means(t, outer.body.v[0])) return false;
  dc_map inner = dc_node_at(t->graph, outer.body.v[0])->map;
  if (!may_collapse(t->graph, &outer, &inner)) return false;
  dc_node_at(t->graph, id)->map.params = inner.params, dc_node_at(t->graph, id)->map.n_params = inner.n_params;
  dc_node_at(t->graph, id)->map.body = inner.body;
  return put_before(t->graph, id, outer.params, outer.n_params), true;
}

static void collapse_maps(const dc_transform *t, dc_scope *scope, uint32_t *count) {
  for (uint32_t k = 0; k < scope->n; k++) *count += is_map(t->graph, scope->v[k]) && collapse(t, scope->v[k]);
}

dc_status dc_transform_map_collapse(const dc_transform *t, uint32_t *count) {
  return dc_transform_each_scope(t, collapse_maps, count), DC_OK;
}

/* ---- MapTiling ---- */

enum { TILE_SIZES, DIVIDES_EVENLY };
enum { DEFAULT_TILE = 128, MOST_TILE = 1 << 30 };

/* As in DaCe the last size serves the dimensions that are left. */
static int64_t tile_of(const dc_transform *t, uint32_t k) {
  const dc_transform_option *sizes = &t->options[TILE_SIZES];
  return !sizes->n ? DEFAULT_TILE : sizes->values[k < sizes->n ? k : sizes->n - 1];
}

static bool divides_evenly(const dc_transform *t) { return t->options[DIVIDES_EVENLY].n && t->options[DIVIDES_EVENLY].values[0]; }

/* A loop that begins at another's parameter walks inside a tile. */
static bool walks_tile(const dc_graph *graph, const dc_map *map, const dc_map *of) {
  const dc_pool *pool = &graph->pool;
  for (uint32_t k = 0; k < map->n_params; k++) {
    const dc_exnode *begin = dc_ex_node(pool, pool->params.v[map->params[k]].begin);
    for (uint32_t j = 0; begin->op == DC_EX_PARAM && j < (of ? of->n_params : 1); j++)
      if (!of || of->params[j] == begin->ref) return true;
  }
  return false;
}

/* Either half of what tiling makes. */
static bool is_tiled(const dc_graph *graph, const dc_map *map) {
  if (walks_tile(graph, map, NULL)) return true;
  return map->body.n == 1 && is_map(graph, map->body.v[0]) && walks_tile(graph, &dc_node_at(graph, map->body.v[0])->map, map);
}

/* Can any loop be cut?  Symbols: an extent of which it is not known that it fits a tile is cut. */
static bool may_tile(const dc_transform *t, dc_nid id) {
  dc_graph *graph = t->graph;
  dc_pool *pool = &graph->pool;
  if (!is_map(graph, id) || !dc_transform_means(t, id)) return false;
  const dc_map *map = &dc_node_at(graph, id)->map;
  if (!map->n_params || map->n_params > DC_MAX_RANK || is_tiled(graph, map)) return false;
  if (map->schedule == DC_MAP_SEQUENTIAL && map->n_params > 1) return false; /* blocks are another order */
  bool any = false;
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter p = pool->params.v[map->params[k]];
    if (uses_any(pool, p.begin, map->params, map->n_params) || uses_any(pool, p.end, map->params, map->n_params)) return false;
    if (dc_ex_uses_op(pool, p.begin, DC_EX_READ) || dc_ex_uses_op(pool, p.end, DC_EX_READ)) return false;
    dc_ex room = dc_ix_sub(pool, dc_ex_int(pool, tile_of(t, k)), dc_ix_extent(pool, p.begin, p.end, p.step));
    any |= tile_of(t, k) > 1 && !dc_ix_proves_ge(pool, room, 0);
  }
  return any;
}

static dc_status check_even(const dc_transform *t, dc_nid id) {
  dc_pool *pool = &t->graph->pool;
  const dc_map *map = &dc_node_at(t->graph, id)->map;
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter p = pool->params.v[map->params[k]];
    int64_t rest;
    dc_ex left = dc_ix_mod(pool, dc_ix_extent(pool, p.begin, p.end, p.step), dc_ex_int(pool, tile_of(t, k)));
    if (!dc_ex_is_int(pool, left, &rest) || rest)
      return dc_error(DC_ERR_VALUE, "tiles of %lld do not divide the range of '%s' in %s evenly, as far as is known",
                      (long long)tile_of(t, k), dc_name_text(&t->graph->names, p.name), dc_node_describe(t->graph, id));
  }
  return DC_OK;
}

/* map i in a:b:s  becomes  map tile_i in a:b:s*T { map i in tile_i:min(tile_i + s*T, b):s };  a reduction stays one map
 * over both, for one inside another would start anew. */
static void tile(const dc_transform *t, dc_nid id) {
  dc_graph *graph = t->graph;
  dc_pool *pool = &graph->pool;
  dc_map map = dc_node_at(graph, id)->map;
  dc_param outer[DC_MAX_RANK];
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter p = pool->params.v[map.params[k]];
    int64_t step = 1;
    (void)dc_ex_is_int(pool, p.step, &step);
    char *name = dc_arena_printf(&graph->arena, "tile_%s", dc_name_text(&graph->names, p.name));
    dc_ex block = dc_ex_int(pool, tile_of(t, k) * step);
    outer[k] = dc_param_new(pool, name, p.begin, p.end, block);
    dc_ex begin = dc_ex_par(pool, outer[k]), end = dc_ix_add(pool, begin, block);
    dc_parameter *inner = &pool->params.v[map.params[k]];
    inner->begin = begin, inner->end = divides_evenly(t) ? end : dc_ix_min(pool, end, p.end);
  }
  if (map.schedule == DC_MAP_REDUCE) return put_before(graph, id, outer, map.n_params);
  dc_nid inner = map_like(graph, id, (dc_schedule)map.schedule, map.params, map.n_params, map.body);
  dc_map *out = &dc_node_at(graph, id)->map;
  out->params = dc_arena_copy(&graph->arena, outer, map.n_params * sizeof *outer), out->body = (dc_scope){0};
  dc_scope_push(graph, &out->body, inner);
}

static void collect_tileable(const dc_transform *t, const dc_scope *scope, dc_scope *out) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (!is_map(t->graph, scope->v[k])) continue;
    if (may_tile(t, scope->v[k])) dc_scope_push(t->graph, out, scope->v[k]);
    collect_tileable(t, &dc_node_at(t->graph, scope->v[k])->map.body, out);
  }
}

dc_status dc_transform_map_tiling(const dc_transform *t, uint32_t *count) {
  const dc_transform_option *sizes = &t->options[TILE_SIZES];
  dc_scope maps = {0};
  for (uint32_t k = 0; k < sizes->n; k++)
    if (sizes->values[k] < 1 || sizes->values[k] > MOST_TILE)
      return dc_error(DC_ERR_VALUE, "tile_sizes holds %lld, expected 1 to %d", (long long)sizes->values[k], MOST_TILE);
  for (uint32_t s = 0; s < t->graph->states.n; s++) collect_tileable(t, &t->graph->states.v[s].scope, &maps);
  for (uint32_t k = 0; k < maps.n && divides_evenly(t); k++) DC_TRY(check_even(t, maps.v[k]));
  for (uint32_t k = 0; k < maps.n; k++) tile(t, maps.v[k]);
  return *count = maps.n, DC_OK;
}

/* ---- TrivialMapRangeElimination ---- */

static bool any_meant(const dc_transform *t, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (dc_transform_means(t, scope->v[k])) return true;
    if (is_map(t->graph, scope->v[k]) && any_meant(t, &dc_node_at(t->graph, scope->v[k])->map.body)) return true;
  }
  return false;
}

dc_status dc_transform_trivial_ranges(const dc_transform *t, uint32_t *count) {
  for (uint32_t s = 0; s < t->graph->states.n; s++) {
    dc_scope before = t->graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      dc_scope one = {0};
      dc_scope_push(t->graph, &one, before.v[k]);
      if (any_meant(t, &one)) *count += dc_loops_drop_trivial(t->graph, &one);
      for (uint32_t j = 0; j < one.n; j++) dc_scope_push(t->graph, &after, one.v[j]);
    }
    t->graph->states.v[s].scope = after;
  }
  return DC_OK;
}

/* ---- Vectorization ---- */

dc_status dc_transform_vectorization(const dc_transform *t, uint32_t *count) {
  for (uint32_t s = 0; s < t->graph->states.n; s++) {
    dc_scope scope = t->graph->states.v[s].scope;
    for (uint32_t k = 0; k < scope.n; k++) {
      dc_scope one = {&scope.v[k], 1, 0};
      if (any_meant(t, &one)) *count += dc_loops_order(t->graph, scope.v[k]);
    }
  }
  return DC_OK;
}
