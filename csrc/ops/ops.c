/* What the rest of the compiler asks of a row: shapes, expansion, gradient. */
#include "ops/ops.h"

#include <string.h>

#include "ops/inst.h"
#include "ops/known.h"

/* ---- inference ---- */

static dc_status set_output(dc_inst *in, dc_cid cid, const char *output, dc_dtype type, uint32_t rank, const dc_ex *dims) {
  dc_container *c = dc_cont(in->graph, cid);
  int64_t a, b;
  if (c->dtype && c->dtype != type)
    return dc_inst_fail(in, DC_ERR_DTYPE, "output '%s' has type %s, but the model declares %s", output, dc_dtype_name(type),
                        dc_dtype_name((dc_dtype)c->dtype));
  if (c->is_claimed) c->shape = NULL, c->is_claimed = false;
  if (c->shape && c->rank != rank)
    return dc_inst_fail(in, DC_ERR_SHAPE, "output '%s' has %u dimensions, but the model declares %u", output, rank, c->rank);
  for (uint32_t d = 0; c->shape && d < rank; d++)
    if (dc_ex_is_int(&in->graph->pool, dims[d], &a) && dc_ex_is_int(&in->graph->pool, c->shape[d], &b) && a != b)
      return dc_inst_fail(in, DC_ERR_SHAPE, "output '%s': dimension %u is %lld, but the model declares %lld", output, d, (long long)a,
                          (long long)b);
  if (c->role == DC_ROLE_INPUT && c->shape) { /* a caller's array has the extents that it has */
    for (uint32_t d = 0; d < rank; d++)
      if (dims[d] != c->shape[d]) dc_graph_take_equal(in->graph, c->shape[d], dims[d]);
    return DC_OK;
  }
  c->dtype = (uint8_t)type, c->rank = rank;
  c->shape = dc_arena_copy(&in->graph->arena, dims, rank * sizeof *dims);
  return DC_OK;
}

static const char *output_name(const dc_row *row, uint32_t k) { return row->out[k < row->n_out ? k : row->n_out - 1].name; }

static dc_status infer(dc_inst *in, dc_ops *ops, dc_graph *graph, dc_nid node, dc_cid *blocked, dc_arena *scratch) {
  DC_TRY(dc_inst_bind(in, ops, graph, node, scratch));
  *blocked = in->blocked;
  if (in->blocked) return DC_OK;
  for (uint32_t k = 0; k < dc_node_at(graph, node)->lib.n_out; k++) {
    dc_cid cid = dc_node_at(graph, node)->lib.out[k];
    dc_dtype type;
    uint32_t rank;
    dc_ex *dims;
    if (!cid) continue;
    DC_TRY(dc_inst_output(in, k, &type, &rank, &dims));
    DC_TRY(set_output(in, cid, output_name(in->row, k), type, rank, dims));
  }
  return dc_known_propagate(ops, graph, node);
}

dc_status dc_ops_infer(dc_ops *ops, dc_graph *graph, dc_nid node, dc_cid *blocked) {
  dc_arena scratch = {0};
  dc_inst in;
  *blocked = 0;
  dc_status status = infer(&in, ops, graph, node, blocked, &scratch);
  dc_arena_free(&scratch);
  return status;
}

/* ---- expansion ---- */

/* Outputs and, in a gradient, the given gradients become tensors that statements may name. */
static dc_status register_outputs(dc_inst *in, const dc_cid *out, uint32_t n) {
  for (uint32_t k = 0; k < n || k < in->row->n_out; k++) {
    bool variadic = k >= in->row->n_out - 1 && in->row->out[in->row->n_out - 1].variadic;
    uint32_t s = k < in->row->n_out ? k : in->row->n_out - 1;
    if (k >= in->row->n_out && !variadic) return dc_inst_fail(in, DC_ERR_MODEL, "expected at most %u outputs", in->row->n_out);
    dc_tensor t = {.name = in->row->out_sig[s].name, .item = in->row->out[s].variadic ? (int32_t)(k - s) : -1};
    t.cid = k < n ? out[k] : 0;
    t.present = t.cid != 0;
    DC_TRY(dc_inst_output(in, k, &t.dtype, &t.rank, &t.dims));
    if (t.present && !dc_cont(in->graph, t.cid)->shape && t.rank) return dc_inst_fail(in, DC_ERR_MODEL, "the node is not inferred yet");
    dc_inst_add_tensor(in, t);
    if (k + 1 >= n && variadic) break;
  }
  return DC_OK;
}

