/* Attention spelled out in operators becomes one, where a library runs it: the matrix of all scores goes.
 *
 *     S = MatMul(Mul(q, scale), Transpose(k))  M = Where(mask, S, -inf)  P = Softmax(M)  y = MatMul(P, v)
 *     becomes   y, l = Attention(q, k, v, mask) {scale}
 *
 * with any of: factors before or behind the first product or none; masks that are added, one of them perhaps where a Reshape splits
 * the batch (windows of an image, say); a constant one that hides what is right of the diagonal; a Softmax that gives 0 where all is
 * masked.  Where differentiation follows, the gradient is stated: AttentionGradient computes it from l, and that of what is added. */
#include <math.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/attention.h"
#include "passes/operators.h"

enum { MASKS = 4 };

typedef struct {
  dc_cid q, k, v, mask[MASKS];
  dc_cid split; /* scores whose first two dimensions are what q, k and v have as their first; 0: they have all dimensions alike */
  uint32_t n_masks;
  bool is_causal, is_safe, is_turned; /* is_turned: k is, as a product's right operand */
  double scale;
} attention;

static dc_library *library_of(const dc_operators *o, dc_nid node) { return &dc_node_at(o->graph, node)->lib; }

/* ---- recognising ---- */

/* A constant of one element; f32 and f64, which the libraries take. */
static bool is_scalar(const dc_graph *graph, dc_cid c, double *value) {
  const dc_container *k = dc_cont(graph, c);
  float narrow;
  if (k->role != DC_ROLE_CONST || (k->dtype != DC_F32 && k->dtype != DC_F64)) return false;
  if (k->data_bytes != (k->dtype == DC_F32 ? sizeof narrow : sizeof *value)) return false;
  if (k->dtype == DC_F64) return memcpy(value, k->data, sizeof *value), true;
  memcpy(&narrow, k->data, sizeof narrow);
  return *value = narrow, true;
}

static bool is_number(const dc_graph *graph, dc_cid c, double wanted) {
  double value;
  return is_scalar(graph, c, &value) && value == wanted;
}

static bool same_shape(const dc_graph *graph, dc_cid a, dc_cid b, uint32_t rank) {
  const dc_container *x = dc_cont(graph, a), *y = dc_cont(graph, b);
  if (x->rank < rank || y->rank != x->rank) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (x->shape[d] != y->shape[d]) return false;
  return true;
}

/* Takes a factor off a value that nobody else reads, as long as there is one. */
static void take_factors(const dc_operators *o, dc_cid *c, double *scale) {
  for (;;) {
    double factor;
    dc_nid mul = dc_operator_making_only(o, *c, "Mul"), div = dc_operator_making_only(o, *c, "Div"), node = mul ? mul : div;
    if (!node) return;
    dc_cid a = dc_operator_input(o, node, 0), b = dc_operator_input(o, node, 1);
    if (mul && is_scalar(o->graph, a, &factor)) a = b;
    else if (!is_scalar(o->graph, b, &factor)) return;
    if (!same_shape(o->graph, a, *c, dc_cont(o->graph, *c)->rank) || factor == 0 || !isfinite(factor)) return;
    *scale *= mul ? factor : 1 / factor;
    *c = a;
  }
}

/* A constant matrix that is true up to the diagonal. */
static bool is_triangle(const dc_graph *graph, dc_cid c, dc_cid scores) {
  const dc_container *k = dc_cont(graph, c), *s = dc_cont(graph, scores);
  int64_t dims[DC_MAX_RANK];
  if (k->role != DC_ROLE_CONST || k->dtype != DC_BOOL || k->rank < 2 || !dc_container_dims(graph, c, dims)) return false;
  for (uint32_t d = 0; d + 2 < k->rank; d++)
    if (dims[d] != 1) return false;
  if (k->shape[k->rank - 2] != s->shape[s->rank - 2] || k->shape[k->rank - 1] != s->shape[s->rank - 1]) return false;
  int64_t rows = dims[k->rank - 2], columns = dims[k->rank - 1];
  for (int64_t n = 0; n < rows; n++)
    for (int64_t m = 0; m < columns; m++)
      if (((const char *)k->data)[n * columns + m] != (m <= n)) return false;
  return true;
}

