/* Statements to maps and tasklets.
 *
 * A statement W[w(i)] = E(i) becomes one map over its index variables with one tasklet.  A
 * reduction inside E is hoisted: a temporary over the variables that it uses, filled by a map
 * that holds a REDUCE map; where E is nothing but a reduction, it writes W itself. */
#include <ctype.h>
#include <string.h>

#include "ops/inst.h"

/* ---- index variables ---- */

static void push_param(dc_inst *in, const char *name, dc_ex extent, bool sequential, dc_value *out) {
  char *plain = dc_arena_strdup(in->arena, name);
  plain[strcspn(plain, "'")] = 0;
  dc_pool *pool = &in->graph->pool;
  dc_param p = dc_param_new(pool, plain, dc_ex_int(pool, 0), extent, 0);
  *out = dc_val_ex(dc_ex_par(pool, p));
  DC_PUSH(in->arena, &in->domain, ((dc_domain_entry){p, out->ex, sequential}));
}

dc_status dc_inst_bind_index(dc_inst *in, const dc_binder *binder, bool sequential) {
  dc_value extent, index;
  bool found = true;
  dc_ex e;
  uint32_t n;
  if (binder->extent) DC_TRY(dc_inst_eval(in, binder->extent, &extent));
  else DC_TRY(dc_inst_lookup(in, dc_inst_dim_name(in, binder->name), &extent, &found));
  if (!found) return dc_inst_fail(in, DC_ERR_VALUE, "the row uses index '%s' without a dimension", binder->name);
  n = extent.kind == VAL_LIST ? extent.n : 1;
  if (in->domain.n + n > DC_MAX_LOOPS)
    return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "a statement of the row has %u loops, more than %d", in->domain.n + n, DC_MAX_LOOPS);
  if (extent.kind == VAL_LIST) {
    index = dc_val_list(in, n);
    for (uint32_t k = 0; k < n; k++) {
      DC_TRY(dc_val_to_index(in, &extent.items[k], &e));
      push_param(in, binder->name, e, sequential, &index.items[k]);
    }
  } else {
    DC_TRY(dc_val_to_index(in, &extent, &e));
    push_param(in, binder->name, e, sequential, &index);
  }
  dc_inst_push_local(in, binder->name, index);
  return DC_OK;
}

static bool is_bound(dc_inst *in, const char *name) {
  for (uint32_t k = in->locals.n; k-- > in->local_floor;)
    if (strcmp(in->locals.v[k].name, name) == 0) return true;
  for (uint32_t k = 0; k < in->env.n; k++)
    if (strcmp(in->env.v[k].name, name) == 0) return true;
  return false;
}

/* Binds the names of a left-hand index that are free and have a dimension. */
static dc_status bind_free(dc_inst *in, const dc_ast *ast) {
  if (ast->kind == AST_NAME) {
    if (is_bound(in, ast->name) || !is_bound(in, dc_inst_dim_name(in, ast->name)) || !islower((unsigned char)ast->name[0])) return DC_OK;
    return dc_inst_bind_index(in, &(dc_binder){.name = ast->name}, false);
  }
  uint32_t first = ast->kind == AST_READ ? 1 : 0;
  if (ast->kind == AST_CALL && strcmp(ast->name, "ndidx") == 0) first = 1;
  for (uint32_t k = first; k < ast->n; k++) DC_TRY(bind_free(in, ast->items[k]));
  return DC_OK;
}

/* ---- emission ---- */

typedef struct {
  dc_cid out;
  uint32_t rank;
  dc_ex *index;
  dc_wcr wcr;
  dc_ex guard, value;
} store;

dc_nid dc_inst_tag(dc_inst *in, dc_nid node) {
  dc_node *n = dc_node_at(in->graph, node);
  n->tag_op = in->tag_op, n->tag_wrt = in->tag_wrt;
  n->name = dc_node_at(in->graph, in->node)->name;
  return node;
}

static dc_nid tasklet(dc_inst *in, const store *s) {
  dc_nid node = dc_node_tasklet(in->graph, s->out, s->wcr, s->index, s->rank, s->guard, s->value);
  return dc_inst_tag(in, node);
}

