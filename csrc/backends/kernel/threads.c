/* Threads: which loops of a map are shared by threads, in blocks of how many iterations, and what an iteration costs,
 * by which a run decides whether threads pay. */
#include "backends/kernel/kernel.h"
#include "ir/work.h"

enum { MAX_CHAIN = 16, UNKNOWN_TRIPS = 16, SHORT = 64 };

/* ---- which loops ---- */

/* Can the range be computed before the first loop runs? */
static bool is_fixed(dc_kernel *k, const dc_loop *l, const dc_loop *first) {
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  return begin.level < first->depth && end.level < first->depth && !((begin.reads | end.reads) & first->writes);
}

static dc_loop *next_in_map(const dc_loop *l) {
  return l->body.n == 1 && l->body.v[0].loop && !l->body.v[0].loop->is_entry ? l->body.v[0].loop : NULL;
}

typedef struct {
  dc_loop *at[MAX_CHAIN];
  uint32_t n;
  bool sliced;
} chain;

/* The loops of one map from its entry on that form a box and may be split. */
static void find_chain(dc_kernel *k, dc_loop *l, chain *c) {
  *c = (chain){0};
  for (dc_loop *at = l; at && c->n < MAX_CHAIN; at = next_in_map(at)) {
    if (at->collides || !is_fixed(k, at, l)) break;
    c->at[c->n++] = at;
    if (at->product) break; /* its rows are shared, its columns stay together */
  }
  if (c->n || l->schedule != DC_MAP_SCATTER) return;
  /* Scattered writes that collide stay in order within a thread if each has its own slice. */
  for (dc_loop *at = next_in_map(l); at && !c->n; at = next_in_map(at))
    if (!at->collides && at->step == 1 && is_fixed(k, at, l)) c->at[c->n++] = at, c->sliced = true;
}

/* Everything under `at` may run in a function of its own. */
static bool is_closed(dc_kernel *k, const dc_loop *l, const dc_loop *at) {
  for (uint32_t j = 0; j < at->body.n; j++) {
    const dc_write *w = at->body.v[j].write;
    if (!w) {
      if (!is_closed(k, l, at->body.v[j].loop)) return false;
      continue;
    }
    if (w->accumulator) {
      const dc_loop *home = k->accumulators.v[w->accumulator - 1].home;
      if (home == l ? w->wcr == DC_WCR_NONE : !dc_loop_is_inside(home, l)) return false;
    } else if (l->schedule == DC_MAP_REDUCE && !dc_kernel_is_register(k, w->out)) {
      return false; /* only accumulators leave a reduction that threads share */
    }
  }
  return true;
}

/* An innermost loop of few iterations stays whole within one of the loop around it: its ends are numbers then, of which the
 * compiler makes straight code, and no block begins with it. */
static void keep_short_whole(dc_kernel *k, chain *c) {
  if (c->n < 2 || c->sliced) return;
  const dc_loop *last = c->at[c->n - 1];
  const int64_t extent = dc_loop_extent(k, last);
  if (!last->product && !last->lanes && !dc_loop_has_loops(last) && extent > 0 && extent <= SHORT) c->n--;
}

/* No register from outside is used inside; accumulators of l itself are handled apart. */
static bool needs_outer_register(dc_kernel *k, const dc_loop *l) {
  uint64_t reads = 0;
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    if (!dc_loop_is_inside(w->parent, l)) continue;
    reads |= dc_kernel_dependence(k, w->value).reads | dc_kernel_dependence(k, w->element).reads;
    if (w->guard) reads |= dc_kernel_dependence(k, w->guard).reads;
    if (w->accumulator && k->accumulators.v[w->accumulator - 1].home == l) reads &= ~k->bits[w->out];
  }
  for (dc_cid c = k->n_buffers + 1; c < k->graph->containers.n; c++)
    if (reads & k->bits[c] && k->homes.v[c] && !dc_loop_is_inside(k->homes.v[c], l)) return true;
  return false;
}

static double likely_extent(dc_kernel *k, const dc_loop *l) { return (double)(l->usual ? l->usual : dc_loop_extent(k, l)); }

/* Less than a microsecond of work for certain. */
static bool is_tiny(dc_kernel *k, const chain *c) {
  double total = 1;
  for (uint32_t j = 0; j < c->n; j++) {
    double extent = likely_extent(k, c->at[j]);
    if (extent < 0) return false;
    total *= extent;
  }
  const dc_loop *last = c->at[c->n - 1];
  return !c->sliced && !last->product && !dc_loop_has_loops(last) && total < k->graph->machine.tiny_iterations;
}

/* ---- work ---- */

static double value_cost(dc_kernel *k, dc_ex x) {
  const dc_exnode node = *dc_ex_node(k->pool, x);
  if (node.nargs == 0 || !dc_kernel_first(k, x)) return 0;
  double cost = dc_ex_cost(k->pool, x);
  if (node.op == DC_EX_READ) {
    dc_ex check = dc_read_check(k, x);
    return cost + (check ? value_cost(k, check) : 0);
  }
  for (uint32_t j = 0; j < node.nargs; j++) cost += value_cost(k, dc_ex_arg(k->pool, x, j));
  return cost;
}

