/* Expressions of the text form: precedence climbing over the levels that print.c writes. */
#include <math.h>
#include <string.h>

#include "ir/lexer.h"

enum { MAX_DEPTH = 200 };

/* ---- types ---- */

static dc_dtype wider(dc_dtype a, dc_dtype b);

/* Whole numbers do not widen the parts of a complex one. */
static dc_dtype wider_complex(dc_dtype a, dc_dtype b) {
  dc_dtype x = dc_dtype_is_complex(a) ? a : b, other = x == a ? b : a, part = dc_dtype_part(other);
  return dc_dtype_is_float(part) ? dc_dtype_of_parts(wider(dc_dtype_part(x), part)) : x;
}

/* Of two types the one that a loose expression computes in. */
static dc_dtype wider(dc_dtype a, dc_dtype b) {
  if (dc_dtype_is_complex(a) || dc_dtype_is_complex(b)) return wider_complex(a, b);
  bool real_a = dc_dtype_is_float(a), real_b = dc_dtype_is_float(b);
  if (real_a != real_b) return real_a ? a : b;
  if (a == DC_BOOL || b == DC_BOOL) return a == DC_BOOL ? b : a;
  int bytes_a = dc_dtype_bytes(a), bytes_b = dc_dtype_bytes(b);
  if (bytes_a != bytes_b) return bytes_a > bytes_b ? a : b;
  return real_a ? DC_F32 : dc_dtype_is_signed(a) ? b : a; /* f16 and bf16; i32 and u32 */
}

static bool is_constant(const dc_pool *pool, dc_ex e) {
  double value;
  if (dc_ex_node(pool, e)->op != DC_COMPLEX) return dc_ex_is_const(pool, e, &value);
  return is_constant(pool, dc_ex_arg(pool, e, 0)) && is_constant(pool, dc_ex_arg(pool, e, 1));
}

/* A constant does not widen what it meets, but a fraction makes an integer real, and an imaginary part makes it complex. */
static dc_dtype common_type(const dc_pool *pool, dc_ex a, dc_ex b) {
  dc_dtype x = dc_ex_dtype(pool, a), y = dc_ex_dtype(pool, b);
  bool constant_a = is_constant(pool, a), constant_b = is_constant(pool, b);
  if (constant_a == constant_b) return wider(x, y);
  dc_dtype constant = constant_a ? x : y, other = constant_a ? y : x;
  if (dc_dtype_is_complex(other)) return other;
  if (dc_dtype_is_complex(constant)) return dc_dtype_is_float(other) ? dc_dtype_of_parts(wider(DC_F32, other)) : constant;
  bool holds = dc_dtype_is_float(other) || (!dc_dtype_is_float(constant) && other != DC_BOOL);
  return holds ? other : constant;
}

static dc_status same_types(dc_parser *p, dc_ex *a, dc_ex *b) {
  dc_pool *pool = &p->graph->pool;
  dc_dtype x = dc_ex_dtype(pool, *a), y = dc_ex_dtype(pool, *b);
  if (x == y) return DC_OK;
  if (!p->is_loose) return dc_error_at(dc_parser_fail(p, "operands of one type"), "%s and %s", dc_dtype_name(x), dc_dtype_name(y));
  dc_dtype type = common_type(pool, *a, *b);
  *a = dc_ex_cast(pool, type, *a), *b = dc_ex_cast(pool, type, *b);
  return DC_OK;
}

/* The type that a primitive takes instead of one that it does not; DC_NOTYPE: none. */
static dc_dtype loosened(dc_dtype type, dc_prim_kind kind) {
  if (kind == DC_PRIM_PAIR && dc_dtype_is_float(type)) return wider(DC_F32, type);
  if (kind == DC_PRIM_PAIR && !dc_dtype_is_complex(type)) return DC_F64;
  if (dc_dtype_is_complex(type)) return kind == DC_PRIM_LOGIC ? DC_BOOL : type;
  if (kind == DC_PRIM_FLOAT && !dc_dtype_is_float(type)) return DC_F64;
  if (kind == DC_PRIM_LOGIC) return DC_BOOL;
  return kind == DC_PRIM_SAME && type == DC_BOOL ? DC_I64 : type;
}

