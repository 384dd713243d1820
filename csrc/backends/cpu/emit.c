/* Loops and writes as C, and kernels as functions.
 *
 * A loop is printed body first: what the body turned out to need (reductions, the index flag)
 * decides its pragma.  Before a loop come the values that it does not change.  tasks.c splits
 * loops between threads. */
#include "backends/cpu/emit.h"

#include <assert.h>
#include <string.h>

#include "backends/cpu/print.h"

/* ---- pieces ---- */

static bool is_true(emitter *e, dc_ex x) {
  int64_t truth;
  return dc_ex_is_int(e->pool, x, &truth) && truth;
}

static const char *local(emitter *e, dc_dtype type, const char *text) {
  dc_cpu_line(e, "const %s t%u = %s;", dc_cpu_type(type)->compute, e->next_local, text);
  return dc_arena_printf(e->arena, "t%u", e->next_local++);
}

static const char *around(emitter *e, const char *pattern, const char *atom) {
  const char *at = strchr(pattern, '$');
  return dc_arena_printf(e->arena, "%.*s%s%s", (int)(at - pattern), pattern, atom, at + 1);
}

static bool is_register(emitter *e, dc_cid c) { return dc_cont(e->graph, c)->storage == DC_STORE_REGISTER; }

static const char *loaded(emitter *e, dc_cid c, const char *element) {
  return is_register(e, c) ? element : around(e, dc_cpu_type((dc_dtype)dc_cont(e->graph, c)->dtype)->load, element);
}

/* `atom` is of the container's type already. */
static void store(emitter *e, dc_cid c, dc_ex address, const char *atom) {
  const char *element = dc_cpu_element(e, c, address);
  const char *pattern = is_register(e, c) ? "$" : dc_cpu_type((dc_dtype)dc_cont(e->graph, c)->dtype)->store;
  dc_cpu_line(e, "%s = %s;", element, around(e, pattern, atom));
}

static void open_block(emitter *e, const char *head) {
  dc_cpu_line(e, "%s {", head);
  e->indent++;
}

static void close_block(emitter *e) {
  e->indent--;
  dc_cpu_line(e, "}");
}

/* ---- writes ---- */

static void accumulate(emitter *e, const write_item *w) {
  const accumulator *a = &e->accumulators.v[w->accumulator - 1];
  const char *name = a->name;
  dc_exnode value = *dc_ex_node(e->pool, w->value);
  bool product = value.op == DC_MUL && value.dtype == a->type && dc_dtype_is_float(a->type);
  if (product && w->wcr == DC_WCR_SUM && !dc_cpu_fact(e, w->value)->local) { /* one rounding less */
    const char *x = dc_cpu_value(e, dc_ex_arg(e->pool, w->value, 0));
    const char *y = dc_cpu_value(e, dc_ex_arg(e->pool, w->value, 1));
    dc_cpu_line(e, "%s = fma_%s(%s, %s, %s);", name, dc_cpu_type(a->type)->kind, x, y, name);
    return;
  }
  const char *text = dc_cpu_cast(e, a->type, dc_ex_dtype(e->pool, w->value), dc_cpu_value(e, w->value));
  const char *atom = local(e, a->type, text);
  dc_cpu_line(e, "%s = %s;", name, dc_cpu_combine(e, (dc_wcr)w->wcr, a->type, name, atom));
}

static void write_memory(emitter *e, const write_item *w, bool certain) {
  dc_dtype type = (dc_dtype)dc_cont(e->graph, w->out)->dtype, compute = dc_dtype_compute(type);
  dc_ex address = dc_cpu_fact(e, w->element)->address;
  dc_dtype from = dc_ex_dtype(e->pool, w->value);
  const char *value = dc_cpu_value(e, w->value), *atom = value;
  if (w->wcr) {
    const char *element = dc_cpu_element(e, w->out, address);
    const char *more = local(e, compute, dc_cpu_cast(e, compute, from, value));
    const char *old = local(e, compute, loaded(e, w->out, element));
    value = local(e, compute, dc_cpu_combine(e, (dc_wcr)w->wcr, compute, old, more));
    from = compute;
  }
  if (from != type) atom = local(e, type, dc_cpu_cast(e, type, from, value));
  else atom = value;
  store(e, w->out, address, atom);
  dc_cpu_forget(e, dc_cpu_container_bits(e, w->out));
  if (certain) dc_cpu_remember(e, w->element, atom);
}