static double write_cost(dc_kernel *k, const dc_loop *l, const dc_write *w) {
  const dc_machine *m = &k->graph->machine;
  dc_kernel_begin(k);
  if (w->in_product) return m->multiply_ns;
  const double collision = l->collides && !l->is_vector ? m->collision_ns : 0;
  return value_cost(k, w->value) + (w->accumulator ? m->accumulate_ns : m->store_add_ns) + collision;
}

/* Iterations of a loop inside one of depth `depth`, as f64. */
static dc_ex trips(dc_kernel *k, const dc_loop *l, uint32_t depth) {
  double extent = likely_extent(k, l);
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  bool known = begin.level < depth && end.level < depth && !(begin.reads | end.reads); /* what is read may be written on the way */
  if (extent >= 0 || !known) return dc_ex_const(k->pool, DC_F64, extent >= 0 ? extent : UNKNOWN_TRIPS);
  return dc_ex_cast(k->pool, DC_F64, dc_ix_sub(k->pool, l->end, l->begin));
}

/* Nanoseconds of one iteration. */
static dc_ex iteration_cost(dc_kernel *k, const dc_loop *l, uint32_t depth) {
  bool loops = false;
  double own = k->graph->machine.iteration_ns;
  for (uint32_t j = 0; j < l->body.n; j++) {
    loops |= l->body.v[j].loop != NULL;
    if (l->body.v[j].write) own += write_cost(k, l, l->body.v[j].write);
  }
  if (!loops && l->schedule != DC_MAP_SEQUENTIAL) own -= k->graph->machine.iteration_ns; /* loop overhead is shared by vectors */
  dc_ex sum = dc_ex_const(k->pool, DC_F64, (double)(int64_t)(own * 100 + 0.5) / 100);
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    if (inner)
      sum = dc_ex_prim2(k->pool, DC_ADD, sum, dc_ex_prim2(k->pool, DC_MUL, trips(k, inner, depth), iteration_cost(k, inner, depth)));
  }
  return sum;
}

/* ---- the pass ---- */

enum { FEW_ROWS = 32, SOME_TASKS = 8 };

/* Rows of a product that a thread takes at a time.  A product of few rows is divided all the same: it works on FEW_ROWS at once,
 * so that smaller blocks than those of the machine read nothing more often. */
static int64_t rows_of_task(dc_kernel *k, const chain *c) {
  const int64_t most = k->graph->machine.product_rows, rows = c->n == 1 ? dc_loop_extent(k, c->at[0]) : -1;
  const int64_t share = (rows + SOME_TASKS - 1) / SOME_TASKS;
  return rows < 0 || share > most ? most : share < FEW_ROWS ? FEW_ROWS : share;
}

static int64_t block_of(dc_kernel *k, const chain *c) {
  const dc_machine *m = &k->graph->machine;
  const dc_loop *last = c->at[c->n - 1];
  bool loops = false;
  for (uint32_t j = 0; j < last->body.n; j++) loops |= last->body.v[j].loop != NULL;
  return c->sliced ? m->strip_lanes : last->product ? rows_of_task(k, c) : last->lanes ? last->lanes : loops ? 1 : m->task_iterations;
}

/* Maps inside what threads share run in each of them; those of a product run on blocks. */
static void share(dc_kernel *k, dc_loop *l) {
  chain c;
  if (l != k->root && l->is_entry && !dc_loop_strip(l->parent) && l->schedule != DC_MAP_SEQUENTIAL) {
    find_chain(k, l, &c);
    if (c.n && !is_tiny(k, &c) && is_closed(k, l, l) && !needs_outer_register(k, l)) {
      keep_short_whole(k, &c);
      const dc_loop *last = c.at[c.n - 1];
      l->threads = DC_NEW(k->arena, dc_threads);
      *l->threads = (dc_threads){.n = c.n, .block = block_of(k, &c), .sliced = c.sliced, .slice = c.sliced ? c.at[0] : NULL};
      l->threads->cost = iteration_cost(k, c.sliced ? l : last, l->depth);
      return;
    }
  }
  for (uint32_t j = 0; j < l->body.n && !l->product; j++)
    if (l->body.v[j].loop) share(k, l->body.v[j].loop);
}

void dc_kernel_threads(dc_kernel *k) { share(k, k->root); }

const dc_loop *dc_kernel_divided(const dc_kernel *k) {
  const dc_loop *l = dc_loop_only(k->root);
  const bool is_it = l && k->outermost && l->param == k->outermost && l->threads && l->step == 1;
  if (!is_it || l->threads->n != 1 || l->threads->sliced || l->schedule == DC_MAP_REDUCE) return NULL;
  return dc_loop_has_loops(l) && !l->lanes && !l->product && !l->joined && !l->is_vector ? l : NULL;
}
