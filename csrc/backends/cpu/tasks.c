/* Functions, and loops that threads share.
 *
 * A split loop moves to a function of its own, whose buffers are restrict parameters.  It runs a
 * range of tasks: the outer loops of the map flattened, times blocks of the last one.  The place
 * where the loop stood estimates the work, and calls the function itself when threads would not
 * pay.  What the function needs of its surroundings comes in a vector of integers. */
#include <assert.h>
#include <string.h>

#include "backends/cpu/print.h"

enum { MAX_CHAIN = 16, MAX_PARTS = 64, SERIAL_NS = 60000, PRODUCT_ROWS = 128 };
static const double PRODUCT_NS = 0.01; /* of a multiplication in a product */

/* ---- functions ---- */

static bool may_overlap(emitter *e, dc_cid c) {
  if (dc_cont(e->graph, c)->alias_of) return true;
  for (dc_cid k = 1; k <= e->n_buffers; k++)
    if (dc_cont(e->graph, k)->alias_of == c) return true;
  return false;
}

void dc_cpu_open_function(emitter *e, const char *suffix, const char *params) {
  dc_cpu_line(e, "static __attribute__((noinline)) void %s_%s(", e->name, suffix);
  e->indent += 2;
  for (dc_cid c = 1; c <= e->n_buffers; c++) {
    const char *written = e->root.writes & ((uint64_t)1 << (c < 63 ? c : 63)) ? "" : "const ";
    const char *type = dc_cpu_type((dc_dtype)dc_cont(e->graph, c)->dtype)->storage;
    dc_cpu_line(e, "%s%s *%sb%u,", written, type, may_overlap(e, c) ? "" : "restrict ", c);
  }
  dc_cpu_line(e, "i64 *error, %s) {", params);
  e->indent--;
  dc_cpu_line(e, "i64 bad = 0;");
  for (dc_sym s = 1; s < e->pool->symbols.n; s++)
    if (dc_cpu_uses_symbol(e, s)) dc_cpu_line(e, "const i64 s%u = symbols[%u];", s, s);
}

void dc_cpu_close_function(emitter *e) {
  dc_cpu_line(e, "if (bad) __atomic_store_n(error, bad, __ATOMIC_RELAXED);");
  e->indent--;
  dc_cpu_line(e, "}");
}

void dc_cpu_call(emitter *e, const char *suffix, const char *args, dc_text *out) {
  dc_text_printf(out, "%s_%s(", e->name, suffix);
  for (dc_cid c = 1; c <= e->n_buffers; c++) dc_text_printf(out, "buffers[%u], ", c - 1);
  dc_text_printf(out, "buffers[-1], %s);", args);
}

/* ---- which loops ---- */

typedef struct {
  loop *at[MAX_CHAIN];
  uint32_t n;
  bool sliced; /* every task runs all loops of the map, and of at[0] only its part */
} chain;

/* Can the range be computed before any loop of the chain runs? */
static bool is_fixed(emitter *e, const loop *l, const loop *first) {
  fact begin = *dc_cpu_fact(e, l->begin), end = *dc_cpu_fact(e, l->end);
  return begin.level < first->depth && end.level < first->depth && !((begin.reads | end.reads) & first->writes);
}

static loop *next_in_map(const loop *l) {
  return l->body.n == 1 && l->body.v[0].loop && !l->body.v[0].loop->is_entry ? l->body.v[0].loop : NULL;
}

/* The loops of one map from its entry on that form a box and may be split. */
static void find_chain(emitter *e, loop *l, chain *c) {
  *c = (chain){0};
  for (loop *at = l; at && c->n < MAX_CHAIN; at = next_in_map(at)) {
    if (at->conflicts || !is_fixed(e, at, l)) break;
    c->at[c->n++] = at;
    if (at->product) break; /* its rows are shared, its columns stay together */
  }
  if (c->n || l->schedule != DC_MAP_SCATTER) return;
  /* Scattered writes that collide stay in order within a thread if each has its own slice. */
  for (loop *at = next_in_map(l); at && !c->n; at = next_in_map(at))
    if (!at->conflicts && at->step == 1 && is_fixed(e, at, l)) c->at[c->n++] = at, c->sliced = true;
}

/* Everything under `at` may run in a function of its own. */
static bool is_closed(emitter *e, const loop *l, const loop *at) {
  for (uint32_t k = 0; k < at->body.n; k++) {
    const write_item *w = at->body.v[k].write;
    if (!w) {
      if (!is_closed(e, l, at->body.v[k].loop)) return false;
      continue;
    }
    if (w->accumulator) {
      const loop *home = e->accumulators.v[w->accumulator - 1].home;
      if (home == l ? w->wcr == DC_WCR_NONE : !dc_cpu_is_inside(home, l)) return false;
    } else if (l->schedule == DC_MAP_REDUCE && !(e->homes.v[w->out] && dc_cont(e->graph, w->out)->storage == DC_STORE_REGISTER)) {
      return false; /* only accumulators leave a reduction that threads share */
    }
  }
  return true;
}

