/* Matching a node against its row: inputs, attributes, types and dimensions. */
#include <math.h>
#include <string.h>

#include "ops/inst.h"

enum { MAX_META_ELEMENTS = 1 << 16 };

/* ---- values known while shapes are computed ---- */

static dc_value element(dc_inst *in, dc_dtype type, const void *data, uint64_t k) {
  switch (type) {
    case DC_F32: return dc_val_num(((const float *)data)[k]);
    case DC_F64: return dc_val_num(((const double *)data)[k]);
    case DC_F16: return dc_val_num(dc_f16_to_f32(((const uint16_t *)data)[k]));
    case DC_BF16: return dc_val_num(dc_bf16_to_f32(((const uint16_t *)data)[k]));
    case DC_I64: case DC_U64: return dc_val_int(in, ((const int64_t *)data)[k]);
    case DC_I32: return dc_val_int(in, ((const int32_t *)data)[k]);
    case DC_U32: return dc_val_int(in, ((const uint32_t *)data)[k]);
    case DC_I16: return dc_val_int(in, ((const int16_t *)data)[k]);
    case DC_U16: return dc_val_int(in, ((const uint16_t *)data)[k]);
    case DC_I8: case DC_I4: case DC_I2: return dc_val_int(in, ((const int8_t *)data)[k]);
    default: return dc_val_int(in, ((const uint8_t *)data)[k]);
  }
}

static dc_status meta_value(dc_inst *in, dc_cid cid, dc_value *out, bool *known) {
  const dc_container *c = dc_cont(in->graph, cid);
  int bytes = dc_dtype_bytes((dc_dtype)c->dtype);
  uint64_t n = c->known ? c->known_count : bytes ? c->data_bytes / (uint64_t)bytes : 0;
  *known = c->known || (c->role == DC_ROLE_CONST && c->data && bytes);
  if (!*known) return DC_OK;
  if (n > MAX_META_ELEMENTS)
    return dc_inst_fail(in, DC_ERR_MODEL, "'%s' has too many elements to be a shape", dc_cont_name(in->graph, cid));
  *out = dc_val_list(in, (uint32_t)n);
  for (uint32_t k = 0; k < n; k++) out->items[k] = c->known ? dc_val_ex(c->known[k]) : element(in, (dc_dtype)c->dtype, c->data, k);
  return DC_OK;
}

/* ---- types ---- */

static dc_dtype type_variable(dc_inst *in, const char *name) {
  for (uint32_t k = 0; k < in->env.n; k++)
    if (in->env.v[k].name[0] == ':' && strcmp(in->env.v[k].name + 1, name) == 0) return (dc_dtype)in->env.v[k].value.n;
  return DC_NOTYPE;
}

static bool in_class(const char *class_name, dc_dtype t) {
  bool native_float = t == DC_F16 || t == DC_BF16 || t == DC_F32 || t == DC_F64;
  if (strcmp(class_name, "float") == 0) return native_float;
  if (strcmp(class_name, "float8") == 0) return dc_dtype_is_float(t);
  if (strcmp(class_name, "int") == 0) return dc_dtype_is_integer(t);
  if (strcmp(class_name, "ring") == 0 && dc_dtype_is_complex(t)) return true;
  if (strcmp(class_name, "num") == 0 || strcmp(class_name, "ring") == 0) return native_float || dc_dtype_is_integer(t);
  if (strcmp(class_name, "signed") == 0) return native_float || dc_dtype_is_signed(t);
  if (strcmp(class_name, "index") == 0) return t == DC_I32 || t == DC_I64;
  if (strcmp(class_name, "bool") == 0) return t == DC_BOOL;
  return true;
}

bool dc_row_accepts(const dc_row *row, const char *type, dc_dtype dtype) {
  dc_dtype fixed = dc_dtype_from_name(type);
  if (fixed || !dc_dtype_bytes(dtype) || dtype == DC_C64 || dtype == DC_C128) return fixed && fixed == dtype;
  for (uint32_t k = 0; k < row->n_constraints; k++)
    if (strcmp(row->constraints[k].variable, type) == 0 && !in_class(row->constraints[k].class_name, dtype)) return false;
  return true;
}

