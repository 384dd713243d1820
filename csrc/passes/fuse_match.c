/* Which loops two nodes of a scope may share, and whether that pays.
 *
 * Parameters are paired by the accesses that have them at the same place.  A pair is legal if
 * every conflict between the nodes forces its parameters to be equal: then each dependence stays
 * inside one iteration of the shared loop.  Whether it pays is a small table of rules on top. */
#include <math.h>

#include "ir/work.h"
#include "passes/fuse.h"

enum { MAX_TASKLETS = 64, MAX_BUFFERS = 24, MAX_SCORE = 1 << 20, BATCH = 32 };
enum { PLANE_BYTES = 32 }; /* of all buffers of a plane, for each of its elements */

/* ---- description ---- */

static uint64_t bit_of(dc_cid root) { return (uint64_t)1 << (root * 2654435761u >> 26); }

static uint32_t count_tasklets(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP) return 1;
  uint32_t n = 0;
  for (uint32_t k = 0; k < node->map.body.n; k++) n += count_tasklets(graph, node->map.body.v[k]);
  return n;
}

typedef struct {
  dc_param v[DC_MAX_LOOPS];
  uint32_t n;
} param_stack;

typedef struct {
  const param_stack *params;
  uint32_t reads;
  bool full; /* some READ moves with every parameter */
} coverage;

/* By itself, or by a loop over a block that p chooses. */
static bool moves_with(const dc_pool *pool, dc_ex e, const param_stack *params, uint32_t p) {
  bool found = dc_ex_uses_param(pool, e, params->v[p]);
  for (uint32_t k = p + 1; k < params->n && !found; k++)
    found = dc_ex_uses_param(pool, pool->params.v[params->v[k]].begin, params->v[p]) && dc_ex_uses_param(pool, e, params->v[k]);
  return found;
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  coverage *c = context;
  bool all = dc_ex_node(pool, e)->op == DC_EX_READ;
  c->reads += all;
  for (uint32_t k = 0; k < c->params->n && all; k++) all = moves_with(pool, e, c->params, k);
  c->full |= all;
}

static bool is_trivial(const dc_pool *pool, dc_param p) {
  int64_t extent;
  dc_parameter range = pool->params.v[p];
  return dc_ex_is_int(pool, range.end, &extent) && extent <= 1;
}

/* A contraction multiplies operands that each lack some loop, so that it works more than it reads. */
static bool is_compute_bound(const dc_graph *graph, dc_nid id, param_stack *params, bool in_reduce) {
  const dc_node *node = dc_node_at(graph, id);
  const dc_pool *pool = &graph->pool;
  if (node->kind == DC_NODE_LIBRARY) return false;
  if (node->kind == DC_NODE_TASKLET) {
    coverage c = {.params = params};
    if (!in_reduce || !node->tasklet.wcr) return false;
    dc_ex_walk(pool, node->tasklet.value, look_at_read, &c);
    return c.reads > 1 && !c.full;
  }
  uint32_t outer = params->n;
  bool found = false;
  for (uint32_t k = 0; k < node->map.n_params; k++)
    if (!is_trivial(pool, node->map.params[k])) params->v[params->n++] = node->map.params[k];
  for (uint32_t k = 0; k < node->map.body.n && !found; k++)
    found = is_compute_bound(graph, node->map.body.v[k], params, in_reduce || node->map.schedule == DC_MAP_REDUCE);
  params->n = outer;
  return found;
}

static bool are_equal(const dc_access *a, const dc_access *b) {
  return a->container == b->container && a->element == b->element && a->reads == b->reads && a->writes == b->writes &&
         a->initialised == b->initialised;
}

