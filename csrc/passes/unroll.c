/* Unrolling, so that vectors run along the loop outside:
 *   - a parameter p that appears as p // c or p % c becomes c * q + r with a copy of the body for each r;
 *   - a reduction of a few iterations becomes one expression;
 *   - so does an inner loop of a reduction or a scatter whose parameter only chooses (t == 0 ? 1 - x : x).
 * Pooling windows, their gradients and nearest upsampling become straight code over strided loads; the neighbours between
 * which one interpolates, code without branches. */
#include "passes/access.h"
#include "passes/passes.h"

enum { MAX_COPIED_NODES = 16 };

/* ---- ranges ---- */

/* The number of iterations of a range from 0 in steps of 1, 0 where it is no constant.  Symbols: only constant ranges
 * are unrolled, of which residues leave no rest. */
static int64_t constant_trips(dc_pool *pool, dc_param p) {
  dc_parameter range = pool->params.v[p];
  int64_t begin, end, step;
  bool constant = dc_ex_is_int(pool, range.begin, &begin) && dc_ex_is_int(pool, range.end, &end) && dc_ex_is_int(pool, range.step, &step);
  return constant && begin == 0 && step == 1 ? end : 0;
}

/* ---- residues ---- */

typedef struct {
  dc_param param;
  int64_t most;    /* residues */
  int64_t divisor; /* 0: none found */
} residue_search;

static void find_divisor(void *context, const dc_pool *pool, dc_ex e) {
  residue_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  int64_t c;
  if (node->op != DC_EX_IDIV && node->op != DC_EX_IMOD) return;
  bool small = dc_ex_is_int(pool, dc_ex_arg(pool, e, 1), &c) && c >= 2 && c <= s->most;
  if (small && dc_ex_uses_param(pool, dc_ex_arg(pool, e, 0), s->param)) s->divisor = c;
}

static dc_status search_tasklet(void *context, dc_nid id, const dc_nid *maps, uint32_t n_maps) {
  (void)maps, (void)n_maps;
  struct {
    dc_graph *graph;
    residue_search search;
  } *s = context;
  dc_tasklet t = dc_node_at(s->graph, id)->tasklet;
  for (uint32_t d = 0; d < t.rank; d++) dc_ex_walk(&s->graph->pool, t.index[d], find_divisor, &s->search);
  if (t.guard) dc_ex_walk(&s->graph->pool, t.guard, find_divisor, &s->search);
  dc_ex_walk(&s->graph->pool, t.value, find_divisor, &s->search);
  return DC_OK;
}

/* Splits the last parameter of a map whose body holds only tasklets. */
static dc_status split_residues(dc_graph *graph, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  struct {
    dc_graph *graph;
    residue_search search;
  } s = {graph, {map.params[map.n_params - 1], graph->machine.unrolled_residues, 0}};
  if (map.body.n > MAX_COPIED_NODES) return DC_OK;
  DC_TRY(dc_node_tasklets(graph, id, search_tasklet, &s));
  int64_t trips = constant_trips(&graph->pool, s.search.param), c = s.search.divisor;
  if (!c || !trips || trips % c) return DC_OK;
  dc_parameter old = graph->pool.params.v[s.search.param];
  dc_param q = dc_param_new(&graph->pool, dc_name_text(&graph->names, old.name), old.begin, dc_ex_int(&graph->pool, trips / c), old.step);
  dc_scope body = {0};
  for (int64_t r = 0; r < c; r++) {
    dc_ex p = dc_ix_add(&graph->pool, dc_ix_mul(&graph->pool, dc_ex_int(&graph->pool, c), dc_ex_par(&graph->pool, q)),
                        dc_ex_int(&graph->pool, r));
    for (uint32_t k = 0; k < map.body.n; k++) {
      dc_nid copy = dc_node_clone(graph, map.body.v[k]);
      dc_node_substitute(graph, copy, s.search.param, p);
      dc_scope_push(graph, &body, copy);
    }
  }
  dc_node_at(graph, id)->map.params[map.n_params - 1] = q;
  dc_node_at(graph, id)->map.body = body;
  return DC_OK;
}

/* ---- reductions ---- */

/* No more are asked about than twice what is unrolled anywhere. */
static int64_t reduction_trips(dc_graph *graph, const dc_map *map) {
  int64_t trips = 1;
  for (uint32_t k = 0; k < map->n_params && trips <= 2 * graph->machine.unrolled_trips; k++)
    trips *= constant_trips(&graph->pool, map->params[k]);
  return trips;
}