/* Complex numbers are for rows that say so: others may take what is not real for whole numbers. */
static bool takes_complex(const dc_row *row, const char *type) {
  for (uint32_t k = 0; k < row->n_constraints; k++) {
    const char *class = row->constraints[k].class_name;
    if (strcmp(row->constraints[k].variable, type) == 0 && (strcmp(class, "ring") == 0 || strcmp(class, "any") == 0)) return true;
  }
  return false;
}

bool dc_row_takes_complex(const dc_row *row) {
  for (uint32_t k = 0; k < row->n_in; k++)
    if (takes_complex(row, row->in[k].type)) return true;
  return false;
}

static dc_status bind_type(dc_inst *in, const char *input, const char *type, dc_dtype actual) {
  dc_dtype wanted = dc_dtype_from_name(type);
  if (strcmp(type, "_") == 0) return DC_OK; /* each item has its own */
  if (!wanted) wanted = type_variable(in, type);
  if (wanted && wanted != actual)
    return dc_inst_fail(in, DC_ERR_DTYPE, "input '%s' has type %s, expected %s", input, dc_dtype_name(actual), dc_dtype_name(wanted));
  for (uint32_t k = 0; k < in->row->n_constraints; k++)
    if (strcmp(in->row->constraints[k].variable, type) == 0 && !in_class(in->row->constraints[k].class_name, actual))
      return dc_inst_fail(in, DC_ERR_DTYPE, "input '%s' has type %s, expected a type of class %s", input, dc_dtype_name(actual),
                          in->row->constraints[k].class_name);
  if (wanted) return DC_OK;
  const char *key = dc_arena_printf(in->arena, ":%s", type);
  DC_PUSH(in->arena, &in->env, ((dc_binding_entry){.name = key, .value = {.n = actual}}));
  return DC_OK;
}

/* ---- inputs ---- */

static dc_status register_input(dc_inst *in, uint32_t sig, int32_t item, dc_cid cid) {
  const dc_row_arg *arg = &in->row->in[sig];
  const char *name = in->row->in_sig[sig].name;
  if (!cid) {
    if (!arg->optional) return dc_inst_fail(in, DC_ERR_MODEL, "expected input '%s'", arg->name);
    dc_inst_add_tensor(in, (dc_tensor){.name = name, .item = item});
    return DC_OK;
  }
  const dc_container *c = dc_cont(in->graph, cid);
  if (!c->dtype || (c->rank && !c->shape))
    return dc_inst_fail(in, DC_ERR_MODEL, "input '%s' ('%s') has no known shape", arg->name, dc_cont_name(in->graph, cid));
  bool unfit = dc_dtype_is_complex((dc_dtype)c->dtype) && !takes_complex(in->row, arg->type);
  if (c->is_host || c->dtype == DC_STRING || unfit)
    return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "input '%s' of type %s%s is not supported", arg->name, dc_dtype_name((dc_dtype)c->dtype),
                        c->is_host ? " host value" : "");
  dc_dtype type = (dc_dtype)c->dtype;
  dc_inst_add_tensor(in, (dc_tensor){name, item, true, arg->is_meta, cid, type, c->rank, c->shape});
  DC_TRY(bind_type(in, arg->name, arg->type, type));
  if (dc_dtype_is_float(type) && !in->float_type) in->float_type = dc_dtype_compute(type);
  if (!arg->is_meta) return DC_OK;
  dc_value value;
  bool known;
  DC_TRY(meta_value(in, cid, &value, &known));
  if (known) dc_inst_define(in, name, value);
  else if (!in->blocked) in->blocked = cid;
  return DC_OK;
}