typedef DC_VEC(const char *) name_set;

static bool holds(const name_set *set, const char *name) {
  for (uint32_t k = 0; k < set->n; k++)
    if (strcmp(set->v[k], name) == 0) return true;
  return false;
}

static void add_names(dc_inst *in, const dc_ast *ast, name_set *set) {
  if (!ast) return;
  if ((ast->kind == AST_NAME || ast->kind == AST_ITEM || ast->kind == AST_CALL) && !holds(set, ast->name)) {
    DC_PUSH(in->arena, set, ast->name);
    const dc_macro *macro = ast->kind == AST_CALL ? dc_ops_macro(in->ops, ast->name) : NULL;
    if (macro) add_names(in, macro->body, set); /* a helper may read tensors of the row */
  }
  for (uint32_t k = 0; k < ast->n; k++) add_names(in, ast->items[k], set);
  add_names(in, ast->fallback, set);
  add_names(in, ast->guard, set);
  for (uint32_t k = 0; k < ast->n_binders; k++) add_names(in, ast->binders[k].extent, set);
}

static dc_block prune(dc_inst *in, const dc_block *block, name_set *needed);

static bool computes(const dc_block *block) {
  for (uint32_t k = 0; k < block->n; k++)
    if (block->v[k]->kind != STMT_LET) return true;
  return false;
}

/* Keeps a statement that writes something needed, and notes what it reads. */
static const dc_stmt *keep_statement(dc_inst *in, const dc_stmt *s, name_set *needed) {
  if (s->kind == STMT_NATIVE) return s;
  if (s->kind == STMT_LET) return add_names(in, s->expr, needed), s;
  if (s->kind == STMT_ASSIGN || s->kind == STMT_OPERATOR) {
    if (!holds(needed, s->target)) return NULL;
    add_names(in, s->expr, needed);
    for (uint32_t k = 0; k < s->n_attr; k++) add_names(in, s->attr[k].value, needed);
    for (uint32_t k = 0; k < s->n_index; k++) add_names(in, s->index[k], needed);
    return s;
  }
  dc_stmt *copy = dc_arena_copy(in->arena, s, sizeof *s);
  for (uint32_t before = UINT32_MAX; before != needed->n;) { /* loops may read what later statements wrote */
    before = needed->n;
    copy->body = prune(in, &s->body, needed);
    copy->other = prune(in, &s->other, needed);
  }
  return computes(&copy->body) || computes(&copy->other) ? copy : NULL;
}

static dc_block prune(dc_inst *in, const dc_block *block, name_set *needed) {
  const dc_stmt **kept = DC_NEW_ARRAY(in->arena, const dc_stmt *, block->n);
  uint32_t at = block->n;
  for (uint32_t k = block->n; k-- > 0;) {
    const dc_stmt *s = keep_statement(in, block->v[k], needed);
    if (s) kept[--at] = s;
  }
  return (dc_block){kept + at, block->n - at};
}

static bool is_output_name(const dc_row *row, const char *name) {
  for (uint32_t k = 0; k < row->n_out; k++)
    if (strcmp(row->out_sig[k].name, name) == 0) return true;
  return false;
}

static dc_status expand(dc_inst *in, dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *scope, dc_arena *scratch) {
  DC_TRY(dc_inst_bind(in, ops, graph, node, scratch));
  if (in->blocked) return dc_inst_fail(in, DC_ERR_MODEL, "the value of '%s' is not known", dc_cont_name(graph, in->blocked));
  const dc_library lib = dc_node_at(graph, node)->lib;
  DC_TRY(register_outputs(in, lib.out, lib.n_out));
  name_set needed = {0};
  for (uint32_t k = 0; k < in->tensors.n; k++)
    if (in->tensors.v[k].present) DC_PUSH(scratch, &needed, in->tensors.v[k].name);
  dc_block body = prune(in, &in->row->body, &needed);
  for (uint32_t k = 0; k < in->tensors.n; k++) { /* an output that nobody asked for but the others are made of */
    dc_tensor *t = &in->tensors.v[k];
    if (t->present || t->cid || !is_output_name(in->row, t->name) || !holds(&needed, t->name)) continue;
    t->cid = dc_container_add(graph, dc_inst_own_name(in, t->name), t->dtype, t->rank, t->dims, DC_ROLE_TEMP);
    t->present = true;
  }
  in->out = scope;
  return dc_inst_run(in, &body);
}

