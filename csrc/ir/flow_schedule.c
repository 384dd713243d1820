/* Which schedule is legal for a map that was drafted.
 *
 * Iterations that write elements of their own are parallel.  Where several write one element, by a WCR or any of them to
 * win, the map scatters.  Where one reads what another may have written, they run in order. */
#include <string.h>

#include "ir/flow_build.h"

typedef struct {
  dc_graph *graph;
  dc_map map;
  DC_VEC(dc_nid) writers;
  DC_VEC(dc_ex) reads;
  DC_VEC(dc_param) inner;
  const dc_homes *homes;
  dc_nid id;
  bool *is_read;   /* by buffer */
  dc_nid *writer;  /* by buffer: the last seen */
  dc_arena *scratch;
  bool has_library;
} looking;

static void note_read(void *context, const dc_pool *pool, dc_ex e) {
  looking *l = context;
  if (dc_ex_node(pool, e)->op != DC_EX_READ) return;
  DC_PUSH(l->scratch, &l->reads, e);
  l->is_read[dc_container_root(l->graph, dc_ex_node(pool, e)->ref)] = true;
}

static void gather(looking *l, dc_nid id) {
  const dc_node node = *dc_node_at(l->graph, id);
  const dc_pool *pool = &l->graph->pool;
  if (node.kind == DC_NODE_LIBRARY) l->has_library = true;
  if (node.kind == DC_NODE_TASKLET) {
    DC_PUSH(l->scratch, &l->writers, id);
    dc_ex_walk(pool, node.tasklet.value, note_read, l);
    if (node.tasklet.guard) dc_ex_walk(pool, node.tasklet.guard, note_read, l);
    for (uint32_t k = 0; k < node.tasklet.rank; k++) dc_ex_walk(pool, node.tasklet.index[k], note_read, l);
  }
  if (node.kind != DC_NODE_MAP) return;
  for (uint32_t k = 0; k < node.map.n_params; k++) DC_PUSH(l->scratch, &l->inner, node.map.params[k]);
  for (uint32_t k = 0; k < node.map.body.n; k++) gather(l, node.map.body.v[k]);
}

/* Does the dimension tell iterations of p apart: c * p + rest, where what else moves in rest stays within c steps? */
static bool tells_apart(looking *l, dc_ex index, dc_param p) {
  dc_pool *pool = &l->graph->pool;
  dc_ex slope, rest;
  int64_t c, step, lo, hi;
  if (dc_ex_uses_op(pool, index, DC_EX_READ) || !dc_ix_split(pool, index, p, &slope, &rest) || !dc_ex_is_int(pool, slope, &c) || !c)
    return false;
  for (uint32_t k = 0; k < l->map.n_params; k++)
    if (l->map.params[k] != p && dc_ex_uses_param(pool, rest, l->map.params[k])) return false;
  dc_ex moving = dc_ex_int(pool, 0), left = rest;
  for (uint32_t k = 0; k < l->inner.n; k++) {
    dc_ex coefficient, others;
    if (!dc_ex_uses_param(pool, left, l->inner.v[k])) continue;
    if (!dc_ix_split(pool, left, l->inner.v[k], &coefficient, &others)) return false;
    moving = dc_ix_add(pool, moving, dc_ix_mul(pool, coefficient, dc_ex_par(pool, l->inner.v[k])));
    left = others;
  }
  if (dc_ex_is_int(pool, moving, &lo)) return true;
  if (!dc_ex_is_int(pool, pool->params.v[p].step, &step) || !dc_ix_bounds(pool, moving, &lo, &hi)) return false;
  return (hi - lo) < (c < 0 ? -c : c) * step;
}

static bool is_private(looking *l, const dc_ex *index, uint32_t rank) {
  for (uint32_t k = 0; k < l->map.n_params; k++) {
    bool found = false;
    for (uint32_t d = 0; d < rank && !found; d++) found = tells_apart(l, index[d], l->map.params[k]);
    if (!found) return false;
  }
  return true;
}

