/* What the body of a loop does: writes, and what stands around them. */
#include "backends/printer/printer.h"

static const char *loaded(dc_printer *p, dc_cid c, const char *element) {
  return dc_kernel_is_register(p->k, c) ? element : dc_print_around(p, p->dialect->types[dc_cont(p->k->graph, c)->dtype].load, element);
}

void dc_print_store(dc_printer *p, dc_cid c, dc_ex address, const char *atom) {
  const char *element = dc_print_element(p, c, address);
  const char *pattern = dc_kernel_is_register(p->k, c) ? "$" : p->dialect->types[dc_cont(p->k->graph, c)->dtype].store;
  bool one = p->uniform && (!dc_kernel_is_register(p->k, c) || dc_kernel_is_shared(p->k, c));
  dc_print_line(p, "%s%s = %s;", one ? "if (leader) " : "", element, dc_print_around(p, pattern, atom));
}

static void open_if(dc_printer *p, const char *condition) { dc_print_open(p, dc_arena_printf(p->arena, "if (%s)", condition)); }

/* ---- writes ---- */

static const char *unless_repeated(dc_printer *p, const char *name) {
  return p->repeated ? dc_arena_printf(p->arena, "l < %u ? %s : ", p->repeated, name) : "";
}

static void accumulate(dc_printer *p, const dc_write *w) {
  const dc_accumulator *a = &p->k->accumulators.v[w->accumulator - 1];
  const char *name = dc_print_term(p, w->accumulator - 1);
  dc_exnode value = *dc_ex_node(p->pool, w->value);
  bool product = value.op == DC_MUL && value.dtype == a->type && dc_dtype_is_float(a->type);
  if (product && w->wcr == DC_WCR_SUM && !dc_print_bound(p, w->value)) { /* one rounding less */
    const char *x = dc_print_value(p, dc_ex_arg(p->pool, w->value, 0));
    const char *y = dc_print_value(p, dc_ex_arg(p->pool, w->value, 1));
    dc_print_line(p, "%s = %sfma_%s(%s, %s, %s);", name, unless_repeated(p, name), p->dialect->types[a->type].kind, x, y, name);
    return;
  }
  const char *text = dc_print_cast(p, a->type, dc_ex_dtype(p->pool, w->value), dc_print_value(p, w->value));
  const char *atom = dc_print_local(p, a->type, text);
  dc_print_line(p, "%s = %s%s;", name, unless_repeated(p, name), dc_print_combine(p, (dc_wcr)w->wcr, a->type, name, atom));
}

/* Several threads may meet in the element. */
static bool is_contended(const dc_printer *p, const dc_write *w) {
  for (const dc_loop *l = w->parent; p->dialect->atomic && w->wcr && l->parent; l = l->parent)
    if ((l->on_grid || l->on_team) && dc_write_meets(w, l)) return !dc_kernel_is_register(p->k, w->out);
  return false;
}

static void write_atomically(dc_printer *p, const dc_write *w) {
  dc_dtype type = (dc_dtype)dc_cont(p->k->graph, w->out)->dtype, compute = dc_dtype_compute(type);
  const dc_type_spelling *spelling = &p->dialect->types[type];
  const char *value = dc_print_value(p, w->value), *element = dc_print_element(p, w->out, dc_read_address(p->k, w->element));
  const char *more = dc_print_local(p, compute, dc_print_cast(p, compute, dc_ex_dtype(p->pool, w->value), value));
  const char *at_once = p->dialect->atomics[w->wcr][type];
  if (at_once) {
    dc_print_line(p, at_once, element, more);
  } else {
    const char *was = dc_print_around(p, spelling->load, "was");
    const char *sum = dc_arena_printf(p->arena, "(%s)", dc_print_combine(p, (dc_wcr)w->wcr, compute, was, more));
    const char *now = dc_print_around(p, spelling->store, dc_print_cast(p, type, compute, sum));
    dc_print_line(p, p->dialect->atomic, element, spelling->storage, now);
  }
  dc_print_forget(p, p->k->bits[w->out]);
}

/* A store of 16-bit floats rounds: what is stored need not be rounded before. */
static bool store_rounds(const dc_printer *p, dc_cid c) {
  dc_dtype type = (dc_dtype)dc_cont(p->k->graph, c)->dtype;
  return (type == DC_F16 || type == DC_BF16) && !dc_kernel_is_register(p->k, c);
}