/* A value that all tasklets of a node read is one access, not one for each. */
static void count_equal(dc_arena *arena, dc_group *g) {
  uint32_t size = 4, n = 0;
  while (size < 2 * g->accesses.n) size *= 2;
  uint32_t *slots = DC_NEW_ARRAY(arena, uint32_t, size); /* 1 + access, 0: empty */
  g->times = DC_NEW_ARRAY(arena, uint32_t, g->accesses.n);
  for (uint32_t k = 0; k < g->accesses.n; k++) {
    dc_access a = g->accesses.v[k];
    uint32_t at = (a.container * 2654435769u ^ a.element * 2246822519u) >> 8 & (size - 1);
    while (slots[at] && !are_equal(&g->accesses.v[slots[at] - 1], &a)) at = (at + 1) & (size - 1);
    if (!slots[at]) g->accesses.v[n++] = a, slots[at] = n;
    g->times[slots[at] - 1]++;
  }
  g->accesses.n = n;
}

void dc_group_describe(const dc_fuse_scope *scope, dc_nid node, dc_group *out) {
  *out = (dc_group){.node = node, .n_tasklets = count_tasklets(scope->graph, node)};
  dc_access_collect(scope->graph, scope->arena, node, scope->in_reduce, &out->accesses);
  count_equal(scope->arena, out);
  for (uint32_t k = 0; k < out->accesses.n; k++) {
    const dc_access *a = &out->accesses.v[k];
    if (a->reads) out->reads |= bit_of(a->root);
    if (a->writes) out->writes |= bit_of(a->root);
  }
  param_stack params;
  params.n = 0;
  out->compute_bound = is_compute_bound(scope->graph, node, &params, false);
}

/* ---- pairing ---- */

typedef struct {
  const dc_fuse_scope *scope;
  dc_graph *graph;
  const dc_group *a, *b;
  dc_map first, second;
  uint32_t (*score)[DC_MAX_MAP_PARAMS]; /* by parameter of the first and of the second */
  bool depends; /* b needs a's results */
} matcher;

/* Equal ranges that nothing inside the nodes changes. */
static bool same_range(const matcher *m, dc_param p, dc_param q) {
  const dc_pool *pool = &m->graph->pool;
  dc_parameter range = pool->params.v[p];
  return dc_param_same_range(pool, p, q) && !dc_access_uses_other_param(pool, range.begin, m->scope->outer, m->scope->n_outer) &&
         !dc_access_uses_other_param(pool, range.end, m->scope->outer, m->scope->n_outer);
}

/* Does the element move with p as the other moves with q, in one dimension? */
static bool same_place(matcher *m, const dc_access *a, const dc_access *b, dc_param p, dc_param q) {
  dc_pool *pool = &m->graph->pool;
  if (!a->element || !b->element) return false;
  if (a->container != b->container) return dc_ex_uses_param(pool, a->element, p) && dc_ex_uses_param(pool, b->element, q);
  for (uint32_t d = 0; d < dc_ex_node(pool, a->element)->nargs; d++) {
    dc_ex f = dc_ex_arg(pool, a->element, d), g = dc_ex_arg(pool, b->element, d), cf, cg, rest;
    if (!dc_ex_uses_param(pool, f, p) || !dc_ex_uses_param(pool, g, q)) continue;
    if (dc_ix_split(pool, f, p, &cf, &rest) && dc_ix_split(pool, g, q, &cg, &rest) && cf == cg) return true;
  }
  return false;
}

static void score_pairs(matcher *m) {
  for (uint32_t i = 0; i < m->first.n_params; i++)
    for (uint32_t j = 0; j < m->second.n_params; j++) {
      dc_param p = m->first.params[i], q = m->second.params[j];
      bool same = same_range(m, p, q);
      m->score[i][j] = same ? 1 + (i == j) : 0;
      if (!same) continue;
      for (uint32_t x = 0; x < m->a->accesses.n; x++)
        for (uint32_t y = 0; y < m->b->accesses.n; y++) {
          const dc_access *a = &m->a->accesses.v[x], *b = &m->b->accesses.v[y];
          if (a->root != b->root || m->score[i][j] > MAX_SCORE || !same_place(m, a, b, p, q)) continue;
          uint64_t score = m->score[i][j] + (uint64_t)m->a->times[x] * m->b->times[y] * (dc_access_conflicts(a, b) ? 64 : 4);
          m->score[i][j] = score > MAX_SCORE ? MAX_SCORE + 1 : (uint32_t)score;
        }
    }
}