static dc_status register_inputs(dc_inst *in) {
  const dc_library *lib = &dc_node_at(in->graph, in->node)->lib;
  uint32_t given = lib->wrt ? lib->n_fwd_in : lib->n_in, at = 0;
  for (uint32_t s = 0; s < in->row->n_in; s++) {
    if (!in->row->in[s].variadic) {
      DC_TRY(register_input(in, s, -1, at < given ? lib->in[at] : 0));
      at++;
      continue;
    }
    uint32_t count = given > at ? given - at : 0;
    if (!count && !in->row->in[s].optional) return dc_inst_fail(in, DC_ERR_MODEL, "expected at least one input '%s'", in->row->in[s].name);
    for (uint32_t k = 0; k < count; k++) DC_TRY(register_input(in, s, (int32_t)k, lib->in[at++]));
    dc_inst_define(in, dc_arena_printf(in->arena, "n_%s", in->row->in_sig[s].name), dc_val_int(in, count));
  }
  for (; at < given; at++)
    if (lib->in[at]) return dc_inst_fail(in, DC_ERR_MODEL, "expected at most %u inputs, got %u", in->row->n_in, given);
  return DC_OK;
}

/* ---- attributes ---- */

static dc_value attr_value(dc_inst *in, const dc_attr *a) {
  dc_value list;
  switch ((dc_attr_kind)a->kind) {
    case DC_ATTR_INT: return dc_val_int(in, a->i);
    case DC_ATTR_FLOAT: return dc_val_num(a->f);
    case DC_ATTR_STRING: return dc_val_str(a->s);
    case DC_ATTR_INTS: case DC_ATTR_FLOATS: case DC_ATTR_STRINGS:
      list = dc_val_list(in, a->n);
      for (uint32_t k = 0; k < a->n; k++)
        list.items[k] = a->kind == DC_ATTR_INTS     ? dc_val_int(in, a->ints[k])
                        : a->kind == DC_ATTR_FLOATS ? dc_val_num(a->floats[k])
                                                    : dc_val_str(a->strings[k]);
      return list;
    default: return (dc_value){.kind = VAL_NONE};
  }
}

/* What a default says about an attribute's kind, so that a model cannot give another one. */
static dc_status check_attr_kind(dc_inst *in, const dc_attr *a, const dc_ast *fallback) {
  if (!fallback) return DC_OK;
  static const struct {
    uint8_t ast, kinds[2];
    const char *expected;
  } rules[] = {{AST_INT, {DC_ATTR_INT, DC_ATTR_INT}, "an integer"},
               {AST_FLOAT, {DC_ATTR_FLOAT, DC_ATTR_FLOAT}, "a float"},
               {AST_STRING, {DC_ATTR_STRING, DC_ATTR_STRING}, "a string"}};
  for (int k = 0; k < 3; k++)
    if (fallback->kind == rules[k].ast && a->kind != rules[k].kinds[0])
      return dc_inst_fail(in, DC_ERR_MODEL, "attribute '%s': expected %s", dc_name_text(&in->graph->names, a->name), rules[k].expected);
  return DC_OK;
}

static dc_status check_limits(dc_inst *in, const dc_attr *a, const dc_row_attr *want) {
  uint32_t c = 0;
  bool integers = a->kind == DC_ATTR_INT || a->kind == DC_ATTR_INTS;
  if (want->n_choices) {
    if (a->kind != DC_ATTR_STRING) return dc_inst_fail(in, DC_ERR_MODEL, "attribute '%s': expected a string", want->name);
    while (c < want->n_choices && strcmp(a->s, want->choices[c])) c++;
    if (c == want->n_choices)
      return dc_inst_fail(in, DC_ERR_MODEL, "attribute '%s' cannot be '%.40s': expected '%s' or the like", want->name, a->s, want->choices[0]);
  }
  if (want->least == INT64_MIN) return DC_OK;
  if (!integers) return dc_inst_fail(in, DC_ERR_MODEL, "attribute '%s': expected integers", want->name);
  const int64_t *v = a->kind == DC_ATTR_INTS ? a->ints : &a->i;
  for (uint32_t k = 0; k < (a->kind == DC_ATTR_INTS ? a->n : 1); k++)
    if (v[k] < want->least)
      return dc_inst_fail(in, DC_ERR_MODEL, "attribute '%s': expected at least %lld, got %lld", want->name, (long long)want->least,
                          (long long)v[k]);
  return DC_OK;
}

