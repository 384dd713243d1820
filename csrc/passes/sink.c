/* Where a sequential loop meets one slice of a temporary in each step, what fills the temporary goes inside:
 *
 *     map t, n { D[t, n] = 0 }  sequential t { map n { D[t, n] sum= f(n) } .. }   becomes
 *     sequential t { map n { D[t, n] = f(n) } .. }
 *
 * The gradients of values in a loop are made of such pairs; then fusion sees that they live for one step.  A sum
 * onto zeros outside of loops becomes a write as well, and sums onto parts that together are the slice, as gates are.
 * What the loop copies such a slice to, when it is done with it, is the same thing:
 *
 *     sequential t { map n { D[t, n] = f(n) } .. map n { E[t, n] = D[t, n] } .. }   reads D for E. */
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  uint32_t writers; /* nodes outside of all maps that write it */
  bool shared;      /* another container has its buffer too */
} standing;

typedef struct {
  dc_graph *graph;
  standing *standing; /* by container */
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
  if (inner->kind != DC_NODE_TASKLET || inner->tasklet.wcr || dc_ex_uses_op(&s->graph->pool, inner->tasklet.value, DC_EX_READ))
    return false;
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

/* Is its one write all that a tasklet does with the container? */
static bool meets_once(const sink *s, dc_nid tasklet) {
  dc_accesses own = {0};
  dc_arena arena = {0};
  dc_access_collect(s->graph, &arena, tasklet, false, &own);
  uint32_t times = 0;
  for (uint32_t j = 0; j < own.n; j++) times += own.v[j].root == s->container;
  dc_arena_free(&arena);
  return times == 1;
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
  if (!meets_once(s, node->map.body.v[node->map.body.n - 1])) return false;
  if (!dc_access_is_whole(s->graph, &node->map, &last->tasklet, dim)) return false;
  dc_node_at(s->graph, node->map.body.v[node->map.body.n - 1])->tasklet.wcr = DC_WCR_NONE;
  return true;
}

/* ---- parts of a slice ---- */

enum { MAX_PARTS = 8 };

typedef struct {
  int64_t begin[MAX_PARTS], end[MAX_PARTS], extent;
  dc_tasklet *sum[MAX_PARTS];
  uint32_t dim, n; /* dim: along which the parts lie, where there are any */
} parts;

/* An index that runs from `begin` to `end`, both known, with the parameter of a loop. */
static bool is_range(dc_pool *pool, const dc_map *map, dc_ex index, dc_param *p, int64_t *begin, int64_t *end) {
  dc_ex coefficient, rest;
  int64_t step, slope, shift;
  for (uint32_t k = 0; k < map->n_params; k++) {
    const dc_parameter range = pool->params.v[*p = map->params[k]];
    if (!dc_ex_uses_param(pool, index, *p) || !dc_ix_split(pool, index, *p, &coefficient, &rest)) continue;
    if (!dc_ex_is_int(pool, coefficient, &slope) || !dc_ex_is_int(pool, rest, &shift)) return false;
    if (slope != 1 || shift < 0 || shift > INT32_MAX || !dc_ex_is_int(pool, range.step, &step)) return false;
    if (!dc_ex_is_int(pool, range.begin, begin) || !dc_ex_is_int(pool, range.end, end)) return false;
    if (step != 1 || *begin < 0 || *end <= *begin || *end > INT32_MAX) return false;
    return *begin += shift, *end += shift, true;
  }
  return false;
}

/* Adds the part of the slice that a map adds to, if it does nothing else. */
static bool take_part(const sink *s, dc_nid user, parts *found) {
  dc_pool *pool = &s->graph->pool;
  const dc_node *node = dc_node_at(s->graph, user);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || node->map.body.n != 1 || found->n == MAX_PARTS) return false;
  dc_node *inner = dc_node_at(s->graph, node->map.body.v[0]);
  if (inner->kind != DC_NODE_TASKLET || inner->tasklet.out != s->container) return false;
  if (inner->tasklet.wcr != DC_WCR_SUM || inner->tasklet.guard) return false;
  if (!meets_once(s, node->map.body.v[0])) return false;
  const dc_ex *shape = dc_cont(s->graph, s->container)->shape;
  uint32_t seen = 0, along = DC_MAX_RANK;
  dc_param used[DC_MAX_RANK];
  for (uint32_t d = 0; d < inner->tasklet.rank; d++) {
    const dc_ex index = inner->tasklet.index[d];
    const dc_exnode *x = dc_ex_node(pool, index);
    if (d == s->dim) continue;
    bool covers = x->op == DC_EX_PARAM && dc_access_in_set(node->map.params, node->map.n_params, x->ref);
    int64_t *begin = &found->begin[found->n], *end = &found->end[found->n];
    if (covers && dc_access_covers(pool, x->ref, shape[d])) used[seen] = x->ref;
    else if (along < DC_MAX_RANK || !is_range(pool, &node->map, index, &used[seen], begin, end)) return false;
    else along = d;
    if (dc_access_in_set(used, seen, used[seen])) return false;
    seen++;
  }
  if (along == DC_MAX_RANK || (found->n && along != found->dim) || seen != node->map.n_params) return false;
  if (!dc_ex_is_int(pool, shape[along], &found->extent) || found->end[found->n] > found->extent) return false;
  return found->dim = along, found->sum[found->n++] = &inner->tasklet, true;
}

