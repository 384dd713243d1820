/* Functions, and loops that threads share.
 *
 * A shared loop moves to a function of its own, whose buffers reach nothing else's memory.  It runs a range of tasks: the
 * outer loops of the map flattened, times blocks of the last one.  The place where the loop stood estimates the work,
 * and calls the function itself when threads would not pay.  What the function needs of its surroundings comes in a
 * vector of integers. */
#include "backends/printer/printer.h"

/* ---- functions ---- */

bool dc_print_may_overlap(const dc_printer *p, dc_cid c) {
  if (dc_cont(p->k->graph, c)->alias_of) return true;
  for (dc_cid k = 1; k <= p->k->n_buffers; k++)
    if (dc_cont(p->k->graph, k)->alias_of == c) return true;
  return false;
}

bool *dc_print_symbols(const dc_printer *p) {
  bool *used = DC_NEW_ARRAY(p->arena, bool, p->pool->symbols.n + 1);
  for (dc_ex x = 1; x < p->pool->nodes.n; x++)
    if (dc_ex_node(p->pool, x)->op == DC_EX_SYM) used[dc_ex_node(p->pool, x)->ref] = true;
  return used;
}

static void put_symbols(dc_printer *p) {
  const bool *used = dc_print_symbols(p);
  for (dc_sym s = 1; s < p->pool->symbols.n; s++)
    if (used[s]) dc_print_line(p, "const i64 s%u = symbols[%u];", s, s);
  dc_print_loose_names(p);
}

void dc_print_function(dc_printer *p, const char *suffix, const char *params) {
  dc_print_line(p, "%s void %s_%s(", p->dialect->function, p->name, suffix);
  p->indent += 2;
  for (dc_cid c = 1; c <= p->k->n_buffers; c++) {
    const char *written = p->k->root->writes & ((uint64_t)1 << (c < 63 ? c : 63)) ? "" : "const ";
    const char *type = p->dialect->types[dc_cont(p->k->graph, c)->dtype].storage;
    dc_print_line(p, "%s%s *%s%sb%u,", written, type, dc_print_may_overlap(p, c) ? "" : p->dialect->no_alias,
                  dc_print_may_overlap(p, c) ? "" : " ", c);
  }
  dc_print_line(p, "i64 *error, %s) {", params);
  p->indent--;
  dc_print_line(p, "i64 bad = 0;");
  put_symbols(p);
}

void dc_print_function_end(dc_printer *p) {
  dc_print_line(p, "if (bad) __atomic_store_n(error, bad, __ATOMIC_RELAXED);");
  dc_print_close(p);
}

void dc_print_call(dc_printer *p, const char *suffix, const char *args, dc_text *out) {
  dc_text_printf(out, "%s_%s(", p->name, suffix);
  for (dc_cid c = 1; c <= p->k->n_buffers; c++) dc_text_printf(out, "buffers[%u], ", c - 1);
  dc_text_printf(out, "buffers[-1], %s);", args);
}

/* ---- which loops ---- */

static uint32_t count(const dc_loop *l) { return l->threads->sliced ? 1 : l->threads->n; }

static const dc_loop *shared(const dc_loop *l, uint32_t k) {
  if (l->threads->sliced) return l->threads->slice;
  for (; k; k--) l = l->body.v[0].loop;
  return l;
}

static bool has_parts(const dc_loop *l) { return l->schedule == DC_MAP_REDUCE; }

/* ---- the function ---- */

static void enter(dc_printer *p, dc_task *t) {
  t->n_live = p->live.n, t->live = DC_NEW_ARRAY(p->arena, dc_ex, p->live.n), t->locals = DC_NEW_ARRAY(p->arena, uint32_t, p->live.n);
  for (uint32_t k = 0; k < p->live.n; k++) {
    t->live[k] = p->live.v[k];
    t->locals[k] = p->locals.v[t->live[k]];
  }
  t->out = p->out, t->indent = p->indent;
  dc_print_scope_end(p, 0);
  p->out = &t->text, p->indent = 0, p->in_task = true;
}

static void leave(dc_printer *p, const dc_task *t) {
  dc_print_scope_end(p, 0);
  for (uint32_t k = 0; k < t->n_live; k++) dc_print_bind(p, t->live[k], t->locals[k]);
  p->out = t->out, p->indent = t->indent, p->in_task = false;
}