static dc_status register_attrs(dc_inst *in) {
  const dc_library *lib = &dc_node_at(in->graph, in->node)->lib;
  for (uint32_t k = 0; k < lib->n_attr; k++) {
    const dc_attr *a = &lib->attr[k];
    const char *name = dc_name_text(&in->graph->names, a->name);
    if (dc_attr_is_wish(in->graph, a)) continue;
    uint32_t r = 0;
    while (r < in->row->n_attr && strcmp(in->row->attr[r].name, name)) r++;
    if (r == in->row->n_attr) return dc_inst_fail(in, DC_ERR_MODEL, "%s-%d has no attribute '%s'", in->row->name, in->row->since, name);
    DC_TRY(check_attr_kind(in, a, in->row->attr_default[r].value));
    DC_TRY(check_limits(in, a, &in->row->attr[r]));
    if (a->kind == DC_ATTR_TENSOR) {
      const dc_container *c = dc_cont(in->graph, (dc_cid)a->i);
      dc_inst_add_tensor(in, (dc_tensor){name, -1, true, false, (dc_cid)a->i, (dc_dtype)c->dtype, c->rank, c->shape});
    } else {
      dc_inst_define(in, name, attr_value(in, a));
    }
  }
  for (uint32_t r = 0; r < in->row->n_attr; r++) {
    if (dc_node_attr(in->graph, in->node, in->row->attr[r].name)) continue;
    if (in->row->attr[r].required) return dc_inst_fail(in, DC_ERR_MODEL, "expected attribute '%s'", in->row->attr[r].name);
    dc_inst_define_lazy(in, in->row->attr[r].name, in->row->attr_default[r].value);
  }
  for (uint32_t f = 0; f < in->row->n_fixed; f++) dc_inst_define_lazy(in, in->row->fixed[f].name, in->row->fixed[f].value);
  for (uint32_t w = 0; w < in->row->n_where; w++) dc_inst_define_lazy(in, in->row->where[w].name, in->row->where[w].value);
  return DC_OK;
}

/* ---- dimensions of inputs ---- */

static dc_status same_extent(dc_inst *in, const char *input, uint32_t axis, dc_ex actual, const dc_value *wanted) {
  int64_t a, b;
  dc_ex e;
  DC_TRY(dc_val_to_index(in, wanted, &e));
  if (actual == e) return DC_OK;
  if (!dc_ex_is_int(&in->graph->pool, actual, &a) || !dc_ex_is_int(&in->graph->pool, e, &b))
    return dc_graph_take_equal(in->graph, actual, e), DC_OK;
  if (a == b) return DC_OK;
  return dc_inst_fail(in, DC_ERR_SHAPE, "input '%s': dimension %u is %lld, expected %lld", input, axis, (long long)a, (long long)b);
}

/* Binds a dimension's name, or checks it against what it is bound to already. */
static dc_status match_dims(dc_inst *in, const char *input, const dc_dim *d, const dc_tensor *t, uint32_t at, uint32_t n) {
  dc_value have = dc_val_list(in, n), bound;
  bool found = false;
  for (uint32_t k = 0; k < n; k++) have.items[k] = dc_val_ex(t->dims[at + k]);
  if (d->name && d->per_item) { /* one value for each item: a list under the name */
    dc_value all = {.kind = VAL_LIST};
    DC_TRY(dc_inst_lookup(in, d->name, &all, &found));
    if (!found) all = dc_val_list(in, 0);
    dc_value longer = dc_val_list(in, all.n + 1);
    for (uint32_t k = 0; k < all.n; k++) longer.items[k] = all.items[k];
    longer.items[all.n] = d->pack ? have : have.items[0];
    return dc_inst_define(in, d->name, longer), DC_OK;
  }
  if (d->name) DC_TRY(dc_inst_lookup(in, d->name, &bound, &found));
  else DC_TRY(dc_inst_eval(in, d->expr, &bound));
  if (d->name && !found) return dc_inst_define(in, d->name, d->pack ? have : have.items[0]), DC_OK;
  if (!d->pack && bound.kind != VAL_LIST) return same_extent(in, input, at, t->dims[at], &bound);
  if (bound.kind != VAL_LIST || bound.n != n)
    return dc_inst_fail(in, DC_ERR_SHAPE, "input '%s' has %u dimensions too many or too few", input, t->rank);
  for (uint32_t k = 0; k < n; k++) DC_TRY(same_extent(in, input, at + k, t->dims[at + k], &bound.items[k]));
  return DC_OK;
}

