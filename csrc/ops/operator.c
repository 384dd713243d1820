/* A statement of a gradient that is an operator: W = dcml.SolveTriangular(A, B; upper=1).
 *
 * It becomes a node of the graph, for which a library may be chosen and which is differentiated like any other. */
#include <string.h>

#include "ops/inst.h"

enum { MAX_OPERANDS = 8, MAX_ATTRIBUTES = 8 };

/* A copy in another type, element by element. */
static void put_copy(dc_inst *in, dc_cid from, dc_cid to) {
  dc_pool *pool = &in->graph->pool;
  const dc_container c = *dc_cont(in->graph, from);
  dc_param params[DC_MAX_RANK];
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < c.rank; d++) {
    params[d] = dc_param_new(pool, "x", dc_ex_int(pool, 0), c.shape[d], 0);
    index[d] = dc_ex_par(pool, params[d]);
  }
  const dc_dtype computed = dc_dtype_compute((dc_dtype)dc_cont(in->graph, to)->dtype);
  dc_ex value = dc_ex_cast(pool, computed, dc_ex_read(pool, (dc_dtype)c.dtype, from, index, c.rank));
  dc_nid tasklet = dc_node_tasklet(in->graph, to, DC_WCR_NONE, index, c.rank, 0, value);
  dc_scope_push(in->graph, in->out, dc_inst_tag(in, dc_node_wrap(in->graph, DC_MAP_PARALLEL, params, c.rank, dc_inst_tag(in, tasklet))));
}

/* Small floats are computed with in a wider type, as in other statements. */
static dc_status operand(dc_inst *in, const dc_ast *ast, dc_cid *out) {
  dc_tensor *t;
  DC_TRY(dc_inst_tensor_ref(in, ast, &t));
  if (!t->present) return dc_inst_fail(in, DC_ERR_VALUE, "the row gives an operator '%s', which is not there", t->name);
  const dc_container c = *dc_cont(in->graph, *out = t->cid);
  const dc_dtype computed = dc_dtype_compute((dc_dtype)c.dtype);
  if (computed == c.dtype) return DC_OK;
  *out = dc_container_after(in->graph, t->cid, "w", computed, c.rank, c.shape);
  return put_copy(in, t->cid, *out), DC_OK;
}

static dc_status attribute(dc_inst *in, const dc_define *d, dc_attr *out) {
  dc_value v;
  int64_t whole, list[DC_MAX_RANK];
  double number;
  DC_TRY(dc_inst_eval(in, d->value, &v));
  if (v.kind == VAL_STR) return *out = dc_attr_string(in->graph, d->name, v.str, strlen(v.str)), DC_OK;
  if (dc_val_is_int(in, &v, &whole)) return *out = dc_attr_int(in->graph, d->name, whole), DC_OK;
  if (dc_val_is_number(in, &v, &number)) return *out = dc_attr_float(in->graph, d->name, number), DC_OK;
  bool known = v.kind == VAL_LIST && v.n <= DC_MAX_RANK;
  for (uint32_t k = 0; known && k < v.n; k++) known = dc_val_is_int(in, &v.items[k], &list[k]);
  if (!known) return dc_inst_fail(in, DC_ERR_VALUE, "the row's attribute '%s' is not known when it is expanded", d->name);
  return *out = dc_attr_ints(in->graph, d->name, list, v.n), DC_OK;
}

static dc_status make_node(dc_inst *in, const dc_stmt *s, dc_cid result) {
  dc_cid given[MAX_OPERANDS], blocked;
  dc_attr attrs[MAX_ATTRIBUTES];
  const dc_row *row;
  if (s->n_index > MAX_OPERANDS || s->n_attr > MAX_ATTRIBUTES) return dc_inst_fail(in, DC_ERR_VALUE, "the row gives '%s' too much", s->op);
  DC_TRY(dc_ops_lookup(in->ops, s->domain, s->op, *s->domain ? dc_ops_newest(in->ops, s->domain) : in->graph->opset, &row));
  if (!row) return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "the row uses operator '%s', which is not known", s->op);
  for (uint32_t k = 0; k < s->n_index; k++) DC_TRY(operand(in, s->index[k], &given[k]));
  for (uint32_t k = 0; k < s->n_attr; k++) DC_TRY(attribute(in, &s->attr[k], &attrs[k]));
  dc_nid node = dc_node_library(in->graph, s->op, s->domain, row->since, given, s->n_index, &result, 1, attrs, s->n_attr);
  dc_scope_push(in->graph, in->out, dc_inst_tag(in, node));
  DC_TRY(dc_ops_infer(in->ops, in->graph, node, &blocked));
  return blocked ? dc_inst_fail(in, DC_ERR_VALUE, "the row gives '%s' an operand whose value must be known", s->op) : DC_OK;
}

dc_status dc_inst_operator(dc_inst *in, const dc_stmt *s) {
  if (!in->tag_wrt || in->domain.n) return dc_inst_fail(in, DC_ERR_VALUE, "operators stand in gradients, and not inside loops");
  const dc_tensor *found = dc_inst_tensor(in, s->target, -1);
  const dc_cid target = found ? found->cid : 0;
  const bool is_wide = target && dc_dtype_compute((dc_dtype)dc_cont(in->graph, target)->dtype) == dc_cont(in->graph, target)->dtype;
  dc_cid result = target;
  if (!is_wide) {
    const dc_ex none = 0;
    result = dc_container_add(in->graph, dc_inst_own_name(in, s->target), 0, 0, &none, DC_ROLE_TEMP);
    dc_cont(in->graph, result)->shape = NULL;
  }
  DC_TRY(make_node(in, s, result));
  const dc_container made = *dc_cont(in->graph, result);
  if (!target) dc_inst_add_tensor(in, (dc_tensor){s->target, -1, true, false, result, (dc_dtype)made.dtype, made.rank, made.shape});
  if (target && !is_wide) put_copy(in, result, target);
  return DC_OK;
}
