/* Text form of graphs and expressions.
 *
 * A part that a statement uses more than once is named before it, `let t = exp(X[i] - m[])`, so that the text of an
 * expression grows with its distinct parts and not with its paths.
 * Sums and products print their terms in the order of their text, not of their ids, so that
 * a graph, its clone and its parsed text print alike.  parse.c reads what this writes. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/print.h"

enum { MAX_LISTED = 64 }; /* elements of a constant printed as numbers rather than bytes */

typedef struct {
  dc_param param;
  const char *name; /* under which it prints */
} scope_param;

typedef struct {
  dc_ex part;
  const char *name;
} let;

typedef struct dc_printer {
  const dc_graph *graph;
  const dc_graph *outer; /* of a subgraph: the graph that holds it */
  dc_text *out;
  int level;
  dc_arena *arena;
  DC_VEC(scope_param) params; /* of the enclosing maps */
  uint32_t *uses;    /* by expression, within the statement at hand; zero between statements */
  DC_VEC(let) lets;  /* of the statement at hand */
  uint32_t *let_at;  /* by expression: 1 + its place in lets, 0: none; NULL where nothing is named */
  uint32_t n_named;  /* expressions that these two know */
  dc_alias_fn alias; /* or NULL */
  void *context;
  bool is_python; /* the spelling of scalar expressions */
} printer;

/* ---- names ---- */

/* Words that begin a node would be taken for one. */
static bool is_identifier(const char *s) {
  static const char *const words[] = {"let", "map", "sequential", "reduce", "scatter"};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    if (strcmp(s, words[k]) == 0) return false;
  if (!isalpha((unsigned char)*s) && *s != '_') return false;
  for (; *s; s++)
    if (!isalnum((unsigned char)*s) && *s != '_') return false;
  return true;
}

void dc_name_print(const char *s, dc_text *out) {
  if (is_identifier(s)) {
    dc_text_puts(out, s);
    return;
  }
  dc_text_puts(out, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\' || c < 32 || c == 127) dc_text_printf(out, "\\x%02x", c);
    else dc_text_printf(out, "%c", c);
  }
  dc_text_puts(out, "\"");
}

static void put_container(printer *p, dc_cid c) {
  if (c) dc_name_print(dc_cont_name(p->graph, c), p->out);
  else dc_text_puts(p->out, "_");
}

static const char *param_name(const printer *p, dc_param param) {
  for (uint32_t k = p->params.n; k-- > 0;)
    if (p->params.v[k].param == param) return p->params.v[k].name;
  return dc_name_text(&p->graph->names, p->graph->pool.params.v[param].name);
}

static bool name_in_use(const printer *p, const char *name) {
  for (uint32_t k = 0; k < p->params.n; k++)
    if (strcmp(p->params.v[k].name, name) == 0) return true;
  for (uint32_t k = 0; k < p->lets.n; k++)
    if (strcmp(p->lets.v[k].name, name) == 0) return true;
  return dc_symbol_find(&p->graph->pool, name) != 0;
}

static const char *new_name(const printer *p, const char *base) {
  const char *name = base;
  for (int k = 2; name_in_use(p, name); k++) name = dc_arena_printf(p->arena, "%s_%d", base, k);
  return name;
}

static const char *push_param(printer *p, dc_param param) {
  const char *base = dc_name_text(&p->graph->names, p->graph->pool.params.v[param].name);
  const char *name = new_name(p, is_identifier(base) ? base : "i");
  DC_PUSH(p->arena, &p->params, ((scope_param){param, name}));
  return name;
}

/* ---- expressions ---- */

enum { LEVEL_SELECT, LEVEL_OR, LEVEL_AND, LEVEL_TEST, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_UNARY };

static void put_ex(printer *p, dc_ex e, int level);

