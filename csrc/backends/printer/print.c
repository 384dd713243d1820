/* The tree of a kernel, and kernels as functions.
 *
 * A loop is printed body first: what the body turned out to need (reductions, the index flag) stands in the line before
 * it.  Before a loop come the values that it does not change. */
#include "backends/printer/printer.h"

static void print_body(dc_printer *p, const dc_loop *l);
static void print_range(dc_printer *p, const dc_loop *l, const char *begin, const char *end);

/* ---- values that loops do not change ---- */

static void hoist_write(dc_printer *p, const dc_write *w, uint32_t level, uint64_t writes) {
  dc_ex check = dc_read_check(p->k, w->element);
  if (w->guard) dc_print_hoist(p, w->guard, level, writes);
  dc_print_hoist(p, w->value, level, writes);
  dc_print_hoist(p, dc_read_address(p->k, w->element), level, writes);
  if (check) dc_print_hoist(p, check, level, writes);
}

/* What follows the sums of a product sees only the writes beside them. */
static bool is_printed(const dc_printer *p, const dc_loop *l, const dc_item *i) { return i->write || !p->block || p->block->n != l; }

static void hoist_body(dc_printer *p, const dc_loop *l, uint32_t level, uint64_t writes) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const dc_item *i = &l->body.v[k];
    if (!is_printed(p, l, i)) continue;
    if (i->write) {
      hoist_write(p, i->write, level, writes);
    } else {
      dc_print_hoist(p, i->loop->begin, level, writes);
      dc_print_hoist(p, i->loop->end, level, writes);
      hoist_body(p, i->loop, level, writes);
    }
  }
}

/* ---- loops over the lanes of a strip ---- */

typedef struct {
  dc_deferred_text text;
  uint32_t mark;
} lane_loop;

static void open_lanes(dc_printer *p, lane_loop *lanes) {
  dc_print_defer(p, &lanes->text);
  lanes->mark = dc_print_scope(p);
  p->in_lane = true;
  p->indent++;
}

/* `run` holds the writes inside. */
static void close_lanes(dc_printer *p, lane_loop *lanes, const dc_loop *run) {
  dc_print_scope_end(p, lanes->mark);
  p->indent--;
  bool vectors = dc_print_vectors(p, run, lanes->text.outer);
  p->in_lane = false;
  dc_text_indent(lanes->text.outer, p->indent);
  dc_text_printf(lanes->text.outer, "for (i64 l = 0; l < lanes; l++) {%s%s\n", vectors ? "" : " ", vectors ? "" : p->dialect->in_order);
  dc_text_indent(lanes->text.outer, p->indent + 1);
  dc_text_printf(lanes->text.outer, "const i64 j%u = p%u + l;\n", p->lane->param, p->lane->param);
  dc_print_undefer(p, &lanes->text);
  dc_print_line(p, "}");
}

/* Writes that follow one another; in a strip they share a loop over its lanes. */
static void print_writes(dc_printer *p, const dc_item *items, uint32_t n) {
  bool lanes = p->lane && !p->in_lane;
  dc_loop run = {.body = {.v = (dc_item *)items, .n = n}};
  lane_loop loop;
  if (lanes) {
    uint64_t writes = 0;
    for (uint32_t k = 0; k < n; k++) writes |= p->k->bits[items[k].write->out];
    dc_print_forget(p, writes);
    dc_kernel_begin(p->k);
    hoist_body(p, &run, DC_LANE_LEVEL, writes);
    open_lanes(p, &loop);
  }
  for (uint32_t k = 0; k < n; k++) dc_print_write(p, items[k].write);
  if (lanes) close_lanes(p, &loop, &run);
}

/* ---- one loop ---- */

static void open_iteration(dc_printer *p, dc_deferred_text *text, uint32_t *mark) {
  dc_print_defer(p, text);
  p->indent++;
  *mark = dc_print_scope(p);
}

static void close_iteration(dc_printer *p, uint32_t mark) {
  dc_print_scope_end(p, mark);
  p->indent--;
}

/* Of an iteration among all those that terms are spread over. */
static const char *position(dc_printer *p, const dc_loop *l) {
  const char *text = dc_arena_printf(p->arena, "j%u", l->param);
  long long below = dc_loop_extent(p->k, l);
  for (const dc_loop *at = l->parent; below < l->spread; at = at->parent) {
    text = dc_arena_printf(p->arena, "j%u * %lld + %s", at->param, below, text);
    below *= dc_loop_extent(p->k, at);
  }
  return text;
}