/* No register from outside is used inside; accumulators of l itself are handled apart. */
static bool needs_outer_register(emitter *e, const loop *l) {
  uint64_t reads = 0;
  for (uint32_t k = 0; k < e->writes.n; k++) {
    const write_item *w = e->writes.v[k];
    if (!dc_cpu_is_inside(w->parent, l)) continue;
    reads |= dc_cpu_fact(e, w->value)->reads | dc_cpu_fact(e, w->element)->reads;
    if (w->guard) reads |= dc_cpu_fact(e, w->guard)->reads;
    if (w->accumulator && e->accumulators.v[w->accumulator - 1].home == l) reads &= ~dc_cpu_container_bits(e, w->out);
  }
  for (dc_cid c = e->n_buffers + 1; c < e->graph->containers.n; c++)
    if (reads & dc_cpu_container_bits(e, c) && e->homes.v[c] && !dc_cpu_is_inside(e->homes.v[c], l)) return true;
  return false;
}

/* ---- work ---- */

static double fixed_extent(emitter *e, const loop *l) {
  return (double)(l->usual ? l->usual : dc_cpu_extent(e, l));
}

/* Nanoseconds of one iteration as a C expression. */
static void put_cost(emitter *e, const loop *l, uint32_t depth, dc_text *out) {
  double own = 1;
  for (uint32_t k = 0; k < l->body.n; k++) {
    const write_item *w = l->body.v[k].write;
    if (w) own += w->in_product ? PRODUCT_NS : dc_cpu_cost(e, w->value) + (w->accumulator ? 0.05 : 0.2) + (l->conflicts ? 1 : 0);
  }
  if (!dc_cpu_has_loops(l) && l->schedule != DC_MAP_SEQUENTIAL) own -= 1; /* loop overhead is shared by vectors */
  dc_text_printf(out, "%.2f", own);
  for (uint32_t k = 0; k < l->body.n; k++) {
    const loop *inner = l->body.v[k].loop;
    if (!inner) continue;
    double extent = fixed_extent(e, inner);
    fact begin = *dc_cpu_fact(e, inner->begin), end = *dc_cpu_fact(e, inner->end);
    dc_text_puts(out, " + ");
    if (extent >= 0) dc_text_printf(out, "%.1f", extent);
    else if (begin.level < depth && end.level < depth && begin.safe && end.safe)
      dc_text_printf(out, "(double)(%s - %s)", dc_cpu_value(e, inner->end), dc_cpu_value(e, inner->begin));
    else dc_text_puts(out, "16.0");
    dc_text_puts(out, " * (");
    put_cost(e, inner, depth, out);
    dc_text_puts(out, ")");
  }
}

/* ---- the function ---- */

typedef struct {
  dc_ex *live;
  uint32_t *locals, n;
  dc_text *out;
  int indent;
} saved_state;

static saved_state enter(emitter *e, dc_text *out) {
  saved_state s = {DC_NEW_ARRAY(e->arena, dc_ex, e->live.n), DC_NEW_ARRAY(e->arena, uint32_t, e->live.n), e->live.n, e->out, e->indent};
  for (uint32_t k = 0; k < e->live.n; k++) {
    s.live[k] = e->live.v[k];
    s.locals[k] = e->facts.v[s.live[k]].local;
  }
  dc_cpu_scope_close(e, 0);
  e->out = out, e->indent = 0, e->in_task = true;
  return s;
}

static void leave(emitter *e, saved_state s) {
  dc_cpu_scope_close(e, 0);
  for (uint32_t k = 0; k < s.n; k++) {
    DC_PUSH(e->arena, &e->live, s.live[k]);
    e->facts.v[s.live[k]].local = s.locals[k];
  }
  e->out = s.out, e->indent = s.indent, e->in_task = false;
}

/* Fixed slots of the vector v; then per loop of the chain its begin and count, then outer parameters. */
enum { V_BUFFERS, V_SYMBOLS, V_PARTS, V_BLOCKS, V_BLOCK, V_CHAIN };

static void outer_params(emitter *e, const loop *l, uint32_t slot) {
  for (const loop *at = l->parent; at && at->parent; at = at->parent)
    dc_cpu_line(e, "const i64 j%u = v[%u];", at->param, slot++);
}

