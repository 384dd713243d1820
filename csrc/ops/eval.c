/* The partial evaluator: syntax trees to values. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/inst.h"
#include "ops/known.h"

enum { MAX_DEPTH = 300, MAX_STEPS = 4000000 };

dc_status dc_inst_fail(const dc_inst *in, dc_code code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return dc_inst_locate(in, dc_error(code, "%s", text));
}

dc_status dc_inst_locate(const dc_inst *in, dc_status status) {
  return in->node ? dc_error_at(status, "%s", dc_node_describe(in->graph, in->node)) : status;
}

/* ---- names ---- */

void dc_inst_define(dc_inst *in, const char *name, dc_value value) {
  for (uint32_t k = 0; k < in->env.n; k++)
    if (strcmp(in->env.v[k].name, name) == 0) {
      in->env.v[k] = (dc_binding_entry){.name = name, .value = value};
      return;
    }
  DC_PUSH(in->arena, &in->env, ((dc_binding_entry){.name = name, .value = value}));
}

void dc_inst_define_lazy(dc_inst *in, const char *name, const dc_ast *ast) {
  DC_PUSH(in->arena, &in->env, ((dc_binding_entry){.name = name, .lazy = ast}));
}

void dc_inst_push_local(dc_inst *in, const char *name, dc_value value) {
  DC_PUSH(in->arena, &in->locals, ((dc_binding_entry){.name = name, .value = value}));
}

static dc_status force(dc_inst *in, uint32_t k) {
  const dc_ast *ast = in->env.v[k].lazy;
  if (!ast) return DC_OK;
  if (in->env.v[k].busy) return dc_inst_fail(in, DC_ERR_VALUE, "the row defines '%s' by itself", in->env.v[k].name);
  in->env.v[k].busy = true;
  uint32_t floor = in->local_floor;
  in->local_floor = in->locals.n; /* a definition does not see index variables */
  dc_value value;
  dc_status status = dc_inst_eval(in, ast, &value);
  in->local_floor = floor;
  in->env.v[k].busy = false;
  if (status) return status;
  in->env.v[k].value = value, in->env.v[k].lazy = NULL;
  return DC_OK;
}

static bool constant(dc_inst *in, const char *name, dc_value *out) {
  if (strcmp(name, "inf") == 0) return *out = dc_val_num(INFINITY), true;
  if (strcmp(name, "nan") == 0) return *out = dc_val_num(NAN), true;
  if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0) return *out = dc_val_bool(in, *name == 't'), true;
  if (strcmp(name, "none") == 0) return *out = (dc_value){.kind = VAL_NONE}, true;
  return false;
}

dc_status dc_inst_lookup(dc_inst *in, const char *name, dc_value *out, bool *found) {
  *found = true;
  for (uint32_t k = in->locals.n; k-- > in->local_floor;)
    if (strcmp(in->locals.v[k].name, name) == 0) return *out = in->locals.v[k].value, DC_OK;
  for (uint32_t k = 0; k < in->env.n; k++)
    if (strcmp(in->env.v[k].name, name) == 0) {
      DC_TRY(force(in, k));
      return *out = in->env.v[k].value, DC_OK;
    }
  *found = constant(in, name, out);
  return DC_OK;
}

const char *dc_inst_dim_name(dc_inst *in, const char *index_name) {
  char *upper = dc_arena_strdup(in->arena, index_name);
  for (char *c = upper; *c; c++) *c = *c == '\'' ? 0 : (char)toupper((unsigned char)*c);
  return upper;
}

dc_tensor *dc_inst_tensor(dc_inst *in, const char *name, int32_t item) {
  for (uint32_t k = in->tensors.n; k-- > 0;)
    if (in->tensors.v[k].item == item && strcmp(in->tensors.v[k].name, name) == 0) return &in->tensors.v[k];
  return NULL;
}

dc_tensor *dc_inst_add_tensor(dc_inst *in, dc_tensor tensor) {
  DC_PUSH(in->arena, &in->tensors, tensor);
  return &in->tensors.v[in->tensors.n - 1];
}