static void choose_pairs(matcher *m, dc_match *out) {
  for (;;) {
    uint32_t best = 0, bi = 0, bj = 0;
    for (uint32_t i = 0; i < m->first.n_params; i++)
      for (uint32_t j = 0; j < m->second.n_params; j++)
        if (m->score[i][j] > best) best = m->score[i][j], bi = i, bj = j;
    if (!best) return;
    out->pairs[out->n++] = (dc_param_pair){m->first.params[bi], m->second.params[bj]};
    for (uint32_t i = 0; i < m->first.n_params; i++) m->score[i][bj] = 0;
    for (uint32_t j = 0; j < m->second.n_params; j++) m->score[bi][j] = 0;
  }
}

/* Keeps the pairs that this conflict proves; a proven pair helps to prove the others.  Symbols: see access.c. */
static void prune(matcher *m, const dc_access *a, const dc_access *b, dc_match *out) {
  if (dc_access_disjoint(m->graph, a, b)) return;
  m->depends = true;
  uint32_t proven = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t k = proven; k < out->n; k++) {
      if (!dc_access_forces_equal(m->graph, a, b, &out->pairs[k], out->pairs, proven)) continue;
      dc_param_pair swap = out->pairs[proven];
      out->pairs[proven++] = out->pairs[k], out->pairs[k] = swap;
      progress = true;
    }
  }
  out->n = proven;
}

static void prune_all(matcher *m, dc_match *out) {
  for (uint32_t x = 0; x < m->a->accesses.n && out->n; x++)
    for (uint32_t y = 0; y < m->b->accesses.n && out->n; y++) {
      const dc_access *a = &m->a->accesses.v[x], *b = &m->b->accesses.v[y];
      if (a->root == b->root && dc_access_conflicts(a, b)) prune(m, a, b, out);
    }
}

/* Pairs in the order of the first node's parameters. */
static void sort_pairs(const matcher *m, dc_match *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->first.n_params; i++)
    for (uint32_t k = n; k < out->n; k++) {
      if (out->pairs[k].p != m->first.params[i]) continue;
      dc_param_pair swap = out->pairs[n];
      out->pairs[n++] = out->pairs[k], out->pairs[k] = swap;
      break;
    }
}

/* ---- profit ---- */

static bool keeps_order(const matcher *m, const dc_match *match) {
  for (uint32_t k = 0; k < match->n; k++)
    if (match->pairs[k].p != m->first.params[k] || match->pairs[k].q != m->second.params[k]) return false;
  return true;
}

static bool same_order(const matcher *m, const dc_match *match) {
  uint32_t last = 0;
  for (uint32_t k = 0; k < match->n; k++) {
    uint32_t j = 0;
    while (m->second.params[j] != match->pairs[k].q) j++;
    if (k && j < last) return false;
    last = j;
  }
  return true;
}

/* Does an index, or a list of them, change while the shared loops of a node stand? */
static bool index_moves_inside(const matcher *m, dc_ex index, const dc_match *match, bool first) {
  dc_param fixed[DC_MAX_LOOPS];
  uint32_t n = 0;
  for (; n < m->scope->n_outer; n++) fixed[n] = m->scope->outer[n];
  for (uint32_t k = 0; k < match->n; k++) fixed[n++] = first ? match->pairs[k].p : match->pairs[k].q;
  return dc_access_uses_other_param(&m->graph->pool, index, fixed, n);
}

static bool moves_inside(const matcher *m, const dc_access *a, const dc_match *match, bool first) {
  return a->element && index_moves_inside(m, a->element, match, first);
}