/* A mask that broadcasts to the scores for certain, and adds no dimensions to them. */
static bool reaches(const dc_graph *graph, dc_cid mask, const dc_ex *scores, uint32_t rank) {
  const dc_container *m = dc_cont(graph, mask);
  for (uint32_t d = 0; d < m->rank && m->rank <= rank; d++)
    if (m->shape[d] != scores[rank - m->rank + d] && !dc_ex_is_one(&graph->pool, m->shape[d])) return false;
  return m->rank <= rank;
}

/* Are these scores whose first dimension the others have in two? */
static bool splits(dc_graph *graph, dc_cid whole, dc_cid parts) {
  const dc_container *w = dc_cont(graph, whole), *p = dc_cont(graph, parts);
  if (p->rank != w->rank + 1 || p->rank > DC_MAX_RANK || dc_ix_mul(&graph->pool, p->shape[0], p->shape[1]) != w->shape[0]) return false;
  for (uint32_t d = 1; d < w->rank; d++)
    if (w->shape[d] != p->shape[d + 1]) return false;
  return true;
}

/* Takes a Reshape off scores that were `whole` at the end, which splits their batch or undoes that; false: it is another one. */
static bool take_reshape(const dc_operators *o, dc_nid reshape, dc_cid whole, dc_cid *scores, attention *a) {
  dc_cid inner = dc_operator_input(o, reshape, 0);
  const uint32_t rank = dc_cont(o->graph, whole)->rank;
  if (o->uses[inner] != 1) return false;
  if (!a->split && splits(o->graph, whole, inner)) a->split = inner;
  else if (!a->split || dc_cont(o->graph, *scores)->rank == rank || !same_shape(o->graph, inner, whole, rank)) return false;
  return *scores = inner, true;
}

/* The mask of a Where or an Add; 0: it is no mask. */
static dc_cid read_mask(const dc_operators *o, dc_nid where, dc_nid add, dc_cid scores, dc_cid *inner) {
  dc_nid node = where ? where : add;
  if (where && !is_number(o->graph, dc_operator_input(o, where, 2), -INFINITY)) return 0;
  dc_cid left = dc_operator_input(o, node, 0);
  bool first = where || !o->maker[left] || !same_shape(o->graph, left, scores, dc_cont(o->graph, scores)->rank);
  *inner = dc_operator_input(o, node, first);
  return dc_operator_input(o, node, !first);
}

/* May it be added to what there is?  In front of a split its batch has to be one; a Where before an Add would not hide what that
 * makes of -inf. */
static bool may_add(const dc_operators *o, const attention *a, dc_cid mask, bool in_front, bool is_where) {
  const dc_container *m = dc_cont(o->graph, mask);
  if (a->n_masks == MASKS || (a->n_masks && (is_where || dc_cont(o->graph, a->mask[0])->dtype == DC_BOOL))) return false;
  return !in_front || m->rank + 1 < dc_cont(o->graph, a->split)->rank || dc_ex_is_one(&o->graph->pool, m->shape[0]);
}

/* Takes masks off the scores; what is left may have factors. */
static bool take_masks(const dc_operators *o, dc_cid *scores, attention *a) {
  const dc_cid whole = *scores;
  for (;;) {
    dc_nid where = dc_operator_making(o, *scores, "Where"), add = dc_operator_making(o, *scores, "Add");
    dc_nid reshape = dc_operator_making(o, *scores, "Reshape");
    const dc_container *s = dc_cont(o->graph, *scores);
    dc_cid inner = 0;
    if (reshape && take_reshape(o, reshape, whole, scores, a)) continue;
    if (!where && !add) return same_shape(o->graph, *scores, whole, dc_cont(o->graph, whole)->rank);
    dc_cid mask = read_mask(o, where, add, *scores, &inner);
    if (!mask || o->uses[inner] != 1 || !reaches(o->graph, mask, s->shape, s->rank) || !same_shape(o->graph, inner, *scores, s->rank))
      return false;
    if (where && is_triangle(o->graph, mask, *scores) && !a->n_masks) a->is_causal = true;
    else if (!may_add(o, a, mask, a->split && s->rank < dc_cont(o->graph, a->split)->rank, where)) return false;
    else a->mask[a->n_masks++] = mask;
    *scores = inner;
  }
}