/* As many terms of each lane at once as there are whole groups of, from the variable `at` on. */
static void print_terms(dc_printer *p, const dc_loop *l, const char *at, const char *end) {
  lane_loop lanes;
  dc_print_open(p, dc_arena_printf(p->arena, "for (; %s + %u <= %s; %s += %u)", at, l->terms, end, at, l->terms));
  open_lanes(p, &lanes);
  for (uint32_t k = 0; k < l->body.n; k++) {
    const uint32_t a = l->body.v[k].write->accumulator - 1;
    dc_print_line(p, "%s sum%u = %s[l];", dc_print_accumulator_type(p, a), a, p->sums[a].name);
  }
  for (uint32_t t = 0; t < l->terms; t++) {
    const uint32_t mark = dc_print_scope(p);
    dc_print_open(p, "");
    dc_print_line(p, "const i64 j%u = %s + %u;", l->param, at, t);
    for (uint32_t k = 0; k < l->body.n; k++) {
      const uint32_t a = l->body.v[k].write->accumulator - 1, width = p->sums[a].width;
      const char *name = p->sums[a].name;
      p->sums[a].name = dc_arena_printf(p->arena, "sum%u", a), p->sums[a].width = 0;
      dc_print_write(p, l->body.v[k].write);
      p->sums[a].name = name, p->sums[a].width = width;
    }
    dc_print_scope_end(p, mark);
    dc_print_close(p);
  }
  for (uint32_t k = 0; k < l->body.n; k++) {
    const uint32_t a = l->body.v[k].write->accumulator - 1;
    dc_print_line(p, "%s[l] = sum%u;", p->sums[a].name, a);
  }
  close_lanes(p, &lanes, l);
  dc_print_close(p);
}

/* A loop over vectors, the last of which begins where it is whole; begin, end: of the loop inside, over the iterations of one. */
static void open_overlaps(dc_printer *p, const dc_loop *l, dc_text *out, const char **begin, const char **end) {
  const long long extent = (long long)dc_loop_extent(p->k, l), last = extent - l->overlaps;
  dc_text_indent(out, p->indent);
  dc_text_printf(out, "for (i64 v%u = 0; v%u < %lld; v%u += %u) {\n", l->param, l->param, extent, l->param, l->overlaps);
  dc_text_indent(out, p->indent);
  dc_text_printf(out, "const i64 from%u = %s + (v%u < %lld ? v%u : %lld);\n", l->param, *begin, l->param, last, l->param, last);
  *begin = dc_arena_printf(p->arena, "from%u", l->param), *end = dc_arena_printf(p->arena, "from%u + %u", l->param, l->overlaps);
}

static void print_simple(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  dc_deferred_text text;
  uint32_t mark;
  if (l->terms) {
    const char *at = dc_arena_printf(p->arena, "at%u", l->param);
    dc_print_line(p, "i64 %s = %s;", at, begin);
    print_terms(p, l, at, end);
    begin = at;
  }
  open_iteration(p, &text, &mark);
  if (l->spread) p->lane_index = position(p, l);
  const bool uniform = p->uniform;
  const uint64_t dirty = p->dirty | l->writes; /* before each iteration, and behind the last one, if there is one */
  if (uniform) p->dirty = dirty, p->touched = ~(uint64_t)0;
  print_body(p, l);
  if (uniform) p->dirty = dirty, p->touched = ~(uint64_t)0;
  if (l->spread) p->lane_index = NULL;
  close_iteration(p, mark);
  if (l->overlaps) open_overlaps(p, l, text.outer, &begin, &end);
  bool vectors = l->is_vector && dc_print_vectors(p, l, text.outer);
  bool in_order = !vectors && !dc_loop_has_loops(l) && !p->lane;
  /* indices of several iterations are on their way at once */
  if (p->k->grid.slices && !dc_loop_has_loops(l)) dc_text_puts(text.outer, "#pragma unroll 4\n");
  dc_text_indent(text.outer, p->indent);
  const char *type = dc_print_index_type(p, dc_ex_par(p->pool, l->param));
  dc_text_printf(text.outer, "for (%s j%u = %s; j%u < %s; j%u += %lld) {%s%s\n", type, l->param, begin, l->param, end, l->param,
                 (long long)l->step, in_order ? " " : "", in_order ? p->dialect->in_order : "");
  dc_print_undefer(p, &text);
  dc_print_line(p, "}");
  if (l->overlaps) dc_print_line(p, "}");
}