typedef struct {
  dc_graph *graph;
  dc_param lane;
  bool reads_lane, jumps; /* moves with the lane, or data, at all; by more than a few elements */
  bool asks;              /* where a lane is decides what it does */
  uint32_t reads;
} stride_search;

static void judge_read(void *context, const dc_pool *pool, dc_ex e) {
  stride_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op < DC_PRIM_COUNT && dc_prims[node->op].kind == DC_PRIM_TEST && dc_ex_dtype(pool, dc_ex_arg(pool, e, 0)) == DC_I64)
    s->asks |= dc_ex_uses_param(pool, e, s->lane);
  if (node->op != DC_EX_READ) return;
  s->reads++;
  for (uint32_t d = 0; d < node->nargs; d++) /* gathered: there are no steps */
    if (dc_ex_uses_op(pool, dc_ex_arg(pool, e, d), DC_EX_READ)) {
      s->reads_lane = true;
      return;
    }
  for (uint32_t d = 0; d < node->nargs; d++) {
    dc_ex coefficient, rest, at = dc_ex_arg(pool, e, d);
    int64_t stride;
    if (!dc_ex_uses_param(pool, at, s->lane)) continue;
    s->reads_lane = true;
    bool linear = dc_ix_split(&s->graph->pool, at, s->lane, &coefficient, &rest) && dc_ex_is_int(&s->graph->pool, coefficient, &stride);
    bool along = d == dc_contiguous_dimension(s->graph, node->ref) && linear;
    s->jumps |= !along || stride < 0 || stride > s->graph->machine.short_stride;
  }
}

/* The reduction writes one element by WCR in each tasklet, which no other writes. */
static bool is_of_sums(const dc_graph *graph, const dc_map *map) {
  for (uint32_t k = 0; k < map->body.n; k++) {
    const dc_node *node = dc_node_at(graph, map->body.v[k]);
    if (node->kind != DC_NODE_TASKLET || !node->tasklet.wcr || dc_cont(graph, node->tasklet.out)->dtype == DC_BOOL) return false;
    for (uint32_t d = 0; d < node->tasklet.rank; d++)
      for (uint32_t p = 0; p < map->n_params; p++)
        if (dc_ex_uses_param(&graph->pool, node->tasklet.index[d], map->params[p])) return false;
    for (uint32_t j = 0; j < k; j++)
      if (dc_node_at(graph, map->body.v[j])->tasklet.out == node->tasklet.out) return false;
  }
  return map->schedule == DC_MAP_REDUCE;
}

enum { LONG_ROW = 28 /* lanes beside which those at its ends, which are taken one by one, are few */ };

/* It also moves in short steps with the lane.  Windows may have twice as many terms, if they are no terms of a product, which has loops
 * of its own; but not those that lanes at the ends of a short row see a part of. */
static bool is_unrollable(dc_graph *graph, dc_nid id, dc_param lane) {
  dc_map map = dc_node_at(graph, id)->map;
  int64_t trips = reduction_trips(graph, &map), most = graph->machine.unrolled_trips;
  if (!is_of_sums(graph, &map) || trips < 1 || trips > 2 * most) return false;
  stride_search s = {.graph = graph, .lane = lane};
  bool multiplies = false;
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_tasklet t = dc_node_at(graph, map.body.v[k])->tasklet;
    s.reads = 0;
    dc_ex_walk(&graph->pool, t.value, judge_read, &s);
    multiplies |= s.reads > 1;
    if (t.guard) dc_ex_walk(&graph->pool, t.guard, judge_read, &s);
  }
  bool few = trips <= most || (!multiplies && (!s.asks || constant_trips(&graph->pool, lane) >= LONG_ROW));
  return s.reads_lane && !s.jumps && few;
}

/* What the parameters of a map are in iteration i of all of them. */
static void constants_at(dc_graph *graph, const dc_map *map, int64_t i, dc_ex *at) {
  for (uint32_t k = map->n_params; k-- > 0;) {
    int64_t extent = constant_trips(&graph->pool, map->params[k]);
    at[k] = dc_ex_int(&graph->pool, i % extent);
    i /= extent;
  }
}

typedef struct {
  dc_ex value, guard; /* 0: none */
} term;

