/* Lanes: a parallel loop whose neighbours lie next to one another in memory, unlike those of the loops inside, runs in
 * strips, which vectors run inside those loops.  So does one around loops of functions that are too short for vectors, and, in narrow
 * strips, one around a loop that waits for its own results: the others have steps to do meanwhile. */
#include <math.h>

#include "backends/kernel/kernel.h"
#include "backends/kernel/strides.h"

static const double LONG_NS = 0.5; /* of an iteration that calls functions */
/* What functions take more where vectors are empty, or half full, and what a stride costs (strides.h). */
static const double SCALAR = 8, HALF = 3, STRIDE_NS = 0.1;
enum {
  STRIP_LINES = 4, /* lines of cache in a strip */
  FEW_STRIPS = 7, /* of a loop, that threads may share unevenly */
  FEWEST = 4,      /* lanes of one: half a vector beats jumps from element to element */
  SHORT = 8,       /* iterations of a loop that fill half a vector */
  MOST = 1000,     /* strides */
  BESIDE = 4,      /* recurrences that run at once: an addition takes as many cycles, and each has memory of its own */
};

typedef struct {
  dc_kernel *k;
  dc_param near, far; /* of the innermost loop, and of the loop that might run as lanes in it */
  uint32_t bad_near, bad_far;
} strides;

static void judge_read(void *context, const dc_pool *pool, dc_ex read) {
  strides *s = context;
  dc_ex address = dc_ex_arg(pool, read, 0);
  s->bad_near += dc_stride_cost(s->k, address, s->near);
  s->bad_far += dc_stride_cost(s->k, address, s->far);
}

static void add_function(void *context, const dc_pool *pool, dc_ex x) {
  const dc_op op = (dc_op)dc_ex_node(pool, x)->op;
  if (dc_prim_is_function(op)) *(double *)context += dc_prims[op].cost;
}

/* What a loop without loops that is too short for vectors costs more than one along them, in strides. */
static uint32_t without_vectors(const dc_kernel *k, const dc_loop *l, int64_t extent) {
  double functions = 0;
  for (uint32_t j = 0; j < l->body.n; j++) dc_ex_walk(k->pool, l->body.v[j].write->value, add_function, &functions);
  return 2 + (uint32_t)fmin(functions * (extent < SHORT ? SCALAR : HALF) / STRIDE_NS, MOST);
}

static void judge_loop(strides *s, const dc_loop *l) {
  int64_t extent = dc_loop_extent(s->k, l);
  s->near = l->param;
  for (uint32_t j = 0; j < l->body.n; j++) {
    if (l->body.v[j].loop) {
      judge_loop(s, l->body.v[j].loop);
      continue;
    }
    const dc_write *w = l->body.v[j].write;
    judge_read(s, s->k->pool, w->element);
    dc_kernel_each_read(s->k, w->value, judge_read, s);
  }
  if (extent >= 0 && extent < s->k->graph->machine.few_iterations && !dc_loop_has_loops(l))
    s->bad_near += without_vectors(s->k, l, extent);
}

static strides judged(dc_kernel *k, const dc_loop *inside, dc_param far) {
  strides s = {.k = k, .far = far};
  for (uint32_t j = 0; j < inside->body.n; j++)
    if (inside->body.v[j].loop) judge_loop(&s, inside->body.v[j].loop);
  return s;
}

/* Would what runs as lanes of a loop inside rather run as those of this one? */
static bool is_better(dc_kernel *k, const dc_loop *lane, const dc_loop *inner) {
  return judged(k, inner, lane->param).bad_far < judged(k, inner, inner->param).bad_far;
}

/* Loops inside must not depend on the lane, nor be lanes that are as good.  What collides there collides in its own lane: iterations
 * of a parallel loop write different elements. */
static bool is_legal(dc_kernel *k, const dc_loop *lane, const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    if (!inner) continue;
    bool data = dc_ex_uses_op(k->pool, inner->begin, DC_EX_READ) || dc_ex_uses_op(k->pool, inner->end, DC_EX_READ); /* of each lane */
    if ((inner->lanes && !is_better(k, lane, inner)) || data ||
        dc_ex_uses_param(k->pool, inner->begin, lane->param) || dc_ex_uses_param(k->pool, inner->end, lane->param) ||
        !is_legal(k, lane, inner))
      return false;
  }
  return true;
}

typedef struct {
  const dc_kernel *k;
  const dc_loop *lane;
  bool repeats;
} reuse_search;

static void find_reuse(void *context, const dc_pool *pool, dc_ex read) {
  reuse_search *r = context;
  for (const dc_loop *l = r->lane->parent; l && l->parent; l = l->parent)
    r->repeats |= !dc_ex_uses_param(pool, dc_ex_arg(pool, read, 0), l->param);
}