static void print_strips(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  dc_deferred_text text;
  uint32_t mark;
  dc_print_line(p, "i64 p%u = %s;", l->param, begin);
  open_iteration(p, &text, &mark);
  p->lane = l;
  print_body(p, l);
  p->lane = NULL;
  close_iteration(p, mark);
  p->out = text.outer;
  int64_t extent = dc_loop_extent(p->k, l), rest = extent < 0 ? -1 : extent % l->lanes; /* tasks end at whole strips */
  if (extent < 0 || extent >= l->lanes) {
    dc_print_line(p, "for (; p%u + %u <= %s; p%u += %u) {", l->param, l->lanes, end, l->param, l->lanes);
    dc_print_line(p, "  enum { lanes = %u };", l->lanes);
    dc_text_puts(p->out, text.inner.s);
    dc_print_line(p, "}");
  }
  if (rest == 0) text.inner.s[0] = 0;
  if (rest != 0) dc_print_line(p, "if (p%u < %s) {", l->param, end);
  if (rest > 0) dc_print_line(p, "  enum { lanes = %lld };", (long long)rest);
  if (rest < 0) dc_print_line(p, "  const i64 lanes = %s - p%u;", end, l->param);
  dc_print_undefer(p, &text);
  if (rest != 0) dc_print_line(p, "}");
}

enum { JOINED_BLOCKS = 4 };

/* Each round takes several of the task's blocks as one. */
static void print_joined(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  const char *limit = dc_print_value(p, l->end);
  const long long most = JOINED_BLOCKS * l->step;
  dc_deferred_text text;
  uint32_t mark;
  open_iteration(p, &text, &mark);
  dc_print_line(p, "const i64 most%u = j%u + %lld < %s ? j%u + %lld : %s;", l->param, l->param, most, end, l->param, most, end);
  const char *stop = dc_arena_printf(p->arena, "most%u < %s ? most%u : %s", l->param, limit, l->param, limit);
  dc_print_remember(p, l->joined, dc_print_local(p, DC_I64, stop));
  print_body(p, l);
  close_iteration(p, mark);
  dc_text_indent(text.outer, p->indent);
  dc_text_printf(text.outer, "for (i64 j%u = %s; j%u < %s; j%u += %lld) {\n", l->param, begin, l->param, end, l->param, most);
  dc_print_undefer(p, &text);
  dc_print_line(p, "}");
}

/* ---- loops of sums ---- */

/* Lanes from `at` on, of which the first `repeated` ones have added their terms before; around: the head of a loop over strips, or "". */
static void print_sum_lanes(dc_printer *p, const dc_loop *l, uint32_t lanes, const char *at, uint32_t repeated, const char *around) {
  dc_deferred_text text;
  uint32_t mark;
  open_iteration(p, &text, &mark);
  p->lane_index = "l", p->repeated = repeated;
  dc_print_line(p, l->step == 1 ? "const i64 j%u = %s + l;" : "const i64 j%u = %s + l * %lld;", l->param, at, (long long)l->step);
  print_body(p, l);
  p->lane_index = NULL, p->repeated = 0;
  close_iteration(p, mark);
  if (*around) dc_text_indent(text.outer, p->indent);
  dc_text_puts(text.outer, around);
  if (p->flagged) dc_text_printf(text.outer, "%s reduction(max : bad)\n", p->dialect->vectors);
  else dc_text_printf(text.outer, "%s\n", p->dialect->sums);
  dc_text_indent(text.outer, p->indent);
  dc_text_printf(text.outer, "for (i64 l = 0; l < %u; l++) {\n", lanes);
  dc_print_undefer(p, &text);
  dc_print_line(p, "}");
}

/* Whole strips of lanes, from the variable `at` on. */
static void print_sum_strips(dc_printer *p, const dc_loop *l, uint32_t lanes, const char *at, const char *end) {
  const long long step = l->step, reach = step * (lanes - 1) + 1;
  print_sum_lanes(p, l, lanes, at, 0,
                  dc_arena_printf(p->arena, "for (; %s + %lld <= %s; %s += %lld)\n", at, reach, end, at, step * lanes));
}

