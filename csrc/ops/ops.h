/* Operators: rows of text (ops.def), parsed on first use, and what follows from a row.
 *
 * A row gives names, versions, attributes and types (schema), output shapes (infer), the
 * body as maps and tasklets (expand), an optional gradient body (expand_grad), and the names
 * of native implementations per device.  A backend resolves those names; this layer knows no
 * library, and no operator by name: whatever is special about an operator is in its row. */
#ifndef DCML_OPS_OPS_H
#define DCML_OPS_OPS_H

#include "ir/graph.h"

typedef struct dc_row dc_row; /* an immutable parsed row */

/* The rows: built-in table plus rows that users added.  Thread-safe after creation except
 * for dc_ops_add. */
typedef struct dc_ops dc_ops;
DC_MUST_USE dc_status dc_ops_create(dc_ops **out); /* cheap: parses nothing yet */
void dc_ops_destroy(dc_ops *ops);
/* Adds rows from text, e.g. a user's operator; errors carry line and column. */
DC_MUST_USE dc_status dc_ops_add(dc_ops *ops, const char *text);
/* The row with the greatest since-version <= opset; NULL if none. domain: "" for ai.onnx. */
const dc_row *dc_ops_find(dc_ops *ops, const char *domain, const char *op, int opset);
/* That of a library node; NULL if there is none. */
const dc_row *dc_ops_row_of(dc_ops *ops, const dc_graph *graph, const dc_library *lib);
/* Gives random operators without a seed one each, so that two of them draw different numbers. */
void dc_ops_seed(dc_ops *ops, dc_graph *graph);
/* The same, and why a row does not parse: DC_ERR_VALUE with line and column. */
DC_MUST_USE dc_status dc_ops_lookup(dc_ops *ops, const char *domain, const char *op, int opset, const dc_row **out);
/* The k-th row without parsing it; false behind the last. */
typedef struct {
  const char *domain, *name;
  int since;
} dc_row_key;
bool dc_ops_key_at(dc_ops *ops, uint32_t k, dc_row_key *out);
/* The greatest version of a domain's rows; 0 if it has none. */
int dc_ops_newest(dc_ops *ops, const char *domain);
/* All rows in order, for documentation and tests; index from 0, *out is NULL at the end. */
DC_MUST_USE dc_status dc_ops_row_at(dc_ops *ops, uint32_t index, const dc_row **out);

/* Schema. */
typedef struct {
  const char *name;
  bool optional, variadic;
  bool is_meta;       /* '#': its value must be known when shapes are computed */
  const char *type;   /* type variable ("T") or concrete ("i64") */
} dc_row_arg;
typedef struct {
  const char *name;
  bool required;
  const char *fallback; /* the default as the row writes it ("none": absent); NULL if required */
  const char *const *choices; /* the strings that it may be; NULL: any */
  uint32_t n_choices;
  int64_t least; /* the integer that it is at least, or each of them; INT64_MIN: any */
} dc_row_attr;
const char *dc_row_name(const dc_row *row);
const char *dc_row_domain(const dc_row *row);
int dc_row_since(const dc_row *row);
uint32_t dc_row_inputs(const dc_row *row, const dc_row_arg **args);
uint32_t dc_row_outputs(const dc_row *row, const dc_row_arg **args);
uint32_t dc_row_attrs(const dc_row *row, const dc_row_attr **attrs);
bool dc_row_has_grad(const dc_row *row);
bool dc_row_grad_keeps(const dc_row *row); /* the body's own gradient is as good, and keeps no copy of outputs that are the caller's */
/* True if an argument of that type variable or type may hold elements of `dtype`. */
bool dc_row_accepts(const dc_row *row, const char *type, dc_dtype dtype);
/* True if some input of the row may hold complex numbers. */
bool dc_row_takes_complex(const dc_row *row);
/* True if the body is one native kernel call rather than statements. */
bool dc_row_is_native(const dc_row *row);
/* True if the output holds the input's elements in the same order (Reshape, Flatten, ...). */
bool dc_row_is_alias(const dc_row *row);
/* False for rows that look at shapes only (Shape, Size, EyeLike, ...). */
bool dc_row_reads_data(const dc_row *row);
/* True if each element of an output is one of an input, at a place that shapes and attributes decide (Split, Transpose, ...). */
bool dc_row_moves(const dc_row *row);
/* k-th library of the row's `natives` list, in order of preference; NULL at the end. */
const char *dc_row_native(const dc_row *row, uint32_t k);
/* True if the library that runs the node, if one does, takes the operand, or gives the result, by strides, with rows in one piece. */
bool dc_ops_takes_strides(dc_ops *ops, const dc_graph *graph, const dc_library *lib, dc_cid c);
/* True if the row says that the output is linear in this input once optional inputs are left out. */
bool dc_row_is_linear(const dc_row *row, uint32_t input);
const char *dc_row_text(const dc_row *row); /* the source text */

/* Infers outputs of a library node whose inputs have types and shapes: sets dtype, rank,
 * shape and, where it follows from known inputs, `known` of each output container.
 * A '#' input must be CONST or have `known`; if it is not, *blocked is that container and
 * the result is DC_OK: the caller must learn the value first.  Errors: DC_ERR_UNSUPPORTED (no row),
 * DC_ERR_SHAPE, DC_ERR_DTYPE, DC_ERR_MODEL, with the node's name in the path. */
DC_MUST_USE dc_status dc_ops_infer(dc_ops *ops, dc_graph *graph, dc_nid node, dc_cid *blocked);
/* Replaces nothing: appends to `scope` the maps and tasklets that compute the node, which
 * must be inferred, each tagged with the operator.  For a gradient node (wrt > 0), see autodiff.h. */
DC_MUST_USE dc_status dc_ops_expand(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *scope);
/* Expands the operators in the bodies of a map and of those in it, which run in order then.  Errors: those of dc_ops_expand,
 * DC_ERR_UNSUPPORTED for gradients, and for operators in a reduction. */
DC_MUST_USE dc_status dc_ops_expand_inside(dc_ops *ops, dc_graph *graph, dc_nid map);
/* Appends the row's .grad for input k (accumulating statements write container `grad_in`,
 * fully overwritten first).  grad_out[j]: gradient of output j or 0.  Only if dc_row_has_grad. */
DC_MUST_USE dc_status dc_ops_expand_grad(dc_ops *ops, dc_graph *graph, dc_nid node, uint32_t input, const dc_cid *grad_out,
                                         dc_cid grad_in, dc_scope *scope);

/* Evaluates a scalar expression in the row language, e.g. a derivative from prims.def:
 * identifiers are looked up in names[], their values are expressions of one type. */
DC_MUST_USE dc_status dc_lang_scalar(dc_ops *ops, dc_graph *graph, const char *text, const char *const *names,
                                     const dc_ex *values, uint32_t n, dc_ex *out);

#endif
