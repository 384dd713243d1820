/* Exact: sums of floats at places that data choose become sums of whole numbers, whose order does not show.
 *
 *     scatter i in 0:n { Y[I[i]] sum= x(i) }   becomes
 *     map y { M[y] = 0  A[y] = 0 }
 *     scatter i in 0:n { M[I[i]] max= the bits of |x(i)| }
 *     scatter i in 0:n { A[I[i]] sum= x(i) as a whole number of units of a power of two that M[I[i]] chooses }
 *     map y { Y[y] sum= A[y] units }
 *
 * The bits of positive floats are ordered as the floats are.  Of the greatest magnitude that an element gets, a unit is so small a
 * part that the sum is nearer to the exact one than a sum of floats in any order; doubles have units of two sizes.  Infinities
 * are counted, by sign, and where a NaN comes it is the greatest.
 *
 * For a device, and scatters in which so many iterations may meet that one thread would be long with them in their order.  Does
 * nothing where machine->teams is 0. */
#include <math.h>

#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

/* Iterations that one thread takes in their order while others do so for elements of theirs, and the same of rows, whose elements
 * threads take side by side; elements of memory for each term; elements of a row. */
enum { FEW_TERMS = 1 << 14, FEW_ROWS = 1 << 17, MOST_ELEMENTS = 16, MOST_OF_ROWS = 4, LONG_ROW = 32 };
/* Of how many terms there are; of a sum; of a term; of infinities of one sign. */
enum { UNKNOWN_BITS = 32, SUM_BITS = 62, MOST_BITS = 51, COUNT_BITS = 32 };

/* What is added up in one container. */
typedef struct {
  dc_cid out, most, units, rest; /* bits of magnitudes; whole numbers of units, and of smaller ones of doubles (else 0) */
} sum;

typedef struct {
  dc_graph *graph;
  dc_pool *pool;
  dc_map map;
  sum *sums;
  uint32_t n;
  int bits; /* of a term, in units */
  int64_t *guess; /* at symbols */
} search;

/* ---- which ---- */

typedef struct {
  const dc_graph *graph;
  const dc_map *map;
  bool found;
} read_search;

static void look_at_read(void *context, const dc_pool *pool, dc_ex x) {
  read_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, x);
  s->found |= node->op == DC_RAND;
  for (uint32_t k = 0; node->op == DC_EX_READ && k < s->map->body.n; k++) {
    dc_cid out = dc_node_at(s->graph, s->map->body.v[k])->tasklet.out;
    s->found |= dc_container_root(s->graph, node->ref) == dc_container_root(s->graph, out);
  }
}

/* Nothing but sums of floats, of values that do not change while they are added up. */
static bool is_fit(const dc_graph *graph, const dc_map *map) {
  read_search s = {.graph = graph, .map = map};
  for (uint32_t k = 0; k < map->body.n; k++) {
    const dc_node *node = dc_node_at(graph, map->body.v[k]);
    if (node->kind != DC_NODE_TASKLET || node->tasklet.wcr != DC_WCR_SUM) return false;
    if (!dc_dtype_is_float((dc_dtype)dc_cont(graph, node->tasklet.out)->dtype)) return false;
  }
  for (uint32_t k = 0; k < map->body.n; k++) {
    const dc_tasklet *t = &dc_node_at(graph, map->body.v[k])->tasklet;
    dc_ex_walk(&graph->pool, t->value, look_at_read, &s);
    if (t->guard) dc_ex_walk(&graph->pool, t->guard, look_at_read, &s);
    for (uint32_t d = 0; d < t->rank; d++) dc_ex_walk(&graph->pool, t->index[d], look_at_read, &s);
  }
  return map->body.n && !s.found;
}

static double trips_of(const search *s, bool met) {
  double all = 1;
  for (uint32_t k = 0; k < s->map.n_params && all < DC_WORK_MOST; k++) {
    bool apart = true;
    for (uint32_t j = 0; j < s->map.body.n; j++) {
      const dc_tasklet *t = &dc_node_at(s->graph, s->map.body.v[j])->tasklet;
      apart = apart && dc_ix_separates(s->pool, t->index, t->rank, s->map.params[k]);
    }
    if (!met || !apart) all = fmin(all * dc_param_trips(s->pool, s->map.params[k]), DC_WORK_MOST);
  }
  return all;
}

/* Is p the place in rows that are added as a whole? */
static bool runs_along_rows(const search *s, dc_param p) {
  for (uint32_t k = 0; k < s->map.body.n; k++) {
    const dc_tasklet *t = &dc_node_at(s->graph, s->map.body.v[k])->tasklet;
    const uint32_t last = dc_contiguous_dimension(s->graph, t->out);
    if (last >= t->rank || !dc_ix_separates(s->pool, &t->index[last], 1, p)) return false;
    if (t->guard && dc_ex_uses_param(s->pool, t->guard, p)) return false;
    for (uint32_t d = 0; d < t->rank; d++)
      if (d != last && dc_ex_uses_param(s->pool, t->index[d], p)) return false;
  }
  return dc_param_trips(s->pool, p) >= LONG_ROW;
}

