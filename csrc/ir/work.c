/* See work.h. */
#include "ir/work.h"

#include <math.h>

enum {
  LIKELY_EXTENT = 32, /* of a dimension that is a symbol */
  ASSUMED_TRIPS = 4,  /* of a loop whose bounds depend on data */
};

/* ---- prices ---- */

/* Loading an element of a stream; choosing between two values; converting one. */
static const double READ_COST = 0.15, SELECT_COST = 0.03, CAST_COST = 0.01;
/* Arithmetic on indices, where it has to be done at all. */
static const double INDEX_COST = 0.03;
/* Vectors hold half as many f64, and functions of them are not approximated in vectors. */
static const double WIDE_FACTOR = 2, WIDE_FUNCTION_FACTOR = 20;

static bool is_index(uint8_t op) { return op >= DC_EX_LINEAR && op <= DC_EX_IMAX; }

double dc_ex_cost(const dc_pool *pool, dc_ex e) {
  const dc_exnode *node = dc_ex_node(pool, e);
  double cost = 0;
  if (node->op < DC_PRIM_COUNT) cost = dc_prims[node->op].cost;
  else if (node->op == DC_EX_READ) cost = READ_COST;
  else if (node->op == DC_EX_SELECT) cost = SELECT_COST;
  else if (node->op == DC_EX_CAST || node->op == DC_EX_BITS) cost = CAST_COST;
  else if (is_index(node->op)) cost = INDEX_COST;
  if (node->dtype != DC_F64) return cost;
  return cost * (dc_prim_is_function((dc_op)node->op) ? WIDE_FUNCTION_FACTOR : WIDE_FACTOR);
}

/* Comparisons and choices are operations where they look at data; those of bounds are how an operator is written, not its work. */
static bool is_operation(const dc_pool *pool, dc_ex e) {
  uint8_t op = dc_ex_node(pool, e)->op;
  if (op == DC_EX_SELECT) return dc_ex_uses_op(pool, dc_ex_arg(pool, e, 0), DC_EX_READ);
  if (op >= DC_PRIM_COUNT) return false;
  bool chooses = dc_prims[op].kind == DC_PRIM_TEST || dc_prims[op].kind == DC_PRIM_LOGIC;
  return !chooses || dc_ex_uses_op(pool, e, DC_EX_READ);
}

static void add_part(void *context, const dc_pool *pool, dc_ex e) {
  dc_value_work *w = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (is_index(node->op)) return;
  w->operations += is_operation(pool, e);
  if (node->op != DC_EX_READ) {
    w->cost += dc_ex_cost(pool, e);
    return;
  }
  w->reads++;
  for (uint32_t k = 0; k < node->nargs; k++) w->by_data |= dc_ex_uses_op(pool, dc_ex_arg(pool, e, k), DC_EX_READ);
}

dc_value_work dc_ex_work(const dc_pool *pool, dc_ex value) {
  dc_value_work w = {0};
  dc_ex_walk(pool, value, add_part, &w);
  return w;
}

/* ---- sizes ---- */

double dc_param_trips(dc_pool *pool, dc_param p) {
  dc_parameter r = pool->params.v[p];
  int64_t extent, step = 1;
  if (!dc_ex_is_int(pool, dc_ix_sub(pool, r.end, r.begin), &extent)) return DC_WORK_MOST;
  (void)dc_ex_is_int(pool, r.step, &step);
  return extent > 0 ? (double)((extent - 1) / step + 1) : 0;
}

double dc_param_likely_trips(dc_pool *pool, dc_param p) {
  double trips = dc_param_trips(pool, p);
  return trips < DC_WORK_MOST ? trips : LIKELY_EXTENT;
}

void dc_work_guess(const dc_pool *pool, int64_t *symbols) {
  for (dc_sym s = 1; s < pool->symbols.n; s++)
    symbols[s] = pool->symbols.v[s].min > LIKELY_EXTENT ? pool->symbols.v[s].min : LIKELY_EXTENT;
}

static double times(double a, double b) { return fmin(a * b, DC_WORK_MOST); }

double dc_container_elements(const dc_graph *graph, dc_cid c, const int64_t *symbols) {
  const dc_container *k = dc_cont(graph, c);
  double n = 1;
  for (uint32_t d = 0; d < k->rank; d++) n = times(n, (double)dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL));
  return n;
}

/* ---- loops ---- */

typedef struct {
  dc_graph *graph;
  const int64_t *symbols;
  int64_t *first, *last; /* by parameter: its value at the first and at the last iterations of the loops around it */
  bool values;
} counter;

static bool range_uses(const dc_graph *g, dc_param p, dc_op op) {
  dc_parameter r = g->pool.params.v[p];
  return dc_ex_uses_op(&g->pool, r.begin, op) || dc_ex_uses_op(&g->pool, r.end, op);
}

/* Whatever the loops around do; false where that depends on data. */
static bool is_empty(const dc_graph *g, dc_param p, const int64_t *symbols) {
  dc_parameter r = g->pool.params.v[p];
  if (range_uses(g, p, DC_EX_PARAM) || range_uses(g, p, DC_EX_READ)) return false;
  if (!symbols && (range_uses(g, p, DC_EX_SYM))) return false;
  return dc_ix_eval(&g->pool, r.end, symbols, NULL) <= dc_ix_eval(&g->pool, r.begin, symbols, NULL);
}