/* Is the value -inf where the largest of a row of scores is? */
static bool says_dead(const dc_operators *o, dc_cid dead, dc_cid scores) {
  dc_nid equal = dc_operator_making(o, dead, "Equal");
  if (!equal || !is_number(o->graph, dc_operator_input(o, equal, 1), -INFINITY)) return false;
  dc_nid most = dc_operator_making(o, dc_operator_input(o, equal, 0), "ReduceMax");
  if (!most || dc_operator_input(o, most, 0) != scores) return false;
  const dc_container *m = dc_cont(o->graph, library_of(o, most)->out[0]), *s = dc_cont(o->graph, scores);
  if (m->rank != s->rank || !dc_ex_is_one(&o->graph->pool, m->shape[m->rank - 1])) return false;
  for (uint32_t d = 0; d + 1 < m->rank; d++)
    if (m->shape[d] != s->shape[d]) return false;
  return true;
}

/* Where(dead, 0, x) -> x, with dead; else 0. */
static dc_cid unless_dead(const dc_operators *o, dc_cid c, dc_cid *dead) {
  dc_nid where = dc_operator_making(o, c, "Where");
  if (!where || !is_number(o->graph, dc_operator_input(o, where, 1), 0)) return 0;
  *dead = dc_operator_input(o, where, 0);
  return dc_operator_input(o, where, 2);
}

/* The scores under the weights; 0 where these are no softmax of any along the last dimension. */
static dc_cid under_softmax(const dc_operators *o, dc_cid weights, attention *a) {
  dc_cid dead = 0, again = 0, inner = unless_dead(o, weights, &dead);
  dc_nid softmax = dc_operator_making_only(o, inner ? inner : weights, "Softmax");
  if (!softmax || o->uses[weights] != 1) return 0;
  const dc_attr *axis = dc_node_attr(o->graph, softmax, "axis");
  int64_t last = (int64_t)dc_cont(o->graph, weights)->rank - 1, along = axis && axis->kind == DC_ATTR_INT ? axis->i : -1;
  dc_cid scores = dc_operator_input(o, softmax, 0);
  if ((along != -1 && along != last) || library_of(o, softmax)->since < 13) return 0;
  if (!inner) return o->uses[scores] == 1 ? scores : 0;
  dc_cid safe = unless_dead(o, scores, &again);
  a->is_safe = safe && again == dead && o->uses[scores] == 1 && o->uses[dead] == 2 && o->uses[safe] == 2 && says_dead(o, dead, safe);
  return a->is_safe ? safe : 0;
}

static bool is_spelled_out(const dc_operators *o, dc_nid node, attention *a) {
  *a = (attention){.v = dc_operator_input(o, node, 1), .scale = 1, .is_turned = true};
  dc_cid scores = under_softmax(o, dc_operator_input(o, node, 0), a);
  if (!scores || !take_masks(o, &scores, a)) return false;
  take_factors(o, &scores, &a->scale);
  dc_nid product = dc_operator_making(o, scores, "MatMul");
  if (!product || o->uses[scores] != 1) return false;
  a->q = dc_operator_input(o, product, 0), a->k = dc_operator_input(o, product, 1);
  take_factors(o, &a->q, &a->scale);
  take_factors(o, &a->k, &a->scale);
  return true;
}

static double number(const dc_operators *o, dc_nid node, const char *name, double fallback) {
  const dc_attr *a = dc_node_attr(o->graph, node, name);
  return a && a->kind == DC_ATTR_INT ? (double)a->i : a && a->kind == DC_ATTR_FLOAT ? a->f : fallback;
}

/* ONNX's operator where it asks for no more than this: as many heads of keys as of queries in a dimension of their own, nothing
 * past, no window and no cap, and one result. */
