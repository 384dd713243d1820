/* Split: long sums with few results, which would leave most of a device idle, become sums of parts.
 *
 *     map c in 0:64 { reduce n in 0:32, h in 0:56 { U[c] sum= X[n, h, c] } }   becomes
 *     map n in 0:32, c in 0:64 { reduce h in 0:56 { T[n, c] sum= X[n, h, c] } }
 *     map c in 0:64 { reduce n in 0:32 { U[c] sum= T[n, c] } }
 *
 * Parts are iterations of the outermost loops of the sum, or blocks of one where it has more than are wanted.  A variance is split
 * into moments about the first element of each part, which do not wait for the mean (moments.h).  Runs before
 * fusion, which merges parts that read the same.  Sums that a map of rows will take along (bands.c) stay whole.  On a processor, whose
 * threads take blocks of a sum without this, only long columns are split. */
#include <math.h>

#include "ir/work.h"
#include "passes/access.h"
#include "passes/bands.h"
#include "passes/moments.h"
#include "passes/passes.h"

enum { MAX_PARTS = 4 }; /* loops of the sum that parts are taken from */
enum { PARTS = 64 };    /* on a processor */

typedef struct {
  dc_graph *graph;
  const bool *made; /* by container: does a map write it? */
  const dc_moments *moments;
  dc_map outer, reduce; /* outer: without parameters where there is no map around; reduce: what is left of it for one part */
  dc_map terms; /* reduce as it was */
  dc_param parts[MAX_PARTS + DC_MAX_RANK]; /* of the map over parts: those of the parts, then fresh ones of the outer map */
  dc_ex extents[MAX_PARTS + DC_MAX_RANK];
  uint32_t n_parts, n;
} search;

/* ---- may it be split ---- */

/* Symbols: a symbolic range is never taken apart. */
static bool is_plain(const dc_pool *pool, dc_param p, int64_t *extent) { return dc_param_counts_to(pool, p, extent) && *extent > 0; }

/* The whole is written whatever guards its terms. */
static bool is_inside(dc_graph *graph, const dc_tasklet *t) {
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t truth;
    if (!dc_ex_is_int(&graph->pool, dc_ex_in_range(&graph->pool, t->index[d], dc_cont(graph, t->out)->shape[d]), &truth) || !truth)
      return false;
  }
  return true;
}

/* Only sums of elements that the outer loops choose.  Terms that the same iteration of the outer map has written are none of
 * its first node's. */
static bool may_split(const search *s) {
  const dc_graph *graph = s->graph;
  int64_t extent;
  for (uint32_t k = 0; k < s->outer.n_params; k++)
    if (!is_plain(&graph->pool, s->outer.params[k], &extent)) return false;
  for (uint32_t k = 0; k < s->reduce.body.n; k++) {
    const dc_node *node = dc_node_at(graph, s->reduce.body.v[k]);
    if (node->kind != DC_NODE_TASKLET || !node->tasklet.wcr) return false;
    if (dc_map_moves(&graph->pool, node->tasklet.guard, &s->reduce) && !is_inside(s->graph, &node->tasklet)) return false;
    for (uint32_t d = 0; d < node->tasklet.rank; d++)
      if (dc_map_moves(&graph->pool, node->tasklet.index[d], &s->reduce)) return false;
  }
  return s->reduce.body.n && s->outer.n_params + MAX_PARTS <= DC_MAX_RANK;
}

/* ---- is it worth it ---- */

typedef struct {
  const search *s;
  uint32_t along, across;
  bool made; /* does a map make what it reads? */
} direction;

/* What all sums read alike is short, and says nothing. */
static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  direction *d = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_READ || !node->nargs || !dc_map_moves(pool, e, &d->s->reduce)) return;
  d->made |= d->s->made[node->ref];
  if (d->s->outer.n_params && !dc_map_moves(pool, e, &d->s->outer)) return;
  uint32_t at = dc_contiguous_dimension(d->s->graph, node->ref);
  bool along = at < node->nargs && dc_map_moves(pool, dc_ex_arg(pool, e, at), &d->s->reduce);
  *(along ? &d->along : &d->across) += 1;
}

static double trips_of(search *s, const dc_map *map) {
  double all = 1;
  for (uint32_t k = 0; k < map->n_params && all < DC_WORK_MOST; k++)
    all = fmin(all * dc_param_trips(&s->graph->pool, map->params[k]), DC_WORK_MOST);
  return all;
}

static direction direction_of(const search *s) {
  direction d = {.s = s};
  for (uint32_t k = 0; k < s->reduce.body.n; k++)
    dc_ex_walk(&s->graph->pool, dc_node_at(s->graph, s->reduce.body.v[k])->tasklet.value, look_at_read, &d);
  return d;
}