static term term_at(dc_graph *graph, const dc_map *map, const dc_tasklet *t, int64_t i) {
  dc_pool *pool = &graph->pool;
  dc_ex at[DC_MAX_LOOPS];
  constants_at(graph, map, i, at);
  return (term){dc_ex_subst(pool, t->value, map->params, at, map->n_params),
                t->guard ? dc_ex_subst(pool, t->guard, map->params, at, map->n_params) : 0};
}

typedef struct {
  dc_dtype type;
  dc_op prim;
  dc_ex identity;
} combination;

static combination combination_of(dc_graph *graph, const dc_tasklet *t) {
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(graph, t->out)->dtype);
  dc_ex identity = dc_ex_const(&graph->pool, type, dc_wcr_identity((dc_wcr)t->wcr, type));
  return (combination){type, dc_wcr_prim((dc_wcr)t->wcr), identity};
}

/* One term more, in the order of the loops; all: of those before, 0 if there are none. */
static dc_ex combined(dc_pool *pool, const combination *c, dc_ex all, term x) {
  dc_ex value = dc_ex_cast(pool, c->type, x.value);
  if (x.guard) value = dc_ex_select(pool, x.guard, value, c->identity);
  return all ? dc_ex_prim2(pool, c->prim, all, value) : value;
}

/* The reduction of one tasklet as an expression. */
static dc_ex unrolled_value(dc_graph *graph, const dc_map *map, const dc_tasklet *t, int64_t trips) {
  const combination c = combination_of(graph, t);
  dc_ex all = 0;
  for (int64_t i = 0; i < trips; i++) all = combined(&graph->pool, &c, all, term_at(graph, map, t, i));
  return all;
}

/* ---- the first of equal extremes ---- */

/* best: a maximum or minimum.  place: the least number of an iteration whose term is it, or NaN. */
typedef struct {
  dc_map best_map, place_map;
  dc_tasklet best, place;
  int64_t trips;
} contest;

static dc_ex is_winner(dc_graph *graph, const contest *c, term x) {
  dc_pool *pool = &graph->pool;
  dc_ex extreme = dc_ex_read(pool, (dc_dtype)dc_cont(graph, c->best.out)->dtype, c->best.out, c->best.index, c->best.rank);
  return dc_ex_and(pool, x.guard, dc_ex_is_extreme(pool, x.value, dc_ex_cast(pool, dc_ex_dtype(pool, x.value), extreme)));
}

static bool is_contest(dc_graph *graph, const contest *c) {
  int64_t before = -1, number;
  bool extreme = c->best.wcr == DC_WCR_MAX || c->best.wcr == DC_WCR_MIN;
  if (!extreme || c->place.wcr != DC_WCR_MIN || !dc_dtype_is_float((dc_dtype)dc_cont(graph, c->best.out)->dtype)) return false;
  if (reduction_trips(graph, &c->best_map) != c->trips) return false;
  for (int64_t i = 0; i < c->trips; i++) {
    term place = term_at(graph, &c->place_map, &c->place, i);
    bool next = dc_ex_is_int(&graph->pool, place.value, &number) && number > before;
    if (!next || place.guard != is_winner(graph, c, term_at(graph, &c->best_map, &c->best, i))) return false;
    before = number;
  }
  return true;
}

/* Term by term beside the extreme itself: the place stays where what was best before is no worse than the term. */
static dc_ex place_of_winner(dc_graph *graph, const contest *c) {
  dc_pool *pool = &graph->pool;
  const combination extreme = combination_of(graph, &c->best);
  dc_ex place = combination_of(graph, &c->place).identity, begun = dc_ex_bool(pool, false), best = 0;
  for (int64_t i = 0; i < c->trips; i++) {
    term x = term_at(graph, &c->best_map, &c->best, i), number = term_at(graph, &c->place_map, &c->place, i);
    dc_ex inside = x.guard ? x.guard : dc_ex_bool(pool, true), stays = begun;
    if (best) {
      dc_ex value = combined(pool, &extreme, 0, x);
      dc_ex no_worse = dc_ex_prim2(pool, c->best.wcr == DC_WCR_MAX ? DC_GE : DC_LE, best, value);
      stays = dc_ex_and(pool, stays, dc_ex_prim2(pool, DC_OR, no_worse, dc_ex_prim1(pool, DC_ISNAN, best)));
    }
    dc_ex moves = dc_ex_and(pool, inside, dc_ex_prim1(pool, DC_NOT, stays));
    place = dc_ex_select(pool, moves, dc_ex_cast(pool, dc_ex_dtype(pool, place), number.value), place);
    begun = dc_ex_prim2(pool, DC_OR, begun, inside);
    best = combined(pool, &extreme, best, x);
  }
  return place;
}

