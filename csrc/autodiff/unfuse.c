/* What transformations made of a state, taken apart as far as differentiation needs: loops over tiles become one loop,
 * registers become arrays, and reductions stand alone.
 *
 * The backward pass may need the value of every iteration, and what is kept between the two passes is memory: a register
 * becomes an array with an element for each iteration that had one.  What neither pass needs in memory becomes a
 * register again later.  Symbols: extents are those of the loops, whatever their values. */
#include <string.h>

#include "autodiff/reverse.h"

/* ---- tiles ---- */

/* Does p walk the tiles of q, from one end of its range to the other:  p in q:min(q + tile, end)? */
static bool walks_tiles(dc_pool *pool, dc_param p, dc_param q) {
  dc_parameter inner = pool->params.v[p], tiles = pool->params.v[q];
  int64_t step, tile;
  dc_ex begin = dc_ex_par(pool, q), next = dc_ix_add(pool, begin, tiles.step);
  bool aligned = dc_ex_is_int(pool, inner.step, &step) && dc_ex_is_int(pool, tiles.step, &tile) && tile % step == 0;
  bool even = inner.end == next; /* who made it knew that tiles fit */
  return aligned && inner.begin == begin && (even || inner.end == dc_ix_min(pool, next, tiles.end));
}

/* Do only loops that walk its tiles use q, and does everything stand in one?  `inside`: it does so far. */
static bool only_tiles(dc_graph *graph, dc_nid id, dc_param q, bool inside) {
  dc_node node = *dc_node_at(graph, id);
  dc_pool *pool = &graph->pool;
  if (node.kind == DC_NODE_LIBRARY) return false;
  if (node.kind == DC_NODE_TASKLET) {
    for (uint32_t d = 0; d < node.tasklet.rank; d++) inside = inside && !dc_ex_uses_param(pool, node.tasklet.index[d], q);
    return inside && !dc_ex_uses_param(pool, node.tasklet.value, q) &&
           !(node.tasklet.guard && dc_ex_uses_param(pool, node.tasklet.guard, q));
  }
  for (uint32_t k = 0; k < node.map.n_params; k++) {
    dc_parameter p = pool->params.v[node.map.params[k]];
    bool uses = dc_ex_uses_param(pool, p.begin, q) || dc_ex_uses_param(pool, p.end, q);
    if (uses && !walks_tiles(pool, node.map.params[k], q)) return false;
    inside |= uses;
  }
  for (uint32_t k = 0; k < node.map.body.n; k++)
    if (!only_tiles(graph, node.map.body.v[k], q, inside)) return false;
  return true;
}

static void walk_all(dc_graph *graph, dc_nid id, dc_param q) {
  dc_node node = *dc_node_at(graph, id);
  for (uint32_t k = 0; node.kind == DC_NODE_MAP && k < node.map.n_params; k++) {
    dc_parameter *p = &graph->pool.params.v[node.map.params[k]];
    if (dc_ex_uses_param(&graph->pool, p->begin, q)) p->begin = graph->pool.params.v[q].begin, p->end = graph->pool.params.v[q].end;
  }
  for (uint32_t k = 0; node.kind == DC_NODE_MAP && k < node.map.body.n; k++) walk_all(graph, node.map.body.v[k], q);
}

static void note_register(void *context, dc_cid c, dc_use use, dc_nid by) {
  const dc_graph *graph = ((void **)context)[0];
  bool *seen = ((void **)context)[1];
  (void)use, (void)by;
  if (dc_cont(graph, c)->storage == DC_STORE_REGISTER) seen[c] = true;
}

/* One tile at a time is needed for registers that nodes of the body share, and for order, if a loop has one. */
static bool needs_tiles(const dc_graph *graph, const dc_map *map, bool *buffers) {
  const dc_node *inner = map->body.n == 1 ? dc_node_at(graph, map->body.v[0]) : NULL;
  if (map->schedule == DC_MAP_SEQUENTIAL) return map->n_params > 1 || !inner || inner->kind != DC_NODE_MAP || inner->map.n_params > 1;
  bool shared = false;
  memset(buffers, 0, graph->containers.n * sizeof *buffers);
  for (uint32_t k = 0; k < map->body.n && map->body.n > 1 && !shared; k++) {
    shared = dc_node_touches(graph, map->body.v[k], DC_USE_READ | DC_USE_WRITE, buffers);
    dc_node_uses(graph, map->body.v[k], note_register, (void *[]){(void *)graph, buffers});
  }
  return shared;
}