static dc_status item_number(dc_inst *in, const dc_ast *ast, int32_t *out) {
  dc_value v;
  int64_t i;
  DC_TRY(dc_inst_eval(in, ast, &v));
  if (!dc_val_is_int(in, &v, &i) || i < 0 || i > 1 << 20) return dc_inst_fail(in, DC_ERR_VALUE, "the row picks an item that is no number");
  return *out = (int32_t)i, DC_OK;
}

/* A list of known numbers that is read like a tensor becomes a constant. */
static dc_status list_tensor(dc_inst *in, const char *name, dc_tensor **out) {
  dc_value list;
  bool found;
  double number;
  DC_TRY(dc_inst_lookup(in, name, &list, &found));
  if (!found || list.kind != VAL_LIST) return DC_OK;
  bool integers = true;
  for (uint32_t k = 0; k < list.n; k++) {
    if (!dc_val_is_number(in, &list.items[k], &number)) return DC_OK;
    integers &= list.items[k].kind == VAL_EX;
  }
  dc_dtype type = integers ? DC_I64 : in->float_type;
  dc_ex *dims = DC_NEW_ARRAY(in->arena, dc_ex, 1);
  dims[0] = dc_ex_int(&in->graph->pool, list.n);
  dc_tensor t = {.name = name, .item = -1, .present = true, .dtype = type, .rank = 1, .dims = dims};
  if (in->out) { /* statements are expanded */
    int64_t extent = list.n;
    uint64_t bytes = list.n * (uint64_t)dc_dtype_bytes(type);
    void *data = dc_arena_alloc(in->arena, bytes + 1);
    for (uint32_t k = 0; k < list.n; k++) {
      if (integers) dc_val_is_int(in, &list.items[k], &((int64_t *)data)[k]);
      else if (type == DC_F64) dc_val_is_number(in, &list.items[k], &((double *)data)[k]);
      else if (dc_val_is_number(in, &list.items[k], &number)) ((float *)data)[k] = (float)number;
    }
    t.cid = dc_container_add_const(in->graph, name, type, 1, &extent, data, bytes);
  }
  *out = dc_inst_add_tensor(in, t);
  return DC_OK;
}

dc_status dc_inst_tensor_ref(dc_inst *in, const dc_ast *ast, dc_tensor **out) {
  int32_t item = -1;
  if (ast->kind != AST_NAME && ast->kind != AST_ITEM) return dc_inst_fail(in, DC_ERR_VALUE, "the row expects a tensor's name");
  if (ast->kind == AST_ITEM) DC_TRY(item_number(in, ast->items[0], &item));
  *out = dc_inst_tensor(in, ast->name, item);
  if (!*out && item < 0) DC_TRY(list_tensor(in, ast->name, out));
  if (!*out) return dc_inst_fail(in, DC_ERR_VALUE, "the row uses tensor '%s' before it is written", ast->name);
  return DC_OK;
}

/* ---- indices, and reads ---- */

typedef DC_VEC(dc_value) value_list;

static dc_status append_index(dc_inst *in, const dc_ast *ast, value_list *out) {
  bool broadcast = ast->kind == AST_BCAST;
  dc_value v;
  DC_TRY(dc_inst_eval(in, broadcast ? ast->items[0] : ast, &v));
  uint32_t n = v.kind == VAL_LIST ? v.n : 1;
  for (uint32_t k = 0; k < n; k++) {
    dc_value item = v.kind == VAL_LIST ? v.items[k] : v;
    item.broadcast = broadcast;
    DC_PUSH(in->arena, out, item);
  }
  return DC_OK;
}

static void unflatten(dc_inst *in, dc_ex flat, const dc_tensor *t, dc_ex *index) {
  for (uint32_t d = t->rank; d-- > 0;) {
    index[d] = d ? dc_ix_mod(&in->graph->pool, flat, t->dims[d]) : flat;
    flat = dc_ix_div(&in->graph->pool, flat, t->dims[d]);
  }
}