/* An idle REDUCE map inside still sets what it writes to the identity. */
static bool does_nothing(const dc_graph *g, dc_nid node, const int64_t *symbols) {
  const dc_node *n = dc_node_at(g, node);
  return n->kind == DC_NODE_MAP && n->map.schedule != DC_MAP_REDUCE && dc_map_is_idle(g, node, symbols);
}

bool dc_map_is_idle(const dc_graph *g, dc_nid map, const int64_t *symbols) {
  const dc_map *m = &dc_node_at(g, map)->map;
  for (uint32_t k = 0; k < m->n_params; k++)
    if (is_empty(g, m->params[k], symbols)) return true;
  for (uint32_t k = 0; k < m->body.n; k++)
    if (!does_nothing(g, m->body.v[k], symbols)) return false;
  return true;
}

/* The number of iterations with the loops around as `at` says; notes where p stands in the first or last of them. */
static double trips_at(const counter *c, dc_param p, int64_t *at, bool last) {
  dc_parameter r = c->graph->pool.params.v[p];
  int64_t begin = dc_ix_eval(&c->graph->pool, r.begin, c->symbols, at), step = 1;
  int64_t end = dc_ix_eval(&c->graph->pool, r.end, c->symbols, at);
  (void)dc_ex_is_int(&c->graph->pool, r.step, &step);
  at[p] = begin;
  if (end <= begin) return 0;
  uint64_t trips = ((uint64_t)end - (uint64_t)begin - 1) / (uint64_t)step + 1;
  if (last) at[p] = (int64_t)((uint64_t)begin + (trips - 1) * (uint64_t)step);
  return (double)trips;
}

static double trips_of(const counter *c, dc_param p) {
  if (!c->symbols) return dc_param_trips(&c->graph->pool, p);
  if (range_uses(c->graph, p, DC_EX_READ)) return c->first[p] = 0, c->last[p] = ASSUMED_TRIPS - 1, ASSUMED_TRIPS;
  return fmax(trips_at(c, p, c->first, false), trips_at(c, p, c->last, true));
}

/* ---- nodes ---- */

static dc_work count_tasklet(const counter *c, const dc_tasklet *t) {
  dc_work w = {.work = 1};
  if (!c->values) return w;
  dc_value_work v = dc_ex_work(&c->graph->pool, t->value);
  w.operations = v.operations + (t->wcr != DC_WCR_NONE);
  w.cost = v.cost + v.reads * READ_COST + (t->wcr ? dc_prims[dc_wcr_prim((dc_wcr)t->wcr)].cost : 0);
  return w;
}

static dc_work count(const counter *c, dc_nid id) {
  const dc_node *n = dc_node_at(c->graph, id);
  dc_work all = {0}, body = {0};
  if (n->kind == DC_NODE_TASKLET) return count_tasklet(c, &n->tasklet);
  if (n->kind != DC_NODE_MAP) return all;
  double runs = 1;
  for (uint32_t k = 0; k < n->map.n_params; k++) {
    runs = times(runs, trips_of(c, n->map.params[k]));
    all.walked += runs;
  }
  for (uint32_t k = 0; k < n->map.body.n; k++) {
    dc_work one = count(c, n->map.body.v[k]);
    body.work += one.work, body.visits += one.visits, body.walked += one.walked;
    body.operations += one.operations, body.cost += one.cost;
  }
  bool idle = dc_map_is_idle(c->graph, id, c->symbols);
  all.visits = idle ? 0 : all.walked + times(runs, body.visits);
  all.walked += times(runs, body.walked);
  all.work = idle ? 0 : times(runs, body.work);
  all.operations = times(runs, body.operations), all.cost = times(runs, body.cost);
  if (n->map.schedule == DC_MAP_REDUCE) all.visits += body.visits, all.walked += body.walked; /* setting the identity */
  return all;
}

void dc_work_count(dc_graph *graph, const dc_nid *nodes, uint32_t n, const int64_t *symbols, bool values, dc_work *out) {
  dc_arena arena = {0};
  counter c = {.graph = graph, .symbols = symbols, .values = values};
  if (symbols) c.first = DC_NEW_ARRAY(&arena, int64_t, graph->pool.params.n), c.last = DC_NEW_ARRAY(&arena, int64_t, graph->pool.params.n);
  for (uint32_t k = 0; k < n; k++) out[k] = count(&c, nodes[k]);
  dc_arena_free(&arena);
}

/* ---- bytes ---- */

typedef struct {
  dc_nid node, *seen;
  const uint64_t *bytes;
  uint64_t sum;
} traffic;

static void count_bytes(void *context, dc_cid c, dc_use use, dc_nid by) {
  traffic *t = context;
  (void)use, (void)by;
  if (!c || t->seen[c] == t->node) return;
  t->seen[c] = t->node;
  t->sum += t->bytes[c];
}

uint64_t dc_node_bytes(const dc_graph *graph, dc_nid node, const uint64_t *bytes, dc_nid *seen) {
  traffic t = {node, seen, bytes, 0};
  dc_node_uses(graph, node, count_bytes, &t);
  return t.sum;
}
