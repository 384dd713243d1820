/* The gradient of attention, stated: AttentionGradient in the border that autodiff/border.c draws around a node.
 *
 *     y = Attention(q, k, v, mask)   z = Transpose(y)        has the gradient, of which dz is given,
 *     dq, dk, dv, ds = AttentionGradient(q, k, v, mask, Transpose(z), l, Transpose(dz))   dmask = sum of ds
 *
 * Of a result that only leaves by a Transpose the border is drawn around that, and the result is read turned back: then one of the
 * two is kept, the one that what follows reads. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/attention.h"
#include "passes/fuse.h"
#include "passes/operators.h"

/* Sums over the dimensions along which the mask was repeated. */
static void sum_to(dc_graph *graph, dc_cid scores, dc_cid mask, dc_scope *scope) {
  const uint32_t rank = dc_cont(graph, scores)->rank, before = rank - dc_cont(graph, mask)->rank;
  int64_t axes[DC_MAX_RANK], n = 0;
  dc_ex shape[DC_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) {
    shape[d] = d < before ? dc_ex_int(&graph->pool, 1) : dc_cont(graph, mask)->shape[d - before];
    if (shape[d] != dc_cont(graph, scores)->shape[d]) axes[n++] = d;
  }
  dc_cid in[] = {scores, dc_container_add_const(graph, "axes", DC_I64, 1, &n, axes, (uint64_t)n * sizeof *axes)};
  dc_cid to = before && n ? dc_container_after(graph, mask, "kept", (dc_dtype)dc_cont(graph, mask)->dtype, rank, shape) : mask;
  if (n) dc_scope_push(graph, scope, dc_node_library(graph, "ReduceSum", "", 13, in, 2, &to, 1, NULL, 0));
  if (!n || to != mask) dc_operator_reshape(graph, n ? to : scores, mask, scope);
}

/* Puts nodes behind another one, or before it. */
static void put_beside(dc_graph *graph, dc_nid node, const dc_scope *more, bool before) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope old = graph->states.v[s].scope, new = {0};
    for (uint32_t k = 0; k < old.n; k++) {
      if (!before) dc_scope_push(graph, &new, old.v[k]);
      for (uint32_t j = 0; j < more->n && old.v[k] == node; j++) dc_scope_push(graph, &new, more->v[j]);
      if (before) dc_scope_push(graph, &new, old.v[k]);
    }
    graph->states.v[s].scope = new;
  }
}

typedef struct {
  dc_nid transpose; /* 0: there is none */
  dc_cid result;    /* before it */
  int64_t perm[DC_MAX_RANK], back[DC_MAX_RANK];
} way_out;

/* The node that alone reads a value, if it is a Transpose; 0. */
static dc_nid only_transpose(const dc_graph *graph, dc_cid c) {
  dc_nid found = 0;
  if (dc_cont(graph, c)->is_output) return 0;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      const dc_nid node = graph->states.v[s].scope.v[k];
      if (!dc_node_touches_one(graph, node, DC_USE_READ, c)) continue;
      if (found || !dc_operator_is(graph, node, "Transpose")) return 0;
      found = node;
    }
  return found;
}

static way_out take_way_out(dc_graph *graph, dc_nid node) {
  way_out e = {.result = dc_node_at(graph, node)->lib.out[0]};
  const dc_nid transpose = only_transpose(graph, e.result);
  if (!transpose || !dc_operator_permutation(&(dc_operators){.graph = graph}, transpose, e.perm)) return e;
  const uint32_t rank = dc_cont(graph, e.result)->rank;
  for (uint32_t d = 0; d < rank; d++) {
    if (e.perm[d] < 0 || e.perm[d] >= rank) return e;
    e.back[e.perm[d]] = d;
  }
  dc_node_at(graph, node)->lib.out[0] = dc_node_at(graph, transpose)->lib.out[0];
  return e.transpose = transpose, e;
}

static dc_cid transposed(dc_graph *graph, dc_cid from, const int64_t *perm, dc_cid to, dc_scope *scope) {
  const dc_attr attr = dc_attr_ints(graph, "perm", perm, dc_cont(graph, from)->rank);
  dc_scope_push(graph, scope, dc_node_library(graph, "Transpose", "", 1, &from, 1, &to, 1, &attr, 1));
  return to;
}

/* The node gives its own result again, which leaves as it did; *y and *dy are of that result. */
static void put_way_out(dc_graph *graph, dc_nid node, const way_out *e, dc_nid gradient, dc_cid *y, dc_cid *dy) {
  if (!e->transpose) return;
  const dc_container k = *dc_cont(graph, e->result);
  const dc_cid outside = *y, own = dc_container_after(graph, e->result, "own", (dc_dtype)k.dtype, k.rank, k.shape);
  dc_scope out = {0}, back = {0};
  transposed(graph, own, e->perm, outside, &out);
  *y = transposed(graph, outside, e->back, dc_container_after(graph, e->result, "again", (dc_dtype)k.dtype, k.rank, k.shape), &back);
  *dy = transposed(graph, *dy, e->back, dc_container_after(graph, *dy, "back", (dc_dtype)k.dtype, k.rank, k.shape), &back);
  dc_node_at(graph, node)->lib.out[0] = own;
  put_beside(graph, node, &out, false), put_beside(graph, gradient, &back, true);
}

dc_status dc_attention_state_gradient(dc_graph *graph, dc_nid node, bool of_mask) {
  static const uint32_t required[] = {0, 1, 2, 3}, given[] = {0};
  const way_out leaves = take_way_out(graph, node);
  dc_border border = {.required = required, .given = given, .n_required = of_mask ? 4 : 3, .n_given = 1};
  for (uint32_t s = 0; s < graph->states.n && leaves.transpose; s++) dc_scope_remove(&graph->states.v[s].scope, leaves.transpose);
  DC_TRY(dc_autodiff_border(graph, node, &border));
  dc_library lib = dc_node_at(graph, node)->lib;
  dc_cid y = lib.out[0], dy = border.cotangent[0];
  put_way_out(graph, node, &leaves, border.placeholder, &y, &dy);
  dc_library *made = &dc_node_at(graph, border.placeholder)->lib;
  dc_cid in[] = {lib.in[0], lib.in[1], lib.in[2], lib.in[3], y, lib.out[1], dy};
  made->op = dc_name_intern(&graph->names, "AttentionGradient");
  made->n_in = sizeof in / sizeof *in, made->in = DC_NEW_ARRAY(&graph->arena, dc_cid, made->n_in);
  memcpy(made->in, in, sizeof in);
  made->attr = lib.attr, made->n_attr = lib.n_attr;
  dc_node_at(graph, border.placeholder)->name = dc_node_at(graph, node)->name;
  if (!of_mask) return DC_OK;
  const dc_container *q = dc_cont(graph, in[0]);
  dc_ex shape[DC_MAX_RANK];
  memcpy(shape, q->shape, q->rank * sizeof *shape);
  shape[q->rank - 1] = dc_cont(graph, in[1])->shape[q->rank - 2];
  dc_cid mask = made->out[3], scores = dc_container_after(graph, mask, "scores", (dc_dtype)q->dtype, q->rank, shape);
  dc_scope more = {0};
  dc_node_at(graph, border.placeholder)->lib.out[3] = scores;
  sum_to(graph, scores, mask, &more);
  put_beside(graph, border.placeholder, &more, false);
  return DC_OK;
}
