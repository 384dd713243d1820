/* Arrays that live in a map's body: each iteration gets its own.
 *
 * In a flat view an array that only a body uses belongs to one iteration; in the graph a container is shared by all.  A small
 * one becomes a register, a larger one gets a dimension for each parameter around that runs in parallel and does not index
 * it yet; where an extent is not known outside the map, or an operator takes the whole array, the maps run in order. */
#include <string.h>

#include "ir/flow_build.h"

enum { SMALL = 64 }; /* elements of a register */

typedef struct {
  bool is_candidate; /* a drafted access node shows it, or it was made for what is built */
  bool is_shared; /* somebody uses it without the parameter of a map around */
  bool by_library;
  dc_cid made;    /* with more dimensions; 0: as it is */
  uint32_t n;
  dc_ex *index;   /* of those */
} local_array;

typedef struct {
  building *b;
  dc_graph *graph;
  const dc_homes *homes;
  local_array *local; /* by container */
  dc_nid first;       /* nodes from here on are new */
} sharing;

static dc_nid home(const sharing *s, dc_cid c) {
  const dc_container *k = dc_cont(s->graph, c);
  bool own = s->local[c].is_candidate && k->role == DC_ROLE_TEMP && !k->is_output && k->storage == DC_STORE_HEAP && !k->alias_of &&
      k->shape && !k->is_host;
  dc_nid map = own && s->homes->home[c] ? s->homes->home[c] - 1 : 0;
  return map >= s->first ? map : 0;
}

static bool is_indexed_by(const dc_pool *pool, const dc_ex *index, uint32_t rank, dc_param p) {
  for (uint32_t d = 0; d < rank; d++)
    if (dc_ex_uses_param(pool, index[d], p)) return true;
  return false;
}

static void note_use(sharing *s, dc_cid c, const dc_ex *index, uint32_t rank) {
  for (dc_nid map = home(s, c); map; map = s->homes->parent[map]) {
    const dc_map *m = &dc_node_at(s->graph, map)->map;
    if (m->schedule == DC_MAP_SEQUENTIAL) continue;
    for (uint32_t k = 0; k < m->n_params; k++)
      if (!is_indexed_by(&s->graph->pool, index, rank, m->params[k])) s->local[c].is_shared = true;
  }
}

static void note_read(void *context, const dc_pool *pool, dc_ex e) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ) note_use(context, node->ref, pool->args.v + node->args, node->nargs);
}

static void note_whole(void *context, dc_cid c, dc_use use, dc_nid by) {
  sharing *s = context;
  (void)use, (void)by;
  if (home(s, c)) s->local[c].is_shared = s->local[c].by_library = true;
}

static void note_uses(sharing *s, const dc_scope *scope, bool inside) {
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(s->graph, scope->v[k]);
    if (scope->v[k] < s->first) continue;
    if (node->kind == DC_NODE_MAP) note_uses(s, &node->map.body, true);
    else if (node->kind == DC_NODE_LIBRARY && inside) dc_node_uses(s->graph, scope->v[k], note_whole, s);
    else if (inside) {
      const dc_tasklet *t = &node->tasklet;
      note_use(s, t->out, t->index, t->rank);
      dc_ex_walk(&s->graph->pool, t->value, note_read, s);
      if (t->guard) dc_ex_walk(&s->graph->pool, t->guard, note_read, s);
      for (uint32_t d = 0; d < t->rank; d++) dc_ex_walk(&s->graph->pool, t->index[d], note_read, s);
    }
  }
}

static bool is_small(const dc_graph *graph, dc_cid c) {
  int64_t dims[DC_MAX_RANK], n = 1;
  if (!dc_container_dims(graph, c, dims)) return false;
  for (uint32_t d = 0; d < dc_cont(graph, c)->rank; d++) {
    if (dims[d] > SMALL || dims[d] < 0) return false;
    n *= dims[d];
    if (n > SMALL) return false;
  }
  return true;
}

static void run_in_order(sharing *s, dc_cid c) {
  for (dc_nid map = home(s, c); map; map = s->homes->parent[map]) dc_node_at(s->graph, map)->map.schedule = DC_MAP_SEQUENTIAL;
}

