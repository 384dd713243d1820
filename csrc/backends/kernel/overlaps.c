/* Overlaps: a short loop whose iterations no number of whole vectors makes up ends with one that begins before the last one's
 * end.  What it computes again is the same; the compiler would run the rest one by one, at the price of several vectors.
 *
 *     parallel i in 0:110 vector overlaps(16)   runs 0:16, 16:32, ..., 80:96 and 94:110.
 *
 * Sums in lanes end so too, and leave out the terms that they have had. */
#include "backends/kernel/kernel.h"

enum { LONGEST = 512, MOST_STEP = 4, MOST_READS = 64, LANE_BYTES = 4, LEAST_BYTES = 16 };

typedef struct {
  dc_kernel *k;
  const dc_loop *l;
  uint32_t at;
  bool again, wide; /* another run of an iteration finds what this one found; it computes in 4 bytes or more */
  int64_t bytes;    /* of the narrowest elements */
  DC_VEC(dc_ex) steps; /* reads of elements that lie apart */
} search;

/* Is the element written before in the same iteration? */
static bool is_written_before(const search *s, dc_ex element) {
  bool found = false;
  for (uint32_t j = 0; j < s->at && !found; j++) {
    const dc_write *w = s->l->body.v[j].write;
    found = w->element == element && !w->guard;
  }
  return found;
}

/* How far apart elements of neighbouring iterations lie; -1: unknown. */
static int64_t step_of(const search *s, dc_ex element) {
  dc_ex step, rest;
  int64_t n = -1;
  bool linear = dc_ix_split(s->k->pool, dc_read_address(s->k, element), s->l->param, &step, &rest);
  return linear && dc_ex_is_int(s->k->pool, step, &n) && n <= MOST_STEP ? n : -1;
}

static bool is_read_beside(const search *s, dc_ex read, int64_t by) {
  const dc_pool *pool = s->k->pool;
  bool found = false;
  for (uint32_t j = 0; j < s->steps.n && !found; j++) {
    dc_ex other = s->steps.v[j];
    int64_t apart;
    found = dc_ex_node(pool, other)->ref == dc_ex_node(pool, read)->ref && step_of(s, other) == step_of(s, read) &&
            dc_ex_is_int(pool, dc_ix_sub(s->k->pool, dc_read_address(s->k, other), dc_read_address(s->k, read)), &apart) && apart == by;
  }
  return found;
}

/* Of elements that lie apart all that lie between are read too, in whole runs: else the compiler reads more than the body uses, which the
 * last vector must not. */
static bool reads_whole_runs(const search *s) {
  bool whole = s->steps.n <= MOST_READS;
  for (uint32_t j = 0; j < s->steps.n && whole; j++) {
    int64_t step = step_of(s, s->steps.v[j]), first = 0, behind = 0;
    while (first > -(int64_t)s->steps.n && is_read_beside(s, s->steps.v[j], first - 1)) first--;
    while (is_read_beside(s, s->steps.v[j], behind + 1)) behind++;
    whole = (behind - first + 1) % step == 0;
  }
  return whole;
}

static void look_at_place(search *s, dc_ex element) {
  dc_kernel *k = s->k;
  if (!dc_ex_uses_param(k->pool, element, s->l->param)) return;
  s->again = s->again && step_of(s, element) >= 0;
  int64_t bytes = dc_dtype_bytes((dc_dtype)dc_cont(k->graph, dc_ex_node(k->pool, element)->ref)->dtype);
  if (bytes < s->bytes) s->bytes = bytes;
  s->wide |= bytes >= LANE_BYTES;
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex read) {
  search *s = context;
  bool changed = s->k->bits[dc_ex_node(pool, read)->ref] & s->l->writes;
  s->again = s->again && (!changed || is_written_before(s, read));
  look_at_place(s, read);
  if (dc_ex_uses_param(pool, read, s->l->param) && step_of(s, read) > 1) DC_PUSH(s->k->arena, &s->steps, read);
}

static void look_at_write(search *s, const dc_write *w) {
  if (!w) { /* the sum of a product */
    s->again = false;
    return;
  }
  bool sums = w->accumulator && w->wcr && s->l->schedule == DC_MAP_REDUCE; /* lanes that run again add nothing */
  s->again = s->again && (sums || (!w->wcr && !w->accumulator && !w->meets.n));
  if (!sums) look_at_place(s, w->element);
  dc_kernel_each_read(s->k, w->value, look_at_read, s);
  dc_kernel_each_read(s->k, w->guard, look_at_read, s);
  dc_kernel_each_read(s->k, dc_read_address(s->k, w->element), look_at_read, s);
}

static search look_at(dc_kernel *k, const dc_loop *l) {
  search s = {.k = k, .l = l, .again = true, .bytes = LANE_BYTES};
  for (s.at = 0; s.at < l->body.n; s.at++) look_at_write(&s, l->body.v[s.at].write);
  return s;
}

/* Threads take parts of it. */
static bool is_shared(const dc_loop *l) {
  for (const dc_loop *at = l; at; at = at->parent)
    if (at->threads) return at->threads->sliced || l->depth < at->depth + at->threads->n;
  return false;
}

/* Of sums in lanes, what the fewest of them leave. */
static void find_overlap_of_sums(dc_kernel *k, dc_loop *l) {
  int64_t n = dc_loop_extent(k, l);
  if (!l->sum_lanes || l->sum_levels || l->spread || l->terms || n < DC_FEW_LANES || n % DC_FEW_LANES == 0) return;
  const search s = look_at(k, l);
  if (s.again && !s.steps.n && s.bytes == LANE_BYTES) l->overlaps = DC_FEW_LANES;
}

static void find_overlap(dc_kernel *k, dc_loop *l) {
  int64_t n = dc_loop_extent(k, l);
  bool plain = l->is_vector && l->step == 1 && !l->memory_run && n >= 0 && n <= LONGEST && !is_shared(l);
  if (plain && l->schedule == DC_MAP_REDUCE) find_overlap_of_sums(k, l);
  if (!plain || l->schedule != DC_MAP_PARALLEL || l->collides) return;
  const search s = look_at(k, l);
  int64_t lanes = k->graph->machine.vector_bytes / s.bytes;
  while (lanes > n) lanes /= 2;
  bool whole = lanes < 2 || n % lanes % (lanes / 2) == 0; /* half a vector takes a rest of that length */
  if (s.again && s.wide && !whole && reads_whole_runs(&s) && lanes * s.bytes >= LEAST_BYTES) l->overlaps = (uint32_t)lanes;
}

void dc_kernel_overlaps(dc_kernel *k) { dc_kernel_each_loop(k, k->root, find_overlap); }
