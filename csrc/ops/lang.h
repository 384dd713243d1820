/* The operator language: tokens and syntax trees.  parse.c builds them, eval.c folds them.
 * Grammar and meaning are in docs/op-language.md.  Trees are immutable once parsed. */
#ifndef DCML_OPS_LANG_H
#define DCML_OPS_LANG_H

#include "ops/ops.h"

typedef enum {
  AST_INT,    /* .i */
  AST_FLOAT,  /* .f */
  AST_STRING, /* .name */
  AST_NAME,   /* .name */
  AST_LIST,   /* items */
  AST_BINARY, /* .prim, items[0..1] */
  AST_NEG,
  AST_NOT,
  AST_BCAST,  /* ^items[0]: index 0 where the dimension is 1 */
  AST_SELECT, /* items[0] ? items[1] : items[2] */
  AST_CALL,   /* .name(items) */
  AST_ITEM,   /* .name $ items[0]: one of a variadic */
  AST_PACK,   /* items[0] .. */
  AST_READ,   /* items[0] is a NAME or ITEM, then indices; .fallback after '|'; .flat for @[ ] */
  AST_REDUCE, /* .name[binders if guard] items[0] */
  AST_FOLD,   /* fold[binder](.name, items[0]); each[binder](items[0]) has no name */
} dc_ast_kind;

typedef struct dc_ast dc_ast;

typedef struct {
  const char *name;
  bool pack;
  const dc_ast *extent; /* NULL: the dimension with the upper-case name */
} dc_binder;

struct dc_ast {
  uint8_t kind;
  uint8_t prim; /* BINARY: dc_op */
  bool flat;
  const char *name;
  int64_t i;
  double f;
  uint32_t n;
  const dc_ast **items;
  const dc_ast *fallback, *guard;
  uint32_t n_binders;
  const dc_binder *binders;
};

typedef enum { STMT_ASSIGN, STMT_FOR, STMT_SEQ, STMT_IF, STMT_LET, STMT_NATIVE, STMT_CALL, STMT_OPERATOR } dc_stmt_kind;

typedef struct {
  const char *name;
  const dc_ast *value;
} dc_define; /* attribute, its default (NULL: required), or `where` */

typedef struct dc_stmt dc_stmt;
typedef struct {
  const dc_stmt *const *v;
  uint32_t n;
} dc_block;

struct dc_stmt {
  uint8_t kind;
  uint8_t wcr;  /* ASSIGN */
  bool flat;
  const char *target, *type; /* ASSIGN: type NULL unless given; LET, NATIVE, CALL: target is the name */
  const dc_ast *item;        /* ASSIGN: target$item */
  const char *op, *domain;   /* OPERATOR */
  uint32_t n_index, n_binders, n_attr;
  const dc_ast **index;     /* CALL, OPERATOR: what is given */
  const dc_define *attr;    /* OPERATOR */
  const dc_binder *binders; /* over ...; FOR and SEQ: one */
  const dc_ast *expr;       /* ASSIGN, LET: right side; IF: condition; SEQ: reversed or NULL */
  dc_block body, other;     /* FOR, SEQ, IF / else */
};

typedef struct {
  const char *name; /* a dimension's name, or NULL for `expr` */
  bool pack, per_item;
  const dc_ast *length; /* of a pack */
  const dc_ast *expr;
} dc_dim;

typedef struct {
  const char *name; /* in the row; arg.name is ONNX's */
  const dc_ast *type_expr; /* dt(...) */
  uint32_t n_dims;
  const dc_dim *dims; /* NULL: any shape */
} dc_sig;

typedef struct {
  const char *name;
  uint32_t n_params;
  const char **params;
  const dc_ast *body; /* NULL: it is statements */
  dc_block steps;
} dc_macro;

typedef struct {
  const char *variable, *class_name;
} dc_constraint;

struct dc_row {
  const char *name, *domain, *text;
  int since;
  uint32_t n_in, n_out, n_attr, n_fixed, n_where, n_native, n_strided, n_linear, n_constraints;
  const dc_row_arg *in, *out;
  const dc_sig *in_sig, *out_sig;
  const dc_row_attr *attr;
  const dc_define *attr_default, *where;
  const dc_define *fixed; /* defaults of attributes that this version does not have */
  const dc_constraint *constraints;
  const char **native, **strided, **linear;
  dc_block body, grad;
  bool grad_keeps; /* grad stands in for the body's own gradient, where an output that it reads need not be copied */
};

/* parse.c: rows and macros from one logical row's text. */
typedef struct {
  dc_arena *arena;
  const char *start, *at; /* the text, NUL-terminated */
  int kind;               /* the lookahead token: 'i' int, 'f' float, 's' string, 'n' name, 'p' mark, 0 end */
  const char *text;
  const char *token_at;
  int64_t i;
  double f;
  int depth;
} dc_lang_parser;

void dc_lang_start(dc_lang_parser *p, dc_arena *arena, const char *text);
DC_MUST_USE dc_status dc_lang_next(dc_lang_parser *p);
DC_MUST_USE dc_status dc_lang_expr(dc_lang_parser *p, const dc_ast **out);
DC_MUST_USE dc_status dc_lang_macro(dc_lang_parser *p, dc_macro *out);
/* `header` is the family's header text or NULL. */
DC_MUST_USE dc_status dc_lang_row(dc_arena *arena, const char *header, const char *text, dc_row *out);

/* steps.c: puts statements in place of calls of them. */
DC_MUST_USE dc_status dc_lang_write_out(dc_ops *ops, dc_arena *arena, dc_block *block);

/* table.c */
const dc_macro *dc_ops_macro(dc_ops *ops, const char *name);

#endif