/* Do the shared loops take both accesses to the same elements?  What a value read chooses is anywhere. */
static bool walk_together(matcher *m, const dc_access *a, const dc_access *b, const dc_match *match) {
  for (uint32_t k = 0; k < match->n; k++) {
    dc_param p = match->pairs[k].p, q = match->pairs[k].q;
    bool both = dc_ex_uses_param(&m->graph->pool, a->element, p) && dc_ex_uses_param(&m->graph->pool, b->element, q);
    if (both && !same_place(m, a, b, p, q)) return false;
  }
  return true;
}

static bool moves(const matcher *m, const dc_access *a) {
  return a->element && dc_access_uses_other_param(&m->graph->pool, a->element, m->scope->outer, m->scope->n_outer);
}

/* Do the shared loops take both nodes to the same elements, or to neighbours that they write?  Not those of a matrix and of its
 * transpose, which has as many rows as columns by chance. */
static bool shares(matcher *m, const dc_match *match) {
  for (uint32_t x = 0; x < m->a->accesses.n; x++)
    for (uint32_t y = 0; y < m->b->accesses.n; y++) {
      const dc_access *a = &m->a->accesses.v[x], *b = &m->b->accesses.v[y];
      if (a->root == b->root && moves(m, a) && moves(m, b) && walk_together(m, a, b, match)) return true;
    }
  return false;
}

/* Both work on many elements of one buffer per shared iteration: the second time from cache. */
static bool reuses_much(matcher *m, const dc_match *match) {
  for (uint32_t x = 0; x < m->a->accesses.n; x++) {
    const dc_access *a = &m->a->accesses.v[x];
    if (!moves_inside(m, a, match, true)) continue;
    for (uint32_t y = 0; y < m->b->accesses.n; y++) {
      const dc_access *b = &m->b->accesses.v[y];
      if (a->root == b->root && moves_inside(m, b, match, false) && walk_together(m, a, b, match)) return true;
    }
  }
  return false;
}

enum { USES_OF_TABLE = 64 };

/* Does one node so little beside the other that what they share is nothing, as a table of weights beside the images that it is for? */
static bool makes_table(const matcher *m) {
  dc_nid nodes[] = {m->a->node, m->b->node};
  dc_work work[2];
  if (m->graph->machine.teams || m->scope->n_outer) return false;
  dc_work_count(m->graph, nodes, 2, NULL, false, work);
  return work[0].work * USES_OF_TABLE < work[1].work || work[1].work * USES_OF_TABLE < work[0].work;
}

static bool is_column_of(const matcher *m, const dc_match *match, uint32_t pair, bool second) {
  const dc_accesses *accesses = second ? &m->b->accesses : &m->a->accesses;
  dc_param p = second ? match->pairs[pair].q : match->pairs[pair].p;
  for (uint32_t x = 0; x < accesses->n; x++) {
    const dc_access *a = &accesses->v[x];
    if (!moves_inside(m, a, match, !second)) continue;
    uint32_t d = dc_contiguous_dimension(m->graph, a->container);
    if (d < dc_ex_node(&m->graph->pool, a->element)->nargs &&
        dc_ex_uses_param(&m->graph->pool, dc_ex_arg(&m->graph->pool, a->element, d), p))
      return true;
  }
  return false;
}

/* Does a shared loop walk along memory that is also walked inside, in either node? */
static bool is_column(const matcher *m, const dc_match *match, uint32_t pair) {
  return is_column_of(m, match, pair, false) || is_column_of(m, match, pair, true);
}

/* Teams then take columns, many at once. */
static bool shares_columns(const matcher *m, const dc_match *match) {
  for (uint32_t k = 0; k < match->n; k++)
    if (is_column(m, match, k)) return true;
  return false;
}

/* The shared loops alone must give threads something to do, unless all is small.  Symbols: loops over one are long, both
 * where they are shared and where they are work; but beside columns of a device, where apart both run along memory, not
 * longer than a batch of images. */