static dc_status of_type(dc_parser *p, dc_ex *e, dc_op prim) {
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  dc_prim_kind wanted = prim == DC_ANGLE ? DC_PRIM_FLOAT : kind;
  if (p->is_loose) *e = dc_ex_cast(&p->graph->pool, loosened(dc_ex_dtype(&p->graph->pool, *e), wanted), *e);
  dc_dtype type = dc_ex_dtype(&p->graph->pool, *e);
  if (kind == DC_PRIM_PAIR && type != DC_F32 && type != DC_F64) return dc_parser_fail(p, "parts of type f32 or f64");
  if (kind == DC_PRIM_PART && type == DC_BOOL) return dc_parser_fail(p, "a numeric operand");
  if (prim == DC_ANGLE && !dc_dtype_is_complex(type) && !dc_dtype_is_float(type)) return dc_parser_fail(p, "a floating operand");
  if (kind == DC_PRIM_PART || kind == DC_PRIM_PAIR) return DC_OK;
  if (dc_dtype_is_complex(type) && !dc_prim_parts[prim][0])
    return dc_error_at(dc_parser_fail(p, "real numbers"), "'%s' of complex numbers", dc_prims[prim].name);
  if (dc_dtype_is_complex(type)) return DC_OK;
  if (kind == DC_PRIM_FLOAT && !dc_dtype_is_float(type)) return dc_parser_fail(p, "a floating operand");
  if (kind == DC_PRIM_LOGIC && type != DC_BOOL) return dc_parser_fail(p, "a bool operand");
  if (kind == DC_PRIM_SAME && type == DC_BOOL) return dc_parser_fail(p, "a numeric operand");
  if (kind == DC_PRIM_BITS && !dc_dtype_is_integer(type)) return dc_parser_fail(p, "an integer operand");
  return DC_OK;
}

static dc_status make_prim(dc_parser *p, dc_op prim, const dc_ex *given, dc_ex *out) {
  dc_pool *pool = &p->graph->pool;
  int arity = dc_prims[prim].arity;
  dc_ex args[2] = {given[0], arity == 2 ? given[1] : 0};
  for (int k = 0; k < arity; k++) DC_TRY(of_type(p, &args[k], prim));
  if (arity == 2) DC_TRY(same_types(p, &args[0], &args[1]));
  *out = arity == 1 ? dc_ex_prim1(pool, prim, args[0]) : dc_ex_prim2(pool, prim, args[0], args[1]);
  return DC_OK;
}

static bool prim_by_name(const char *name, dc_op *out) {
  if (strcmp(name, "not") == 0) return *out = DC_NOT, true;
  for (int k = 0; k < DC_PRIM_COUNT; k++)
    if (strcmp(dc_prims[k].name, name) == 0) return *out = (dc_op)k, true;
  return false;
}

dc_status dc_parser_list(dc_parser *p, const char *close, dc_ex_list *out) {
  bool done;
  *out = (dc_ex_list){0};
  DC_TRY(dc_parser_accept(p, close, &done));
  while (!done) {
    dc_ex item;
    DC_TRY(dc_parser_expr(p, &item));
    DC_PUSH(p->scratch, out, item);
    DC_TRY(dc_parser_accept(p, close, &done));
    if (!done) DC_TRY(dc_parser_expect(p, ","));
  }
  return DC_OK;
}

/* ---- primary expressions ---- */

