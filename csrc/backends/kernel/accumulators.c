/* Accumulators: elements that a reduction keeps in registers while it runs; and collisions: loops of which several
 * iterations may write one element in memory. */
#include "backends/kernel/kernel.h"

/* Is the element read, or written otherwise, anywhere inside the loop? */
static bool is_private(dc_kernel *k, const dc_loop *home, const dc_write *w) {
  uint64_t bits = k->bits[w->out];
  for (uint32_t j = 0; j < home->body.n; j++) {
    const dc_write *other = home->body.v[j].write;
    if (!other) {
      if (!is_private(k, home->body.v[j].loop, w)) return false;
      continue;
    }
    bool same = other->element == w->element && other->wcr == w->wcr;
    if (!same && (k->bits[other->out] & bits)) return false;
    uint64_t reads = dc_kernel_dependence(k, other->value).reads;
    if (other->guard) reads |= dc_kernel_dependence(k, other->guard).reads;
    if (reads & bits) return false;
  }
  return true;
}

static bool is_invariant(const dc_kernel *k, const dc_loop *home, const dc_write *w) {
  for (const dc_loop *l = w->parent; l != home->parent; l = l->parent)
    if (dc_ex_uses_param(k->pool, dc_read_address(k, w->element), l->param)) return false;
  return true;
}

void dc_kernel_accumulators(dc_kernel *k) {
  for (uint32_t j = 0; j < k->writes.n; j++) {
    dc_write *w = k->writes.v[j];
    dc_loop *home = w->wcr && !w->in_product ? dc_write_reduction(w) : NULL;
    if (!home || dc_read_check(k, w->element) || !is_invariant(k, home, w) || !is_private(k, home, w)) continue;
    for (uint32_t a = 0; a < k->accumulators.n && !w->accumulator; a++)
      if (k->accumulators.v[a].home == home && k->accumulators.v[a].first->element == w->element) w->accumulator = a + 1;
    if (w->accumulator) continue;
    dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(k->graph, w->out)->dtype);
    DC_PUSH(k->arena, &k->accumulators, ((dc_accumulator){.first = w, .home = home, .type = type}));
    w->accumulator = k->accumulators.n;
  }
}

void dc_kernel_collisions(dc_kernel *k) {
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    if (w->accumulator || w->in_product || dc_kernel_is_register(k, w->out)) continue;
    for (uint32_t p = 0; p < w->meets.n; p++) k->loop_of.v[w->meets.v[p]]->collides = true;
  }
}