static bool starves_threads(const matcher *m, const dc_match *match) {
  const dc_machine *machine = &m->graph->machine;
  double shared = 1;
  dc_nid nodes[] = {m->a->node, m->b->node};
  dc_work work[2];
  if (m->scope->parallel_outside) return false;
  const bool columns = machine->teams && shares_columns(m, match);
  const double few = machine->few_tasks * (columns ? (double)machine->team_columns : 1);
  for (uint32_t k = 0; k < match->n; k++) {
    double trips = dc_param_trips(&m->graph->pool, match->pairs[k].p);
    shared *= fmin(columns && trips >= DC_WORK_MOST ? BATCH : trips, few);
  }
  if (shared >= few) return false;
  dc_work_count(m->graph, nodes, 2, NULL, false, work);
  return work[0].work > machine->serial_work || work[1].work > machine->serial_work;
}

/* Iterations of a node's loops but for the shared ones. */
static double trips_inside(const matcher *m, const dc_match *match, bool second, double (*trips)(dc_pool *, dc_param)) {
  const dc_map *map = second ? &m->second : &m->first;
  double inside = 1;
  for (uint32_t i = 0; i < map->n_params; i++) inside *= trips(&m->graph->pool, map->params[i]);
  for (uint32_t k = 0; k < match->n; k++) inside /= trips(&m->graph->pool, second ? match->pairs[k].q : match->pairs[k].p);
  return inside;
}

/* Do both nodes have loops of their own inside the shared ones, over little enough for it to stay in the cache? */
static bool are_small_planes(const matcher *m, const dc_match *match) {
  if (m->first.n_params == match->n || m->second.n_params == match->n) return false;
  double first = trips_inside(m, match, false, dc_param_trips), second = trips_inside(m, match, true, dc_param_trips);
  return fmax(first, second) <= (double)m->graph->machine.l2_bytes / PLANE_BYTES;
}

/* Iterations of loops inside one another, of the longest such nest. */
static double nested_trips(const matcher *m, const dc_scope *body) {
  double most = 1;
  for (uint32_t k = 0; k < body->n; k++) {
    const dc_node *node = dc_node_at(m->graph, body->v[k]);
    if (node->kind != DC_NODE_MAP) continue;
    double trips = nested_trips(m, &node->map.body);
    for (uint32_t i = 0; i < node->map.n_params; i++) trips *= dc_param_likely_trips(&m->graph->pool, node->map.params[i]);
    most = fmax(most, trips);
  }
  return most;
}

/* Is a strip of what one node walks inside, as wide as a vector, more than a cache holds? */
static bool is_long_column(const matcher *m, const dc_match *match) {
  double first = nested_trips(m, &m->first.body) * trips_inside(m, match, false, dc_param_likely_trips);
  double second = nested_trips(m, &m->second.body) * trips_inside(m, match, true, dc_param_likely_trips);
  return fmax(first, second) * m->graph->machine.vector_bytes > m->graph->machine.l2_bytes;
}

/* Planes that stay in the cache, and columns that do not, are not shared by columns: each runs along memory by itself, which vectors
 * of blocks of columns do not. */
static void leave_columns(const matcher *m, dc_match *match) {
  dc_match fewer = {.schedule = match->schedule};
  for (uint32_t k = 0; k < match->n; k++)
    if (!is_column(m, match, k)) fewer.pairs[fewer.n++] = match->pairs[k];
  if (fewer.n == match->n) return;
  const bool small = are_small_planes(m, match) && are_small_planes(m, &fewer);
  if (is_long_column(m, match) || (small && !starves_threads(m, &fewer))) *match = fewer;
}

