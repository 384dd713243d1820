/* Applies the rows of rewrites.def to the values of tasklets, from the leaves up. */
#include "passes/rewrite.h"

#include <string.h>

#include "ir/graph.h"
#include "passes/passes.h"

static bool is_variable(uint8_t code) { return code >= DC_REWRITE_X && code < DC_REWRITE_NUM; }
static uint32_t arity_of(uint8_t code) { return code < DC_PRIM_COUNT ? dc_prims[code].arity : code == DC_EX_SELECT ? 3 : 0; }

/* ---- matching ---- */

static const uint8_t *after(const uint8_t *pattern) {
  uint8_t code = *pattern++;
  if (code == DC_REWRITE_NUM) return pattern + 1;
  for (uint32_t n = arity_of(code); n; n--) pattern = after(pattern);
  return pattern;
}

/* x, y, z and constants are of one floating type, c and d are conditions. */
static bool bind(const dc_pool *pool, uint8_t variable, dc_ex e, dc_rewrite_match *m) {
  dc_ex *bound = &m->bound[variable - DC_REWRITE_X];
  dc_dtype type = dc_ex_dtype(pool, e);
  bool condition = variable == DC_REWRITE_C || variable == DC_REWRITE_D, constant = variable == DC_REWRITE_J || variable == DC_REWRITE_K;
  if (*bound) return *bound == e;
  if (condition ? type != DC_BOOL : type != m->type && (m->type || (type != DC_F32 && type != DC_F64))) return false;
  if (constant && dc_ex_node(pool, e)->op != DC_EX_FLOAT) return false;
  if (!condition) m->type = type;
  return *bound = e, true;
}

static bool is_number(const dc_pool *pool, dc_ex e, uint8_t number, dc_rewrite_match *m) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_FLOAT || node->f != number || (node->dtype != DC_F32 && node->dtype != DC_F64)) return false;
  m->type = (dc_dtype)node->dtype; /* of the operation's other operand as well */
  return true;
}

static bool commutes(uint8_t code) {
  return code == DC_ADD || code == DC_MUL || code == DC_MIN || code == DC_MAX || code == DC_EQ || code == DC_NE || code == DC_AND ||
         code == DC_OR;
}

static bool match(const dc_pool *pool, const uint8_t *pattern, dc_ex e, dc_rewrite_match *m) {
  uint8_t code = *pattern++;
  if (is_variable(code)) return bind(pool, code, e, m);
  if (code == DC_REWRITE_NUM) return is_number(pool, e, *pattern, m);
  if (code == DC_NEG && *pattern == DC_REWRITE_NUM) { /* as constructors fold it */
    double value;
    return dc_ex_is_const(pool, e, &value) && value == -pattern[1] && dc_ex_node(pool, e)->op == DC_EX_FLOAT;
  }
  if (dc_ex_node(pool, e)->op != code) return false;
  dc_rewrite_match start = *m;
  const uint8_t *at = pattern;
  bool good = true;
  for (uint32_t n = 0; n < arity_of(code) && good; n++, at = after(at)) good = match(pool, at, dc_ex_arg(pool, e, n), m);
  if (good || !commutes(code)) return good;
  *m = start;
  return match(pool, pattern, dc_ex_arg(pool, e, 1), m) && match(pool, after(pattern), dc_ex_arg(pool, e, 0), m);
}

/* ---- the rows that begin with an operation ---- */

typedef struct {
  uint8_t first[DC_EX_BITS + 1], next[UINT8_MAX + 1]; /* 1 + a row, 0: none */
} row_index;

static void index_rows(row_index *out) {
  uint32_t n = 0;
  memset(out, 0, sizeof *out);
  while (dc_rewrite_at(n)) n++;
  while (n--) {
    uint8_t *first = &out->first[dc_rewrite_at(n)->from[0]];
    out->next[n] = *first, *first = (uint8_t)(n + 1);
  }
}

/* ---- building ---- */

typedef struct {
  dc_pool *pool;
  const row_index *rows; /* to apply to each operation that is made; or NULL */
  const dc_rewrite_match *match;
  const uint8_t *at;
} builder;

static dc_ex improve(const row_index *rows, dc_pool *pool, dc_ex e);

