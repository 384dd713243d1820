/* Judging a run by its sizes.
 *
 * A few bytes of attributes or shapes can ask for any number of loop iterations and any amount of memory, and a run
 * that never ends cannot be told from a long one.  So both are compared with what the caller holds and passed in -
 * inputs, weights, constants of the file - for those bytes are real: a million steps for each of them is more than
 * operators take on large tensors (a product of n by n matrices takes n/12, sorting n numbers by comparing all n/8),
 * and 16 KB for each is more than any network keeps.  Below 2^31 steps and 1 GB nobody need hold anything.
 * DCML_ALLOW, a factor on both or "inf", is for those who know better. */
#include "backends/work.h"

#include <math.h>
#include <stdlib.h>

enum { ASSUMED_TRIPS = 4 }; /* of a loop whose bounds depend on data */
static const double FREE_STEPS = 0x1p31, STEPS_PER_BYTE = 0x1p20, FREE_BYTES = 0x1p30, BYTES_PER_BYTE = 0x1p14;
static const double MOST = 1e150; /* products of such numbers are finite */

typedef struct {
  const dc_graph *graph;
  const int64_t *symbols;
  int64_t *first, *last; /* by parameter: its value at the first and at the last iterations of the loops around it */
} counter;

/* ---- loops ---- */

static bool range_uses(const dc_graph *g, dc_param p, dc_op op) {
  dc_parameter r = g->pool.params.v[p];
  return dc_ex_uses_op(&g->pool, r.begin, op) || dc_ex_uses_op(&g->pool, r.end, op);
}

/* Whatever the loops around do; false where that depends on data. */
static bool is_empty(const dc_graph *g, dc_param p, const int64_t *symbols) {
  dc_parameter r = g->pool.params.v[p];
  if (range_uses(g, p, DC_EX_PARAM) || range_uses(g, p, DC_EX_READ)) return false;
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
  if (range_uses(c->graph, p, DC_EX_READ)) return c->first[p] = 0, c->last[p] = ASSUMED_TRIPS - 1, ASSUMED_TRIPS;
  return fmax(trips_at(c, p, c->first, false), trips_at(c, p, c->last, true));
}

/* ---- nodes ---- */

static double times(double a, double b) { return fmin(a * b, MOST); }

static dc_work count(const counter *c, dc_nid id) {
  const dc_node *n = dc_node_at(c->graph, id);
  dc_work all = {0}, body = {0};
  if (n->kind == DC_NODE_TASKLET) return (dc_work){.work = 1};
  if (n->kind != DC_NODE_MAP) return all;
  double runs = 1;
  for (uint32_t k = 0; k < n->map.n_params; k++) {
    runs = times(runs, trips_of(c, n->map.params[k]));
    all.walked += runs;
  }
  for (uint32_t k = 0; k < n->map.body.n; k++) {
    dc_work one = count(c, n->map.body.v[k]);
    body.work += one.work, body.visits += one.visits, body.walked += one.walked;
  }
  bool idle = dc_map_is_idle(c->graph, id, c->symbols);
  all.visits = idle ? 0 : all.walked + times(runs, body.visits);
  all.walked += times(runs, body.walked);
  all.work = idle ? 0 : times(runs, body.work);
  if (n->map.schedule == DC_MAP_REDUCE) all.visits += body.visits, all.walked += body.walked; /* setting the identity */
  return all;
}

dc_status dc_work_count(const dc_graph *graph, const dc_nid *nodes, uint32_t n, const int64_t *symbols, dc_work *out) {
  uint32_t params = graph->pool.params.n;
  int64_t *places = calloc(2 * (size_t)params + 1, sizeof *places);
  if (!places) return dc_error(DC_ERR_MEMORY, "out of memory");
  counter c = {graph, symbols, places, places + params};
  for (uint32_t k = 0; k < n; k++) out[k] = count(&c, nodes[k]);
  free(places);
  return DC_OK;
}

/* ---- judgement ---- */

/* Read where it matters, which is where something is about to be refused. */
static double allowance(void) {
  const char *text = getenv("DCML_ALLOW");
  double factor = text ? strtod(text, NULL) : 1;
  return factor > 0 ? factor : 1;
}

static double justified(double amount_free, double per_byte, uint64_t held_bytes) {
  return fmax(amount_free, per_byte * (double)held_bytes);
}

double dc_memory_justified_bytes(uint64_t held_bytes) {
  return allowance() * justified(FREE_BYTES, BYTES_PER_BYTE, held_bytes);
}

dc_status dc_work_judge(dc_graph *g, const dc_nid *nodes, const double *steps, uint32_t n, uint64_t held_bytes) {
  double total = 0, most = justified(FREE_STEPS, STEPS_PER_BYTE, held_bytes);
  uint32_t largest = 0;
  for (uint32_t k = 0; k < n; k++) {
    total += steps[k];
    if (steps[k] > steps[largest]) largest = k;
  }
  if (total < most || total < allowance() * most) return DC_OK;
  return dc_error(DC_ERR_MEMORY, "%s: it asks for %.3g steps, the graph for %.3g, but %llu bytes of inputs and weights "
                                 "justify no more than %.3g; DCML_ALLOW=<factor> allows more",
                  dc_node_describe(g, nodes[largest]), steps[largest], total, (unsigned long long)held_bytes, most);
}
