/* Kernels as functions of a device, and the loops that its threads share.
 *
 * The loops of a grid are flattened; a thread takes their iterations in steps of all threads that there are, so that
 * any number of blocks does. */
#include <string.h>

#include "backends/printer/printer.h"

enum { MOST_BLOCKS = 1 << 20 };

/* ---- the grid ---- */

const dc_loop *dc_print_tile_of(const dc_printer *p) {
  const dc_loop *l = dc_loop_only(p->k->root);
  while (l && l->on_grid && !l->tile) l = dc_loop_only(l);
  return l && l->on_grid ? l : NULL;
}

/* Does it run in tiles, with the loop that says so or as that? */
static bool is_tiled(const dc_printer *p, const dc_loop *l) {
  const dc_loop *tile = l->on_grid ? dc_print_tile_of(p) : NULL;
  return tile && (l == tile || l == dc_loop_last_on_grid(tile));
}

/* Iterations that a thread, or a block for its tile, takes at once. */
static int64_t taken(const dc_printer *p, const dc_loop *l) {
  return l->pack ? l->pack : is_tiled(p, l) ? DC_TILE : l->on_grid && l->turns ? l->turns : 1;
}

static dc_ex extent_of(dc_printer *p, const dc_loop *l) {
  return dc_ix_extent(p->pool, l->begin, l->end, dc_ex_int(p->pool, taken(p, l) * l->step));
}

static dc_ex iterations(dc_printer *p, const dc_loop *l) {
  dc_ex all = dc_ex_int(p->pool, 1);
  for (const dc_loop *at = l; at && at->on_grid; at = dc_loop_only(at)) all = dc_ix_mul(p->pool, all, extent_of(p, at));
  return all;
}

/* The parameters of the loops from l to `last`, from the number `rest` of an iteration, which is of type `type`. */
static void put_params(dc_printer *p, const dc_loop *l, const dc_loop *last, const char *type) {
  const char *natural = !strcmp(type, "i64") ? "u64" : "u32";
  for (const dc_loop *at = last; at != l->parent; at = at->parent) {
    const char *of = "rest", *index = dc_print_index_type(p, dc_ex_par(p->pool, at->param));
    if (at != l) {
      const char *n = dc_print_value(p, extent_of(p, at));
      dc_print_line(p, "const %s at%u = (%s)((%s)rest %% (%s)%s);", type, at->param, type, natural, natural, n);
      dc_print_line(p, "rest = (%s)((%s)rest / (%s)%s);", type, natural, natural, n);
      of = dc_arena_printf(p->arena, "at%u", at->param);
    }
    if (taken(p, at) > 1) of = dc_arena_printf(p->arena, "%s * %lld", of, (long long)taken(p, at));
    if (at->step != 1) of = dc_arena_printf(p->arena, "%s * %lld", of, (long long)at->step);
    if (!dc_kernel_is_number(p->k, at->begin, 0)) of = dc_arena_printf(p->arena, "%s + %s", dc_print_value(p, at->begin), of);
    dc_print_line(p, "const %s %s%u = (%s)(%s);", index, at->pack ? "base" : taken(p, at) > 1 ? "first" : "j", at->param, index, of);
  }
}

static bool is_block(const dc_printer *p) { return p->k->grid.team > 1 && !p->k->grid.across && p->k->grid.team == p->k->grid.block; }

const dc_loop *dc_print_grid_begin(dc_printer *p, const dc_loop *l, uint32_t *mark) {
  const dc_loop *last = dc_loop_last_on_grid(l);
  const dc_grid *g = &p->k->grid;
  dc_ex all = iterations(p, l);
  const char *once = dc_print_value(p, all);
  if (g->slices) all = dc_ix_mul(p->pool, all, dc_ex_int(p->pool, g->slices));
  const char *total = dc_print_value(p, all), *type = dc_print_index_type(p, all);
  const bool tiled = dc_print_tile_of(p) != NULL;
  const unsigned teams = tiled ? 1 : g->block / g->team;
  const char *of_team = is_block(p) ? "" : dc_arena_printf(p->arena, " + threadIdx.x / %u", g->team);
  const char *first = g->across || tiled ? "" : g->team == 1 ? " + threadIdx.x" : of_team;
  const char *head = "for (%s at = (%s)blockIdx.x * %u%s; at < %s; at += (%s)gridDim.x * %u)";
  dc_print_open(p, dc_arena_printf(p->arena, head, type, type, teams, first, total, type, teams));
  *mark = dc_print_scope(p);
  if (g->across) {
    dc_print_line(p, "const bool active = at + threadIdx.x %% %u < %s;", teams, total);
    dc_print_line(p, "const bool leader = me == 0 && active;");
    dc_print_line(p, "%s rest = active ? at + threadIdx.x %% %u : at;", type, teams);
  } else if (g->slices) {
    const char *natural = !strcmp(type, "i64") ? "u64" : "u32";
    dc_print_line(p, "const u32 slice = (u32)((%s)at / (%s)%s);", natural, natural, once);
    dc_print_line(p, "%s rest = (%s)((%s)at %% (%s)%s);", type, type, natural, natural, once);
  } else {
    dc_print_line(p, "%s rest = at;", type);
  }
  put_params(p, l, last, type);
  return last;
}

