/* Kernels as functions of a device, and the loops that its threads share.
 *
 * The loops of a grid are flattened; a thread takes their iterations in steps of all threads that there are, so that
 * any number of blocks does. */
#include <stdlib.h>

#include "backends/printer/printer.h"

enum { MOST_BLOCKS = 1 << 20 };

/* ---- the grid ---- */

static const dc_loop *last_of(const dc_loop *l) {
  while (dc_loop_only(l) && dc_loop_only(l)->on_grid) l = dc_loop_only(l);
  return l;
}

static dc_ex extent_of(dc_printer *p, const dc_loop *l) { return dc_ix_extent(p->pool, l->begin, l->end, dc_ex_int(p->pool, l->step)); }

static dc_ex iterations(dc_printer *p, const dc_loop *l) {
  dc_ex all = dc_ex_int(p->pool, 1);
  for (const dc_loop *at = l; at && at->on_grid; at = dc_loop_only(at)) all = dc_ix_mul(p->pool, all, extent_of(p, at));
  return all;
}

/* The parameters of the loops from l to `last`, from the number `rest` of an iteration. */
static void put_params(dc_printer *p, const dc_loop *l, const dc_loop *last) {
  for (const dc_loop *at = last; at != l->parent; at = at->parent) {
    const char *begin = dc_print_value(p, at->begin), *of = "rest";
    if (at != l) {
      const char *n = dc_print_value(p, extent_of(p, at));
      dc_print_line(p, "const i64 at%u = (i64)((u64)rest %% (u64)%s);", at->param, n);
      dc_print_line(p, "rest = (i64)((u64)rest / (u64)%s);", n);
      of = dc_arena_printf(p->arena, "at%u", at->param);
    }
    dc_print_line(p, "const i64 j%u = %s + %s * %lld;", at->param, begin, of, (long long)at->step);
  }
}

const dc_loop *dc_print_grid_begin(dc_printer *p, const dc_loop *l, uint32_t *mark) {
  const dc_loop *last = last_of(l);
  const dc_grid *g = &p->k->grid;
  const char *total = dc_print_value(p, iterations(p, l));
  const char *head = "for (i64 at = (i64)blockIdx.x * %u + threadIdx.x; at < %s; at += (i64)gridDim.x * %u)";
  dc_print_open(p, dc_arena_printf(p->arena, head, g->block, total, g->block));
  *mark = dc_print_scope(p);
  dc_print_line(p, "i64 rest = at;");
  put_params(p, l, last);
  return last;
}

void dc_print_grid_end(dc_printer *p, uint32_t mark) {
  dc_print_scope_end(p, mark);
  dc_print_close(p);
}

/* ---- functions ---- */

static void put_parameters(dc_printer *p, dc_text *out) {
  const char *comma = "";
  for (dc_cid c = 1; c <= p->k->n_buffers; c++, comma = ", ") {
    const char *written = p->k->root->writes & ((uint64_t)1 << (c < 63 ? c : 63)) ? "" : "const ";
    bool alone = !dc_print_may_overlap(p, c);
    dc_text_printf(out, "%s%s%s *%s%sb%u", comma, written, p->dialect->types[dc_cont(p->k->graph, c)->dtype].storage, alone ? p->dialect->no_alias : "", alone ? " " : "", c);
  }
  for (dc_sym s = 1; s < p->pool->symbols.n; s++)
    if (p->used_symbols[s]) dc_text_printf(out, "%si64 s%u", comma, s), comma = ", ";
  if (p->flagged) dc_text_printf(out, "%si64 *error", comma);
}

static void fill(dc_printer *p, dc_launches *out) {
  for (dc_sym s = 1; s < p->pool->symbols.n; s++)
    if (p->used_symbols[s]) DC_PUSH(&out->arena, &out->symbols, s);
  const dc_loop *l = dc_loop_only(p->k->root);
  dc_ex total = l && l->on_grid ? iterations(p, l) : dc_ex_int(p->pool, 1), at_once = dc_ex_int(p->pool, p->k->grid.block / p->k->grid.team);
  dc_ex blocks = dc_ix_div(p->pool, dc_ix_add(p->pool, total, dc_ix_sub(p->pool, at_once, dc_ex_int(p->pool, 1))), at_once);
  dc_launch_add(out, "", p->k->grid.block, p->pool, dc_ix_min(p->pool, blocks, dc_ex_int(p->pool, MOST_BLOCKS)), 0);
  out->checks = p->flagged;
}

void dc_print_launched(dc_printer *p, const char *body, dc_launches *launches, dc_text *out) {
  dc_text_printf(out, "%s __launch_bounds__(%u) %s(", p->dialect->function, p->k->grid.block, p->name);
  put_parameters(p, out);
  dc_text_puts(out, ") {\n");
  if (p->flagged) dc_text_puts(out, "  i64 bad = 0;\n");
  dc_text_puts(out, body);
  if (p->flagged) dc_text_puts(out, "  if (bad) atomicCAS((u64 *)error, (u64)0, (u64)bad);\n");
  dc_text_puts(out, "}\n");
  if (launches) fill(p, launches);
}