/* Each variable of the domain is an index by itself: no two iterations write one element. */
static bool injective(dc_inst *in, const store *s, const dc_param *params, uint32_t n) {
  uint32_t hit = 0;
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t d = 0; d < s->rank; d++)
      if (s->index[d] == dc_ex_par(&in->graph->pool, params[k])) {
        hit++;
        break;
      }
  return hit == n;
}

static bool data_dependent(dc_inst *in, const store *s) {
  for (uint32_t d = 0; d < s->rank; d++)
    if (dc_ex_uses_op(&in->graph->pool, s->index[d], DC_EX_READ)) return true;
  return false;
}

static dc_schedule schedule_of(dc_inst *in, const store *s, const dc_param *params, uint32_t n) {
  bool clash = s->wcr ? !injective(in, s, params, n) : data_dependent(in, s) && !injective(in, s, params, n);
  return clash ? DC_MAP_SCATTER : DC_MAP_PARALLEL;
}

/* ---- reductions ---- */

typedef struct {
  dc_param *params; /* of the reduction */
  uint32_t n;
  dc_wcr wcr;
  dc_ex guard, value;
} reduction;

static dc_status reduce_body(dc_inst *in, const dc_ast *ast, reduction *out) {
  static const struct {
    const char *name;
    dc_wcr wcr;
  } kinds[] = {{"sum", DC_WCR_SUM}, {"prod", DC_WCR_PROD}, {"max", DC_WCR_MAX},
               {"min", DC_WCR_MIN}, {"any", DC_WCR_MAX},   {"all", DC_WCR_MIN}};
  uint32_t domain = in->domain.n, locals = in->locals.n;
  dc_value v, guard = {0};
  for (uint32_t k = 0; k < ast->n_binders; k++) DC_TRY(dc_inst_bind_index(in, &ast->binders[k], false));
  if (ast->guard) DC_TRY(dc_inst_eval(in, ast->guard, &guard));
  DC_TRY(dc_inst_eval(in, ast->items[0], &v));
  out->guard = 0;
  if (ast->guard) DC_TRY(dc_val_to_bool(in, &guard, &out->guard));
  bool logical = strcmp(ast->name, "any") == 0 || strcmp(ast->name, "all") == 0;
  if (logical) DC_TRY(dc_val_to_bool(in, &v, &out->value));
  else if (v.kind == VAL_NUM) out->value = dc_ex_const(&in->graph->pool, in->float_type, v.num);
  else if (v.kind == VAL_EX) out->value = v.ex;
  else return dc_inst_fail(in, DC_ERR_VALUE, "the row reduces something that is no number");
  for (uint32_t k = 0; k < 6; k++)
    if (strcmp(kinds[k].name, ast->name) == 0) out->wcr = kinds[k].wcr;
  if (out->wcr == DC_WCR_SUM && dc_ex_dtype(&in->graph->pool, out->value) == DC_BOOL)
    out->value = dc_ex_cast(&in->graph->pool, DC_I64, out->value);
  out->n = in->domain.n - domain;
  out->params = DC_NEW_ARRAY(in->arena, dc_param, out->n);
  for (uint32_t k = 0; k < out->n; k++) out->params[k] = in->domain.v[domain + k].param;
  in->domain.n = domain, in->locals.n = locals;
  return DC_OK;
}

static bool reduction_uses(dc_inst *in, const reduction *r, dc_param p) {
  const dc_pool *pool = &in->graph->pool;
  if (dc_ex_uses_param(pool, r->value, p) || (r->guard && dc_ex_uses_param(pool, r->guard, p))) return true;
  for (uint32_t k = 0; k < r->n; k++)
    if (dc_ex_uses_param(pool, pool->params.v[r->params[k]].begin, p) || dc_ex_uses_param(pool, pool->params.v[r->params[k]].end, p))
      return true;
  return false;
}