void dc_print_grid_end(dc_printer *p, uint32_t mark) {
  dc_print_scope_end(p, mark);
  dc_print_close(p);
}

static void open_unrolled(dc_printer *p, const dc_loop *l) {
  dc_text_puts(p->out, "#pragma unroll\n");
  dc_print_open(p, dc_arena_printf(p->arena, "for (int turn%u = 0; turn%u < %u; turn%u++)", l->param, l->param, l->turns, l->param));
}

static void open_row(dc_printer *p, const dc_loop *rows, uint32_t *mark) {
  const char *type = dc_print_index_type(p, dc_ex_par(p->pool, rows->param));
  open_unrolled(p, rows);
  *mark = dc_print_scope(p);
  dc_print_line(p, "const %s j%u = first%u + turn%u;", type, rows->param, rows->param, rows->param);
}

void dc_print_rows_begin(dc_printer *p, const dc_loop *rows, const dc_loop *last, uint32_t *mark) {
  if (dc_print_packs_ahead(p, last)) {
    open_row(p, rows, mark);
    dc_print_pack_loads(p, last);
    dc_print_grid_end(p, *mark);
  }
  open_row(p, rows, mark);
}

/* ---- teams ---- */

static void open_turns(dc_printer *p, const dc_loop *l, const char *type, const char *n) {
  const bool whole = dc_loop_extent(p->k, l) == (int64_t)l->turns * p->k->grid.team * (l->pack ? l->pack : 1);
  open_unrolled(p, l);
  dc_print_line(p, "const %s rest = me + turn%u * %u;", type, l->param, p->k->grid.team);
  if (!whole) dc_print_line(p, "if (rest >= %s) continue;", n);
}

const dc_loop *dc_print_team_begin(dc_printer *p, const dc_loop *l, uint32_t *mark) {
  const dc_loop *last = l;
  while (dc_loop_only(last) && dc_loop_only(last)->on_team && !dc_loop_only(last)->is_entry) last = dc_loop_only(last);
  dc_ex all = dc_ex_int(p->pool, 1);
  for (const dc_loop *at = last; at != l->parent; at = at->parent) all = dc_ix_mul(p->pool, all, extent_of(p, at));
  const char *n = dc_print_value(p, all), *type = dc_print_index_type(p, all),
             *first = p->k->grid.across ? dc_arena_printf(p->arena, "active ? me : %s", n) : "me";
  if (l->turns) {
    if (l->pack && dc_print_packs_ahead(p, l)) {
      open_turns(p, l, type, n);
      *mark = dc_print_scope(p);
      put_params(p, l, last, type);
      dc_print_pack_loads(p, l);
      dc_print_scope_end(p, *mark);
      dc_print_close(p);
    }
    open_turns(p, l, type, n);
  } else {
    dc_text_printf(p->out, "#pragma unroll %d\n", last->pack ? 2 : 4); /* so many loads are on their way at once */
    dc_print_open(p, dc_arena_printf(p->arena, "for (%s own%u = %s; own%u < %s; own%u += %u)", type, l->param, first, l->param, n, l->param,
                                     p->k->grid.team));
  }
  *mark = dc_print_scope(p);
  if (!l->turns) dc_print_line(p, "%s rest = own%u;", type, l->param);
  put_params(p, l, last, type);
  p->uniform = false;
  return last;
}

void dc_print_team_end(dc_printer *p, uint32_t mark) {
  dc_print_scope_end(p, mark);
  dc_print_close(p);
  p->uniform = true;
}

void dc_print_team_combine(dc_printer *p, const dc_loop *home) {
  const dc_grid *g = &p->k->grid;
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    const dc_accumulator *acc = &p->k->accumulators.v[a];
    if (acc->home != home) continue;
    const char *type = dc_print_accumulator_type(p, a), *name = p->sums[a].name;
    const char *both = dc_print_combine(p, (dc_wcr)acc->first->wcr, acc->type, "x", "y");
    const char *how = g->across ? dc_arena_printf(p->arena, "team_column<%u, %u>(scratch, ", g->team, g->block / g->team)
                      : g->team == DC_WARP ? "team_warp("
                                           : dc_arena_printf(p->arena, "team_block<%u>(scratch, ", g->team);
    const bool waits = g->across || g->team != DC_WARP;
    p->scratch = p->scratch || waits;
    if (waits) p->dirty = p->touched = 0; /* all threads have come there */
    dc_print_line(p, "%s = %s%s, [](%s x, %s y) { return (%s)(%s); });", name, how, name, type, type, type, both);
  }
}