static void decode(emitter *e, const chain *c) {
  uint32_t last = c->n - 1;
  for (uint32_t k = 0; k < c->n; k++) dc_cpu_line(e, "const i64 from%u = v[%u], n%u = v[%u];", k, V_CHAIN + 2 * k, k, V_CHAIN + 2 * k + 1);
  dc_cpu_line(e, "const i64 blocks = v[%d], block = v[%d];", V_BLOCKS, V_BLOCK);
  dc_cpu_line(e, "i64 rest = lo / blocks, piece = lo %% blocks;");
  for (uint32_t k = last; k-- > 0;) dc_cpu_line(e, "i64 at%u = rest %% n%u; rest /= n%u;", k, k, k);
}

static void advance(emitter *e, const chain *c) {
  dc_cpu_line(e, "t += taken;");
  dc_cpu_line(e, "if ((piece += taken) < blocks) continue;");
  dc_cpu_line(e, "piece = 0;");
  for (uint32_t k = c->n - 1; k-- > 0;) {
    dc_cpu_line(e, "if (++at%u < n%u) continue;", k, k);
    dc_cpu_line(e, "at%u = 0;", k);
  }
}

static void task_loops(emitter *e, loop *first, const chain *c) {
  loop *last = c->at[c->n - 1];
  decode(e, c);
  dc_cpu_line(e, "for (i64 t = lo; t < hi;) {");
  e->indent++;
  uint32_t mark = dc_cpu_scope_open(e);
  for (uint32_t k = 0; k + 1 < c->n; k++) dc_cpu_line(e, "const i64 j%u = from%u + at%u * %lld;", c->at[k]->param, k, k, (long long)c->at[k]->step);
  dc_cpu_line(e, "const i64 taken = hi - t < blocks - piece ? hi - t : blocks - piece;"); /* neighbours run as one */
  dc_cpu_line(e, "const i64 low = piece * block, high = low + taken * block < n%u ? low + taken * block : n%u;", c->n - 1, c->n - 1);
  dc_cpu_line(e, "const i64 begin = from%u + low * %lld, end = from%u + high * %lld;", c->n - 1, (long long)last->step, c->n - 1, (long long)last->step);
  if (c->sliced) {
    last->low = "begin", last->high = "end";
    dc_cpu_emit_range(e, first, dc_cpu_value(e, first->begin), dc_cpu_value(e, first->end));
    last->low = last->high = NULL;
  } else {
    dc_cpu_emit_range(e, last, "begin", "end");
  }
  dc_cpu_scope_close(e, mark);
  advance(e, c);
  e->indent--;
  dc_cpu_line(e, "}");
}

static bool is_kept(emitter *e, uint32_t a, const loop *l) { return l->schedule == DC_MAP_REDUCE && e->accumulators.v[a].home == l; }

static void put_function(emitter *e, loop *l, const chain *c, const char *suffix, bool parts) {
  dc_text text = {0};
  dc_text_puts(&text, "");
  saved_state state = enter(e, &text);
  dc_cpu_open_function(e, suffix, "const i64 *restrict symbols, const i64 *restrict v, i64 lo, i64 hi, i64 part");
  outer_params(e, l, V_CHAIN + 2 * c->n);
  if (parts) dc_cpu_open_accumulators(e, l);
  task_loops(e, l, c);
  if (parts) dc_cpu_line(e, "struct %s_%s_part *mine = (struct %s_%s_part *)v[%d] + part;", e->name, suffix, e->name, suffix, V_PARTS);
  for (uint32_t a = 0; parts && a < e->accumulators.n; a++)
    if (is_kept(e, a, l)) dc_cpu_line(e, "mine->a%u = a%u;", a, a);
  if (!parts) dc_cpu_line(e, "(void)part;");
  dc_cpu_close_function(e);
  dc_cpu_line(e, "static void %s_%s_task(const i64 *v, i64 lo, i64 hi, i64 part) {", e->name, suffix);
  dc_cpu_line(e, "  void *const *buffers = (void *const *)v[%d];", V_BUFFERS);
  dc_text_puts(&text, "  ");
  dc_cpu_call(e, suffix, dc_arena_printf(e->arena, "(const i64 *)v[%d], v, lo, hi, part", V_SYMBOLS), &text);
  dc_text_puts(&text, "\n}\n");
  leave(e, state);
  if (parts) {
    dc_text_printf(e->functions, "struct %s_%s_part {", e->name, suffix);
    for (uint32_t a = 0; a < e->accumulators.n; a++)
      if (is_kept(e, a, l)) dc_text_printf(e->functions, " %s a%u;", dc_cpu_accumulator_type(e->accumulators.v[a].type), a);
    dc_text_puts(e->functions, " };\n");
  }
  dc_text_puts(e->functions, text.s);
  dc_text_free(&text);
}

