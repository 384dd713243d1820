/* Where a sequential loop meets one slice of a temporary in each step, what fills the temporary goes inside:
 *
 *     map t, n { D[t, n] = 0 }  sequential t { map n { D[t, n] sum= f(n) } .. }   becomes
 *     sequential t { map n { D[t, n] = f(n) } .. }
 *
 * The gradients of values in a loop are made of such pairs; then fusion sees that they live for one step.  A sum
 * onto zeros outside of loops becomes a write as well. */
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  dc_nid fill, loop;
  dc_cid container;
  dc_tasklet written;
  uint32_t dim; /* which the loop moves ... */
  dc_ex at;     /* ... like this */
} sink;

/* ---- what fills ---- */

static bool is_fill(sink *s, dc_nid id) {
  const dc_node *node = dc_node_at(s->graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || node->map.body.n != 1) return false;
  const dc_node *inner = dc_node_at(s->graph, node->map.body.v[0]);
  if (inner->kind != DC_NODE_TASKLET || inner->tasklet.wcr || dc_ex_uses_op(&s->graph->pool, inner->tasklet.value, DC_EX_READ)) return false;
  const dc_container *c = dc_cont(s->graph, inner->tasklet.out);
  s->fill = id, s->written = inner->tasklet, s->container = inner->tasklet.out;
  return c->role == DC_ROLE_TEMP && !c->is_output && !c->alias_of && dc_access_is_whole(s->graph, &node->map, &inner->tasklet, UINT32_MAX);
}

/* ---- where it goes ---- */

/* The dimension that the loop moves by one, up or down, over its whole extent. */
static bool is_slice(sink *s, dc_ex element, uint32_t d, dc_param time) {
  dc_pool *pool = &s->graph->pool;
  dc_ex extent = dc_cont(s->graph, s->container)->shape[d], index = dc_ex_arg(pool, element, d), up = dc_ex_par(pool, time);
  if (!dc_access_covers(pool, time, extent)) return false;
  dc_ex down = dc_ix_sub(pool, dc_ix_sub(pool, extent, dc_ex_int(pool, 1)), up);
  return index == up || index == down;
}

/* All accesses in the loop are to one slice a step. */
static bool find_slice(sink *s, const dc_accesses *accesses, dc_param time) {
  s->at = 0;
  for (uint32_t k = 0; k < accesses->n; k++) {
    const dc_access *a = &accesses->v[k];
    if (a->root != s->container) continue;
    if (!a->element || a->container != s->container) return false;
    for (uint32_t d = 0; d < dc_ex_node(&s->graph->pool, a->element)->nargs && !s->at; d++)
      if (is_slice(s, a->element, d, time)) s->dim = d, s->at = dc_ex_arg(&s->graph->pool, a->element, d);
    if (!s->at || dc_ex_arg(&s->graph->pool, a->element, s->dim) != s->at) return false;
  }
  return s->at != 0;
}

static bool uses(const dc_graph *graph, dc_nid node, dc_cid root) {
  return dc_node_touches_one(graph, node, DC_USE_READ | DC_USE_WRITE, root);
}

static uint32_t first_user(const sink *s, const dc_scope *scope) {
  uint32_t k = 0;
  while (k < scope->n && !uses(s->graph, scope->v[k], s->container)) k++;
  return k;
}

/* The first node that uses the container adds to all of it, or of the slice: then it may as well write it. */
static bool writes_instead(const sink *s, dc_nid user, uint32_t dim) {
  double zero;
  const dc_node *node = dc_node_at(s->graph, user);
  if (!dc_ex_is_const(&s->graph->pool, s->written.value, &zero) || zero != 0) return false;
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL) return false;
  const dc_node *last = dc_node_at(s->graph, node->map.body.v[node->map.body.n - 1]);
  for (uint32_t j = 0; j + 1 < node->map.body.n; j++)
    if (uses(s->graph, node->map.body.v[j], s->container)) return false;
  if (last->kind != DC_NODE_TASKLET || last->tasklet.out != s->container || last->tasklet.wcr != DC_WCR_SUM) return false;
  dc_accesses own = {0};
  dc_arena arena = {0};
  dc_access_collect(s->graph, &arena, node->map.body.v[node->map.body.n - 1], false, &own);
  uint32_t times = 0;
  for (uint32_t j = 0; j < own.n; j++) times += own.v[j].root == s->container;
  dc_arena_free(&arena);
  if (times != 1 || !dc_access_is_whole(s->graph, &node->map, &last->tasklet, dim)) return false;
  dc_node_at(s->graph, node->map.body.v[node->map.body.n - 1])->tasklet.wcr = DC_WCR_NONE;
  return true;
}

