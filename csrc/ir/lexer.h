/* Tokens of the text form, shared by parse.c (graphs) and parse_expr.c (expressions). */
#ifndef DCML_IR_LEXER_H
#define DCML_IR_LEXER_H

#include "ir/graph.h"

typedef enum { TOK_END, TOK_NAME, TOK_STRING, TOK_INT, TOK_FLOAT, TOK_FLOAT32, TOK_PUNCT } dc_token_kind;

typedef struct {
  dc_token_kind kind;
  const char *at;
  char *text; /* NAME, STRING (unescaped), PUNCT */
  size_t length;
  int64_t i;
  double f;
} dc_token;

typedef struct {
  const char *name;
  dc_ex value;
} dc_parser_let;

/* What a name stands for besides parameters, symbols and containers: *out stays 0 if it is none; n_index < 0: it has no brackets. */
typedef struct dc_parser dc_parser;

/* A view that is declared before what it views. */
typedef struct {
  dc_cid view;
  const char *base;
} dc_parser_early_view;
typedef struct {
  dc_status (*find)(void *context, dc_parser *p, const char *name, const dc_ex *index, int n_index, dc_ex *out);
  void *context;
} dc_parser_names;

struct dc_parser {
  const char *start, *at;
  dc_token token; /* the one token of lookahead */
  dc_arena *scratch;
  dc_graph *graph;
  const dc_graph *outer; /* of a subgraph: the graph that holds it */
  uint32_t n_params;
  dc_param params[DC_MAX_LOOPS]; /* in scope, innermost last */
  DC_VEC(dc_parser_let) lets;    /* of the statement at hand */
  DC_VEC(dc_parser_early_view) early;
  int depth;
  bool is_flat; /* an access is an address and perhaps a check, as in kernels */
  bool is_loose; /* operands are converted to one type: a constant takes the other's, else the wider of the two wins */
  dc_parser_names names;
};

DC_MUST_USE dc_status dc_parser_next(dc_parser *p);
DC_MUST_USE dc_status dc_parser_fail(const dc_parser *p, const char *expected) __attribute__((returns_nonnull));
bool dc_parser_is(const dc_parser *p, const char *text); /* a punctuation mark or a bare word */
DC_MUST_USE dc_status dc_parser_accept(dc_parser *p, const char *text, bool *took);
DC_MUST_USE dc_status dc_parser_expect(dc_parser *p, const char *text);
DC_MUST_USE dc_status dc_parser_name(dc_parser *p, char **out); /* a bare or quoted name */
DC_MUST_USE dc_status dc_parser_int(dc_parser *p, int64_t *out); /* with sign */
DC_MUST_USE dc_status dc_parser_number(dc_parser *p, double *out); /* with sign, inf and nan */

/* parse_expr.c */
DC_MUST_USE dc_status dc_parser_expr(dc_parser *p, dc_ex *out);
DC_MUST_USE dc_status dc_parser_or(dc_parser *p, dc_ex *out); /* no `? :` at the top: range bounds */
typedef DC_VEC(dc_ex) dc_ex_list;
DC_MUST_USE dc_status dc_parser_list(dc_parser *p, const char *close, dc_ex_list *out); /* after the opening mark */

#endif