void dc_print_team_wait(dc_printer *p) {
  dc_print_line(p, p->k->grid.team == DC_WARP && !p->k->grid.across && !is_block(p) ? "__syncwarp();" : "__syncthreads();");
  p->dirty = p->touched = 0;
}

void dc_print_team_ready(dc_printer *p, uint64_t reads, uint64_t writes) {
  if ((reads & p->dirty) | (writes & (p->dirty | p->touched))) dc_print_team_wait(p);
  p->dirty |= writes, p->touched |= reads;
}

/* ---- functions ---- */

static void put_parameters(dc_printer *p, dc_text *out) {
  const char *comma = "";
  for (dc_cid c = 1; c <= p->k->n_buffers; c++, comma = ", ") {
    const char *written = p->k->root->writes & ((uint64_t)1 << (c < 63 ? c : 63)) ? "" : "const ";
    bool alone = !dc_print_may_overlap(p, c);
    dc_text_printf(out, "%s%s%s *%s%sb%u", comma, written, p->dialect->types[dc_cont(p->k->graph, c)->dtype].storage,
                   alone ? p->dialect->no_alias : "", alone ? " " : "", c);
  }
  for (dc_sym s = 1; s < p->pool->symbols.n; s++)
    if (p->used_symbols[s]) dc_text_printf(out, "%si64 s%u", comma, s), comma = ", ";
  if (p->flagged) dc_text_printf(out, "%si64 *error", comma);
}

static void fill(dc_printer *p, dc_launches *out) {
  for (dc_sym s = 1; s < p->pool->symbols.n; s++)
    if (p->used_symbols[s]) DC_PUSH(&out->arena, &out->symbols, s);
  const dc_loop *l = dc_loop_only(p->k->root);
  dc_ex total = l && l->on_grid ? iterations(p, l) : dc_ex_int(p->pool, 1);
  if (p->k->grid.slices) total = dc_ix_mul(p->pool, total, dc_ex_int(p->pool, p->k->grid.slices));
  dc_ex at_once = dc_ex_int(p->pool, dc_print_tile_of(p) ? 1 : p->k->grid.block / p->k->grid.team);
  dc_ex blocks = dc_ix_div(p->pool, dc_ix_add(p->pool, total, dc_ix_sub(p->pool, at_once, dc_ex_int(p->pool, 1))), at_once);
  dc_launch_add(out, "", p->k->grid.block, p->pool, dc_ix_min(p->pool, blocks, dc_ex_int(p->pool, MOST_BLOCKS)), 0);
  out->checks = p->flagged;
}

static void put_alignment(dc_printer *p, dc_text *out) {
  const char *separator = "  const bool aligned = ((";
  for (dc_cid c = 1; c <= p->k->n_buffers; c++) {
    if (!(p->aligned >> (c < 63 ? c : 63) & 1)) continue;
    dc_text_printf(out, "%s(u64)b%u", separator, c);
    separator = " | ";
  }
  if (p->aligned) dc_text_puts(out, ") & 15) == 0;\n");
}

void dc_print_launched(dc_printer *p, const char *body, dc_launches *launches, dc_text *out) {
  const char *least = p->k->grid.at_once ? dc_arena_printf(p->arena, ", %u", p->k->grid.at_once) : "";
  dc_text_printf(out, "%s __launch_bounds__(%u%s) %s(", p->dialect->function, p->k->grid.block, least, p->name);
  put_parameters(p, out);
  dc_text_puts(out, ") {\n");
  if (p->flagged) dc_text_puts(out, "  i64 bad = 0;\n");
  const dc_grid *g = &p->k->grid;
  if (p->scratch) dc_text_printf(out, "  __shared__ u64 scratch[%u];\n", g->across ? g->block : DC_WARP);
  if (g->across) dc_text_printf(out, "  const int me = (int)threadIdx.x / %u;\n", g->block / g->team);
  else if (g->team > 1) dc_text_printf(out, "  const int me = (int)threadIdx.x %% %u;\n  const bool leader = me == 0;\n", g->team);
  if (dc_print_tile_of(p))
    dc_text_printf(out, "  const int side = (int)threadIdx.x %% %d, down = (int)threadIdx.x / %d;\n", DC_TILE, DC_TILE);
  put_alignment(p, out);
  if (g->slices && !(dc_loop_only(p->k->root) && dc_loop_only(p->k->root)->on_grid))
    dc_text_printf(out, "  const u32 slice = blockIdx.x * %u + threadIdx.x;\n  if (slice >= %u) return;\n", g->block, g->slices);
  dc_text_puts(out, body);
  if (p->flagged) dc_text_puts(out, "  if (bad) atomicCAS((u64 *)error, (u64)0, (u64)bad);\n");
  dc_text_puts(out, "}\n");
  if (launches) fill(p, launches);
}