/* Symbols: how long a loop over one is decides about time and memory only; where rows are added, other loops are short. */
static bool is_worth_it(const search *s) {
  bool rows = false;
  for (uint32_t k = 0; k < s->map.n_params; k++) rows |= runs_along_rows(s, s->map.params[k]);
  double met = trips_of(s, true), terms = trips_of(s, false) * s->map.body.n, elements = 0;
  if (met <= (rows ? FEW_ROWS : FEW_TERMS) || (rows && met >= DC_WORK_MOST)) return false;
  for (uint32_t k = 0; k < s->n; k++) elements += dc_container_elements(s->graph, s->sums[k].out, s->guess);
  return elements <= terms * (rows ? MOST_OF_ROWS : MOST_ELEMENTS);
}

/* Bits that terms leave of a sum when all of them meet in one element. */
static int bits_of_term(const search *s) {
  double terms = s->map.body.n;
  for (uint32_t k = 0; k < s->map.n_params; k++) {
    dc_parameter p = s->pool->params.v[s->map.params[k]];
    int64_t extent;
    if (!dc_ex_is_int(s->pool, dc_ix_extent(s->pool, p.begin, p.end, p.step), &extent)) return SUM_BITS - UNKNOWN_BITS;
    terms *= (double)extent;
  }
  int wanted = (int)ceil(log2(fmax(terms, 1))) + 1, bits = SUM_BITS - (wanted < UNKNOWN_BITS ? wanted : UNKNOWN_BITS);
  return bits < MOST_BITS ? bits : MOST_BITS;
}

/* ---- numbers ---- */

static dc_dtype type_of(const search *s, const sum *x) { return dc_dtype_compute((dc_dtype)dc_cont(s->graph, x->out)->dtype); }
static dc_dtype bits_type(const search *s, const sum *x) { return type_of(s, x) == DC_F64 ? DC_I64 : DC_I32; }

/* The bits of infinity, and of the least normal number. */
static dc_ex infinite(const search *s, const sum *x) {
  return bits_type(s, x) == DC_I64 ? dc_ex_int(s->pool, 0x7ff0000000000000) : dc_ex_const(s->pool, DC_I32, 0x7f800000);
}
static dc_ex least(const search *s, const sum *x) {
  return bits_type(s, x) == DC_I64 ? dc_ex_int(s->pool, 0x0010000000000000) : dc_ex_const(s->pool, DC_I32, 0x00800000);
}
static dc_ex f64(const search *s, double value) { return dc_ex_const(s->pool, DC_F64, value); }

/* The power of two that the greatest magnitude begins with, as f64. */
static dc_ex power_of(const search *s, const sum *x, dc_ex most) {
  dc_ex small = dc_ex_prim2(s->pool, DC_LT, most, least(s, x)), held = dc_ex_select(s->pool, small, least(s, x), most);
  return dc_ex_cast(s->pool, DC_F64, dc_ex_bits(s->pool, type_of(s, x), dc_ex_prim2(s->pool, DC_BAND, held, infinite(s, x))));
}

static dc_ex read_at(const search *s, dc_cid c, const dc_ex *index) {
  return dc_ex_read(s->pool, (dc_dtype)dc_cont(s->graph, c)->dtype, c, index, dc_cont(s->graph, c)->rank);
}

/* Counts of infinities: those above zero from bit COUNT_BITS on. */
static dc_ex counted(const search *s, const sum *x, dc_ex value) {
  dc_dtype type = type_of(s, x);
  dc_ex up = dc_ex_prim2(s->pool, DC_EQ, value, dc_ex_const(s->pool, type, INFINITY));
  dc_ex down = dc_ex_prim2(s->pool, DC_EQ, value, dc_ex_const(s->pool, type, -INFINITY));
  dc_ex zero = dc_ex_int(s->pool, 0), one = dc_ex_int(s->pool, 1);
  return dc_ex_select(s->pool, up, dc_ex_int(s->pool, (int64_t)1 << COUNT_BITS), dc_ex_select(s->pool, down, one, zero));
}

static dc_ex sum_of_counted(const search *s, dc_ex units) {
  dc_ex up = dc_ex_prim2(s->pool, DC_GE, units, dc_ex_int(s->pool, (int64_t)1 << COUNT_BITS));
  dc_ex low = dc_ex_prim2(s->pool, DC_BAND, units, dc_ex_int(s->pool, ((int64_t)1 << COUNT_BITS) - 1));
  dc_ex down = dc_ex_prim2(s->pool, DC_NE, low, dc_ex_int(s->pool, 0)), none = f64(s, 0), most = f64(s, INFINITY);
  return dc_ex_prim2(s->pool, DC_SUB, dc_ex_select(s->pool, up, most, none), dc_ex_select(s->pool, down, most, none));
}