/* Each iteration has its own. */
static bool is_local(const looking *l, dc_cid c) {
  return dc_cont(l->graph, c)->storage == DC_STORE_REGISTER || dc_homes_is_local(l->homes, c, l->id);
}

static bool same_place(const looking *l, const dc_tasklet *w, dc_ex read) {
  const dc_exnode *node = dc_ex_node(&l->graph->pool, read);
  for (uint32_t k = 0; k < w->rank; k++)
    if (node->ref != w->out || dc_ex_arg(&l->graph->pool, read, k) != w->index[k]) return false;
  return node->ref == w->out;
}

/* Does an iteration read what another may write? */
static bool depends(looking *l, const dc_tasklet *w, bool apart) {
  dc_cid root = dc_container_root(l->graph, w->out);
  for (uint32_t k = 0; l->is_read[root] && k < l->reads.n; k++) {
    if (dc_container_root(l->graph, dc_ex_node(&l->graph->pool, l->reads.v[k])->ref) != root) continue;
    if (!apart || !same_place(l, w, l->reads.v[k])) return true;
  }
  return false;
}

/* Does it write another element than the writer of the same buffer before it? */
static bool strays(looking *l, dc_nid id) {
  const dc_tasklet x = dc_node_at(l->graph, id)->tasklet;
  dc_nid *last = &l->writer[dc_container_root(l->graph, x.out)], other = *last;
  *last = id;
  if (!other || is_local(l, x.out)) return false;
  const dc_tasklet y = dc_node_at(l->graph, other)->tasklet;
  return x.out != y.out || memcmp(x.index, y.index, x.rank * sizeof *x.index) != 0 || x.wcr != y.wcr;
}

static dc_schedule legal(looking *l, bool trusted) {
  dc_schedule schedule = DC_MAP_PARALLEL;
  if (l->has_library) return DC_MAP_SEQUENTIAL;
  for (uint32_t k = 0; k < l->writers.n; k++) {
    const dc_tasklet w = dc_node_at(l->graph, l->writers.v[k])->tasklet;
    if (is_local(l, w.out) || (trusted && !w.wcr)) continue;
    bool apart = is_private(l, w.index, w.rank), stray = strays(l, l->writers.v[k]);
    if (!trusted && (depends(l, &w, apart) || (stray && !w.wcr))) return DC_MAP_SEQUENTIAL;
    if (!apart || (stray && !trusted)) schedule = DC_MAP_SCATTER;
  }
  return schedule;
}

void flow_schedules(building *b, const dc_homes *homes) {
  dc_graph *g = b->graph;
  bool *is_read = DC_NEW_ARRAY(b->scratch, bool, g->containers.n);
  dc_nid *writer = DC_NEW_ARRAY(b->scratch, dc_nid, g->containers.n);
  for (uint32_t k = 0; k < b->maps.n; k++) {
    drafted_map m = b->maps.v[k];
    dc_arena scratch = {0};
    looking l = {.graph = g, .map = dc_node_at(g, m.map)->map, .homes = homes, .id = m.map, .is_read = is_read, .writer = writer,
                 .scratch = &scratch};
    for (uint32_t j = 0; j < l.map.body.n; j++) gather(&l, l.map.body.v[j]);
    dc_node_at(g, m.map)->map.schedule = (uint8_t)legal(&l, m.schedule == 1 + DC_MAP_PARALLEL);
    for (uint32_t j = 0; j < l.reads.n; j++) is_read[dc_container_root(g, dc_ex_node(&g->pool, l.reads.v[j])->ref)] = false;
    for (uint32_t j = 0; j < l.writers.n; j++) writer[dc_container_root(g, dc_node_at(g, l.writers.v[j])->tasklet.out)] = 0;
    dc_arena_free(&scratch);
  }
}