static bool is_operator(const dc_operators *o, dc_nid node, attention *a) {
  dc_graph *graph = o->graph;
  const dc_library *lib = library_of(o, node);
  int64_t width;
  *a = (attention){.q = lib->in[0], .k = lib->in[1], .v = lib->in[2], .mask = {dc_operator_input(o, node, 3)},
                   .is_causal = number(o, node, "is_causal", 0) != 0, .is_safe = true};
  a->n_masks = a->mask[0] != 0;
  for (uint32_t k = 4; k < lib->n_in; k++)
    if (lib->in[k]) return false;
  for (uint32_t k = 1; k < lib->n_out; k++)
    if (lib->out[k] && o->uses[lib->out[k]]) return false;
  bool has_window = number(o, node, "left_window_size", -1) >= 0 || number(o, node, "right_window_size", -1) >= 0;
  if (has_window || number(o, node, "softcap", 0) != 0) return false;
  const dc_container *q = dc_cont(graph, a->q), *k = dc_cont(graph, a->k);
  if (q->rank != 4 || k->rank != 4) return false;
  a->scale = number(o, node, "scale", NAN);
  if (isnan(a->scale) && dc_ex_is_int(&graph->pool, q->shape[3], &width) && width > 0) a->scale = 1 / sqrt((double)width);
  dc_ex scores[] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
  return isfinite(a->scale) && (!a->n_masks || reaches(graph, a->mask[0], scores, 4));
}

static bool recognise(const dc_operators *o, dc_nid node, attention *a) {
  dc_graph *graph = o->graph;
  if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY) return false;
  dc_cid y = library_of(o, node)->out[0];
  bool is_it = dc_operator_making(o, y, "MatMul") == node ? is_spelled_out(o, node, a)
                                                          : dc_operator_making(o, y, "Attention") == node && is_operator(o, node, a);
  if (!is_it) return false;
  uint32_t rank = dc_cont(graph, a->q)->rank;
  return rank >= 2 && same_shape(graph, a->q, a->k, rank - 2) && same_shape(graph, a->q, a->v, rank - 2);
}

/* ---- operands ---- */

/* The value with its last two dimensions exchanged: what it was transposed from, or a Transpose, which the scope gets. */
static dc_cid turned(const dc_operators *o, dc_cid c, dc_scope *scope) {
  dc_graph *graph = o->graph;
  int64_t perm[DC_MAX_RANK];
  uint32_t rank = dc_cont(graph, c)->rank;
  dc_nid before = dc_operator_making(o, c, "Transpose");
  bool is_plain = true;
  if (!before || !dc_operator_permutation(o, before, perm))
    for (uint32_t d = before = 0; d < rank; d++) perm[d] = d;
  const int64_t last = perm[rank - 1];
  perm[rank - 1] = perm[rank - 2], perm[rank - 2] = last;
  for (uint32_t d = 0; d < rank; d++) is_plain &= perm[d] == d;
  dc_cid from = before ? dc_operator_input(o, before, 0) : c;
  if (is_plain) return from;
  dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, rank);
  for (uint32_t d = 0; d < rank; d++) shape[d] = dc_cont(graph, from)->shape[perm[d]];
  dc_cid to = dc_container_add(graph, dc_cont_name(graph, c), (dc_dtype)dc_cont(graph, c)->dtype, rank, shape, DC_ROLE_TEMP);
  dc_attr attr = dc_attr_ints(graph, "perm", perm, rank);
  dc_scope_push(graph, scope, dc_node_library(graph, "Transpose", "", 1, &from, 1, &to, 1, &attr, 1));
  return to;
}

/* The value with its first dimension as the split scores have it. */
static dc_cid split(const dc_operators *o, dc_cid c, dc_cid like, dc_scope *scope) {
  dc_graph *graph = o->graph;
  if (!like) return c;
  const dc_container *k = dc_cont(graph, c);
  dc_ex shape[DC_MAX_RANK];
  memcpy(shape, dc_cont(graph, like)->shape, 2 * sizeof *shape);
  memcpy(shape + 2, k->shape + 1, (k->rank - 1) * sizeof *shape);
  dc_cid to = dc_container_after(graph, c, "split", (dc_dtype)k->dtype, k->rank + 1, shape);
  dc_operator_reshape(graph, c, to, scope);
  return to;
}

