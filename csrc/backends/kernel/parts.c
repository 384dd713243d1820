/* Parts of sums: what a team adds to a row of memory in each iteration of a sequential loop stays in registers until that ends.
 *
 *     parallel x team { T[x] = 0 }
 *     sequential a { parallel x team { T[x] = T[x] + X[n*a + x] } }
 *
 * becomes
 *
 *     parallel x team turns(4) { part[x] = 0 }
 *     sequential a { parallel x team turns(4) { part[x] = part[x] + X[n*a + x] } }
 *     parallel x team turns(4) { T[x] = part[x] }
 *
 * All loops deal an element to the same thread. */
#include "backends/kernel/kernel.h"

typedef struct {
  dc_kernel *k;
  dc_loop *begin, *rows; /* what sets the elements, and the sequential loop, ... */
  dc_loop *last;         /* ... or the innermost one of its map */
  const dc_loop *like;   /* a loop inside that adds to them */
  /* while looking */
  const dc_write *of; /* in `begin`: the element at hand */
  const dc_loop *at;
  dc_ex held;
  bool fails;
} search;

static dc_ex moved_to(const search *s, dc_ex x, const dc_loop *l) {
  const dc_param from[] = {s->begin->param};
  const dc_ex to[] = {dc_ex_par(s->k->pool, l->param)};
  return dc_ex_subst(s->k->pool, x, from, to, 1);
}

static bool is_at(const search *s, dc_ex access, const dc_loop *l) { return access == moved_to(s, s->of->element, l); }

/* ---- may they stay in registers ---- */

static bool sets_elements(const search *s) {
  const dc_kernel *k = s->k;
  if (!dc_loop_may_take_turns(s->k, s->begin)) return false;
  for (uint32_t j = 0; j < s->begin->body.n; j++) {
    const dc_write *w = s->begin->body.v[j].write;
    const dc_dtype type = (dc_dtype)dc_cont(k->graph, w->out)->dtype;
    dc_ex factor, rest;
    int64_t step;
    bool plain = !dc_kernel_is_register(k, w->out) && !w->wcr && !w->guard && dc_ex_node(k->pool, w->element)->nargs == 1;
    if (!plain || type != dc_dtype_compute(type)) return false; /* a register holds more than what is rounded when it is stored */
    if (dc_ex_uses_op(k->pool, w->value, DC_EX_READ) || dc_ex_uses_op(k->pool, w->value, DC_EX_PARAM)) return false;
    if (!dc_ix_split(k->pool, dc_read_address(k, w->element), s->begin->param, &factor, &rest)) return false;
    if (!dc_ex_is_int(k->pool, factor, &step) || !step || dc_ex_uses_op(k->pool, rest, DC_EX_READ)) return false;
  }
  return true;
}

static bool is_inside_of(const search *s, const dc_loop *l) {
  if (l->parent != s->last || !dc_loop_may_take_turns(s->k, l)) return false;
  return dc_loop_extent(s->k, l) == dc_loop_extent(s->k, s->begin) && (!s->like || s->like->pack == l->pack);
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex read) {
  search *s = context;
  if (!(s->k->bits[dc_ex_node(pool, read)->ref] & s->k->bits[s->of->out])) return;
  if (!is_inside_of(s, s->at) || !is_at(s, read, s->at)) s->fails = true;
  else s->like = s->at;
}

/* Is what the kernel does with the element all done by the loops inside? */
static bool stays(search *s, const dc_write *of) {
  s->of = of;
  for (uint32_t j = 0; j < s->k->writes.n && !s->fails; j++) {
    const dc_write *w = s->k->writes.v[j];
    if (w == of) continue;
    s->at = w->parent;
    dc_kernel_each_read(s->k, w->value, look_at_read, s);
    dc_kernel_each_read(s->k, w->guard, look_at_read, s);
    dc_kernel_each_read(s->k, dc_read_address(s->k, w->element), look_at_read, s);
    if (!(s->k->bits[w->out] & s->k->bits[of->out])) continue;
    if (w->wcr || w->guard || w->accumulator || !is_inside_of(s, w->parent) || !is_at(s, w->element, w->parent)) s->fails = true;
    else s->like = w->parent;
  }
  return !s->fails && s->like;
}

