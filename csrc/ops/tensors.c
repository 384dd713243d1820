/* Functions of the language on a tensor's name: whether it is there, its shape and type, and indices that it holds. */
#include <math.h>
#include <string.h>

#include "expr/dtype.h"
#include "ops/inst.h"

/* ndidx(I, prefix.., D): the index vector along I's last axis, negative entries wrapped. */
static dc_status index_vector(dc_inst *in, const dc_ast *call, const dc_tensor *t, dc_value *out) {
  dc_value prefix, dims;
  dc_pool *pool = &in->graph->pool;
  if (call->n != 3) return dc_inst_fail(in, DC_ERR_VALUE, "ndidx takes three arguments");
  DC_TRY(dc_inst_eval(in, call->items[1], &prefix));
  DC_TRY(dc_inst_eval(in, call->items[2], &dims));
  if (prefix.kind != VAL_LIST || dims.kind != VAL_LIST || prefix.n + 1 != t->rank)
    return dc_inst_fail(in, DC_ERR_SHAPE, "the index tensor has %u dimensions", t->rank);
  dc_ex *index = DC_NEW_ARRAY(in->arena, dc_ex, t->rank);
  for (uint32_t k = 0; k < prefix.n; k++) DC_TRY(dc_val_to_index(in, &prefix.items[k], &index[k]));
  *out = dc_val_list(in, dims.n);
  for (uint32_t k = 0; k < dims.n; k++) {
    dc_ex extent;
    DC_TRY(dc_val_to_index(in, &dims.items[k], &extent));
    index[t->rank - 1] = dc_ex_int(pool, k);
    dc_ex at = dc_ex_cast(pool, DC_I64, dc_ex_read(pool, t->dtype, t->cid, index, t->rank));
    dc_ex negative = dc_ex_prim2(pool, DC_LT, at, dc_ex_int(pool, 0));
    out->items[k] = dc_val_ex(dc_ex_select(pool, negative, dc_ix_add(pool, at, extent), at));
  }
  return DC_OK;
}

static dc_status has(dc_inst *in, const dc_ast *name, dc_value *out) {
  dc_tensor *t = name->kind == AST_NAME ? dc_inst_tensor(in, name->name, -1) : NULL;
  if (name->kind == AST_ITEM) DC_TRY(dc_inst_tensor_ref(in, name, &t));
  if (t) return *out = dc_val_bool(in, t->present), DC_OK;
  dc_value v;
  bool found;
  DC_TRY(dc_inst_lookup(in, name->name, &v, &found));
  return *out = dc_val_bool(in, found && v.kind != VAL_NONE), DC_OK;
}

dc_status dc_builtin_tensor(dc_inst *in, const dc_ast *call, dc_value *out, bool *found) {
  static const char *const names[] = {"rank", "shape", "size", "dtof", "isfloat", "issigned", "dtmin", "dtmax", "ndidx"};
  uint32_t which = 0;
  *found = strcmp(call->name, "has") == 0 && call->n == 1 && (call->items[0]->kind == AST_NAME || call->items[0]->kind == AST_ITEM);
  if (*found) return has(in, call->items[0], out);
  while (which < 9 && strcmp(names[which], call->name)) which++;
  *found = which < 9;
  if (!*found) return DC_OK;
  dc_tensor *t;
  if (call->n < 1) return dc_inst_fail(in, DC_ERR_VALUE, "'%s' takes a tensor", call->name);
  DC_TRY(dc_inst_tensor_ref(in, call->items[0], &t));
  dc_tensor tensor = *t;
  if (which <= 2 && !tensor.present) return dc_inst_fail(in, DC_ERR_MODEL, "input '%s' is required", tensor.name);
  dc_value shape = dc_val_list(in, tensor.rank);
  for (uint32_t d = 0; d < tensor.rank && which <= 2; d++) shape.items[d] = dc_val_ex(tensor.dims[d]);
  bool real = dc_dtype_is_float(tensor.dtype);
  switch (which) {
    case 0: return *out = dc_val_int(in, tensor.rank), DC_OK;
    case 1: return *out = shape, DC_OK;
    case 2: return dc_val_product(in, &shape, out);
    case 3: return *out = dc_val_int(in, tensor.dtype), DC_OK;
    case 4: return *out = dc_val_bool(in, real), DC_OK;
    case 5: return *out = dc_val_bool(in, dc_dtype_is_signed(tensor.dtype)), DC_OK;
    case 6:
      return *out = real ? dc_val_num(-INFINITY) : dc_val_ex(dc_ex_const(&in->graph->pool, tensor.dtype, dc_dtype_min(tensor.dtype))),
             DC_OK;
    case 7:
      return *out = real ? dc_val_num(INFINITY) : dc_val_ex(dc_ex_const(&in->graph->pool, tensor.dtype, dc_dtype_max(tensor.dtype))), DC_OK;
    default: return index_vector(in, call, &tensor, out);
  }
}
