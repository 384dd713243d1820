/* Merging: loops over dimensions that lie one after the other in all accesses become one. */
#include "backends/kernel/kernel.h"

typedef struct {
  dc_kernel *k;
  const dc_loop *outer, *inner;
  bool fails;
} merge_search;

static bool uses_either(const merge_search *s, dc_ex x) {
  return dc_ex_uses_param(s->k->pool, x, s->outer->param) || dc_ex_uses_param(s->k->pool, x, s->inner->param);
}

/* Does an access that moves with either loop move as one loop over both would? */
static void check_read(void *context, const dc_pool *pool, dc_ex read) {
  merge_search *s = context;
  dc_pool *p = s->k->pool;
  dc_ex address = dc_ex_arg(pool, read, 0), by_outer, by_inner, rest;
  if (dc_ex_node(pool, read)->nargs > 1 && uses_either(s, dc_ex_arg(pool, read, 1))) s->fails = true;
  if (s->fails || !uses_either(s, address)) return;
  bool splits = dc_ix_split(p, address, s->outer->param, &by_outer, &rest) && dc_ix_split(p, address, s->inner->param, &by_inner, &rest);
  s->fails = !splits || by_outer != dc_ix_mul(p, by_inner, s->inner->end) || dc_ex_uses_param(p, by_outer, s->inner->param);
}

/* Does x use a parameter elsewhere than in the addresses of READs? */
static bool is_exposed(const merge_search *s, dc_ex x) {
  const dc_exnode node = *dc_ex_node(s->k->pool, x);
  if (!dc_kernel_first(s->k, x)) return false;
  if (node.op == DC_EX_PARAM) return node.ref == s->outer->param || node.ref == s->inner->param;
  for (uint32_t j = 0; j < node.nargs && node.op != DC_EX_READ; j++)
    if (is_exposed(s, dc_ex_arg(s->k->pool, x, j))) return true;
  return false;
}

static void check(merge_search *s, dc_ex x) {
  if (!x || s->fails || !uses_either(s, x)) return;
  dc_kernel_each_read(s->k, x, check_read, s);
  dc_kernel_begin(s->k);
  s->fails = s->fails || is_exposed(s, x);
}

static void check_body(merge_search *s, const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n && !s->fails; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    const dc_write *w = l->body.v[j].write;
    const dc_ex all[] = {inner ? inner->begin : w->element, inner ? inner->end : w->value, w ? w->guard : 0, w ? w->inside : 0};
    for (int k = 0; k < 4; k++) check(s, all[k]);
    if (inner) check_body(s, inner);
  }
}

static bool merges(dc_kernel *k, const dc_loop *outer, const dc_loop *inner) {
  bool whole = outer->step == 1 && inner->step == 1 && dc_kernel_is_number(k, outer->begin, 0) && dc_kernel_is_number(k, inner->begin, 0);
  if (!whole || inner->is_entry || outer->schedule == DC_MAP_SCATTER || dc_ex_uses_param(k->pool, inner->end, outer->param)) return false;
  merge_search s = {.k = k, .outer = outer, .inner = inner};
  check_body(&s, inner);
  return !s.fails;
}

static void rename_meets(dc_write *w, dc_param from, dc_param to) {
  uint32_t n = 0;
  bool there = false;
  for (uint32_t j = 0; j < w->meets.n; j++) {
    dc_param p = w->meets.v[j] == from ? to : w->meets.v[j];
    if (p != to || !there) w->meets.v[n++] = p;
    there = there || p == to;
  }
  w->meets.n = n;
}

/* Writes and ranges under l, with the parameter of the merged loop instead of the two. */
static void rename_body(dc_kernel *k, dc_loop *l, const dc_param *from, const dc_ex *to, dc_param merged) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_loop *inner = l->body.v[j].loop;
    dc_write *w = l->body.v[j].write;
    dc_ex *all[] = {inner ? &inner->begin : &w->element, inner ? &inner->end : &w->value, w ? &w->guard : NULL, w ? &w->inside : NULL};
    for (int i = 0; i < 4; i++)
      if (all[i]) *all[i] = dc_ex_subst(k->pool, *all[i], from, to, 2);
    if (inner) rename_body(k, inner, from, to, merged);
    for (int i = 0; w && i < 2; i++) rename_meets(w, from[i], merged);
  }
}

/* The outer loop does the work of both. */
static void merge(dc_kernel *k, dc_loop *outer, dc_loop *inner) {
  const char *name = dc_name_text(&k->graph->names, k->pool->params.v[inner->param].name);
  dc_ex end = dc_ix_mul(k->pool, outer->end, inner->end);
  dc_param both = dc_param_new(k->pool, name, outer->begin, end, dc_ex_int(k->pool, 1));
  dc_param from[] = {outer->param, inner->param};
  dc_ex to[] = {dc_ex_int(k->pool, 0), dc_ex_par(k->pool, both)};
  rename_body(k, inner, from, to, both);
  DC_PUSH(k->arena, &k->loop_of, outer);
  outer->param = both, outer->end = end;
  outer->body.v = inner->body.v, outer->body.n = inner->body.n, outer->body.cap = inner->body.cap;
}

static void merge_inwards(dc_kernel *k, dc_loop *l) {
  while (l->body.n == 1 && l->body.v[0].loop && merges(k, l, l->body.v[0].loop)) merge(k, l, l->body.v[0].loop);
}

void dc_kernel_merge(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, merge_inwards);
  dc_kernel_settle(k);
}