/* Does each iteration of the loops around read other elements? */
static bool reads_once(const dc_kernel *k, const dc_loop *lane, const dc_loop *l) {
  reuse_search r = {.k = k, .lane = lane};
  for (uint32_t j = 0; j < l->body.n && !r.repeats; j++) {
    if (l->body.v[j].write) dc_kernel_each_read(k, l->body.v[j].write->value, find_reuse, &r);
    else r.repeats = !reads_once(k, lane, l->body.v[j].loop);
  }
  return !r.repeats;
}

static bool has_product(const dc_loop *l) {
  bool found = l->product != NULL;
  for (uint32_t j = 0; j < l->body.n && !found; j++) found = l->body.v[j].loop && has_product(l->body.v[j].loop);
  return found;
}

/* The next loop of the same map stands inside. */
static bool goes_on(const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n; j++)
    if (l->body.v[j].loop && !l->body.v[j].loop->is_entry) return true;
  return false;
}

/* Strips of one width, whole lines of cache, none of them a small rest; an even number where there are few and that leaves them long,
 * for threads.  An unknown number of iterations gets the widest. */
static uint32_t strip_of(int64_t extent, int64_t widest, int64_t line) {
  if (extent < 0) return (uint32_t)widest;
  int64_t strips = (extent + widest - 1) / widest;
  if (strips % 2 && strips <= FEW_STRIPS && extent >= 2 * line * (strips + 1)) strips++;
  int64_t lanes = (extent + strips - 1) / strips;
  return (uint32_t)((lanes + line - 1) / line * line);
}

static void add_cost(void *context, const dc_pool *pool, dc_ex x) {
  const dc_op op = (dc_op)dc_ex_node(pool, x)->op;
  *(double *)context += op < DC_PRIM_COUNT ? dc_prims[op].cost : 0;
}

/* How many recurrences of a loop without loops should run at once: few that wait for floats in registers, and for nothing that they
 * write to memory, or as many as vectors have lanes where an iteration is long; 0: that is no recurrence, or quick by itself. */
static uint32_t beside(dc_kernel *k, const dc_loop *l) {
  uint64_t memory = 0, reads = 0;
  bool carried = false;
  double cost = 0;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    if (!w) return 0;
    dc_ex_walk(k->pool, w->value, add_cost, &cost);
    const bool is_register = dc_kernel_is_register(k, w->out);
    carried |= is_register && dc_dtype_is_float((dc_dtype)dc_cont(k->graph, w->out)->dtype);
    memory |= is_register ? 0 : k->bits[w->out];
    reads |= dc_kernel_dependence(k, w->value).reads | (w->guard ? dc_kernel_dependence(k, w->guard).reads : 0);
  }
  return cost >= LONG_NS ? DC_FEW_LANES : carried && !(reads & memory) ? BESIDE : 0;
}

/* The same of a loop around one recurrence and what that begins with: no vector runs along it. */
static uint32_t recurrences_beside(dc_kernel *k, const dc_loop *l) {
  uint32_t loops = 0, lanes = 0;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    if (!inner && !dc_kernel_is_register(k, l->body.v[j].write->out)) return 0;
    if (!inner) continue;
    lanes = inner->schedule == DC_MAP_SEQUENTIAL ? beside(k, inner) : 0;
    loops++;
  }
  return loops == 1 ? lanes : 0;
}

static void drop_lanes(dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    if (!l->body.v[j].loop) continue;
    l->body.v[j].loop->lanes = 0;
    drop_lanes(l->body.v[j].loop);
  }
}

static void find_lanes(dc_kernel *k, dc_loop *l) {
  const dc_machine *m = &k->graph->machine;
  int64_t extent = dc_loop_extent(k, l);
  bool loops = false;
  for (uint32_t j = 0; j < l->body.n; j++) loops |= l->body.v[j].loop != NULL;
  if (l->schedule != DC_MAP_PARALLEL || l->step != 1 || !loops || goes_on(l) || has_product(l) || dc_loop_is_sum(l)) return;
  if (l->parent->product || (extent >= 0 && extent < FEWEST)) return;
  strides s = judged(k, l, l->param);
  const bool across = s.bad_far >= s.bad_near;
  const uint32_t recurrences = across ? recurrences_beside(k, l) : 0;
  if ((across && (!recurrences || (extent >= 0 && extent < recurrences))) || !is_legal(k, l, l)) return;
  if (across) {
    l->lanes = recurrences;
    return;
  }
  bool is_short = extent >= 0 && extent < 2 * (int64_t)m->long_strip_lanes;
  int64_t widest = is_short || !reads_once(k, l, l) ? m->strip_lanes : m->long_strip_lanes;
  drop_lanes(l);
  l->lanes = strip_of(extent, widest, m->strip_lanes / STRIP_LINES);
}

void dc_kernel_lanes(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_lanes);
  dc_kernel_settle(k);
}