static bool used_only_here(const matcher *m, dc_cid root) {
  if (!m->scope->users) return true;
  bool in_a = false, in_b = false;
  for (uint32_t k = 0; k < m->a->accesses.n; k++) in_a |= m->a->accesses.v[k].root == root;
  for (uint32_t k = 0; k < m->b->accesses.n; k++) in_b |= m->b->accesses.v[k].root == root;
  return m->scope->users[root].nodes <= (uint32_t)in_a + in_b;
}

/* Buffers of a, and those of b that are not a's, which nodes other than the two use as well. */
static uint32_t count_buffers(const matcher *m) {
  dc_user_lists *marks = m->scope->lists;
  uint32_t n = 0;
  for (uint32_t k = 0; k < m->a->accesses.n; k++) marks[m->a->accesses.v[k].root].readers = 1;
  for (uint32_t k = 0; k < m->b->accesses.n; k++) marks[m->b->accesses.v[k].root].writers = 1;
  for (int of_b = 0; of_b < 2; of_b++) {
    const dc_accesses *accesses = of_b ? &m->b->accesses : &m->a->accesses;
    for (uint32_t k = 0; k < accesses->n; k++) {
      dc_user_lists *mark = &marks[accesses->v[k].root];
      n += m->scope->users[accesses->v[k].root].nodes > mark->readers + mark->writers && mark->readers + mark->writers;
      *mark = (dc_user_lists){0};
    }
  }
  return n;
}

static bool fits(const matcher *m) {
  return m->a->n_tasklets + m->b->n_tasklets <= MAX_TASKLETS && (!m->scope->users || count_buffers(m) <= MAX_BUFFERS);
}

/* Everything that the parallel map writes stays inside the merged reduction. */
static bool writes_stay(const matcher *m, const dc_group *g) {
  for (uint32_t k = 0; k < g->accesses.n; k++)
    if (g->accesses.v[k].writes && !used_only_here(m, g->accesses.v[k].root)) return false;
  return true;
}

static bool reads(const dc_group *g, dc_cid root) {
  bool found = false;
  for (uint32_t k = 0; k < g->accesses.n && !found; k++) found = g->accesses.v[k].reads && g->accesses.v[k].root == root;
  return found;
}

/* A reduction inside starts anew in each iteration of one around it, which is to read what it comes to. */
static bool inner_results_are_read(const matcher *m, const dc_group *g) {
  for (uint32_t k = 0; k < g->accesses.n; k++)
    if (g->accesses.v[k].initialised && !reads(m->a, g->accesses.v[k].root) && !reads(m->b, g->accesses.v[k].root)) return false;
  return true;
}

static bool accumulates_outside_reduce(const dc_group *g) {
  for (uint32_t k = 0; k < g->accesses.n; k++)
    if (g->accesses.v[k].writes && g->accesses.v[k].reads) return true;
  return false;
}

/* A REDUCE map sets its accumulators on entry: nobody else in the merged loop may touch them. */
static bool accumulators_meet(const matcher *m) {
  for (uint32_t x = 0; x < m->a->accesses.n; x++)
    for (uint32_t y = 0; y < m->b->accesses.n; y++)
      if ((m->a->accesses.v[x].initialised || m->b->accesses.v[y].initialised) && m->a->accesses.v[x].root == m->b->accesses.v[y].root)
        return true;
  return false;
}

/* Does a loop inside the parallel map go across memory along which the map itself goes?  Vectors then run along the map, with
 * the loops inside, as long as it does not become a reduction. */
static bool goes_across(const matcher *m, const dc_group *g, const dc_match *match) {
  const dc_pool *pool = &m->graph->pool;
  bool first = g == m->a;
  for (uint32_t x = 0; x < g->accesses.n; x++) {
    const dc_access *a = &g->accesses.v[x];
    if (!moves_inside(m, a, match, first)) continue;
    uint32_t d = dc_contiguous_dimension(m->graph, a->container);
    if (d >= dc_ex_node(pool, a->element)->nargs) continue;
    dc_ex index = dc_ex_arg(pool, a->element, d);
    bool along = false, inside = dc_ex_uses_op(pool, index, DC_EX_READ);
    for (uint32_t k = 0; k < match->n; k++) along |= dc_ex_uses_param(pool, index, first ? match->pairs[k].p : match->pairs[k].q);
    if (along && !inside && !index_moves_inside(m, index, match, first)) return true;
  }
  return false;
}