/* Sums that a team takes at once where the terms of one are apart in memory, and those of its neighbours together: else 1.  What no
 * map makes is read by pieces of memory that are as long as can be; what one makes will be summed where that map computes it, which
 * has loops for parts of few columns. */
static double columns_of(search *s) {
  const dc_machine *m = &s->graph->machine;
  direction d = direction_of(s);
  if (d.across <= d.along) return 1;
  double beside = s->outer.n_params ? dc_param_trips(&s->graph->pool, s->outer.params[s->outer.n_params - 1]) : 1, n = m->team_columns;
  while (!d.made && 2 * n <= m->wide_columns && 2 * n <= beside) n *= 2;
  return n;
}

/* Only sums of columns, of which a strip as wide as a vector is more than a cache holds: parts are read along memory, the strip would
 * be across it. */
static int64_t parts_for_caches(search *s) {
  direction d = direction_of(s);
  double bytes = s->graph->machine.vector_bytes;
  for (uint32_t k = 0; k < s->reduce.n_params; k++) bytes *= dc_param_likely_trips(&s->graph->pool, s->reduce.params[k]);
  return d.across > d.along && s->outer.n_params && bytes > s->graph->machine.l2_bytes ? PARTS : 0;
}

/* How many parts fill the device; 0 or 1: none.  Symbols: a loop over one is long, which is a guess about time only. */
static int64_t parts_wanted(search *s) {
  const dc_machine *m = &s->graph->machine;
  if (!m->teams) return parts_for_caches(s);
  double columns = columns_of(s), terms = trips_of(s, &s->reduce);
  double teams = ceil(trips_of(s, &s->outer) / columns), threads = ceil(m->team_threads / columns);
  if (teams >= m->teams || terms < threads * m->thread_terms) return 0;
  return (int64_t)fmin(m->teams / teams, terms / (ceil(threads / 4) * (m->thread_terms / 4 + 1)));
}

/* ---- taking it apart ---- */

static const char *name_of(const search *s, dc_param p) { return dc_name_text(&s->graph->names, s->graph->pool.params.v[p].name); }

static void add_part(search *s, dc_param p, int64_t extent) {
  s->parts[s->n_parts] = p;
  s->extents[s->n_parts++] = dc_ex_int(&s->graph->pool, extent);
}

static void drop_param(dc_map *map, uint32_t at) {
  for (map->n_params--; at < map->n_params; at++) map->params[at] = map->params[at + 1];
}

/* Blocks of one size where about as many as are wanted have one. */
static int64_t block_of(int64_t extent, int64_t wanted) {
  for (int64_t n = wanted; n < 2 * wanted; n++)
    if (extent % n == 0) return extent / n;
  return (extent + wanted - 1) / wanted;
}

/* The loop runs over one block, which a parameter of the parts chooses. */
static void take_block(search *s, dc_nid reduce, uint32_t at, int64_t extent, int64_t wanted) {
  dc_pool *pool = &s->graph->pool;
  dc_param old = s->reduce.params[at];
  int64_t size = block_of(extent, wanted), n = (extent + size - 1) / size;
  dc_param part = dc_param_new(pool, "p", dc_ex_int(pool, 0), dc_ex_int(pool, n), 0);
  dc_ex first = dc_ix_mul(pool, dc_ex_par(pool, part), dc_ex_int(pool, size)), begin = dc_ex_int(pool, 0), end = dc_ex_int(pool, size);
  if (extent % size) end = dc_ix_min(pool, end, dc_ix_sub(pool, dc_ex_int(pool, extent), first));
  dc_param fresh = dc_param_new(pool, name_of(s, old), begin, end, 0);
  dc_node_substitute(s->graph, reduce, old, dc_ix_add(pool, first, dc_ex_par(pool, fresh)));
  s->reduce.params[at] = fresh;
  add_part(s, part, n);
}

/* Loops of the sum, from the outermost one on, become loops over parts while there are to be more. */
static void choose_parts(search *s, dc_nid reduce, int64_t wanted) {
  int64_t extent;
  for (uint32_t k = 0; k < s->reduce.n_params && wanted > 1 && s->n_parts < MAX_PARTS;) {
    if (!is_plain(&s->graph->pool, s->reduce.params[k], &extent) || extent == 1) {
      k++;
    } else if (extent <= wanted && s->reduce.n_params > 1) {
      add_part(s, s->reduce.params[k], extent);
      drop_param(&s->reduce, k);
      wanted = (wanted + extent / 2) / extent;
    } else {
      take_block(s, reduce, k, extent, wanted < extent ? wanted : extent);
      return;
    }
  }
}