static void untile(dc_graph *graph, dc_scope *scope, bool *buffers);

static void untile_map(dc_graph *graph, dc_nid id, bool *buffers) {
  dc_map map = dc_node_at(graph, id)->map;
  bool keeps = needs_tiles(graph, &map, buffers);
  for (uint32_t k = 0; k < map.n_params && !keeps;) {
    dc_param q = map.params[k];
    if (!only_tiles(graph, id, q, false)) {
      k++;
      continue;
    }
    walk_all(graph, id, q);
    memmove(map.params + k, map.params + k + 1, (map.n_params - k - 1) * sizeof *map.params);
    dc_node_at(graph, id)->map.n_params = --map.n_params;
  }
  untile(graph, &map.body, buffers);
  dc_node_at(graph, id)->map.body = map.body;
}

/* Loops over tiles go; a map without any left gives its place to its body. */
static void untile(dc_graph *graph, dc_scope *scope, bool *buffers) {
  dc_scope out = {0};
  for (uint32_t j = 0; j < scope->n; j++) {
    dc_nid id = scope->v[j];
    bool is_map = dc_node_at(graph, id)->kind == DC_NODE_MAP, had = is_map && dc_node_at(graph, id)->map.n_params;
    if (is_map) untile_map(graph, id, buffers);
    const dc_map *map = &dc_node_at(graph, id)->map;
    bool gone = had && !map->n_params && map->schedule != DC_MAP_REDUCE;
    for (uint32_t k = 0; gone && k < map->body.n; k++) dc_scope_push(graph, &out, map->body.v[k]);
    if (!gone) dc_scope_push(graph, &out, id);
  }
  *scope = out;
}

typedef struct {
  dc_ex index[DC_MAX_RANK], extent[DC_MAX_RANK]; /* of the iterations around, outermost first */
  uint32_t n;
} spread;

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  dc_nid around[DC_MAX_LOOPS + 1]; /* maps around the node at hand, then itself */
  uint32_t depth;
  dc_nid *parent, *home; /* by node: the map around; by container: the innermost map around all uses */
  bool *used;
  spread **spreads; /* by container */
} search;

/* ---- where registers live ---- */

static bool is_around(const search *s, dc_nid map, uint32_t depth) {
  for (uint32_t k = 0; k < depth; k++)
    if (s->around[k] == map) return true;
  return map == 0;
}

/* A use below the first `depth` maps. */
static void use(search *s, dc_cid c, uint32_t depth) {
  dc_nid here = depth ? s->around[depth - 1] : 0;
  if (dc_cont(s->graph, c)->storage != DC_STORE_REGISTER) return;
  if (!s->used[c]) s->used[c] = true, s->home[c] = here;
  while (!is_around(s, s->home[c], depth)) s->home[c] = s->parent[s->home[c]];
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  if (dc_ex_node(pool, e)->op == DC_EX_READ) use(s, dc_ex_node(pool, e)->ref, s->depth);
}

static void look_at(search *s, dc_ex e) {
  if (e) dc_ex_walk(&s->graph->pool, e, look_at_read, s);
}

static void look_at_tasklet(search *s, const dc_tasklet *t) {
  uint32_t depth = s->depth;
  look_at(s, t->guard);
  look_at(s, t->value);
  for (uint32_t d = 0; d < t->rank; d++) look_at(s, t->index[d]);
  while (t->wcr && depth && dc_node_at(s->graph, s->around[depth - 1])->map.schedule != DC_MAP_REDUCE) depth--;
  use(s, t->out, t->wcr && depth ? depth - 1 : s->depth); /* a reduction sets its result outside of it */
}

static void find_homes(search *s, dc_nid id, dc_nid parent) {
  dc_node node = *dc_node_at(s->graph, id);
  s->parent[id] = parent;
  if (node.kind == DC_NODE_TASKLET) look_at_tasklet(s, &node.tasklet);
  if (node.kind != DC_NODE_MAP || s->depth == DC_MAX_LOOPS) return;
  for (uint32_t k = 0; k < node.map.n_params; k++) {
    look_at(s, s->graph->pool.params.v[node.map.params[k]].begin);
    look_at(s, s->graph->pool.params.v[node.map.params[k]].end);
  }
  s->around[s->depth++] = id;
  for (uint32_t k = 0; k < node.map.body.n; k++) find_homes(s, node.map.body.v[k], id);
  s->depth--;
}

/* ---- their elements ---- */