static dc_nid reduce_node(dc_inst *in, const reduction *r, dc_cid out, dc_ex *index, uint32_t rank) {
  store s = {out, rank, index, r->wcr, r->guard, r->value};
  return dc_node_wrap(in->graph, DC_MAP_REDUCE, r->params, r->n, tasklet(in, &s));
}

/* What a row calls U is layer1.bn.U beside a result that a module tree calls layer1.bn.out. */
const char *dc_inst_own_name(dc_inst *in, const char *name) {
  const dc_library *lib = &dc_node_at(in->graph, in->node)->lib;
  dc_cid result = 0;
  for (uint32_t k = 0; k < lib->n_out && !result; k++) result = lib->out[k];
  const char *beside = dc_cont_name(in->graph, result), *end = strrchr(beside, '.');
  return end ? dc_arena_printf(in->arena, "%.*s.%s", (int)(end - beside), beside, name) : name;
}

static dc_status new_temporary(dc_inst *in, const char *name, dc_dtype type, uint32_t rank, const dc_ex *dims, dc_cid *out) {
  if (rank > DC_MAX_RANK)
    return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "the row's temporary '%s' has %u dimensions, more than %d", name, rank, DC_MAX_RANK);
  return *out = dc_container_add(in->graph, dc_inst_own_name(in, name), type, rank, dims, DC_ROLE_TEMP), DC_OK;
}

/* A temporary over the domain variables that the reduction uses; *out reads it. */
static dc_status hoist(dc_inst *in, const reduction *r, dc_value *out) {
  dc_pool *pool = &in->graph->pool;
  DC_VEC(dc_param) from = {0}, fresh = {0};
  DC_VEC(dc_ex) to = {0}, index = {0}, dims = {0}, reads = {0};
  if (!in->out) return dc_inst_fail(in, DC_ERR_VALUE, "the row reduces data where only shapes are known");
  for (uint32_t k = 0; k < in->domain.n; k++) {
    dc_domain_entry d = in->domain.v[k];
    if (!reduction_uses(in, r, d.param)) continue;
    dc_parameter range = pool->params.v[d.param];
    DC_PUSH(in->arena, &dims, range.end);
    DC_PUSH(in->arena, &reads, dc_ex_par(pool, d.param));
    if (d.sequential) { /* bound by the enclosing loop */
      DC_PUSH(in->arena, &index, dc_ex_par(pool, d.param));
      continue;
    }
    dc_param p = dc_param_new(pool, dc_name_text(&in->graph->names, range.name), range.begin, range.end, range.step);
    DC_PUSH(in->arena, &from, d.param);
    DC_PUSH(in->arena, &fresh, p);
    DC_PUSH(in->arena, &to, dc_ex_par(pool, p));
    DC_PUSH(in->arena, &index, dc_ex_par(pool, p));
  }
  dc_dtype type = dc_ex_dtype(pool, r->value);
  dc_cid temp;
  DC_TRY(new_temporary(in, "r", type, dims.n, dims.v, &temp));
  reduction moved = *r;
  moved.value = dc_ex_subst(pool, r->value, from.v, to.v, from.n);
  moved.guard = r->guard ? dc_ex_subst(pool, r->guard, from.v, to.v, from.n) : 0;
  for (uint32_t k = 0; k < r->n; k++) {
    dc_ex begin = dc_ex_subst(pool, pool->params.v[r->params[k]].begin, from.v, to.v, from.n);
    dc_ex end = dc_ex_subst(pool, pool->params.v[r->params[k]].end, from.v, to.v, from.n);
    pool->params.v[r->params[k]].begin = begin, pool->params.v[r->params[k]].end = end;
  }
  dc_nid inner = reduce_node(in, &moved, temp, index.v, index.n);
  dc_scope_push(in->graph, in->out, dc_node_wrap(in->graph, DC_MAP_PARALLEL, fresh.v, fresh.n, inner));
  *out = dc_val_ex(dc_ex_read(pool, type, temp, reads.v, reads.n));
  return DC_OK;
}