/* All masks in one: what is added is added up first. */
static dc_cid join(dc_graph *graph, const attention *a, dc_scope *scope) {
  dc_cid all = a->mask[0];
  for (uint32_t k = 1; k < a->n_masks; k++) {
    const dc_container *x = dc_cont(graph, all), *y = dc_cont(graph, a->mask[k]);
    const uint32_t rank = x->rank > y->rank ? x->rank : y->rank;
    dc_ex shape[DC_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) {
      const dc_ex m = d + x->rank < rank ? 0 : x->shape[d + x->rank - rank], n = d + y->rank < rank ? 0 : y->shape[d + y->rank - rank];
      shape[d] = n && (!m || dc_ex_is_one(&graph->pool, m)) ? n : m;
    }
    dc_cid in[] = {all, a->mask[k]};
    all = dc_container_after(graph, all, "sum", (dc_dtype)x->dtype, rank, shape);
    dc_scope_push(graph, scope, dc_node_library(graph, "Add", "", 14, in, 2, &all, 1, NULL, 0));
  }
  return all;
}

/* ---- replacing ---- */

/* Attention in place of the last product; 0: no library runs it. */
static dc_nid attend(const dc_pass_context *context, const dc_operators *o, dc_nid node, const attention *a, dc_scope *scope) {
  dc_graph *graph = o->graph;
  dc_scope before = {0};
  dc_cid y = library_of(o, node)->out[0], key = a->is_turned ? turned(o, a->k, &before) : a->k;
  dc_cid in[] = {split(o, a->q, a->split, &before), split(o, key, a->split, &before), split(o, a->v, a->split, &before),
                 join(graph, a, &before)};
  dc_cid whole = y;
  if (a->split) {
    const dc_container *q = dc_cont(graph, in[0]), *v = dc_cont(graph, in[2]);
    dc_ex shape[DC_MAX_RANK];
    memcpy(shape, q->shape, q->rank * sizeof *shape);
    shape[q->rank - 1] = v->shape[v->rank - 1];
    y = dc_container_after(graph, y, "split", (dc_dtype)q->dtype, q->rank, shape);
  }
  const dc_container *k = dc_cont(graph, y);
  dc_cid out[] = {y, dc_container_after(graph, y, "sum", (dc_dtype)k->dtype, k->rank - 1, k->shape)};
  dc_attr attr[] = {dc_attr_int(graph, "is_causal", a->is_causal), dc_attr_int(graph, "safe", a->is_safe),
                    dc_attr_float(graph, "scale", a->scale)};
  dc_nid made = dc_node_library(graph, "Attention", "dcml", 1, in, 4, out, 2, attr, 3);
  dc_node_at(graph, made)->name = dc_node_at(graph, node)->name;
  if (!dc_operator_is_served(context, graph, made)) return 0;
  for (uint32_t n = 0; n < before.n; n++) dc_scope_push(graph, scope, before.v[n]);
  dc_scope_push(graph, scope, made);
  if (y != whole) dc_operator_reshape(graph, y, whole, scope);
  return made;
}

typedef struct {
  dc_nid node;
  bool of_mask; /* the gradient of its mask may be wanted */
} attended;

typedef struct {
  dc_operators operators;
  bool *dependent; /* by buffer: its gradient may be wanted */
  DC_VEC(attended) made;
} progress;

static bool *find_dependent(const dc_pass_context *context, dc_graph *graph) {
  bool *dependent = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t k = 0; k < context->n_wrt; k++) dependent[dc_container_find(graph, dc_name_text(&graph->names, context->wrt[k]))] = true;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid node = graph->states.v[s].scope.v[k];
      if (dc_node_touches(graph, node, DC_USE_READ, dependent)) dc_node_mark(graph, node, DC_USE_WRITE, dependent);
    }
  return dependent;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope) {
  progress *p = state;
  attention a = {0};
  dc_nid made = recognise(&p->operators, node, &a) ? attend(context, &p->operators, node, &a, scope) : 0;
  attended as = {.node = made};
  for (uint32_t k = 0; made && k < a.n_masks; k++) as.of_mask |= p->dependent[dc_container_root(graph, a.mask[k])];
  if (made) DC_PUSH(&graph->arena, &p->made, as);
  return made;
}

dc_status dc_pass_attention(const dc_pass_context *context, dc_graph *graph) {
  progress p = {.dependent = find_dependent(context, graph)};
  dc_operators_look(&p.operators, graph);
  dc_operators_replace(context, graph, replace, &p);
  for (uint32_t k = 0; k < p.made.n && context->training; k++)
    DC_TRY(dc_attention_state_gradient(graph, p.made.v[k].node, p.made.v[k].of_mask));
  return dc_pass_tidy(context->ops, graph);
}