static void emit_write(emitter *e, const write_item *w) {
  e->ordinal = w->ordinal;
  uint32_t mark = dc_cpu_scope_open(e), blocks = 0;
  dc_ex check = dc_cpu_fact(e, w->element)->check;
  if (w->guard) {
    open_block(e, dc_arena_printf(e->arena, "if (%s)", dc_cpu_value(e, w->guard)));
    mark = dc_cpu_scope_open(e);
    blocks++;
  }
  if (check) {
    const char *inside = dc_cpu_value(e, check);
    dc_cpu_line(e, "bad = %s ? bad : %u;", inside, w->ordinal + 1);
    e->flagged = true;
    open_block(e, dc_arena_printf(e->arena, "if (%s)", inside));
    if (!blocks) mark = dc_cpu_scope_open(e);
    blocks++;
  }
  if (w->accumulator) accumulate(e, w);
  else write_memory(e, w, blocks == 0);
  if (blocks) dc_cpu_scope_close(e, mark);
  while (blocks--) close_block(e);
}

/* ---- pragmas ---- */

/* The OpenMP reduction of an accumulator, in whatever order the compiler likes; NULL if the order shows in the result. */
static const char *reduction_of(const accumulator *a) {
  static const char *const integers[] = {[DC_WCR_SUM] = "+", [DC_WCR_PROD] = "*", [DC_WCR_MIN] = "min", [DC_WCR_MAX] = "max"};
  uint8_t wcr = a->first->wcr;
  if (dc_dtype_is_float(a->type)) return NULL;
  if (a->type == DC_BOOL) return wcr == DC_WCR_SUM || wcr == DC_WCR_MAX ? "|" : "&";
  return integers[wcr];
}

/* Returns whether vectors may run the body: not where it adds up floats in order. */
static bool pragma_simd(emitter *e, const loop *body, dc_text *out) {
  dc_text pragma = {0};
  bool ordered = false;
  dc_text_puts(&pragma, "#pragma omp simd");
  for (uint32_t k = 0; k < e->accumulators.n; k++) {
    const accumulator *a = &e->accumulators.v[k];
    if (dc_cpu_is_laned(e, a) || !dc_cpu_accumulates(body, k, false)) continue;
    const char *reduction = reduction_of(a);
    if (reduction) dc_text_printf(&pragma, " reduction(%s : %s)", reduction, a->name);
    ordered |= !reduction;
  }
  if (e->flagged) dc_text_puts(&pragma, " reduction(max : bad)");
  if (!ordered) dc_text_printf(out, "%s\n", pragma.s);
  dc_text_free(&pragma);
  return !ordered;
}

/* Vectors may run the iterations of an innermost loop unless they collide. */
static bool is_vectorised(emitter *e, const loop *l) {
  if (dc_cpu_has_loops(l) || l->schedule == DC_MAP_SEQUENTIAL || l->conflicts || e->lane) return false;
  for (uint32_t k = 0; k < l->body.n; k++) {
    const write_item *w = l->body.v[k].write;
    if (!w->accumulator && is_register(e, w->out) && e->homes.v[w->out] != l) return false;
  }
  return true;
}

/* ---- loops ---- */

void dc_cpu_open_text(emitter *e, saved_text *s) {
  *s = (saved_text){.outer = e->out, .flagged = e->flagged};
  dc_text_puts(&s->inner, "");
  e->out = &s->inner;
  e->flagged = false;
}

void dc_cpu_close_text(emitter *e, saved_text *s) {
  e->out = s->outer;
  dc_text_puts(e->out, s->inner.s);
  dc_text_free(&s->inner);
  e->flagged = e->flagged || s->flagged;
}

static void hoist_write(emitter *e, const write_item *w, uint32_t level, uint64_t writes) {
  fact f = *dc_cpu_fact(e, w->element);
  if (w->guard) dc_cpu_hoist(e, w->guard, level, writes);
  dc_cpu_hoist(e, w->value, level, writes);
  dc_cpu_hoist(e, f.address, level, writes);
  if (f.check) dc_cpu_hoist(e, f.check, level, writes);
}

