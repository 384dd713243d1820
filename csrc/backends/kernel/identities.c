/* Identities: what a reduction adds to a long row of memory in each of its iterations is set to the identity before it, by a loop
 * that a team may share, and the reduction is a sequential loop.
 *
 *     reduce a { parallel x { T[x] sum= X[n*a + x] } }
 *
 * becomes
 *
 *     parallel x { T[x] = 0 }
 *     sequential a { parallel x { T[x] = T[x] + X[n*a + x] } }
 *
 * One thread would set all elements otherwise. */
#include "backends/kernel/kernel.h"

enum { LONG_ROW = 1024 };

typedef struct {
  dc_kernel *k;
  dc_loop *reduction, *last; /* its first loop and its innermost one */
  const dc_write *w; /* the sum at hand */
  bool fails, any;
} search;

static void look_at_read(void *context, const dc_pool *pool, dc_ex read) {
  search *s = context;
  if (s->k->bits[dc_ex_node(pool, read)->ref] & s->k->bits[s->w->out]) s->fails = true;
}

/* Of a loop around the sum's element: an iteration of the reduction has one for each of its own. */
static bool is_row(const search *s, const dc_loop *l) {
  dc_kernel *k = s->k;
  return l->parent == s->last && l->is_entry && l->schedule == DC_MAP_PARALLEL && !dc_loop_has_loops(l) && l->step == 1 &&
         dc_kernel_is_number(k, l->begin, 0) && dc_loop_extent(k, l) >= LONG_ROW;
}

static bool stays_in_place(const search *s, const dc_write *w) {
  dc_ex factor, rest, address = dc_read_address(s->k, w->element);
  int64_t step;
  for (const dc_loop *l = s->last; l != s->reduction->parent; l = l->parent)
    if (dc_ex_uses_param(s->k->pool, address, l->param)) return false;
  if (dc_ex_uses_op(s->k->pool, address, DC_EX_READ)) return false;
  return dc_ix_split(s->k->pool, address, w->parent->param, &factor, &rest) && dc_ex_is_int(s->k->pool, factor, &step) && step;
}

/* Nothing else of the reduction sees the elements. */
static bool is_apart(search *s, const dc_write *w) {
  s->w = w, s->fails = false;
  for (uint32_t j = 0; j < s->k->writes.n; j++) {
    const dc_write *other = s->k->writes.v[j];
    if (!dc_loop_is_inside(other->parent, s->reduction)) continue;
    if (other != w && (s->k->bits[other->out] & s->k->bits[w->out])) return false;
    dc_kernel_each_read(s->k, other->value, look_at_read, s);
    dc_kernel_each_read(s->k, other->guard, look_at_read, s);
    dc_kernel_each_read(s->k, dc_read_address(s->k, other->element), look_at_read, s);
  }
  return !s->fails;
}

static bool is_sum_of(const search *s, const dc_write *w) { return w->wcr && dc_write_reduction(w) == s->reduction; }

static bool may_be_set_before(search *s) {
  for (uint32_t j = 0; j < s->k->writes.n; j++) {
    const dc_write *w = s->k->writes.v[j];
    if (!is_sum_of(s, w)) continue;
    bool plain = !dc_kernel_is_register(s->k, w->out) && !w->guard && !dc_read_check(s->k, w->element);
    if (!plain || !dc_kernel_is_true(s->k, w->inside) || !is_row(s, w->parent) || !stays_in_place(s, w) || !is_apart(s, w)) return false;
    s->any = true;
  }
  return s->any;
}

/* The loop that sets what the sums of a row begin with; each of them reads what is there. */
static dc_loop *take_identities(search *s, dc_loop *row) {
  dc_kernel *k = s->k;
  dc_loop *made = NULL;
  for (uint32_t j = 0; j < row->body.n; j++) {
    dc_write *w = row->body.v[j].write;
    if (!is_sum_of(s, w)) continue;
    if (!made) {
      made = dc_loop_like(k, row, row->begin, row->end);
      made->schedule = DC_MAP_PARALLEL, made->is_entry = true;
    }
    const dc_dtype type = (dc_dtype)dc_cont(k->graph, w->out)->dtype, compute = dc_dtype_compute(type);
    const dc_param from[] = {row->param};
    const dc_ex to[] = {dc_ex_par(k->pool, made->param)};
    dc_ex identity = dc_ex_const(k->pool, type, dc_wcr_identity((dc_wcr)w->wcr, type));
    dc_kernel_add_write(k, made, made->body.n, dc_ex_subst(k->pool, w->element, from, to, 1), identity);
    dc_ex before = dc_ex_cast(k->pool, compute, w->element);
    w->value = dc_ex_prim2(k->pool, dc_wcr_prim((dc_wcr)w->wcr), before, dc_ex_cast(k->pool, compute, w->value));
    w->wcr = DC_WCR_NONE, w->inside = 0, w->meets.n = 0;
  }
  return made;
}

static void visit(dc_kernel *k, dc_loop *l) {
  search s = {.k = k, .reduction = l, .last = dc_loop_last_of_map(l)};
  bool outermost = l->parent == k->root || l->parent->schedule == DC_MAP_PARALLEL;
  if (l->schedule != DC_MAP_REDUCE || !l->is_entry || !outermost) return;
  if (!may_be_set_before(&s)) return;
  for (uint32_t j = 0; j < s.last->body.n; j++) {
    dc_loop *made = s.last->body.v[j].loop ? take_identities(&s, s.last->body.v[j].loop) : NULL;
    if (made) dc_kernel_add_beside(k, l, false, made);
  }
  for (dc_loop *at = s.last; at != l->parent; at = at->parent) at->schedule = DC_MAP_SEQUENTIAL;
  dc_kernel_settle(k);
}

void dc_kernel_identities(dc_kernel *k) { dc_kernel_each_loop(k, k->root, visit); }