/* The map over parts has loops of its own for those of the outer map. */
static void copy_outer(search *s, dc_nid reduce) {
  dc_pool *pool = &s->graph->pool;
  s->n = s->n_parts;
  for (uint32_t k = 0; k < s->outer.n_params; k++) {
    dc_param old = s->outer.params[k];
    dc_parameter range = pool->params.v[old];
    dc_param fresh = dc_param_new(pool, name_of(s, old), range.begin, range.end, 0);
    dc_node_substitute(s->graph, reduce, old, dc_ex_par(pool, fresh));
    s->parts[s->n] = fresh, s->extents[s->n++] = range.end;
  }
}

/* What a tasklet of the sum becomes. */
typedef struct {
  dc_nid whole;
  dc_cid sums, distances; /* by part; distances: of a moment, else 0 */
  dc_ex first;            /* what distances are from */
} part_sums;

static dc_cid container_of_parts(search *s, dc_cid like, const char *suffix) {
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(s->graph, like)->dtype);
  return dc_container_after(s->graph, like, suffix, type, s->n, s->extents);
}

static dc_ex read_at(dc_graph *graph, dc_cid c, const dc_ex *at, uint32_t n) {
  return dc_ex_read(&graph->pool, (dc_dtype)dc_cont(graph, c)->dtype, c, at, n);
}

/* What the part `at` adds to the whole. */
static dc_ex value_of_part(search *s, const part_sums *p, const dc_ex *at) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  dc_ex sum = read_at(graph, p->sums, at, s->n), x, mean, terms = dc_ex_int(pool, 1);
  if (!p->distances) return sum;
  for (uint32_t k = 0; k < s->reduce.n_params; k++) {
    dc_parameter range = pool->params.v[s->reduce.params[k]];
    terms = dc_ix_mul(pool, terms, dc_ix_extent(pool, range.begin, range.end, range.step));
  }
  (void)dc_ex_term(pool, dc_node_at(graph, p->whole)->tasklet.value, &x, &mean);
  return dc_moment_sum(pool, mean, dc_ex_subst(pool, p->first, s->parts, at, s->n), sum, read_at(graph, p->distances, at, s->n),
                       dc_ex_subst(pool, terms, s->parts, at, s->n));
}

/* What the parts come to, into the elements that the whole sums had. */
static dc_nid make_second(search *s, dc_nid reduce, const part_sums *sums) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  dc_param loops[MAX_PARTS];
  dc_ex at[MAX_PARTS + DC_MAX_RANK];
  for (uint32_t k = 0; k < s->n; k++) {
    if (k < s->n_parts) loops[k] = dc_param_new(pool, name_of(s, s->parts[k]), dc_ex_int(pool, 0), s->extents[k], 0);
    at[k] = dc_ex_par(pool, k < s->n_parts ? loops[k] : s->outer.params[k - s->n_parts]);
  }
  dc_nid second = dc_node_map(graph, DC_MAP_REDUCE, loops, s->n_parts);
  dc_scope body = {0};
  for (uint32_t k = 0; k < s->reduce.body.n; k++) {
    dc_tasklet t = dc_node_at(graph, sums[k].whole)->tasklet;
    dc_ex part = value_of_part(s, &sums[k], at);
    bool of_terms = dc_map_moves(pool, t.guard, &s->terms) || dc_map_moves(pool, t.guard, &s->reduce);
    dc_nid add = dc_node_tasklet(graph, t.out, (dc_wcr)t.wcr, t.index, t.rank, of_terms ? 0 : t.guard, part);
    dc_node_take_origin(graph, add, sums[k].whole);
    dc_scope_push(graph, &body, add);
  }
  dc_node_at(graph, second)->map.body = body;
  dc_node_take_origin(graph, second, reduce);
  return second;
}

static void add_term(search *s, dc_scope *body, dc_nid from, dc_cid sums, const dc_ex *at, dc_ex value) {
  dc_tasklet t = dc_node_at(s->graph, from)->tasklet;
  dc_nid term = dc_node_tasklet(s->graph, sums, (dc_wcr)t.wcr, at, s->n, t.guard, value);
  dc_node_take_origin(s->graph, term, from);
  dc_scope_push(s->graph, body, term);
}

/* The terms of a tasklet, whose parameters are those of the parts by now. */
static void split_terms(search *s, dc_nid tasklet, const dc_ex *at, part_sums *p, dc_scope *body) {
  dc_pool *pool = &s->graph->pool;
  dc_tasklet t = dc_node_at(s->graph, tasklet)->tasklet;
  dc_ex x, mean, value = t.value;
  p->sums = container_of_parts(s, t.out, "parts");
  if (dc_moment_is(s->graph, s->moments, &s->reduce, &t, &x, &mean)) {
    p->first = dc_moment_first(s->graph, &s->reduce, x), p->distances = container_of_parts(s, t.out, "distances");
    add_term(s, body, tasklet, p->distances, at, dc_ex_prim2(pool, DC_SUB, x, p->first));
    value = dc_ex_of_term(pool, DC_TERM_SQUARE, x, p->first);
  }
  add_term(s, body, tasklet, p->sums, at, value);
}