/* argmax: the extreme value, then the least linear index that reaches it, or is NaN: the extreme then is NaN too. */
static dc_status arg_reduce(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_pool *pool = &in->graph->pool;
  dc_ast plain = *ast;
  reduction r = {0};
  dc_value extreme;
  plain.name = strcmp(ast->name, "argmax") == 0 ? "max" : "min";
  DC_TRY(reduce_body(in, &plain, &r));
  DC_TRY(hoist(in, &r, &extreme));
  reduction second = {0};
  DC_TRY(reduce_body(in, &plain, &second));
  dc_ex found = dc_ex_is_extreme(pool, second.value, extreme.ex), linear = dc_ex_int(pool, 0);
  for (uint32_t k = 0; k < second.n; k++)
    linear = dc_ix_add(pool, dc_ix_mul(pool, linear, pool->params.v[second.params[k]].end), dc_ex_par(pool, second.params[k]));
  second.guard = dc_ex_and(pool, second.guard, found);
  second.value = linear, second.wcr = DC_WCR_MIN;
  return hoist(in, &second, out);
}

dc_status dc_inst_reduce(dc_inst *in, const dc_ast *ast, dc_value *out) {
  if (strncmp(ast->name, "arg", 3) == 0) return arg_reduce(in, ast, out);
  reduction r = {0};
  DC_TRY(reduce_body(in, ast, &r));
  return hoist(in, &r, out);
}

/* ---- assignments ---- */

/* A local is made by its first write; its dimensions are the extents of its index variables. */
static dc_status make_local(dc_inst *in, const dc_stmt *s, int32_t item, const dc_ex *index, uint32_t rank, dc_dtype type) {
  dc_pool *pool = &in->graph->pool;
  dc_ex *dims = DC_NEW_ARRAY(in->arena, dc_ex, rank);
  for (uint32_t d = 0; d < rank; d++) {
    const dc_exnode *node = dc_ex_node(pool, index[d]);
    dims[d] = node->op == DC_EX_PARAM ? pool->params.v[node->ref].end : 0;
    for (uint32_t k = 0; k < in->domain.n && !dims[d]; k++) /* a reversed loop's name is N-1-p */
      if (in->domain.v[k].value == index[d]) dims[d] = pool->params.v[in->domain.v[k].param].end;
    if (!dims[d]) return dc_inst_fail(in, DC_ERR_VALUE, "the row's local '%s' needs plain index variables", s->target);
  }
  dc_cid cid;
  DC_TRY(new_temporary(in, s->target, type, rank, dims, &cid));
  dc_inst_add_tensor(in, (dc_tensor){s->target, item, true, false, cid, type, rank, dims});
  return DC_OK;
}

/* Where a statement writes: of a tensor, or of a local that the statement makes. */
static dc_status left_index(dc_inst *in, const dc_stmt *s, const dc_tensor *t, dc_ex **index, uint32_t *rank) {
  if (t) {
    *rank = t->rank, *index = DC_NEW_ARRAY(in->arena, dc_ex, t->rank);
    return dc_inst_index(in, s->index, s->n_index, s->flat, t, *index);
  }
  DC_VEC(dc_ex) list = {0};
  for (uint32_t k = 0; k < s->n_index; k++) {
    dc_value v;
    DC_TRY(dc_inst_eval(in, s->index[k], &v));
    for (uint32_t j = 0; j < (v.kind == VAL_LIST ? v.n : 1); j++) {
      dc_ex e;
      DC_TRY(dc_val_to_index(in, v.kind == VAL_LIST ? &v.items[j] : &v, &e));
      DC_PUSH(in->arena, &list, e);
    }
  }
  return *index = list.v, *rank = list.n, DC_OK;
}

static dc_status named_type(dc_inst *in, const char *name, dc_dtype fallback, dc_dtype *out) {
  *out = fallback;
  if (!name) return DC_OK;
  *out = strcmp(name, "real") == 0 ? in->float_type : dc_dtype_from_name(name);
  for (uint32_t k = 0; k < in->env.n && !*out; k++)
    if (in->env.v[k].name[0] == ':' && strcmp(in->env.v[k].name + 1, name) == 0) *out = dc_dtype_compute((dc_dtype)in->env.v[k].value.n);
  return *out ? DC_OK : dc_inst_fail(in, DC_ERR_VALUE, "the row uses type '%s', which is not bound", name);
}