dc_status dc_ops_expand(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *scope) {
  dc_arena scratch = {0};
  dc_inst in;
  dc_status status = expand(&in, ops, graph, node, scope, &scratch);
  dc_arena_free(&scratch);
  return status;
}

/* ---- gradients ---- */

static void add_gradient(dc_inst *in, const char *of, int32_t item, dc_cid cid) {
  dc_tensor *value = dc_inst_tensor(in, of, item), t = value ? *value : (dc_tensor){0};
  t.name = dc_arena_printf(in->arena, "d%s", of), t.item = item;
  t.cid = cid, t.present = cid != 0, t.meta = false;
  if (cid) t.dtype = (dc_dtype)dc_cont(in->graph, cid)->dtype;
  dc_inst_add_tensor(in, t);
}

static dc_status expand_grad(dc_inst *in, dc_ops *ops, dc_graph *graph, dc_nid node, uint32_t input, const dc_cid *grad_out,
                             dc_cid grad_in, dc_scope *scope, dc_arena *scratch) {
  DC_TRY(dc_inst_bind(in, ops, graph, node, scratch));
  if (in->blocked) return dc_inst_fail(in, DC_ERR_MODEL, "the value of '%s' is not known", dc_cont_name(graph, in->blocked));
  dc_library lib = dc_node_at(graph, node)->lib;
  uint32_t n_out = lib.wrt ? lib.n_fwd_out : lib.n_out, n_in = in->tensors.n;
  const dc_cid *outs = lib.wrt ? lib.in + lib.n_fwd_in : lib.out;
  DC_TRY(register_outputs(in, outs, n_out));
  uint32_t n_tensors = in->tensors.n;
  for (uint32_t k = n_in; k < n_tensors; k++)
    add_gradient(in, in->tensors.v[k].name, in->tensors.v[k].item, k - n_in < n_out ? grad_out[k - n_in] : 0);
  uint32_t s = input < in->row->n_in ? input : in->row->n_in - 1;
  int32_t item = in->row->in[s].variadic ? (int32_t)(input - s) : -1;
  add_gradient(in, in->row->in_sig[s].name, item, grad_in);
  in->tag_wrt = input + 1;
  name_set needed = {0};
  DC_PUSH(scratch, &needed, in->tensors.v[in->tensors.n - 1].name);
  dc_block body = prune(in, &in->row->grad, &needed);
  if (!body.n) return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "the operator has no gradient with respect to input '%s'", in->row->in[s].name);
  in->out = scope;
  return dc_inst_run(in, &body);
}

dc_status dc_ops_expand_grad(dc_ops *ops, dc_graph *graph, dc_nid node, uint32_t input, const dc_cid *grad_out, dc_cid grad_in,
                             dc_scope *scope) {
  dc_arena scratch = {0};
  dc_inst in;
  dc_status status = expand_grad(&in, ops, graph, node, input, grad_out, grad_in, scope, &scratch);
  dc_arena_free(&scratch);
  return status;
}

/* ---- scalars ---- */

static dc_status scalar(dc_inst *in, const char *text, const char *const *names, const dc_ex *values, uint32_t n, dc_ex *out) {
  dc_lang_parser p;
  const dc_ast *ast;
  dc_value v;
  dc_dtype type = n ? dc_ex_dtype(&in->graph->pool, values[0]) : DC_F64;
  if (dc_dtype_is_float(type)) in->float_type = type;
  for (uint32_t k = 0; k < n; k++) dc_inst_define(in, names[k], dc_val_ex(values[k]));
  dc_lang_start(&p, in->arena, text);
  DC_TRY(dc_lang_next(&p));
  DC_TRY(dc_lang_expr(&p, &ast));
  if (p.kind) return dc_error(DC_ERR_VALUE, "'%s': expected the end of the expression", text);
  DC_TRY(dc_inst_eval(in, ast, &v));
  return dc_val_to_ex(in, &v, type, out);
}

dc_status dc_lang_scalar(dc_ops *ops, dc_graph *graph, const char *text, const char *const *names, const dc_ex *values, uint32_t n,
                         dc_ex *out) {
  dc_arena scratch = {0};
  dc_inst in = {.ops = ops, .graph = graph, .arena = &scratch, .float_type = DC_F32};
  dc_status status = scalar(&in, text, names, values, n, out);
  dc_arena_free(&scratch);
  return status;
}
