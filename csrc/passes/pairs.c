/* An Einsum of several operands as one of two of them and one of what is left, where that takes far fewer multiplications or the two
 * are multiplied as matrices.
 *
 *     Y = Einsum(A, B, C) {equation = "enh,ehd,ne->nd"}   becomes
 *     P = Einsum(A, B) {equation = "enh,ehd->end"}   Y = Einsum(C, P) {equation = "ne,end->nd"}
 *
 * The pair is the one after which there is least to do, as in NumPy's greedy order of contractions.  Runs before differentiation. */
#include <math.h>
#include <string.h>

#include "ir/work.h"
#include "passes/equation.h"
#include "passes/operators.h"

typedef struct {
  dc_graph *graph;
  dc_equation of;              /* labels are letters alone */
  double guess[DC_EINSUM_END]; /* extents as numbers, by label; an unknown one is guessed, for the choice is about time only */
} einsum;

/* ---- reading ---- */

static bool has_letters_alone(const dc_einsum_labels *l) {
  bool alone = true;
  for (uint32_t k = 0; k < l->n; k++) alone &= l->label[k] >= 'A';
  return alone;
}

static void guess_extents(einsum *e) {
  dc_arena scratch = {0};
  int64_t *symbols = DC_NEW_ARRAY(&scratch, int64_t, e->graph->pool.symbols.n + 1);
  dc_work_guess(&e->graph->pool, symbols);
  for (int label = 0; label < DC_EINSUM_END; label++)
    e->guess[label] = e->of.extent[label] ? (double)dc_ix_eval(&e->graph->pool, e->of.extent[label], symbols, NULL) : 1;
  dc_arena_free(&scratch);
}

static bool read_einsum(einsum *e, dc_nid node) {
  if (!dc_equation_read(e->graph, node, &e->of) || e->of.n < 3 || !has_letters_alone(&e->of.output)) return false;
  for (uint32_t t = 0; t < e->of.n; t++)
    if (!has_letters_alone(&e->of.term[t])) return false;
  guess_extents(e);
  return true;
}

/* ---- choosing a pair ---- */

typedef struct {
  uint32_t a, b;
} pair;

static bool is_read_later(const einsum *e, pair p, char label) {
  bool later = dc_einsum_has(&e->of.output, label);
  for (uint32_t t = 0; t < e->of.n; t++) later |= t != p.a && t != p.b && dc_einsum_has(&e->of.term[t], label);
  return later;
}

/* Multiplications of an Einsum of these operands. */
static double work_of(const einsum *e, const dc_einsum_labels *const *terms, uint32_t n) {
  bool seen[DC_EINSUM_END] = {false};
  double work = 1;
  for (uint32_t t = 0; t < n; t++)
    for (uint32_t k = 0; k < terms[t]->n; k++) {
      const int label = terms[t]->label[k];
      if (!seen[label]) work *= e->guess[label];
      seen[label] = true;
    }
  return work;
}

/* Labels of both first, as a batch of matrices has them, then those of each alone. */
static dc_einsum_labels result_of(const einsum *e, pair p) {
  const dc_einsum_labels *a = &e->of.term[p.a], *b = &e->of.term[p.b];
  dc_einsum_labels out = {.n = 0};
  for (int of_both = 1; of_both >= 0; of_both--)
    for (uint32_t k = 0; k < a->n; k++)
      if (is_read_later(e, p, a->label[k]) && dc_einsum_has(b, a->label[k]) == of_both && !dc_einsum_has(&out, a->label[k]))
        dc_einsum_add(&out, a->label[k]);
  for (uint32_t k = 0; k < b->n; k++)
    if (is_read_later(e, p, b->label[k]) && !dc_einsum_has(&out, b->label[k])) dc_einsum_add(&out, b->label[k]);
  return out;
}

static double work_after(const einsum *e, pair p) {
  const dc_einsum_labels made = result_of(e, p), *both[] = {&e->of.term[p.a], &e->of.term[p.b]}, *rest[DC_EQUATION_TERMS] = {&made};
  uint32_t n = 1;
  for (uint32_t t = 0; t < e->of.n; t++)
    if (t != p.a && t != p.b) rest[n++] = &e->of.term[t];
  return work_of(e, both, 2) + work_of(e, rest, n);
}

