/* Loops of reductions that never meet in one element become parallel loops around the reduction: threads may share them,
 * and what the rest combines into stays in place, where a register can keep it. */
#include "backends/kernel/kernel.h"

/* Does every element that the map of `entry` leaves in memory, or combines into, belong to one iteration of l alone? */
static bool separates(const dc_kernel *k, const dc_loop *entry, const dc_loop *l) {
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    bool memory = !dc_kernel_is_register(k, w->out);
    if (!dc_loop_is_inside(w->parent, entry)) continue;
    if (w->wcr && (memory || dc_write_reduction(w) == entry) && dc_write_meets(w, l)) return false;
    if (!w->wcr && memory && !dc_ex_uses_param(k->pool, dc_read_address(k, w->element), l->param)) return false;
  }
  return true;
}

static bool is_alone(dc_kernel *k, const dc_loop *l, const dc_loop *entry) {
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  return begin.level < entry->depth && end.level < entry->depth && begin.safe && end.safe && !((begin.reads | end.reads) & entry->writes);
}

static void replace_item(dc_loop *parent, const dc_loop *from, dc_loop *to) {
  for (uint32_t j = 0; j < parent->body.n; j++)
    if (parent->body.v[j].loop == from) parent->body.v[j].loop = to;
}

static void move_outward(dc_kernel *k, dc_loop *entry) {
  DC_VEC(dc_loop *) out = {0}, in = {0};
  if (entry->schedule != DC_MAP_REDUCE || !entry->is_entry) return;
  dc_loop *last = entry;
  for (dc_loop *l = entry; l; l = dc_loop_only(l) && !dc_loop_only(l)->is_entry ? dc_loop_only(l) : NULL) {
    last = l;
    if (is_alone(k, l, entry) && separates(k, entry, l)) DC_PUSH(k->arena, &out, l);
    else DC_PUSH(k->arena, &in, l);
  }
  if (!in.n && out.n) DC_PUSH(k->arena, &in, out.v[--out.n]); /* a reduction of one term sets its element first, too */
  if (!out.n) return;
  dc_loop *parent = entry->parent, body = *last;
  dc_loop *chain = NULL;
  for (uint32_t j = in.n; j-- > 0;) {
    dc_loop *l = in.v[j];
    if (chain) {
      l->body.v = NULL, l->body.n = l->body.cap = 0;
      DC_PUSH(k->arena, &l->body, ((dc_item){.loop = chain}));
    } else {
      l->body.v = body.body.v, l->body.n = body.body.n, l->body.cap = body.body.cap;
    }
    l->is_entry = j == 0;
    chain = l;
  }
  for (uint32_t j = out.n; j-- > 0;) {
    dc_loop *l = out.v[j];
    l->body.v = NULL, l->body.n = l->body.cap = 0;
    DC_PUSH(k->arena, &l->body, ((dc_item){.loop = chain}));
    l->is_entry = j == 0, l->schedule = DC_MAP_PARALLEL;
    chain = l;
  }
  replace_item(parent, entry, chain);
  dc_kernel_settle(k);
}

void dc_kernel_outward(dc_kernel *k) { dc_kernel_each_loop(k, k->root, move_outward); }