static void hoist_body(emitter *e, const loop *l, uint32_t level, uint64_t writes) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const loop *inner = l->body.v[k].loop;
    if (inner) {
      dc_cpu_hoist(e, inner->begin, level, writes);
      dc_cpu_hoist(e, inner->end, level, writes);
      hoist_body(e, inner, level, writes);
    } else {
      hoist_write(e, l->body.v[k].write, level, writes);
    }
  }
}

/* Opens a loop over the lanes of the enclosing strip; `run` holds the writes to come. */
static void open_lanes(emitter *e, saved_text *s, uint32_t *mark) {
  dc_cpu_open_text(e, s);
  *mark = dc_cpu_scope_open(e);
  e->in_lane = true;
  e->indent++;
}

static void close_lanes(emitter *e, saved_text *s, uint32_t mark, const loop *run) {
  dc_cpu_scope_close(e, mark);
  e->in_lane = false;
  e->indent--;
  (void)pragma_simd(e, run, s->outer);
  dc_text_indent(s->outer, e->indent);
  dc_text_printf(s->outer, "for (i64 l = 0; l < lanes; l++) {\n");
  dc_text_indent(s->outer, e->indent + 1);
  dc_text_printf(s->outer, "const i64 j%u = p%u + l;\n", e->lane->param, e->lane->param);
  dc_cpu_close_text(e, s);
  dc_cpu_line(e, "}");
}

/* Writes that follow one another; in a strip they share a loop over its lanes. */
static void emit_run(emitter *e, const item *items, uint32_t n) {
  bool lanes = e->lane && !e->in_lane;
  loop run = {.body = {.v = (item *)items, .n = n}};
  saved_text text;
  uint32_t mark = 0;
  if (lanes) {
    uint64_t writes = 0;
    for (uint32_t k = 0; k < n; k++) writes |= dc_cpu_container_bits(e, items[k].write->out);
    dc_cpu_forget(e, writes);
    e->stamp++;
    hoist_body(e, &run, LANE_LEVEL, writes);
    open_lanes(e, &text, &mark);
  }
  for (uint32_t k = 0; k < n; k++) emit_write(e, items[k].write);
  if (lanes) close_lanes(e, &text, mark, &run);
}

/* Locals of C for the registers that live in the body of l. */
static void declare_registers(emitter *e, const loop *l) {
  for (dc_cid c = 1; c < e->homes.n; c++) {
    if (!is_register(e, c) || e->homes.v[c] != l || dc_cpu_block_element(e, c)) continue;
    const type_row *type = dc_cpu_type((dc_dtype)dc_cont(e->graph, c)->dtype);
    int64_t size = 1, extent = 1;
    for (uint32_t d = 0; d < dc_cont(e->graph, c)->rank; d++)
      if (dc_ex_is_int(e->pool, dc_cont(e->graph, c)->shape[d], &extent)) size *= extent;
    if (e->lane) dc_cpu_line(e, "%s r%u[%lld];", type->compute, c, (long long)size * e->lane->lanes);
    else if (dc_cont(e->graph, c)->rank == 0) dc_cpu_line(e, "%s r%u;", type->compute, c);
    else dc_cpu_line(e, "%s r%u[%lld];", type->compute, c, (long long)(size ? size : 1));
  }
}

void dc_cpu_emit_body(emitter *e, loop *l) {
  declare_registers(e, l);
  for (uint32_t k = 0; k < l->body.n;) {
    uint32_t end = k;
    while (end < l->body.n && l->body.v[end].write) end++;
    if (end > k) emit_run(e, l->body.v + k, end - k);
    else dc_cpu_emit_loop(e, l->body.v[end++].loop);
    k = end;
  }
}