/* Without the mark of its type. */
static void put_float_digits(dc_text *out, dc_dtype type, double value) {
  char digits[40];
  if (isnan(value) || isinf(value)) {
    dc_text_puts(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return;
  }
  snprintf(digits, sizeof digits, type == DC_F32 ? "%.9g" : "%.17g", value);
  double back = strtod(digits, NULL);
  for (int n = 1; n < 17 && back == value; n++) { /* the shortest that reads back */
    char shorter[40];
    snprintf(shorter, sizeof shorter, "%.*g", n, value);
    double read = strtod(shorter, NULL);
    if ((type == DC_F32 ? (double)(float)read : read) == value) {
      memcpy(digits, shorter, sizeof digits);
      break;
    }
  }
  if (fabs(value) < 1e6 && value == (double)(int64_t)value) snprintf(digits, sizeof digits, "%.1f", value); /* 20.0, not 2e+01 */
  dc_text_printf(out, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

static void put_float(dc_text *out, dc_dtype type, double value) {
  bool marked = type != DC_F32 && type != DC_F64;
  if (marked) dc_text_printf(out, "%s(", dc_dtype_name(type));
  put_float_digits(out, type, value);
  if (type == DC_F32) dc_text_puts(out, "f");
  if (marked) dc_text_puts(out, ")");
}

static void put_constant(printer *p, const dc_exnode *node) {
  if (p->is_python && node->dtype == DC_BOOL) dc_text_puts(p->out, node->i ? "True" : "False");
  else if (p->is_python && node->op == DC_EX_INT) dc_text_printf(p->out, "%" PRId64, node->i);
  else if (p->is_python && node->dtype == DC_F32) put_float_digits(p->out, DC_F32, node->f);
  else if (p->is_python) put_float(p->out, DC_F64, node->f);
  else if (node->op == DC_EX_FLOAT) put_float(p->out, (dc_dtype)node->dtype, node->f);
  else if (node->dtype == DC_BOOL) dc_text_puts(p->out, node->i ? "true" : "false");
  else if (node->dtype == DC_I64) dc_text_printf(p->out, "%" PRId64, node->i);
  else dc_text_printf(p->out, "%s(%" PRId64 ")", dc_dtype_name((dc_dtype)node->dtype), node->i);
}

static char *ex_text(printer *p, dc_ex e, int level) {
  dc_text text = {0}, *out = p->out;
  p->out = &text;
  put_ex(p, e, level);
  p->out = out;
  return text.s;
}

typedef struct {
  char *text;
  int64_t coefficient;
  bool divides; /* a quotient or a remainder: 2*a // b would be that of 2*a */
} term;

static int compare_terms(const void *a, const void *b) { return strcmp(((const term *)a)->text, ((const term *)b)->text); }

static void put_linear(printer *p, dc_ex e) {
  const dc_exnode *node = dc_ex_node(&p->graph->pool, e);
  uint32_t n = node->nargs / 2;
  term *terms = malloc((n + 1) * sizeof *terms);
  if (!terms) abort();
  for (uint32_t k = 0; k < n; k++) {
    dc_ex factor = dc_ex_arg(&p->graph->pool, e, 2 * k);
    uint8_t op = dc_ex_node(&p->graph->pool, factor)->op;
    terms[k].text = ex_text(p, factor, LEVEL_PRODUCT);
    terms[k].divides = op == DC_EX_IDIV || op == DC_EX_IMOD;
    terms[k].coefficient = dc_ex_node(&p->graph->pool, dc_ex_arg(&p->graph->pool, e, 2 * k + 1))->i;
  }
  qsort(terms, n, sizeof *terms, compare_terms);
  for (uint32_t k = 0; k < n; k++) {
    int64_t c = terms[k].coefficient;
    uint64_t magnitude = c < 0 ? 0 - (uint64_t)c : (uint64_t)c;
    dc_text_puts(p->out, c < 0 ? (k ? " - " : "-") : k ? " + " : "");
    if (magnitude != 1) dc_text_printf(p->out, "%" PRIu64 "*", magnitude);
    bool apart = terms[k].divides && (magnitude != 1 || (c < 0 && k == 0));
    dc_text_printf(p->out, apart ? "(%s)" : "%s", terms[k].text);
    free(terms[k].text);
  }
  free(terms);
  if (node->i) dc_text_printf(p->out, node->i < 0 ? " - %" PRIu64 : " + %" PRIu64, node->i < 0 ? 0 - (uint64_t)node->i : (uint64_t)node->i);
}

static void put_sorted(printer *p, dc_ex e, int level, const char *separator) {
  uint32_t n = dc_ex_node(&p->graph->pool, e)->nargs;
  term *terms = malloc(n * sizeof *terms);
  if (!terms) abort();
  for (uint32_t k = 0; k < n; k++) terms[k].text = ex_text(p, dc_ex_arg(&p->graph->pool, e, k), level);
  qsort(terms, n, sizeof *terms, compare_terms);
  for (uint32_t k = 0; k < n; k++) {
    dc_text_printf(p->out, "%s%s", k ? separator : "", terms[k].text);
    free(terms[k].text);
  }
  free(terms);
}

static void put_args(printer *p, dc_ex e) {
  for (uint32_t k = 0; k < dc_ex_node(&p->graph->pool, e)->nargs; k++) {
    if (k) dc_text_puts(p->out, ", ");
    put_ex(p, dc_ex_arg(&p->graph->pool, e, k), LEVEL_SELECT);
  }
}

static void put_read(printer *p, dc_ex e, dc_cid c) {
  bool shown[DC_MAX_RANK], any = false;
  const char *name = p->alias ? p->alias(p->context, e, shown) : NULL;
  if (name) dc_text_puts(p->out, name);
  else put_container(p, c);
  for (uint32_t k = 0; k < dc_ex_node(&p->graph->pool, e)->nargs; k++) {
    if (name && !shown[k]) continue;
    dc_text_puts(p->out, any ? ", " : "[");
    put_ex(p, dc_ex_arg(&p->graph->pool, e, k), LEVEL_SELECT);
    any = true;
  }
  bool bare = !any && name && p->is_python;
  dc_text_puts(p->out, any ? "]" : bare ? "" : "[]");
}

/* `x if c else y` */
static void put_choice(printer *p, dc_ex e) {
  const dc_pool *pool = &p->graph->pool;
  put_ex(p, dc_ex_arg(pool, e, p->is_python ? 1 : 0), LEVEL_OR);
  dc_text_puts(p->out, p->is_python ? " if " : " ? ");
  put_ex(p, dc_ex_arg(pool, e, p->is_python ? 0 : 1), LEVEL_OR);
  dc_text_puts(p->out, p->is_python ? " else " : " : ");
  put_ex(p, dc_ex_arg(pool, e, 2), LEVEL_SELECT);
}

/* The name of a type as a Python function, as in float32. */
static void put_type(printer *p, dc_dtype type) {
  const char *name = dc_dtype_name(type);
  bool plain = strchr("fiu", *name) && strlen(name) <= 3 && name[1] >= '1' && name[1] <= '6';
  if (!p->is_python || !plain) dc_text_puts(p->out, name);
  else dc_text_printf(p->out, "%s%s", *name == 'f' ? "float" : *name == 'i' ? "int" : "uint", name + 1);
}

static const char *operator_text(const printer *p, dc_op op) {
  return p->is_python && op == DC_AND ? "and" : p->is_python && op == DC_OR ? "or" : dc_prims[op].name;
}

static void put_infix(printer *p, dc_ex e, const char *symbol, int level) {
  put_ex(p, dc_ex_arg(&p->graph->pool, e, 0), level);
  dc_text_printf(p->out, " %s ", symbol);
  put_ex(p, dc_ex_arg(&p->graph->pool, e, 1), level + 1);
}

static int level_of(const dc_exnode *node) {
  switch (node->op) {
    case DC_EX_SELECT: return LEVEL_SELECT;
    case DC_OR: return LEVEL_OR;
    case DC_AND: return LEVEL_AND;
    case DC_LT: case DC_LE: case DC_GT: case DC_GE: case DC_EQ: case DC_NE: return LEVEL_TEST;
    case DC_ADD: case DC_SUB: case DC_EX_LINEAR: return LEVEL_SUM;
    case DC_MUL: case DC_DIV: case DC_FLOORDIV: case DC_MOD: case DC_EX_PRODUCT: case DC_EX_IDIV: case DC_EX_IMOD: return LEVEL_PRODUCT;
    default: return LEVEL_UNARY;
  }
}

static void put_bare(printer *p, dc_ex e, const dc_exnode *node, int own) {
  const dc_pool *pool = &p->graph->pool;
  switch (node->op) {
    case DC_EX_INT: case DC_EX_FLOAT: put_constant(p, node); return;
    case DC_EX_SYM: dc_text_puts(p->out, dc_name_text(&p->graph->names, pool->symbols.v[node->ref].name)); return;
    case DC_EX_PARAM: dc_text_puts(p->out, param_name(p, node->ref)); return;
    case DC_EX_READ: put_read(p, e, node->ref); return;
    case DC_EX_LINEAR: put_linear(p, e); return;
    case DC_EX_PRODUCT: put_sorted(p, e, LEVEL_UNARY, "*"); return;
    case DC_EX_IDIV: put_infix(p, e, "//", own); return;
    case DC_EX_IMOD: put_infix(p, e, "%", own); return;
    case DC_EX_IMIN: case DC_EX_IMAX:
      dc_text_puts(p->out, node->op == DC_EX_IMIN ? "min(" : "max(");
      put_sorted(p, e, LEVEL_SELECT, ", ");
      dc_text_puts(p->out, ")");
      return;
    case DC_EX_SELECT: put_choice(p, e); return;
    case DC_EX_CAST:
      put_type(p, (dc_dtype)node->dtype);
      dc_text_puts(p->out, "(");
      break;
    case DC_EX_BITS: dc_text_printf(p->out, "bits_%s(", dc_dtype_name((dc_dtype)node->dtype)); break;
    default:
      if (own != LEVEL_UNARY) {
        put_infix(p, e, operator_text(p, (dc_op)node->op), own);
        return;
      }
      if (node->op == DC_NOT && p->is_python) dc_text_puts(p->out, "(");
      dc_text_printf(p->out, "%s(", node->op == DC_NOT ? "not" : dc_prims[node->op].name);
  }
  put_args(p, e);
  dc_text_puts(p->out, node->op == DC_NOT && p->is_python ? "))" : ")");
}

static void put_ex(printer *p, dc_ex e, int level) {
  if (!e) {
    dc_text_puts(p->out, "?");
    return;
  }
  if (p->let_at && e < p->n_named && p->let_at[e]) {
    dc_text_puts(p->out, p->lets.v[p->let_at[e] - 1].name);
    return;
  }
  const dc_exnode *node = dc_ex_node(&p->graph->pool, e);
  int own = level_of(node);
  bool negative = (node->op == DC_EX_INT && node->dtype == DC_I64 && node->i < 0) || (node->op == DC_EX_FLOAT && signbit(node->f));
  bool parentheses = own < level || (negative && level >= LEVEL_PRODUCT);
  if (parentheses) dc_text_puts(p->out, "(");
  put_bare(p, e, node, own);
  if (parentheses) dc_text_puts(p->out, ")");
}

void dc_ex_print(const dc_graph *graph, dc_ex e, dc_text *out) {
  printer p = {.graph = graph, .out = out};
  put_ex(&p, e, LEVEL_SELECT);
}

/* ---- containers ---- */

static double element(dc_dtype type, const void *data, uint64_t k) {
  switch (type) {
    case DC_F32: return ((const float *)data)[k];
    case DC_F64: return ((const double *)data)[k];
    default: return 0;
  }
}

static int64_t integer_element(dc_dtype type, const void *data, uint64_t k) {
  switch (type) {
    case DC_I64: return ((const int64_t *)data)[k];
    case DC_I32: return ((const int32_t *)data)[k];
    default: return ((const uint8_t *)data)[k];
  }
}

static void put_string(dc_text *out, const char *s, size_t n);

static void put_strings(printer *p, const dc_container *c) {
  const dc_string *strings = c->data;
  for (uint64_t k = 0; k < c->data_bytes / sizeof *strings; k++) {
    dc_text_puts(p->out, k ? ", " : " = {");
    put_string(p->out, strings[k].s, strings[k].n);
  }
  dc_text_puts(p->out, c->data_bytes ? "}" : " = {}");
}

static void put_data(printer *p, const dc_container *c) {
  dc_dtype type = (dc_dtype)c->dtype;
  bool real = type == DC_F32 || type == DC_F64, whole = type == DC_I64 || type == DC_I32 || type == DC_BOOL;
  int bytes = dc_dtype_bytes(type);
  uint64_t n = bytes ? c->data_bytes / (uint64_t)bytes : 0;
  dc_text_puts(p->out, " = ");
  if (n > MAX_LISTED || (!real && !whole)) {
    dc_text_puts(p->out, "hex \"");
    for (uint64_t k = 0; k < c->data_bytes; k++) dc_text_printf(p->out, "%02x", ((const unsigned char *)c->data)[k]);
    dc_text_puts(p->out, "\"");
    return;
  }
  dc_text_puts(p->out, "{");
  for (uint64_t k = 0; k < n; k++) {
    if (k) dc_text_puts(p->out, ", ");
    if (real) put_float(p->out, DC_F64, element(type, c->data, k));
    else dc_text_printf(p->out, "%" PRId64, integer_element(type, c->data, k));
  }
  dc_text_puts(p->out, "}");
}

static void put_list(printer *p, const char *open, const dc_ex *items, uint32_t n, const char *close) {
  dc_text_puts(p->out, open);
  for (uint32_t k = 0; k < n; k++) {
    if (k) dc_text_puts(p->out, ", ");
    put_ex(p, items[k], LEVEL_SELECT);
  }
  dc_text_puts(p->out, close);
}

static void put_declaration(printer *p, dc_cid id) {
  static const char *const roles[] = {"temp", "input", "param", "const", "saved"};
  const dc_container *c = dc_cont(p->graph, id);
  dc_text_indent(p->out, p->level);
  dc_text_printf(p->out, "%s ", roles[c->role]);
  put_container(p, id);
  dc_text_printf(p->out, ": %s", dc_dtype_name((dc_dtype)c->dtype));
  if (c->shape) put_list(p, "[", c->shape, c->rank, "]");
  if (c->is_host) dc_text_puts(p->out, " host");
  if (c->device == DC_CUDA) dc_text_puts(p->out, " cuda");
  if (c->storage == DC_STORE_REGISTER) dc_text_puts(p->out, " register");
  if (c->strides) put_list(p, " strides [", c->strides, c->rank, "]");
  if (c->alias_of) {
    dc_text_puts(p->out, " view ");
    put_container(p, c->alias_of);
    if (c->alias_offset) {
      dc_text_puts(p->out, " at ");
      put_ex(p, c->alias_offset, LEVEL_SELECT);
    }
  }
  if (c->known) put_list(p, " known {", c->known, c->known_count, "}");
  if (c->data && c->dtype == DC_STRING) put_strings(p, c);
  else if (c->data) put_data(p, c);
  dc_text_puts(p->out, "\n");
}

/* ---- nodes ---- */

static void put_string(dc_text *out, const char *s, size_t n) {
  dc_text_puts(out, "\"");
  for (size_t k = 0; k < n; k++) {
    unsigned char c = (unsigned char)s[k];
    if (c == '"' || c == '\\' || c < 32 || c >= 127) dc_text_printf(out, "\\x%02x", c);
    else dc_text_printf(out, "%c", c);
  }
  dc_text_puts(out, "\"");
}

static void put_attr(printer *p, const dc_attr *a) {
  dc_name_print(dc_name_text(&p->graph->names, a->name), p->out);
  dc_text_puts(p->out, " = ");
  switch ((dc_attr_kind)a->kind) {
    case DC_ATTR_INT: dc_text_printf(p->out, "%" PRId64, a->i); return;
    case DC_ATTR_FLOAT: put_float(p->out, DC_F64, a->f); return;
    case DC_ATTR_STRING: put_string(p->out, a->s, a->n); return;
    case DC_ATTR_TENSOR:
      dc_text_puts(p->out, "tensor ");
      put_container(p, (dc_cid)a->i);
      return;
    case DC_ATTR_GRAPH: dc_text_printf(p->out, "graph %" PRId64, a->i); return;
    default: break;
  }
  dc_text_puts(p->out, a->kind == DC_ATTR_INTS ? "ints [" : a->kind == DC_ATTR_FLOATS ? "floats [" : "strings [");
  for (uint32_t k = 0; k < a->n; k++) {
    if (k) dc_text_puts(p->out, ", ");
    if (a->kind == DC_ATTR_INTS) dc_text_printf(p->out, "%" PRId64, a->ints[k]);
    else if (a->kind == DC_ATTR_FLOATS) put_float(p->out, DC_F64, a->floats[k]);
    else put_string(p->out, a->strings[k], strlen(a->strings[k]));
  }
  dc_text_puts(p->out, "]");
}

static void put_attrs(printer *p, const dc_library *lib) {
  for (uint32_t k = 0; k < lib->n_attr; k++) {
    dc_text_puts(p->out, k ? ", " : " {");
    put_attr(p, &lib->attr[k]);
  }
  if (lib->n_attr) dc_text_puts(p->out, "}");
}

static void put_library(printer *p, const dc_node *node) {
  const dc_library *lib = &node->lib;
  for (uint32_t k = 0; k < lib->n_out; k++) {
    if (k) dc_text_puts(p->out, ", ");
    put_container(p, lib->out[k]);
  }
  dc_text_puts(p->out, " = ");
  if (lib->wrt) dc_text_printf(p->out, "grad(%u, %u, %u) ", lib->wrt - 1, lib->n_fwd_in, lib->n_fwd_out);
  if (lib->domain) {
    dc_name_print(dc_name_text(&p->graph->names, lib->domain), p->out);
    dc_text_puts(p->out, "::");
  }
  dc_name_print(dc_name_text(&p->graph->names, lib->op), p->out);
  dc_text_printf(p->out, "@%d(", lib->since);
  for (uint32_t k = 0; k < lib->n_in; k++) {
    if (k) dc_text_puts(p->out, ", ");
    put_container(p, lib->in[k]);
  }
  dc_text_puts(p->out, ")");
  put_attrs(p, lib);
  if (!lib->by && !lib->why) return;
  dc_text_puts(p->out, " : ");
  dc_name_print(lib->by ? dc_name_text(&p->graph->names, lib->by) : "none", p->out);
  if (!lib->why) return;
  dc_text_puts(p->out, " (");
  dc_name_print(dc_name_text(&p->graph->names, lib->why), p->out);
  dc_text_puts(p->out, ")");
}

/* Index arithmetic and reads are named with what they are part of: their terms have no order but that of their text. */
static bool is_whole(const dc_exnode *node) {
  return node->op >= DC_PRIM_COUNT && node->op != DC_EX_SELECT && node->op != DC_EX_CAST && node->op != DC_EX_BITS;
}

static void count_uses(printer *p, dc_ex e) {
  const dc_exnode *node = dc_ex_node(&p->graph->pool, e);
  if (p->uses[e]++ || is_whole(node)) return;
  for (uint32_t k = 0; k < node->nargs; k++) count_uses(p, dc_ex_arg(&p->graph->pool, e, k));
}

/* Size as a tree; stops counting at the limit. */
static uint32_t tree_size(const dc_pool *pool, dc_ex e, uint32_t limit) {
  const dc_exnode *node = dc_ex_node(pool, e);
  uint32_t n = 1;
  for (uint32_t k = 0; k < node->nargs && n < limit && !is_whole(node); k++) n += tree_size(pool, dc_ex_arg(pool, e, k), limit - n);
  return n;
}

enum { MIN_LET = 3 }; /* nodes of a part worth a name: f(x) is as short as one */

/* Names what is used more than once, parts before what they are part of, and forgets the counts. */
static void put_lets(printer *p, dc_ex e) {
  const dc_exnode *node = dc_ex_node(&p->graph->pool, e);
  uint32_t uses = p->uses[e];
  p->uses[e] = 0;
  if (!uses || is_whole(node)) return;
  for (uint32_t k = 0; k < node->nargs; k++) put_lets(p, dc_ex_arg(&p->graph->pool, e, k));
  if (uses == 1 || tree_size(&p->graph->pool, e, MIN_LET) < MIN_LET) return;
  const char *name = new_name(p, "t");
  dc_text_printf(p->out, p->alias ? "%s = " : "let %s = ", name);
  put_ex(p, e, LEVEL_SELECT);
  dc_text_puts(p->out, "\n");
  dc_text_indent(p->out, p->level);
  DC_PUSH(p->arena, &p->lets, ((let){e, name}));
  p->let_at[e] = p->lets.n;
}

static void name_parts(printer *p, dc_ex value, dc_ex guard) {
  count_uses(p, value);
  if (guard) count_uses(p, guard);
  put_lets(p, value);
  if (guard) put_lets(p, guard);
}

static void forget_parts(printer *p) {
  for (uint32_t k = 0; k < p->lets.n; k++) p->let_at[p->lets.v[k].part] = 0;
  p->lets.n = 0;
}

static void put_tasklet(printer *p, const dc_tasklet *t) {
  name_parts(p, t->value, t->guard);
  put_container(p, t->out);
  put_list(p, "[", t->index, t->rank, "]");
  dc_text_printf(p->out, " %s= ", dc_wcr_name((dc_wcr)t->wcr));
  put_ex(p, t->value, LEVEL_SELECT);
  if (t->guard) {
    dc_text_puts(p->out, " if ");
    put_ex(p, t->guard, LEVEL_SELECT);
  }
  forget_parts(p);
}

/* What a node came from: `#Conv` or `#Conv'1` for the gradient of input 1; `@name`. */
static void put_origin(printer *p, const dc_node *node) {
  if (node->tag_op) {
    dc_text_puts(p->out, " #");
    dc_name_print(dc_name_text(&p->graph->names, node->tag_op), p->out);
    if (node->tag_wrt) dc_text_printf(p->out, "'%u", node->tag_wrt - 1);
  }
  if (node->name) {
    dc_text_puts(p->out, " @");
    dc_name_print(dc_name_text(&p->graph->names, node->name), p->out);
  }
}

static void put_scope(printer *p, const dc_scope *scope);

static void put_map(printer *p, const dc_node *node) {
  static const char *const schedules[] = {"map", "sequential", "reduce", "scatter"};
  uint32_t outer = p->params.n;
  dc_text_puts(p->out, schedules[node->map.schedule]);
  for (uint32_t k = 0; k < node->map.n_params; k++) {
    dc_parameter range = p->graph->pool.params.v[node->map.params[k]];
    push_param(p, node->map.params[k]); /* a range may use the parameters before it */
    dc_text_printf(p->out, "%s%s in ", k ? ", " : " ", p->params.v[p->params.n - 1].name);
    put_ex(p, range.begin, LEVEL_OR);
    dc_text_puts(p->out, ":");
    put_ex(p, range.end, LEVEL_OR);
    int64_t step;
    if (dc_ex_is_int(&p->graph->pool, range.step, &step) && step == 1) continue;
    dc_text_puts(p->out, ":");
    put_ex(p, range.step, LEVEL_OR);
  }
  put_origin(p, node);
  dc_text_puts(p->out, " {\n");
  p->level++;
  put_scope(p, &node->map.body);
  p->level--;
  dc_text_indent(p->out, p->level);
  dc_text_puts(p->out, "}");
  p->params.n = outer;
}

static void put_scope(printer *p, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(p->graph, scope->v[k]);
    dc_text_indent(p->out, p->level);
    if (node->kind == DC_NODE_MAP) put_map(p, node);
    else if (node->kind == DC_NODE_LIBRARY) put_library(p, node);
    else put_tasklet(p, &node->tasklet);
    if (node->kind != DC_NODE_MAP) put_origin(p, node);
    dc_text_puts(p->out, "\n");
  }
}

/* ---- graph ---- */

static void allow_names(printer *p) {
  p->n_named = p->graph->pool.nodes.n;
  p->uses = DC_NEW_ARRAY(p->arena, uint32_t, p->n_named);
  p->let_at = DC_NEW_ARRAY(p->arena, uint32_t, p->n_named);
}

static void put_graph(printer *p) {
  const dc_graph *g = p->graph;
  allow_names(p);
  dc_text_indent(p->out, p->level++);
  dc_text_puts(p->out, "graph ");
  dc_name_print(dc_name_text(&g->names, g->name), p->out);
  dc_text_printf(p->out, " opset %d {\n", g->opset);
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) {
    dc_text_indent(p->out, p->level);
    dc_text_printf(p->out, "symbol %s >= %" PRId64 "\n", dc_name_text(&g->names, g->pool.symbols.v[s].name), g->pool.symbols.v[s].min);
  }
  for (dc_cid c = 1; c < g->containers.n; c++)
    if (dc_cont(g, c)->name) put_declaration(p, c);
  uint32_t n_captures = p->outer ? g->captures.n : 0; /* alone, a subgraph has inputs like others */
  for (uint32_t k = 0; k < n_captures; k++) {
    if (k == 0) dc_text_indent(p->out, p->level);
    dc_text_puts(p->out, k ? ", " : "captures ");
    dc_name_print(dc_cont_name(p->outer, g->captures.v[k]), p->out);
  }
  if (n_captures) dc_text_puts(p->out, "\n");
  for (uint32_t k = 0; k < g->outputs.n; k++) {
    if (k == 0) dc_text_indent(p->out, p->level);
    dc_text_puts(p->out, k ? ", " : "outputs ");
    put_container(p, g->outputs.v[k]);
  }
  if (g->outputs.n) dc_text_puts(p->out, "\n");
  for (uint32_t k = 0; k < g->equalities.n; k++) {
    dc_text_indent(p->out, p->level);
    put_list(p, "equal [", (dc_ex[]){g->equalities.v[k].a, g->equalities.v[k].b}, 2, "]");
    dc_text_puts(p->out, "\n");
  }
  for (uint32_t s = 0; s < g->states.n; s++) {
    dc_text_indent(p->out, p->level++);
    dc_text_puts(p->out, "state ");
    dc_name_print(dc_name_text(&g->names, g->states.v[s].name), p->out);
    dc_text_puts(p->out, " {\n");
    put_scope(p, &g->states.v[s].scope);
    dc_text_indent(p->out, --p->level);
    dc_text_puts(p->out, "}\n");
  }
  for (uint32_t k = 0; k < g->subgraphs.n; k++) {
    printer inner = {.graph = g->subgraphs.v[k], .outer = g, .out = p->out, .level = p->level, .arena = p->arena};
    put_graph(&inner);
  }
  dc_text_indent(p->out, --p->level);
  dc_text_puts(p->out, "}\n");
}

void dc_graph_print(const dc_graph *graph, dc_text *out) {
  dc_arena arena = {0};
  printer p = {.graph = graph, .out = out, .arena = &arena};
  put_graph(&p);
  dc_arena_free(&arena);
}

/* ---- parts ---- */

dc_printer *dc_printer_new(const dc_graph *graph, dc_arena *arena, dc_alias_fn alias, void *context) {
  printer *p = DC_NEW(arena, printer);
  *p = (printer){.graph = graph, .arena = arena, .alias = alias, .context = context};
  allow_names(p);
  return p;
}

const char *dc_printer_push(dc_printer *p, dc_param param) { return push_param(p, param); }

void dc_printer_pop(dc_printer *p, uint32_t n) { p->params.n -= n; }

void dc_printer_expr(dc_printer *p, dc_ex e, dc_text *out) {
  p->out = out;
  put_ex(p, e, LEVEL_OR);
}

void dc_printer_list(dc_printer *p, const dc_ex *items, uint32_t n, dc_text *out) {
  p->out = out;
  put_list(p, "[", items, n, "]");
}

void dc_printer_statement(dc_printer *p, const char *target, dc_ex value, dc_ex guard, bool is_python, dc_text *out) {
  p->out = out, p->is_python = is_python;
  name_parts(p, value, guard);
  if (guard && is_python) {
    dc_text_puts(out, "if ");
    put_ex(p, guard, LEVEL_SELECT);
    dc_text_puts(out, ":\n    ");
  }
  dc_text_printf(out, "%s = ", target);
  put_ex(p, value, LEVEL_SELECT);
  if (guard && !is_python) {
    dc_text_puts(out, " if ");
    put_ex(p, guard, LEVEL_SELECT);
  }
  forget_parts(p);
  p->is_python = false;
}

void dc_attrs_print(const dc_graph *graph, dc_nid library, dc_text *out) {
  printer p = {.graph = graph, .out = out};
  put_attrs(&p, &dc_node_at(graph, library)->lib);
}