static dc_ex without_rounding(const dc_printer *p, dc_ex value, dc_dtype type) {
  const dc_exnode *node = dc_ex_node(p->pool, value);
  dc_ex from = node->op == DC_EX_CAST && node->dtype == type ? dc_ex_arg(p->pool, value, 0) : value;
  return dc_ex_dtype(p->pool, from) == DC_F32 ? from : value;
}

static void write_memory(dc_printer *p, const dc_write *w, bool certain) {
  dc_dtype type = (dc_dtype)dc_cont(p->k->graph, w->out)->dtype, compute = dc_dtype_compute(type);
  dc_ex address = dc_read_address(p->k, w->element);
  bool rounds = store_rounds(p, w->out);
  dc_ex unrounded = rounds && !w->wcr ? without_rounding(p, w->value, type) : w->value;
  dc_dtype from = dc_ex_dtype(p->pool, unrounded);
  const char *value = dc_print_value(p, unrounded);
  if (w->wcr) {
    const char *element = dc_print_element(p, w->out, address);
    const char *more = dc_print_local(p, compute, dc_print_cast(p, compute, from, value));
    const char *old = dc_print_local(p, compute, loaded(p, w->out, element));
    value = dc_print_local(p, compute, dc_print_combine(p, (dc_wcr)w->wcr, compute, old, more));
    from = compute;
  }
  const char *atom = from == type ? value : dc_print_local(p, type, dc_print_cast(p, type, from, value));
  dc_print_store(p, w->out, address, rounds && from == DC_F32 ? value : atom);
  dc_print_forget(p, p->k->bits[w->out]);
  if (certain) dc_print_remember(p, w->element, atom);
}

void dc_print_write(dc_printer *p, const dc_write *w) {
  p->ordinal = w->ordinal;
  uint32_t mark = dc_print_scope(p), blocks = 0;
  dc_ex check = dc_read_check(p->k, w->element);
  if (w->guard) {
    open_if(p, dc_print_value(p, w->guard));
    mark = dc_print_scope(p);
    blocks++;
  }
  if (check && !dc_print_is_checked(p, check)) {
    const char *inside = dc_print_value(p, check);
    dc_print_line(p, "bad = %s ? bad : %u;", inside, w->ordinal + 1);
    p->flagged = true;
    open_if(p, inside);
    if (!blocks) mark = dc_print_scope(p);
    blocks++;
  }
  if (p->uniform && w->wcr && !w->accumulator && (!dc_kernel_is_register(p->k, w->out) || dc_kernel_is_shared(p->k, w->out))) {
    open_if(p, "leader");
    if (!blocks) mark = dc_print_scope(p);
    blocks++;
  }
  if (p->k->grid.slices && !w->accumulator && !dc_kernel_is_register(p->k, w->out)) {
    bool ordered = dc_write_is_ordered(p->k, w);
    const char *place = ordered ? dc_print_value(p, dc_write_owned_by(p->k, w)) : "";
    open_if(p, ordered ? dc_arena_printf(p->arena, "slice_of<%u>(%s) == slice", p->k->grid.slices, place) : "slice == 0");
    if (!blocks) mark = dc_print_scope(p);
    blocks++;
  }
  if (w->accumulator) accumulate(p, w);
  else if (is_contended(p, w)) write_atomically(p, w);
  else write_memory(p, w, blocks == 0);
  if (blocks) dc_print_scope_end(p, mark);
  while (blocks--) dc_print_close(p);
}

/* ---- around reductions ---- */