static void emit_strips(emitter *e, loop *l, const char *begin, const char *end) {
  saved_text text;
  dc_cpu_line(e, "i64 p%u = %s;", l->param, begin);
  dc_cpu_open_text(e, &text);
  uint32_t mark = dc_cpu_scope_open(e);
  e->lane = l;
  e->indent++;
  dc_cpu_emit_body(e, l);
  e->indent--;
  e->lane = NULL;
  dc_cpu_scope_close(e, mark);
  e->out = text.outer;
  int64_t extent = dc_cpu_extent(e, l), rest = extent < 0 ? -1 : extent % l->lanes; /* tasks end at whole strips */
  if (extent < 0 || extent >= l->lanes) {
    dc_cpu_line(e, "for (; p%u + %u <= %s; p%u += %u) {", l->param, l->lanes, end, l->param, l->lanes);
    dc_cpu_line(e, "  enum { lanes = %u };", l->lanes);
    dc_text_puts(e->out, text.inner.s);
    dc_cpu_line(e, "}");
  }
  if (rest == 0) text.inner.s[0] = 0;
  if (rest != 0) dc_cpu_line(e, "if (p%u < %s) {", l->param, end);
  if (rest > 0) dc_cpu_line(e, "  enum { lanes = %lld };", (long long)rest);
  if (rest < 0) dc_cpu_line(e, "  const i64 lanes = %s - p%u;", end, l->param);
  dc_cpu_close_text(e, &text);
  if (rest != 0) dc_cpu_line(e, "}");
}

static uint32_t open_body(emitter *e, saved_text *text) {
  dc_cpu_open_text(e, text);
  e->indent++;
  return dc_cpu_scope_open(e);
}

static void close_body(emitter *e, uint32_t mark) {
  dc_cpu_scope_close(e, mark);
  e->indent--;
}

/* ---- joined blocks ---- */

enum { JOINED_BLOCKS = 4 };

static bool uses(emitter *e, dc_ex x, dc_param p) { return x && dc_ex_uses_param(e->pool, x, p); }

static bool uses_inside(emitter *e, const loop *l, dc_param p) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const loop *inner = l->body.v[k].loop;
    const write_item *w = l->body.v[k].write;
    if (w ? uses(e, w->element, p) || uses(e, w->value, p) || uses(e, w->guard, p) : uses(e, inner->begin, p) || uses(e, inner->end, p) || uses_inside(e, inner, p))
      return true;
  }
  return false;
}

/* Inside l, p stands only where loops begin and, as `stop`, where they end; what one element leaves in a register stays
 * in such a loop. */
static bool only_bounds(emitter *e, const loop *l, dc_param p, dc_ex stop) {
  for (dc_cid c = 1; c < e->homes.n; c++)
    if (is_register(e, c) && e->homes.v[c] == l) return false;
  for (uint32_t k = 0; k < l->body.n; k++) {
    const loop *inner = l->body.v[k].loop;
    const write_item *w = l->body.v[k].write;
    if (w) return false; /* outside of all such loops */
    bool block = inner->begin == dc_ex_par(e->pool, p) && inner->end == stop && inner->step == 1 && !inner->usual;
    if (!block && (uses(e, inner->begin, p) || uses(e, inner->end, p) || !only_bounds(e, inner, p, stop))) return false;
    if (block && uses_inside(e, inner, p)) return false;
  }
  return true;
}

/* Iterations of a parallel loop over blocks of elements may run as one larger block. */
static dc_ex joined_end(emitter *e, const loop *l) {
  if (l->step == 1 || l->schedule != DC_MAP_PARALLEL) return 0;
  dc_ex stop = dc_ix_add(e->pool, dc_ex_par(e->pool, l->param), dc_ex_int(e->pool, l->step)), least = dc_ix_min(e->pool, stop, l->end);
  return only_bounds(e, l, l->param, stop) ? stop : only_bounds(e, l, l->param, least) ? least : 0;
}

/* Each round takes as many of the task's elements as share a fetch of what all of them read. */
static void emit_joined(emitter *e, loop *l, dc_ex stop, const char *begin, const char *end) {
  const char *limit = dc_cpu_value(e, l->end);
  int64_t most = JOINED_BLOCKS * l->step;
  saved_text text;
  uint32_t mark = open_body(e, &text);
  dc_cpu_line(e, "const i64 most%u = j%u + %lld < %s ? j%u + %lld : %s;", l->param, l->param, (long long)most, end, l->param, (long long)most, end);
  dc_cpu_remember(e, stop, local(e, DC_I64, dc_arena_printf(e->arena, "most%u < %s ? most%u : %s", l->param, limit, l->param, limit)));
  dc_cpu_emit_body(e, l);
  close_body(e, mark);
  dc_text_indent(text.outer, e->indent);
  dc_text_printf(text.outer, "for (i64 j%u = %s; j%u < %s; j%u += %lld) {\n", l->param, begin, l->param, end, l->param, (long long)most);
  dc_cpu_close_text(e, &text);
  dc_cpu_line(e, "}");
}