/* Rows, columns and terms of some length. */
static bool multiplies_matrices(const einsum *e, pair p) {
  const dc_einsum_labels *a = &e->of.term[p.a], *b = &e->of.term[p.b];
  double rows = 1, columns = 1, terms = 1;
  for (uint32_t k = 0; k < a->n; k++) {
    const char label = a->label[k];
    const bool later = is_read_later(e, p, label), both = dc_einsum_has(b, label);
    if (!later && !both) return false;
    if (!later) terms *= e->guess[(int)label];
    else if (!both) rows *= e->guess[(int)label];
  }
  for (uint32_t k = 0; k < b->n; k++)
    if (!dc_einsum_has(a, b->label[k])) columns *= e->guess[(int)b->label[k]];
  return fmin(fmin(rows, columns), terms) >= DC_LEAST_MATRIX;
}

static bool choose_pair(const einsum *e, pair *out) {
  const dc_einsum_labels *all[DC_EQUATION_TERMS];
  for (uint32_t t = 0; t < e->of.n; t++) all[t] = &e->of.term[t];
  const double whole = work_of(e, all, e->of.n);
  double least = INFINITY;
  for (uint32_t a = 0; a < e->of.n; a++)
    for (uint32_t b = a + 1; b < e->of.n; b++) {
      const pair p = {a, b};
      const double work = work_after(e, p);
      const bool pays = 2 * work <= whole || (multiplies_matrices(e, p) && work <= 2 * whole);
      if (pays && work < least) least = work, *out = p;
    }
  return least < INFINITY;
}

/* ---- what becomes of it ---- */

static void put_labels(char *text, size_t *n, const dc_einsum_labels *l) {
  memcpy(text + *n, l->label, l->n);
  *n += l->n;
}

static dc_nid make(const einsum *e, const dc_einsum_labels *const *terms, const dc_cid *operands, uint32_t n, const dc_einsum_labels *made,
                   dc_cid result) {
  char text[(DC_EQUATION_TERMS + 1) * (DC_EINSUM_LABELS + 2)];
  size_t length = 0;
  for (uint32_t t = 0; t < n; t++) {
    if (t) text[length++] = ',';
    put_labels(text, &length, terms[t]);
  }
  text[length++] = '-', text[length++] = '>';
  put_labels(text, &length, made);
  dc_attr attr = dc_attr_string(e->graph, "equation", text, length);
  return dc_node_library(e->graph, "Einsum", "", 12, operands, n, &result, 1, &attr, 1);
}

/* Pushes the Einsum of the pair; what is left becomes the Einsum. */
static void split(einsum *e, pair p, dc_name name, dc_scope *scope) {
  dc_graph *graph = e->graph;
  const dc_einsum_labels made = result_of(e, p), *terms[] = {&e->of.term[p.a], &e->of.term[p.b]};
  const dc_cid operands[] = {e->of.operand[p.a], e->of.operand[p.b]};
  dc_ex shape[DC_EINSUM_LABELS];
  const uint32_t rank = dc_equation_shape(&e->of, &made, shape);
  const dc_cid product = dc_container_after(graph, e->of.result, "pair", (dc_dtype)dc_cont(graph, e->of.result)->dtype, rank, shape);
  const dc_nid node = make(e, terms, operands, 2, &made, product);
  dc_node_at(graph, node)->name = name;
  dc_scope_push(graph, scope, node);
  uint32_t n = 0;
  for (uint32_t t = 0; t < e->of.n; t++)
    if (t != p.a && t != p.b) e->of.operand[n] = e->of.operand[t], e->of.term[n++] = e->of.term[t];
  e->of.operand[n] = product, e->of.term[n++] = made, e->of.n = n;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid id, void *state, dc_scope *scope) {
  (void)context, (void)state;
  einsum e = {.graph = graph};
  pair p;
  if (!read_einsum(&e, id) || !choose_pair(&e, &p)) return false;
  const dc_name name = dc_node_at(graph, id)->name;
  do split(&e, p, name, scope);
  while (e.of.n > 2 && choose_pair(&e, &p));
  const dc_einsum_labels *terms[DC_EQUATION_TERMS];
  for (uint32_t t = 0; t < e.of.n; t++) terms[t] = &e.of.term[t];
  const dc_nid last = make(&e, terms, e.of.operand, e.of.n, &e.of.output, e.of.result);
  dc_node_at(graph, last)->name = name;
  dc_scope_push(graph, scope, last);
  return true;
}

dc_status dc_pass_pairs(const dc_pass_context *context, dc_graph *graph) {
  dc_operators_replace(context, graph, replace, NULL);
  return dc_pass_tidy(context->ops, graph);
}