void dc_print_identity(dc_printer *p, const dc_loop *home, const dc_write *w) {
  DC_VEC(const dc_loop *) path = {0};
  uint32_t open = 0;
  for (const dc_loop *l = w->parent; l != home->parent; l = l->parent) {
    bool needed = dc_ex_uses_param(p->pool, w->element, l->param);
    for (uint32_t k = 0; k < path.n && !needed; k++)
      needed = dc_ex_uses_param(p->pool, path.v[k]->begin, l->param) || dc_ex_uses_param(p->pool, path.v[k]->end, l->param);
    if (needed) DC_PUSH(p->arena, &path, l);
  }
  uint32_t mark = dc_print_scope(p);
  dc_print_open(p, "");
  for (uint32_t k = path.n; k-- > 0; open++) {
    const dc_loop *l = path.v[k];
    const char *begin = dc_print_value(p, l->begin), *end = dc_print_value(p, l->end);
    dc_print_open(p, dc_arena_printf(p->arena, "for (i64 j%u = %s; j%u < %s; j%u += %lld)", l->param, begin, l->param, end, l->param,
                                     (long long)l->step));
  }
  dc_dtype type = (dc_dtype)dc_cont(p->k->graph, w->out)->dtype;
  if (!dc_kernel_is_true(p->k, w->inside)) open_if(p, dc_print_value(p, w->inside)), open++;
  dc_print_store(p, w->out, dc_read_address(p->k, w->element), dc_print_constant(p, type, dc_wcr_identity((dc_wcr)w->wcr, type)));
  dc_print_scope_end(p, mark);
  while (open--) dc_print_close(p);
  dc_print_close(p);
  dc_print_forget(p, p->k->bits[w->out]);
}

void dc_print_result(dc_printer *p, uint32_t accumulator) {
  const dc_accumulator *a = &p->k->accumulators.v[accumulator];
  dc_dtype type = (dc_dtype)dc_cont(p->k->graph, a->first->out)->dtype;
  const char *atom = dc_print_local(p, type, dc_print_cast(p, type, a->type, dc_print_term(p, accumulator)));
  bool sure = dc_kernel_is_true(p->k, a->first->inside);
  if (!sure) open_if(p, dc_print_value(p, a->first->inside));
  dc_print_store(p, a->first->out, dc_read_address(p->k, a->first->element), atom);
  if (!sure) dc_print_close(p);
  if (sure && !dc_kernel_is_laned(p->k, accumulator)) dc_print_remember(p, a->first->element, atom);
}

/* ---- runs of memory ---- */

void dc_print_run(dc_printer *p, const dc_loop *l, const char *begin, const char *end) {
  const dc_write *w = dc_loop_single_write(l);
  open_if(p, dc_arena_printf(p->arena, "%s < %s", begin, end));
  uint32_t mark = dc_print_scope(p);
  dc_print_line(p, "const i64 j%u = %s;", l->param, begin);
  const char *to = dc_print_element(p, w->out, dc_read_address(p->k, w->element));
  if (l->memory_run == DC_RUN_CLEAR) {
    dc_print_line(p, "__builtin_memset(&%s, 0, (%s - j%u) * sizeof %s);", to, end, l->param, to);
  } else {
    const char *from = dc_print_element(p, dc_ex_node(p->pool, w->value)->ref, dc_read_address(p->k, w->value));
    dc_print_line(p, "__builtin_memcpy(&%s, &%s, (%s - j%u) * sizeof %s);", to, from, end, l->param, to);
  }
  dc_print_scope_end(p, mark);
  dc_print_close(p);
}

/* ---- registers ---- */

/* Elements that a thread of a team takes. */
static int64_t own_size(const dc_printer *p, dc_cid c) {
  for (uint32_t k = 0; k < p->k->writes.n; k++) {
    const dc_loop *l = p->k->writes.v[k]->parent;
    if (p->k->writes.v[k]->out == c) return (int64_t)l->turns * (l->pack ? l->pack : 1);
  }
  return 1;
}

void dc_print_registers(dc_printer *p, const dc_loop *l) {
  for (dc_cid c = 1; c < p->k->homes.n; c++) {
    if (!dc_kernel_is_register(p->k, c) || p->k->homes.v[c] != l || dc_print_block_element(p, c)) continue;
    const dc_container *k = dc_cont(p->k->graph, c);
    const char *type = p->dialect->types[k->dtype].compute;
    int64_t size = 1, extent = 1;
    for (uint32_t d = 0; d < k->rank; d++)
      if (dc_ex_is_int(p->pool, k->shape[d], &extent)) size *= extent;
    if (dc_kernel_is_own(p->k, c)) size = own_size(p, c);
    if (dc_kernel_is_shared(p->k, c)) dc_print_line(p, "__shared__ %s r%u[%lld];", type, c, (long long)(size ? size : 1));
    else if (p->lane) dc_print_line(p, "%s r%u[%lld];", type, c, (long long)size * p->lane->lanes);
    else if (k->rank == 0) dc_print_line(p, "%s r%u;", type, c);
    else dc_print_line(p, "%s r%u[%lld];", type, c, (long long)(size ? size : 1));
  }
}