/* Lengths of packs: given by '#', by an earlier binding, or what is left over (one pack). */
static dc_status pack_lengths(dc_inst *in, const dc_sig *sig, const dc_tensor *t, const char *input, uint32_t *lengths) {
  int64_t used = 0, length;
  int open = -1;
  for (uint32_t k = 0; k < sig->n_dims; k++) {
    const dc_dim *d = &sig->dims[k];
    dc_value v;
    bool found = false;
    lengths[k] = 1;
    if (d->pack && d->length) {
      DC_TRY(dc_inst_eval(in, d->length, &v));
      if (!dc_val_is_int(in, &v, &length) || length < 0 || length > t->rank)
        return dc_inst_fail(in, DC_ERR_SHAPE, "input '%s' has %u dimensions, too few", input, t->rank);
      lengths[k] = (uint32_t)length;
    } else if (d->pack) {
      if (!d->per_item) DC_TRY(dc_inst_lookup(in, d->name, &v, &found));
      if (found && v.kind == VAL_LIST) {
        lengths[k] = v.n; /* bound by an earlier input */
      } else {
        if (open >= 0) return dc_inst_fail(in, DC_ERR_VALUE, "the row leaves the length of two packs open");
        open = (int)k;
        continue;
      }
    }
    used += lengths[k];
  }
  if (used > t->rank || (open < 0 && used != t->rank))
    return dc_inst_fail(in, DC_ERR_SHAPE, "input '%s' has %u dimensions, expected %s%lld", input, t->rank, open < 0 ? "" : "at least ",
                        (long long)used);
  if (open >= 0) lengths[open] = t->rank - (uint32_t)used;
  return DC_OK;
}

static dc_status match_input(dc_inst *in, uint32_t s, int32_t item) {
  const dc_sig *sig = &in->row->in_sig[s];
  dc_tensor t = *dc_inst_tensor(in, sig->name, item);
  const char *input = in->row->in[s].name;
  if (!t.present || !sig->dims) return DC_OK;
  uint32_t *lengths = DC_NEW_ARRAY(in->arena, uint32_t, sig->n_dims), at = 0;
  DC_TRY(pack_lengths(in, sig, &t, input, lengths));
  for (uint32_t k = 0; k < sig->n_dims; k++) {
    DC_TRY(match_dims(in, input, &sig->dims[k], &t, at, lengths[k]));
    at += lengths[k];
  }
  return DC_OK;
}

/* Steps of evaluation that long lists justify, as those of trees. */
static uint32_t steps_for(const dc_library *lib) {
  enum { FOR_A_NUMBER = 64, MOST = 1 << 30 };
  uint64_t numbers = 0;
  for (uint32_t k = 0; k < lib->n_attr; k++) numbers += lib->attr[k].kind >= DC_ATTR_INTS ? lib->attr[k].n : 0;
  return FOR_A_NUMBER * numbers < MOST ? (uint32_t)(FOR_A_NUMBER * numbers) : MOST;
}

dc_status dc_inst_bind(dc_inst *in, dc_ops *ops, dc_graph *graph, dc_nid node, dc_arena *arena) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const char *op = dc_name_text(&graph->names, lib->op), *domain = dc_name_text(&graph->names, lib->domain);
  *in = (dc_inst){.ops = ops, .graph = graph, .node = node, .arena = arena, .more_steps = steps_for(lib)};
  in->tag_op = lib->op, in->tag_wrt = lib->wrt;
  DC_TRY(dc_ops_lookup(ops, domain, op, lib->since, &in->row));
  if (!in->row)
    return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "operator %s%s%s of version %d is not supported", domain, *domain ? "." : "", op,
                        lib->since);
  dc_inst_define(in, "nout", dc_val_int(in, lib->wrt ? lib->n_fwd_out : lib->n_out));
  DC_TRY(register_inputs(in));
  if (!in->float_type) in->float_type = DC_F32;
  DC_TRY(register_attrs(in));
  if (in->blocked) return DC_OK;
  for (uint32_t s = 0; s < in->row->n_in; s++) {
    if (in->row->in[s].is_meta) continue;
    if (!in->row->in[s].variadic) DC_TRY(match_input(in, s, -1));
    for (int32_t k = 0; in->row->in[s].variadic && dc_inst_tensor(in, in->row->in_sig[s].name, k); k++) DC_TRY(match_input(in, s, k));
  }
  for (uint32_t w = 0; w < in->row->n_where; w++) { /* definitions are also checks: none stays unevaluated */
    dc_value ignored;
    bool found;
    DC_TRY(dc_inst_lookup(in, in->row->where[w].name, &ignored, &found));
  }
  return DC_OK;
}