void dc_cpu_emit_range(emitter *e, loop *l, const char *begin, const char *end) {
  dc_cpu_forget(e, l->writes);
  e->stamp++;
  hoist_body(e, l, l->depth, l->writes);
  if (l->product) {
    dc_cpu_emit_product(e, l->product, begin, end);
    return;
  }
  if (l->lanes) {
    emit_strips(e, l, begin, end);
    return;
  }
  dc_ex stop = joined_end(e, l);
  if (stop) {
    emit_joined(e, l, stop, begin, end);
    return;
  }
  if (dc_cpu_emit_copy(e, l, begin, end)) return;
  uint32_t lanes = is_vectorised(e, l) ? dc_cpu_lanes(e, l) : 0;
  dc_cpu_emit_sums(e, l, lanes, begin, end);
}

void dc_cpu_emit_plain(emitter *e, loop *l, const char *begin, const char *end) {
  saved_text text;
  uint32_t mark = open_body(e, &text);
  dc_cpu_emit_body(e, l);
  close_body(e, mark);
  bool vectors = is_vectorised(e, l) && pragma_simd(e, l, text.outer);
  dc_text_indent(text.outer, e->indent);
  dc_text_printf(text.outer, "for (i64 j%u = %s; j%u < %s; j%u += %lld) {%s\n", l->param, begin, l->param, end, l->param,
                 (long long)l->step, vectors || dc_cpu_has_loops(l) || e->lane ? "" : " IN_ORDER");
  dc_cpu_close_text(e, &text);
  dc_cpu_line(e, "}");
}

/* ---- reductions ---- */

/* Stores the identity into every element that w may write inside `home`, loop by loop. */
static void emit_identity(emitter *e, loop *home, const write_item *w) {
  DC_VEC(loop *) path = {0};
  uint32_t used = 0;
  for (loop *l = w->parent; l != home->parent; l = l->parent) {
    bool needed = dc_ex_uses_param(e->pool, w->element, l->param);
    for (uint32_t k = 0; k < path.n && !needed; k++)
      needed = dc_ex_uses_param(e->pool, path.v[k]->begin, l->param) || dc_ex_uses_param(e->pool, path.v[k]->end, l->param);
    if (needed) DC_PUSH(e->arena, &path, l);
  }
  uint32_t mark = dc_cpu_scope_open(e);
  open_block(e, "");
  for (uint32_t k = path.n; k-- > 0; used++) {
    const loop *l = path.v[k];
    const char *begin = dc_cpu_value(e, l->begin), *end = dc_cpu_value(e, l->end);
    open_block(e, dc_arena_printf(e->arena, "for (i64 j%u = %s; j%u < %s; j%u += %lld)", l->param, begin, l->param, end, l->param,
                                  (long long)l->step));
  }
  dc_ex inside = dc_cpu_in_bounds(e, w);
  dc_dtype type = (dc_dtype)dc_cont(e->graph, w->out)->dtype;
  if (!is_true(e, inside)) open_block(e, dc_arena_printf(e->arena, "if (%s)", dc_cpu_value(e, inside))), used++;
  store(e, w->out, dc_cpu_fact(e, w->element)->address, dc_cpu_constant(e, type, dc_wcr_identity((dc_wcr)w->wcr, type)));
  dc_cpu_scope_close(e, mark);
  while (used--) close_block(e);
  close_block(e);
  dc_cpu_forget(e, dc_cpu_container_bits(e, w->out));
}

static void identities(emitter *e, loop *home, const loop *at) {
  for (uint32_t k = 0; k < at->body.n; k++) {
    const write_item *w = at->body.v[k].write;
    if (!w) {
      identities(e, home, at->body.v[k].loop);
      continue;
    }
    bool kept = w->accumulator && e->accumulators.v[w->accumulator - 1].home == home;
    bool inner = is_register(e, w->out) && dc_cpu_is_inside(e->homes.v[w->out], home);
    if (!w->wcr || kept || inner) continue;
    saved_text text;
    uint32_t mark = 0;
    loop none = {0};
    bool lanes = e->lane && !e->in_lane;
    if (lanes) open_lanes(e, &text, &mark);
    emit_identity(e, home, w);
    if (lanes) close_lanes(e, &text, mark, &none);
  }
}