/* With a dimension for each parameter around. */
static void widen(sharing *s, dc_cid c) {
  dc_pool *pool = &s->graph->pool;
  dc_ex shape[DC_MAX_RANK], index[DC_MAX_RANK];
  uint32_t n = 0, rank = dc_cont(s->graph, c)->rank;
  bool fits = !s->local[c].by_library;
  for (dc_nid map = home(s, c); map && fits; map = s->homes->parent[map]) {
    const dc_map m = dc_node_at(s->graph, map)->map;
    for (uint32_t k = 0; m.schedule != DC_MAP_SEQUENTIAL && k < m.n_params && fits; k++) {
      dc_parameter p = pool->params.v[m.params[k]];
      dc_ex extent = dc_ix_extent(pool, p.begin, p.end, p.step);
      fits = n + rank < DC_MAX_RANK && !dc_ex_uses_op(pool, extent, DC_EX_READ) && !dc_ex_uses_op(pool, extent, DC_EX_PARAM);
      if (!fits) break;
      shape[n] = extent, index[n++] = dc_ix_div(pool, dc_ix_sub(pool, dc_ex_par(pool, m.params[k]), p.begin), p.step);
    }
  }
  if (!fits) {
    run_in_order(s, c);
    return;
  }
  memcpy(shape + n, dc_cont(s->graph, c)->shape, rank * sizeof *shape);
  dc_cid made = dc_container_add(s->graph, dc_cont_name(s->graph, c), (dc_dtype)dc_cont(s->graph, c)->dtype, n + rank, shape, DC_ROLE_TEMP);
  s->local[c].made = made, s->local[c].n = n, s->local[c].index = dc_arena_copy(s->b->scratch, index, n * sizeof *index);
}

static dc_ex move_read(void *context, dc_pool *pool, dc_ex leaf) {
  sharing *s = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK];
  if (node.op != DC_EX_READ || !s->local[node.ref].made) return leaf;
  const local_array *l = &s->local[node.ref];
  memcpy(index, l->index, l->n * sizeof *index);
  for (uint32_t k = 0; k < node.nargs; k++) index[l->n + k] = dc_ex_arg(pool, leaf, k);
  return dc_ex_read(pool, (dc_dtype)node.dtype, l->made, index, l->n + node.nargs);
}

static void move_writes(sharing *s, dc_nid id) {
  dc_node node = *dc_node_at(s->graph, id);
  for (uint32_t k = 0; node.kind == DC_NODE_MAP && k < node.map.body.n; k++) move_writes(s, node.map.body.v[k]);
  if (node.kind != DC_NODE_TASKLET || !s->local[node.tasklet.out].made) return;
  const local_array *l = &s->local[node.tasklet.out];
  dc_ex *index = DC_NEW_ARRAY(&s->graph->arena, dc_ex, l->n + node.tasklet.rank);
  memcpy(index, l->index, l->n * sizeof *index);
  memcpy(index + l->n, node.tasklet.index, node.tasklet.rank * sizeof *index);
  dc_tasklet *t = &dc_node_at(s->graph, id)->tasklet;
  t->out = l->made, t->index = index, t->rank = l->n + node.tasklet.rank;
}

void flow_privatize(building *b, const dc_homes *homes, const dc_scope *scope, dc_nid first, dc_cid first_container) {
  sharing s = {.b = b, .graph = b->graph, .homes = homes, .first = first};
  dc_cid n = b->graph->containers.n, moved = 0;
  s.local = DC_NEW_ARRAY(b->scratch, local_array, n + n);
  for (dc_cid c = first_container; c < n; c++) s.local[c].is_candidate = true;
  for (dc_fid k = 1; k < b->flow->nodes.n; k++)
    if (b->container[k] && dc_flow_at(b->flow, k)->is_drafted) s.local[b->container[k]].is_candidate = true;
  note_uses(&s, scope, false);
  for (dc_cid c = 1; c < n; c++) {
    if (!s.local[c].is_shared) continue;
    if (is_small(b->graph, c) && !s.local[c].by_library) dc_cont(b->graph, c)->storage = DC_STORE_REGISTER;
    else widen(&s, c);
    moved += s.local[c].made != 0;
  }
  for (uint32_t k = 0; moved && k < scope->n; k++) {
    if (scope->v[k] < first) continue;
    dc_node_rewrite(b->graph, scope->v[k], move_read, &s);
    move_writes(&s, scope->v[k]);
  }
}