static dc_status parse_read(dc_parser *p, const char *name, dc_ex *out) {
  dc_ex_list index;
  DC_TRY(dc_parser_expect(p, "["));
  DC_TRY(dc_parser_list(p, "]", &index));
  *out = 0;
  if (p->names.find) DC_TRY(p->names.find(p->names.context, p, name, index.v, (int)index.n, out));
  if (*out) return DC_OK;
  dc_cid c = dc_container_find(p->graph, name);
  if (!c) return dc_error_at(dc_parser_fail(p, "a declared container"), "'%s'", name);
  bool fits = p->is_flat ? index.n == 1 || index.n == 2 : dc_cont(p->graph, c)->rank == index.n;
  const char *wanted = p->is_flat ? "an address and perhaps a check" : "one index for each dimension";
  if (!fits) return dc_error_at(dc_parser_fail(p, wanted), "'%s'", name);
  for (uint32_t k = 0; k < index.n; k++)
    if (dc_ex_dtype(&p->graph->pool, index.v[k]) != (p->is_flat && k ? DC_BOOL : DC_I64))
      return dc_parser_fail(p, p->is_flat && k ? "a bool check" : "i64 indices");
  *out = dc_ex_read(&p->graph->pool, (dc_dtype)dc_cont(p->graph, c)->dtype, c, index.v, index.n);
  return DC_OK;
}

static dc_status parse_call(dc_parser *p, const char *name, dc_ex *out) {
  dc_ex_list args;
  DC_TRY(dc_parser_expect(p, "("));
  DC_TRY(dc_parser_list(p, ")", &args));
  dc_dtype type = dc_dtype_from_name(name);
  if (type && args.n == 1) return *out = dc_ex_cast(&p->graph->pool, type, args.v[0]), DC_OK;
  dc_dtype pattern = strncmp(name, "bits_", 5) == 0 ? dc_dtype_from_name(name + 5) : DC_NOTYPE;
  if (pattern && args.n == 1) {
    bool fits = dc_dtype_bytes(pattern) == dc_dtype_bytes(dc_ex_dtype(&p->graph->pool, args.v[0]));
    return fits ? (*out = dc_ex_bits(&p->graph->pool, pattern, args.v[0]), DC_OK) : dc_parser_fail(p, "a value as wide as the type");
  }
  dc_op prim;
  if (!prim_by_name(name, &prim)) return dc_error_at(dc_parser_fail(p, "a primitive or a type"), "'%s'", name);
  if (dc_prims[prim].arity == args.n) return make_prim(p, prim, args.v, out);
  bool extreme = (prim == DC_MIN || prim == DC_MAX) && args.n > 2;
  if (!extreme) return dc_error_at(dc_parser_fail(p, "its number of arguments"), "'%s'", name);
  *out = args.v[0];
  for (uint32_t k = 1; k < args.n; k++) {
    dc_ex pair[2] = {*out, args.v[k]};
    DC_TRY(make_prim(p, prim, pair, out));
  }
  return DC_OK;
}

static dc_status parse_word(dc_parser *p, const char *name, dc_ex *out) {
  dc_pool *pool = &p->graph->pool;
  *out = 0;
  if (p->names.find) DC_TRY(p->names.find(p->names.context, p, name, NULL, -1, out));
  if (*out) return DC_OK;
  for (uint32_t k = 0; k < p->lets.n; k++)
    if (strcmp(p->lets.v[k].name, name) == 0) return *out = p->lets.v[k].value, DC_OK;
  for (uint32_t k = p->n_params; k-- > 0;)
    if (p->params[k] && strcmp(dc_name_text(&p->graph->names, pool->params.v[p->params[k]].name), name) == 0)
      return *out = dc_ex_par(pool, p->params[k]), DC_OK;
  dc_sym symbol = dc_symbol_find(pool, name);
  if (symbol) return *out = dc_ex_sym(pool, symbol), DC_OK;
  static const struct {
    const char *name;
    dc_dtype type;
    double value;
  } words[] = {{"true", DC_BOOL, 1},       {"false", DC_BOOL, 0}, {"inf", DC_F64, INFINITY},
               {"inff", DC_F32, INFINITY}, {"nan", DC_F64, NAN},  {"nanf", DC_F32, NAN}};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    if (strcmp(words[k].name, name) == 0) return *out = dc_ex_const(pool, words[k].type, words[k].value), DC_OK;
  return dc_error_at(dc_parser_fail(p, "a parameter, symbol or constant"), "'%s'", name);
}