/* ---- outputs ---- */

static dc_status output_type(dc_inst *in, uint32_t s, dc_dtype *out) {
  const dc_row_arg *arg = &in->row->out[s];
  dc_value v;
  int64_t number;
  *out = dc_dtype_from_name(arg->type);
  if (!*out && !in->row->out_sig[s].type_expr) *out = type_variable(in, arg->type);
  if (*out) return DC_OK;
  if (!in->row->out_sig[s].type_expr) return dc_inst_fail(in, DC_ERR_VALUE, "the row leaves the type of '%s' open", arg->name);
  DC_TRY(dc_inst_eval(in, in->row->out_sig[s].type_expr, &v));
  if (!dc_val_is_int(in, &v, &number) || number <= 0 || number >= DC_DTYPE_COUNT)
    return dc_inst_fail(in, DC_ERR_DTYPE, "expected a data type for '%s'", arg->name);
  *out = (dc_dtype)number;
  return dc_dtype_bytes(*out) && *out != DC_C64 && *out != DC_C128
             ? DC_OK
             : dc_inst_fail(in, DC_ERR_UNSUPPORTED, "type %s of '%s' is not supported", dc_dtype_name(*out), arg->name);
}

static dc_status output_dims(dc_inst *in, const dc_sig *sig, uint32_t *rank, dc_ex **dims) {
  DC_VEC(dc_ex) list = {0};
  for (uint32_t k = 0; k < sig->n_dims; k++) {
    const dc_dim *d = &sig->dims[k];
    dc_value v;
    bool found = true;
    if (d->name) DC_TRY(dc_inst_lookup(in, d->name, &v, &found));
    else DC_TRY(dc_inst_eval(in, d->expr, &v));
    if (!found) return dc_inst_fail(in, DC_ERR_VALUE, "the row leaves dimension '%s' open", d->name);
    for (uint32_t j = 0; j < (v.kind == VAL_LIST ? v.n : 1); j++) {
      dc_ex e;
      int64_t extent;
      DC_TRY(dc_val_to_index(in, v.kind == VAL_LIST ? &v.items[j] : &v, &e));
      if (dc_ex_is_int(&in->graph->pool, e, &extent) && (extent < 0 || extent > (int64_t)1 << 48))
        return dc_inst_fail(in, DC_ERR_SHAPE, "output '%s' has an extent of %lld", sig->name, (long long)extent);
      DC_PUSH(in->arena, &list, e);
    }
  }
  if (list.n > DC_MAX_RANK)
    return dc_inst_fail(in, DC_ERR_SHAPE, "output '%s' has %u dimensions, expected at most %d", sig->name, list.n, DC_MAX_RANK);
  return *rank = list.n, *dims = list.v, DC_OK;
}

dc_status dc_inst_output(dc_inst *in, uint32_t k, dc_dtype *type, uint32_t *rank, dc_ex **dims) {
  uint32_t s = k < in->row->n_out ? k : in->row->n_out - 1;
  bool variadic = in->row->out[in->row->n_out - 1].variadic;
  if (k >= in->row->n_out && !variadic) return dc_inst_fail(in, DC_ERR_MODEL, "expected at most %u outputs", in->row->n_out);
  DC_TRY(output_type(in, s, type));
  if (in->row->out[s].variadic) dc_inst_push_local(in, "t", dc_val_int(in, k - s));
  dc_status status = output_dims(in, &in->row->out_sig[s], rank, dims);
  if (in->row->out[s].variadic) in->locals.n--;
  return status;
}