dc_status dc_inst_index(dc_inst *in, const dc_ast *const *items, uint32_t n, bool flat, const dc_tensor *t, dc_ex *index) {
  value_list list = {0};
  for (uint32_t k = 0; k < n; k++) DC_TRY(append_index(in, items[k], &list));
  if (flat) {
    dc_ex at;
    if (list.n != 1) return dc_inst_fail(in, DC_ERR_VALUE, "'%s' takes one flat index, got %u", t->name, list.n);
    DC_TRY(dc_val_to_index(in, &list.v[0], &at));
    return unflatten(in, at, t, index), DC_OK;
  }
  uint32_t skip = 0;
  while (list.n - skip > t->rank && list.v[skip].broadcast) skip++;
  if (list.n - skip != t->rank)
    return dc_inst_fail(in, DC_ERR_SHAPE, "'%s' has %u dimensions, expected %u", t->name, t->rank, list.n - skip);
  for (uint32_t d = 0; d < t->rank; d++) {
    const dc_value *v = &list.v[d + skip];
    bool unit = v->broadcast && dc_ex_is_one(&in->graph->pool, t->dims[d]);
    if (unit) index[d] = dc_ex_int(&in->graph->pool, 0);
    else DC_TRY(dc_val_to_index(in, v, &index[d]));
    index[d] = dc_known_index(in->graph, index[d], t->dims[d]);
  }
  return DC_OK;
}

static dc_status eval_read(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_tensor *found, t;
  dc_pool *pool = &in->graph->pool;
  DC_TRY(dc_inst_tensor_ref(in, ast->items[0], &found));
  t = *found; /* the table may move while indices are evaluated */
  if (!t.present) return dc_inst_fail(in, DC_ERR_MODEL, "input '%s' is required here but absent", t.name);
  if (!t.cid) return dc_inst_fail(in, DC_ERR_VALUE, "the row reads '%s' where only shapes are known", t.name);
  dc_ex *index = DC_NEW_ARRAY(in->arena, dc_ex, t.rank);
  DC_TRY(dc_inst_index(in, ast->items + 1, ast->n - 1, ast->flat, &t, index));
  dc_ex value = dc_ex_cast(pool, dc_dtype_compute(t.dtype), dc_ex_read(pool, t.dtype, t.cid, index, t.rank));
  if (ast->fallback) {
    dc_value other;
    dc_ex inside = dc_ex_bool(pool, true);
    for (uint32_t d = 0; d < t.rank; d++) inside = dc_ex_and(pool, inside, dc_ex_in_range(pool, index[d], t.dims[d]));
    DC_TRY(dc_inst_eval(in, ast->fallback, &other));
    dc_value read = dc_val_ex(value);
    DC_TRY(dc_val_unify(in, &read, &other));
    value = dc_ex_select(pool, inside, read.ex, other.ex);
  }
  return *out = dc_val_ex(value), DC_OK;
}

/* ---- calls ---- */

static dc_status call_macro(dc_inst *in, const dc_macro *macro, const dc_value *args, dc_value *out) {
  uint32_t floor = in->local_floor, top = in->locals.n;
  in->local_floor = top;
  for (uint32_t k = 0; k < macro->n_params; k++) dc_inst_push_local(in, macro->params[k], args[k]);
  dc_status status = dc_inst_eval(in, macro->body, out);
  in->locals.n = top, in->local_floor = floor;
  return status;
}

/* e_NAME maps over lists; other macros take lists whole. */
static dc_status apply_macro(dc_inst *in, const dc_macro *macro, const dc_value *args, uint32_t n, dc_value *out) {
  if (n != macro->n_params) return dc_inst_fail(in, DC_ERR_VALUE, "'%s' takes %u arguments", macro->name, macro->n_params);
  uint32_t length = 0;
  bool maps = false;
  for (uint32_t k = 0; k < n && strncmp(macro->name, "e_", 2) == 0; k++) {
    if (args[k].kind != VAL_LIST) continue;
    if (maps && args[k].n != length) return dc_inst_fail(in, DC_ERR_SHAPE, "lists of %u and %u elements meet", length, args[k].n);
    maps = true, length = args[k].n;
  }
  if (!maps) return call_macro(in, macro, args, out);
  *out = dc_val_list(in, length);
  dc_value *one = DC_NEW_ARRAY(in->arena, dc_value, n);
  for (uint32_t i = 0; i < length; i++) {
    for (uint32_t k = 0; k < n; k++) one[k] = args[k].kind == VAL_LIST ? args[k].items[i] : args[k];
    DC_TRY(call_macro(in, macro, one, &out->items[i]));
  }
  return DC_OK;
}

