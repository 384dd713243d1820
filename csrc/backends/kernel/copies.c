/* Loops that only clear or copy a run of memory. */
#include <math.h>

#include "backends/kernel/kernel.h"

enum { SHORT_RUN = 32 }; /* elements: a call costs more than a loop saves */

/* Does the READ walk memory element by element as p advances? */
static bool is_run(const dc_kernel *k, dc_ex read, dc_param p) {
  dc_ex step, rest;
  return !dc_read_check(k, read) && !dc_kernel_is_register(k, dc_ex_node(k->pool, read)->ref) &&
         dc_ix_split(k->pool, dc_read_address(k, read), p, &step, &rest) && dc_kernel_is_number(k, step, 1);
}

static bool is_zero(const dc_kernel *k, dc_ex value) {
  double constant;
  return dc_ex_is_const(k->pool, value, &constant) && constant == 0 && !signbit(constant);
}

static bool is_copy(const dc_kernel *k, const dc_write *w, dc_param p) {
  dc_exnode value = *dc_ex_node(k->pool, w->value);
  return value.op == DC_EX_READ && value.dtype == dc_cont(k->graph, w->out)->dtype && is_run(k, w->value, p) &&
         !(k->bits[value.ref] & k->bits[w->out]);
}

static void find_copy(dc_kernel *k, dc_loop *l) {
  const dc_write *w = dc_loop_single_write(l);
  int64_t extent = dc_loop_extent(k, l);
  bool whole = w && !w->guard && !w->wcr && l->step == 1 && !dc_loop_strip(l) && !l->product && !l->joined;
  if (!whole || (extent >= 0 && extent < SHORT_RUN) || !is_run(k, w->element, l->param)) return;
  l->memory_run = is_zero(k, w->value) ? DC_RUN_CLEAR : is_copy(k, w, l->param) ? DC_RUN_COPY : DC_RUN_NONE;
}

void dc_kernel_copies(dc_kernel *k) { dc_kernel_each_loop(k, k->root, find_copy); }