/* The value of tasklet t of body[at], from what finds the extreme before it; 0: nothing does, or what it reads has changed since. */
static dc_ex winner_value(dc_graph *graph, const dc_scope *body, uint32_t at, const dc_tasklet *t, int64_t trips) {
  if (t->wcr != DC_WCR_MIN || !t->guard) return 0;
  dc_arena arena = {0};
  bool *reads = DC_NEW_ARRAY(&arena, bool, graph->containers.n), changed = false;
  contest c = {.place_map = dc_node_at(graph, body->v[at])->map, .place = *t, .trips = trips};
  dc_ex value = 0;
  dc_node_mark(graph, body->v[at], DC_USE_READ, reads);
  for (uint32_t k = at; k-- > 0 && !changed && !value;) {
    const dc_node *n = dc_node_at(graph, body->v[k]);
    bool single = n->kind == DC_NODE_MAP && n->map.schedule == DC_MAP_REDUCE && n->map.body.n == 1;
    if (single && dc_node_at(graph, n->map.body.v[0])->kind == DC_NODE_TASKLET) {
      c.best_map = n->map, c.best = dc_node_at(graph, n->map.body.v[0])->tasklet;
      if (is_contest(graph, &c)) value = place_of_winner(graph, &c);
    }
    changed = dc_node_touches(graph, body->v[k], DC_USE_WRITE, reads);
  }
  dc_arena_free(&arena);
  return value;
}

static void unroll_reduction(dc_graph *graph, const dc_scope *around, uint32_t at, dc_scope *out) {
  dc_map map = dc_node_at(graph, around->v[at])->map;
  int64_t trips = reduction_trips(graph, &map);
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_node from = *dc_node_at(graph, map.body.v[k]);
    dc_ex value = winner_value(graph, around, at, &from.tasklet, trips);
    if (!value) value = unrolled_value(graph, &map, &from.tasklet, trips);
    dc_nid made = dc_node_tasklet(graph, from.tasklet.out, DC_WCR_NONE, from.tasklet.index, from.tasklet.rank, 0, value);
    dc_node_take_origin(graph, made, map.body.v[k]);
    dc_scope_push(graph, out, made);
  }
}

/* ---- choices ---- */

typedef struct {
  dc_pool *pool;
  dc_param param;
  bool found;
} choice_search;

static bool is_constant_beside(dc_pool *pool, dc_ex e, dc_param p) {
  dc_ex factor, rest;
  int64_t constant;
  return dc_ex_is_int(pool, e, &constant) ||
         (dc_ex_uses_param(pool, e, p) && dc_ix_split(pool, e, p, &factor, &rest) && dc_ex_is_int(pool, factor, &constant) &&
          dc_ex_is_int(pool, rest, &constant));
}

/* A comparison of the parameter with constants. */
static void find_choice(void *context, const dc_pool *pool, dc_ex e) {
  choice_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (s->found || node->op >= DC_PRIM_COUNT || dc_prims[node->op].kind != DC_PRIM_TEST || node->nargs != 2) return;
  dc_ex a = dc_ex_arg(pool, e, 0), b = dc_ex_arg(pool, e, 1);
  bool uses = dc_ex_uses_param(pool, a, s->param) || dc_ex_uses_param(pool, b, s->param);
  s->found = uses && is_constant_beside(s->pool, a, s->param) && is_constant_beside(s->pool, b, s->param);
}

static bool chooses(dc_graph *graph, const dc_map *map, dc_param param) {
  choice_search s = {&graph->pool, param, false};
  for (uint32_t k = 0; k < map->body.n && !s.found; k++) {
    dc_tasklet t = dc_node_at(graph, map->body.v[k])->tasklet;
    dc_ex_walk(&graph->pool, t.value, find_choice, &s);
    if (t.guard) dc_ex_walk(&graph->pool, t.guard, find_choice, &s);
  }
  return s.found;
}

