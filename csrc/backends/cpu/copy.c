/* A loop that only clears or copies a run of memory is a call of the C library, which knows when stores should pass
 * by the caches.  The C compiler is told to make no such calls of its own (compiler.c). */
#include "backends/cpu/emit.h"

#include <math.h>

enum { SHORT_RUN = 32 }; /* elements: a call costs more than a loop saves */

/* Does the READ walk memory element by element as p advances? */
static bool is_run(emitter *e, dc_ex read, dc_param p) {
  fact f = *dc_cpu_fact(e, read);
  dc_ex step, rest;
  int64_t one;
  return !f.check && dc_cont(e->graph, dc_ex_node(e->pool, read)->ref)->storage == DC_STORE_HEAP &&
         dc_ix_split(e->pool, f.address, p, &step, &rest) && dc_ex_is_int(e->pool, step, &one) && one == 1;
}

static bool is_zero(emitter *e, dc_ex value) {
  double constant;
  return dc_ex_is_const(e->pool, value, &constant) && constant == 0 && !signbit(constant);
}

static bool is_copy(emitter *e, const write_item *w, dc_param p) {
  dc_exnode value = *dc_ex_node(e->pool, w->value);
  return value.op == DC_EX_READ && value.dtype == dc_cont(e->graph, w->out)->dtype && is_run(e, w->value, p) &&
         !(dc_cpu_container_bits(e, value.ref) & dc_cpu_container_bits(e, w->out));
}

bool dc_cpu_emit_copy(emitter *e, const loop *l, const char *begin, const char *end) {
  const write_item *w = l->body.n == 1 ? l->body.v[0].write : NULL;
  int64_t extent = dc_cpu_extent(e, l);
  if (!w || l->step != 1 || e->lane || w->guard || w->wcr || (extent >= 0 && extent < SHORT_RUN) || !is_run(e, w->element, l->param)) return false;
  bool clears = is_zero(e, w->value);
  if (!clears && !is_copy(e, w, l->param)) return false;
  dc_cpu_line(e, "if (%s < %s) {", begin, end);
  uint32_t mark = dc_cpu_scope_open(e);
  e->indent++;
  dc_cpu_line(e, "const i64 j%u = %s;", l->param, begin);
  const char *to = dc_cpu_element(e, w->out, dc_cpu_fact(e, w->element)->address);
  const char *from = clears ? NULL : dc_cpu_element(e, dc_ex_node(e->pool, w->value)->ref, dc_cpu_fact(e, w->value)->address);
  if (clears) dc_cpu_line(e, "__builtin_memset(&%s, 0, (%s - j%u) * sizeof %s);", to, end, l->param, to);
  else dc_cpu_line(e, "__builtin_memcpy(&%s, &%s, (%s - j%u) * sizeof %s);", to, from, end, l->param, to);
  e->indent--;
  dc_cpu_scope_close(e, mark);
  dc_cpu_line(e, "}");
  return true;
}