/* Fixed slots of the vector v; then per shared loop its begin and count, then outer parameters. */
enum { V_BUFFERS, V_SYMBOLS, V_PARTS, V_BLOCKS, V_BLOCK, V_LOOPS };

static void decode(dc_printer *p, const dc_loop *l) {
  uint32_t n = count(l), slot = V_LOOPS + 2 * n;
  for (const dc_loop *at = l->parent; at->parent; at = at->parent) dc_print_line(p, "const i64 j%u = v[%u];", at->param, slot++);
  for (uint32_t k = 0; k < n; k++) dc_print_line(p, "const i64 from%u = v[%u], n%u = v[%u];", k, V_LOOPS + 2 * k, k, V_LOOPS + 2 * k + 1);
  dc_print_line(p, "const i64 blocks = v[%d], block = v[%d];", V_BLOCKS, V_BLOCK);
  dc_print_line(p, "i64 rest = lo / blocks, piece = lo %% blocks;");
  for (uint32_t k = n - 1; k-- > 0;) dc_print_line(p, "i64 at%u = rest %% n%u; rest /= n%u;", k, k, k);
}

static void advance(dc_printer *p, const dc_loop *l) {
  dc_print_line(p, "t += taken;");
  dc_print_line(p, "if ((piece += taken) < blocks) continue;");
  dc_print_line(p, "piece = 0;");
  for (uint32_t k = count(l) - 1; k-- > 0;) {
    dc_print_line(p, "if (++at%u < n%u) continue;", k, k);
    dc_print_line(p, "at%u = 0;", k);
  }
}

void dc_print_task_begin(dc_printer *p, const dc_loop *l, dc_task *t) {
  uint32_t last = count(l) - 1;
  *t = (dc_task){.first = l, .last = shared(l, last), .suffix = dc_arena_printf(p->arena, "f%u", p->next_function++)};
  dc_text_puts(&t->text, "");
  enter(p, t);
  dc_print_function(p, t->suffix, "const i64 *restrict symbols, const i64 *restrict v, i64 lo, i64 hi, i64 part");
  if (has_parts(l)) dc_print_accumulators(p, l, false);
  decode(p, l);
  dc_print_open(p, "for (i64 t = lo; t < hi;)");
  t->mark = dc_print_scope(p);
  for (uint32_t k = 0; k < last; k++)
    dc_print_line(p, "const i64 j%u = from%u + at%u * %lld;", shared(l, k)->param, k, k, (long long)shared(l, k)->step);
  const long long step = t->last->step;
  dc_print_line(p, "const i64 taken = hi - t < blocks - piece ? hi - t : blocks - piece;"); /* neighbours run as one */
  dc_print_line(p, "const i64 low = piece * block, high = low + taken * block < n%u ? low + taken * block : n%u;", last, last);
  dc_print_line(p, "const i64 begin = from%u + low * %lld, end = from%u + high * %lld;", last, step, last, step);
}

/* The sums of a thread, where the caller finds them. */
static void put_parts(dc_printer *p, const dc_task *t) {
  dc_print_fold(p, t->first);
  dc_print_line(p, "struct %s_%s_part *mine = (struct %s_%s_part *)v[%d] + part;", p->name, t->suffix, p->name, t->suffix, V_PARTS);
  dc_text_printf(p->functions, "struct %s_%s_part {", p->name, t->suffix);
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (p->k->accumulators.v[a].home != t->first) continue;
    dc_print_line(p, "mine->a%u = %s;", a, p->sums[a].name);
    dc_text_printf(p->functions, " %s a%u;", dc_print_accumulator_type(p, a), a);
  }
  dc_text_puts(p->functions, " };\n");
}

static void end_function(dc_printer *p, dc_task *t) {
  dc_print_scope_end(p, t->mark);
  advance(p, t->first);
  dc_print_close(p);
  if (has_parts(t->first)) put_parts(p, t);
  else dc_print_line(p, "(void)part;");
  dc_print_function_end(p);
  dc_print_line(p, "static void %s_%s_task(const i64 *v, i64 lo, i64 hi, i64 part) {", p->name, t->suffix);
  dc_print_line(p, "  void *const *buffers = (void *const *)v[%d];", V_BUFFERS);
  dc_text_puts(&t->text, "  ");
  dc_print_call(p, t->suffix, dc_arena_printf(p->arena, "(const i64 *)v[%d], v, lo, hi, part", V_SYMBOLS), &t->text);
  dc_text_puts(&t->text, "\n}\n");
  leave(p, t);
  dc_text_puts(p->functions, t->text.s);
  dc_text_free(&t->text);
}