/* ---- maps ---- */

static void add_tasklet(search *s, dc_scope *body, dc_nid origin, dc_cid out, dc_wcr wcr, const dc_ex *index, dc_ex guard, dc_ex value) {
  dc_nid id = dc_node_tasklet(s->graph, out, wcr, index, dc_cont(s->graph, out)->rank, guard, value);
  dc_node_take_origin(s->graph, id, origin);
  dc_scope_push(s->graph, body, id);
}

static const sum *sum_in(const search *s, dc_cid out) {
  uint32_t k = 0;
  while (s->sums[k].out != out) k++;
  return &s->sums[k];
}

/* A copy of the scatter, of which each term goes where `put` says. */
static dc_nid scatter(search *s, dc_nid original, void (*put)(search *, const sum *, dc_scope *, dc_nid)) {
  dc_nid copy = dc_node_clone(s->graph, original);
  dc_scope old = dc_node_at(s->graph, copy)->map.body, body = {0};
  for (uint32_t k = 0; k < old.n; k++) put(s, sum_in(s, dc_node_at(s->graph, old.v[k])->tasklet.out), &body, old.v[k]);
  dc_node_at(s->graph, copy)->map.body = body;
  return copy;
}

static dc_ex term_of(const search *s, const sum *x, const dc_tasklet *t) { return dc_ex_cast(s->pool, type_of(s, x), t->value); }

static void put_magnitude(search *s, const sum *x, dc_scope *body, dc_nid from) {
  dc_tasklet t = dc_node_at(s->graph, from)->tasklet;
  dc_ex magnitude = dc_ex_bits(s->pool, bits_type(s, x), dc_ex_prim1(s->pool, DC_ABS, term_of(s, x, &t)));
  add_tasklet(s, body, from, x->most, DC_WCR_MAX, t.index, t.guard, magnitude);
}

static void put_units(search *s, const sum *x, dc_scope *body, dc_nid from) {
  dc_pool *pool = s->pool;
  dc_tasklet t = dc_node_at(s->graph, from)->tasklet;
  dc_ex term = term_of(s, x, &t), most = read_at(s, x->most, t.index);
  dc_ex finite = dc_ex_prim2(pool, DC_LT, most, infinite(s, x));
  dc_ex part = dc_ex_prim2(pool, DC_DIV, dc_ex_cast(pool, DC_F64, term), power_of(s, x, most)); /* below 2 */
  dc_ex scaled = dc_ex_prim2(pool, DC_MUL, part, f64(s, ldexp(1, s->bits - 1)));
  dc_ex whole = dc_ex_prim1(pool, x->rest ? DC_FLOOR : DC_ROUND, scaled);
  dc_ex units = dc_ex_cast(pool, DC_I64, dc_ex_select(pool, finite, whole, f64(s, 0)));
  add_tasklet(s, body, from, x->units, DC_WCR_SUM, t.index, t.guard, dc_ex_select(pool, finite, units, counted(s, x, term)));
  if (!x->rest) return;
  dc_ex rest = dc_ex_prim2(pool, DC_MUL, dc_ex_prim2(pool, DC_SUB, scaled, whole), f64(s, ldexp(1, s->bits)));
  dc_ex smaller = dc_ex_select(pool, finite, dc_ex_prim1(pool, DC_ROUND, rest), f64(s, 0));
  add_tasklet(s, body, from, x->rest, DC_WCR_SUM, t.index, t.guard, dc_ex_cast(pool, DC_I64, smaller));
}

/* A map over all elements, and their indices. */
static dc_nid map_over(search *s, dc_cid c, dc_ex *index) {
  dc_param params[DC_MAX_RANK];
  dc_container k = *dc_cont(s->graph, c);
  for (uint32_t d = 0; d < k.rank; d++) {
    params[d] = dc_param_new(s->pool, "e", dc_ex_int(s->pool, 0), k.shape[d], 0);
    index[d] = dc_ex_par(s->pool, params[d]);
  }
  return dc_node_map(s->graph, DC_MAP_PARALLEL, params, k.rank);
}

static void push_map(search *s, dc_scope *out, dc_nid map, dc_scope body, dc_nid origin) {
  dc_node from = *dc_node_at(s->graph, origin), *node = dc_node_at(s->graph, map);
  node->map.body = body, node->name = from.name, node->tag_op = from.tag_op, node->tag_wrt = from.tag_wrt;
  if (node->map.n_params) {
    dc_scope_push(s->graph, out, map);
    return;
  }
  for (uint32_t k = 0; k < body.n; k++) dc_scope_push(s->graph, out, body.v[k]);
}

