/* Narrow: what a short loop writes in fewer bytes than it computes in is written by a loop of its own.
 *
 *     parallel i in 0:56 { Y[i] = X[i] * 2.0f  P[i] = u8(N[i]) }   becomes
 *     parallel i in 0:56 { Y[i] = X[i] * 2.0f  wide[i] = N[i] }  parallel i in 0:56 { P[i] = u8(wide[i]) }
 *
 * A compiler lets vectors run as many iterations at once as there are of the narrowest elements in one, and the rest one by
 * one: of the loop that is split so, all that it computes. */
#include "backends/kernel/kernel.h"

enum { LEAST_ITERATIONS = 8, MOST_ITERATIONS = 256, WIDE_BYTES = 4 };

static bool is_wide_write(const dc_kernel *k, const dc_write *w) {
  return dc_dtype_bytes((dc_dtype)dc_cont(k->graph, w->out)->dtype) >= WIDE_BYTES;
}

/* A cast to fewer bytes, into memory that nothing else in the body uses. */
static bool is_narrow(dc_kernel *k, const dc_loop *l, const dc_write *w) {
  dc_exnode value = *dc_ex_node(k->pool, w->value);
  bool plain = !w->wcr && !w->guard && !w->meets.n && !dc_read_check(k, w->element) && !dc_kernel_is_register(k, w->out);
  if (!plain || is_wide_write(k, w) || value.op != DC_EX_CAST) return false;
  if (dc_dtype_bytes(dc_ex_dtype(k->pool, dc_ex_arg(k->pool, w->value, 0))) < WIDE_BYTES) return false;
  bool alone = true;
  for (uint32_t j = 0; j < l->body.n && alone; j++) {
    const dc_write *other = l->body.v[j].write;
    uint64_t reads = dc_kernel_dependence(k, other->value).reads | (other->guard ? dc_kernel_dependence(k, other->guard).reads : 0);
    alone = !(reads & k->bits[w->out]) && (other == w || !(k->bits[other->out] & k->bits[w->out]));
  }
  return alone;
}

static void write_behind(dc_kernel *k, dc_loop *l, dc_write *w) {
  dc_ex wide_value = dc_ex_arg(k->pool, w->value, 0), at = dc_ex_par(k->pool, l->param);
  dc_dtype type = dc_ex_dtype(k->pool, wide_value);
  dc_cid wide = dc_kernel_add_register(k, "wide", type, 1, &l->end);
  dc_loop *behind = dc_loop_like(k, l, l->begin, l->end);
  behind->is_entry = true, behind->parent = l->parent;
  dc_ex there = dc_ex_par(k->pool, behind->param);
  dc_ex element = dc_ex_subst(k->pool, w->element, &l->param, &there, 1);
  dc_ex value = dc_ex_cast(k->pool, dc_ex_dtype(k->pool, w->value), dc_ex_read(k->pool, type, wide, &there, 1));
  w->element = dc_ex_read(k->pool, type, wide, &at, 1);
  w->out = wide, w->value = wide_value;
  dc_kernel_add_write(k, behind, 0, element, value);
  dc_kernel_add_beside(k, l, true, behind);
}

static void find_narrow(dc_kernel *k, dc_loop *l) {
  int64_t n = dc_loop_extent(k, l);
  bool from_0 = dc_kernel_is_number(k, l->begin, 0) && l->step == 1, wide = false;
  if (l->schedule != DC_MAP_PARALLEL || dc_loop_has_loops(l) || !from_0 || n < LEAST_ITERATIONS || n > MOST_ITERATIONS) return;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    wide |= !dc_kernel_is_register(k, w->out) && is_wide_write(k, w);
  }
  for (uint32_t j = 0; j < l->body.n && wide; j++)
    if (is_narrow(k, l, l->body.v[j].write)) write_behind(k, l, l->body.v[j].write);
}

void dc_kernel_narrow(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_narrow);
  dc_kernel_settle(k);
}
