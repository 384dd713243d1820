/* The text form of kernels; parse.c reads it back. */
#include <inttypes.h>

#include "backends/kernel/kernel.h"

typedef struct {
  const dc_kernel *k;
  dc_text *out;
} writer;

static void put_ex(writer *w, dc_ex x) { dc_ex_print(w->k->graph, x, w->out); }

static void put_param(writer *w, dc_param p) { dc_name_print(dc_name_text(&w->k->graph->names, w->k->pool->params.v[p].name), w->out); }

static void put_container(writer *w, dc_cid c) {
  const dc_container *k = dc_cont(w->k->graph, c);
  dc_text_puts(w->out, c <= w->k->n_buffers ? "  buffer " : "  register ");
  dc_name_print(dc_cont_name(w->k->graph, c), w->out);
  dc_text_printf(w->out, ": %s[", dc_dtype_name((dc_dtype)k->dtype));
  for (uint32_t d = 0; d < k->rank; d++) {
    if (d) dc_text_puts(w->out, ", ");
    put_ex(w, k->shape[d]);
  }
  dc_text_puts(w->out, "]");
  if (k->alias_of) {
    dc_text_puts(w->out, " view ");
    dc_name_print(dc_cont_name(w->k->graph, k->alias_of), w->out);
  }
  if (dc_kernel_is_own(w->k, c)) dc_text_puts(w->out, " own");
  dc_text_puts(w->out, "\n");
}

static void put_write(writer *w, const dc_write *item) {
  put_ex(w, item->element);
  dc_text_printf(w->out, " %s= ", dc_wcr_name((dc_wcr)item->wcr));
  put_ex(w, item->value);
  if (item->guard) {
    dc_text_puts(w->out, " if ");
    put_ex(w, item->guard);
  }
  if (item->inside) {
    dc_text_puts(w->out, " inside ");
    put_ex(w, item->inside);
  }
  if (item->accumulator) dc_text_printf(w->out, " as %u", item->accumulator - 1);
  for (uint32_t k = 0; k < item->meets.n; k++) {
    dc_text_puts(w->out, k ? ", " : " meets(");
    put_param(w, item->meets.v[k]);
  }
  if (item->meets.n) dc_text_puts(w->out, ")");
}

static void put_annotations(writer *w, const dc_loop *l) {
  const char *separator = " keeps(";
  if (l->product) dc_text_printf(w->out, " product(%" PRId64 ", %" PRId64 ")", l->product->rows, l->product->columns);
  if (l->lanes) dc_text_printf(w->out, " lanes(%u)", l->lanes);
  if (l->usual) dc_text_printf(w->out, " usual(%" PRId64 ")", l->usual);
  for (uint32_t a = 0; a < w->k->accumulators.n; a++) {
    if (w->k->accumulators.v[a].home != l) continue;
    dc_text_printf(w->out, "%s%u", separator, a);
    separator = ", ";
  }
  if (*separator == ',') dc_text_puts(w->out, ")");
  if (l->collides) dc_text_puts(w->out, " collides");
  if (l->is_vector) dc_text_puts(w->out, l->is_ordered ? " vector ordered" : " vector");
  if (l->overlaps) dc_text_printf(w->out, " overlaps(%u)", l->overlaps);
  if (l->sum_lanes || l->sum_levels) dc_text_printf(w->out, " sums(%u, %u)", l->sum_lanes, l->sum_levels);
  if (l->spread) dc_text_printf(w->out, " spread(%u)", l->spread);
  if (l->terms) dc_text_printf(w->out, " terms(%u)", l->terms);
  if (l->memory_run) dc_text_puts(w->out, l->memory_run == DC_RUN_CLEAR ? " clear" : " copy");
  if (l->joined) {
    dc_text_puts(w->out, " joined(");
    put_ex(w, l->joined);
    dc_text_puts(w->out, ")");
  }
  if (l->on_grid) dc_text_puts(w->out, " grid");
  if (l->on_team) dc_text_puts(w->out, " team");
  if (l->pack) dc_text_printf(w->out, " pack(%u)", l->pack);
  if (l->turns) dc_text_printf(w->out, " turns(%u)", l->turns);
  if (l->tile) dc_text_printf(w->out, " tile(%u)", l->tile);
  if (l->threads) {
    dc_text_printf(w->out, " threads(%u, %" PRId64 ", ", l->threads->n, l->threads->block);
    put_ex(w, l->threads->cost);
    dc_text_puts(w->out, l->threads->sliced ? ") sliced" : ")");
  }
}

static void put_body(writer *w, const dc_loop *l, int level);

static void put_loop(writer *w, const dc_loop *l, int level) {
  static const char *const schedules[] = {"parallel ", "sequential ", "reduce ", "scatter "};
  dc_text_puts(w->out, l->is_entry ? schedules[l->schedule] : "also ");
  put_param(w, l->param);
  dc_text_puts(w->out, " in ");
  put_ex(w, l->begin);
  dc_text_puts(w->out, ":");
  put_ex(w, l->end);
  if (l->step != 1) dc_text_printf(w->out, ":%" PRId64, l->step);
  put_annotations(w, l);
  dc_text_puts(w->out, " {\n");
  put_body(w, l, level + 1);
  dc_text_indent(w->out, level);
  dc_text_puts(w->out, "}\n");
}

static void put_body(writer *w, const dc_loop *l, int level) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    dc_text_indent(w->out, level);
    if (l->body.v[k].loop) {
      put_loop(w, l->body.v[k].loop, level);
    } else {
      put_write(w, l->body.v[k].write);
      dc_text_puts(w->out, "\n");
    }
  }
}

void dc_kernel_print(const dc_kernel *kernel, dc_text *out) {
  writer w = {kernel, out};
  const dc_graph *g = kernel->graph;
  dc_text_puts(out, "kernel");
  if (kernel->grid.block) dc_text_printf(out, " grid(%u, %u)", kernel->grid.block, kernel->grid.team);
  if (kernel->grid.across) dc_text_puts(out, " across");
  if (kernel->grid.slices) dc_text_printf(out, " slices(%u)", kernel->grid.slices);
  if (kernel->grid.at_once) dc_text_printf(out, " at_once(%u)", kernel->grid.at_once);
  dc_text_puts(out, " {\n");
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) {
    dc_text_puts(out, "  symbol ");
    dc_name_print(dc_name_text(&g->names, g->pool.symbols.v[s].name), out);
    dc_text_printf(out, " >= %" PRId64 "\n", g->pool.symbols.v[s].min);
  }
  for (dc_cid c = 1; c < g->containers.n; c++) put_container(&w, c);
  put_body(&w, kernel->root, 1);
  dc_text_puts(out, "}\n");
}