static bool is_plain_reduction(const dc_stmt *s) {
  return s->expr->kind == AST_REDUCE && !s->wcr && strncmp(s->expr->name, "arg", 3) != 0;
}

static bool mentions(const dc_ast *a, const char *name) {
  if (!a) return false;
  if ((a->kind == AST_NAME || a->kind == AST_ITEM) && strcmp(a->name, name) == 0) return true;
  for (uint32_t k = 0; k < a->n; k++)
    if (mentions(a->items[k], name)) return true;
  return mentions(a->fallback, name) || mentions(a->guard, name);
}

static dc_status assign_in_domain(dc_inst *in, const dc_stmt *s, int32_t item, uint32_t outer) {
  dc_pool *pool = &in->graph->pool;
  for (uint32_t k = 0; k < s->n_binders; k++) DC_TRY(dc_inst_bind_index(in, &s->binders[k], false));
  for (uint32_t k = 0; k < s->n_index; k++) DC_TRY(bind_free(in, s->index[k]));
  dc_tensor *found = dc_inst_tensor(in, s->target, item), t = {0};
  if (found) t = *found;
  if (found && !t.present) return DC_OK; /* an output that nobody asked for */
  store st = {.wcr = (dc_wcr)s->wcr};
  DC_TRY(left_index(in, s, found ? &t : NULL, &st.index, &st.rank));
  if (!found && mentions(s->expr, s->target)) { /* a state that its own earlier value feeds */
    dc_dtype state;
    DC_TRY(named_type(in, s->type, in->float_type, &state));
    DC_TRY(make_local(in, s, item, st.index, st.rank, state));
    found = dc_inst_tensor(in, s->target, item);
    t = *found;
  }
  reduction r = {0};
  dc_value v;
  bool direct = is_plain_reduction(s);
  if (direct) DC_TRY(reduce_body(in, s->expr, &r));
  else DC_TRY(dc_inst_eval(in, s->expr, &v));
  if (!direct && v.kind == VAL_NUM)
    v = dc_val_ex(dc_ex_const(pool, t.dtype && !s->type ? dc_dtype_compute(t.dtype) : in->float_type, v.num));
  if (!direct && v.kind != VAL_EX) return dc_inst_fail(in, DC_ERR_VALUE, "the row assigns something that is no number to '%s'", s->target);
  dc_dtype type = dc_ex_dtype(pool, direct ? r.value : v.ex), stored;
  DC_TRY(named_type(in, s->type, type, &stored));
  if (!found) {
    DC_TRY(make_local(in, s, item, st.index, st.rank, stored));
    t = *dc_inst_tensor(in, s->target, item);
  }
  st.out = t.cid;
  uint32_t n = in->domain.n - outer;
  dc_param *params = DC_NEW_ARRAY(in->arena, dc_param, n);
  for (uint32_t k = 0; k < n; k++) params[k] = in->domain.v[outer + k].param;
  if (direct && (t.dtype != type || !injective(in, &st, params, n))) { /* accumulate in the compute type, then store */
    DC_TRY(hoist(in, &r, &v));
    direct = false;
  }
  if (!direct) st.value = v.ex;
  dc_nid inner = direct ? reduce_node(in, &r, t.cid, st.index, st.rank) : tasklet(in, &st);
  dc_schedule schedule = direct ? DC_MAP_PARALLEL : schedule_of(in, &st, params, n);
  dc_scope_push(in->graph, in->out, dc_node_wrap(in->graph, schedule, params, n, inner));
  return DC_OK;
}

static dc_status run_assign(dc_inst *in, const dc_stmt *s) {
  uint32_t locals = in->locals.n, domain = in->domain.n;
  int32_t item = -1;
  if (s->item) {
    dc_value v;
    int64_t i;
    DC_TRY(dc_inst_eval(in, s->item, &v));
    if (!dc_val_is_int(in, &v, &i) || i < 0 || i > 1 << 20)
      return dc_inst_fail(in, DC_ERR_VALUE, "the row writes an item that is no number");
    item = (int32_t)i;
  }
  dc_status status = assign_in_domain(in, s, item, domain);
  in->locals.n = locals, in->domain.n = domain;
  return status;
}