static void move(sink *s) {
  dc_graph *graph = s->graph;
  dc_map map = dc_node_at(graph, s->fill)->map, loop = dc_node_at(graph, s->loop)->map;
  if (writes_instead(s, loop.body.v[first_user(s, &loop.body)], s->dim)) return;
  dc_param gone = dc_ex_node(&graph->pool, s->written.index[s->dim])->ref;
  dc_node_substitute(graph, s->fill, gone, s->at);
  uint32_t n = 0;
  for (uint32_t k = 0; k < map.n_params; k++)
    if (map.params[k] != gone) map.params[n++] = map.params[k];
  dc_node_at(graph, s->fill)->map.n_params = n;
  dc_scope body = {0};
  dc_scope_push(graph, &body, n ? s->fill : map.body.v[0]);
  for (uint32_t k = 0; k < loop.body.n; k++) dc_scope_push(graph, &body, loop.body.v[k]);
  dc_node_at(graph, s->loop)->map.body = body;
}

/* Into the next node that uses the container, if that is a sequential loop or adds to all of it. */
static bool try_sink(sink *s, dc_nid next) {
  if (!next) return false;
  if (writes_instead(s, next, UINT32_MAX)) return true;
  const dc_node *node = dc_node_at(s->graph, next);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_SEQUENTIAL || node->map.n_params != 1) return false;
  dc_accesses accesses = {0};
  s->loop = next;
  dc_access_collect(s->graph, &s->arena, s->loop, false, &accesses);
  if (!find_slice(s, &accesses, node->map.params[0])) return false;
  if (dc_ex_node(&s->graph->pool, s->written.index[s->dim])->op != DC_EX_PARAM) return false;
  return move(s), true;
}

typedef struct {
  const dc_graph *graph;
  dc_nid *next, at; /* by buffer: the first node behind the one at hand that uses it */
} user_walk;

static void note_user(void *context, dc_cid c, dc_use use, dc_nid by) {
  user_walk *w = context;
  (void)use, (void)by;
  w->next[dc_container_root(w->graph, c)] = w->at;
}

/* By node of the scope, if it fills a container: the next user of that; what sinks goes where its container is used. */
static dc_nid *next_users(dc_graph *graph, dc_arena *arena, const dc_scope *scope) {
  dc_nid *users = DC_NEW_ARRAY(arena, dc_nid, scope->n);
  user_walk w = {.graph = graph, .next = DC_NEW_ARRAY(arena, dc_nid, graph->containers.n)};
  for (uint32_t k = scope->n; k-- > 0;) {
    sink s = {.graph = graph};
    w.at = scope->v[k];
    if (is_fill(&s, w.at)) users[k] = w.next[s.container];
    dc_node_uses(graph, w.at, note_user, &w);
  }
  return users;
}

dc_status dc_pass_sink(dc_graph *graph) {
  for (uint32_t state = 0; state < graph->states.n; state++) {
    dc_arena arena = {0};
    dc_scope before = graph->states.v[state].scope, after = {0};
    const dc_nid *users = next_users(graph, &arena, &before);
    for (uint32_t k = 0; k < before.n; k++) {
      sink s = {.graph = graph};
      if (!is_fill(&s, before.v[k]) || !try_sink(&s, users[k])) dc_scope_push(graph, &after, before.v[k]);
      dc_arena_free(&s.arena);
    }
    dc_arena_free(&arena);
    graph->states.v[state].scope = after;
  }
  return DC_OK;
}