static bool prim_named(const char *name, dc_op *out) {
  for (int k = 0; k < DC_PRIM_COUNT; k++)
    if (strcmp(dc_prims[k].name, name) == 0) return *out = (dc_op)k, true;
  return false;
}

static dc_status eval_call(dc_inst *in, const dc_ast *ast, dc_value *out) {
  bool found;
  DC_TRY(dc_builtin_tensor(in, ast, out, &found));
  if (found) return DC_OK;
  value_list args = {0};
  for (uint32_t k = 0; k < ast->n; k++) {
    dc_value v;
    DC_TRY(dc_inst_eval(in, ast->items[k], &v));
    DC_PUSH(in->arena, &args, v);
  }
  DC_TRY(dc_builtin_call(in, ast->name, args.v, args.n, out, &found));
  if (found) return DC_OK;
  const dc_macro *macro = dc_ops_macro(in->ops, ast->name);
  if (macro && macro->body) return apply_macro(in, macro, args.v, args.n, out);
  dc_op prim;
  if (!prim_named(ast->name, &prim)) return dc_inst_fail(in, DC_ERR_VALUE, "the row calls '%s', which does not exist", ast->name);
  if (dc_prims[prim].arity == 1 && args.n == 1) return dc_val_unary(in, prim, args.v[0], out);
  if (dc_prims[prim].arity != 2 || args.n < 2 || (args.n > 2 && prim != DC_MIN && prim != DC_MAX))
    return dc_inst_fail(in, DC_ERR_VALUE, "'%s' takes %d arguments", ast->name, dc_prims[prim].arity);
  *out = args.v[0];
  for (uint32_t k = 1; k < args.n; k++) DC_TRY(dc_val_binary(in, prim, *out, args.v[k], out));
  return DC_OK;
}

/* ---- control ---- */

static dc_status eval_select(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_value c, yes, no;
  double truth;
  DC_TRY(dc_inst_eval(in, ast->items[0], &c));
  if (dc_val_is_number(in, &c, &truth)) return dc_inst_eval(in, ast->items[truth != 0 ? 1 : 2], out);
  DC_TRY(dc_inst_eval(in, ast->items[1], &yes));
  DC_TRY(dc_inst_eval(in, ast->items[2], &no));
  dc_ex condition;
  DC_TRY(dc_val_to_bool(in, &c, &condition));
  DC_TRY(dc_val_unify(in, &yes, &no));
  if (yes.kind == VAL_NUM) {
    yes.ex = dc_ex_const(&in->graph->pool, in->float_type, yes.num);
    no.ex = dc_ex_const(&in->graph->pool, in->float_type, no.num);
  }
  return *out = dc_val_ex(dc_ex_select(&in->graph->pool, condition, yes.ex, no.ex)), DC_OK;
}

/* && and || with a known left side do not look at the right one. */
static dc_status eval_binary(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_value a, b;
  double known;
  DC_TRY(dc_inst_eval(in, ast->items[0], &a));
  if ((ast->prim == DC_AND || ast->prim == DC_OR) && dc_val_is_number(in, &a, &known) && (known != 0) == (ast->prim == DC_OR))
    return *out = dc_val_bool(in, known != 0), DC_OK;
  DC_TRY(dc_inst_eval(in, ast->items[1], &b));
  return dc_val_binary(in, (dc_op)ast->prim, a, b, out);
}