/* ---- the call ---- */

/* What a part, if there is one, says of the loop in place of its own ends. */
static const char *or_part(const dc_printer *p, const dc_loop *l, const char *given, const char *own) {
  return l == dc_kernel_divided(p->k) ? dc_arena_printf(p->arena, "part ? %s : %s", given, own) : own;
}

static void put_counts(dc_printer *p, const dc_loop *l) {
  dc_print_line(p, "i64 outer = 1;");
  for (uint32_t k = 0; k < count(l); k++) {
    const dc_loop *at = shared(l, k);
    const char *begin = dc_print_value(p, at->begin), *end = dc_print_value(p, at->end);
    const char *n = dc_arena_printf(p->arena, "%s > %s ? (%s - %s + %lld) / %lld : 0", end, begin, end, begin, (long long)at->step - 1,
                                    (long long)at->step);
    dc_print_line(p, "const i64 from%u = %s, n%u = %s;", k, or_part(p, at, "part[0]", begin), k, or_part(p, at, "part[1] - part[0]", n));
    if (k + 1 < count(l)) dc_print_line(p, "outer *= n%u;", k);
  }
  dc_print_line(p, "const i64 n = n%u;", count(l) - 1);
}

static void put_vector(dc_printer *p, const dc_loop *l) {
  dc_text v = {0};
  dc_text_printf(&v, "const i64 v[] = {(i64)buffers, (i64)symbols, %s, blocks, block", has_parts(l) ? "(i64)parts" : "0");
  for (uint32_t k = 0; k < count(l); k++) dc_text_printf(&v, ", from%u, n%u", k, k);
  for (const dc_loop *at = l->parent; at->parent; at = at->parent) dc_text_printf(&v, ", j%u", at->param);
  dc_print_line(p, "%s};", v.s);
  dc_text_free(&v);
}

static void put_totals(dc_printer *p, const dc_loop *l) {
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    const dc_accumulator *kept = &p->k->accumulators.v[a];
    if (kept->home != l) continue;
    const char *name = dc_arena_printf(p->arena, "a%u", a), *other = dc_arena_printf(p->arena, "parts[k].a%u", a);
    dc_print_line(p, "for (i64 k = 0; k < used; k++) %s = %s;", name,
                  dc_print_combine(p, (dc_wcr)kept->first->wcr, kept->type, name, other));
    p->sums[a].name = name, p->sums[a].width = 0;
  }
}

static void put_call(dc_printer *p, const dc_task *t) {
  const dc_loop *l = t->first;
  uint32_t mark = dc_print_scope(p);
  dc_print_open(p, "");
  put_counts(p, l);
  const char *cost = dc_print_value(p, l->threads->cost);
  if (l->threads->sliced)
    cost = dc_arena_printf(p->arena, "(double)(%s - %s) / n0 * %s", dc_print_value(p, l->end), dc_print_value(p, l->begin), cost);
  dc_print_line(p, "const _Bool threads = %s(double)outer * (double)n * %s > %u;", l == dc_kernel_divided(p->k) ? "!part && " : "", cost,
                p->k->graph->machine.serial_ns);
  dc_print_line(p, "const i64 block = threads ? block_of(outer, n, %lld) : n ? n : 1, blocks = (n + block - 1) / block;",
                (long long)l->threads->block);
  if (has_parts(l)) dc_print_line(p, "struct %s_%s_part parts[%d];", p->name, t->suffix, DC_MAX_PARTS);
  put_vector(p, l);
  dc_print_line(p, "i64 used = outer * blocks > 0;");
  dc_print_line(p, "if (used && threads) used = dc_kernel_run(%s_%s_task, v, outer * blocks, %d);", p->name, t->suffix, DC_MAX_PARTS);
  dc_print_line(p, "else if (used) %s_%s_task(v, 0, outer * blocks, 0);", p->name, t->suffix);
  if (has_parts(l)) put_totals(p, l);
  else dc_print_line(p, "(void)used;");
  dc_print_scope_end(p, mark);
  dc_print_close(p);
}

void dc_print_task_end(dc_printer *p, dc_task *t) {
  end_function(p, t);
  put_call(p, t);
}