static bool is_outside(const dc_pool *pool, dc_ex e) { return !dc_ex_uses_op(pool, e, DC_EX_PARAM) && !dc_ex_uses_op(pool, e, DC_EX_READ); }

/* Another loop that tells iterations apart; false if its range is one of loops around it. */
static bool add_loop(dc_pool *pool, spread *s, dc_param p) {
  dc_parameter range = pool->params.v[p];
  if (!is_outside(pool, range.begin) || !is_outside(pool, range.end) || s->n == DC_MAX_RANK) return false;
  s->extent[s->n] = dc_ix_max(pool, dc_ix_sub(pool, range.end, range.begin), dc_ex_int(pool, 0));
  s->index[s->n++] = dc_ix_sub(pool, dc_ex_par(pool, p), range.begin);
  return true;
}

static bool add_map(dc_graph *graph, spread *s, const dc_nid *parent, dc_nid map) {
  if (!map) return true;
  if (!add_map(graph, s, parent, parent[map])) return false;
  for (uint32_t k = 0; k < dc_node_at(graph, map)->map.n_params; k++)
    if (!add_loop(&graph->pool, s, dc_node_at(graph, map)->map.params[k])) return false;
  return true;
}

static dc_status choose_elements(search *s) {
  for (dc_cid c = 1; c < s->graph->containers.n; c++) {
    if (!s->used[c]) continue;
    spread *made = DC_NEW(&s->arena, spread);
    bool good = add_map(s->graph, made, s->parent, s->home[c]) && made->n + dc_cont(s->graph, c)->rank <= DC_MAX_RANK;
    if (!good)
      return dc_error(DC_ERR_UNSUPPORTED, "gradient of '%s', a register inside loops whose ranges depend on one another",
                      dc_cont_name(s->graph, c));
    s->spreads[c] = made;
  }
  return DC_OK;
}

/* ---- rewriting ---- */

static dc_ex spread_read(void *context, dc_pool *pool, dc_ex leaf) {
  const search *s = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op != DC_EX_READ || !s->spreads[node.ref]) return leaf;
  const spread *of = s->spreads[node.ref];
  dc_ex index[DC_MAX_RANK];
  memcpy(index, of->index, of->n * sizeof *index);
  for (uint32_t d = 0; d < node.nargs; d++) index[of->n + d] = dc_ex_arg(pool, leaf, d);
  return dc_ex_read(pool, (dc_dtype)node.dtype, node.ref, index, of->n + node.nargs);
}

/* b after a. */
static dc_ex *joined(dc_graph *graph, const dc_ex *a, uint32_t n, const dc_ex *b, uint32_t m) {
  dc_ex *out = DC_NEW_ARRAY(&graph->arena, dc_ex, n + m);
  memcpy(out, a, n * sizeof *a);
  if (m) memcpy(out + n, b, m * sizeof *b);
  return out;
}

static void spread_writes(search *s, dc_nid id) {
  dc_node *node = dc_node_at(s->graph, id);
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++) spread_writes(s, node->map.body.v[k]);
  if (node->kind != DC_NODE_TASKLET || !s->spreads[node->tasklet.out]) return;
  const spread *of = s->spreads[node->tasklet.out];
  node->tasklet.index = joined(s->graph, of->index, of->n, node->tasklet.index, node->tasklet.rank);
  node->tasklet.rank += of->n;
}

static void spread_all(search *s, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (dc_node_at(s->graph, scope->v[k])->kind == DC_NODE_LIBRARY) continue;
    dc_node_rewrite(s->graph, scope->v[k], spread_read, s);
    spread_writes(s, scope->v[k]);
  }
  for (dc_cid c = 1; c < s->graph->containers.n; c++) {
    dc_container *k = dc_cont(s->graph, c);
    const spread *of = s->spreads[c];
    if (!of) continue;
    k->shape = joined(s->graph, of->extent, of->n, k->shape, k->rank);
    k->rank += of->n, k->storage = DC_STORE_HEAP, k->strides = NULL;
  }
}

static dc_status spread_registers(dc_graph *graph, const dc_scope *scope) {
  search s = {.graph = graph};
  uint32_t n = graph->containers.n, registers = 0;
  for (dc_cid c = 1; c < n; c++) registers += dc_cont(graph, c)->storage == DC_STORE_REGISTER;
  if (!registers) return DC_OK;
  s.parent = DC_NEW_ARRAY(&s.arena, dc_nid, graph->nodes.n), s.home = DC_NEW_ARRAY(&s.arena, dc_nid, n);
  s.used = DC_NEW_ARRAY(&s.arena, bool, n), s.spreads = DC_NEW_ARRAY(&s.arena, spread *, n);
  for (uint32_t k = 0; k < scope->n; k++) find_homes(&s, scope->v[k], 0);
  dc_status status = choose_elements(&s);
  if (!status) spread_all(&s, scope);
  dc_arena_free(&s.arena);
  return status;
}

