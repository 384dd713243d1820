/* One instantiation of a row at a node: names bound to values, tensors to containers.
 *
 * Values are folded as far as they go.  A number known now is an INT expression or a NUM; an
 * extent is an i64 expression, perhaps symbolic; a run-time value is a typed expression. */
#ifndef DCML_OPS_INST_H
#define DCML_OPS_INST_H

#include "ops/lang.h"

typedef enum { VAL_NONE, VAL_EX, VAL_NUM, VAL_STR, VAL_LIST } dc_value_kind;

typedef struct dc_value {
  uint8_t kind;
  bool broadcast; /* an index under ^ */
  dc_ex ex;
  double num;
  const char *str;
  uint32_t n;
  struct dc_value *items;
} dc_value;

typedef struct {
  const char *name;
  dc_value value;
  const dc_ast *lazy; /* not evaluated yet */
  bool busy;
} dc_binding_entry;

typedef struct {
  const char *name;
  int32_t item; /* of a variadic, -1 otherwise */
  bool present, meta;
  dc_cid cid;   /* 0 while shapes are inferred and for absent ones */
  dc_dtype dtype;
  uint32_t rank;
  dc_ex *dims;
} dc_tensor;

typedef struct {
  dc_param param;
  dc_ex value; /* what the name means: the parameter, or N-1-p in a reversed loop */
  bool sequential;
} dc_domain_entry;

typedef struct {
  dc_ops *ops;
  dc_graph *graph;
  dc_nid node;
  const dc_row *row;
  dc_arena *arena; /* scratch, freed with the instantiation */
  DC_VEC(dc_binding_entry) env;
  DC_VEC(dc_binding_entry) locals; /* index variables and macro parameters, innermost last */
  uint32_t local_floor;            /* locals below are hidden (macro bodies, where clauses) */
  DC_VEC(dc_tensor) tensors;
  DC_VEC(dc_domain_entry) domain; /* parameters of the statement being expanded */
  dc_dtype float_type;            /* what ints become when they meet reals */
  dc_scope *out;                  /* where statements go; NULL: object code is not allowed here */
  dc_cid blocked;
  int depth;
  uint32_t steps, more_steps; /* evaluations so far, bounded: a row on hostile shapes must end; more_steps: for long lists */
  dc_name tag_op;
  uint32_t tag_wrt;
} dc_inst;

/* bind.c: matches inputs, attributes and types of a node against its row; afterwards output
 * dims can be evaluated.  inst->blocked is set when a '#' input is not known yet. */
DC_MUST_USE dc_status dc_inst_bind(dc_inst *in, dc_ops *ops, dc_graph *graph, dc_nid node, dc_arena *arena);
DC_MUST_USE dc_status dc_inst_output(dc_inst *in, uint32_t k, dc_dtype *type, uint32_t *rank, dc_ex **dims);
dc_tensor *dc_inst_tensor(dc_inst *in, const char *name, int32_t item); /* NULL if unknown */
dc_tensor *dc_inst_add_tensor(dc_inst *in, dc_tensor tensor);
DC_MUST_USE dc_status dc_inst_fail(const dc_inst *in, dc_code code, const char *format, ...) DC_PRINTF(3, 4);
DC_MUST_USE dc_status dc_inst_locate(const dc_inst *in, dc_status status); /* says at which node; passes NULL through */

/* eval.c */
DC_MUST_USE dc_status dc_inst_eval(dc_inst *in, const dc_ast *ast, dc_value *out);
DC_MUST_USE dc_status dc_inst_lookup(dc_inst *in, const char *name, dc_value *out, bool *found);
void dc_inst_define(dc_inst *in, const char *name, dc_value value);
void dc_inst_define_lazy(dc_inst *in, const char *name, const dc_ast *ast);
void dc_inst_push_local(dc_inst *in, const char *name, dc_value value);
DC_MUST_USE dc_status dc_inst_index(dc_inst *in, const dc_ast *const *items, uint32_t n, bool flat, const dc_tensor *t, dc_ex *index);
DC_MUST_USE dc_status dc_inst_tensor_ref(dc_inst *in, const dc_ast *ast, dc_tensor **out); /* NAME or ITEM */
const char *dc_inst_dim_name(dc_inst *in, const char *index_name); /* n' -> N */