static bool fits(search *s) {
  uint32_t words = 0;
  for (uint32_t j = 0; j < s->begin->body.n; j++) {
    const dc_write *w = s->begin->body.v[j].write;
    if (!stays(s, w)) return false;
    words += dc_loop_row_words(s->k, s->like, (dc_dtype)dc_cont(s->k->graph, w->out)->dtype);
    if (s->like->pack && !dc_read_is_packed(s->k, s->begin, w->element, s->like->pack)) return false;
  }
  return words && words <= dc_kernel_row_words(s->k);
}

/* ---- the change ---- */

static dc_ex replaced(void *context, dc_pool *pool, dc_ex leaf) {
  const search *s = context;
  return dc_ex_node(pool, leaf)->op == DC_EX_READ && is_at(s, leaf, s->at) ? s->held : leaf;
}

static dc_ex held_at(const search *s, dc_cid c, const dc_loop *l) {
  dc_ex at = dc_ex_par(s->k->pool, l->param);
  return dc_ex_read(s->k->pool, (dc_dtype)dc_cont(s->k->graph, c)->dtype, c, &at, 1);
}

static void hold_inside(search *s, dc_cid c) {
  dc_kernel *k = s->k;
  for (uint32_t j = 0; j < s->last->body.n; j++) {
    dc_loop *l = s->last->body.v[j].loop;
    if (!l || !is_inside_of(s, l)) continue;
    s->at = l, s->held = held_at(s, c, l);
    for (uint32_t i = 0; i < l->body.n; i++) {
      dc_write *w = l->body.v[i].write;
      dc_ex value = dc_ex_rewrite(k->pool, w->value, replaced, s), guard = w->guard ? dc_ex_rewrite(k->pool, w->guard, replaced, s) : 0;
      bool target = is_at(s, w->element, l);
      if (value != w->value || guard != w->guard || target) l->turns = dc_loop_row_turns(k, l);
      w->value = value, w->guard = guard;
      if (target) w->out = c, w->element = s->held;
    }
  }
}

/* The loop behind the rows that writes what has become of the elements. */
static dc_loop *new_end(dc_kernel *k, const dc_loop *begin) {
  dc_loop *end = dc_loop_like(k, begin, begin->begin, begin->end);
  end->schedule = DC_MAP_PARALLEL, end->is_entry = end->on_team = true, end->pack = begin->pack, end->turns = begin->turns;
  return end;
}

static void hold(search *s) {
  dc_kernel *k = s->k;
  s->begin->pack = s->like->pack, s->begin->turns = dc_loop_row_turns(k, s->begin);
  dc_loop *end = new_end(k, s->begin);
  for (uint32_t j = 0; j < s->begin->body.n; j++) {
    dc_write *w = s->begin->body.v[j].write, set = *w;
    dc_cid c = dc_kernel_add_register(k, "part", (dc_dtype)dc_cont(k->graph, w->out)->dtype, 1, &s->begin->end);
    k->own.v[c] = true, s->of = &set;
    hold_inside(s, c);
    dc_kernel_add_write(k, end, end->body.n, moved_to(s, set.element, end), held_at(s, c, end));
    w->out = c, w->element = held_at(s, c, s->begin);
  }
  dc_kernel_add_beside(k, s->rows, true, end);
  dc_kernel_settle(k);
}

/* ---- the pass ---- */

static void visit(dc_kernel *k, dc_loop *body) {
  for (uint32_t j = 0; j < body->body.n; j++)
    for (uint32_t i = j + 1; i < body->body.n; i++) {
      search s = {.k = k, .begin = body->body.v[j].loop, .rows = body->body.v[i].loop};
      bool row = s.begin && s.rows && s.rows->schedule == DC_MAP_SEQUENTIAL && s.rows->is_entry && !s.begin->turns;
      if (row) s.last = dc_loop_last_of_map(s.rows);
      if (row && sets_elements(&s) && fits(&s)) hold(&s);
    }
}

void dc_kernel_parts(dc_kernel *k) {
  if (k->grid.team == 1 || k->grid.across) return;
  dc_kernel_each_loop(k, k->root, visit);
  visit(k, k->root);
}