/* The last lanes of the range, of which the first `repeated` ones have been there before. */
static void print_last_lanes(dc_printer *p, const dc_loop *l, uint32_t repeated, const char *end) {
  print_sum_lanes(p, l, DC_FEW_LANES, dc_arena_printf(p->arena, "%s - %d", end, DC_FEW_LANES), repeated, "");
}

static void print_blocks(dc_printer *p, const dc_loop *l, uint32_t lanes, uint32_t levels, const char *begin, const char *end) {
  if (levels) {
    dc_outer_sums outer = dc_print_block_begin(p, l, lanes, levels, begin, end);
    print_blocks(p, l, lanes, levels - 1, outer.from, outer.to);
    dc_print_block_end(p, &outer);
  } else if (lanes) {
    const char *at = dc_arena_printf(p->arena, "at%u", l->param);
    dc_print_line(p, "i64 %s = %s;", at, begin);
    print_sum_strips(p, l, lanes, at, end);
  } else {
    print_simple(p, l, begin, end);
  }
}

/* What fills whole strips of many lanes; the rest begins at the variable `at`. */
static void print_many(dc_printer *p, const dc_loop *l, const char *at, const char *end) {
  const long long strip = l->step * l->sum_lanes;
  const char *whole = dc_arena_printf(p->arena, "whole%u", l->param);
  if (dc_loop_extent(p->k, l) < 0) dc_print_open(p, dc_arena_printf(p->arena, "if (%s - %s >= %lld)", end, at, 8 * strip));
  else dc_print_open(p, "");
  dc_print_line(p, "const i64 %s = %s + (%s - %s) / %lld * %lld;", whole, at, end, at, strip, strip);
  dc_outer_sums outer = dc_print_lanes_begin(p, l, l->sum_lanes);
  print_blocks(p, l, l->sum_lanes, l->sum_levels, at, whole);
  dc_print_lanes_end(p, &outer);
  dc_print_line(p, "%s = %s;", at, whole);
  dc_print_close(p);
}

static void print_sums(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  const int64_t extent = dc_loop_extent(p->k, l);
  const int64_t rest = extent < 0 ? -1 : l->sum_lanes == DC_FEW_LANES ? extent : extent % l->sum_lanes; /* tasks end at whole strips */
  const char *at = dc_arena_printf(p->arena, "rest%u", l->param);
  dc_print_open(p, "");
  dc_print_line(p, "i64 %s = %s;", at, begin);
  if (l->sum_lanes > DC_FEW_LANES) print_many(p, l, at, end);
  if (rest < 0 || rest >= DC_FEW_LANES || l->overlaps) {
    dc_outer_sums outer = dc_print_lanes_begin(p, l, DC_FEW_LANES);
    print_sum_strips(p, l, DC_FEW_LANES, at, end);
    if (l->overlaps) print_last_lanes(p, l, (uint32_t)(DC_FEW_LANES - rest % DC_FEW_LANES), end);
    dc_print_lanes_end(p, &outer);
  }
  if (rest < 0 || (rest % DC_FEW_LANES && !l->overlaps)) print_simple(p, l, at, end);
  dc_print_close(p);
}

/* ---- checks that a loop does not change ---- */

static void add_check(dc_printer *p, const dc_loop *l, dc_ex check, const char *some) {
  if (!check || !dc_print_bound(p, check) || dc_kernel_dependence(p->k, check).level >= l->depth || dc_print_is_checked(p, check)) return;
  dc_print_line(p, "bad = %s || !(%s) ? bad : %u;", dc_print_value(p, check), some, p->ordinal + 1);
  p->flagged = true;
  DC_PUSH(p->arena, &p->checked, check);
}

/* Of reads that each iteration makes. */
static void add_checks(dc_printer *p, const dc_loop *l, dc_ex x, const char *some) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  bool chooses = node.op == DC_EX_SELECT || node.op == DC_AND || node.op == DC_OR; /* what it does not take is not read */
  if (node.op == DC_EX_READ) add_check(p, l, dc_read_check(p->k, x), some);
  for (uint32_t k = 0; k < (chooses ? 1 : node.nargs); k++) add_checks(p, l, dc_ex_arg(p->pool, x, k), some);
}