static void close_accumulator(emitter *e, uint32_t k) {
  accumulator a = e->accumulators.v[k];
  bool lanes = dc_cpu_is_laned(e, &a);
  saved_text text;
  uint32_t mark = 0;
  loop none = {0};
  dc_cid c = a.first->out;
  dc_dtype type = (dc_dtype)dc_cont(e->graph, c)->dtype;
  dc_ex inside = dc_cpu_in_bounds(e, a.first), address = dc_cpu_fact(e, a.first->element)->address;
  if (lanes) open_lanes(e, &text, &mark);
  const char *atom = local(e, type, dc_cpu_cast(e, type, a.type, a.name));
  bool sure = is_true(e, inside);
  if (!sure) open_block(e, dc_arena_printf(e->arena, "if (%s)", dc_cpu_value(e, inside)));
  store(e, c, address, atom);
  if (!sure) close_block(e);
  if (lanes) close_lanes(e, &text, mark, &none);
  else if (sure) dc_cpu_remember(e, a.first->element, atom);
}

static void close_accumulators(emitter *e, const loop *home) {
  for (uint32_t k = 0; k < e->accumulators.n; k++)
    if (e->accumulators.v[k].home == home) close_accumulator(e, k);
}

void dc_cpu_emit_loop(emitter *e, loop *l) {
  bool reduces = l->is_entry && l->schedule == DC_MAP_REDUCE;
  if (reduces) {
    identities(e, l, l);
    dc_cpu_open_accumulators(e, l);
  }
  if (!dc_cpu_emit_tasks(e, l)) {
    const char *begin = l->low ? l->low : dc_cpu_value(e, l->begin), *end = l->high ? l->high : dc_cpu_value(e, l->end);
    dc_cpu_emit_range(e, l, begin, end);
  }
  dc_cpu_forget(e, l->writes);
  if (reduces) close_accumulators(e, l);
}

/* ---- kernels ---- */

static void emit_kernel(emitter *e, dc_text *out) {
  dc_text functions = {0}, body = {0};
  dc_text_puts(&functions, "");
  e->functions = &functions;
  e->out = &body;
  dc_cpu_open_function(e, "root", "void *const *buffers, const i64 *symbols");
  dc_cpu_emit_body(e, &e->root);
  dc_cpu_close_function(e);
  dc_text_puts(out, functions.s);
  dc_text_puts(out, body.s);
  dc_text_printf(out, "void %s(void *const *buffers, const i64 *symbols) { ", e->name);
  dc_cpu_call(e, "root", "buffers, symbols", out);
  dc_text_puts(out, " }\n");
  dc_text_free(&functions);
  dc_text_free(&body);
}

dc_status dc_cpu_emit_kernel(const dc_graph *graph, dc_nid node, const char *name, dc_text *out) {
  uint32_t n = dc_kernel_buffers(graph, node, NULL, 0);
  dc_arena arena = {0};
  dc_cid *buffers = DC_NEW_ARRAY(&arena, dc_cid, n);
  n = dc_kernel_buffers(graph, node, buffers, n); /* the first call only bounds it */
  dc_graph *kernel = NULL;
  dc_nid copy = 0;
  dc_status status = dc_cpu_extract(graph, node, buffers, n, &kernel, &copy);
  if (!status) {
    emitter e = {.graph = kernel, .pool = &kernel->pool, .arena = &kernel->arena, .name = name, .n_buffers = n};
    status = dc_cpu_plan(&e, copy);
    if (!status) emit_kernel(&e, out);
  }
  dc_graph_destroy(kernel);
  dc_arena_free(&arena);
  return status;
}

dc_status dc_cpu_emit(const dc_graph *graph, dc_nid node, const char *function_name, dc_text *out) {
  dc_text kernel = {0};
  dc_status status = dc_cpu_emit_kernel(graph, node, function_name, &kernel);
  if (!status) {
    dc_cpu_library(kernel.s, out);
    dc_text_puts(out, kernel.s);
  }
  dc_text_free(&kernel);
  return status;
}