static dc_ex build(builder *b) {
  uint8_t code = *b->at++;
  dc_ex args[3] = {0}, out;
  if (is_variable(code)) return b->match->bound[code - DC_REWRITE_X];
  if (code == DC_REWRITE_NUM) return dc_ex_const(b->pool, b->match->type, *b->at++);
  for (uint32_t n = 0; n < arity_of(code); n++) args[n] = build(b);
  if (code == DC_EX_SELECT) out = dc_ex_select(b->pool, args[0], args[1], args[2]);
  else out = arity_of(code) == 1 ? dc_ex_prim1(b->pool, (dc_op)code, args[0]) : dc_ex_prim2(b->pool, (dc_op)code, args[0], args[1]);
  return b->rows ? improve(b->rows, b->pool, out) : out;
}

dc_ex dc_rewrite_build(dc_pool *pool, const uint8_t *pattern, const dc_rewrite_match *m) {
  return build(&(builder){pool, NULL, m, pattern});
}

static bool holds(const dc_pool *pool, const dc_rewrite_row *row, const dc_rewrite_match *m) {
  double j = 0, k = 0;
  dc_ex first = m->bound[DC_REWRITE_J - DC_REWRITE_X], second = m->bound[DC_REWRITE_K - DC_REWRITE_X];
  if (first) (void)dc_ex_is_const(pool, first, &j);
  if (second) (void)dc_ex_is_const(pool, second, &k);
  return !row->condition || row->condition(j, k);
}

/* The arguments of e are as cheap as rows make them. */
static dc_ex improve(const row_index *rows, dc_pool *pool, dc_ex e) {
  for (uint32_t at = rows->first[dc_ex_node(pool, e)->op]; at; at = rows->next[at - 1]) {
    const dc_rewrite_row *row = dc_rewrite_at(at - 1);
    dc_rewrite_match m = {0};
    if (match(pool, row->from, e, &m) && holds(pool, row, &m)) return build(&(builder){pool, rows, &m, row->to});
  }
  return e;
}

/* ---- exponents: rows ask which number it is; other constants stay in memory, so that kernels are alike whatever they are ---- */

typedef struct {
  const dc_graph *graph;
  const row_index *rows;
} number_search;

static dc_ex number_of(void *context, dc_pool *pool, dc_ex e) {
  const number_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  const dc_container *k = node->op == DC_EX_READ && !node->nargs ? dc_cont(s->graph, node->ref) : NULL;
  if (!k || k->role != DC_ROLE_CONST || !k->data || k->data_bytes != (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype)) return e;
  double real = 0;
  float single = 0;
  if (k->dtype == DC_F32) return memcpy(&single, k->data, sizeof single), dc_ex_const(pool, DC_F32, single);
  if (k->dtype == DC_F64) return memcpy(&real, k->data, sizeof real), dc_ex_const(pool, DC_F64, real);
  return e;
}

static dc_ex state_exponent(void *context, dc_pool *pool, dc_ex e) {
  dc_exnode node = *dc_ex_node(pool, e);
  if (node.op == DC_POW && dc_dtype_is_float((dc_dtype)node.dtype)) {
    dc_ex exponent = dc_ex_arg(pool, e, 1), number = dc_ex_transform(pool, exponent, number_of, context);
    if (number != exponent) e = dc_ex_prim2(pool, DC_POW, dc_ex_arg(pool, e, 0), number);
  }
  return improve(((const number_search *)context)->rows, pool, e);
}

static dc_ex improve_part(void *rows, dc_pool *pool, dc_ex e) { return improve(rows, pool, e); }

dc_ex dc_rewrite(dc_pool *pool, dc_ex e) {
  row_index rows;
  index_rows(&rows);
  return dc_ex_transform(pool, e, improve_part, &rows);
}

/* ---- the pass ---- */

static void rewrite_scope(dc_graph *graph, row_index *rows, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_node *node = dc_node_at(graph, scope->v[k]);
    if (node->kind == DC_NODE_MAP) rewrite_scope(graph, rows, &node->map.body);
    if (node->kind != DC_NODE_TASKLET) continue;
    node->tasklet.value = dc_ex_transform(&graph->pool, node->tasklet.value, state_exponent, &(number_search){graph, rows});
  }
}

dc_status dc_pass_rewrite(dc_graph *graph) {
  row_index rows;
  index_rows(&rows);
  for (uint32_t s = 0; s < graph->states.n; s++) rewrite_scope(graph, &rows, &graph->states.v[s].scope);
  return DC_OK;
}