/* Is the range of a loop something that a loop before it may have computed? */
static bool has_computed_ranges(const dc_kernel *k) {
  bool found = false;
  for (uint32_t j = 0; j < k->loop_of.n && !found; j++) {
    const dc_loop *l = k->loop_of.v[j];
    found = l && (dc_ex_uses_op(k->pool, l->begin, DC_EX_READ) || dc_ex_uses_op(k->pool, l->end, DC_EX_READ));
  }
  return found;
}

/* Where an index that all iterations use is out of range, one report is enough, and no iteration runs: nobody sees results
 * beside an error.  Vectors then know no checks.  Returns the condition of the loop; NULL: there is none. */
static const char *check_ahead(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  const uint32_t n = p->checked.n;
  const char *some = dc_arena_printf(p->arena, "%s < %s", begin, end), *all = NULL;
  for (uint32_t k = 0; k < l->body.n; k++) {
    const dc_write *w = l->body.v[k].write;
    if (!w || w->guard) continue;
    p->ordinal = w->ordinal;
    add_check(p, l, dc_read_check(p->k, w->element), some);
    if (!dc_read_check(p->k, w->element) || dc_print_is_checked(p, dc_read_check(p->k, w->element))) add_checks(p, l, w->value, some);
  }
  for (uint32_t k = n; k < p->checked.n; k++) {
    const char *check = dc_print_value(p, p->checked.v[k]);
    all = all ? dc_arena_printf(p->arena, "%s && %s", all, check) : check;
  }
  return all;
}

/* ---- the tree ---- */

static void print_iterations(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  bool follows = p->block && p->block->m == l; /* what a product does with its sums */
  if (l->product && !follows) {
    uint32_t mark = dc_print_blocks_begin(p, l->product, begin, end);
    for (uint32_t k = 0, done = 0; k < l->product->n->body.n && !done; k++)
      if (l->product->n->body.v[k].write) print_range(p, l, "m0", "m1"), done = 1;
    dc_print_blocks_end(p, mark);
  } else if (l->lanes) {
    print_strips(p, l, begin, end);
  } else if (l->joined) {
    print_joined(p, l, begin, end);
  } else if (l->memory_run) {
    dc_print_run(p, l, begin, end);
  } else if (l->sum_lanes) {
    print_sums(p, l, begin, end);
  } else {
    print_blocks(p, l, 0, l->sum_levels, begin, end);
  }
}

static void print_range(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  dc_print_forget(p, l->writes);
  dc_kernel_begin(p->k);
  hoist_body(p, l, l->depth, l->writes);
  const uint32_t n_checked = p->checked.n;
  bool plain = !l->product && !l->lanes && !l->joined && !l->memory_run && !p->lane && !has_computed_ranges(p->k);
  const char *check = plain ? check_ahead(p, l, begin, end) : NULL;
  if (check) dc_print_open(p, dc_arena_printf(p->arena, "if (%s)", check));
  const uint32_t mark = dc_print_scope(p);
  print_iterations(p, l, begin, end);
  if (check) {
    dc_print_scope_end(p, mark);
    dc_print_close(p);
  }
  p->checked.n = n_checked;
}

static void print_identities(dc_printer *p, const dc_loop *home, const dc_loop *at) {
  static const dc_loop none;
  for (uint32_t k = 0; k < at->body.n; k++) {
    const dc_write *w = at->body.v[k].write;
    if (!w) {
      print_identities(p, home, at->body.v[k].loop);
      continue;
    }
    bool kept = w->accumulator && p->k->accumulators.v[w->accumulator - 1].home == home;
    bool inner = dc_kernel_is_register(p->k, w->out) && dc_loop_is_inside(p->k->homes.v[w->out], home);
    if (!w->wcr || kept || inner) continue;
    lane_loop loop;
    bool lanes = p->lane && !p->in_lane;
    if (lanes) open_lanes(p, &loop);
    dc_print_identity(p, home, w);
    if (lanes) close_lanes(p, &loop, &none);
  }
}

static void print_results(dc_printer *p, const dc_loop *home) {
  static const dc_loop none;
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (p->k->accumulators.v[a].home != home) continue;
    lane_loop loop;
    bool lanes = dc_kernel_is_laned(p->k, a);
    if (lanes) open_lanes(p, &loop);
    dc_print_result(p, a);
    if (lanes) close_lanes(p, &loop, &none);
  }
}

