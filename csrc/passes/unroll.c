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

static int64_t reduction_trips(dc_graph *graph, const dc_map *map) {
  int64_t trips = 1;
  for (uint32_t k = 0; k < map->n_params && trips <= graph->machine.unrolled_trips; k++)
    trips *= constant_trips(&graph->pool, map->params[k]);
  return trips;
}

typedef struct {
  dc_graph *graph;
  dc_param lane;
  bool reads_lane, jumps; /* moves with the lane, or data, at all; by more than a few elements */
} stride_search;

static void judge_read(void *context, const dc_pool *pool, dc_ex e) {
  stride_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_READ) return;
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
    if (d + 1 < node->nargs || !linear || stride < 0 || stride > s->graph->machine.short_stride) s->jumps = true;
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

/* It also moves in short steps with the lane. */
static bool is_unrollable(dc_graph *graph, dc_nid id, dc_param lane) {
  dc_map map = dc_node_at(graph, id)->map;
  int64_t trips = reduction_trips(graph, &map);
  if (!is_of_sums(graph, &map) || trips < 1 || trips > graph->machine.unrolled_trips) return false;
  stride_search s = {.graph = graph, .lane = lane};
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_tasklet t = dc_node_at(graph, map.body.v[k])->tasklet;
    dc_ex_walk(&graph->pool, t.value, judge_read, &s);
    if (t.guard) dc_ex_walk(&graph->pool, t.guard, judge_read, &s);
  }
  return s.reads_lane && !s.jumps;
}

/* The reduction of one tasklet as an expression, in the order of the loops. */
static dc_ex unrolled_value(dc_graph *graph, const dc_map *map, const dc_tasklet *t, int64_t trips) {
  dc_pool *pool = &graph->pool;
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(graph, t->out)->dtype);
  dc_ex identity = dc_ex_const(pool, type, dc_wcr_identity((dc_wcr)t->wcr, type)), all = 0, at[DC_MAX_LOOPS];
  for (int64_t i = 0; i < trips; i++) {
    int64_t rest = i;
    for (uint32_t k = map->n_params; k-- > 0;) {
      int64_t extent = constant_trips(pool, map->params[k]);
      at[k] = dc_ex_int(pool, rest % extent);
      rest /= extent;
    }
    dc_ex value = dc_ex_cast(pool, type, dc_ex_subst(pool, t->value, map->params, at, map->n_params));
    if (t->guard) value = dc_ex_select(pool, dc_ex_subst(pool, t->guard, map->params, at, map->n_params), value, identity);
    all = all ? dc_ex_prim2(pool, dc_wcr_prim((dc_wcr)t->wcr), all, value) : value;
  }
  return all;
}

static void unroll_reduction(dc_graph *graph, dc_nid id, dc_scope *out) {
  dc_map map = dc_node_at(graph, id)->map;
  int64_t trips = reduction_trips(graph, &map);
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_node from = *dc_node_at(graph, map.body.v[k]);
    dc_ex value = unrolled_value(graph, &map, &from.tasklet, trips);
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
      unroll_reduction(graph, inner, &body);
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