/* Are parts within an extent all of it, and none twice? */
static bool are_whole(const parts *found) {
  int64_t sum = 0;
  for (uint32_t j = 0; j < found->n; j++) {
    sum += found->end[j] - found->begin[j];
    for (uint32_t k = 0; k < j; k++)
      if (found->begin[j] < found->end[k] && found->begin[k] < found->end[j]) return false;
  }
  return found->n && sum == found->extent;
}

/* The first nodes of the loop that use the container add to parts of the slice, and these are all of it: each may as well write. */
static bool writes_parts_instead(const sink *s, const dc_scope *body) {
  double zero;
  parts found = {0};
  if (!dc_ex_is_const(&s->graph->pool, s->written.value, &zero) || zero != 0) return false;
  for (uint32_t k = 0; k < body->n && !are_whole(&found); k++)
    if (uses(s->graph, body->v[k], s->container) && !take_part(s, body->v[k], &found)) return false;
  if (!are_whole(&found)) return false;
  for (uint32_t k = 0; k < found.n; k++) found.sum[k]->wcr = DC_WCR_NONE;
  return true;
}

/* ---- copies of a slice ---- */

/* The container that a node of the loop copies the slice to; 0: none. */
static dc_cid copied_to(const sink *s, dc_nid id) {
  const dc_graph *graph = s->graph;
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || node->map.body.n != 1) return 0;
  const dc_node *inner = dc_node_at(graph, node->map.body.v[0]);
  if (inner->kind != DC_NODE_TASKLET || inner->tasklet.wcr) return 0;
  const dc_tasklet *t = &inner->tasklet;
  const dc_exnode *value = dc_ex_node(&graph->pool, t->value);
  const dc_container *from = dc_cont(graph, s->container), *to = dc_cont(graph, t->out);
  if (value->op != DC_EX_READ || value->ref != s->container || t->rank != from->rank || to->rank != from->rank) return 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->index[d] != dc_ex_arg(&graph->pool, t->value, d) || to->shape[d] != from->shape[d]) return 0;
  if (t->index[s->dim] != s->at || !dc_access_is_whole(graph, &node->map, t, s->dim)) return 0;
  bool plain = to->role == DC_ROLE_TEMP && !to->is_output && !to->alias_of && !to->known && !to->is_host && !to->strides && !from->strides;
  plain &= to->dtype == from->dtype && to->device == from->device && to->storage == from->storage && t->out != s->container;
  return plain && !s->standing[t->out].shared && s->standing[t->out].writers == 1 ? t->out : 0;
}

