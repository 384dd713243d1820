/* The parser of the operator language: recursive descent, one function per construct. */
#include <ctype.h>
#include <string.h>

#include "ops/lang.h"

enum { MAX_DEPTH = 200 };
typedef dc_lang_parser parser;

static dc_status fail(const parser *p, const char *expected) {
  int line = 1, column = 1;
  for (const char *c = p->start; c < p->token_at; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  return dc_error(DC_ERR_VALUE, "line %d, column %d: expected %s before '%.24s'", line, column, expected, p->token_at);
}

static bool is(const parser *p, const char *text) { return (p->kind == 'p' || p->kind == 'n') && strcmp(p->text, text) == 0; }

static dc_status accept(parser *p, const char *text, bool *took) {
  *took = is(p, text);
  return *took ? dc_lang_next(p) : DC_OK;
}

static dc_status expect(parser *p, const char *text) {
  if (!is(p, text)) return fail(p, text);
  return dc_lang_next(p);
}

static dc_status name(parser *p, const char **out) {
  if (p->kind != 'n') return fail(p, "a name");
  *out = p->text;
  return dc_lang_next(p);
}

/* ---- expressions ---- */

typedef DC_VEC(const dc_ast *) ast_list;

static dc_ast *make(parser *p, dc_ast_kind kind, uint32_t n, const dc_ast *const *items) {
  dc_ast *a = DC_NEW(p->arena, dc_ast);
  a->kind = (uint8_t)kind, a->n = n;
  a->items = dc_arena_copy(p->arena, items, n * sizeof *items);
  return a;
}

static dc_status list_until(parser *p, const char *close, ast_list *out) {
  bool done;
  DC_TRY(accept(p, close, &done));
  while (!done) {
    const dc_ast *item;
    DC_TRY(dc_lang_expr(p, &item));
    DC_PUSH(p->arena, out, item);
    DC_TRY(accept(p, close, &done));
    if (!done) DC_TRY(expect(p, ","));
  }
  return DC_OK;
}

/* binder {"," binder} ["if" expr], up to one of the closing marks, which stays. */
static dc_status binders(parser *p, const dc_binder **out, uint32_t *n, const dc_ast **guard) {
  DC_VEC(dc_binder) list = {0};
  bool more = p->kind == 'n' && !is(p, "if"), took;
  while (more) {
    dc_binder b = {0};
    DC_TRY(name(p, &b.name));
    DC_TRY(accept(p, "..", &b.pack));
    DC_TRY(accept(p, ":", &took));
    if (took) DC_TRY(dc_lang_expr(p, &b.extent));
    DC_PUSH(p->arena, &list, b);
    DC_TRY(accept(p, ",", &more));
  }
  if (guard) {
    DC_TRY(accept(p, "if", &took));
    if (took) DC_TRY(dc_lang_expr(p, guard));
  }
  *out = list.v, *n = list.n;
  return DC_OK;
}

static dc_status unary(parser *p, const dc_ast **out);

/* red[binders] body: the body is a product of unaries; '/', '+' and '-' end it. */
static dc_status reduction(parser *p, const char *kind, const dc_ast **out) {
  dc_ast *a = make(p, AST_REDUCE, 0, NULL);
  const dc_ast *body;
  a->name = kind;
  DC_TRY(expect(p, "["));
  DC_TRY(binders(p, &a->binders, &a->n_binders, &a->guard));
  DC_TRY(expect(p, "]"));
  DC_TRY(unary(p, &body));
  while (is(p, "*")) {
    const dc_ast *pair[2] = {body, NULL};
    DC_TRY(dc_lang_next(p));
    DC_TRY(unary(p, &pair[1]));
    dc_ast *product = make(p, AST_BINARY, 2, pair);
    product->prim = DC_MUL;
    body = product;
  }
  a->n = 1, a->items = dc_arena_copy(p->arena, &body, sizeof body);
  return *out = a, DC_OK;
}

/* fold[t:n](op, e) joins the items, each[t:n](e) lists them. */
static dc_status fold(parser *p, bool joins, const dc_ast **out) {
  dc_ast *a = make(p, AST_FOLD, 0, NULL);
  const dc_ast *body;
  DC_TRY(expect(p, "["));
  DC_TRY(binders(p, &a->binders, &a->n_binders, NULL));
  DC_TRY(expect(p, "]"));
  DC_TRY(expect(p, "("));
  if (joins) {
    a->name = p->text;
    DC_TRY(dc_lang_next(p));
    DC_TRY(expect(p, ","));
  }
  DC_TRY(dc_lang_expr(p, &body));
  DC_TRY(expect(p, ")"));
  a->n = 1, a->items = dc_arena_copy(p->arena, &body, sizeof body);
  return a->n_binders == 1 ? (*out = a, DC_OK) : fail(p, "one binder");
}

static dc_status access(parser *p, const dc_ast *base, bool flat, const dc_ast **out) {
  ast_list items = {0};
  const dc_ast *fallback = NULL;
  bool took;
  DC_PUSH(p->arena, &items, base);
  while (!is(p, "]") && !is(p, "|")) {
    const dc_ast *item;
    DC_TRY(dc_lang_expr(p, &item));
    DC_PUSH(p->arena, &items, item);
    DC_TRY(accept(p, ",", &took));
    if (!took) break;
  }
  DC_TRY(accept(p, "|", &took));
  if (took) DC_TRY(dc_lang_expr(p, &fallback));
  DC_TRY(expect(p, "]"));
  dc_ast *a = make(p, AST_READ, items.n, items.v);
  a->fallback = fallback, a->flat = flat;
  return *out = a, DC_OK;
}

/* After '$': a number, a name, or an expression in parentheses. */
static dc_status item(parser *p, const dc_ast **out) {
  bool took;
  DC_TRY(accept(p, "(", &took));
  if (took) {
    DC_TRY(dc_lang_expr(p, out));
    return expect(p, ")");
  }
  if (p->kind != 'i' && p->kind != 'n') return fail(p, "an item");
  dc_ast *a = make(p, p->kind == 'i' ? AST_INT : AST_NAME, 0, NULL);
  a->i = p->i, a->name = p->text;
  *out = a;
  return dc_lang_next(p);
}

static dc_status postfix(parser *p, const dc_ast *base, const dc_ast **out) {
  bool took;
  for (;;) {
    ast_list items = {0};
    if (base->kind == AST_NAME && is(p, "(")) {
      DC_TRY(dc_lang_next(p));
      DC_TRY(list_until(p, ")", &items));
      dc_ast *call = make(p, AST_CALL, items.n, items.v);
      call->name = base->name;
      base = call;
      continue;
    }
    DC_TRY(accept(p, "..", &took));
    if (took) {
      base = make(p, AST_PACK, 1, &base);
      continue;
    }
    DC_TRY(accept(p, "$", &took));
    if (took && base->kind == AST_NAME) {
      const dc_ast *which;
      DC_TRY(item(p, &which));
      dc_ast *whole = make(p, AST_ITEM, 1, &which);
      whole->name = base->name;
      base = whole;
      continue;
    }
    bool flat = is(p, "@");
    if (flat) DC_TRY(dc_lang_next(p));
    if (!flat && !is(p, "[")) break;
    DC_TRY(expect(p, "["));
    DC_TRY(access(p, base, flat, &base));
  }
  return *out = base, DC_OK;
}

static bool is_reduction(const char *word) {
  static const char *const words[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    if (strcmp(words[k], word) == 0) return true;
  return false;
}

static dc_status primary(parser *p, const dc_ast **out) {
  ast_list items = {0};
  bool took;
  if (p->kind == 'i' || p->kind == 'f' || p->kind == 's') {
    dc_ast *a = make(p, p->kind == 'i' ? AST_INT : p->kind == 'f' ? AST_FLOAT : AST_STRING, 0, NULL);
    a->i = p->i, a->f = p->f, a->name = p->text;
    *out = a;
    return dc_lang_next(p);
  }
  DC_TRY(accept(p, "(", &took));
  if (took) {
    DC_TRY(dc_lang_expr(p, out));
    DC_TRY(expect(p, ")"));
    return postfix(p, *out, out);
  }
  DC_TRY(accept(p, "[", &took));
  if (took) {
    DC_TRY(list_until(p, "]", &items));
    return *out = make(p, AST_LIST, items.n, items.v), DC_OK;
  }
  const char *word;
  DC_TRY(name(p, &word));
  if (is(p, "[") && is_reduction(word)) return reduction(p, word, out);
  if (is(p, "[") && (strcmp(word, "fold") == 0 || strcmp(word, "each") == 0)) return fold(p, *word == 'f', out);
  dc_ast *a = make(p, AST_NAME, 0, NULL);
  a->name = word;
  return postfix(p, a, out);
}

static dc_status unary(parser *p, const dc_ast **out) {
  static const struct {
    const char *mark;
    dc_ast_kind kind;
  } marks[] = {{"-", AST_NEG}, {"!", AST_NOT}, {"^", AST_BCAST}};
  for (int k = 0; k < 3; k++) {
    bool took;
    DC_TRY(accept(p, marks[k].mark, &took));
    if (!took) continue;
    const dc_ast *operand;
    if (++p->depth > MAX_DEPTH) return fail(p, "an expression nested less deeply");
    DC_TRY(unary(p, &operand));
    p->depth--;
    return *out = make(p, marks[k].kind, 1, &operand), DC_OK;
  }
  return primary(p, out);
}

enum { LEVELS = 5 };
static const struct {
  const char *mark;
  dc_op prim;
} operators[LEVELS][7] = {{{"||", DC_OR}},
                          {{"&&", DC_AND}},
                          {{"==", DC_EQ}, {"!=", DC_NE}, {"<=", DC_LE}, {">=", DC_GE}, {"<", DC_LT}, {">", DC_GT}},
                          {{"+", DC_ADD}, {"-", DC_SUB}},
                          {{"*", DC_MUL}, {"//", DC_FLOORDIV}, {"/", DC_DIV}, {"%", DC_MOD}}};

static dc_status binary(parser *p, int level, const dc_ast **out) {
  if (level == LEVELS) return unary(p, out);
  DC_TRY(binary(p, level + 1, out));
  for (int k = 0; p->kind == 'p' && k < 7 && operators[level][k].mark; k++) {
    if (strcmp(p->text, operators[level][k].mark)) continue;
    const dc_ast *pair[2] = {*out, NULL};
    DC_TRY(dc_lang_next(p));
    DC_TRY(binary(p, level + 1, &pair[1]));
    dc_ast *a = make(p, AST_BINARY, 2, pair);
    a->prim = (uint8_t)operators[level][k].prim;
    *out = a;
    k = -1; /* look for another operator of this level */
  }
  return DC_OK;
}

dc_status dc_lang_expr(parser *p, const dc_ast **out) {
  bool took;
  if (++p->depth > MAX_DEPTH) return fail(p, "an expression nested less deeply");
  DC_TRY(binary(p, 0, out));
  DC_TRY(accept(p, "?", &took));
  if (took) {
    const dc_ast *three[3] = {*out, NULL, NULL};
    DC_TRY(dc_lang_expr(p, &three[1]));
    DC_TRY(expect(p, ":"));
    DC_TRY(dc_lang_expr(p, &three[2]));
    *out = make(p, AST_SELECT, 3, three);
  }
  p->depth--;
  return DC_OK;
}

static dc_status braces(parser *p, dc_block *out);

dc_status dc_lang_macro(parser *p, dc_macro *out) {
  DC_VEC(const char *) params = {0};
  bool more;
  DC_TRY(dc_lang_next(p));
  DC_TRY(expect(p, "def"));
  DC_TRY(name(p, &out->name));
  DC_TRY(expect(p, "("));
  more = !is(p, ")");
  while (more) {
    const char *param;
    DC_TRY(name(p, &param));
    DC_PUSH(p->arena, &params, param);
    DC_TRY(accept(p, ",", &more));
  }
  DC_TRY(expect(p, ")"));
  out->params = params.v, out->n_params = params.n;
  DC_TRY(accept(p, "=", &more));
  if (more) DC_TRY(dc_lang_expr(p, &out->body));
  else DC_TRY(braces(p, &out->steps));
  return p->kind ? fail(p, "the end of the definition") : DC_OK;
}

/* ---- statements ---- */

static dc_status block(parser *p, dc_block *out);

static dc_status braces(parser *p, dc_block *out) {
  DC_TRY(expect(p, "{"));
  if (++p->depth > MAX_DEPTH) return fail(p, "blocks nested less deeply");
  DC_TRY(block(p, out));
  p->depth--;
  return expect(p, "}");
}

static dc_status assignment_mark(parser *p, dc_stmt *s) {
  static const struct {
    const char *mark;
    dc_wcr wcr;
  } marks[] = {{"=", DC_WCR_NONE}, {"+=", DC_WCR_SUM}, {"*=", DC_WCR_PROD}};
  bool took;
  for (int k = 0; k < 3; k++) {
    DC_TRY(accept(p, marks[k].mark, &took));
    if (took) return s->wcr = (uint8_t)marks[k].wcr, DC_OK;
  }
  s->wcr = is(p, "max") ? DC_WCR_MAX : DC_WCR_MIN;
  if (!is(p, "max") && !is(p, "min")) return fail(p, "an assignment");
  DC_TRY(dc_lang_next(p));
  return expect(p, "=");
}

/* W = domain.Operator(A, B; attribute=e), behind the '='. */
static dc_status operator_of(parser *p, dc_stmt *s) {
  DC_VEC(dc_define) attrs = {0};
  ast_list given = {0};
  bool more;
  s->kind = STMT_OPERATOR, s->domain = "";
  DC_TRY(name(p, &s->op));
  DC_TRY(accept(p, ".", &more));
  if (more) s->domain = s->op;
  if (more) DC_TRY(name(p, &s->op));
  DC_TRY(expect(p, "("));
  for (more = true; more;) {
    const dc_ast *item;
    DC_TRY(dc_lang_expr(p, &item));
    DC_PUSH(p->arena, &given, item);
    DC_TRY(accept(p, ",", &more));
  }
  DC_TRY(accept(p, ";", &more));
  while (more) {
    dc_define d;
    DC_TRY(name(p, &d.name));
    DC_TRY(expect(p, "="));
    DC_TRY(dc_lang_expr(p, &d.value));
    DC_PUSH(p->arena, &attrs, d);
    DC_TRY(accept(p, ",", &more));
  }
  s->index = given.v, s->n_index = given.n, s->attr = attrs.v, s->n_attr = attrs.n;
  return expect(p, ")");
}

/* W[i] = e, what an operator makes, or a call of statements. */
static dc_status assignment(parser *p, dc_stmt *s) {
  bool took;
  ast_list index = {0};
  DC_TRY(name(p, &s->target));
  DC_TRY(accept(p, "=", &took));
  if (took) return operator_of(p, s);
  DC_TRY(accept(p, "(", &took));
  s->kind = took ? STMT_CALL : STMT_ASSIGN;
  if (took) {
    DC_TRY(list_until(p, ")", &index));
    return s->index = index.v, s->n_index = index.n, DC_OK;
  }
  DC_TRY(accept(p, "$", &took));
  if (took) DC_TRY(item(p, &s->item));
  DC_TRY(accept(p, ":", &took));
  if (took) DC_TRY(name(p, &s->type));
  DC_TRY(accept(p, "@", &s->flat));
  DC_TRY(expect(p, "["));
  DC_TRY(list_until(p, "]", &index));
  s->index = index.v, s->n_index = index.n;
  DC_TRY(accept(p, "over", &took));
  if (took) DC_TRY(binders(p, &s->binders, &s->n_binders, NULL));
  DC_TRY(assignment_mark(p, s));
  return dc_lang_expr(p, &s->expr);
}

static dc_status statement(parser *p, const dc_stmt **out) {
  dc_stmt *s = DC_NEW(p->arena, dc_stmt);
  bool took;
  *out = s;
  DC_TRY(accept(p, "for", &took));
  if (took) {
    s->kind = STMT_FOR;
    DC_TRY(binders(p, &s->binders, &s->n_binders, NULL));
    return braces(p, &s->body);
  }
  DC_TRY(accept(p, "seq", &took));
  if (took) {
    s->kind = STMT_SEQ;
    DC_TRY(accept(p, "rev", &took));
    if (took) {
      DC_TRY(expect(p, "("));
      DC_TRY(dc_lang_expr(p, &s->expr));
      DC_TRY(expect(p, ")"));
    }
    DC_TRY(binders(p, &s->binders, &s->n_binders, NULL));
    return braces(p, &s->body);
  }
  DC_TRY(accept(p, "if", &took));
  if (took) {
    s->kind = STMT_IF;
    DC_TRY(dc_lang_expr(p, &s->expr));
    DC_TRY(braces(p, &s->body));
    DC_TRY(accept(p, "else", &took));
    return took ? braces(p, &s->other) : DC_OK;
  }
  DC_TRY(accept(p, "let", &took));
  if (took) {
    s->kind = STMT_LET;
    DC_TRY(name(p, &s->target));
    DC_TRY(expect(p, "="));
    return dc_lang_expr(p, &s->expr);
  }
  DC_TRY(accept(p, "native", &took));
  if (!took) return assignment(p, s);
  s->kind = STMT_NATIVE;
  return name(p, &s->target);
}

static dc_status block(parser *p, dc_block *out) {
  DC_VEC(const dc_stmt *) list = {0};
  bool more = true;
  while (more && p->kind && !is(p, "}") && !is(p, "grad") && !is(p, "natives") && !is(p, "linear")) {
    const dc_stmt *s;
    DC_TRY(statement(p, &s));
    DC_PUSH(p->arena, &list, s);
    DC_TRY(accept(p, ";", &more));
  }
  out->v = list.v, out->n = list.n;
  return DC_OK;
}

/* ---- signatures ---- */

static bool looks_like_dim(const parser *p) {
  if (p->kind != 'n') return false;
  const char *c = p->at;
  while (isspace((unsigned char)*c)) c++;
  if (*c == '*') {
    for (c++; isspace((unsigned char)*c); c++) {}
    return *c == ',' || *c == ']' || (c[0] == '.' && c[1] == '.');
  }
  return *c == ',' || *c == ']' || *c == '#' || (c[0] == '.' && c[1] == '.');
}

static dc_status dims(parser *p, dc_sig *sig) {
  DC_VEC(dc_dim) list = {0};
  bool more = !is(p, "]");
  while (more) {
    dc_dim d = {0};
    bool took;
    if (looks_like_dim(p)) {
      DC_TRY(name(p, &d.name));
      DC_TRY(accept(p, "*", &d.per_item));
      DC_TRY(accept(p, "..", &d.pack));
      DC_TRY(accept(p, "#", &took));
      if (took) DC_TRY(binary(p, 3, &d.length));
    } else {
      DC_TRY(dc_lang_expr(p, &d.expr));
    }
    DC_PUSH(p->arena, &list, d);
    DC_TRY(accept(p, ",", &more));
  }
  sig->dims = list.v ? list.v : dc_arena_alloc(p->arena, 1);
  sig->n_dims = list.n;
  return expect(p, "]");
}

/* "since 7" or "until 6" after an argument or an attribute: only those versions have it. */
static dc_status has_version(parser *p, int version, bool *has) {
  bool took;
  for (int k = 0; k < 2; k++) {
    DC_TRY(accept(p, k ? "until" : "since", &took));
    if (!took) continue;
    if (p->kind != 'i') return fail(p, "a version");
    *has &= k ? version <= p->i : version >= p->i;
    DC_TRY(dc_lang_next(p));
  }
  return DC_OK;
}

static dc_status signature(parser *p, dc_row_arg *arg, dc_sig *sig) {
  bool took;
  DC_TRY(name(p, &sig->name));
  arg->name = sig->name;
  DC_TRY(accept(p, "as", &took));
  if (took) DC_TRY(name(p, &arg->name));
  DC_TRY(accept(p, "?", &arg->optional));
  DC_TRY(accept(p, "*", &arg->variadic));
  DC_TRY(expect(p, ":"));
  DC_TRY(accept(p, "#", &arg->is_meta));
  DC_TRY(name(p, &arg->type));
  DC_TRY(accept(p, "(", &took));
  if (took) {
    DC_TRY(dc_lang_expr(p, &sig->type_expr));
    DC_TRY(expect(p, ")"));
  }
  DC_TRY(accept(p, "[", &took));
  return took ? dims(p, sig) : DC_OK;
}

static dc_status signatures(parser *p, int version, const dc_row_arg **args, const dc_sig **sigs, uint32_t *n) {
  DC_VEC(dc_row_arg) arg_list = {0};
  DC_VEC(dc_sig) sig_list = {0};
  bool more = p->kind == 'n';
  while (more) {
    dc_row_arg arg = {0};
    dc_sig sig = {0};
    bool has = true;
    DC_TRY(signature(p, &arg, &sig));
    DC_TRY(has_version(p, version, &has));
    if (has) DC_PUSH(p->arena, &arg_list, arg);
    if (has) DC_PUSH(p->arena, &sig_list, sig);
    DC_TRY(accept(p, ",", &more));
  }
  *args = arg_list.v, *sigs = sig_list.v, *n = arg_list.n;
  return DC_OK;
}

/* The text from there to the lookahead token. */
static const char *source(const parser *p, const char *from) {
  const char *to = p->token_at;
  while (to > from && isspace((unsigned char)to[-1])) to--;
  char *text = dc_arena_alloc(p->arena, (size_t)(to - from) + 1);
  memcpy(text, from, (size_t)(to - from));
  return text;
}

/* `|"edge"|"wrap"` after an attribute: it is one of these strings, or its default; `from 1`: an integer not below. */
static dc_status limits(parser *p, const dc_ast *fallback, dc_row_attr *attr) {
  DC_VEC(const char *) choices = {0};
  bool took;
  attr->least = INT64_MIN;
  DC_TRY(accept(p, "|", &took));
  if (took && fallback && fallback->kind == AST_STRING) DC_PUSH(p->arena, &choices, fallback->name);
  while (took) {
    if (p->kind != 's') return fail(p, "a string");
    DC_PUSH(p->arena, &choices, p->text);
    DC_TRY(dc_lang_next(p));
    DC_TRY(accept(p, "|", &took));
  }
  attr->choices = choices.v, attr->n_choices = choices.n;
  DC_TRY(accept(p, "from", &took));
  if (!took) return DC_OK;
  if (p->kind != 'i') return fail(p, "an integer");
  attr->least = p->i;
  return dc_lang_next(p);
}

static dc_status attributes(parser *p, dc_row *row) {
  DC_VEC(dc_row_attr) attrs = {0};
  DC_VEC(dc_define) defaults = {0}, fixed = {0};
  bool more = p->kind == 'n';
  while (more) {
    dc_define d = {0};
    bool took;
    DC_TRY(name(p, &d.name));
    DC_TRY(accept(p, "=", &took));
    const char *text = p->token_at;
    if (took) DC_TRY(dc_lang_expr(p, &d.value));
    dc_row_attr attr = {d.name, !took, .fallback = took ? source(p, text) : NULL};
    DC_TRY(limits(p, d.value, &attr));
    bool has = true;
    DC_TRY(has_version(p, row->since, &has));
    if (has) {
      DC_PUSH(p->arena, &attrs, attr);
      DC_PUSH(p->arena, &defaults, d);
    } else if (took) {
      DC_PUSH(p->arena, &fixed, d); /* the body may rely on the default */
    }
    DC_TRY(accept(p, ",", &more));
  }
  row->attr = attrs.v, row->attr_default = defaults.v, row->n_attr = attrs.n;
  row->fixed = fixed.v, row->n_fixed = fixed.n;
  return DC_OK;
}

/* (inputs; attributes) -> (outputs) [where ...] [with T in class, ...] */
static dc_status header(parser *p, dc_row *row) {
  bool took;
  DC_TRY(expect(p, "("));
  DC_TRY(signatures(p, row->since, &row->in, &row->in_sig, &row->n_in));
  DC_TRY(accept(p, ";", &took));
  if (took) DC_TRY(attributes(p, row));
  DC_TRY(expect(p, ")"));
  DC_TRY(expect(p, "->"));
  DC_TRY(expect(p, "("));
  DC_TRY(signatures(p, row->since, &row->out, &row->out_sig, &row->n_out));
  DC_TRY(expect(p, ")"));
  DC_VEC(dc_constraint) constraints = {0};
  DC_TRY(accept(p, "with", &took));
  while (took) {
    dc_constraint c;
    DC_TRY(name(p, &c.variable));
    DC_TRY(expect(p, "in"));
    DC_TRY(name(p, &c.class_name));
    DC_PUSH(p->arena, &constraints, c);
    DC_TRY(accept(p, ",", &took));
  }
  row->constraints = constraints.v, row->n_constraints = constraints.n;
  DC_VEC(dc_define) where = {0};
  DC_TRY(accept(p, "where", &took));
  while (took) {
    dc_define d;
    DC_TRY(name(p, &d.name));
    DC_TRY(accept(p, "..", &took));
    DC_TRY(expect(p, "="));
    DC_TRY(dc_lang_expr(p, &d.value));
    DC_PUSH(p->arena, &where, d);
    DC_TRY(accept(p, ",", &took));
  }
  row->where = where.v, row->n_where = where.n;
  return DC_OK;
}

/* Name.version{,version}: table.c has read it; here it is skipped. */
static dc_status skip_title(parser *p) {
  const char *ignored;
  DC_TRY(name(p, &ignored));
  while (p->kind == 'p' && is(p, ".")) {
    DC_TRY(dc_lang_next(p));
    if (p->kind == 'n') {
      DC_TRY(dc_lang_next(p)); /* a domain's dot */
      continue;
    }
    bool more = true;
    while (more) {
      if (p->kind != 'i') return fail(p, "a version");
      DC_TRY(dc_lang_next(p));
      DC_TRY(accept(p, ",", &more));
    }
  }
  return DC_OK;
}

/* [keyword names] */
static dc_status names_behind(parser *p, const char *keyword, const char ***out, uint32_t *n) {
  DC_VEC(const char *) list = {0};
  bool more;
  DC_TRY(accept(p, keyword, &more));
  while (more) {
    const char *found;
    DC_TRY(name(p, &found));
    DC_PUSH(p->arena, &list, found);
    DC_TRY(accept(p, ",", &more));
  }
  *out = list.v, *n = list.n;
  return DC_OK;
}

/* ": statements [grad [kept]: statements] [natives names [strided names]] [linear names]" */
static dc_status body(parser *p, dc_row *row) {
  bool took;
  DC_TRY(expect(p, ":"));
  DC_TRY(block(p, &row->body));
  DC_TRY(accept(p, "grad", &took));
  if (took) {
    DC_TRY(accept(p, "kept", &row->grad_keeps));
    DC_TRY(expect(p, ":"));
    DC_TRY(block(p, &row->grad));
  }
  DC_TRY(names_behind(p, "natives", &row->native, &row->n_native));
  if (row->n_native) DC_TRY(names_behind(p, "strided", &row->strided, &row->n_strided));
  return names_behind(p, "linear", &row->linear, &row->n_linear);
}

dc_status dc_lang_row(dc_arena *arena, const char *family, const char *text, dc_row *row) {
  parser p;
  bool took;
  row->text = text;
  if (family) {
    dc_lang_start(&p, arena, family);
    DC_TRY(dc_lang_next(&p));
    DC_TRY(expect(&p, "family"));
    DC_TRY(header(&p, row));
    if (p.kind) DC_TRY(body(&p, row)); /* of the members that have none */
    if (p.kind) return fail(&p, "the end of the family's header");
  }
  dc_lang_start(&p, arena, text);
  DC_TRY(dc_lang_next(&p));
  DC_TRY(accept(&p, "|", &took));
  DC_TRY(skip_title(&p));
  if (!family) DC_TRY(header(&p, row));
  DC_TRY(accept(&p, "{", &took)); /* a family's member may have attributes of its own */
  if (took) {
    DC_TRY(attributes(&p, row));
    DC_TRY(expect(&p, "}"));
  }
  if (p.kind || !row->body.n) DC_TRY(body(&p, row));
  return p.kind ? fail(&p, "the end of the row") : DC_OK;
}