/* Pushes the map over parts; returns the sum over them, which stands for the whole. */
static dc_nid split(search *s, dc_nid reduce, dc_scope *out) {
  dc_graph *graph = s->graph;
  dc_scope terms = {0};
  part_sums *sums = DC_NEW_ARRAY(&graph->arena, part_sums, s->reduce.body.n);
  dc_ex at[MAX_PARTS + DC_MAX_RANK];
  for (uint32_t k = 0; k < s->reduce.body.n; k++) sums[k].whole = dc_node_clone(graph, s->reduce.body.v[k]);
  copy_outer(s, reduce);
  for (uint32_t k = 0; k < s->n; k++) at[k] = dc_ex_par(&graph->pool, s->parts[k]);
  for (uint32_t k = 0; k < s->reduce.body.n; k++) split_terms(s, s->reduce.body.v[k], at, &sums[k], &terms);
  dc_map *map = &dc_node_at(graph, reduce)->map;
  map->params = s->reduce.params, map->n_params = s->reduce.n_params, map->body = terms;
  dc_nid parts = dc_node_wrap(graph, DC_MAP_PARALLEL, s->parts, s->n, reduce);
  dc_scope_push(graph, out, parts);
  return make_second(s, reduce, sums);
}

/* Of the graph as it was. */
typedef struct {
  bool *made;  /* by container: does a map write it? */
  bool *whole; /* by node: will a map of rows take it along? */
  dc_moments moments;
} known;

/* `reduce` alone, or the first node of the map `outer` (0: none); what stands for it, itself if it stays. */
static dc_nid visit(dc_graph *graph, const known *known, dc_nid outer, dc_nid reduce, dc_scope *out) {
  search s = {.graph = graph, .made = known->made, .moments = &known->moments, .reduce = dc_node_at(graph, reduce)->map};
  if (outer) s.outer = dc_node_at(graph, outer)->map;
  if (!may_split(&s)) return reduce;
  int64_t wanted = parts_wanted(&s);
  s.terms = s.reduce;
  s.reduce.params = DC_NEW_ARRAY(&graph->arena, dc_param, s.terms.n_params + 1);
  for (uint32_t k = 0; k < s.terms.n_params; k++) s.reduce.params[k] = s.terms.params[k];
  if (wanted < 2) return reduce;
  choose_parts(&s, reduce, wanted);
  return s.n_parts ? split(&s, reduce, out) : reduce;
}

static bool is_reduce(const dc_graph *graph, dc_nid id) {
  return dc_node_at(graph, id)->kind == DC_NODE_MAP && dc_node_at(graph, id)->map.schedule == DC_MAP_REDUCE;
}

static bool begins_with_sum(const dc_graph *graph, const dc_map *map) {
  return map->schedule == DC_MAP_PARALLEL && map->body.n && is_reduce(graph, map->body.v[0]);
}

static dc_status split_map(void *context, dc_graph *graph, dc_nid id, dc_scope *out) {
  const known *known = context;
  const dc_map *map = &dc_node_at(graph, id)->map;
  if (is_reduce(graph, id)) {
    id = visit(graph, known, 0, id, out);
  } else if (begins_with_sum(graph, map) && !known->whole[id]) {
    dc_nid second = visit(graph, known, id, map->body.v[0], out);
    dc_node_at(graph, id)->map.body.v[0] = second;
  }
  dc_scope_push(graph, out, id);
  return DC_OK;
}

static void note_write(void *context, dc_cid c, dc_use how, dc_nid by) {
  (void)by;
  if (how & DC_USE_WRITE) ((bool *)context)[c] = true;
}

dc_status dc_pass_split(dc_graph *graph) {
  dc_arena arena = {0};
  known of_graph = {.made = DC_NEW_ARRAY(&arena, bool, graph->containers.n),
                    .whole = DC_NEW_ARRAY(&arena, bool, graph->nodes.n),
                    .moments = dc_moments_find(graph, &arena)};
  for (uint32_t state = 0; state < graph->states.n; state++) {
    dc_scope *scope = &graph->states.v[state].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      if (dc_node_at(graph, scope->v[k])->kind != DC_NODE_MAP) continue;
      dc_node_uses(graph, scope->v[k], note_write, of_graph.made);
      if (begins_with_sum(graph, &dc_node_at(graph, scope->v[k])->map))
        of_graph.whole[scope->v[k]] = dc_bands_expect(graph, &arena, scope, k);
    }
  }
  dc_status status = dc_graph_each_map(graph, split_map, &of_graph);
  dc_arena_free(&arena);
  return status;
}
