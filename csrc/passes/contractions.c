/* An Einsum of two operands that multiplies matrices, or a batch of them, as the product that a library runs.
 *
 *     Y = Einsum(A, B) {equation = "ibnd,jbnd->bnij"}   becomes
 *     S = Transpose(A)   T = Transpose(B)   U = Transpose(T)   Y = MatMul(S, U)
 *
 * with Reshapes where several labels make up the rows, columns or terms of a matrix.  Products take in a Transpose of the last two
 * dimensions afterwards.  Runs before attention is looked for, which may be spelled so, and before differentiation, so that gradients
 * are products as well. */
#include <string.h>

#include "passes/equation.h"
#include "passes/operators.h"

/* Labels by what they are: those of both operands and the result, of the left one and the result, of the right one and the
 * result, and of both operands alone, over which is summed. */
typedef enum { BATCH, ROWS, COLUMNS, TERMS, N_GROUPS } group;

typedef struct {
  dc_graph *graph;
  dc_equation of; /* two operands */
  dc_einsum_labels group[N_GROUPS];
} contraction;

/* ---- reading ---- */

static dc_einsum_labels joined(const dc_einsum_labels *a, const dc_einsum_labels *b, const dc_einsum_labels *c) {
  const dc_einsum_labels *parts[] = {a, b, c};
  dc_einsum_labels all = {.n = 0};
  for (int p = 0; p < 3; p++)
    for (uint32_t k = 0; k < parts[p]->n; k++) dc_einsum_add(&all, parts[p]->label[k]);
  return all;
}

static bool same(const dc_einsum_labels *a, const dc_einsum_labels *b) { return a->n == b->n && memcmp(a->label, b->label, a->n) == 0; }

/* Does a label stand twice in a term? */
static bool has_diagonal(const dc_einsum_labels *term) {
  bool twice = false;
  for (uint32_t d = 0; d < term->n; d++) twice |= memchr(term->label, term->label[d], d) != NULL;
  return twice;
}

/* False where a label of one operand alone is summed. */
static bool sort_labels(contraction *c) {
  const dc_einsum_labels *a = &c->of.term[0], *b = &c->of.term[1];
  bool all = true;
  for (uint32_t k = 0; k < c->of.output.n; k++) {
    const char label = c->of.output.label[k];
    dc_einsum_add(&c->group[!dc_einsum_has(b, label) ? ROWS : !dc_einsum_has(a, label) ? COLUMNS : BATCH], label);
  }
  for (uint32_t k = 0; k < a->n; k++)
    if (!dc_einsum_has(&c->of.output, a->label[k])) dc_einsum_add(&c->group[TERMS], a->label[k]);
  for (uint32_t k = 0; k < c->group[TERMS].n; k++) all &= dc_einsum_has(b, c->group[TERMS].label[k]);
  for (uint32_t k = 0; k < b->n; k++) all &= dc_einsum_has(a, b->label[k]) || dc_einsum_has(&c->of.output, b->label[k]);
  return all;
}

static dc_ex extent_of(const contraction *c, group g) {
  dc_ex product = dc_ex_int(&c->graph->pool, 1);
  for (uint32_t k = 0; k < c->group[g].n; k++) product = dc_ix_mul(&c->graph->pool, product, c->of.extent[(int)c->group[g].label[k]]);
  return product;
}

static bool is_long(const contraction *c, group g) {
  int64_t extent;
  return c->group[g].n && (!dc_ex_is_int(&c->graph->pool, extent_of(c, g), &extent) || extent >= DC_LEAST_MATRIX);
}

/* Rows and columns as the result has them, so that it need not be turned. */
static void choose_sides(contraction *c) {
  const dc_einsum_labels turned = joined(&c->group[BATCH], &c->group[COLUMNS], &c->group[ROWS]);
  const dc_einsum_labels term = c->of.term[0], rows = c->group[ROWS];
  const dc_cid operand = c->of.operand[0];
  if (!same(&c->of.output, &turned)) return;
  c->of.operand[0] = c->of.operand[1], c->of.operand[1] = operand;
  c->of.term[0] = c->of.term[1], c->of.term[1] = term;
  c->group[ROWS] = c->group[COLUMNS], c->group[COLUMNS] = rows;
}

static bool read_contraction(contraction *c, dc_nid node) {
  if (!dc_equation_read(c->graph, node, &c->of) || c->of.n != 2) return false;
  if (has_diagonal(&c->of.term[0]) || has_diagonal(&c->of.term[1]) || !sort_labels(c)) return false;
  if (!is_long(c, ROWS) || !is_long(c, COLUMNS) || !is_long(c, TERMS)) return false;
  choose_sides(c);
  return true;
}

/* ---- what becomes of it ---- */

typedef struct {
  contraction *c;
  dc_scope *scope; /* of nodes in order */
} builder;

static dc_cid container(const builder *b, const char *suffix, const dc_ex *shape, uint32_t rank) {
  dc_graph *graph = b->c->graph;
  return dc_container_after(graph, b->c->of.result, suffix, (dc_dtype)dc_cont(graph, b->c->of.result)->dtype, rank, shape);
}