/* Reductions merge whole or not at all. */
static uint32_t worth_of_reduction(const matcher *m, dc_match *match, bool whole) {
  bool first = m->first.schedule == DC_MAP_REDUCE, second = m->second.schedule == DC_MAP_REDUCE;
  if (!whole || accumulators_meet(m) || m->a->compute_bound || m->b->compute_bound) return 0;
  const dc_group *parallel = !first ? m->a : !second ? m->b : NULL;
  if (parallel && (accumulates_outside_reduce(parallel) || !inner_results_are_read(m, parallel))) return 0;
  if (parallel && !m->scope->parallel_outside && !writes_stay(m, parallel)) return 0;
  if (parallel && !m->graph->machine.teams && goes_across(m, parallel, match)) return 0;
  match->schedule = DC_MAP_REDUCE;
  return 1000 + 100 * m->depends;
}

static uint32_t worth_of_maps(matcher *m, dc_match *match, bool whole) {
  match->schedule = DC_MAP_PARALLEL;
  if (!match->n) return 0;
  if (whole) return m->depends ? 1100 : same_order(m, match) && !m->a->compute_bound && !m->b->compute_bound ? 1000 : 0;
  if (m->a->compute_bound || m->b->compute_bound) return 0;
  if (!m->depends && !m->graph->machine.teams && shares_columns(m, match)) return 0; /* apart, both run along memory */
  if (!m->graph->machine.teams) leave_columns(m, match);
  if (!match->n || starves_threads(m, match)) return 0;
  bool much = reuses_much(m, match) && (keeps_order(m, match) || !makes_table(m));
  if (!much && (!keeps_order(m, match) || !m->depends)) return 0;
  return 10 * match->n + 5 * m->depends + much;
}

uint32_t dc_fuse_match(const dc_fuse_scope *scope, const dc_group *a, const dc_group *b, dc_match *out) {
  const dc_node *x = dc_node_at(scope->graph, a->node), *y = dc_node_at(scope->graph, b->node);
  out->n = 0;
  if (x->kind != DC_NODE_MAP || y->kind != DC_NODE_MAP || a->fixed || b->fixed) return 0;
  if (x->map.n_params > DC_MAX_MAP_PARAMS || y->map.n_params > DC_MAX_MAP_PARAMS) return 0;
  uint32_t score[DC_MAX_MAP_PARAMS][DC_MAX_MAP_PARAMS];
  matcher m = {.scope = scope, .graph = scope->graph, .a = a, .b = b, .first = x->map, .second = y->map, .score = score};
  if (!fits(&m)) return 0;
  bool both_parallel = m.first.schedule == DC_MAP_PARALLEL && m.second.schedule == DC_MAP_PARALLEL;
  bool reduces = (m.first.schedule == DC_MAP_REDUCE || m.first.schedule == DC_MAP_PARALLEL) &&
                 (m.second.schedule == DC_MAP_REDUCE || m.second.schedule == DC_MAP_PARALLEL);
  if (!both_parallel && !reduces) return 0;
  if (!both_parallel && m.first.n_params != m.second.n_params) return 0;
  score_pairs(&m);
  choose_pairs(&m, out);
  prune_all(&m, out);
  sort_pairs(&m, out);
  bool whole = out->n == m.first.n_params && out->n == m.second.n_params;
  if (!m.depends && !shares(&m, out) && !(scope->options->strangers && whole)) return 0;
  if ((scope->options->producers_only && !m.depends) || (scope->options->whole_only && !whole)) return 0;
  return both_parallel ? worth_of_maps(&m, out, whole) : worth_of_reduction(&m, out, whole);
}