static dc_status parse_unary(dc_parser *p, dc_ex *out);

static dc_status parse_primary(dc_parser *p, dc_ex *out) {
  dc_pool *pool = &p->graph->pool;
  dc_token token = p->token;
  switch (token.kind) {
    case TOK_INT: *out = dc_ex_int(pool, token.i); return dc_parser_next(p);
    case TOK_FLOAT: *out = dc_ex_const(pool, DC_F64, token.f); return dc_parser_next(p);
    case TOK_FLOAT32: *out = dc_ex_const(pool, DC_F32, token.f); return dc_parser_next(p);
    case TOK_NAME: case TOK_STRING:
      DC_TRY(dc_parser_next(p));
      if (dc_parser_is(p, "[")) return parse_read(p, token.text, out);
      if (dc_parser_is(p, "(")) return parse_call(p, token.text, out);
      return parse_word(p, token.text, out);
    default: break;
  }
  DC_TRY(dc_parser_expect(p, "("));
  DC_TRY(dc_parser_expr(p, out));
  return dc_parser_expect(p, ")");
}

static dc_status parse_unary(dc_parser *p, dc_ex *out) {
  bool minus;
  DC_TRY(dc_parser_accept(p, "-", &minus));
  if (!minus) return parse_primary(p, out);
  DC_TRY(parse_primary(p, out));
  return make_prim(p, DC_NEG, out, out);
}

/* ---- operators ---- */

enum { LEVELS = 5 };
static const char *const operators[LEVELS][7] = {
    {"||"}, {"&&"}, {"<", "<=", ">", ">=", "==", "!="}, {"+", "-"}, {"*", "/", "//", "%"}};

static const char *operator_at(const dc_parser *p, int level) {
  for (int k = 0; p->token.kind == TOK_PUNCT && operators[level][k]; k++)
    if (strcmp(p->token.text, operators[level][k]) == 0) return operators[level][k];
  return NULL;
}

static dc_status parse_binary(dc_parser *p, int level, dc_ex *out) {
  if (level == LEVELS) return parse_unary(p, out);
  DC_TRY(parse_binary(p, level + 1, out));
  for (const char *symbol; (symbol = operator_at(p, level));) {
    dc_ex args[2] = {*out, 0};
    dc_op prim = DC_ADD;
    DC_TRY(dc_parser_next(p));
    DC_TRY(parse_binary(p, level + 1, &args[1]));
    if (!prim_by_name(symbol, &prim)) return dc_parser_fail(p, "an operator");
    DC_TRY(make_prim(p, prim, args, out));
  }
  return DC_OK;
}

dc_status dc_parser_or(dc_parser *p, dc_ex *out) {
  if (++p->depth > MAX_DEPTH) return dc_parser_fail(p, "an expression nested less deeply");
  DC_TRY(parse_binary(p, 0, out));
  p->depth--;
  return DC_OK;
}

dc_status dc_parser_expr(dc_parser *p, dc_ex *out) {
  bool selects;
  DC_TRY(dc_parser_or(p, out));
  DC_TRY(dc_parser_accept(p, "?", &selects));
  if (!selects) return DC_OK;
  dc_ex condition = *out, yes, no;
  if (p->is_loose) condition = dc_ex_cast(&p->graph->pool, DC_BOOL, condition);
  if (dc_ex_dtype(&p->graph->pool, condition) != DC_BOOL) return dc_parser_fail(p, "a bool condition");
  if (++p->depth > MAX_DEPTH) return dc_parser_fail(p, "an expression nested less deeply");
  DC_TRY(dc_parser_or(p, &yes));
  DC_TRY(dc_parser_expect(p, ":"));
  DC_TRY(dc_parser_expr(p, &no));
  p->depth--;
  DC_TRY(same_types(p, &yes, &no));
  *out = dc_ex_select(&p->graph->pool, condition, yes, no);
  return DC_OK;
}