/* Drops a copy of the slice behind which the loop changes neither, and whose readers read the slice. */
static void drop_copy(const sink *s) {
  dc_graph *graph = s->graph;
  if (graph->subgraphs.n) return; /* their captures name containers too */
  if (!s->loop || s->standing[s->container].shared || s->standing[s->container].writers != 1) return;
  dc_scope *body = &dc_node_at(graph, s->loop)->map.body;
  for (uint32_t k = 0; k < body->n; k++) {
    const dc_cid to = copied_to(s, body->v[k]);
    bool stays = to != 0;
    for (uint32_t j = 0; j < body->n && stays; j++) {
      if (j != k) stays = !dc_node_touches_one(graph, body->v[j], DC_USE_WRITE, to);
      if (j < k && stays) stays = !dc_node_touches_one(graph, body->v[j], DC_USE_READ, to);
      if (j > k && stays) stays = !dc_node_touches_one(graph, body->v[j], DC_USE_WRITE, s->container);
    }
    if (!stays) continue;
    for (body->n--; k < body->n; k++) body->v[k] = body->v[k + 1];
    for (uint32_t state = 0; state < graph->states.n; state++) {
      const dc_scope *scope = &graph->states.v[state].scope;
      for (uint32_t j = 0; j < scope->n; j++) dc_node_rename(graph, scope->v[j], to, s->container);
    }
    return;
  }
}

/* ---- into the loop ---- */

static void move(sink *s) {
  dc_graph *graph = s->graph;
  dc_map map = dc_node_at(graph, s->fill)->map, loop = dc_node_at(graph, s->loop)->map;
  if (writes_instead(s, loop.body.v[first_user(s, &loop.body)], s->dim) || writes_parts_instead(s, &loop.body)) return;
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
  s->loop = 0;
  if (writes_instead(s, next, UINT32_MAX)) return true;
  const dc_node *node = dc_node_at(s->graph, next);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_SEQUENTIAL || node->map.n_params != 1) return false;
  dc_accesses accesses = {0};
  dc_access_collect(s->graph, &s->arena, next, false, &accesses);
  if (!find_slice(s, &accesses, node->map.params[0])) return false;
  s->loop = next;
  if (dc_ex_node(&s->graph->pool, s->written.index[s->dim])->op != DC_EX_PARAM) return false;
  return move(s), true;
}

typedef struct {
  const dc_graph *graph;
  dc_nid *next, at; /* by buffer: the first node behind the one at hand that uses it, or the last that was seen to write it */
  standing *standing;
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

static void count_writer(void *context, dc_cid c, dc_use use, dc_nid by) {
  user_walk *w = context;
  const dc_cid root = dc_container_root(w->graph, c);
  (void)by;
  if (use != DC_USE_WRITE || w->next[root] == w->at) return;
  w->next[root] = w->at, w->standing[root].writers++;
}

/* Who writes containers, by node of a state, and whose buffers several have. */
static standing *stand(dc_graph *graph, dc_arena *arena) {
  const uint32_t n = graph->containers.n;
  user_walk w = {.graph = graph, .next = DC_NEW_ARRAY(arena, dc_nid, n), .standing = DC_NEW_ARRAY(arena, standing, n)};
  for (dc_cid c = 1; c < n; c++)
    if (dc_cont(graph, c)->alias_of) w.standing[c].shared = w.standing[dc_container_root(graph, c)].shared = true;
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) {
      w.at = graph->states.v[state].scope.v[k];
      dc_node_uses(graph, w.at, count_writer, &w);
    }
  return w.standing;
}

dc_status dc_pass_sink(dc_graph *graph) {
  dc_arena all = {0};
  standing *standing = stand(graph, &all);
  for (uint32_t state = 0; state < graph->states.n; state++) {
    dc_arena arena = {0};
    dc_scope before = graph->states.v[state].scope, after = {0};
    const dc_nid *users = next_users(graph, &arena, &before);
    sink *sunk = DC_NEW_ARRAY(&arena, sink, before.n);
    uint32_t n = 0;
    for (uint32_t k = 0; k < before.n; k++) {
      sink s = {.graph = graph, .standing = standing};
      if (is_fill(&s, before.v[k]) && try_sink(&s, users[k])) standing[s.container].writers--, sunk[n++] = s;
      else dc_scope_push(graph, &after, before.v[k]);
      dc_arena_free(&s.arena);
    }
    graph->states.v[state].scope = after;
    for (uint32_t k = 0; k < n; k++) drop_copy(&sunk[k]);
    dc_arena_free(&arena);
  }
  dc_arena_free(&all);
  return DC_OK;
}