static void print_tasks(dc_printer *p, const dc_loop *l) {
  dc_task task;
  dc_print_task_begin(p, l, &task);
  if (l->threads->sliced) {
    p->slice = task.last;
    print_range(p, l, dc_print_value(p, l->begin), dc_print_value(p, l->end));
    p->slice = NULL;
  } else {
    print_range(p, task.last, "begin", "end");
  }
  dc_print_task_end(p, &task);
}

static bool shares_memory(const dc_printer *p) {
  for (dc_cid c = p->k->n_buffers + 1; c < p->k->graph->containers.n; c++)
    if (dc_kernel_is_shared(p->k, c)) return true;
  return false;
}

/* What threads do of the innermost loop that they share. */
static void print_iteration(dc_printer *p, const dc_loop *l) {
  uint32_t mark;
  if (!l->pack) {
    print_body(p, l);
    return;
  }
  dc_kernel_begin(p->k);
  hoist_body(p, l, l->depth, l->writes);
  dc_print_pack_begin(p, l, &mark);
  print_body(p, l);
  dc_print_pack_end(p, l, mark);
}

static void print_grid(dc_printer *p, const dc_loop *l) {
  uint32_t mark;
  dc_print_forget(p, l->writes);
  dc_kernel_begin(p->k);
  hoist_body(p, l, l->depth, l->writes);
  const dc_loop *last = dc_print_grid_begin(p, l, &mark);
  p->uniform = p->k->grid.team > 1;
  p->dirty = p->touched = 0;
  const dc_loop *tile = dc_print_tile_of(p);
  uint32_t inner;
  const dc_loop *rows = dc_print_turning(last);
  if (tile) dc_print_tile_begin(p, tile, last, &inner);
  if (rows) dc_print_rows_begin(p, rows, last, &inner);
  print_iteration(p, last);
  if (rows) dc_print_grid_end(p, inner);
  if (tile) dc_print_tile_end(p, inner);
  if (p->uniform && shares_memory(p)) dc_print_team_wait(p);
  p->uniform = false;
  dc_print_grid_end(p, mark);
}

static void print_team(dc_printer *p, const dc_loop *l) {
  uint32_t mark;
  dc_print_forget(p, l->writes);
  dc_kernel_begin(p->k);
  hoist_body(p, l, l->depth, l->writes);
  print_iteration(p, dc_print_team_begin(p, l, &mark));
  dc_print_team_end(p, mark);
}

static void print_loop(dc_printer *p, const dc_loop *l) {
  bool reduces = l->is_entry && l->schedule == DC_MAP_REDUCE;
  bool columns = p->block && p->block->n == l;
  if (reduces) {
    print_identities(p, l, l);
    dc_print_accumulators(p, l, l->threads != NULL);
  }
  const bool dealt = l->on_team && p->uniform;
  if (l->on_grid) print_grid(p, l);
  else if (dealt) print_team(p, l);
  else if (l->threads) print_tasks(p, l);
  else if (l == p->slice) print_range(p, l, "begin", "end");
  else if (columns) print_range(p, l, "n0", "n1");
  else print_range(p, l, dc_print_value(p, l->begin), dc_print_value(p, l->end));
  dc_print_forget(p, l->writes);
  if (!reduces) return;
  dc_print_fold(p, l);
  if (dealt) dc_print_team_combine(p, l);
  print_results(p, l);
}

/* What the threads of a team find in the memory that they share, and leave there. */
static void add_uses(const dc_printer *p, const dc_item *i, uint64_t *reads, uint64_t *writes) {
  dc_kernel *k = p->k;
  const dc_write *w = i->write;
  const dc_ex all[] = {w ? w->value : i->loop->begin, w ? w->guard : i->loop->end, w ? w->element : 0, w ? w->inside : 0};
  for (int j = 0; j < 4; j++) {
    if (all[j] && j != 2) *reads |= dc_kernel_dependence(k, all[j]).reads;
    if (all[j] && j == 2) *reads |= dc_kernel_dependence(k, dc_read_address(k, all[j])).reads;
  }
  if (w) *writes |= k->bits[w->out];
  if (w && w->wcr) *reads |= k->bits[w->out];
  for (uint32_t j = 0; !w && j < i->loop->body.n; j++) add_uses(p, &i->loop->body.v[j], reads, writes);
}