/* ---- control ---- */

static dc_status run_for(dc_inst *in, const dc_stmt *s) {
  dc_value count;
  int64_t n;
  DC_TRY(dc_inst_eval(in, s->binders[0].extent, &count));
  if (!dc_val_is_int(in, &count, &n) || n < 0 || n > 1 << 16)
    return dc_inst_fail(in, DC_ERR_MODEL, "expected a known, small number of parts");
  for (int64_t k = 0; k < n; k++) {
    dc_inst_push_local(in, s->binders[0].name, dc_val_int(in, k));
    dc_status status = dc_inst_run(in, &s->body);
    in->locals.n--;
    if (status) return status;
  }
  return DC_OK;
}

static dc_status run_seq(dc_inst *in, const dc_stmt *s) {
  dc_pool *pool = &in->graph->pool;
  uint32_t locals = in->locals.n, domain = in->domain.n;
  dc_value reversed = dc_val_bool(in, false);
  double backwards = 0;
  if (s->expr) DC_TRY(dc_inst_eval(in, s->expr, &reversed));
  if (!dc_val_is_number(in, &reversed, &backwards)) return dc_inst_fail(in, DC_ERR_MODEL, "expected a direction that is known");
  DC_TRY(dc_inst_bind_index(in, &s->binders[0], true));
  if (in->domain.n != domain + 1) return dc_inst_fail(in, DC_ERR_VALUE, "a seq loop has one variable");
  dc_domain_entry *d = &in->domain.v[domain];
  dc_param p = d->param;
  if (backwards) {
    dc_ex last = dc_ix_sub(pool, pool->params.v[p].end, dc_ex_int(pool, 1));
    d->value = dc_ix_sub(pool, last, dc_ex_par(pool, p));
    in->locals.v[in->locals.n - 1].value = dc_val_ex(d->value);
  }
  dc_scope body = {0}, *outer = in->out;
  in->out = &body;
  dc_status status = dc_inst_run(in, &s->body);
  in->out = outer, in->locals.n = locals, in->domain.n = domain;
  if (status) return status;
  dc_nid map = dc_node_map(in->graph, DC_MAP_SEQUENTIAL, &p, 1);
  dc_node_at(in->graph, map)->map.body = body;
  dc_inst_tag(in, map);
  dc_scope_push(in->graph, in->out, map);
  return DC_OK;
}

static dc_status run_statement(dc_inst *in, const dc_stmt *s) {
  dc_value c;
  double truth;
  switch ((dc_stmt_kind)s->kind) {
    case STMT_ASSIGN: return run_assign(in, s);
    case STMT_FOR: return run_for(in, s);
    case STMT_SEQ: return run_seq(in, s);
    case STMT_IF:
      DC_TRY(dc_inst_eval(in, s->expr, &c));
      if (!dc_val_is_number(in, &c, &truth)) return dc_inst_fail(in, DC_ERR_VALUE, "the row's condition is not known when it is expanded");
      return dc_inst_run(in, truth != 0 ? &s->body : &s->other);
    case STMT_LET:
      DC_TRY(dc_inst_eval(in, s->expr, &c));
      return dc_inst_push_local(in, s->target, c), DC_OK;
    case STMT_CALL: break; /* steps.c has written it out */
    case STMT_OPERATOR: return dc_inst_operator(in, s);
    case STMT_NATIVE: return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "the operator is a native kernel and has no expansion");
  }
  return DC_OK;
}

dc_status dc_inst_run(dc_inst *in, const dc_block *block) {
  if (++in->depth > 100) return dc_inst_fail(in, DC_ERR_VALUE, "the row's blocks are nested too deeply");
  uint32_t locals = in->locals.n; /* a `let` ends with its block */
  for (uint32_t k = 0; k < block->n; k++) DC_TRY(run_statement(in, block->v[k]));
  in->locals.n = locals, in->depth--;
  return DC_OK;
}