static dc_status eval_fold(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_value count, list;
  int64_t n;
  dc_op prim;
  DC_TRY(dc_inst_eval(in, ast->binders[0].extent, &count));
  if (!dc_val_is_int(in, &count, &n) || n < (ast->name ? 1 : 0) || n > 1 << 16)
    return dc_inst_fail(in, DC_ERR_MODEL, "expected at least one input");
  list = dc_val_list(in, (uint32_t)n);
  for (int64_t k = 0; k < n; k++) {
    dc_inst_push_local(in, ast->binders[0].name, dc_val_int(in, k));
    dc_status status = dc_inst_eval(in, ast->items[0], &list.items[k]);
    in->locals.n--;
    if (status) return status;
  }
  if (!ast->name) return *out = list, DC_OK;
  if (!prim_named(ast->name, &prim)) return dc_inst_fail(in, DC_ERR_VALUE, "fold does not know '%s'", ast->name);
  *out = list.items[0];
  for (int64_t k = 1; k < n; k++) DC_TRY(dc_val_binary(in, prim, *out, list.items[k], out));
  return DC_OK;
}

static dc_status eval_list(dc_inst *in, const dc_ast *ast, dc_value *out) {
  value_list items = {0};
  for (uint32_t k = 0; k < ast->n; k++) {
    dc_value v;
    DC_TRY(dc_inst_eval(in, ast->items[k], &v));
    if (ast->items[k]->kind != AST_PACK || v.kind != VAL_LIST) DC_PUSH(in->arena, &items, v);
    else
      for (uint32_t j = 0; j < v.n; j++) DC_PUSH(in->arena, &items, v.items[j]);
  }
  return *out = (dc_value){.kind = VAL_LIST, .n = items.n, .items = items.v}, DC_OK;
}

static dc_status eval_item(dc_inst *in, const dc_ast *ast, dc_value *out) {
  bool found;
  int32_t item;
  DC_TRY(item_number(in, ast->items[0], &item));
  DC_TRY(dc_inst_lookup(in, ast->name, out, &found));
  if (!found || out->kind != VAL_LIST || (uint32_t)item >= out->n)
    return dc_inst_fail(in, DC_ERR_MODEL, "'%s' has no item %d", ast->name, item);
  return *out = out->items[item], DC_OK;
}

static dc_status eval(dc_inst *in, const dc_ast *ast, dc_value *out) {
  dc_value v;
  bool found;
  switch ((dc_ast_kind)ast->kind) {
    case AST_INT: return *out = dc_val_int(in, ast->i), DC_OK;
    case AST_FLOAT: return *out = dc_val_num(ast->f), DC_OK;
    case AST_STRING: return *out = dc_val_str(ast->name), DC_OK;
    case AST_NAME:
      DC_TRY(dc_inst_lookup(in, ast->name, out, &found));
      return found ? DC_OK : dc_inst_fail(in, DC_ERR_MODEL, "'%s' is not given", ast->name);
    case AST_LIST: return eval_list(in, ast, out);
    case AST_BINARY: return eval_binary(in, ast, out);
    case AST_NEG:
      DC_TRY(dc_inst_eval(in, ast->items[0], &v));
      return dc_val_unary(in, DC_NEG, v, out);
    case AST_NOT:
      DC_TRY(dc_inst_eval(in, ast->items[0], &v));
      return dc_val_unary(in, DC_NOT, v, out);
    case AST_BCAST: case AST_PACK: return dc_inst_eval(in, ast->items[0], out);
    case AST_SELECT: return eval_select(in, ast, out);
    case AST_CALL: return eval_call(in, ast, out);
    case AST_ITEM: return eval_item(in, ast, out);
    case AST_READ: return eval_read(in, ast, out);
    case AST_REDUCE: return dc_inst_reduce(in, ast, out);
    case AST_FOLD: return eval_fold(in, ast, out);
  }
  return dc_inst_fail(in, DC_ERR_VALUE, "an unknown construct");
}

dc_status dc_inst_eval(dc_inst *in, const dc_ast *ast, dc_value *out) {
  *out = (dc_value){0};
  if (++in->steps > MAX_STEPS + in->more_steps) return dc_inst_fail(in, DC_ERR_MODEL, "expected a smaller model: instantiating the operator does not end");
  if (++in->depth > MAX_DEPTH) return dc_inst_fail(in, DC_ERR_MODEL, "the operator is nested too deeply");
  dc_status status = eval(in, ast, out);
  in->depth--;
  return status;
}