/* The map's parameters from here on become copies: the first of them chooses, and together they have few values. */
static uint32_t first_choice(dc_graph *graph, const dc_map *map) {
  int64_t trips = 1;
  uint32_t first = map->n_params;
  for (uint32_t k = map->n_params; k-- > 0;) {
    int64_t extent = constant_trips(&graph->pool, map->params[k]);
    if (extent < 1 || extent > graph->machine.unrolled_trips / trips) break;
    trips *= extent;
    if (chooses(graph, map, map->params[k])) first = k;
  }
  return first;
}

static void copy_choices(dc_graph *graph, dc_nid id, uint32_t first) {
  dc_map map = dc_node_at(graph, id)->map;
  dc_scope body = map.body;
  for (uint32_t p = first; p < map.n_params; p++) {
    dc_scope copies = {0};
    for (uint32_t k = 0; k < body.n; k++)
      for (int64_t i = 0; i < constant_trips(&graph->pool, map.params[p]); i++) {
        dc_nid copy = dc_node_clone(graph, body.v[k]);
        dc_node_substitute(graph, copy, map.params[p], dc_ex_int(&graph->pool, i));
        dc_scope_push(graph, &copies, copy);
      }
    body = copies;
  }
  dc_node_at(graph, id)->map.n_params = first;
  dc_node_at(graph, id)->map.body = body;
}

static void sum_choices(dc_graph *graph, dc_nid id, uint32_t first) {
  dc_map map = dc_node_at(graph, id)->map, inner = map;
  inner.params += first, inner.n_params -= first;
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_tasklet t = dc_node_at(graph, map.body.v[k])->tasklet;
    dc_ex value = unrolled_value(graph, &inner, &t, reduction_trips(graph, &inner));
    dc_node_at(graph, map.body.v[k])->tasklet.value = value;
    dc_node_at(graph, map.body.v[k])->tasklet.guard = 0;
  }
  dc_node_at(graph, id)->map.n_params = first;
}

/* A scatter of one tasklet keeps the order in which it adds; a reduction has none. */
static void unroll_choices(dc_graph *graph, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  bool scatters = map.schedule == DC_MAP_SCATTER && map.body.n == 1 && dc_node_at(graph, map.body.v[0])->kind == DC_NODE_TASKLET;
  if (!scatters && !is_of_sums(graph, &map)) return;
  uint32_t first = first_choice(graph, &map);
  if (first == 0 || first == map.n_params) return;
  if (scatters) copy_choices(graph, id, first);
  else sum_choices(graph, id, first);
}

/* ---- the pass ---- */

static bool holds_only_tasklets(const dc_graph *graph, const dc_map *map) {
  for (uint32_t k = 0; k < map->body.n; k++)
    if (dc_node_at(graph, map->body.v[k])->kind != DC_NODE_TASKLET) return false;
  return map->body.n > 0;
}

static bool is_one_expression(dc_graph *graph, const dc_map *outside, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  if (outside->schedule != DC_MAP_PARALLEL || !outside->n_params) return false;
  if (is_unrollable(graph, id, outside->params[outside->n_params - 1])) return true;
  return is_of_sums(graph, &map) && (reduction_trips(graph, &map) == 1 || first_choice(graph, &map) == 0);
}

static dc_status unroll_map(dc_graph *graph, dc_nid id) {
  unroll_choices(graph, id);
  dc_map map = dc_node_at(graph, id)->map;
  dc_scope body = {0};
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_nid inner = map.body.v[k];
    bool is_map = dc_node_at(graph, inner)->kind == DC_NODE_MAP;
    if (is_map && is_one_expression(graph, &map, inner)) {
      unroll_reduction(graph, &map.body, k, &body);
      continue;
    }
    if (is_map) DC_TRY(unroll_map(graph, inner));
    dc_scope_push(graph, &body, inner);
  }
  dc_node_at(graph, id)->map.body = body;
  map = dc_node_at(graph, id)->map;
  bool any_order = map.schedule == DC_MAP_PARALLEL || map.schedule == DC_MAP_REDUCE;
  return any_order && map.n_params && holds_only_tasklets(graph, &map) ? split_residues(graph, id) : DC_OK;
}

dc_status dc_pass_unroll(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      if (dc_node_at(graph, id)->kind == DC_NODE_MAP) DC_TRY(unroll_map(graph, id));
    }
  return DC_OK;
}