static uint64_t shared_places(const dc_printer *p) {
  uint64_t places = 0;
  for (dc_cid c = 1; c < p->k->graph->containers.n; c++)
    if (!dc_kernel_is_register(p->k, c) || dc_kernel_is_shared(p->k, c)) places |= p->k->bits[c];
  return places;
}

static void get_ready(dc_printer *p, const dc_item *items, uint32_t n) {
  const uint64_t places = shared_places(p);
  uint64_t reads = 0, writes = 0;
  for (uint32_t k = 0; k < n; k++) add_uses(p, &items[k], &reads, &writes);
  dc_print_team_ready(p, reads & places, writes & places);
}

static void print_body(dc_printer *p, const dc_loop *l) {
  dc_print_registers(p, l);
  for (uint32_t k = 0; k < l->body.n;) {
    uint32_t end = k;
    while (end < l->body.n && l->body.v[end].write && !(p->uniform && end > k)) end++;
    if (p->uniform) get_ready(p, l->body.v + k, end > k ? end - k : 1);
    if (end > k) print_writes(p, l->body.v + k, end - k);
    else if (is_printed(p, l, &l->body.v[end])) print_loop(p, l->body.v[end].loop);
    k = end > k ? end : k + 1;
  }
}

/* ---- kernels ---- */

static void spell_on_grid(dc_printer *p, dc_launches *launches, dc_text *out) {
  dc_text *body = p->out;
  p->used_symbols = DC_NEW_ARRAY(p->arena, bool, p->pool->symbols.n);
  p->indent = 1;
  p->uniform = p->k->grid.team > 1 && !(dc_loop_only(p->k->root) && dc_loop_only(p->k->root)->on_grid);
  dc_text_puts(body, "");
  print_body(p, p->k->root);
  dc_text_puts(out, p->functions->s);
  dc_print_launched(p, body->s, launches, out);
}

static void spell_on_processor(dc_printer *p, dc_text *out) {
  dc_print_function(p, "root", "void *const *buffers, const i64 *symbols, const i64 *part");
  print_body(p, p->k->root);
  if (!dc_kernel_divided(p->k)) dc_print_line(p, "(void)part;");
  dc_print_function_end(p);
  dc_text_puts(out, p->functions->s);
  dc_text_puts(out, p->out->s);
  dc_text_printf(out, "void %s(void *const *buffers, const i64 *symbols, const i64 *part) { ", p->name);
  dc_print_call(p, "root", "buffers, symbols, part", out);
  dc_text_puts(out, " }\n");
}

static const char *initialisers(const dc_printer *p, dc_arena *arena) {
  const bool *used = dc_print_symbols(p);
  dc_text list = {0};
  dc_text_puts(&list, "0"); /* there is no symbol 0 */
  for (dc_sym s = 1; s < p->pool->symbols.n; s++) dc_text_printf(&list, used[s] ? ", symbols[%u]" : ", 0", s);
  const char *text = dc_arena_strdup(arena, list.s);
  dc_text_free(&list);
  return text;
}

static void spell(dc_kernel *kernel, const dc_dialect *dialect, const char *name, dc_loose *loose, dc_launches *launches, dc_text *out) {
  dc_text functions = {0}, body = {0};
  dc_printer p = {.k = kernel, .pool = kernel->pool, .arena = kernel->arena, .dialect = dialect, .name = name, .out = &body,
                  .functions = &functions, .loose = loose};
  p.sums = (void *)DC_NEW_ARRAY(p.arena, char, (kernel->accumulators.n + 1) * sizeof *p.sums);
  dc_text_puts(&functions, "");
  if (kernel->grid.block) spell_on_grid(&p, launches, out);
  else spell_on_processor(&p, out);
  if (loose) loose->divides = dc_kernel_divided(kernel) != NULL;
  if (loose) loose->symbols = initialisers(&p, &loose->arena), loose->n_symbols = p.pool->symbols.n > 1 ? p.pool->symbols.n : 1;
  dc_text_free(&functions);
  dc_text_free(&body);
}

void dc_kernel_spell(dc_kernel *kernel, const dc_dialect *dialect, const char *name, dc_launches *launches, dc_text *out) {
  spell(kernel, dialect, name, NULL, launches, out);
}

void dc_kernel_spell_loose(dc_kernel *kernel, const dc_dialect *dialect, const char *name, dc_loose *loose) {
  spell(kernel, dialect, name, loose, NULL, &loose->text);
}