/* value.c */
dc_value dc_val_ex(dc_ex e);
dc_value dc_val_int(dc_inst *in, int64_t i);
dc_value dc_val_bool(dc_inst *in, bool b);
dc_value dc_val_num(double d);
dc_value dc_val_str(const char *s);
dc_value dc_val_list(dc_inst *in, uint32_t n);
bool dc_val_is_int(const dc_inst *in, const dc_value *v, int64_t *out);
bool dc_val_is_number(const dc_inst *in, const dc_value *v, double *out); /* INT or NUM */
DC_MUST_USE dc_status dc_val_to_ex(dc_inst *in, const dc_value *v, dc_dtype type, dc_ex *out); /* converts */
DC_MUST_USE dc_status dc_val_to_index(dc_inst *in, const dc_value *v, dc_ex *out);             /* i64 */
DC_MUST_USE dc_status dc_val_to_bool(dc_inst *in, const dc_value *v, dc_ex *out);
DC_MUST_USE dc_status dc_val_unify(dc_inst *in, dc_value *a, dc_value *b); /* two EX of one type, or two NUM */
DC_MUST_USE dc_status dc_val_binary(dc_inst *in, dc_op prim, dc_value a, dc_value b, dc_value *out);
DC_MUST_USE dc_status dc_val_product(dc_inst *in, const dc_value *list, dc_value *out); /* 1 for none */
DC_MUST_USE dc_status dc_val_unary(dc_inst *in, dc_op prim, dc_value a, dc_value *out);

/* builtins.c: a function on values, looked up by name; *found false if there is none. */
DC_MUST_USE dc_status dc_builtin_call(dc_inst *in, const char *name, const dc_value *args, uint32_t n, dc_value *out, bool *found);
/* tensors.c: one whose argument is a name of a tensor: has, rank, shape, size, dtof, ... */
DC_MUST_USE dc_status dc_builtin_tensor(dc_inst *in, const dc_ast *call, dc_value *out, bool *found);

/* expand.c */
dc_nid dc_inst_tag(dc_inst *in, dc_nid node); /* as made by the row's node; returns it */
const char *dc_inst_own_name(dc_inst *in, const char *name); /* for a container that only the row knows */
DC_MUST_USE dc_status dc_inst_reduce(dc_inst *in, const dc_ast *ast, dc_value *out); /* hoists to a temporary */
DC_MUST_USE dc_status dc_inst_run(dc_inst *in, const dc_block *block);
/* operator.c: a statement that is an operator of its own. */
DC_MUST_USE dc_status dc_inst_operator(dc_inst *in, const dc_stmt *s);
/* Pushes a binder's parameters on the domain and its name on the locals. */
DC_MUST_USE dc_status dc_inst_bind_index(dc_inst *in, const dc_binder *binder, bool sequential);

/* trees.c: list functions */
DC_MUST_USE dc_status dc_list_match(dc_inst *in, const dc_value *args, uint32_t n, dc_value *out);
DC_MUST_USE dc_status dc_list_firsts(dc_inst *in, const dc_value *args, uint32_t n, dc_value *out);
DC_MUST_USE dc_status dc_list_grouped(dc_inst *in, const dc_value *args, uint32_t n, dc_value *out);
DC_MUST_USE dc_status dc_list_longest(dc_inst *in, const dc_value *args, uint32_t n, dc_value *out);

/* einsum.c */
DC_MUST_USE dc_status dc_einsum(dc_inst *in, const char *equation, dc_value *out);
DC_MUST_USE dc_status dc_einsum_index(dc_inst *in, const dc_value *args, dc_value *out);

#endif