/* ---- reductions with other work in them ---- */

static bool combines(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  return node->kind == DC_NODE_TASKLET && node->tasklet.wcr;
}

/* May what does not combine run before all that does?  It does not, if it changes what was combined before it, or
 * combines somewhere inside, or has registers. */
static bool may_split(const dc_graph *graph, const dc_scope *body, bool *buffers) {
  bool good = true;
  memset(buffers, 0, graph->containers.n * sizeof *buffers);
  for (uint32_t k = 0; k < body->n && good; k++) {
    const dc_node *node = dc_node_at(graph, body->v[k]);
    if (combines(graph, body->v[k])) dc_node_mark(graph, body->v[k], DC_USE_READ | DC_USE_WRITE, buffers);
    else good = node->kind != DC_NODE_LIBRARY && !dc_node_touches(graph, body->v[k], DC_USE_WRITE, buffers);
  }
  for (dc_cid c = 1; c < graph->containers.n && good; c++) buffers[c] = dc_cont(graph, c)->storage == DC_STORE_REGISTER;
  for (uint32_t k = 0; k < body->n && good; k++)
    good = !dc_node_touches(graph, body->v[k], DC_USE_READ | DC_USE_WRITE, buffers);
  return good;
}

/* Does every tasklet of the node, whose loops are around, write elements of its own in each iteration? */
static bool writes_apart(const dc_graph *graph, dc_nid id, const dc_map *around) {
  const dc_node *node = dc_node_at(graph, id);
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++)
    if (!writes_apart(graph, node->map.body.v[k], around)) return false;
  const dc_tasklet *t = &node->tasklet;
  return node->kind != DC_NODE_TASKLET || dc_ix_apart((dc_pool *)&graph->pool, t->index, t->rank, around->params, around->n_params);
}

/* A map before the reduction, for what only feeds it; 0 if there is nothing of the kind. */
static dc_nid split_reduction(dc_graph *graph, dc_nid id, bool *buffers) {
  dc_scope body = dc_node_at(graph, id)->map.body, feeding = {0}, left = {0};
  uint32_t others = 0;
  for (uint32_t k = 0; k < body.n; k++) others += !combines(graph, body.v[k]);
  if (!others || !may_split(graph, &body, buffers)) return 0;
  dc_nid copy = dc_node_clone(graph, id);
  dc_map map = dc_node_at(graph, copy)->map;
  map.schedule = DC_MAP_PARALLEL;
  for (uint32_t k = 0; k < body.n; k++) {
    bool stays = combines(graph, body.v[k]);
    if (!stays && !writes_apart(graph, map.body.v[k], &map)) map.schedule = DC_MAP_SCATTER;
    dc_scope_push(graph, stays ? &left : &feeding, stays ? body.v[k] : map.body.v[k]);
  }
  map.body = feeding;
  dc_node_at(graph, copy)->map = map, dc_node_at(graph, id)->map.body = left;
  return copy;
}

static void split_reductions(dc_graph *graph, dc_scope *scope, bool *buffers) {
  dc_scope out = {0};
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k], before = 0;
    if (dc_node_at(graph, id)->kind == DC_NODE_MAP) {
      if (dc_node_at(graph, id)->map.schedule == DC_MAP_REDUCE) before = split_reduction(graph, id, buffers);
      for (int part = 0; part < 2; part++) {
        dc_nid at = part ? id : before;
        if (!at) continue;
        dc_scope body = dc_node_at(graph, at)->map.body;
        split_reductions(graph, &body, buffers);
        dc_node_at(graph, at)->map.body = body;
      }
    }
    if (before) dc_scope_push(graph, &out, before);
    if (dc_node_at(graph, id)->kind != DC_NODE_MAP || dc_node_at(graph, id)->map.body.n) dc_scope_push(graph, &out, id);
  }
  *scope = out;
}

dc_status dc_unfuse(dc_graph *graph, uint32_t state) {
  dc_scope scope = graph->states.v[state].scope;
  bool *buffers = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  untile(graph, &scope, buffers);
  DC_TRY(spread_registers(graph, &scope));
  split_reductions(graph, &scope, buffers);
  graph->states.v[state].scope = scope;
  return DC_OK;
}