static void clear(search *s, const sum *x, dc_scope *out, dc_nid origin) {
  dc_ex index[DC_MAX_RANK];
  dc_scope body = {0};
  dc_nid map = map_over(s, x->out, index);
  add_tasklet(s, &body, origin, x->most, DC_WCR_NONE, index, 0, dc_ex_const(s->pool, bits_type(s, x), 0));
  add_tasklet(s, &body, origin, x->units, DC_WCR_NONE, index, 0, dc_ex_int(s->pool, 0));
  if (x->rest) add_tasklet(s, &body, origin, x->rest, DC_WCR_NONE, index, 0, dc_ex_int(s->pool, 0));
  push_map(s, out, map, body, origin);
}

static void add_up(search *s, const sum *x, dc_scope *out, dc_nid origin) {
  dc_pool *pool = s->pool;
  dc_ex index[DC_MAX_RANK];
  dc_scope body = {0};
  dc_nid map = map_over(s, x->out, index);
  dc_ex most = read_at(s, x->most, index), units = read_at(s, x->units, index);
  dc_ex all = dc_ex_prim2(pool, DC_MUL, dc_ex_cast(pool, DC_F64, units), f64(s, ldexp(1, 1 - s->bits)));
  if (x->rest) {
    dc_ex rest = dc_ex_prim2(pool, DC_MUL, dc_ex_cast(pool, DC_F64, read_at(s, x->rest, index)), f64(s, ldexp(1, 1 - 2 * s->bits)));
    all = dc_ex_prim2(pool, DC_ADD, all, rest);
  }
  all = dc_ex_prim2(pool, DC_MUL, all, power_of(s, x, most));
  dc_ex is_nan = dc_ex_prim2(pool, DC_GT, most, infinite(s, x)), finite = dc_ex_prim2(pool, DC_LT, most, infinite(s, x));
  all = dc_ex_select(pool, finite, all, dc_ex_select(pool, is_nan, f64(s, NAN), sum_of_counted(s, units)));
  add_tasklet(s, &body, origin, x->out, DC_WCR_SUM, index, 0, dc_ex_cast(pool, type_of(s, x), all));
  push_map(s, out, map, body, origin);
}

/* ---- the pass ---- */

static dc_cid add_container(search *s, dc_cid like, const char *suffix, dc_dtype type) {
  const dc_container *k = dc_cont(s->graph, like);
  return dc_container_after(s->graph, like, suffix, type, k->rank, k->shape);
}

static void find_sums(search *s) {
  s->sums = DC_NEW_ARRAY(&s->graph->arena, sum, s->map.body.n);
  for (uint32_t k = 0; k < s->map.body.n; k++) {
    dc_cid out = dc_node_at(s->graph, s->map.body.v[k])->tasklet.out;
    bool known = false;
    for (uint32_t j = 0; j < s->n; j++) known |= s->sums[j].out == out;
    if (!known) s->sums[s->n++] = (sum){.out = out};
  }
}

static bool try_replace(dc_graph *graph, dc_nid id, dc_scope *out) {
  search s = {.graph = graph, .pool = &graph->pool, .map = dc_node_at(graph, id)->map};
  if (!is_fit(graph, &s.map)) return false;
  find_sums(&s);
  s.guess = DC_NEW_ARRAY(&graph->arena, int64_t, s.pool->symbols.n + 1);
  dc_work_guess(s.pool, s.guess);
  if (!is_worth_it(&s)) return false;
  s.bits = bits_of_term(&s);
  for (uint32_t k = 0; k < s.n; k++) {
    sum *x = &s.sums[k];
    x->most = add_container(&s, x->out, "most", bits_type(&s, x));
    x->units = add_container(&s, x->out, "units", DC_I64);
    if (type_of(&s, x) == DC_F64) x->rest = add_container(&s, x->out, "rest", DC_I64);
    clear(&s, x, out, id);
  }
  dc_scope_push(graph, out, scatter(&s, id, put_magnitude));
  dc_scope_push(graph, out, scatter(&s, id, put_units));
  for (uint32_t k = 0; k < s.n; k++) add_up(&s, &s.sums[k], out, id);
  return true;
}

static dc_status replace(void *context, dc_graph *graph, dc_nid id, dc_scope *out) {
  (void)context;
  bool scatters = dc_node_at(graph, id)->map.schedule == DC_MAP_SCATTER;
  if (!scatters || !try_replace(graph, id, out)) dc_scope_push(graph, out, id);
  return DC_OK;
}

dc_status dc_pass_exact(dc_graph *graph) { return graph->machine.teams ? dc_graph_each_map(graph, replace, NULL) : DC_OK; }