/* ---- the call ---- */

static void put_vector(emitter *e, const loop *l, const chain *c, bool parts) {
  dc_text v = {0};
  dc_text_printf(&v, "const i64 v[] = {(i64)buffers, (i64)symbols, %s, blocks, block", parts ? "(i64)parts" : "0");
  for (uint32_t k = 0; k < c->n; k++) dc_text_printf(&v, ", from%u, n%u", k, k);
  for (const loop *at = l->parent; at && at->parent; at = at->parent) dc_text_printf(&v, ", j%u", at->param);
  dc_cpu_line(e, "%s};", v.s);
  dc_text_free(&v);
}

static void put_call(emitter *e, loop *l, const chain *c, const char *suffix, bool parts) {
  const loop *last = c->at[c->n - 1];
  dc_text cost = {0};
  uint32_t mark = dc_cpu_scope_open(e);
  dc_cpu_line(e, "{");
  e->indent++;
  dc_cpu_line(e, "i64 outer = 1;");
  for (uint32_t k = 0; k < c->n; k++) {
    const char *begin = dc_cpu_value(e, c->at[k]->begin), *end = dc_cpu_value(e, c->at[k]->end);
    dc_cpu_line(e, "const i64 from%u = %s, n%u = %s > %s ? (%s - %s + %lld) / %lld : 0;", k, begin, k, end, begin, end, begin,
                (long long)c->at[k]->step - 1, (long long)c->at[k]->step);
    if (k + 1 < c->n) dc_cpu_line(e, "outer *= n%u;", k);
  }
  if (c->sliced) dc_text_printf(&cost, "(double)(%s - %s) / n0 * (", dc_cpu_value(e, l->end), dc_cpu_value(e, l->begin));
  put_cost(e, c->sliced ? l : last, l->depth, &cost);
  if (c->sliced) dc_text_puts(&cost, ")");
  dc_cpu_line(e, "const i64 n = n%u;", c->n - 1);
  dc_cpu_line(e, "const _Bool threads = (double)outer * (double)n * (%s) > %d;", cost.s, SERIAL_NS);
  dc_cpu_line(e, "const i64 block = threads ? block_of(outer, n, %d) : n ? n : 1, blocks = (n + block - 1) / block;",
              c->sliced ? LANES : last->product ? PRODUCT_ROWS : last->lanes ? (int)last->lanes : dc_cpu_has_loops(last) ? 1 : 256);
  if (parts) dc_cpu_line(e, "struct %s_%s_part parts[%d];", e->name, suffix, MAX_PARTS);
  put_vector(e, l, c, parts);
  dc_cpu_line(e, "i64 used = outer * blocks > 0;");
  dc_cpu_line(e, "if (used && threads) used = dc_kernel_run(%s_%s_task, v, outer * blocks, %d);", e->name, suffix, MAX_PARTS);
  dc_cpu_line(e, "else if (used) %s_%s_task(v, 0, outer * blocks, 0);", e->name, suffix);
  if (!parts) dc_cpu_line(e, "(void)used;");
  for (uint32_t a = 0; parts && a < e->accumulators.n; a++) {
    if (!is_kept(e, a, l)) continue;
    const accumulator *kept = &e->accumulators.v[a];
    const char *name = dc_arena_printf(e->arena, "a%u", a), *other = dc_arena_printf(e->arena, "parts[k].a%u", a);
    dc_cpu_line(e, "for (i64 k = 0; k < used; k++) a%u = %s;", a, dc_cpu_combine(e, (dc_wcr)kept->first->wcr, kept->type, name, other));
  }
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_cpu_line(e, "}");
  dc_text_free(&cost);
}

/* Less than a microsecond of work for certain. */
static bool is_tiny(emitter *e, const chain *c) {
  double total = 1;
  for (uint32_t k = 0; k < c->n; k++) {
    double extent = fixed_extent(e, c->at[k]);
    if (extent < 0) return false;
    total *= extent;
  }
  return !c->sliced && !dc_cpu_has_loops(c->at[c->n - 1]) && total < 2000;
}

bool dc_cpu_emit_tasks(emitter *e, loop *l) {
  chain c;
  if (e->in_task || e->lane || !l->is_entry || l->schedule == DC_MAP_SEQUENTIAL) return false;
  find_chain(e, l, &c);
  if (!c.n || is_tiny(e, &c) || !is_closed(e, l, l) || needs_outer_register(e, l)) return false;
  const char *suffix = dc_arena_printf(e->arena, "f%u", e->next_function++);
  bool parts = l->schedule == DC_MAP_REDUCE;
  put_function(e, l, &c, suffix, parts);
  put_call(e, l, &c, suffix, parts);
  return true;
}