static void transpose(builder *b, dc_cid from, const int64_t *perm, dc_cid to) {
  dc_graph *graph = b->c->graph;
  dc_attr attr = dc_attr_ints(graph, "perm", perm, dc_cont(graph, to)->rank);
  dc_scope_push(graph, b->scope, dc_node_library(graph, "Transpose", "", 13, &from, 1, &to, 1, &attr, 1));
}

/* Axes in the order of some labels, of others. */
static void reorder(builder *b, dc_cid from, const dc_einsum_labels *has, const dc_einsum_labels *wanted, dc_cid to) {
  int64_t perm[DC_EINSUM_LABELS];
  for (uint32_t k = 0; k < wanted->n; k++)
    perm[k] = (const char *)memchr(has->label, wanted->label[k], has->n) - has->label;
  transpose(b, from, perm, to);
}

/* A batch of matrices of these groups, whose axes have this order already. */
static dc_cid flatten(builder *b, dc_cid from, group first, group second) {
  const contraction *c = b->c;
  dc_ex shape[DC_EINSUM_LABELS];
  uint32_t rank = dc_equation_shape(&c->of, &c->group[BATCH], shape);
  if (c->group[first].n == 1 && c->group[second].n == 1) return from;
  shape[rank++] = extent_of(c, first), shape[rank++] = extent_of(c, second);
  const dc_cid to = container(b, "matrices", shape, rank);
  dc_operator_reshape(b->c->graph, from, to, b->scope);
  return to;
}

static dc_cid turn(builder *b, dc_cid from) {
  const dc_container *k = dc_cont(b->c->graph, from);
  const uint32_t rank = k->rank;
  dc_ex shape[DC_EINSUM_LABELS];
  int64_t perm[DC_EINSUM_LABELS];
  for (uint32_t d = 0; d < rank; d++) perm[d] = d + 2 < rank ? d : 2 * rank - 3 - d;
  for (uint32_t d = 0; d < rank; d++) shape[d] = k->shape[perm[d]];
  const dc_cid to = container(b, "turned", shape, rank);
  transpose(b, from, perm, to);
  return to;
}

/* The t-th operand as matrices of the groups `first` by `second`.  It is read as it lies if the two are the other way round, and
 * else is copied with its last axis last, where it can be. */
static dc_cid matrices(builder *b, int t, group first, group second) {
  const contraction *c = b->c;
  const dc_einsum_labels *term = &c->of.term[t];
  const dc_einsum_labels plain = joined(&c->group[BATCH], &c->group[first], &c->group[second]);
  const dc_einsum_labels other = joined(&c->group[BATCH], &c->group[second], &c->group[first]);
  const bool lies_turned = !same(term, &plain) && other.label[other.n - 1] == term->label[term->n - 1];
  const dc_einsum_labels *order = lies_turned ? &other : &plain;
  dc_cid at = c->of.operand[t];
  if (!same(term, order)) {
    dc_ex shape[DC_EINSUM_LABELS];
    const dc_cid to = container(b, "ordered", shape, dc_equation_shape(&c->of, order, shape));
    reorder(b, at, term, order, to);
    at = to;
  }
  return lies_turned ? turn(b, flatten(b, at, second, first)) : flatten(b, at, first, second);
}

/* The product goes to its result itself where that has the same axes. */
static bool multiply(const dc_pass_context *context, builder *b, dc_nid einsum) {
  const contraction *c = b->c;
  dc_graph *graph = c->graph;
  const dc_einsum_labels plain = joined(&c->group[BATCH], &c->group[ROWS], &c->group[COLUMNS]);
  const bool is_flat = c->group[ROWS].n == 1 && c->group[COLUMNS].n == 1, in_order = same(&plain, &c->of.output);
  const dc_cid in[] = {matrices(b, 0, ROWS, TERMS), matrices(b, 1, TERMS, COLUMNS)};
  dc_ex shape[DC_EINSUM_LABELS];
  const dc_cid split = in_order ? c->of.result : container(b, "split", shape, dc_equation_shape(&c->of, &plain, shape));
  uint32_t rank = dc_equation_shape(&c->of, &c->group[BATCH], shape);
  shape[rank++] = extent_of(c, ROWS), shape[rank++] = extent_of(c, COLUMNS);
  const dc_cid product = is_flat ? split : container(b, "product", shape, rank);
  const dc_nid made = dc_node_library(graph, "MatMul", "", 13, in, 2, &product, 1, NULL, 0);
  dc_node_at(graph, made)->name = dc_node_at(graph, einsum)->name;
  if (!dc_operator_is_served(context, graph, made)) return false;
  dc_scope_push(graph, b->scope, made);
  if (!is_flat) dc_operator_reshape(b->c->graph, product, split, b->scope);
  if (!in_order) reorder(b, split, &plain, &c->of.output, c->of.result);
  return true;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope) {
  (void)state;
  contraction c = {.graph = graph};
  dc_scope nodes = {0};
  builder b = {&c, &nodes};
  if (!read_contraction(&c, node) || !multiply(context, &b, node)) return false;
  for (uint32_t k = 0; k < nodes.n; k++) dc_scope_push(graph, scope, nodes.v[k]);
  return true;
}

dc_status dc_pass_contractions(const dc_pass_context *context, dc_graph *graph) {
  dc_operators_replace(context, graph, replace, NULL);
  return dc_pass_tidy(context->ops, graph);
}
